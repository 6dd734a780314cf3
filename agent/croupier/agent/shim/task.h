/* The start of the task. Included by shim.c. */

/* Written by the child, which shares this memory until its exec. */
static const char *volatile failed_step;
static volatile int failed_errno;

#include "box.h"

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
    if (restrictions.has_terminal && ioctl(0, TIOCSCTTY, 0) != 0) {
        fail("isolation:terminal");
    }
    if (!restrictions.join && chdir(directory) != 0) {
        fail("sandbox");
    }
    const char *failed = restrict_early();
    if (failed != NULL) {
        fail(failed);
    }
    /* In the namespaces of a task, its user finds the way, not the agent's. */
    if (restrictions.join && chdir(directory) != 0) {
        fail("sandbox");
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
    for (int stream = 0; stream < STREAMS && output.home >= 0; stream++) {
        if (dup2(output.streams[stream].fd, stream + 1) < 0) {
            fail("exec");
        }
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(argv);
    fail("exec");
}

/* Starts the task; returns its pid. Else `failed_step` is set. */
static pid_t start(pid_t self, const char *directory, char **words) {
    raise_oom_score();
    pid_t task = -1;
    const char *failed = prepare_restrictions();
    if (failed == NULL && output.home >= 0 && open_output() != 0) {
        failed = "sandbox";
    }
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
    if (restrictions.landlock_fd >= 0) {
        close(restrictions.landlock_fd);
    }
    if (task > 0 && failed_step != NULL) {
        /* Its child has ended. */
        reap(task, 0);
    }
    return task;
}
