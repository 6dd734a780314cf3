/* Two steps of a task in a container, before and after the OCI runtime (runc or crun).

       container run DIRECTORY ROOT -- RUNTIME [ARGUMENT...]

   Runs outside, as the agent's account and as the child of the shim. In a mount namespace of its
   own, and for an agent that is not root in a user namespace too, it mounts a tmpfs on DIRECTORY,
   and in it the file system of the container, `root`: an overlay whose lower part is ROOT, read
   only and without devices. So nothing is written to ROOT, and no mount is left after the task.
   Control groups are read-only there: the runtime makes none, and the container stays in those of
   the task. Then it runs RUNTIME, which starts the container, leaves its pid in DIRECTORY/pid and
   ends. It waits for the container, passes signals on, and ends as the container's program did; a
   runtime that fails is exit code 125. Each variable of the task's environment has the prefix
   "E.", so that it has no effect on the runtime, which gets PATH only.

       container init -- PROGRAM [ARGUMENT...]

   Runs inside, as process 1 and as the task's user. It takes the environment from descriptor 3,
   a file in memory, which keeps secrets off the disk. It starts the program as the leader of a
   session, passes signals to its process group, and reaps orphans. The program's end goes to
   descriptor 3, because an exit code cannot name a signal.

       container protect ROOT

   A hook of the runtime (createContainer), once it has made all mounts: makes the file system of
   the container read-only and its devices unusable. The runtime's own option for that would
   forget the devices.

   Without arguments it prints its version. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERSION "croupier-container 1"
#define PREFIX "E."
#define CGROUPS "/sys/fs/cgroup"
#define PROTECTED (MS_REMOUNT | MS_BIND | MS_RDONLY)
#define STATE_SIZE "size=4m,mode=0755"

enum { CHANNEL = 3, FIRST_UNKNOWN = 4 };
enum { NO_RUNTIME = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

extern char **environ;

static void fail(const char *what) {
    fprintf(stderr, "croupier: cannot start the container: %s: %s\n", what, strerror(errno));
    exit(NO_RUNTIME);
}

static void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        fail(path);
    }
    close(fd);
}

static void close_unknown(void) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, FIRST_UNKNOWN, ~0U, 0) == 0) {
        return;
    }
#endif
    for (int fd = FIRST_UNKNOWN; fd < sysconf(_SC_OPEN_MAX) && fd < 65536; fd++) {
        close(fd);
    }
}

/* Puts the task's environment into a file in memory, at descriptor CHANNEL. */
static void save_environment(void) {
    int fd = memfd_create("environment", MFD_CLOEXEC);
    if (fd < 0 || (fd != CHANNEL && dup3(fd, CHANNEL, O_CLOEXEC) < 0)) {
        fail("memfd");
    }
    size_t skipped = strlen(PREFIX);
    for (char **entry = environ; *entry != NULL; entry++) {
        /* The shim's own variable, which marks the processes of the run, has no prefix. */
        const char *text = *entry + (strncmp(*entry, PREFIX, skipped) == 0 ? skipped : 0);
        size_t length = strlen(text) + 1;
        if (write(CHANNEL, text, length) != (ssize_t)length) {
            fail("the environment");
        }
    }
}

/* Opens the file system of the container; no component may be a link. */
static int open_root(const char *path) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) {
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0) {
        fail(path);
    }
    return fd;
}

/* Maps the agent's account to user 0 of a new user namespace, and enters a mount namespace. */
static void enter_namespaces(void) {
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char line[64];
    if (unshare(CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER)) != 0) {
        fail("namespaces");
    }
    if (uid != 0) {
        write_text("/proc/self/setgroups", "deny");
        snprintf(line, sizeof line, "0 %u 1", (unsigned)uid);
        write_text("/proc/self/uid_map", line);
        snprintf(line, sizeof line, "0 %u 1", (unsigned)gid);
        write_text("/proc/self/gid_map", line);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        fail("private mounts");
    }
}

/* Makes every mount of control groups read-only in this namespace. */
static void protect_groups(int is_root) {
    char line[8192], path[4096];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (mounts == NULL) {
        fail("mountinfo");
    }
    while (fgets(line, sizeof line, mounts) != NULL) {
        if (sscanf(line, "%*s %*s %*s %*s %4095s", path) != 1 ||
            strncmp(path, CGROUPS, strlen(CGROUPS)) != 0) {
            continue;
        }
        unsigned long flags = PROTECTED | MS_NOSUID | MS_NODEV | MS_NOEXEC;
        /* Another user may not write there anyway. */
        if (mount(NULL, path, NULL, flags, NULL) != 0 && is_root) {
            fail(path);
        }
    }
    fclose(mounts);
}

static void make_directory(const char *path) {
    if (mkdir(path, 0755) != 0) {
        fail(path);
    }
}

/* Mounts the container's file system on DIRECTORY/root. */
static void mount_root(const char *directory, int root, int is_root) {
    char source[64];
    umask(022);
    if (mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, STATE_SIZE) != 0 ||
        chdir(directory) != 0) {
        fail(directory);
    }
    make_directory("lower");
    make_directory("upper");
    make_directory("work");
    make_directory("root");
    make_directory("state");
    snprintf(source, sizeof source, "/proc/self/fd/%d", root);
    if (mount(source, "lower", NULL, MS_BIND, NULL) != 0) {
        fail("root");
    }
    const char *options = is_root ? "lowerdir=lower,upperdir=upper,workdir=work"
                                  : "lowerdir=lower,upperdir=upper,workdir=work,userxattr";
    if (mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV, options) != 0) {
        fail("overlay");
    }
}

