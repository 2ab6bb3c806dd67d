/* Polylatch: distributed locks whose holder always knows whether it still holds them.
 *
 * Every function may be called from any thread. Text is UTF-8 and ends with a NUL byte. A function that
 * can fail returns a PlStatus and, if `error` is not NULL, stores there what went wrong: a PlError, which
 * pl_error_free frees. Handles that a function stores belong to the caller, who frees each once, with the
 * pl_..._free of its kind; NULL is allowed there. No function throws or unwinds. */

#ifndef POLYLATCH_H
#define POLYLATCH_H

/* Made from bindings/c/src by `bindings/c/header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A mutex: held alone.
 */
#define PL_MUTEX 0

/**
 * A read-write lock, beside other readers.
 */
#define PL_READ 1

/**
 * A read-write lock, as the only writer.
 */
#define PL_WRITE 2

/**
 * Some of a semaphore's permits; see `permits` and `capacity`.
 */
#define PL_PERMITS 3

/**
 * A length of time or a choice that was not given: the client's or the library's default.
 */
#define PL_DEFAULT -1

/**
 * Kind of a PlSqlValue: NULL.
 */
#define PL_VALUE_NULL 0

/**
 * Kind of a PlSqlValue: a whole number.
 */
#define PL_VALUE_INT 1

/**
 * Kind of a PlSqlValue: UTF-8 text.
 */
#define PL_VALUE_TEXT 2

/**
 * Kind of a PlSqlValue: bytes.
 */
#define PL_VALUE_BYTES 3

/**
 * A retention without an end.
 */
#define PL_FOREVER -2

/**
 * Part of a PlSql: the write.
 */
#define PL_SQL_WRITE 0

/**
 * Part of a PlSql: a query for why the write changed no row.
 */
#define PL_SQL_PROBE 1

/**
 * Part of a PlSql: what runs before the transaction; there is none on PostgreSQL.
 */
#define PL_SQL_PREPARE 2

/**
 * Part of a PlSql: what takes the lock, first in the transaction.
 */
#define PL_SQL_TAKE 3

/**
 * Part of a PlSql: a query for the fencing token; there is none on PostgreSQL, where PL_SQL_TAKE returns it.
 */
#define PL_SQL_FENCE 4

/**
 * How a call ended.
 */
typedef enum PlStatus {
  /**
   * Done.
   */
  PL_OK = 0,
  /**
   * Another client holds the lock or is queued before. Only from the calls that do not wait.
   */
  PL_BUSY = 1,
  /**
   * It failed; `error` says why.
   */
  PL_ERROR = 2,
  /**
   * The time given was over first. Only from pl_guard_wait_ended.
   */
  PL_TIMED_OUT = 3,
} PlStatus;

/**
 * Ends calls that wait, from any thread. One may serve many calls.
 */
typedef struct PlCancel PlCancel;

/**
 * The claim on a key under which the work of a transaction runs, or of several.
 */
typedef struct PlClaim PlClaim;

/**
 * One client of one store: a connection, and a thread that renews leases. One per process is enough.
 */
typedef struct PlClient PlClient;

/**
 * What went wrong.
 */
typedef struct PlError PlError;

/**
 * A held lock: proof of a lease, and the means to release it. It is renewed by the client's own thread
 * until it is released, freed or lost. A forked child does not hold what its parent holds.
 */
typedef struct PlGuard PlGuard;

/**
 * Several held locks.
 */
typedef struct PlGuardSet PlGuardSet;

/**
 * The work of one key: in one transaction, or in steps.
 */
typedef struct PlRun PlRun;

/**
 * Idempotent work in one database, whose record is committed by a transaction of yours: both, or neither.
 *
 * Nothing is sent: you execute statements on your connection and hand their rows back, until a PlTalk is over. You
 * begin the transaction (SQLite: BEGIN IMMEDIATE), commit and roll back. Roll back after every error. Without a
 * transaction (autocommit) nothing of this holds.
 */
typedef struct PlRuns PlRuns;

/**
 * Statements for tables and transactions of your own. Nothing is sent: you execute a text with its parameters.
 *
 * A dialect is the database and the sign of its driver for a value: "sqlite ?1", "sqlite ?", "postgres $1", "postgres ?",
 * "postgres %s", "mysql ?" or "mysql %s" (MariaDB too). Names are checked and quoted: 1 to 63 ASCII letters, digits and _, no
 * digit first. A list of columns ends with NULL.
 */
typedef struct PlSql PlSql;

/**
 * Statements for your connection, one after the other. One thread at a time uses it.
 */
