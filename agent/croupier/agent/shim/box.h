/* A task in a box: namespaces that bubblewrap makes between this shim and the task. Included by
   shim.c, which starts twice for such a task.

   Outside, with the option `boxed`, PROGRAM is bubblewrap. It begins with all signals blocked, so
   that a SIGTERM for the task's group does not end it, and with the prefixed environment, so that
   a task's variables have no effect on it. It gets further descriptors:
     3        the writing end of a pipe, the channel
     4        this program, which bubblewrap executes inside as /proc/self/fd/4
     5        the file of `seccomp=`, if there is one; bubblewrap installs the filter

   Inside, the command line is

       shim --inside DIRECTORY [OPTION...] -- PROGRAM [ARGUMENT...]

   This is process 1 of the box. It starts the task as the shim does outside, with the options
   limit, umask, bounding, user, no-new-privs and landlock, passes signals to the task's group, and
   reaps. To the channel it writes what the run file tells of a start, `task` or `error STEP ERRNO`,
   and `signal N` if a signal ended the task: an exit code of bubblewrap cannot tell that. When it
   ends, the kernel kills all that is left in the box. */

enum { CHANNEL = 3, SELF = 4, FILTER = 5, FIRST_INSIDE = 4 };

#define BOX_FAILED "isolation:boxed"
#define MESSAGE 64 /* of one line in the channel */

static struct {
    int reading, writing;
} channel = {-1, -1};

/* Keeps the environment that the agent has prefixed; bubblewrap adds variables of its own. */
static void take_environment(void) {
    char **kept = environ;
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "T.", PREFIX_LENGTH) == 0) {
            *kept++ = *entry + PREFIX_LENGTH;
        }
    }
    *kept = NULL;
}

static int open_channel(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    channel.reading = ends[0];
    channel.writing = ends[1];
    return 0;
}

/* In the child, before it executes bubblewrap; returns the failed step. */
static const char *hand_over(void) {
    /* Above the numbers that are handed over. */
    int writing = fcntl(channel.writing, F_DUPFD_CLOEXEC, 10);
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int above = self < 0 ? -1 : fcntl(self, F_DUPFD_CLOEXEC, 10);
    if (writing < 0 || above < 0) {
        return BOX_FAILED;
    }
    if (restrictions.seccomp != NULL) {
        int filter = open(restrictions.seccomp, O_RDONLY | O_CLOEXEC);
        if (filter < 0) {
            return "isolation:seccomp";
        }
        /* dup2 would leave an equal number closed at the exec. */
        int copy = fcntl(filter, F_DUPFD_CLOEXEC, 10);
        if (copy < 0 || dup2(copy, FILTER) < 0) {
            return "isolation:seccomp";
        }
    }
    if (dup2(writing, CHANNEL) < 0 || dup2(above, SELF) < 0) {
        return BOX_FAILED;
    }
    return NULL;
}

/* Reads one line, without its end: the next one may be there already. */
static void read_message(char *text) {
    size_t length = 0;
    for (;;) {
        ssize_t count = read(channel.reading, text + length, 1);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0 || text[length] == '\n' || length == MESSAGE - 1) {
            break;
        }
        length++;
    }
    text[length] = 0;
}

/* Waits until the task runs inside. Returns whether it does, or bubblewrap was killed, which is
 * then the end of the task; else `failed_step` is set. */
static int has_started_inside(pid_t box) {
    static char text[MESSAGE], step[MESSAGE];
    int number;
    if (channel.writing >= 0) {
        close(channel.writing);
    }
    read_message(text);
    if (strcmp(text, "task") == 0) {
        return 1;
    }
    siginfo_t end = {0};
    waitid(P_PID, (id_t)box, &end, WEXITED | WNOWAIT);
    if (sscanf(text, "error %40s %d", step, &number) == 2) {
        failed_errno = number;
        failed_step = step;
    } else if (end.si_code == CLD_EXITED) {
        failed_errno = EPROTO;
        failed_step = BOX_FAILED;
    }
    return failed_step == NULL;
}

/* After the end of bubblewrap: tells the signal that ended the task, if one did. */
static void find_signal(siginfo_t *end) {
    char text[MESSAGE];
    int number;
    fcntl(channel.reading, F_SETFL, O_NONBLOCK);
    read_message(text);
    if (sscanf(text, "signal %d", &number) == 1 && end->si_code == CLD_EXITED &&
        end->si_status == 128 + number) {
        end->si_code = CLD_KILLED;
        end->si_status = number;
    }
}

static void tell(const char *text) {
    while (write(CHANNEL, text, strlen(text)) < 0 && errno == EINTR) {
    }
}
