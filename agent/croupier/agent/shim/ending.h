/* The end of the task: waits for it, and kills what it has left. Included by shim.c. */

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
        pid_t reaped = reap(found[i], WNOHANG);
        /* The shim may not kill a process of another user, as after sudo. */
        if (reaped == found[i] || (reaped == 0 && kill(found[i], SIGKILL) == 0)) {
            ended++;
        }
    }
    return ended;
}

/* Reaps the children that have ended; returns whether none is left. */
static int has_no_children(void) {
    pid_t reaped;
    while ((reaped = reap(-1, WNOHANG)) > 0) {
    }
    return reaped < 0 && errno == ECHILD;
}

/* Kills all that descends from the task, whose first process has ended and is not reaped, and reaps
 * it. Returns whether nothing is left. */
static int sweep(pid_t task) {
    sigset_t child;
    struct timespec now, pause = {0, 2 * 1000 * 1000};
    kill(-task, SIGKILL);
    kill_groups();
    /* All other processes of the task are children by now, or descend from one. */
    reap(task, 0);
    if (has_no_children()) {
        return 1;
    }
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t limit = now.tv_sec + SWEEP_S;
    while (end_children(task) > 0 && now.tv_sec < limit) {
        sigtimedwait(&child, NULL, &pause);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return has_no_children();
}

/* Whether the first process supervises others, in the namespaces of a task; see join.h. */
static int is_joined(void) {
    return restrictions.join && channel.reading >= 0;
}

/* A signal of the task, by the real-time signal that is so much above its number. */
enum { PASS_ON = 48 };

/* Waits for the end of the first process. Reaps orphans, but not it. */
static void wait_for_end(pid_t task, siginfo_t *end) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGUSR1);
    sigaddset(&awaited, PASS_ON + SIGHUP);
    sigaddset(&awaited, PASS_ON + SIGINT);
    sigaddset(&awaited, PASS_ON + SIGUSR1);
    sigaddset(&awaited, PASS_ON + SIGUSR2);
    for (;;) {
        end->si_pid = 0;
        while (waitid(P_ALL, 0, end, WEXITED | WNOHANG | WNOWAIT) == 0 && end->si_pid != 0) {
            if (end->si_pid == task) {
                return;
            }
            reap(end->si_pid, 0);
            end->si_pid = 0;
        }
        int number = sigwaitinfo(&awaited, NULL);
        if (number == SIGTERM) {
            kill(-task, SIGTERM);
        } else if (number > PASS_ON) {
            /* The shim in a box passes it on. */
            kill(-task, restrictions.is_boxed ? number : number - PASS_ON);
        } else if (number == SIGUSR1 && is_joined()) {
            kill(task, SIGUSR1);
        } else if (number == SIGUSR1) {
            kill(-task, SIGKILL);
            kill_groups();
            end_children(task);
        }
    }
}