typedef struct PlTalk PlTalk;

/**
 * A function that is called with an event: the pointer that was given for it, the event's stable name, such as
 * "lost", and the whole event as a JSON object, such as {"event":"lost","level":"error","message":"the lease is
 * lost","client":"…","lock":"a","fencing_token":17,"reason":"expired","held_ms":2000}. The texts live until it
 * returns.
 */
typedef void (*PlOnEvent)(void *user, const char *event, const char *json);

/**
 * A function that frees the pointer that was given for a callback, or NULL.
 */
typedef void (*PlDrop)(void *user);

/**
 * A function that is called on a loss, with the pointer that was given for it and the reason, such as
 * "expired", which lives until it returns.
 */
typedef void (*PlLost)(void *user, const char *reason);

/**
 * How to acquire. Fill it with pl_lock_options_init first, then change what you need.
 */
typedef struct PlLockOptions {
  /**
   * sizeof(PlLockOptions), as it was given to pl_lock_options_init: lets later versions add fields.
   */
  size_t size;
  /**
   * PL_MUTEX, PL_READ, PL_WRITE or PL_PERMITS.
   */
  uint32_t mode;
  /**
   * How many permits, 1 to the capacity. Only with PL_PERMITS.
   */
  uint32_t permits;
  /**
   * How many permits there are, 1 to 1000. Only with PL_PERMITS.
   */
  uint32_t capacity;
  /**
   * 1: renew while it is held. 0: the lease ends after its full length. Default: 1.
   */
  int32_t renew;
  /**
   * 1: first come, first served. 0: may take a free lock although others wait. Default: 1.
   */
  int32_t fifo;
  /**
   * Length of the lease, milliseconds: 100 to a day. Default: 15 s, or what the client says.
   */
  int64_t lease_ms;
  /**
   * How long to wait for a held lock, milliseconds. Default: as long as it takes.
   */
  int64_t wait_ms;
  /**
   * Never hold it for longer than this, milliseconds. Default: unlimited.
   */
  int64_t max_hold_ms;
  /**
   * Renew only while pl_guard_beat is called at least this often, milliseconds. Default: off.
   */
  int64_t beat_every_ms;
  /**
   * After a release the client keeps the lease for its next caller, for at most so many milliseconds: 100 to a
   * day. Acquiring it again costs no request; another client that asks for the lock has it released. A process
   * that stops while it keeps a lease blocks the lock until the lease ends. Only with PL_MUTEX, on memory and
   * Redis stores. Default: off.
   */
  int64_t keep_idle_ms;
  /**
   * A description of the acquisition, shown to operators; at most 256 bytes, no secrets. NULL: nothing.
   */
  const char *label;
  /**
   * Makes the lock reentrant for this owner id within this client. NULL: not reentrant.
   */
  const char *owner;
} PlLockOptions;

/**
 * How to do idempotent work. Fill it with pl_run_options_init first, then change what you need.
 */
typedef struct PlRunOptions {
  /**
   * sizeof(PlRunOptions), as it was given to pl_run_options_init: lets later versions add fields.
   */
  size_t size;
  /**
   * What the request consists of; the same key with another one is refused. NULL: not compared.
   */
  const uint8_t *payload;
  /**
   * How many bytes `payload` has.
   */
  size_t payload_length;
  /**
   * What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. NULL: nothing.
   */
  const char *fingerprint;
  /**
   * How long the answer is kept, milliseconds, or PL_FOREVER. Default: 24 h.
   */
  int64_t retention_ms;
  /**
   * Lease of work in steps, milliseconds: 100 to a day. Default: 15 s. Only with pl_runs_steps.
   */
  int64_t lease_ms;
  /**
   * 1: do not wait for another transaction with the same key (PostgreSQL, MariaDB). Default: 0. Only with
   * pl_runs_run.
   */
  int32_t no_wait;
} PlRunOptions;

/**
 * A value of a statement, or a column of a row.
 */
typedef struct PlSqlValue {
  /**
   * PL_VALUE_NULL, PL_VALUE_INT, PL_VALUE_TEXT or PL_VALUE_BYTES.
   */
  uint32_t kind;
  /**
   * Of PL_VALUE_INT.
   */
  int64_t number;
  /**
   * Of PL_VALUE_TEXT and PL_VALUE_BYTES. A text of this library has a NUL byte behind it.
   */
  const uint8_t *data;
  /**
   * How many bytes `data` has; a NUL byte behind a text is not counted.
   */
  size_t length;
} PlSqlValue;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a handle with which waiting calls can be ended.
 */
