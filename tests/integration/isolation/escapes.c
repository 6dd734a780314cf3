/* Tries to escape from a task, and prints `NAME held` or `NAME escaped` for each way.

   Rule: an attempt that succeeds changes nothing but its own process, or decoys that the test has
   made. Files of the machine are opened and never written; calls that change the machine have
   arguments that the kernel refuses after it has checked the right.

   Settings are in the environment: V, VSHIM, AGENT are pids; VHOME, WORK, ENTER, DECOY_RUN are
   paths; ABSTRACT a name; PORT, UNDEALT ports; SHM a key. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *text(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static int number(const char *name) { return atoi(text(name)); }

static int opens(int flags, const char *format, const char *word) {
    char path[4096];
    snprintf(path, sizeof path, format, word);
    return open(path, flags | O_CLOEXEC) >= 0;
}

static int reads(const char *format, const char *word) {
    char path[4096], byte;
    snprintf(path, sizeof path, format, word);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static int follows(const char *format, const char *word) {
    char path[4096];
    snprintf(path, sizeof path, format, word);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0;
}

/* Whether a call got past the check of its right: it failed for its arguments. */
static int permitted(long result) {
    return result >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS);
}

static int see(void) { return follows("/proc/%s", text("V")); }
static int environment(void) { return reads("/proc/%s/environ", text("V")); }
static int memory(void) { return reads("/proc/%s/maps", text("V")); }
static int descriptors(void) { return follows("/proc/%s/fd", text("V")); }
static int root_link(void) { return follows("/proc/%s/root/", text("V")); }
static int agent_root(void) { return follows("/proc/%s/root/", text("AGENT")); }
static int agent_environment(void) { return reads("/proc/%s/environ", text("AGENT")); }
static int sandbox(void) { return reads("%s/secret", text("VHOME")); }
static int write_sandbox(void) { return opens(O_WRONLY, "%s/secret", text("VHOME")); }
static int link_to_secret(void) {
    char path[4096], link_path[4096];
    snprintf(path, sizeof path, "%s/secret", text("VHOME"));
    snprintf(link_path, sizeof link_path, "%s/linked", text("HOME"));
    return link(path, link_path) == 0;
}
static int trace(void) {
    int pid = number("V");
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0) {
        return 0;
    }
    ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
    waitpid(pid, NULL, __WALL);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return 1;
}
static int signal_task(void) { return kill(number("V"), 0) == 0; }
static int signal_shim(void) { return kill(number("VSHIM"), 0) == 0; }
static int signal_agent(void) { return kill(number("AGENT"), 0) == 0; }
static int limit_neighbour(void) {
    struct rlimit limit;
    return prlimit(number("V"), RLIMIT_NOFILE, NULL, &limit) == 0;
}
static int checkpoint(void) { return opens(O_WRONLY | O_APPEND, "%s/checkpoint.log", text("WORK")); }
static int enter_group(void) {
    int fd = open(text("ENTER"), O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "0", 1) == 1;
}
static int limit_of_group(void) { return opens(O_WRONLY, "%s", text("LIMIT")); }
static int raise_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_SIGPENDING, &limit);
    limit.rlim_cur = limit.rlim_max += 1;
    return setrlimit(RLIMIT_SIGPENDING, &limit) == 0;
}
static int mount_any(void) { return permitted(mount("none", text("HOME"), "no-such-kind", 0, NULL)); }
static int change_root(void) { return chroot(text("HOME")) == 0; }
static int user_namespace(void) { return unshare(CLONE_NEWUSER) == 0; }
static int join_namespace(void) {
    char path[100];
    snprintf(path, sizeof path, "/proc/%s/ns/uts", text("AGENT"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && setns(fd, 0) == 0;
}
static int gain_user(void) {
    if (getuid() == 0) {
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        execl(text("SETUID"), "escapes", "--user", NULL);
        _exit(1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0;
}
static int load_module(void) { return permitted(syscall(SYS_init_module, NULL, 0, "")); }
static int load_kernel(void) { return permitted(syscall(SYS_kexec_load, 0, 99, NULL, ~0UL)); }
static int set_clock(void) { return permitted(syscall(SYS_clock_settime, 0, NULL)); }
static int load_bpf(void) { return permitted(syscall(SYS_bpf, -1, NULL, 0)); }
static int ring(void) { return permitted(syscall(SYS_io_uring_setup, 0, NULL)); }
static int keys(void) { return permitted(syscall(SYS_keyctl, -1, 0, 0, 0, 0)); }
static int sysrq(void) { return opens(O_WRONLY, "%s", "/proc/sysrq-trigger"); }
static int core_pattern(void) { return opens(O_WRONLY, "%s", "/proc/sys/kernel/core_pattern"); }
static int host_setting(void) { return opens(O_WRONLY, "%s", "/proc/sys/net/ipv4/ip_forward"); }
static int raw_disk(void) {
    return opens(O_RDONLY, "%s", "/dev/vda") || opens(O_RDONLY, "%s", "/dev/loop0") ||
           opens(O_RDONLY, "%s", "/dev/mem");
}
static int system_file(void) { return opens(O_WRONLY, "%s", "/etc/hosts"); }
static int passwords(void) { return reads("%s", "/etc/shadow"); }
static int device(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/device", text("HOME"));
    return mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0;
}
static int release_agent(void) {
    char content[4096] = "";
    int fd = open(text("RELEASE"), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t size = pread(fd, content, sizeof content, 0);
    return size > 0 && pwrite(fd, content, (size_t)size, 0) == size;
}
static int connects(const char *name, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    return connect(fd, (struct sockaddr *)&address, length) == 0;
}
static int unix_socket(void) {
    char path[100];
    snprintf(path, sizeof path, "%s/socket", text("DECOY_RUN"));
    return connects(path, strlen(path) + 1);
}
static int abstract_socket(void) {
    char name[100];
    int size = snprintf(name, sizeof name, "0%s", text("ABSTRACT"));
    name[0] = 0;
    return connects(name, (size_t)size);
}
static int tcp(int port, int is_bound) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr *any = (struct sockaddr *)&address;
    return (is_bound ? bind(fd, any, sizeof address) : connect(fd, any, sizeof address)) == 0;
}
static int connect_port(void) { return tcp(number("PORT"), 0); }
static int bind_port(void) { return tcp(number("UNDEALT"), 1); }
static int shared_memory(void) { return shmget(number("SHM"), 0, 0) >= 0; }
static int shm_file(void) { return opens(O_RDONLY, "/dev/shm/%s", text("ABSTRACT")); }
static int terminal_input(void) {
    int fd = posix_openpt(O_RDWR), unlocked = 0;
    if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlocked) != 0) {
        return 0;
    }
    setsid();
    int other = ioctl(fd, TIOCGPTPEER, O_RDWR);
    return other >= 0 && ioctl(other, TIOCSCTTY, 0) == 0 && ioctl(other, TIOCSTI, "x") == 0;
}

static const struct {
    const char *name;
    int (*tries)(void);
} ways[] = {
    {"see-neighbour", see},
    {"environ-of-neighbour", environment},
    {"memory-of-neighbour", memory},
    {"descriptors-of-neighbour", descriptors},
    {"root-of-neighbour", root_link},
    {"read-sandbox", sandbox},
    {"write-sandbox", write_sandbox},
    {"hard-link", link_to_secret},
    {"trace-neighbour", trace},
    {"signal-neighbour", signal_task},
    {"limits-of-neighbour", limit_neighbour},
    {"signal-shim", signal_shim},
    {"signal-agent", signal_agent},
    {"environ-of-agent", agent_environment},
    {"write-checkpoint", checkpoint},
    {"leave-group", enter_group},
    {"limit-of-group", limit_of_group},
    {"raise-limit", raise_limit},
    {"release-agent", release_agent},
    {"mount", mount_any},
    {"chroot", change_root},
    {"user-namespace", user_namespace},
    {"join-namespace", join_namespace},
    {"root-of-agent", agent_root},
    {"setuid-program", gain_user},
    {"load-module", load_module},
    {"kexec", load_kernel},
    {"set-clock", set_clock},
    {"bpf", load_bpf},
    {"io-uring", ring},
    {"key-rings", keys},
    {"terminal-input", terminal_input},
    {"make-device", device},
    {"raw-disk", raw_disk},
    {"sysrq", sysrq},
    {"core-pattern", core_pattern},
    {"kernel-settings", host_setting},
    {"write-etc", system_file},
    {"passwords", passwords},
    {"unix-socket", unix_socket},
    {"abstract-socket", abstract_socket},
    {"shared-memory", shared_memory},
    {"dev-shm", shm_file},
    {"connect-port", connect_port},
    {"bind-port", bind_port},
};

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--user") == 0) {
        return geteuid() == 0 ? 0 : 1;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(ways[i].tries() ? 7 : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        int escaped = WIFEXITED(status) && WEXITSTATUS(status) == 7;
        printf("%s %s\n", ways[i].name, escaped ? "escaped" : "held");
    }
    return 0;
}
