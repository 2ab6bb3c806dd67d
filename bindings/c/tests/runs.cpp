// Idempotent work inside transactions of a program's own, on SQLite: `runs FILE`. Prints ok.
#include <polylatch.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace {

void check(bool holds, const std::string &what) {
  if (holds) return;
  std::cerr << "not so: " << what << '\n';
  std::exit(1);
}

// The library of SQLite, which is on every machine that has Python; its headers may not be.
struct Sqlite {
  void *library = dlopen("libsqlite3.so.0", RTLD_NOW);
  template <typename F> F *of(const char *name) {
    check(library, "libsqlite3.so.0 is there");
    auto *found = reinterpret_cast<F *>(dlsym(library, name));
    check(found, name);
    return found;
  }
  int (*open)(const char *, void **) = of<int(const char *, void **)>("sqlite3_open");
  int (*exec)(void *, const char *, void *, void *, char **) = of<int(void *, const char *, void *, void *, char **)>("sqlite3_exec");
  int (*prepare)(void *, const char *, int, void **, const char **) =
      of<int(void *, const char *, int, void **, const char **)>("sqlite3_prepare_v2");
  int (*bind_int)(void *, int, int64_t) = of<int(void *, int, int64_t)>("sqlite3_bind_int64");
  int (*bind_text)(void *, int, const char *, int, void (*)(void *)) =
      of<int(void *, int, const char *, int, void (*)(void *))>("sqlite3_bind_text");
  int (*bind_blob)(void *, int, const void *, int, void (*)(void *)) =
      of<int(void *, int, const void *, int, void (*)(void *))>("sqlite3_bind_blob");
  int (*step)(void *) = of<int(void *)>("sqlite3_step");
  int (*columns)(void *) = of<int(void *)>("sqlite3_column_count");
  int (*type)(void *, int) = of<int(void *, int)>("sqlite3_column_type");
  int64_t (*number)(void *, int) = of<int64_t(void *, int)>("sqlite3_column_int64");
  const void *(*blob)(void *, int) = of<const void *(void *, int)>("sqlite3_column_blob");
  int (*bytes)(void *, int) = of<int(void *, int)>("sqlite3_column_bytes");
  int (*finalize)(void *) = of<int(void *)>("sqlite3_finalize");
  int (*close)(void *) = of<int(void *)>("sqlite3_close");
} sqlite;

constexpr int ROW = 100, DONE = 101, INTEGER = 1, TEXT = 3, NOTHING = 5;

struct Database {
  void *connection = nullptr;
  explicit Database(const char *file) { check(sqlite.open(file, &connection) == 0, "open"); }
  ~Database() { sqlite.close(connection); }

  void execute(const std::string &sql) { check(sqlite.exec(connection, sql.c_str(), nullptr, nullptr, nullptr) == 0, sql); }

  // The rows of a statement, one after the other, as the library wants them.
  struct Rows {
    std::vector<std::string> texts;
    std::vector<PlSqlValue> columns;
    size_t rows = 0, width = 0;
  };

  Rows query(const char *sql, const PlTalk *talk) {
    void *statement = nullptr;
    check(sqlite.prepare(connection, sql, -1, &statement, nullptr) == 0, sql);
    PlSqlValue value;
    for (int i = 0; pl_talk_value(talk, i, &value); ++i) {
      const char *data = reinterpret_cast<const char *>(value.data);
      // What is bound lives until the next call.
      if (value.kind == PL_VALUE_INT) sqlite.bind_int(statement, i + 1, value.number);
      if (value.kind == PL_VALUE_TEXT) sqlite.bind_text(statement, i + 1, data, -1, nullptr);
      if (value.kind == PL_VALUE_BYTES) sqlite.bind_blob(statement, i + 1, data, static_cast<int>(value.length), nullptr);
    }
    Rows found;
    found.width = sqlite.columns(statement);
    found.texts.reserve(found.width);
    int result;
    while ((result = sqlite.step(statement)) == ROW) {
      ++found.rows;
      for (int at = 0; at < static_cast<int>(found.width); ++at) {
        PlSqlValue column = {PL_VALUE_NULL, 0, nullptr, 0};
        const int type = sqlite.type(statement, at);
        if (type == INTEGER) {
          column = {PL_VALUE_INT, sqlite.number(statement, at), nullptr, 0};
        } else if (type != NOTHING) {
          const void *data = sqlite.blob(statement, at);
          check(found.texts.size() < found.texts.capacity(), "one row");
          found.texts.emplace_back(static_cast<const char *>(data), sqlite.bytes(statement, at));
          column.kind = type == TEXT ? PL_VALUE_TEXT : PL_VALUE_BYTES;
          column.data = reinterpret_cast<const uint8_t *>(found.texts.back().data());
          column.length = found.texts.back().size();
        }
        found.columns.push_back(column);
      }
    }
    check(result == DONE, sql);
    sqlite.finalize(statement);
    return found;
  }

