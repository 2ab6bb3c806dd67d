/* What a call costs from C: `measure URL…`. */
#define _POSIX_C_SOURCE 199309L
#include <polylatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void expect(enum PlStatus status) {
  if (status == PL_OK) return;
  fputs("a call failed\n", stderr);
  exit(1);
}

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long cycles_ns(const struct PlClient *client, int times) {
  const long long started = now_ns();
  for (int i = 0; i < times; ++i) {
    struct PlGuard *guard = NULL;
    expect(pl_acquire(client, "measured", NULL, NULL, &guard, NULL));
    expect(pl_guard_release(guard, NULL));
    pl_guard_free(guard);
  }
  return (now_ns() - started) / times;
}

static void measure(const char *url) {
  struct PlClient *client = NULL;
  expect(pl_connect(url, NULL, "c", &client, NULL));
  cycles_ns(client, 300);
  const long long both = cycles_ns(client, 3000);
  struct PlGuard *guard = NULL;
  expect(pl_acquire(client, "measured", NULL, NULL, &guard, NULL));
  const long long started = now_ns();
  for (int i = 0; i < 50000; ++i) expect(pl_guard_check(guard, NULL));
  const long long check = (now_ns() - started) / 50000;
  expect(pl_guard_release(guard, NULL));
  pl_guard_free(guard);
  printf("c %.*s check_ns=%lld acquire_release_ns=%lld\n", (int)strcspn(url, ":+"), url, check, both);
  expect(pl_client_close(client, NULL));
  pl_client_free(client);
}

int main(int count, char **arguments) {
  for (int i = 1; i < count; ++i) measure(arguments[i]);
  return 0;
}