struct PlCancel *pl_cancel_new(void);

/**
 * Ends the calls that wait with this handle, now and from now on: they fail with "canceled", and what
 * they may have done is undone. NULL is allowed.
 */
void pl_cancel_trigger(const struct PlCancel *cancel);

/**
 * Gives the handle back. No call may be using it.
 */
void pl_cancel_free(struct PlCancel *cancel);

/**
 * Returns the version of this library, such as "0.1.0".
 */
const char *pl_version(void);

/**
 * Connects to a store and asks it once.
 *
 * `url` is such as "redis://localhost" or "sqlite:locks.db"; NULL means POLYLATCH_URL, or the embedded
 * default. `options` is NULL, or a list of keys and values in turn that ends with NULL:
 * {"lease", "30s", "prefix", "shop", NULL}. They are the options of the URL; an unknown one is an error.
 * `language` names the calling language for display, such as "go 1.22"; NULL means "c".
 *
 * Errors: "invalid_argument", "invalid_config", "backend_unavailable" within the time limit,
 * "backend_rejected", "name_conflict".
 */
enum PlStatus pl_connect(const char *url,
                         const char *const *options,
                         const char *language,
                         struct PlClient **client,
                         struct PlError **error);

/**
 * Connects as pl_connect, and has `on_event` called with the events of this client, in their order, beginning with
 * the warnings of connecting: what happens to its locks and to its store.
 *
 * The option "level" says from which level on: "error", "warn", "info" (the default) or "debug", which adds what comes
 * with every lock: "released", and "acquired" without a wait. An event below the level costs nothing.
 *
 * The events and their fields are those of the Rust module polylatch::observe, in every language: "waiting",
 * "acquired", "released", "renewal_failed", "endangered", "lost", "store_unreachable", "store_reachable",
 * "setup_warning" and others. `on_event` is called on a thread of its own, so it may block and may call this library,
 * and holds up no lock; it must not throw. If it takes too long, events are dropped, and one "events_dropped" says how
 * many.
 *
 * pl_client_close waits, at most 5 s, until `on_event` has had all events. After pl_client_free it is neither called
 * nor running, unless pl_client_free was called from there. `drop` is NULL, or is called once with `user` when
 * `on_event` will not be called any more, on any thread; also if connecting fails. In a forked child, `on_event` hears
 * the client that connects again there; the child does not call `drop`.
 *
 * Errors: as pl_connect.
 */
enum PlStatus pl_connect_with_events(const char *url,
                                     const char *const *options,
                                     const char *language,
                                     PlOnEvent on_event,
                                     void *user,
                                     PlDrop drop,
                                     struct PlClient **client,
                                     struct PlError **error);

/**
 * Ends waiting, releases what the client holds, and waits at most 5 s until the store knows, then for the callbacks of
 * pl_connect_with_events. Later calls fail with "canceled". Repeatable.
 */
enum PlStatus pl_client_close(const struct PlClient *client,
                              struct PlError **error);

/**
 * Gives a client back. Guards that are still around keep their locks; pl_client_close releases them.
 *
 * Waits for a function of pl_connect_with_events that is running, unless it is called from there: so do not hold what
 * that function waits for.
 */
void pl_client_free(struct PlClient *client);

/**
 * Gives a text back that a function handed out as `char *`.
 */
void pl_text_free(char *text);

/**
 * Returns the stable code, such as "lease_lost" or "wait_timeout". It lives as long as the error.
 */
const char *pl_error_code(const struct PlError *error);

/**
 * Returns the whole message: it names the input, the rule and the way out, and holds no secret.
 * It lives as long as the error.
 */
const char *pl_error_message(const struct PlError *error);

/**
 * Returns what to do about errors of this code, in one sentence. It lives as long as the error.
 */
const char *pl_error_hint(const struct PlError *error);

/**
 * Returns whether trying again may help: "never", "caller_decides", "after_backoff" or
 * "acquire_anew". It lives as long as the error.
 */
const char *pl_error_retry(const struct PlError *error);

/**
 * Returns whether anything may have happened at the store: "none" or "maybe". It lives as long as
 * the error.
 */
const char *pl_error_effect(const struct PlError *error);

/**
 * Returns why a lease was lost, such as "expired" or "broken"; NULL for other errors. It lives as
 * long as the error.
 */
const char *pl_error_lost_reason(const struct PlError *error);

/**
 * Gives an error back.
 */
void pl_error_free(struct PlError *error);

/**
 * Returns the lock's name; NULL for NULL. It lives as long as the guard.
 */
