/* Watches over one task: starts it, ends what it leaves behind, and writes down how it ended.

       shim DIRECTORY ACCOUNT PROGRAM [ARGUMENT...]

   ACCOUNT is UID:GID[:GROUP,GROUP...], or - for the agent's own. The agent gives it
     0, 1, 2  the task's input and output, and the only descriptors that the task gets,
     3        the run file, locked; the lock is held for as long as this process lives,
     4        the writing end of a pipe that the agent reads news of all its shims from,
   a session of its own, every signal blocked and at its default, and each variable of the
   task's environment under the prefix "T.", so that none has an effect on this process.

   The run file has four lines of 64 bytes, each written in place and at once (run_file.py
   reads them): the agent's heading, then the lines that are written here:

       shim PID START           when this process began
       task PID START           once the program runs, or
       error STEP ERRNO         if it cannot be run: STEP is user, sandbox or exec
       exit CODE | signal N     once nothing of the task is left

   The second of them goes to the pipe too, after this process's pid. SIGTERM is passed on
   to the task's process group; SIGUSR1 ends everything. Whatever descends from the task is
   found at its end, for this process is a subreaper: it becomes the parent of what loses
   its own. If this process is killed, the kernel kills the task's first process.

   Rule: a process is reaped here and nowhere else, so no signal can hit a stranger. */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL "croupier-shim 1"
#define PREFIX_LENGTH 2 /* of "T." */
#define MAX_GROUPS 65536
#define OOM_SCORE_ADJ 500 /* of the task: the kernel ends it before the agent */
#define SWEEP_S 10 /* what cannot be killed within that is stuck in the kernel */

enum { RUN_FILE = 3, NEWS = 4, FIRST_UNKNOWN = 5 };
enum { LINE = 64, SHIM_LINE = 64, TASK_LINE = 128, END_LINE = 192 };

extern char **environ;

static struct {
    uid_t uid;
    gid_t gid;
    size_t count;
    gid_t groups[MAX_GROUPS];
} account;

/* Written by the child, which shares this memory until it has turned into the program. */
static const char *volatile failed_step;
static volatile int failed_errno;

static void write_line(off_t at, const char *text) {
    size_t length = strlen(text);
    while (pwrite(RUN_FILE, text, length, at) < 0 && errno == EINTR) {
    }
}

static void tell(const char *text) {
    char news[LINE * 2];
    int length = snprintf(news, sizeof news, "%d %s", (int)getpid(), text);
    /* An agent that is slow to read is waited for; one that is gone need not know. */
    while (write(NEWS, news, (size_t)length) < 0 && errno == EINTR) {
    }
}

/* A field of /proc/PID/stat, numbered as in proc(5) from 3 on; 0 if there is no such process. */
static unsigned long long stat_field(const char *pid, int number) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) {
        return 0;
    }
    text[length] = 0;
    /* The name, field 2, may hold anything, even brackets. */
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < number; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

static void write_process(off_t at, const char *name, pid_t pid, char *text) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    snprintf(text, LINE, "%s %d %llu\n", name, (int)pid, stat_field(number, 22));
    write_line(at, text);
}

/* Read UID:GID[:GROUP,GROUP...]; whether there is an account to become. */
static int read_account(const char *text) {
    if (strcmp(text, "-") == 0) {
        return 0;
    }
    char *at;
    account.uid = (uid_t)strtoul(text, &at, 10);
    account.gid = (gid_t)strtoul(*at ? at + 1 : at, &at, 10);
    while (*at && account.count < MAX_GROUPS) {
        account.groups[account.count++] = (gid_t)strtoul(at + 1, &at, 10);
    }
    return 1;
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

static void fail(const char *step) {
    failed_errno = errno;
    failed_step = step;
    _exit(1);
}

static const char *search_path(void) {
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "PATH=", 5) == 0) {
            return *entry + 5;
        }
    }
    return "/bin:/usr/bin";
}

