// Asks for statements, one a line, and prints them: the texts with what their parameters are, or the error.
//
// A line has fields with tabs between them: what to make, the dialect, and what that takes; a list has commas.
#include <polylatch.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// A list that ends with NULL.
struct List {
  std::vector<std::string> texts;
  std::vector<const char *> pointers;
  explicit List(const std::string &text) : texts(split(text, ',')) {
    for (const auto &one : texts) pointers.push_back(one.c_str());
    pointers.push_back(nullptr);
  }
  operator const char *const *() const { return pointers.data(); }
};

void print(const PlSql *sql) {
  for (uint32_t part = PL_SQL_WRITE; part <= PL_SQL_FENCE; ++part) {
    const char *text = pl_sql_text(sql, part);
    if (part > 0) std::cout << '\t';
    std::cout << (text ? text : "-");
    for (size_t i = 0; pl_sql_parameter(sql, part, i); ++i) std::cout << '|' << pl_sql_parameter(sql, part, i);
  }
  std::cout << '\t' << (pl_sql_rows_tell(sql) ? "tells" : "silent") << '\n';
}

void check(bool holds, const char *what) {
  if (holds) return;
  std::cerr << "not so: " << what << '\n';
  std::exit(1);
}

void bad_input_is_told() {
  PlSql *sql = nullptr;
  PlError *error = nullptr;
  const char *keys[] = {"id", nullptr};
  check(pl_fenced_update("sqlite ?", nullptr, "fence", keys, keys, &sql, &error) == PL_ERROR && !sql, "no table");
  check(std::strstr(pl_error_message(error), "table is NULL"), pl_error_message(error));
  pl_error_free(error);
  const char *odd[] = {"stock", nullptr};
  check(pl_conditional_update("sqlite ?", "item", odd, odd, keys, &sql, &error) == PL_ERROR, "no operator");
  check(std::strstr(pl_error_message(error), "\"stock\" has no value"), pl_error_message(error));
  pl_error_free(error);
  check(!pl_sql_text(nullptr, PL_SQL_WRITE) && !pl_sql_parameter(nullptr, PL_SQL_WRITE, 0), "null");
  check(pl_transaction_lock("postgres $1", "a", nullptr, &sql, nullptr) == PL_OK, "a lock");
  check(!pl_sql_text(sql, 5) && !pl_sql_text(sql, PL_SQL_WRITE) && !pl_sql_parameter(sql, PL_SQL_TAKE, 1), "no such part");
  pl_sql_free(sql);
}

void a_row_says_why_nothing_changed() {
  const int64_t newer = 34;
  bool missing = true;
  PlError *error = nullptr;
  check(pl_fenced_unchanged(33, true, &newer, &missing, &error) == PL_ERROR, "refused");
  check(!std::strcmp(pl_error_code(error), "stale_token"), pl_error_code(error));
  pl_error_free(error);
  check(pl_fenced_check(33, &newer, nullptr) == PL_ERROR && pl_fenced_check(34, &newer, nullptr) == PL_OK, "checked");
  check(pl_fenced_check(33, nullptr, nullptr) == PL_OK, "nothing kept");
  check(pl_fenced_unchanged(34, true, &newer, &missing, &error) == PL_OK && !missing, "write again");
  check(pl_fenced_unchanged(34, true, nullptr, &missing, &error) == PL_OK && !missing, "no token yet");
  check(pl_fenced_unchanged(34, false, nullptr, &missing, &error) == PL_OK && missing, "missing");
}

} // namespace

int main() {
  bad_input_is_told();
  a_row_says_why_nothing_changed();
  for (std::string line; std::getline(std::cin, line);) {
    auto fields = split(line, '\t');
    fields.resize(6);
    const std::string &make = fields[0];
    const char *dialect = fields[1].c_str(), *third = fields[2].c_str(), *fourth = fields[3].c_str();
    const List lists[] = {List(fields[3]), List(fields[4]), List(fields[5])};
    PlSql *sql = nullptr;
    PlError *error = nullptr;
    PlStatus status = PL_BUSY;
    if (make == "fenced_update") {
      status = pl_fenced_update(dialect, third, fourth, lists[1], lists[2], &sql, &error);
    } else if (make == "fenced_upsert") {
      status = pl_fenced_upsert(dialect, third, fourth, lists[1], lists[2], &sql, &error);
    } else if (make == "versioned_update") {
      status = pl_versioned_update(dialect, third, fourth, lists[1], lists[2], &sql, &error);
    } else if (make == "conditional_update") {
      status = pl_conditional_update(dialect, third, lists[0], lists[1], lists[2], &sql, &error);
    } else if (make == "transaction_lock") {
      status = pl_transaction_lock(dialect, third, *fourth ? fourth : nullptr, &sql, &error);
    }
    if (status == PL_OK) {
      print(sql);
      pl_sql_free(sql);
    } else {
      std::cout << "error\t" << pl_error_code(error) << '\t' << pl_error_message(error) << '\n';
      pl_error_free(error);
    }
  }
}
