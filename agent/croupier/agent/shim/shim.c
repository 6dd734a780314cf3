/* The shim: starts one task, kills what it leaves behind, and records how it ended.

       shim DIRECTORY [OPTION...] -- PROGRAM [ARGUMENT...]

   Options, each at most once unless told otherwise, in the order in which the child obeys them.
   An unknown or malformed option ends the shim with code 2. PATH is absolute.
     run=PATH              ignored; by it the agent finds the shim of a run file
     group=PATH            several: a file of a control group. The child enters it by writing "0"
     limit=NUMBER:SOFT:HARD  several: setrlimit, never above the present hard limit
     umask=OCTAL
     bounding=HEX          the capabilities that stay in the bounding set; no ambient one stays
     user=UID:GID[:GROUP,GROUP...]   the task's user; default: the agent's own
     no-new-privs          no program gives the task more rights than it has
     landlock=FILES:PORTS:SCOPES[:FIRST-LAST,...]   rights to handle, in hex. Files may be used in
                           each way, TCP ports in the given ranges only
     seccomp=PATH          a file with the instructions of a filter of system calls
     kill=PATH             several: the shim writes "1" to it when it kills what is left
     boxed                 PROGRAM is bubblewrap, which starts the task by this program; see box.h

   The agent passes these descriptors:
     0, 1, 2  the task's input and output, and the only descriptors that the task gets,
     3        the run file, locked; the lock is held while this process lives,
     4        the writing end of a pipe on which all shims report to the agent,
   and starts the shim in a session of its own, with all signals blocked and at their defaults.
   Each variable of the task's environment has the prefix "T.", so that it has no effect here.

   The run file has five lines of 64 bytes, each written in place by one write (run_file.py
   reads them). The agent writes the heading, the shim the others:

       shim PID START           the start time of this process
       task PID START           once the program runs, or
       error STEP ERRNO         if it cannot run: STEP is user, sandbox, exec or isolation:OPTION
       exit CODE | signal N     once nothing of the task is left
       usage CPU_MS MAXRSS_KB READ_KB WRITTEN_KB   of all its processes that were waited for

   The second of them also goes to the pipe, after this process's pid. The shim passes SIGTERM to
   the task's process group, and kills everything on SIGUSR1. The usage is written before the end.
   The shim is not dumpable, so a task of the same user cannot trace it. It is a subreaper, so it becomes the
   parent of orphans, and finds all that descends from the task at the end. If the shim is killed,
   the kernel kills the task's first process.

   Rule: only this process reaps its descendants, so no signal can hit an unrelated process. */

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

#define PROTOCOL "croupier-shim 2"
#define PREFIX_LENGTH 2 /* of "T." */
#define SWEEP_S 10 /* a process that takes longer is stuck in the kernel */

enum { RUN_FILE = 3, PIPE = 4, FIRST_UNKNOWN = 5 };
enum { LINE = 64, SHIM_LINE = 64, TASK_LINE = 128, END_LINE = 192, USAGE_LINE = 256 };

extern char **environ;

#include "restrictions.h"

/* Written by the child, which shares this memory until its exec. */
static const char *volatile failed_step;
static volatile int failed_errno;

#include "box.h"

static void write_line(off_t at, const char *text) {
    size_t length = strlen(text);
    while (pwrite(RUN_FILE, text, length, at) < 0 && errno == EINTR) {
    }
}

