/* Makes calls on the files below a folder fail, as a file says.
 *
 * Loaded with LD_PRELOAD. FAULTS_ROOT is the folder, FAULTS_PLAN a file with a `struct plan`, which
 * this process and the one that writes the plan have mapped: it takes effect at the next call.
 * faults.py writes it.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "root.h"

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, SIZE = 16, REMOVE = 32, RENAME = 64, MAP = 128, FOLDER = 256 };
enum { SHORT = 0, HELD = -1 };

struct plan {
    uint32_t armed, calls;   /* whether calls are counted, and which */
    uint32_t number, times;  /* the first call that fails, from 1; how many fail, 0: all from then on */
    int32_t error;           /* an errno, SHORT: half of the bytes, HELD: wait while armed */
    uint32_t seen, fired;    /* calls that were counted, and that failed */
    uint32_t held;           /* calls that wait now */
    int64_t ahead;           /* seconds that the clock is ahead */
    uint32_t took[9];        /* calls that were counted, by kind */
    char ending[64];         /* of the paths of the files; "" for all */
    char last[256];          /* what failed last */
};

static volatile struct plan *plan;

__attribute__((constructor)) static void start(void) {
    const char *named = getenv("FAULTS_PLAN");
    if (!named) return;
    int fd = syscall(SYS_openat, AT_FDCWD, named, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *mapped = (void *)syscall(SYS_mmap, NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) abort();
    close(fd);
    plan = mapped;
    watch(getenv("FAULTS_ROOT"));
}

/* Whether a call on *path* fails; errno then says how, 0 for a short transfer. */
static int fails(uint32_t call, const char *path) {
    size_t length = path ? strlen(path) : 0, ending = strlen((const char *)plan->ending);
    if (!path || length < ending || strcmp(path + length - ending, (const char *)plan->ending)) return 0;
    __atomic_add_fetch(&plan->took[__builtin_ctz(call)], 1, __ATOMIC_SEQ_CST);
    if (!(plan->calls & call)) return 0;
    uint32_t seen = __atomic_add_fetch(&plan->seen, 1, __ATOMIC_SEQ_CST), number = plan->number;
    if (!number || seen < number || (plan->times && seen >= number + plan->times)) return 0;
    __atomic_add_fetch(&plan->fired, 1, __ATOMIC_SEQ_CST);
    snprintf((char *)plan->last, sizeof plan->last, "call %u on %s", call, path);
    if (plan->error == HELD) {
        __atomic_add_fetch(&plan->held, 1, __ATOMIC_SEQ_CST);
        while (plan->armed) usleep(500);
        __atomic_sub_fetch(&plan->held, 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    errno = plan->error;
    return 1;
}

static int armed(void) { return plan && plan->armed; }

static int fails_at(uint32_t call, int folder, const char *name) {
    char buffer[PATH_MAX];
    return armed() && fails(call, below_at(folder, name, buffer));
}

static int fails_on(uint32_t call, int fd) {
    char buffer[PATH_MAX];
    return armed() && fails(call, below_fd(fd, buffer));
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
    if (fails_at(OPEN, folder, name) && errno) return -1;
    return syscall(SYS_openat, folder, name, flags, mode);
}
int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Half of a transfer, but never nothing: 0 bytes are the end of a file. */
static size_t part(size_t length) { return length > 1 ? length / 2 : length; }

#define TRANSFER(call, fd, length, whole) \
    size_t count = length; \
    if (fails_on(call, fd)) { if (errno) return -1; count = part(count); } \
    return whole;

ssize_t write(int fd, const void *data, size_t length) { TRANSFER(WRITE, fd, length, syscall(SYS_write, fd, data, count)) }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    TRANSFER(WRITE, fd, length, syscall(SYS_pwrite64, fd, data, count, offset))
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { return pwrite(fd, data, length, offset); }
ssize_t read(int fd, void *data, size_t length) { TRANSFER(READ, fd, length, syscall(SYS_read, fd, data, count)) }
ssize_t pread(int fd, void *data, size_t length, off_t offset) {
    TRANSFER(READ, fd, length, syscall(SYS_pread64, fd, data, count, offset))
}
ssize_t pread64(int fd, void *data, size_t length, off64_t offset) { return pread(fd, data, length, offset); }

int fsync(int fd) { return fails_on(SYNC, fd) && errno ? -1 : syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return fails_on(SYNC, fd) && errno ? -1 : syscall(SYS_fdatasync, fd); }

int ftruncate(int fd, off_t size) { return fails_on(SIZE, fd) && errno ? -1 : syscall(SYS_ftruncate, fd, size); }
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int fallocate(int fd, int mode, off_t offset, off_t length) {
    return fails_on(SIZE, fd) && errno ? -1 : syscall(SYS_fallocate, fd, mode, offset, length);
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return fallocate(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

int unlinkat(int at, const char *name, int flags) {
    return fails_at(REMOVE, at, name) && errno ? -1 : syscall(SYS_unlinkat, at, name, flags);
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    return fails_at(RENAME, to_at, to) && errno ? -1 : syscall(SYS_renameat2, from_at, from, to_at, to, flags);
}
int renameat(int from_at, const char *from, int to_at, const char *to) { return renameat2(from_at, from, to_at, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int mkdirat(int at, const char *name, mode_t mode) {
    return fails_at(FOLDER, at, name) && errno ? -1 : syscall(SYS_mkdirat, at, name, mode);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails_on(MAP, fd) && errno) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, length, protection, flags, fd, offset);
}

/* The clock of the day alone: what waits is measured by another. */
int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = syscall(SYS_clock_gettime, clock, time);
    if (!done && plan && clock == CLOCK_REALTIME) time->tv_sec += plan->ahead;
    return done;
}
