/* The folder whose files a preloaded library watches, and which paths are below it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[PATH_MAX];
static size_t root_length;
static __thread int inside;

static void watch(const char *named) {
    if (named && strlen(named) < sizeof root) {
        strcpy(root, named);
        root_length = strlen(root);
    }
}

/* The part of a path below the root, or NULL; "" is the root itself. */
static const char *below(const char *path) {
    if (!root_length || strncmp(path, root, root_length)) return NULL;
    if (path[root_length] == '/') return path + root_length + 1;
    return path[root_length] ? NULL : path + root_length;
}

static const char *below_fd(int fd, char *buffer) {
    char link[64];
    int kept = errno;
    if (!root_length || inside) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    errno = kept;
    if (length < 0) return NULL;
    buffer[length] = 0;
    return below(buffer);
}

/* Resolve a name, whose folder must exist, to the path below the root; NULL if it is elsewhere. */
static const char *below_at(int folder, const char *name, char *buffer) {
    char whole[PATH_MAX], parent[PATH_MAX];
    int kept = errno;
    if (!root_length || inside || !name) return NULL;
    if (name[0] == '/' || folder == AT_FDCWD) {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        if (!below_fd(folder, parent)) return NULL;
        if (snprintf(whole, sizeof whole, "%s/%s", parent, name) >= PATH_MAX) return NULL;
    }
    char *slash = strrchr(whole, '/');
    const char *last = slash ? slash + 1 : whole;
    inside++;
    const char *folder_path = ".";
    if (slash == whole) folder_path = "/";
    else if (slash) { *slash = 0; folder_path = whole; }
    char *real = realpath(folder_path, parent);
    inside--;
    errno = kept;
    if (!real) return NULL;
    if (snprintf(buffer, PATH_MAX, "%s/%s", parent, last) >= PATH_MAX) return NULL;
    return below(buffer);
}

/* The mode of a call that opens a file, which only a new file has. */
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); \
    }
