/* Records what a process does to the files below a folder, for a replay of power losses.
 *
 * Loaded with LD_PRELOAD. RECORD_ROOT is the folder, RECORD_LOG the log, which is outside of it.
 * Each call and its record are one step under a lock that all recorded processes share, so the
 * order of records is the order of effects. Syncs are recorded and not performed.
 *
 * A record: op, then inode, offset and lengths of two paths and of data as five 64-bit numbers in
 * the machine's byte order, then the paths relative to the root, then the data. disks.py reads it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "root.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static pid_t log_pid;

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void start(void) { watch(getenv("RECORD_ROOT")); }

/* A process of its own opens the log itself: a lock by flock belongs to the open file. */
static void lock(void) {
    inside++;
    pthread_mutex_lock(&mutex);
    if (log_fd < 0 || log_pid != getpid()) {
        log_fd = syscall(SYS_openat, AT_FDCWD, getenv("RECORD_LOG"),
                         O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log_fd < 0) abort();
        log_pid = getpid();
    }
    while (flock(log_fd, LOCK_EX) && errno == EINTR) {}
}

static void unlock(void) {
    int kept = errno;
    flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    inside--;
    errno = kept;
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

static void record(char op, uint64_t inode, uint64_t offset, const char *one, const char *two,
                   const struct iovec *data, int pieces, size_t length) {
    char head[41];
    uint64_t numbers[5] = {inode, offset, one ? strlen(one) : 0, two ? strlen(two) : 0, length};
    head[0] = op;
    memcpy(head + 1, numbers, sizeof numbers);
    char *whole = malloc(sizeof head + numbers[2] + numbers[3] + length), *end = whole;
    if (!whole) abort();
    end = mempcpy(end, head, sizeof head);
    if (one) end = mempcpy(end, one, numbers[2]);
    if (two) end = mempcpy(end, two, numbers[3]);
    for (int n = 0; n < pieces && length; n++) {
        size_t part = data[n].iov_len < length ? data[n].iov_len : length;
        end = mempcpy(end, data[n].iov_base, part);
        length -= part;
    }
    for (char *from = whole; from < end;) {
        ssize_t done = syscall(SYS_write, log_fd, from, end - from);
        if (done < 0 && errno != EINTR) abort();
        if (done > 0) from += done;
    }
    free(whole);
}

/* Opening: a new file is 'c' with its path, an emptied one 't'. */
static int opened(int folder, const char *name, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = NULL;
    if (flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE)
        path = below_at(folder, name, buffer);
    if (!path) return syscall(SYS_openat, folder, name, flags, mode);
    lock();
    struct stat before;
    int existed = !fstatat(folder, name, &before, 0);
    int fd = syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0) {
        if ((flags & O_TMPFILE) == O_TMPFILE) record('X', 0, 0, path, "O_TMPFILE", NULL, 0, 0);
        else if (!existed) record('c', inode_of(fd), 0, path, NULL, NULL, 0, 0);
        else if (flags & O_TRUNC) record('t', inode_of(fd), 0, path, NULL, NULL, 0, 0);
    }
    unlock();
    return fd;
}

int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Writing: 'w' with the offset; offset -1 means the file's position, which is known afterwards. */
static ssize_t written(int fd, const struct iovec *data, int pieces, off_t offset) {
    char buffer[PATH_MAX];
    const char *path = below_fd(fd, buffer);
    if (!path) {
        if (offset >= 0) return syscall(SYS_pwritev, fd, data, pieces, offset, 0);
        return pieces == 1 ? syscall(SYS_write, fd, data->iov_base, data->iov_len)
                           : syscall(SYS_writev, fd, data, pieces);
    }
    lock();
    ssize_t done = offset >= 0 ? syscall(SYS_pwritev, fd, data, pieces, offset, 0)
                               : syscall(SYS_writev, fd, data, pieces);
    if (done > 0) {
        if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - done;
        record('w', inode_of(fd), offset, path, NULL, data, pieces, done);
    }
    unlock();
    return done;
}

ssize_t write(int fd, const void *data, size_t length) {
    struct iovec one = {(void *)data, length};
    return written(fd, &one, 1, -1);
}
ssize_t writev(int fd, const struct iovec *data, int pieces) { return written(fd, data, pieces, -1); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    struct iovec one = {(void *)data, length};
    return written(fd, &one, 1, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    return pwrite(fd, data, length, offset);
}
ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t offset) {
    return written(fd, data, pieces, offset);
}
ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off64_t offset) {
    return written(fd, data, pieces, offset);
}