const char *pl_guard_name(const struct PlGuard *guard);

/**
 * Returns the number to hand to the protected resource: larger than any given out before for this name,
 * and below 2^53. 0 for NULL. An upgrade to writing makes a newer one.
 */
uint64_t pl_guard_fencing_token(const struct PlGuard *guard);

/**
 * Says whether the lock is still held, by this process's own clock, now. Costs no request. False for
 * NULL and in a forked child.
 */
bool pl_guard_is_held(const struct PlGuard *guard);

/**
 * Returns for how many milliseconds the lock may be relied on from now, rounded down; 0 once it is over.
 */
uint64_t pl_guard_remaining_ms(const struct PlGuard *guard);

/**
 * Fails unless the lock is still held, by this process's own clock, now. Costs no request.
 *
 * Errors: "lease_lost" with the reason, also in a forked child; "invalid_argument" once it was released.
 */
enum PlStatus pl_guard_check(const struct PlGuard *guard,
                             struct PlError **error);

/**
 * Says that the protected work moves on; matters only with `beat_every_ms`.
 */
void pl_guard_beat(const struct PlGuard *guard);

/**
 * Waits until the lock is over: PL_ERROR with "lease_lost" and the reason if it was lost, PL_OK if it was
 * released, PL_TIMED_OUT after `wait_ms` (-1: no limit). Blocks this thread; `cancel` is NULL or ends the
 * wait with "canceled". The guard must not be freed meanwhile.
 */
enum PlStatus pl_guard_wait_ended(const struct PlGuard *guard,
                                  int64_t wait_ms,
                                  const struct PlCancel *cancel,
                                  struct PlError **error);

/**
 * Has `lost` called once if the lock is lost, on a thread of this library's; not when it is released.
 *
 * The function may block for short and must not throw. It may free the guard. After pl_guard_free it is
 * neither called nor running, so `user` can be freed then.
 */
enum PlStatus pl_guard_on_lost(const struct PlGuard *guard,
                               PlLost lost,
                               void *user,
                               struct PlError **error);

/**
 * Gives the lock back and waits until the store knows, within the client's time limit. Repeatable.
 *
 * Errors: "lease_lost" if it was over before; "backend_unavailable" if the store did not answer, and then
 * the background goes on trying until the lease has ended.
 */
enum PlStatus pl_guard_release(const struct PlGuard *guard,
                               struct PlError **error);

/**
 * Gives the lease another length; later renewals use it too. The store is asked at once; afterwards
 * pl_guard_remaining_ms says what there is of it. A shorter length takes nothing back: a deadline that lies
 * further away stays. `max_hold_ms` and `beat_every_ms` limit the lease as before. Without renewal, extend
 * again before it ends.
 *
 * Errors: "lease_lost"; "invalid_argument" for a length out of range and after a release; "unsupported" where
 * a lease keeps its length (Consul); "backend_unavailable" if the store did not confirm it within the client's
 * time limit, and then the guard keeps its deadline and its length.
 */
enum PlStatus pl_guard_extend(const struct PlGuard *guard,
                              int64_t lease_ms,
                              struct PlError **error);

/**
 * Atomically downgrades a write lock to a read lock. The fencing token stays.
 *
 * Errors: "invalid_argument" unless this is the only guard of a write lock; "lease_lost"; as pl_guard_release
 * if the store fails, and then the lock is given up.
 */
enum PlStatus pl_guard_downgrade(const struct PlGuard *guard,
                                 struct PlError **error);

/**
 * Upgrades a read lock to a write lock, under a newer fencing token, if there is no other reader; PL_BUSY otherwise, and
 * then the guard still reads. There is no form that waits: two readers would wait for each other for ever.
 *
 * Errors: "invalid_argument" unless this is the only guard of a read lock; else as pl_guard_downgrade.
 */
enum PlStatus pl_guard_try_upgrade(const struct PlGuard *guard,
                                   struct PlError **error);

/**
 * Frees the guard; a lock that is still held is released in the background.
 *
 * Waits for a function of pl_guard_on_lost that is running, unless it is called from there: so do not hold
 * what that function waits for. Afterwards none is running or called any more.
 */
void pl_guard_free(struct PlGuard *guard);

/**
 * Tells what the client's store can do, as JSON, such as {"backend":"redis","fifo":true,…}: give the text back
 * with pl_text_free. Costs no request.
 */
enum PlStatus pl_client_capability(const struct PlClient *client,
                                   char **json,
                                   struct PlError **error);

