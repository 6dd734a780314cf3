/* The shim: starts one task, kills what it leaves behind, and records how it ended.

       shim DIRECTORY [OPTION...] -- PROGRAM [ARGUMENT...]

       shim --wait MARK

   The second starts one task after the other; see waiting.h.

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
     attached              everything ends when the agent has ended; 0 to 2 are closed after the
                           start. For commands beside a task
     terminal              descriptor 0 becomes the controlling terminal
     join=HEX              the namespaces of a live task to enter, as for setns; see join.h
     owner                 with `join=`: a user namespace owns them

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

   The second of them also goes to the pipe, after this process's pid. The shim passes
   SIGTERM to the task's process group, and other signals by real-time signals (PASS_ON in ending.h).
   It kills everything on SIGUSR1. The usage is written with the end.
   The shim is not dumpable, so a task of the same user cannot trace it. It is a subreaper, so it
   becomes the parent of orphans, and finds all that descends from the task at the end. If the shim is killed,
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
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL "croupier-shim 2"
#define PREFIX_LENGTH 2 /* of "T." */
#define SWEEP_S 10 /* a process that takes longer is stuck in the kernel */

enum { RUN_FILE = 3, PIPE = 4, FIRST_UNKNOWN = 5 };

extern char **environ;

#include "restrictions.h"
#include "run_file.h"
#include "output.h"
#include "task.h"
#include "ending.h"

static int null = -1;

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

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

/* Before the first task: no task of the same user can trace this process. */
static void protect(void) {
    open_oom_score();
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Ends what is started now with the agent. */
static void attach(void) {
    prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0);
    if (is_agent_gone()) {
        /* It ended before. The signal waits until there is something to kill. */
        kill(getpid(), SIGUSR1);
    }
}

/* Leaves the streams to the program: they end with the last process that has them. */
static void release_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        dup2(null, fd);
    }
}

/* Starts a task inside, and waits for its end. Returns the task's exit code, or 128 and the number
 * of its signal. */
static int supervise_inside(const char *directory, char **words) {
    char text[MESSAGE];
    siginfo_t end;
    pid_t task = start(getpid(), directory, words);
    if (restrictions.is_attached) {
        release_streams();
    }
    if (failed_step != NULL) {
        snprintf(text, sizeof text, "error %s %d\n", failed_step, failed_errno);
        tell(text);
        return 1;
    }
    tell("task\n");
    wait_for_end(task, &end);
    if (restrictions.is_attached) {
        sweep(task);
    }
    if (end.si_code == CLD_EXITED) {
        return end.si_status;
    }
    snprintf(text, sizeof text, "signal %d\n", end.si_status);
    tell(text);
    return 128 + end.si_status;
}

/* Ends as bubblewrap should. */
static int be_inside(const char *directory, char **words) {
    block_signals();
    protect();
    fcntl(CHANNEL, F_SETFD, FD_CLOEXEC);
    close_from(FIRST_INSIDE);
    take_environment();
    return supervise_inside(directory, words);
}

#include "join.h"

/* Starts the task, and writes that, also to `text`; reports an error. Returns its pid; 0: it cannot
 * be started. */
static pid_t begin(pid_t self, const char *directory, char **words, char *text) {
    int is_apart = restrictions.is_boxed || restrictions.join;
    pid_t task = restrictions.join ? start_joined(directory, words) : start(self, directory, words);
    if (failed_step == NULL && is_apart && !has_started_inside(task)) {
        sweep(task);
    }
    if (failed_step != NULL) {
        close_output();
        settle_output();
        snprintf(text, LINE, "error %s %d\n", failed_step, failed_errno);
        write_line(TASK_LINE, text);
        report(text);
        return 0;
    }
    struct process process = find_process(task);
    write_process(TASK_LINE, "task", &process, text);
    return task;
}

/* Waits for the end of the task, and writes it; also to `text`. Returns whether nothing is left. */
static int finish(pid_t task, char *text) {
    siginfo_t end;
    wait_for_end(task, &end);
    int is_clean = sweep(task);
    if (restrictions.is_boxed || restrictions.join) {
        find_signal(&end);
    }
    settle_output();
    write_end(&end, output.is_silent, text);
    /* A live agent makes the end durable itself. */
    if (is_agent_gone()) {
        fdatasync(run_file);
    }
    return is_clean;
}

#include "waiting.h"

int main(int argc, char **argv) {
    char text[2 * LINE];
    if (argc == 3 && strcmp(argv[1], "--wait") == 0) {
        return wait_for_tasks(argv[2]);
    }
    int is_inside = argc > 4 && strcmp(argv[1], "--inside") == 0;
    char **words = argc < 4 ? NULL : read_options(argv + 2 + is_inside);
    if (words == NULL) {
        puts(PROTOCOL);
        return argc == 1 ? 0 : 2;
    }
    if (is_inside) {
        return be_inside(argv[2], words);
    }
    block_signals();
    fcntl(RUN_FILE, F_SETFD, FD_CLOEXEC);
    fcntl(PIPE, F_SETFD, FD_CLOEXEC);
    fcntl(TARGET, F_SETFD, FD_CLOEXEC);
    fcntl(OWNER, F_SETFD, FD_CLOEXEC);
    close_from(restrictions.join ? FIRST_AFTER_OWNER : FIRST_UNKNOWN);
    protect();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (char **entry = environ; *entry != NULL && !restrictions.is_boxed; entry++) {
        *entry += PREFIX_LENGTH;
    }
    if (restrictions.is_attached) {
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        attach();
    }
    struct process self = find_process(getpid());
    write_process(SHIM_LINE, "shim", &self, text);
    pid_t task = begin(self.pid, argv[1], words, text);
    if (restrictions.is_attached) {
        release_streams();
    }
    if (task > 0) {
        report(text);
        finish(task, text);
    }
    return 0;
}
