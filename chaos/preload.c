/* A clock that can be set and a disk that can be slowed, for one process and its children.
 *
 * CHAOS_CONTROL names a file of two 64-bit numbers: seconds that the clock is ahead (or behind, if negative), and
 * microseconds that every write to a file takes longer.  Both may change at any time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t NONE[2] = {0, 0};
static volatile const int64_t *control = NONE;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, sizeof NONE, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) control = found;
    close(file);
}

/* The kernel's own clock; the monotonic ones stay as they are. */
int clock_gettime(clockid_t which, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, which, now);
    if (status == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += control[0];
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return status;
}

time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept != NULL) *kept = exact.tv_sec;
    return exact.tv_sec;
}

static void wait_for_the_disk(int file) {
    struct stat found;
    if (control[1] > 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode)) {
        struct timespec pause = {control[1] / 1000000, control[1] % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
}

ssize_t write(int file, const void *data, size_t length) {
    wait_for_the_disk(file);
    return syscall(SYS_write, file, data, length);
}

int fsync(int file) {
    wait_for_the_disk(file);
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    wait_for_the_disk(file);
    return (int)syscall(SYS_fdatasync, file);
}