/**
 * Tells what the client has done since it was made, in numbers, as JSON: give the text back with pl_text_free. Costs
 * no request, and no lock is held up.
 *
 * {"acquired":2,"refused":0,"timed_out":0,"failed":0,"cancelled":0,"held":1,"waiting":0,"backend":"redis","wait":H,
 * "hold":H,"renewal_lag":H,"losses":{"expired":0,…},"errors":{"wait_timeout":0,…}}, where H is
 * {"bounds":[…],"counts":[…],"sum":0.01,"count":2}: the largest duration of each range in seconds, and how many fell
 * into each; the last count is of those above all bounds.
 */
enum PlStatus pl_client_stats(const struct PlClient *client,
                              char **json,
                              struct PlError **error);

/**
 * Writes the same numbers as text that Prometheus reads; free it with pl_text_free. `labels` is NULL, or a list of
 * names and values in turn that ends with NULL: {"service", "shop", NULL}. The label `backend` is there already.
 *
 * Errors: "invalid_argument" for a label that Prometheus does not accept or that is there already.
 */
enum PlStatus pl_client_prometheus(const struct PlClient *client,
                                   const char *const *labels,
                                   char **text,
                                   struct PlError **error);

/**
 * Reads who holds and who waits, as JSON; give the text back with pl_text_free.
 *
 * `prefix` picks the locks whose names start with it; NULL means all. At most `limit` locks, 0 for 10000.
 */
enum PlStatus pl_list(const struct PlClient *client,
                      const char *prefix,
                      size_t limit,
                      char **json,
                      struct PlError **error);

/**
 * Breaks a lease, if it still has this fencing token; the outcome as JSON, such as
 * {"outcome":"broken"}: give the text back with pl_text_free.
 *
 * `by` is who does it, `reason` why, at most 256 bytes; both are recorded in the store, for operators.
 */
enum PlStatus pl_break_lease(const struct PlClient *client,
                             const char *name,
                             uint64_t fencing_token,
                             const char *by,
                             const char *reason,
                             char **json,
                             struct PlError **error);

/**
 * Fills options with the defaults. `size` is sizeof(PlLockOptions). Does nothing for NULL, and for a
 * size that this library does not know: the options are refused by the call that gets them.
 */
void pl_lock_options_init(struct PlLockOptions *options,
                          size_t size);

/**
 * Acquires a lock, waiting as long as `options` say; NULL means the defaults: a mutex, for ever.
 *
 * The wait blocks this thread. `cancel` is NULL or ends it from another thread. On PL_OK `guard` has the
 * held lock. A call that ends in any other way holds nothing.
 *
 * Errors: "wait_timeout" with who holds it; "invalid_argument" before anything is sent; "canceled";
 * "name_conflict"; "backend_unavailable"; "backend_rejected"; "unsupported".
 */
enum PlStatus pl_acquire(const struct PlClient *client,
                         const char *name,
                         const struct PlLockOptions *options,
                         const struct PlCancel *cancel,
                         struct PlGuard **guard,
                         struct PlError **error);

/**
 * Acquires a lock if it is available at once; PL_BUSY if another client holds it or is queued before.
 * `wait_ms` is not looked at. Otherwise as pl_acquire.
 */
enum PlStatus pl_try_acquire(const struct PlClient *client,
                             const char *name,
                             const struct PlLockOptions *options,
                             const struct PlCancel *cancel,
                             struct PlGuard **guard,
                             struct PlError **error);

/**
 * Names a database: "sqlite ?1", "sqlite ?", "postgres $1", "postgres ?", "postgres %s", "mysql ?" or "mysql %s"
 * (MariaDB too), which is the database and the sign of its driver for a value. `schema` is that of the store on
 * PostgreSQL, or NULL.
 *
 * On PostgreSQL, MySQL and MariaDB the record is the one that the store in that database keeps for idempotent work
 * in other languages. On SQLite it is in a table of its own. pl_runs_schema makes the tables. Free it with
 * pl_runs_free.
 *
 * Errors: "invalid_argument", "invalid_config" for an impossible schema.
 */
enum PlStatus pl_runs_new(const char *dialect,
                          const char *schema,
                          struct PlRuns **runs,
                          struct PlError **error);

/**
 * Returns the script that makes the tables; run again, it changes nothing. Free it with pl_text_free. NULL for NULL.
 */
char *pl_runs_schema(const struct PlRuns *runs);

/**
 * Whether an error of the database, by its code, says of a claim with `no_wait` that another transaction has the
 * key: "1205" of MySQL and MariaDB. Roll back, and answer as for "in_progress".
 */
