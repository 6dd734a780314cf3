/* What the shim's child takes from itself before it becomes the task. Included by shim.c.

   Rule: options are read, files opened and rules made before the fork. The child shares the shim's
   memory until its exec, so it only makes system calls. */

#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MAX_FILES 32 /* for each of group= and kill= */
#define MAX_LIMITS 16
#define MAX_GROUPS 65536
#define MAX_PORT_RANGES 1024
#define MAX_FILTER 4096 /* instructions; the kernel's own limit */
#define LAST_CAPABILITY 63
#define OOM_SCORE_ADJ 500 /* of the task: the kernel kills it before the agent */

/* Numbers of the kernel's interface, which headers may lack. */
#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#endif
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif
enum { SECCOMP_MODE_FILTER_ = 2 };
enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT = 446 };
enum { LANDLOCK_PATH = 1, LANDLOCK_PORT = 2 };

struct landlock_rights {
    unsigned long long files, ports, scopes;
};

struct landlock_path {
    unsigned long long rights;
    int fd;
} __attribute__((packed));

struct landlock_port {
    unsigned long long rights, port;
};

struct instruction {
    unsigned short code;
    unsigned char jump_true, jump_false;
    unsigned int value;
};

struct program {
    unsigned short length;
    struct instruction *instructions;
};

static struct {
    const char *groups[MAX_FILES];
    const char *kills[MAX_FILES];
    size_t group_count, kill_count, limit_count, port_count;
    struct {
        int number;
        unsigned long long soft, hard;
    } limits[MAX_LIMITS];
    struct {
        unsigned short first, last;
    } ports[MAX_PORT_RANGES];
    int has_umask, has_bounding, has_landlock, no_new_privs, is_boxed, is_attached, has_terminal;
    int join, has_owner; /* namespaces */
    mode_t umask;
    unsigned long long capabilities;
    struct landlock_rights landlock;
    int landlock_fd;
    const char *seccomp;
    struct program filter;
} restrictions = {.landlock_fd = -1};

static struct instruction filter_space[MAX_FILTER];

static struct {
    int is_other;
    uid_t uid;
    gid_t gid;
    size_t count;
    gid_t groups[MAX_GROUPS];
} user;

static struct {
    int fd;
    char before[16];
} oom_score = {-1, ""};

static void forget_restrictions(void) {
    memset(&restrictions, 0, sizeof restrictions);
    restrictions.landlock_fd = -1;
    user.is_other = 0;
    user.count = 0;
}

/* Reads a number of at most `most` and the delimiter after it; returns whether both are there. */
static int read_number(const char **at, int base, unsigned long long most, const char *delimiters,
                       unsigned long long *number) {
    char *end;
    if (!isxdigit((unsigned char)**at)) {
        return 0;
    }
    errno = 0;
    *number = strtoull(*at, &end, base);
    if (end == *at || errno != 0 || *number > most || strchr(delimiters, *end) == NULL) {
        return 0;
    }
    *at = *end ? end + 1 : end;
    return 1;
}

/* Reads UID:GID[:[GROUP,GROUP...]]. */
static int read_user(const char *text) {
    unsigned long long number;
    if (user.is_other || !read_number(&text, 10, 0xfffffffe, ":", &number)) {
        return 0;
    }
    user.is_other = 1;
    user.uid = (uid_t)number;
    if (!read_number(&text, 10, 0xfffffffe, ":", &number)) {
        return 0;
    }
    user.gid = (gid_t)number;
    while (*text) {
        if (user.count == MAX_GROUPS || !read_number(&text, 10, 0xfffffffe, ",", &number)) {
            return 0;
        }
        user.groups[user.count++] = (gid_t)number;
    }
    return 1;
}

/* Reads NUMBER:SOFT:HARD. */
static int read_limit(const char *text) {
    unsigned long long number, soft, hard;
    if (restrictions.limit_count == MAX_LIMITS || !read_number(&text, 10, 15, ":", &number) ||
        !read_number(&text, 10, ~0ULL, ":", &soft) || !read_number(&text, 10, ~0ULL, "", &hard) ||
        soft > hard) {
        return 0;
    }
    restrictions.limits[restrictions.limit_count].number = (int)number;
    restrictions.limits[restrictions.limit_count].soft = soft;
    restrictions.limits[restrictions.limit_count++].hard = hard;
    return 1;
}