/* As execvpe, but what is no program is an error and not given to a shell. */
static void execute(char **argv) {
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, environ);
        return;
    }
    int first_errno = 0;
    char path[4096];
    for (const char *at = search_path(); at != NULL;) {
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

/* In the child: have the kernel choose the task, and not the agent, when memory is short.
 * Any process may raise its score; only root may lower a score that root has set. */
static void raise_oom_score(void) {
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (read(fd, text, sizeof text - 1) > 0 && atoi(text) < OOM_SCORE_ADJ) {
        int length = snprintf(text, sizeof text, "%d", OOM_SCORE_ADJ);
        /* A kernel that refuses leaves things as they were. */
        (void)!pwrite(fd, text, (size_t)length, 0);
    }
    close(fd);
}

/* In the child: become the task. It must not touch this process's memory beyond `fail`. */
static void become(pid_t shim, const char *directory, int other_account, char **argv) {
    sigset_t none;
    setsid();
    if (chdir(directory) != 0) {
        fail("sandbox");
    }
    raise_oom_score(); /* before setuid, which takes the file away */
    if (other_account && (setgroups(account.count, account.groups) != 0 ||
                          setgid(account.gid) != 0 || setuid(account.uid) != 0)) {
        fail("user");
    }
    /* After setuid, which takes it away. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != shim) {
        _exit(1);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(argv);
    fail("exec");
}

static int is_child(const char *pid) {
    return stat_field(pid, 4) == (unsigned long long)getpid();
}

/* The children, in `found`; how many there are at least. */
static size_t find_children(pid_t *found, size_t size) {
    size_t count = 0;
    FILE *list = fopen("/proc/thread-self/children", "re");
    if (list != NULL) {
        int pid;
        while (count < size && fscanf(list, "%d", &pid) == 1) {
            found[count++] = pid;
        }
        fclose(list);
        return count;
    }
    /* A kernel without that file. */
    DIR *all = opendir("/proc");
    struct dirent *entry;
    while (all != NULL && count < size && (entry = readdir(all)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && is_child(entry->d_name)) {
            found[count++] = atoi(entry->d_name);
        }
    }
    if (all != NULL) {
        closedir(all);
    }
    return count;
}

/* SIGKILL every child but `spared`, reap those that have ended; how many these were.
 * Who was reaped may have ended after the look: its own children are then ours, and unseen. */
static int end_children(pid_t spared) {
    static pid_t found[1024];
    int ended = 0;
    size_t count = find_children(found, sizeof found / sizeof *found);
    for (size_t i = 0; i < count; i++) {
        if (found[i] == spared) {
            continue;
        }
        pid_t reaped = waitpid(found[i], NULL, WNOHANG);
        /* What has become somebody else, as by sudo, is not ours to end. */
        if (reaped == found[i] || (reaped == 0 && kill(found[i], SIGKILL) == 0)) {
            ended++;
        }
    }
    return ended;
}

/* The first process has ended, but is not reaped: end all that descends from it. */
static void sweep(pid_t task) {
    sigset_t child;
    struct timespec now, pause = {0, 2 * 1000 * 1000};
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    kill(-task, SIGKILL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t limit = now.tv_sec + SWEEP_S;
    while (end_children(task) > 0 && now.tv_sec < limit) {
        sigtimedwait(&child, NULL, &pause);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
}

/* Wait until the first process has ended, and say how. It is not reaped; orphans are. */
static void wait_for_end(pid_t task, siginfo_t *end) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGUSR1);
    for (;;) {
        end->si_pid = 0;
        while (waitid(P_ALL, 0, end, WEXITED | WNOHANG | WNOWAIT) == 0 && end->si_pid != 0) {
            if (end->si_pid == task) {
                return;
            }
            waitpid(end->si_pid, NULL, 0);
            end->si_pid = 0;
        }
        int number = sigwaitinfo(&awaited, NULL);
        if (number == SIGTERM) {
            kill(-task, SIGTERM);
        } else if (number == SIGUSR1) {
            kill(-task, SIGKILL);
            end_children(task);
        }
    }
}

static int is_agent_gone(void) {
    struct pollfd news = {NEWS, 0, 0};
    return poll(&news, 1, 0) != 0;
}

int main(int argc, char **argv) {
    char text[LINE];
    sigset_t all;
    siginfo_t end;
    if (argc < 4) {
        puts(PROTOCOL);
        return argc == 1 ? 0 : 2;
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    fcntl(RUN_FILE, F_SETFD, FD_CLOEXEC);
    fcntl(NEWS, F_SETFD, FD_CLOEXEC);
    close_unknown();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (char **entry = environ; *entry != NULL; entry++) {
        *entry += PREFIX_LENGTH;
    }
    pid_t self = getpid();
    int other_account = read_account(argv[2]);
    write_process(SHIM_LINE, "shim", self, text);
    pid_t task = vfork();
    if (task == 0) {
        become(self, argv[1], other_account, argv + 3);
    }
    if (task < 0) {
        failed_errno = errno;
        failed_step = "exec";
    }
    if (failed_step != NULL) {
        snprintf(text, sizeof text, "error %s %d\n", failed_step, failed_errno);
        write_line(TASK_LINE, text);
        tell(text);
        return 0;
    }
    write_process(TASK_LINE, "task", task, text);
    tell(text);
    wait_for_end(task, &end);
    sweep(task);
    snprintf(text, sizeof text, end.si_code == CLD_EXITED ? "exit %d\n" : "signal %d\n",
             end.si_status);
    write_line(END_LINE, text);
    /* An agent that lives makes the end durable by itself. */
    if (is_agent_gone()) {
        fdatasync(RUN_FILE);
    }
    waitpid(task, NULL, 0);
    return 0;
}