bool pl_runs_says_in_progress(const struct PlRuns *runs,
                              const char *code);

/**
 * Frees what names a database; its work can be used on.
 */
void pl_runs_free(struct PlRuns *runs);

/**
 * Fills options with the defaults. `size` is sizeof(PlRunOptions). Does nothing for NULL, and for a size that this
 * library does not know: the options are refused by the call that gets them.
 */
void pl_run_options_init(struct PlRunOptions *options,
                         size_t size);

/**
 * Names work that is one transaction. `scope` is the operation and the caller it is done for, 1 to 256 bytes; `key`
 * what is unique to one request, 1 to 255 bytes, made by its client. `options` may be NULL. Nothing is sent. Free it
 * with pl_run_free.
 *
 * Errors: "invalid_argument".
 */
enum PlStatus pl_runs_run(const struct PlRuns *runs,
                          const char *scope,
                          const char *key,
                          const struct PlRunOptions *options,
                          struct PlRun **run,
                          struct PlError **error);

/**
 * Names work in several transactions: a repetition goes on after the last step that was committed. Otherwise as
 * pl_runs_run.
 */
enum PlStatus pl_runs_steps(const struct PlRuns *runs,
                            const char *scope,
                            const char *key,
                            const struct PlRunOptions *options,
                            struct PlRun **run,
                            struct PlError **error);

/**
 * Deletes records whose retention is over, at most so many: 1 to 100 000. Commit it; pl_talk_deleted says how many
 * it were.
 *
 * Errors: "invalid_argument".
 */
enum PlStatus pl_runs_purge(const struct PlRuns *runs,
                            uint32_t most,
                            struct PlTalk **talk,
                            struct PlError **error);

/**
 * Claims the key, or finds its answer: the first statements of the transaction. Commit a claim of work in steps at
 * once. When the talk is over, pl_talk_claimed has the claim, or pl_talk_answer the answer of an earlier run. After
 * a rollback claim again with the same PlRun. Free the talk with pl_talk_free.
 *
 * A claim of one transaction waits at the database for another transaction with the key.
 *
 * Errors: "invalid_argument". Those of its pl_talk_next: "in_progress", "payload_mismatch", "result_too_large", and
 * "failed" if an earlier run failed; pl_talk_answer has what it stored.
 */
enum PlStatus pl_run_claim(const struct PlRun *run,
                           struct PlTalk **talk,
                           struct PlError **error);

/**
 * Frees work that was named; its claims can be used on.
 */
void pl_run_free(struct PlRun *run);

/**
 * Stores the next statement in `sql`, or NULL if the talk is over. Execute it with the values of pl_talk_value, and
 * hand its rows to the next call: `columns` has `rows` times `width` values, row after row; `rows` is 0 for the
 * first call and for a statement that returns none. What was stored lives until the next call with this talk.
 *
 * Errors: those of the call that made the talk; "stale_token" if another client has taken the work over;
 * "backend_rejected" for rows in an unknown form; "invalid_argument" after the end. Roll back after each.
 */
enum PlStatus pl_talk_next(struct PlTalk *talk,
                           const struct PlSqlValue *columns,
                           size_t rows,
                           size_t width,
                           const char **sql,
                           struct PlError **error);

/**
 * Stores a value of the present statement, from 0; false behind the last one.
 */
bool pl_talk_value(const struct PlTalk *talk, size_t index, struct PlSqlValue *value);

/**
 * Returns the claim that came of a talk that is over; NULL if none did. Each call returns another one, to be freed
 * with pl_claim_free.
 */
struct PlClaim *pl_talk_claimed(const struct PlTalk *talk);

/**
 * Returns the answer of an earlier run, with its length in bytes, or what an earlier run that failed has stored;
 * NULL if no earlier run has ended. It lives as long as the talk.
 */
const uint8_t *pl_talk_answer(const struct PlTalk *talk,
                              size_t *length);

/**
 * Returns how many records a purge that is over has deleted.
 */
uint64_t pl_talk_deleted(const struct PlTalk *talk);

/**
 * Frees a talk.
 */
void pl_talk_free(struct PlTalk *talk);

/**
 * Returns the number of a claim, larger than that of every claim on the same key before; 0 for NULL.
 */
uint64_t pl_claim_fencing_token(const struct PlClaim *claim);

/**
 * Returns how many runs of this key began, this one counted; of work in steps, how many clients worked on it. 0 for
 * NULL.
 */
uint32_t pl_claim_runs(const struct PlClaim *claim);