/* Syncing: 's' of a file or a folder. */
static int synced(int fd, const char *name) {
    char buffer[PATH_MAX];
    const char *path = below_fd(fd, buffer);
    if (!path) return ((int (*)(int))next(name))(fd);
    lock();
    struct stat found;
    int done = fstat(fd, &found);
    if (!done) record('s', found.st_ino, S_ISDIR(found.st_mode), path, NULL, NULL, 0, 0);
    unlock();
    return done;
}
int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

/* Sizes: 't' with the size; 'e' extends a file to at least a size. */
static int sized(int fd, off_t size) {
    char buffer[PATH_MAX];
    const char *path = below_fd(fd, buffer);
    if (!path) return syscall(SYS_ftruncate, fd, size);
    lock();
    int done = syscall(SYS_ftruncate, fd, size);
    if (!done) record('t', inode_of(fd), size, path, NULL, NULL, 0, 0);
    unlock();
    return done;
}
int ftruncate(int fd, off_t size) { return sized(fd, size); }
int ftruncate64(int fd, off64_t size) { return sized(fd, size); }

static int allocated(int fd, int mode, off_t offset, off_t length) {
    char buffer[PATH_MAX];
    const char *path = below_fd(fd, buffer);
    if (!path) return syscall(SYS_fallocate, fd, mode, offset, length);
    lock();
    int done = syscall(SYS_fallocate, fd, mode, offset, length);
    if (!done && mode) record('X', 0, 0, path, "fallocate", NULL, 0, 0);
    else if (!done) record('e', inode_of(fd), offset + length, path, NULL, NULL, 0, 0);
    unlock();
    return done;
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return allocated(fd, mode, offset, length); }
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return allocated(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return allocated(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

/* Names: 'm' a new folder, 'u' a removed name, 'r' a rename, 'l' a second name. */
static int renamed(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *source = below_at(from_at, from, one), *target = below_at(to_at, to, two);
    if (!source && !target) return syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    lock();
    int done = syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    if (!done) record(source && target && flags < 2 ? 'r' : 'X', 0, 0, source, target, NULL, 0, 0);
    unlock();
    return done;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int at, const char *from, int to_at, const char *to) { return renamed(at, from, to_at, to, 0); }
int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    return renamed(at, from, to_at, to, flags);
}

static int removed(int at, const char *name, int flags) {
    char buffer[PATH_MAX];
    const char *path = below_at(at, name, buffer);
    if (!path) return syscall(SYS_unlinkat, at, name, flags);
    lock();
    int done = syscall(SYS_unlinkat, at, name, flags);
    if (!done) record('u', 0, 0, path, NULL, NULL, 0, 0);
    unlock();
    return done;
}
int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int at, const char *name, int flags) { return removed(at, name, flags); }
int rmdir(const char *name) { return removed(AT_FDCWD, name, AT_REMOVEDIR); }

static int folder_made(int at, const char *name, mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = below_at(at, name, buffer);
    if (!path) return syscall(SYS_mkdirat, at, name, mode);
    lock();
    struct stat found = {0};
    int done = syscall(SYS_mkdirat, at, name, mode);
    if (!done && !fstatat(at, name, &found, 0)) record('m', found.st_ino, 0, path, NULL, NULL, 0, 0);
    unlock();
    return done;
}
int mkdir(const char *name, mode_t mode) { return folder_made(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return folder_made(at, name, mode); }

static int linked(int at, const char *from, int to_at, const char *to, int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *source = below_at(at, from, one), *target = below_at(to_at, to, two);
    if (!source && !target) return syscall(SYS_linkat, at, from, to_at, to, flags);
    lock();
    int done = syscall(SYS_linkat, at, from, to_at, to, flags);
    if (!done) record(source && target ? 'l' : 'X', 0, 0, source, target, NULL, 0, 0);
    unlock();
    return done;
}
int link(const char *from, const char *to) { return linked(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    return linked(at, from, to_at, to, flags);
}

/* Not replayed: a record 'X' makes the replay fail rather than be wrong. */
ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    char buffer[PATH_MAX];
    const char *path = below_fd(out, buffer);
    if (path) { lock(); record('X', 0, 0, path, "sendfile", NULL, 0, 0); unlock(); }
    return syscall(SYS_sendfile, out, in, offset, count);
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) { return sendfile(out, in, offset, count); }
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t length, unsigned flags) {
    char buffer[PATH_MAX];
    const char *path = below_fd(out, buffer);
    if (path) { lock(); record('X', 0, 0, path, "copy_file_range", NULL, 0, 0); unlock(); }
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, length, flags);
}