/* Reads FILES:PORTS:SCOPES[:FIRST-LAST,FIRST-LAST...]. */
static int read_landlock(const char *text) {
    struct landlock_rights *rights = &restrictions.landlock;
    if (restrictions.has_landlock || !read_number(&text, 16, ~0ULL, ":", &rights->files) ||
        !read_number(&text, 16, ~0ULL, ":", &rights->ports) ||
        !read_number(&text, 16, ~0ULL, ":", &rights->scopes)) {
        return 0;
    }
    restrictions.has_landlock = 1;
    while (*text) {
        unsigned long long first, last;
        if (restrictions.port_count == MAX_PORT_RANGES ||
            !read_number(&text, 10, 65535, "-", &first) ||
            !read_number(&text, 10, 65535, ",", &last) || first > last) {
            return 0;
        }
        restrictions.ports[restrictions.port_count].first = (unsigned short)first;
        restrictions.ports[restrictions.port_count++].last = (unsigned short)last;
    }
    return 1;
}

static int read_path(const char **found, const char *text) {
    int is_new = *found == NULL && *text == '/';
    *found = text;
    return is_new;
}

/* Reads one option; returns whether it is known and well formed. */
static int read_option(const char *word) {
    unsigned long long number;
    const char *text = strchr(word, '=');
    if (strcmp(word, "no-new-privs") == 0) {
        return !restrictions.no_new_privs++;
    }
    if (strcmp(word, "boxed") == 0) {
        return !restrictions.is_boxed++;
    }
    if (strcmp(word, "attached") == 0) {
        return !restrictions.is_attached++;
    }
    if (strcmp(word, "terminal") == 0) {
        return !restrictions.has_terminal++;
    }
    if (strcmp(word, "owner") == 0) {
        return !restrictions.has_owner++;
    }
    if (text++ == NULL) {
        return 0;
    }
    if (strncmp(word, "run=", 4) == 0) {
        return 1;
    }
    if (strncmp(word, "user=", 5) == 0) {
        return read_user(text);
    }
    if (strncmp(word, "group=", 6) == 0) {
        return restrictions.group_count < MAX_FILES &&
               read_path(&restrictions.groups[restrictions.group_count++], text);
    }
    if (strncmp(word, "kill=", 5) == 0) {
        return restrictions.kill_count < MAX_FILES &&
               read_path(&restrictions.kills[restrictions.kill_count++], text);
    }
    if (strncmp(word, "limit=", 6) == 0) {
        return read_limit(text);
    }
    if (strncmp(word, "umask=", 6) == 0) {
        int is_read = read_number(&text, 8, 0777, "", &number);
        restrictions.umask = (mode_t)number;
        return is_read && !restrictions.has_umask++;
    }
    if (strncmp(word, "bounding=", 9) == 0) {
        return read_number(&text, 16, ~0ULL, "", &restrictions.capabilities) &&
               !restrictions.has_bounding++;
    }
    if (strncmp(word, "join=", 5) == 0) {
        int is_new = !restrictions.join && read_number(&text, 16, 0x7fffffff, "", &number);
        restrictions.join = is_new ? (int)number : 0;
        return is_new && number > 0;
    }
    if (strncmp(word, "landlock=", 9) == 0) {
        return read_landlock(text);
    }
    return strncmp(word, "seccomp=", 8) == 0 && read_path(&restrictions.seccomp, text);
}

static int write_word(const char *path, const char *word) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t written = write(fd, word, strlen(word));
    int number = errno;
    close(fd);
    errno = number;
    return written < 0 ? -1 : 0;
}

/* Kills all processes in the task's control groups, even those that fork at this moment. */
static void kill_groups(void) {
    for (size_t i = 0; i < restrictions.kill_count; i++) {
        write_word(restrictions.kills[i], "1");
    }
}

/* Any process may raise its score, and lower it to where it was. The file is opened before this
 * process becomes undumpable and the file root's. */
static void open_oom_score(void) {
    oom_score.fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (oom_score.fd >= 0 && (read(oom_score.fd, oom_score.before, sizeof oom_score.before - 1) <= 0 ||
                              atoi(oom_score.before) >= OOM_SCORE_ADJ)) {
        close(oom_score.fd);
        oom_score.fd = -1;
    }
}

/* Makes the kernel kill the task before the agent when memory is short: the child inherits the
 * score. */
static void raise_oom_score(void) {
    char text[16];
    snprintf(text, sizeof text, "%d", OOM_SCORE_ADJ);
    if (oom_score.fd >= 0) {
        (void)!pwrite(oom_score.fd, text, strlen(text), 0);
    }
}

static void restore_oom_score(void) {
    if (oom_score.fd >= 0) {
        (void)!pwrite(oom_score.fd, oom_score.before, strlen(oom_score.before), 0);
    }
}