static void report(const char *text) {
    char line[LINE * 2];
    int length = snprintf(line, sizeof line, "%d %s", (int)getpid(), text);
    /* Waits for an agent that is slow to read; fails if the agent has ended. */
    while (write(PIPE, line, (size_t)length) < 0 && errno == EINTR) {
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

/* Reads the options; returns the task's words after them, NULL if one is wrong. */
static char **read_options(char **word) {
    for (; *word != NULL && strcmp(*word, "--") != 0; word++) {
        if (!read_option(*word)) {
            return NULL;
        }
    }
    return *word == NULL || word[1] == NULL ? NULL : word + 1;
}

static void close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) {
        return;
    }
#endif
    for (int fd = first; fd < sysconf(_SC_OPEN_MAX) && fd < 65536; fd++) {
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

/* As execvpe, but without a shell for files that are no programs. */
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

/* In the child: becomes the task. It must not write to this process's memory but by `fail`. */
static void become(pid_t shim, const char *directory, char **argv) {
    sigset_t none;
    setsid();
    if (chdir(directory) != 0) {
        fail("sandbox");
    }
    const char *failed = restrict_early();
    if (failed != NULL) {
        fail(failed);
    }
    /* After setuid, which resets it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != shim) {
        _exit(1);
    }
    failed = restrict_late();
    if (failed != NULL) {
        fail(failed);
    }
    if (restrictions.is_boxed) {
        failed = hand_over();
        if (failed == NULL) {
            execve(argv[0], argv, environ);
        }
        fail(failed != NULL ? failed : BOX_FAILED);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(argv);
    fail("exec");
}

/* Starts the task; returns its pid. Else `failed_step` is set. */
static pid_t start(pid_t self, const char *directory, char **words) {
    raise_oom_score();
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    pid_t task = -1;
    const char *failed = prepare_restrictions();
    if (failed == NULL && restrictions.is_boxed && open_channel() != 0) {
        failed = BOX_FAILED;
    }
    if (failed == NULL) {
        task = vfork();
        if (task == 0) {
            become(self, directory, words);
        }
        failed = "exec";
    }
    if (task < 0) {
        failed_errno = errno;
        failed_step = failed;
    }
    restore_oom_score();
    if (restrictions.has_landlock) {
        close(restrictions.landlock_fd);
    }
    return task;
}

static int is_child(const char *pid) {
    return stat_field(pid, 4) == (unsigned long long)getpid();
}

/* Writes the children to `found`; returns how many. */
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

/* Kills every child but `spared` and reaps those that have ended; returns how many.
 * A child may end after the scan. This process then gets its children, which the scan missed. */
static int end_children(pid_t spared) {
    static pid_t found[1024];
    int ended = 0;
    size_t count = find_children(found, sizeof found / sizeof *found);
    for (size_t i = 0; i < count; i++) {
        if (found[i] == spared) {
            continue;
        }
        pid_t reaped = waitpid(found[i], NULL, WNOHANG);
        /* The shim may not kill a process of another user, as after sudo. */
        if (reaped == found[i] || (reaped == 0 && kill(found[i], SIGKILL) == 0)) {
            ended++;
        }
    }
    return ended;
}

/* Kills all that descends from the task, whose first process has ended and is not reaped. */
static void sweep(pid_t task) {
    sigset_t child;
    struct timespec now, pause = {0, 2 * 1000 * 1000};
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    kill(-task, SIGKILL);
    kill_groups();
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t limit = now.tv_sec + SWEEP_S;
    while (end_children(task) > 0 && now.tv_sec < limit) {
        sigtimedwait(&child, NULL, &pause);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
}

/* Waits for the end of the first process. Reaps orphans, but not it. */
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
            kill_groups();
            end_children(task);
        }
    }
}

/* Ends as bubblewrap should: with the task's exit code, or 128 and the number of its signal. */
static int be_inside(const char *directory, char **words) {
    char text[MESSAGE];
    siginfo_t end;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
    close_from(FIRST_INSIDE);
    take_environment();
    pid_t task = start(getpid(), directory, words);
    if (failed_step != NULL) {
        snprintf(text, sizeof text, "error %s %d\n", failed_step, failed_errno);
        tell(text);
        return 1;
    }
    tell("task\n");
    wait_for_end(task, &end);
    if (end.si_code == CLD_EXITED) {
        return end.si_status;
    }
    snprintf(text, sizeof text, "signal %d\n", end.si_status);
    tell(text);
    return 128 + end.si_status;
}

static int is_agent_gone(void) {
    struct pollfd pipe = {PIPE, 0, 0};
    return poll(&pipe, 1, 0) != 0;
}

/* The time, size and disk traffic of all processes that this one and their parents waited for. */
static void write_usage(void) {
    const unsigned long long most = 999999999999ULL; /* so that the line has room */
    struct rusage used;
    unsigned long long found[4];
    char text[LINE];
    getrusage(RUSAGE_CHILDREN, &used);
    found[0] = (unsigned long long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
               (unsigned long long)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    found[1] = (unsigned long long)used.ru_maxrss;
    found[2] = (unsigned long long)used.ru_inblock / 2; /* of 512 bytes */
    found[3] = (unsigned long long)used.ru_oublock / 2;
    for (int i = 0; i < 4; i++) {
        found[i] = found[i] < most ? found[i] : most;
    }
    snprintf(text, sizeof text, "usage %llu %llu %llu %llu\n", found[0], found[1], found[2],
             found[3]);
    write_line(USAGE_LINE, text);
}

int main(int argc, char **argv) {
    char text[LINE];
    sigset_t all;
    siginfo_t end;
    int is_inside = argc > 4 && strcmp(argv[1], "--inside") == 0;
    char **words = argc < 4 ? NULL : read_options(argv + 2 + is_inside);
    if (words == NULL) {
        puts(PROTOCOL);
        return argc == 1 ? 0 : 2;
    }
    if (is_inside) {
        return be_inside(argv[2], words);
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    fcntl(RUN_FILE, F_SETFD, FD_CLOEXEC);
    fcntl(PIPE, F_SETFD, FD_CLOEXEC);
    close_from(FIRST_UNKNOWN);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (char **entry = environ; *entry != NULL && !restrictions.is_boxed; entry++) {
        *entry += PREFIX_LENGTH;
    }
    pid_t self = getpid();
    write_process(SHIM_LINE, "shim", self, text);
    pid_t task = start(self, argv[1], words);
    if (failed_step == NULL && restrictions.is_boxed && !has_started_inside(task)) {
        sweep(task);
        waitpid(task, NULL, 0);
    }
    if (failed_step != NULL) {
        snprintf(text, sizeof text, "error %s %d\n", failed_step, failed_errno);
        write_line(TASK_LINE, text);
        report(text);
        return 0;
    }
    write_process(TASK_LINE, "task", task, text);
    report(text);
    wait_for_end(task, &end);
    sweep(task);
    waitpid(task, NULL, 0);
    if (restrictions.is_boxed) {
        find_signal(&end);
    }
    write_usage();
    snprintf(text, sizeof text, end.si_code == CLD_EXITED ? "exit %d\n" : "signal %d\n",
             end.si_status);
    write_line(END_LINE, text);
    /* A live agent makes the end durable itself. */
    if (is_agent_gone()) {
        fdatasync(RUN_FILE);
    }
    return 0;
}
