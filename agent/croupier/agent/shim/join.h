/* A command beside a task that has namespaces of its own: this shim stays outside, and a copy of it
   supervises the command inside. Included by shim.c.

   With the option `join=` the agent passes further descriptors:
     5        a pidfd of the first process in the namespaces,
     6        with `owner`, the user namespace that owns them; it is entered first, as the user

   A helper enters the control groups and the namespaces, and forks the copy as a child of this
   process, so that it is in the pid namespace. The copy starts the program as the shim does outside,
   with all other options, and ends it when this process ends. It tells what the shim in a box tells,
   see box.h.

   Rule: until the program has its user and restrictions, no path of the namespaces is opened but
   "/", and nothing in them is executed. The helper and the copy are not dumpable, and the copy has
   two descriptors: the channel and /dev/null of the machine. */

enum { TARGET = 5, OWNER = 6, FIRST_AFTER_OWNER = 7 };

#define JOIN_FAILED "isolation:join"

#ifndef CLONE_NEWUSER
#define CLONE_NEWUSER 0x10000000
#endif
#ifndef CLONE_PARENT
#define CLONE_PARENT 0x00008000
#endif

static int join_namespaces(int fd, int kinds) {
    return kinds == 0 ? 0 : (int)syscall(SYS_setns, fd, kinds);
}

/* In the helper; returns the failed step. */
static const char *enter(void) {
    int kinds = restrictions.join;
    const char *failed = enter_groups();
    if (failed != NULL) {
        return failed;
    }
    if (restrictions.has_owner) {
        /* In a user namespace there may be no mapping for this process, and groups stay. */
        if (become_user() != 0) {
            return "user";
        }
        user.is_other = 0;
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        if (join_namespaces(OWNER, CLONE_NEWUSER) != 0) {
            return JOIN_FAILED;
        }
    }
    if (join_namespaces(TARGET, kinds & ~CLONE_NEWUSER) != 0 ||
        join_namespaces(TARGET, kinds & CLONE_NEWUSER) != 0) {
        return JOIN_FAILED;
    }
    return NULL;
}

/* In the copy: supervises the command, and ends as it does. */
static int be_joined(const char *directory, char **words) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0);
    /* The run file and the pipe of the agent are replaced. */
    dup3(channel.writing, CHANNEL, O_CLOEXEC);
    dup3(null, CHANNEL + 1, O_CLOEXEC);
    null = CHANNEL + 1;
    close_from(null + 1);
    oom_score.fd = -1;
    channel.reading = -1;
    failed_step = NULL;
    struct pollfd reader = {CHANNEL, 0, 0};
    if (poll(&reader, 1, 0) != 0) {
        return 1;
    }
    return supervise_inside(directory, words);
}

/* Starts the copy inside; returns its pid. Else `failed_step` is set. */
static pid_t start_joined(const char *directory, char **words) {
    static char text[MESSAGE], step[MESSAGE];
    pid_t *inner = mmap(NULL, sizeof *inner, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    failed_step = JOIN_FAILED;
    failed_errno = ENOMEM;
    if (inner == MAP_FAILED || open_channel() != 0) {
        return -1;
    }
    if (restrictions.seccomp != NULL && load_filter() != 0) {
        failed_errno = errno;
        failed_step = "isolation:seccomp";
        return -1;
    }
    raise_oom_score();
    pid_t helper = fork();
    if (helper == 0) {
        const char *failed = enter();
        pid_t pid = failed != NULL ? -1 : (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            _exit(be_joined(directory, words));
        }
        if (pid > 0) {
            *inner = pid;
            _exit(0);
        }
        snprintf(text, sizeof text, "error %s %d\n", failed != NULL ? failed : JOIN_FAILED, errno);
        (void)!write(channel.writing, text, strlen(text));
        _exit(1);
    }
    failed_errno = errno;
    restore_oom_score();
    close(channel.writing);
    channel.writing = -1;
    if (helper < 0) {
        return -1;
    }
    reap(helper, 0);
    if (*inner > 0) {
        failed_step = NULL;
        return *inner;
    }
    read_message(text);
    failed_errno = EPROTO;
    int number;
    if (sscanf(text, "error %40s %d", step, &number) == 2) {
        failed_errno = number;
        failed_step = step;
    }
    return -1;
}
