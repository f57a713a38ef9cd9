/* Loaded with LD_PRELOAD: lets calls fail that change files of a recording (paths with ".triage"). Once armed, the k-th
   such call fails, and all later ones too if `persists`; error 0 makes a write short instead. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int armed, failing_call, error_number, persists, num_calls;

void faults_arm(int call, int error, int persist)
{
    failing_call = call, error_number = error, persists = persist, num_calls = 0, armed = 1;
}

int faults_calls(void) { return num_calls; }

static int is_hit(void)
{
    int number = __atomic_add_fetch(&num_calls, 1, __ATOMIC_SEQ_CST);
    return number == failing_call || (persists && number > failing_call);
}

static int path_fails(const char *path)
{
    if (!armed || !strstr(path, ".triage") || !is_hit() || !error_number)
        return 0;
    errno = error_number;
    return 1;
}

static int is_ours(int descriptor)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, ".triage") != NULL;
}

/* 1: fail; otherwise *size may have become smaller. */
static int write_fails(int descriptor, size_t *size)
{
    if (!armed || !is_ours(descriptor) || !is_hit())
        return 0;
    if (error_number) {
        errno = error_number;
        return 1;
    }
    if (size && *size > 1)
        *size /= 2;
    return 0;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) { REAL(write); return write_fails(fd, &size) ? -1 : real(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { REAL(pwrite); return write_fails(fd, &size) ? -1 : real(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { REAL(pwrite64); return write_fails(fd, &size) ? -1 : real(fd, data, size, at); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); return write_fails(fd, NULL) ? -1 : real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return write_fails(fd, NULL) ? -1 : real(fd, size); }
int fsync(int fd) { REAL(fsync); return write_fails(fd, NULL) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return write_fails(fd, NULL) ? -1 : real(fd); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return path_fails(path) ? -1 : real(path, mode); }
int unlink(const char *path) { REAL(unlink); return path_fails(path) ? -1 : real(path); }

#define OPEN(name)                                                                        \
    int name(const char *path, int flags, ...)                                            \
    {                                                                                     \
        va_list arguments;                                                                \
        va_start(arguments, flags);                                                       \
        mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;                    \
        va_end(arguments);                                                                \
        REAL(name);                                                                       \
        return flags & O_CREAT && path_fails(path) ? -1 : real(path, flags, mode);        \
    }

OPEN(open)
OPEN(open64)
