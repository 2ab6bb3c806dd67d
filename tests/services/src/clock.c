/* Moves the wall clock of the process that preloads it by the nanoseconds in a file, which may change. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("POLYLATCH_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *map = mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) offset = map;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = syscall(SYS_clock_gettime, clock, at);
  if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long now = at->tv_sec * 1000000000LL + at->tv_nsec + *offset;
    at->tv_sec = now / 1000000000LL;
    at->tv_nsec = now % 1000000000LL;
  }
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
