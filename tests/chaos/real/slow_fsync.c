// Makes fsync and fdatasync as slow as the file SLOW_FSYNC says, in milliseconds; for LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void be_slow(void) {
    const char *path = getenv("SLOW_FSYNC");
    char text[16] = {0};
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    long ms = length > 0 ? atol(text) : 0;
    struct timespec wait = {ms / 1000, (ms % 1000) * 1000000L};
    if (ms > 0) nanosleep(&wait, NULL);
}

int fsync(int fd) {
    be_slow();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    be_slow();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