/**
 * Returns the name of a finished step, from 0 in their order, with its value; NULL behind the last one. They live as
 * long as the claim.
 */
const char *pl_claim_finished(const struct PlClaim *claim,
                              size_t index,
                              const uint8_t **value,
                              size_t *length);

/**
 * Records that a step is finished, with a value, and renews the lease: the last statements before the step's commit.
 * `name` has 1 to 100 bytes. The talk ends with the next claim, which records the step after this one.
 *
 * Errors: "invalid_argument" for a step that is finished already, and for values of more than 1 MiB in all. Of its
 * pl_talk_next: "stale_token" if another client has taken the work over; roll back: the step was not done by this
 * one.
 */
enum PlStatus pl_claim_step(const struct PlClaim *claim,
                            const char *name,
                            const uint8_t *value,
                            size_t length,
                            struct PlTalk **talk,
                            struct PlError **error);

/**
 * Renews the lease of work in steps; commit it. The talk ends with the next claim.
 */
enum PlStatus pl_claim_renew(const struct PlClaim *claim,
                             struct PlTalk **talk,
                             struct PlError **error);

/**
 * Ends a claim of work in steps without an answer, so that another client goes on at once; commit it.
 */
enum PlStatus pl_claim_release(const struct PlClaim *claim,
                               struct PlTalk **talk,
                               struct PlError **error);

/**
 * Records the result: the last statements before the (last) commit.
 *
 * Errors: "invalid_argument" for a result of more than 1 MiB. Of its pl_talk_next: "stale_token". Roll back after
 * each: nothing is done then.
 */
enum PlStatus pl_claim_complete(const struct PlClaim *claim,
                                const uint8_t *result,
                                size_t length,
                                struct PlTalk **talk,
                                struct PlError **error);

/**
 * Records a failure: every repetition gets "failed" with this answer. What the transaction changed is committed with
 * it.
 *
 * Errors: as pl_claim_complete.
 */
enum PlStatus pl_claim_fail(const struct PlClaim *claim,
                            const uint8_t *answer,
                            size_t length,
                            struct PlTalk **talk,
                            struct PlError **error);

/**
 * Frees a claim. What it has written remains.
 */
void pl_claim_free(struct PlClaim *claim);

/**
 * Acquires several locks, all of them or none, in the order of their names, so that two that want the same
 * locks never wait for each other in a circle. `names` ends with NULL; 1 to 128. `wait_ms` is for all of them
 * together; the other options are for each, and `mode` has to be PL_MUTEX.
 *
 * Otherwise as pl_acquire, with the errors of the first lock that cannot be acquired.
 */
enum PlStatus pl_acquire_all(const struct PlClient *client,
                             const char *const *names,
                             const struct PlLockOptions *options,
                             const struct PlCancel *cancel,
                             struct PlGuardSet **set,
                             struct PlError **error);

/**
 * Acquires several locks if all are available at once; PL_BUSY, and none is held, if one is not. `wait_ms` is not
 * looked at. Otherwise as pl_acquire_all.
 */
enum PlStatus pl_try_acquire_all(const struct PlClient *client,
                                 const char *const *names,
                                 const struct PlLockOptions *options,
                                 const struct PlCancel *cancel,
                                 struct PlGuardSet **set,
                                 struct PlError **error);

/**
 * Returns how many locks are held, in the order of their names: one for each name, given twice or once.
 */
size_t pl_guard_set_count(const struct PlGuardSet *set);

/**
 * Returns the name of a lock, NULL from `pl_guard_set_count` on. It lives as long as the set.
 */
const char *pl_guard_set_name(const struct PlGuardSet *set, size_t index);

/**
 * Returns the fencing token of a lock, 0 from `pl_guard_set_count` on.
 */
uint64_t pl_guard_set_fencing_token(const struct PlGuardSet *set, size_t index);

/**
 * Returns for how many milliseconds all of them may be relied on from now; 0 once one is over.
 */
uint64_t pl_guard_set_remaining_ms(const struct PlGuardSet *set);

/**
 * Says of all that the protected work moves on; see pl_guard_beat.
 */
void pl_guard_set_beat(const struct PlGuardSet *set);

/**
 * Fails unless all of them are still held, by this process's own clock, now; see pl_guard_check.
 */
enum PlStatus pl_guard_set_check(const struct PlGuardSet *set, struct PlError **error);

/**
 * Gives all of them back and waits until the store knows; see pl_guard_release. Repeatable.
 */
enum PlStatus pl_guard_set_release(const struct PlGuardSet *set, struct PlError **error);