static int load_filter(void) {
    int fd = open(restrictions.seccomp, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t length = read(fd, filter_space, sizeof filter_space);
    int number = errno;
    close(fd);
    errno = length < 0 ? number : EINVAL;
    if (length <= 0 || (size_t)length % sizeof *filter_space != 0) {
        return -1;
    }
    restrictions.filter.length = (unsigned short)((size_t)length / sizeof *filter_space);
    restrictions.filter.instructions = filter_space;
    return 0;
}

static int add_port_rules(int fd) {
    struct landlock_port rule = {restrictions.landlock.ports, 0};
    for (size_t i = 0; i < restrictions.port_count; i++) {
        for (rule.port = restrictions.ports[i].first; rule.port <= restrictions.ports[i].last;
             rule.port++) {
            if (syscall(LANDLOCK_ADD_RULE, fd, LANDLOCK_PORT, &rule, 0) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* Makes the rules: all files may be used, and the given ports. A domain forbids more than what
 * its rules name: to change mounts, if it handles files, and to trace processes outside it. */
static int make_landlock_rules(void) {
    struct landlock_rights *rights = &restrictions.landlock;
    int fd = (int)syscall(LANDLOCK_CREATE, rights, sizeof *rights, 0);
    restrictions.landlock_fd = fd;
    if (fd < 0) {
        return -1;
    }
    if (rights->files) {
        struct landlock_path rule = {rights->files, open("/", O_PATH | O_CLOEXEC)};
        if (rule.fd < 0 || syscall(LANDLOCK_ADD_RULE, fd, LANDLOCK_PATH, &rule, 0) != 0) {
            return -1;
        }
        close(rule.fd);
    }
    return rights->ports ? add_port_rules(fd) : 0;
}

/* Before the fork: returns the failed step, NULL if all is ready. */
static const char *prepare_restrictions(void) {
    int is_loaded = restrictions.filter.length > 0;
    if (restrictions.seccomp != NULL && !restrictions.is_boxed && !is_loaded && load_filter() != 0) {
        return "isolation:seccomp";
    }
    if (restrictions.has_landlock && make_landlock_rules() != 0) {
        return "isolation:landlock";
    }
    return NULL;
}

static int set_limits(void) {
    for (size_t i = 0; i < restrictions.limit_count; i++) {
        struct rlimit limit;
        int number = restrictions.limits[i].number;
        if (getrlimit(number, &limit) != 0) {
            return -1;
        }
        if (restrictions.limits[i].hard < limit.rlim_max) {
            limit.rlim_max = restrictions.limits[i].hard;
        }
        limit.rlim_cur = restrictions.limits[i].soft < limit.rlim_max ? restrictions.limits[i].soft
                                                                       : limit.rlim_max;
        if (setrlimit(number, &limit) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Ambient capabilities would outlive the exec of a process that is not root's. */
static int drop_capabilities(void) {
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (int number = 0; number <= LAST_CAPABILITY; number++) {
        if (!(restrictions.capabilities >> number & 1) &&
            prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1 &&
            prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Enters the task's control groups, once; returns the failed step. */
static const char *enter_groups(void) {
    for (size_t i = 0; i < restrictions.group_count; i++) {
        if (write_word(restrictions.groups[i], "0") != 0) {
            return "isolation:group";
        }
    }
    return NULL;
}

static int become_user(void) {
    if (!user.is_other) {
        return 0;
    }
    return setgroups(user.count, user.groups) != 0 || setgid(user.gid) != 0 || setuid(user.uid) != 0;
}

/* In the child, while it has the rights of the agent; returns the failed step. */
static const char *restrict_early(void) {
    /* Who joins namespaces has entered the groups outside of them. */
    const char *failed = restrictions.join ? NULL : enter_groups();
    if (failed != NULL) {
        return failed;
    }
    if (set_limits() != 0) {
        return "isolation:limit";
    }
    if (restrictions.has_umask) {
        umask(restrictions.umask);
    }
    if (restrictions.has_bounding && drop_capabilities() != 0) {
        return "isolation:bounding";
    }
    if (become_user() != 0) {
        return "user";
    }
    return NULL;
}

/* In the child, last: what follows is restricted too. Returns the failed step. */
static const char *restrict_late(void) {
    if (restrictions.no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return "isolation:no-new-privs";
    }
    if (restrictions.has_landlock &&
        syscall(LANDLOCK_RESTRICT, restrictions.landlock_fd, 0) != 0) {
        return "isolation:landlock";
    }
    if (restrictions.seccomp != NULL && !restrictions.is_boxed &&
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER_, &restrictions.filter, 0, 0) != 0) {
        return "isolation:seccomp";
    }
    return NULL;
}
