/* What the shim writes: the lines of the run file, and its reports to the agent. Included by shim.c. */

enum { LINE = 64, SHIM_LINE = 64, TASK_LINE = 128, END_LINE = 192 };

static int run_file = RUN_FILE;

/* What the processes of the task have used that this one, or their parents, waited for. */
static struct {
    unsigned long long cpu_us, size_kb, read, written; /* of disks, in blocks of 512 bytes */
} used;

static void write_line(off_t at, const char *text) {
    size_t length = strlen(text);
    while (pwrite(run_file, text, length, at) < 0 && errno == EINTR) {
    }
}

/* Reports a line, and perhaps another one, at once. */
static void report_both(const char *text, const char *more) {
    char lines[LINE * 5];
    int pid = (int)getpid(), length = snprintf(lines, sizeof lines, "%d %s", pid, text);
    if (more != NULL) {
        length += snprintf(lines + length, sizeof lines - (size_t)length, "%d %s", pid, more);
    }
    /* Waits for an agent that is slow to read; fails if the agent has ended. */
    while (write(PIPE, lines, (size_t)length) < 0 && errno == EINTR) {
    }
}

static void report(const char *text) {
    report_both(text, NULL);
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

struct process {
    pid_t pid;
    unsigned long long start;
};

static struct process find_process(pid_t pid) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    struct process found = {pid, stat_field(number, 22)};
    return found;
}

static void write_process(off_t at, const char *name, const struct process *process, char *text) {
    snprintf(text, LINE, "%s %d %llu\n", name, (int)process->pid, process->start);
    write_line(at, text);
}

static unsigned long long in_us(const struct timeval *time) {
    return (unsigned long long)time->tv_sec * 1000000 + (unsigned long long)time->tv_usec;
}

/* As waitpid, and adds what the process has used. */
static pid_t reap(pid_t pid, int flags) {
    struct rusage found;
    pid_t reaped = wait4(pid, NULL, flags, &found);
    if (reaped > 0) {
        used.cpu_us += in_us(&found.ru_utime) + in_us(&found.ru_stime);
        used.read += (unsigned long long)found.ru_inblock;
        used.written += (unsigned long long)found.ru_oublock;
        if ((unsigned long long)found.ru_maxrss > used.size_kb) {
            used.size_kb = (unsigned long long)found.ru_maxrss;
        }
    }
    return reaped;
}

/* Writes the end and the usage, at once: a run that has an end has its usage. */
static void write_end(const siginfo_t *end, int is_silent, char *text) {
    const unsigned long long most = 999999999999ULL; /* so that the line has room */
    unsigned long long found[4] = {used.cpu_us / 1000, used.size_kb, used.read / 2,
                                   used.written / 2};
    char lines[2 * LINE + 1];
    for (int i = 0; i < 4; i++) {
        found[i] = found[i] < most ? found[i] : most;
    }
    const char *kind = end->si_code == CLD_EXITED ? "exit" : "signal";
    int length = snprintf(lines, LINE, "%s %d\n", kind, end->si_status);
    memset(lines + length, ' ', (size_t)(LINE - length));
    snprintf(lines + LINE, LINE, "usage %llu %llu %llu %llu\n", found[0], found[1], found[2],
             found[3]);
    write_line(END_LINE, lines);
    snprintf(text, 2 * LINE, "%s%s %d %s", is_silent ? "silent " : "", kind, end->si_status,
             lines + LINE);
}

static int is_agent_gone(void) {
    struct pollfd pipe = {PIPE, 0, 0};
    return poll(&pipe, 1, 0) != 0;
}