/**
 * Gives the set back; locks that are still held are released in the background.
 */
void pl_guard_set_free(struct PlGuardSet *set);

/**
 * Makes a write to a row that exists, which changes it only if no newer fencing token wrote. The table keeps the largest token
 * in a column such as fence BIGINT NOT NULL DEFAULT 0. Without columns to set, NULL, only the token is raised. One changed
 * row: done. None: ask with the probe, and pl_fenced_unchanged. Free the statements with pl_sql_free.
 *
 * Errors: "invalid_argument".
 */
enum PlStatus pl_fenced_update(const char *dialect,
                               const char *table,
                               const char *fence_column,
                               const char *const *set_columns,
                               const char *const *key_columns,
                               struct PlSql **sql,
                               struct PlError **error);

/**
 * Makes the same write, which inserts the row if it is missing; the key columns need a unique index. Where
 * pl_sql_rows_tell is false, ask with the probe after each write, and pl_fenced_check.
 */
enum PlStatus pl_fenced_upsert(const char *dialect,
                               const char *table,
                               const char *fence_column,
                               const char *const *set_columns,
                               const char *const *key_columns,
                               struct PlSql **sql,
                               struct PlError **error);

/**
 * Makes a write to a row that changes it only if it still has the version that was read, and raises the version by one. It
 * needs no lock. One changed row: done. None: the row has another version or is missing, which the probe tells.
 *
 * Errors: "invalid_argument".
 */
enum PlStatus pl_versioned_update(const char *dialect,
                                  const char *table,
                                  const char *version_column,
                                  const char *const *set_columns,
                                  const char *const *key_columns,
                                  struct PlSql **sql,
                                  struct PlError **error);

/**
 * Makes a write to a row that changes it only while the row fulfils conditions, such as stock >= 3. It needs no lock.
 * `changes` are columns and "=", "+" or "-" in turn, `conditions` columns and "=", "<>", "<", "<=", ">" or ">=" in turn;
 * both end with NULL.
 *
 * Errors: "invalid_argument".
 */
enum PlStatus pl_conditional_update(const char *dialect,
                                    const char *table,
                                    const char *const *changes,
                                    const char *const *conditions,
                                    const char *const *key_columns,
                                    struct PlSql **sql,
                                    struct PlError **error);

/**
 * Makes the statements that take a lock for as long as a transaction of yours lasts, on your connection to the database that
 * keeps the locks. Run PL_SQL_PREPARE before the transaction, if there is one, and PL_SQL_TAKE first in it: one row
 * (PostgreSQL: returned, MySQL and MariaDB: changed) means taken. No row: a client holds a lease or waits for one; roll back
 * at once. The parameters are values here, not names. `schema` is that of the store on PostgreSQL, or NULL.
 *
 * Errors: "invalid_argument", "invalid_config" for an impossible schema.
 */
enum PlStatus pl_transaction_lock(const char *dialect,
                                  const char *name,
                                  const char *schema,
                                  struct PlSql **sql,
                                  struct PlError **error);

/**
 * Returns a text; NULL if there is none. It lives as long as the statements.
 */
const char *pl_sql_text(const struct PlSql *sql, uint32_t part);

/**
 * Returns what a parameter of a text is, from 0; NULL behind the last one. Of a write it is the column, or column and operator
 * such as "stock >="; of a lock in a transaction it is the value. It lives as long as the statements.
 */
const char *pl_sql_parameter(const struct PlSql *sql,
                             uint32_t part,
                             size_t index);

/**
 * Says whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB.
 */
bool pl_sql_rows_tell(const struct PlSql *sql);

/**
 * Frees statements.
 */
void pl_sql_free(struct PlSql *sql);

/**
 * Explains a fenced write that changed no row, by what the probe found: whether there is a row, and its token, NULL for one
 * that is NULL in the table. Stores in `missing` whether there is no such row; otherwise it is worth writing again.
 *
 * Errors: "stale_token" if a newer holder wrote before.
 */
enum PlStatus pl_fenced_unchanged(uint64_t fencing_token,
                                  bool has_row,
                                  const int64_t *kept,
                                  bool *missing,
                                  struct PlError **error);

/**
 * Reads what the probe found after a fenced write whose number of rows says nothing. `kept` is NULL for no row, and for a row
 * without a token.
 *
 * Errors: "stale_token" if the row keeps a newer token.
 */
enum PlStatus pl_fenced_check(uint64_t fencing_token,
                              const int64_t *kept,
                              struct PlError **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* POLYLATCH_H */
