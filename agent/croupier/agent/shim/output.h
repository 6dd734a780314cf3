/* The output of a task that a waiting shim starts: two files of its sandbox, which a task that writes
   nothing does not get. Included by shim.c.

   Making a file and removing it may cost as much as the task itself. So each stream begins as an
   empty file in the directory of spare files, and is moved into the sandbox when the task writes to
   it and ends, or has run for 5 ms. The spare file of a task that has ended and wrote nothing is used
   again.

   Rule: a file is used again only if nothing is left of the task before: no byte, link, attribute or
   mode, and no open file, as the kernel tells by granting a lease. Only its owner may open it, so the
   path of a descriptor is of no use to the user of that task.

   Directories whose files inherit the id of a project take no spare files: the files are made there.

   A task is silent if both its files can be used again, and its sandbox is empty and as it was. The
   agent then gives the sandbox to another task. */

#include <linux/fs.h>
#include <sys/xattr.h>

#define OUTPUT_MODE (S_IFREG | 0600)

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

enum { STREAMS = 2 };

/* `home` is the sandbox, `spare` the directory; `fd` is the task's own, open from its start on. */
static struct {
    int home, spare;
    struct {
        const char *name;
        int fd, kept;       /* `kept` is the shim's, while the file is a spare one */
        ssize_t attributes; /* length of their names; some systems give each file one */
    } streams[STREAMS];
    struct sandbox { /* as the task got it */
        struct stat status;
        struct fsxattr flags;
        ssize_t attributes;
    } sandbox;
    int is_silent;
} output = {.home = -1, .spare = -1, .streams = {{"stdout", -1, -1, 0}, {"stderr", -1, -1, 0}}};

static void close_fd(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Other shims use the directory, too. */
static const char *spare_name(int stream) {
    static char names[STREAMS][32];
    snprintf(names[stream], sizeof *names, "%d.%d", (int)getpid(), stream);
    return names[stream];
}

static void look_at_sandbox(struct sandbox *found) {
    memset(found, 0, sizeof *found);
    ioctl(output.home, FS_IOC_FSGETXATTR, &found->flags);
    fstat(output.home, &found->status);
    found->attributes = flistxattr(output.home, NULL, 0);
}

static int takes_spare_files(void) {
    return !(output.sandbox.flags.fsx_xflags & FS_XFLAG_PROJINHERIT);
}

static int is_empty(int directory) {
    enum { SIZE_AT = 16, NAME_AT = 19 }; /* of struct linux_dirent64, which headers may lack */
    char entries[512];
    long length;
    unsigned short size;
    lseek(directory, 0, SEEK_SET);
    while ((length = syscall(SYS_getdents64, directory, entries, sizeof entries)) > 0) {
        for (char *at = entries; at < entries + length; at += size) {
            memcpy(&size, at + SIZE_AT, sizeof size);
            if (strcmp(at + NAME_AT, ".") != 0 && strcmp(at + NAME_AT, "..") != 0) {
                return 0;
            }
        }
    }
    return length == 0;
}

/* Whether the sandbox is as new: a directory that was made larger is slow to list. */
static int is_sandbox_unused(void) {
    struct sandbox now, *before = &output.sandbox;
    look_at_sandbox(&now);
    return !user.is_other && now.attributes == before->attributes &&
           now.flags.fsx_xflags == before->flags.fsx_xflags &&
           now.flags.fsx_projid == before->flags.fsx_projid &&
           now.status.st_uid == before->status.st_uid && now.status.st_gid == before->status.st_gid &&
           now.status.st_mode == before->status.st_mode &&
           now.status.st_size == before->status.st_size &&
           now.status.st_nlink == before->status.st_nlink && is_empty(output.home);
}

static int own(int fd) {
    return user.is_other ? fchown(fd, user.uid, user.gid) : 0;
}

/* Drops a spare file; the next task gets a new one. */
static void drop_spare(int stream) {
    if (output.streams[stream].kept >= 0) {
        unlinkat(output.spare, spare_name(stream), 0);
    }
    close_fd(&output.streams[stream].kept);
}

static int open_spare(int stream) {
    int *kept = &output.streams[stream].kept;
    if (*kept < 0) {
        unlinkat(output.spare, spare_name(stream), 0);
        *kept = openat(output.spare, spare_name(stream), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*kept < 0 || fchmod(*kept, 0600) != 0) {
            return -1;
        }
        output.streams[stream].attributes = flistxattr(*kept, NULL, 0);
    }
    /* Flags belong to who opens a file, so each task opens it anew. */
    int fd = openat(output.spare, spare_name(stream), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    output.streams[stream].fd = fd;
    return fd < 0 ? -1 : own(*kept);
}

/* Opens the files for the next task; returns 0 if that succeeds. */
static int open_output(void) {
    look_at_sandbox(&output.sandbox);
    int is_spare = takes_spare_files();
    for (int stream = 0; stream < STREAMS; stream++) {
        if (is_spare && open_spare(stream) == 0) {
            continue;
        }
        close_fd(&output.streams[stream].fd);
        drop_spare(stream);
        int fd = openat(output.home, output.streams[stream].name,
                        O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        output.streams[stream].fd = fd;
        if (fd < 0 || own(fd) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Once the task has them. */
static void close_output(void) {
    for (int stream = 0; stream < STREAMS; stream++) {
        close_fd(&output.streams[stream].fd);
    }
}

/* Moves a spare file into the sandbox. It takes the place of a file that the task has made itself
 * only if it has content. */
static void move_output(int stream) {
    int *kept = &output.streams[stream].kept;
    struct stat found;
    if (*kept < 0 || fstat(*kept, &found) != 0) {
        return;
    }
    const char *name = output.streams[stream].name;
    unsigned flags = found.st_size > 0 ? 0 : RENAME_NOREPLACE;
    int failed = (int)syscall(SYS_renameat2, output.spare, spare_name(stream), output.home, name, flags);
    if (failed && errno == EINVAL) {
        failed = renameat(output.spare, spare_name(stream), output.home, name);
    }
    if (!failed) {
        close_fd(kept);
    }
}

static void move_all_output(void) {
    for (int stream = 0; stream < STREAMS; stream++) {
        move_output(stream);
    }
}

/* Whether the file is as new, and nobody has it open. */
static int is_unused(int fd, ssize_t attributes) {
    struct stat found;
    if (fstat(fd, &found) != 0 || found.st_size || found.st_blocks || found.st_nlink != 1 ||
        found.st_mode != OUTPUT_MODE || flistxattr(fd, NULL, 0) != attributes ||
        (user.is_other && fchown(fd, geteuid(), getegid()) != 0) || fcntl(fd, F_SETLEASE, F_WRLCK) != 0) {
        return 0;
    }
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return 1;
}

/* At the end of a task, of which nothing is left: moves what it has written. */
static void settle_output(void) {
    output.is_silent = output.home >= 0 && is_sandbox_unused();
    for (int stream = 0; stream < STREAMS; stream++) {
        int *kept = &output.streams[stream].kept;
        struct stat found;
        if (*kept >= 0 && is_unused(*kept, output.streams[stream].attributes)) {
            continue;
        }
        output.is_silent = 0;
        if (*kept < 0) {
            continue;
        }
        if (fstat(*kept, &found) != 0 || found.st_size || found.st_blocks) {
            move_output(stream);
        }
        drop_spare(stream);
    }
    close_fd(&output.home);
}
