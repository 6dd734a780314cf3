/* A shim that starts one task after the other. Included by shim.c.

       shim --wait MARK

   The agent passes these descriptors:
     0, 1, 2  /dev/null; the first one is the input of each task,
     3        a socket of messages, each a task,
     4        as without --wait,
     5        the directory of spare files for output, see output.h,
   and starts the shim in a session of its own, with all signals blocked and at their defaults.

   A message has the descriptors of the task's sandbox and of the locked run file, and texts that end
   with a zero byte: the number of words, the words of the other command line (DIRECTORY [OPTION...]
   -- PROGRAM [ARGUMENT...]), and the variables of the task. The options `boxed`, `attached`,
   `terminal` and `join` are not allowed. While the task runs, MARK is the value of the option run=,
   for those who look for the shim of a run file; it must be long enough for it.

   The start is reported with the end if that follows within 5 ms. The end is the line that the run
   file has of it, with the usage, after the word "silent" for a silent task; see output.h. The run
   file is closed before, so its lock is free. Then, or after an `error`, the shim waits for the next
   task. The agent sends signals only between the reports of
   the start and of the end. The shim ends when the agent has ended, or if it cannot end all
   processes of a task. */

#define MOST_BYTES 65536
#define MOST_WORDS 8192
#ifndef SOON_NS /* Tests set more than a busy machine needs to run a short task. */
#define SOON_NS 5000000L
#endif

enum { SOCKET = 3, SPARE = 5, GIVEN = 2, FIRST_FREE = 7 };

static struct {
    char text[MOST_BYTES];
    char *words[MOST_WORDS + 2]; /* each list ends with NULL */
} message;

/* Reads the next message; returns its length, 0 once the agent has ended. */
static size_t receive(int from) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(GIVEN * sizeof(int))];
    } control;
    struct iovec text = {message.text, sizeof message.text};
    struct msghdr received = {0};
    ssize_t length;
    received.msg_iov = &text;
    received.msg_iovlen = 1;
    received.msg_control = &control;
    received.msg_controllen = sizeof control;
    while ((length = recvmsg(from, &received, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
    }
    struct cmsghdr *passed = CMSG_FIRSTHDR(&received);
    if (length <= 0 || received.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || passed == NULL ||
        passed->cmsg_len != CMSG_LEN(GIVEN * sizeof(int))) {
        return 0;
    }
    int given[GIVEN];
    memcpy(given, CMSG_DATA(passed), sizeof given);
    output.home = given[0];
    run_file = given[1];
    return (size_t)length;
}

/* Splits a message; returns the words, NULL if it is malformed. Sets the environment. */
static char **split(size_t length) {
    char *at = message.text, *end = message.text + length;
    size_t count = 0, wanted;
    if (length == 0 || end[-1] != 0) {
        return NULL;
    }
    wanted = strtoul(at, NULL, 10);
    for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) {
        if (count == wanted) {
            message.words[count++] = NULL;
            environ = message.words + count;
        }
        if (count > MOST_WORDS) {
            return NULL;
        }
        message.words[count++] = at;
    }
    if (count <= wanted) {
        return NULL;
    }
    message.words[count] = NULL;
    return message.words;
}

/* Shows the run file among the arguments of this process; NULL: none. */
static void show(char *mark, size_t size, char **words) {
    memset(mark, 0, size);
    for (; words != NULL && *words != NULL && strcmp(*words, "--") != 0; words++) {
        if (strncmp(*words, "run=", 4) == 0 && strlen(*words) < size) {
            strcpy(mark, *words);
        }
    }
}

/* Signals to the task before this one may have come too late for it. */
static void forget_signals(void) {
    static const struct timespec at_once = {0, 0};
    sigset_t all;
    sigfillset(&all);
    while (sigtimedwait(&all, NULL, &at_once) > 0) {
    }
}

/* Waits a little for the end of the task; returns whether it has ended. The agent then learns of
 * the start and the end at once, which costs it, and all that it tells, half as much. */
static int ends_soon(pid_t task) {
    struct timespec now, until;
    sigset_t child;
    siginfo_t end;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SOON_NS;
    for (;;) {
        end.si_pid = 0;
        if (waitid(P_PID, (id_t)task, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != 0) {
            return 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct timespec left = {0, (until.tv_sec - now.tv_sec) * 1000000000L + until.tv_nsec -
                                       now.tv_nsec};
        if (left.tv_nsec <= 0) {
            return 0;
        }
        sigtimedwait(&child, NULL, &left);
    }
}

/* Runs one task; returns whether this process may run another one. */
static int run(const struct process *self, char *mark, size_t size, char **words) {
    char started[LINE] = "", ended[2 * LINE] = "";
    forget_signals();
    forget_restrictions();
    memset(&used, 0, sizeof used);
    failed_step = NULL;
    char **program = read_options(words + 1);
    if (program == NULL || restrictions.is_boxed || restrictions.is_attached ||
        restrictions.has_terminal || restrictions.join) {
        return 0;
    }
    show(mark, size, words);
    write_process(SHIM_LINE, "shim", self, started);
    pid_t task = begin(self->pid, words[0], program, started);
    close_output();
    int is_quick = task > 0 && ends_soon(task);
    if (task > 0 && !is_quick) {
        move_all_output();
        report(started);
    }
    int may_continue = task == 0 || finish(task, ended);
    show(mark, size, NULL);
    close(run_file);
    if (task > 0 && may_continue && is_quick) {
        report_both(started, ended);
    } else if (task > 0 && may_continue) {
        report(ended);
    }
    return may_continue;
}

static int wait_for_tasks(char *mark) {
    size_t size = strlen(mark) + 1, length;
    block_signals();
    close_from(SPARE + 1);
    int from = fcntl(SOCKET, F_DUPFD_CLOEXEC, FIRST_FREE);
    output.spare = SPARE;
    fcntl(SPARE, F_SETFD, FD_CLOEXEC);
    fcntl(PIPE, F_SETFD, FD_CLOEXEC);
    close(SOCKET);
    protect();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct process self = find_process(getpid());
    while ((length = receive(from)) > 0) {
        char **words = split(length);
        if (words == NULL || !run(&self, mark, size, words)) {
            return 2;
        }
    }
    return 0;
}