  std::string count(const std::string &work) {
    const std::string sql = "SELECT count(*) FROM effects WHERE work = '" + work + "'";
    return std::to_string(query(sql.c_str(), nullptr).columns[0].number);
  }

  void effect(const std::string &work) { execute("INSERT INTO effects VALUES ('" + work + "')"); }
};

// What came of a talk: ok, or the code of its error.
std::string carry_out(Database &database, PlTalk *talk) {
  PlError *error = nullptr;
  Database::Rows found;
  const char *sql = nullptr;
  do {
    if (pl_talk_next(talk, found.columns.data(), found.rows, found.width, &sql, &error) != PL_OK) {
      const std::string code = pl_error_code(error);
      pl_error_free(error);
      return code;
    }
    if (sql) found = database.query(sql, talk);
  } while (sql);
  return "ok";
}

std::string answer(const PlTalk *talk) {
  size_t length = 0;
  const uint8_t *data = pl_talk_answer(talk, &length);
  return data ? std::string(reinterpret_cast<const char *>(data), length) : "nothing";
}

const uint8_t *raw(const char *text) { return reinterpret_cast<const uint8_t *>(text); }

// Carries out what a function of a claim made, and frees it. Returns what came of it, and the next claim.
struct Ended {
  std::string code;
  PlClaim *next;
};

Ended end(Database &database, PlTalk *talk) {
  const std::string code = carry_out(database, talk);
  PlClaim *next = pl_talk_claimed(talk);
  pl_talk_free(talk);
  return {code, next};
}

PlRunOptions options_for(const char *payload) {
  PlRunOptions options;
  pl_run_options_init(&options, sizeof options);
  options.payload = raw(payload);
  options.payload_length = std::strlen(payload);
  return options;
}

// Does work in a transaction of its own. Returns what came of it: done, the stored answer, or the code of an error.
std::string done_once(Database &database, const PlRuns *runs, const char *key, const PlRunOptions *options, const char *result) {
  PlRun *run = nullptr;
  PlTalk *talk = nullptr;
  check(pl_runs_run(runs, "orders/7", key, options, &run, nullptr) == PL_OK, "named");
  check(pl_run_claim(run, &talk, nullptr) == PL_OK, "claiming");
  database.execute("BEGIN IMMEDIATE");
  std::string told = carry_out(database, talk);
  PlClaim *claim = pl_talk_claimed(talk);
  if (told == "ok" && !claim) told = answer(talk);
  pl_talk_free(talk);
  pl_run_free(run);
  if (!claim) {
    database.execute("ROLLBACK");
    return told;
  }
  check(pl_claim_fencing_token(claim) > 0 && pl_claim_runs(claim) == 1, "a claim");
  database.effect(key);
  check(pl_claim_complete(claim, raw(result), std::strlen(result), &talk, nullptr) == PL_OK, "completing");
  check(end(database, talk).code == "ok", "completed");
  pl_claim_free(claim);
  database.execute("COMMIT");
  return "done";
}

void work_is_done_once(Database &database, const PlRuns *runs) {
  PlRunOptions apples = options_for("3 apples");
  apples.retention_ms = PL_FOREVER;
  check(done_once(database, runs, "k", &apples, "order 42") == "done", "first");
  check(done_once(database, runs, "k", &apples, "never") == "order 42", "replayed");
  const PlRunOptions pears = options_for("4 pears");
  check(done_once(database, runs, "k", &pears, "never") == "payload_mismatch", "another payload");
  check(database.count("k") == "1", "once");
  check(done_once(database, runs, "empty", nullptr, "") == "done" && done_once(database, runs, "empty", nullptr, "never").empty(),
        "an empty answer is one");
}

