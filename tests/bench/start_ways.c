/* Ways to start a task under a process that supervises it, each as bare as it can be.

       cc -O2 -static -o ways tests/bench/start_ways.c
       ./ways floor|execute|fork|wait [TASKS] [AT_ONCE]

   floor: the task alone. execute: a shim for each task is executed, which starts it. fork: a small
   process forks a shim for each task. wait: AT_ONCE shims start one task after the other. Prints
   the rate, and the CPU of all processes for a task. */

#define _GNU_SOURCE
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

extern char **environ;
static char *task[] = {"/bin/true", NULL};

static double seconds(struct timeval at) { return (double)at.tv_sec + (double)at.tv_usec * 1e-6; }

static double cpu(void) {
    struct rusage own, others;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &others);
    return seconds(own.ru_utime) + seconds(own.ru_stime) + seconds(others.ru_utime) +
           seconds(others.ru_stime);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void supervise(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        setsid();
        execve(task[0], task, environ);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
}

static void start_one(const char *way, const char *self) {
    char *shim[] = {(char *)self, "shim", NULL};
    pid_t pid;
    if (strcmp(way, "floor") == 0) {
        posix_spawn(&pid, task[0], NULL, NULL, task, environ);
    } else if (strcmp(way, "execute") == 0) {
        posix_spawn(&pid, self, NULL, NULL, shim, environ);
    } else if (fork() == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        setsid();
        supervise();
        _exit(0);
    }
}

static void give_to_waiting(int tasks, int at_once) {
    struct pollfd agent[MOST];
    char message[8];
    for (int i = 0; i < at_once; i++) {
        int ends[2];
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
        if (fork() == 0) {
            prctl(PR_SET_CHILD_SUBREAPER, 1);
            close(ends[0]);
            for (int other = 0; other < i; other++) {
                close(agent[other].fd);
            }
            while (recv(ends[1], message, sizeof message, 0) > 0) {
                supervise();
                send(ends[1], "x", 1, 0);
            }
            _exit(0);
        }
        close(ends[1]);
        agent[i] = (struct pollfd){ends[0], POLLIN, 0};
    }
    int given = 0;
    for (; given < at_once && given < tasks; given++) {
        send(agent[given].fd, "x", 1, 0);
    }
    for (int ended = 0; ended < tasks;) {
        poll(agent, (nfds_t)at_once, -1);
        for (int i = 0; i < at_once; i++) {
            if (agent[i].revents & POLLIN) {
                recv(agent[i].fd, message, sizeof message, 0);
                ended++;
                if (given < tasks) {
                    given++;
                    send(agent[i].fd, "x", 1, 0);
                }
            }
        }
    }
    for (int i = 0; i < at_once; i++) {
        close(agent[i].fd);
    }
}

int main(int argc, char **argv) {
    char self[4096] = "";
    if (argc < 2 || readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        return 2;
    }
    if (strcmp(argv[1], "shim") == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        supervise();
        return 0;
    }
    int tasks = argc > 2 ? atoi(argv[2]) : 1000, at_once = argc > 3 ? atoi(argv[3]) : 2;
    if (at_once < 1 || at_once > MOST) {
        return 2;
    }
    double began = now(), used = cpu();
    if (strcmp(argv[1], "wait") == 0) {
        give_to_waiting(tasks, at_once);
    } else {
        for (int i = 0; i < tasks; i++) {
            if (i >= at_once) {
                wait(NULL);
            }
            start_one(argv[1], self);
        }
    }
    while (wait(NULL) > 0) {
    }
    printf("%-8s %6.0f/s   cpu %.2f ms\n", argv[1], tasks / (now() - began),
           (cpu() - used) / tasks * 1e3);
    return 0;
}