/* Runs the runtime in a process group of its own, which a SIGTERM for the task does not reach. */
static void run_runtime(char **words) {
    static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    static char *clean[] = {path, NULL};
    int status;
    pid_t pid = fork();
    if (pid < 0) {
        fail("fork");
    }
    if (pid == 0) {
        sigset_t none;
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        fcntl(CHANNEL, F_SETFD, 0);
        execve(words[0], words, clean);
        fail(words[0]);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        exit(NO_RUNTIME);
    }
}

static pid_t read_pid(void) {
    char text[32];
    int fd = open("pid", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0) {
        fail("its pid");
    }
    close(fd);
    text[length] = 0;
    return (pid_t)strtol(text, NULL, 10);
}

/* Reaps until `main` ends, and passes other signals to `target`; returns the status of `main`. */
static int wait_for(pid_t main_pid, pid_t target) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    /* To save its state. */
    sigaddset(&awaited, SIGHUP);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGUSR1);
    sigaddset(&awaited, SIGUSR2);
    for (;;) {
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
            if (ended == main_pid) {
                return status;
            }
        }
        if (ended < 0 && errno == ECHILD) {
            fail("its first process");
        }
        int number = sigwaitinfo(&awaited, NULL);
        if (number > 0 && number != SIGCHLD) {
            kill(target, number);
        }
    }
}

static void end_by(int number) {
    sigset_t none;
    signal(number, SIG_DFL);
    sigemptyset(&none);
    kill(getpid(), number);
    sigprocmask(SIG_SETMASK, &none, NULL);
    exit(128 + number);
}

static int run(const char *directory, const char *root, char **words) {
    int number = 0;
    int is_root = geteuid() == 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    /* A core of this process would tell nothing about the task. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    save_environment();
    if (!is_root) {
        /* The files of /proc/self belong to root while it is not dumpable. */
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
    enter_namespaces();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    int fd = open_root(root);
    protect_groups(is_root);
    mount_root(directory, fd, is_root);
    close(fd);
    run_runtime(words);
    pid_t container = read_pid();
    int status = wait_for(container, container);
    if (WIFSIGNALED(status)) {
        end_by(WTERMSIG(status));
    }
    if (pread(CHANNEL, &number, sizeof number, 0) == sizeof number && number > 0) {
        end_by(number);
    }
    return WEXITSTATUS(status);
}

/* Takes the environment from CHANNEL, and empties it. */
static void take_environment(void) {
    struct stat file;
    fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
    if (fstat(CHANNEL, &file) != 0) {
        fail("the environment");
    }
    size_t size = (size_t)file.st_size, count = 0;
    char *text = malloc(size + 1), **entries;
    for (size_t done = 0; text != NULL && done < size;) {
        ssize_t length = pread(CHANNEL, text + done, size - done, (off_t)done);
        if (length <= 0) {
            fail("the environment");
        }
        done += (size_t)length;
    }
    for (size_t at = 0; text != NULL && at < size; at++) {
        count += text[at] == 0;
    }
    entries = calloc(count + 1, sizeof *entries);
    if (text == NULL || entries == NULL || ftruncate(CHANNEL, 0) != 0) {
        fail("memory");
    }
    char *at = text;
    for (size_t number = 0; number < count; number++) {
        entries[number] = at;
        at += strlen(at) + 1;
    }
    environ = entries;
}

/* As execvpe, but without a shell for files that are no programs. */
static void execute(char **argv) {
    const char *search = getenv("PATH");
    int first_errno = 0;
    char path[4096];
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, environ);
        return;
    }
    for (const char *at = search != NULL ? search : "/bin:/usr/bin"; at != NULL;) {
        const char *end = strchrnul(at, ':');
        int length = snprintf(path, sizeof path, "%.*s%s%s", (int)(end - at), at,
                              end > at ? "/" : "", argv[0]);
        if (length < (int)sizeof path) {
            execve(path, argv, environ);
            if (errno != ENOENT && errno != ENOTDIR && first_errno == 0) {
                first_errno = errno;
            }
        }
        at = *end ? end + 1 : NULL;
    }
    errno = first_errno != 0 ? first_errno : ENOENT;
}

static int init(char **argv) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, NULL);
    take_environment();
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    pid_t program = fork();
    if (program < 0) {
        fail("fork");
    }
    if (program == 0) {
        setsid();
        sigprocmask(SIG_SETMASK, &none, NULL);
        execute(argv);
        fprintf(stderr, "croupier: cannot run %s in the image: %s\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
    }
    int status = wait_for(program, -program);
    if (!WIFSIGNALED(status)) {
        return WEXITSTATUS(status);
    }
    int number = WTERMSIG(status);
    (void)!pwrite(CHANNEL, &number, sizeof number, 0);
    return 128 + number;
}

int main(int argc, char **argv) {
    if (argc > 5 && strcmp(argv[1], "run") == 0 && strcmp(argv[4], "--") == 0) {
        close_unknown();
        return run(argv[2], argv[3], argv + 5);
    }
    if (argc > 3 && strcmp(argv[1], "init") == 0 && strcmp(argv[2], "--") == 0) {
        return init(argv + 3);
    }
    if (argc == 3 && strcmp(argv[1], "protect") == 0) {
        return mount(NULL, argv[2], NULL, PROTECTED | MS_NOSUID | MS_NODEV, NULL) == 0 ? 0 : errno;
    }
    puts(VERSION);
    return argc == 1 ? 0 : 2;
}