void a_failure_is_kept_and_a_rollback_frees_the_key(Database &database, const PlRuns *runs) {
  PlRun *run = nullptr;
  PlTalk *talk = nullptr;
  pl_runs_run(runs, "orders/7", "refused", nullptr, &run, nullptr);
  for (const char *ending : {"ROLLBACK", "COMMIT"}) {
    pl_run_claim(run, &talk, nullptr);
    database.execute("BEGIN IMMEDIATE");
    PlClaim *claim = end(database, talk).next;
    check(claim, "it is free");
    check(pl_claim_fail(claim, raw("no card"), 7, &talk, nullptr) == PL_OK && end(database, talk).code == "ok", "failed");
    pl_claim_free(claim);
    database.execute(ending);
  }
  pl_run_claim(run, &talk, nullptr);
  check(carry_out(database, talk) == "failed" && answer(talk) == "no card" && !pl_talk_claimed(talk), "a stored failure");
  pl_talk_free(talk);
  pl_run_free(run);
}

void steps_go_on_after_the_last_commit(Database &database, const PlRuns *runs) {
  PlRunOptions options;
  pl_run_options_init(&options, sizeof options);
  options.lease_ms = 600000;
  PlRun *first = nullptr, *second = nullptr;
  check(pl_runs_steps(runs, "orders/7", "steps", &options, &first, nullptr) == PL_OK, "named");
  check(pl_runs_steps(runs, "orders/7", "steps", &options, &second, nullptr) == PL_OK, "named again");
  PlTalk *talk = nullptr;
  pl_run_claim(first, &talk, nullptr);
  PlClaim *claim = end(database, talk).next;
  check(pl_claim_step(claim, "charge", raw("\0receipt"), 8, &talk, nullptr) == PL_OK, "a step");
  PlClaim *charged = end(database, talk).next;
  check(charged && pl_claim_step(charged, "charge", nullptr, 0, &talk, nullptr) == PL_ERROR && !talk, "finished already");
  pl_run_claim(second, &talk, nullptr);
  check(end(database, talk).code == "in_progress", "the lease of the first one");
  pl_claim_renew(charged, &talk, nullptr);
  PlClaim *renewed = end(database, talk).next;
  pl_claim_release(renewed, &talk, nullptr);
  check(end(database, talk).code == "ok", "released");
  pl_run_claim(second, &talk, nullptr);
  PlClaim *other = end(database, talk).next;
  size_t length = 0;
  const uint8_t *value = nullptr;
  const char *name = pl_claim_finished(other, 0, &value, &length);
  check(name && std::string(name) == "charge" && length == 8 && !std::memcmp(value, "\0receipt", 8), "what is finished");
  check(!pl_claim_finished(other, 1, nullptr, nullptr) && pl_claim_runs(other) == 2, "that is all");
  pl_claim_step(renewed, "send", nullptr, 0, &talk, nullptr);
  check(end(database, talk).code == "stale_token", "it is not the first one's");
  pl_claim_step(other, "send", nullptr, 0, &talk, nullptr);
  PlClaim *sent = end(database, talk).next;
  pl_claim_complete(sent, raw("all"), 3, &talk, nullptr);
  check(end(database, talk).code == "ok", "completed");
  pl_run_claim(first, &talk, nullptr);
  check(carry_out(database, talk) == "ok" && answer(talk) == "all", "replayed");
  pl_talk_free(talk);
  for (PlClaim *one : {claim, charged, renewed, other, sent}) pl_claim_free(one);
  pl_run_free(first);
  pl_run_free(second);
}

void records_are_purged(Database &database, const PlRuns *runs) {
  database.execute("UPDATE polylatch_idempotency SET keep_until_ms = 1 WHERE key = 'refused'");
  PlTalk *talk = nullptr;
  check(pl_runs_purge(runs, 10, &talk, nullptr) == PL_OK && carry_out(database, talk) == "ok", "purged");
  check(pl_talk_deleted(talk) == 1, "one");
  pl_talk_free(talk);
}

