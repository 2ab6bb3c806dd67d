/* The programs of the package's page, and what they have that is not on it: programs.rs puts each where a comment names words
 * of it. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "polylatch.h"

static uint64_t written;

static void write_with(uint64_t token) {
  written = token;
}

static int first_lock(const char *url) {
  /* program: pl_acquire */
  pl_client_free(client);
  return written > 0 ? 0 : 2;
}

/* A statement needs a database: this one is compiled, and runs.cpp runs the same calls on SQLite. */
static int in_a_transaction(const char *key, const uint8_t *result, size_t length, const PlSqlValue *columns, size_t rows,
                            size_t width) {
  PlRuns *runs;
  PlRun *run;
  PlTalk *talk, *done;
  PlClaim *claim;
  PlError *error;
  const char *sql;
  const uint8_t *answer = NULL;
  /* program: pl_runs_new */
  return answer == NULL;
}

/* function: on_event */

static int events(const char *url) {
  PlClient *client;
  PlError *error;
  char *json, *text;
  /* program: pl_connect_with_events */
  printf("%s\n%s\n", json, text);
  pl_text_free(json);
  pl_text_free(text);
  pl_client_free(client);
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 2) return in_a_transaction("9f1c", NULL, 0, NULL, 0, 0);
  return first_lock(argv[1]) || events(argv[1]);
}