// The error is there after the call.
void refused(PlStatus status, PlError *&error, const char *words) {
  check(status == PL_ERROR && std::strstr(pl_error_message(error), words), error ? pl_error_message(error) : words);
  pl_error_free(error);
}

void bad_input_is_told(const PlRuns *runs) {
  PlError *error = nullptr;
  PlRuns *none = nullptr;
  PlRun *run = nullptr;
  PlTalk *talk = nullptr;
  const char *sql = nullptr;
  refused(pl_runs_new("oracle :1", nullptr, &none, &error), error, "oracle :1");
  refused(pl_runs_new("sqlite ?", "app", &none, &error), error, "schema");
  refused(pl_runs_new(nullptr, nullptr, &none, &error), error, "dialect is NULL");
  refused(pl_runs_run(runs, "s", "", nullptr, &run, &error), error, "the key");
  refused(pl_runs_run(nullptr, "s", "k", nullptr, &run, &error), error, "runs is NULL");
  PlRunOptions options = options_for("");
  options.fingerprint = "f";
  refused(pl_runs_run(runs, "s", "k", &options, &run, &error), error, "fingerprint");
  options.fingerprint = nullptr;
  options.payload = nullptr;
  options.payload_length = 3;
  refused(pl_runs_run(runs, "s", "k", &options, &run, &error), error, "options.payload is NULL");
  options.payload_length = 0;
  options.lease_ms = 1000;
  refused(pl_runs_run(runs, "s", "k", &options, &run, &error), error, "options.lease_ms");
  options.no_wait = 1;
  refused(pl_runs_steps(runs, "s", "k", &options, &run, &error), error, "options.no_wait");
  options.no_wait = 2;
  refused(pl_runs_steps(runs, "s", "k", &options, &run, &error), error, "PL_DEFAULT");
  options.size = 1;
  refused(pl_runs_steps(runs, "s", "k", &options, &run, &error), error, "pl_run_options_init");
  refused(pl_runs_purge(runs, 0, &talk, &error), error, "100000");
  check(pl_runs_run(runs, "s", "k", nullptr, &run, nullptr) == PL_OK, "named");
  check(pl_run_claim(run, &talk, nullptr) == PL_OK && !pl_talk_claimed(talk) && answer(talk) == "nothing", "not over yet");
  const PlSqlValue odd = {9, 0, nullptr, 0}, torn = {PL_VALUE_TEXT, 0, raw("\xff"), 1};
  refused(pl_talk_next(talk, &odd, 1, 1, &sql, &error), error, "the kind of a column is 9");
  refused(pl_talk_next(talk, &torn, 1, 1, &sql, &error), error, "not UTF-8");
  refused(pl_talk_next(talk, nullptr, 1, 1, &sql, &error), error, "columns is NULL");
  refused(pl_talk_next(talk, &odd, SIZE_MAX, 2, &sql, &error), error, "too small");
  check(pl_talk_next(talk, nullptr, 0, 0, &sql, nullptr) == PL_OK && sql, "a statement");
  pl_talk_free(talk);
  pl_run_free(run);
  check(!pl_talk_claimed(nullptr) && !pl_talk_value(nullptr, 0, nullptr) && !pl_claim_runs(nullptr), "null");
  check(pl_runs_new("mysql ?", nullptr, &none, nullptr) == PL_OK && pl_runs_says_in_progress(none, "1205"), "another has it");
  check(!pl_runs_says_in_progress(none, "1062") && !pl_runs_says_in_progress(nullptr, "1205"), "another error");
  pl_runs_free(none);
}

} // namespace

int main(int, char **arguments) {
  PlRuns *runs = nullptr;
  check(pl_runs_new("sqlite ?", nullptr, &runs, nullptr) == PL_OK, "runs");
  bad_input_is_told(runs);
  Database database(arguments[1]);
  char *schema = pl_runs_schema(runs);
  database.execute(schema);
  database.execute(schema);
  pl_text_free(schema);
  database.execute("CREATE TABLE effects (work TEXT)");
  work_is_done_once(database, runs);
  a_failure_is_kept_and_a_rollback_frees_the_key(database, runs);
  steps_go_on_after_the_last_commit(database, runs);
  records_are_purged(database, runs);
  pl_runs_free(runs);
  std::cout << "ok\n";
}
