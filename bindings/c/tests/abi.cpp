// What a C caller relies on: statuses, errors for bad input, cancellation, losses, no leaks.
//
//   abi [URL]...
//   abi --away REDIS-URL SERVER-PROCESS
#include <polylatch.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                 \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (0)

namespace {

// Takes what a call stored, and gives it back.
struct Failed {
  std::string code, message, reason;
  explicit Failed(PlError *error) {
    CHECK(error != nullptr);
    code = pl_error_code(error);
    message = pl_error_message(error);
    CHECK(std::strlen(pl_error_hint(error)) > 0 && std::strlen(pl_error_retry(error)) > 0);
    CHECK(std::strlen(pl_error_effect(error)) > 0);
    if (const char *lost = pl_error_lost_reason(error)) reason = lost;
    pl_error_free(error);
  }
};

PlClient *connect(const std::string &url) {
  PlClient *client = nullptr;
  PlError *error = nullptr;
  if (pl_connect(url.c_str(), nullptr, nullptr, &client, &error) != PL_OK) {
    std::fprintf(stderr, "%s\n", Failed(error).message.c_str());
    std::exit(1);
  }
  return client;
}

PlLockOptions defaults() {
  PlLockOptions options;
  pl_lock_options_init(&options, sizeof options);
  return options;
}

PlGuard *acquire(const PlClient *client, const char *name, const PlLockOptions *options = nullptr) {
  PlGuard *guard = nullptr;
  PlError *error = nullptr;
  if (pl_acquire(client, name, options, nullptr, &guard, &error) != PL_OK) {
    std::fprintf(stderr, "%s\n", Failed(error).message.c_str());
    std::exit(1);
  }
  return guard;
}

void refused(const PlClient *client, const char *name, const PlLockOptions &options, const char *code,
             const char *part) {
  PlGuard *guard = nullptr;
  PlError *error = nullptr;
  CHECK(pl_acquire(client, name, &options, nullptr, &guard, &error) == PL_ERROR);
  CHECK(guard == nullptr);
  Failed failed(error);
  if (failed.code != code || failed.message.find(part) == std::string::npos) {
    std::fprintf(stderr, "expected %s with %s, got %s: %s\n", code, part, failed.code.c_str(),
                 failed.message.c_str());
    std::exit(1);
  }
}

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

void a_lock_is_had_and_given_back(const PlClient *client) {
  PlError *error = nullptr;
  PlGuard *first = acquire(client, "a");
  CHECK(std::string(pl_guard_name(first)) == "a");
  CHECK(pl_guard_is_held(first) && pl_guard_remaining_ms(first) > 0);
  CHECK(pl_guard_check(first, &error) == PL_OK && error == nullptr);
  PlGuard *second = nullptr;
  CHECK(pl_try_acquire(client, "a", nullptr, nullptr, &second, &error) == PL_BUSY && !second && !error);
  const uint64_t token = pl_guard_fencing_token(first);
  CHECK(pl_guard_release(first, &error) == PL_OK);
  CHECK(pl_guard_release(first, &error) == PL_OK); // repeatable
  CHECK(!pl_guard_is_held(first) && pl_guard_remaining_ms(first) == 0);
  CHECK(pl_guard_check(first, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  pl_guard_free(first);
  second = acquire(client, "a");
  CHECK(pl_guard_fencing_token(second) > token);
  pl_guard_free(second); // releases in the background
  pl_guard_free(acquire(client, "a"));
}

void a_kept_lock_is_entered_again_and_released_for_another_client(const PlClient *client, const std::string &url) {
  PlLockOptions options = defaults();
  options.keep_idle_ms = 60000;
  if (url.rfind("memory:", 0) != 0 && url.rfind("redis:", 0) != 0) {
    refused(client, "kept", options, "unsupported", "keep a lease after its release");
    return;
  }
  uint64_t last = 0;
  for (int round = 0; round < 5; ++round) {
    PlGuard *guard = acquire(client, "kept", &options);
    CHECK(pl_guard_fencing_token(guard) > last);
    last = pl_guard_fencing_token(guard);
    CHECK(pl_guard_release(guard, nullptr) == PL_OK);
    pl_guard_free(guard);
  }
  PlClient *other = connect(url);
  PlLockOptions waiting = defaults();
  waiting.wait_ms = 30000;
  PlGuard *guard = nullptr;
  // It is released, and still held: until another client asks, as this call does.
  CHECK(pl_try_acquire(other, "kept", nullptr, nullptr, &guard, nullptr) == PL_BUSY);
  guard = acquire(other, "kept", &waiting);
  CHECK(pl_guard_fencing_token(guard) > last);
  pl_guard_free(guard);
  pl_client_free(other);
}

void kinds_are_kept(const PlClient *client) {
  PlLockOptions read = defaults(), permits = defaults();
  read.mode = PL_READ;
  PlGuard *one = acquire(client, "kinds/rw", &read), *two = acquire(client, "kinds/rw", &read);
  PlLockOptions write = defaults();
  write.mode = PL_WRITE;
  PlGuard *none = nullptr;
  CHECK(pl_try_acquire(client, "kinds/rw", &write, nullptr, &none, nullptr) == PL_BUSY);
  pl_guard_free(one);
  pl_guard_free(two);
  permits.mode = PL_PERMITS;
  permits.permits = 2;
  permits.capacity = 3;
  PlGuard *three = acquire(client, "kinds/permits", &permits);
  CHECK(pl_try_acquire(client, "kinds/permits", &permits, nullptr, &none, nullptr) == PL_BUSY);
  pl_guard_free(three);
}

void bad_input_is_told(const PlClient *client) {
  PlLockOptions options = defaults();
  refused(client, nullptr, options, "invalid_argument", "name is NULL");
  refused(client, "", options, "invalid_argument", "name");
  refused(client, "\xff", options, "invalid_argument", "name is not UTF-8");
  refused(nullptr, "a", options, "invalid_argument", "client is NULL");
  options.size = 4;
  refused(client, "a", options, "invalid_argument", "options.size is 4");
  options = defaults();
  options.mode = 77;
  refused(client, "a", options, "invalid_argument", "options.mode is 77");
  options = defaults();
  options.lease_ms = 1;
  refused(client, "a", options, "invalid_argument", "lease");
  options.lease_ms = -2;
  refused(client, "a", options, "invalid_argument", "lease_ms is -2");
  options.lease_ms = INT64_MAX;
  refused(client, "a", options, "invalid_argument", "lease_ms");
  options = defaults();
  options.fifo = 5;
  refused(client, "a", options, "invalid_argument", "options.fifo is 5");
  options = defaults();
  options.mode = PL_PERMITS;
  refused(client, "a", options, "invalid_argument", "permits");
  options.mode = PL_MUTEX;
  options.permits = 1;
  refused(client, "a", options, "invalid_argument", "belong to PL_PERMITS");

  PlError *error = nullptr;
  PlClient *other = nullptr;
  const char *unknown[] = {"leese", "5s", nullptr}, *odd[] = {"lease", nullptr};
  CHECK(pl_connect("memory:", unknown, nullptr, &other, &error) == PL_ERROR && !other);
  CHECK(Failed(error).message.find("leese") != std::string::npos);
  CHECK(pl_connect("memory:", odd, nullptr, &other, &error) == PL_ERROR);
  CHECK(Failed(error).message.find("has no value") != std::string::npos);
  CHECK(pl_connect("nonsense://x", nullptr, nullptr, &other, &error) == PL_ERROR);
  CHECK(Failed(error).code == "invalid_config");
  CHECK(pl_connect("memory:", nullptr, nullptr, nullptr, &error) == PL_ERROR);
  CHECK(Failed(error).message.find("client is NULL") != std::string::npos);
  CHECK(pl_acquire(client, "a", nullptr, nullptr, nullptr, nullptr) == PL_ERROR); // nobody asks why
  CHECK(pl_guard_check(nullptr, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_on_lost(nullptr, nullptr, nullptr, nullptr) == PL_ERROR);
  CHECK(!pl_guard_is_held(nullptr) && pl_guard_fencing_token(nullptr) == 0 && !pl_guard_name(nullptr));
  pl_guard_free(nullptr);
  pl_client_free(nullptr);
  pl_error_free(nullptr);
  pl_cancel_free(nullptr);
  pl_cancel_trigger(nullptr);
  pl_text_free(nullptr);
}

void a_store_says_what_it_can_do(const PlClient *client) {
  char *json = nullptr;
  CHECK(pl_client_capability(client, &json, nullptr) == PL_OK);
  const std::string text(json);
  pl_text_free(json);
  CHECK(text.find("\"backend\":") != std::string::npos && text.find("\"fifo\":true") != std::string::npos);
  PlError *error = nullptr;
  CHECK(pl_client_capability(nullptr, &json, &error) == PL_ERROR && json == nullptr);
  CHECK(Failed(error).code == "invalid_argument");
}

void numbers_tell_a_small_story(const char *url) {
  PlClient *client = connect(url);
  PlGuard *held = acquire(client, "story"), *none = nullptr;
  CHECK(pl_try_acquire(client, "story", nullptr, nullptr, &none, nullptr) == PL_BUSY);
  PlLockOptions options = defaults();
  options.wait_ms = 50;
  refused(client, "story", options, "wait_timeout", "held by");
  auto numbers = [client] {
    char *json = nullptr;
    CHECK(pl_client_stats(client, &json, nullptr) == PL_OK);
    const std::string text(json);
    pl_text_free(json);
    return text;
  };
  CHECK(has(numbers(), "\"held\":1,"));
  CHECK(pl_guard_release(held, nullptr) == PL_OK);
  pl_guard_free(held);
  const std::string text = numbers();
  for (const char *part : {"\"acquired\":1,", "\"refused\":1,", "\"timed_out\":1,", "\"failed\":0,", "\"held\":0,",
                           "\"wait_timeout\":1", "\"expired\":0", "\"count\":1"})
    CHECK(has(text, part));

  PlError *error = nullptr;
  char *prometheus = nullptr;
  const char *labels[] = {"service", "shop", nullptr}, *odd[] = {"service", nullptr}, *taken[] = {"le", "x", nullptr};
  CHECK(pl_client_prometheus(client, labels, &prometheus, nullptr) == PL_OK);
  CHECK(has(prometheus, "service=\"shop\"") && has(prometheus, "polylatch_acquisitions_total{"));
  pl_text_free(prometheus);
  CHECK(pl_client_prometheus(client, nullptr, &prometheus, nullptr) == PL_OK);
  pl_text_free(prometheus);
  CHECK(pl_client_prometheus(client, odd, &prometheus, &error) == PL_ERROR && !prometheus);
  CHECK(has(Failed(error).message, "the label \"service\" has no value"));
  CHECK(pl_client_prometheus(client, taken, &prometheus, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_client_stats(nullptr, &prometheus, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  pl_client_free(client);
}

void a_wait_ends_when_it_is_cancelled(const PlClient *client) {
  PlGuard *held = acquire(client, "cancel");
  PlCancel *cancel = pl_cancel_new();
  auto waiting = std::async(std::launch::async, [&] {
    PlGuard *guard = nullptr;
    PlError *error = nullptr;
    CHECK(pl_acquire(client, "cancel", nullptr, cancel, &guard, &error) == PL_ERROR && !guard);
    return Failed(error).code;
  });
  // In line, as everybody can see.
  for (bool in_line = false; !in_line;) {
    char *json = nullptr;
    CHECK(pl_list(client, "cancel", 0, &json, nullptr) == PL_OK);
    in_line = std::string(json).find("\"position\":0") != std::string::npos;
    pl_text_free(json);
  }
  pl_cancel_trigger(cancel);
  CHECK(waiting.get() == "canceled");
  pl_cancel_free(cancel);
  pl_guard_free(held);
  pl_guard_free(acquire(client, "cancel"));
}

void a_timed_wait_ends(const PlClient *client) {
  PlGuard *held = acquire(client, "timed");
  PlLockOptions options = defaults();
  options.wait_ms = 50;
  refused(client, "timed", options, "wait_timeout", "held by");
  CHECK(pl_guard_wait_ended(held, 20, nullptr, nullptr) == PL_TIMED_OUT);
  pl_guard_free(held);
}

void a_guard_steps_down_and_up(const PlClient *client) {
  PlLockOptions options = defaults();
  options.mode = PL_WRITE;
  PlGuard *guard = acquire(client, "page", &options);
  PlError *error = nullptr;
  CHECK(pl_guard_try_upgrade(guard, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_downgrade(guard, nullptr) == PL_OK);
  options.mode = PL_READ;
  PlGuard *other = acquire(client, "page", &options);
  const uint64_t before = pl_guard_fencing_token(guard);
  CHECK(pl_guard_try_upgrade(guard, nullptr) == PL_BUSY && pl_guard_is_held(guard));
  CHECK(pl_guard_release(other, nullptr) == PL_OK);
  pl_guard_free(other);
  CHECK(pl_guard_try_upgrade(guard, nullptr) == PL_OK);
  CHECK(pl_guard_fencing_token(guard) > before && pl_guard_check(guard, nullptr) == PL_OK);
  CHECK(pl_guard_release(guard, nullptr) == PL_OK);
  pl_guard_free(guard);
}

void a_held_lease_gets_another_length(const PlClient *client) {
  PlLockOptions options = defaults();
  options.lease_ms = 3000;
  options.renew = 0;
  PlGuard *guard = acquire(client, "longer", &options);
  PlError *error = nullptr;
  CHECK(pl_guard_extend(guard, 60000, nullptr) == PL_OK && pl_guard_remaining_ms(guard) > 40000);
  CHECK(pl_guard_extend(guard, 5000, nullptr) == PL_OK && pl_guard_remaining_ms(guard) > 40000);
  CHECK(pl_guard_extend(guard, 1, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_extend(guard, -1, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_extend(nullptr, 5000, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_release(guard, nullptr) == PL_OK);
  CHECK(pl_guard_extend(guard, 60000, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  pl_guard_free(guard);
}

void several_locks_are_had_together(const PlClient *client) {
  const char *names[] = {"set/b", "set/a", nullptr};
  PlGuardSet *set = nullptr;
  CHECK(pl_acquire_all(client, names, nullptr, nullptr, &set, nullptr) == PL_OK && set);
  CHECK(pl_guard_set_count(set) == 2 && std::string(pl_guard_set_name(set, 0)) == "set/a");
  CHECK(pl_guard_set_fencing_token(set, 0) > 0 && pl_guard_set_fencing_token(set, 1) > 0);
  CHECK(!pl_guard_set_name(set, 2) && pl_guard_set_fencing_token(set, 2) == 0);
  CHECK(pl_guard_set_remaining_ms(set) > 0 && pl_guard_set_check(set, nullptr) == PL_OK);
  pl_guard_set_beat(set);

  const char *others[] = {"set/c", "set/a", nullptr};
  PlGuardSet *refused = nullptr;
  CHECK(pl_try_acquire_all(client, others, nullptr, nullptr, &refused, nullptr) == PL_BUSY && !refused);
  PlLockOptions options = defaults();
  options.wait_ms = 50;
  PlError *error = nullptr;
  CHECK(pl_acquire_all(client, others, &options, nullptr, &refused, &error) == PL_ERROR && !refused);
  CHECK(Failed(error).code == "wait_timeout");
  pl_guard_free(acquire(client, "set/c"));

  const char *none[] = {nullptr};
  CHECK(pl_acquire_all(client, none, nullptr, nullptr, &refused, &error) == PL_ERROR);
  CHECK(Failed(error).message.find("no locks") != std::string::npos);
  CHECK(pl_acquire_all(client, nullptr, nullptr, nullptr, &refused, &error) == PL_ERROR);
  CHECK(Failed(error).message.find("names is NULL") != std::string::npos);
  options.mode = PL_READ;
  CHECK(pl_acquire_all(client, names, &options, nullptr, &refused, &error) == PL_ERROR);
  CHECK(Failed(error).message.find("PL_MUTEX") != std::string::npos);

  CHECK(pl_guard_set_release(set, nullptr) == PL_OK && pl_guard_set_release(set, nullptr) == PL_OK);
  CHECK(pl_guard_set_check(set, &error) == PL_ERROR && Failed(error).code == "invalid_argument");
  CHECK(pl_guard_set_remaining_ms(set) == 0);
  pl_guard_set_free(set);
  pl_guard_set_free(nullptr);
}

void a_loss_is_told(const PlClient *client) {
  PlLockOptions options = defaults();
  options.max_hold_ms = 300;
  PlGuard *guard = acquire(client, "lost", &options);
  std::promise<std::string> told;
  auto on_lost = [](void *user, const char *reason) {
    static_cast<std::promise<std::string> *>(user)->set_value(reason);
  };
  CHECK(pl_guard_on_lost(guard, on_lost, &told, nullptr) == PL_OK);
  PlError *error = nullptr;
  CHECK(pl_guard_wait_ended(guard, -1, nullptr, &error) == PL_ERROR);
  Failed failed(error);
  CHECK(failed.code == "lease_lost" && failed.reason == "hold_limit");
  CHECK(told.get_future().get() == "hold_limit");
  CHECK(pl_guard_release(guard, &error) == PL_ERROR && Failed(error).code == "lease_lost");
  pl_guard_free(guard);
}

struct Callback {
  std::promise<void> begun;
  std::atomic<bool> over{false};
  PlGuard *guard = nullptr;
};

// The pointer that a callback got is freed right behind its guard.
void a_guard_is_freed_when_its_callback_is_over(const PlClient *client) {
  PlLockOptions options = defaults();
  options.max_hold_ms = 300;
  PlGuard *guard = acquire(client, "freed", &options);
  auto called = std::make_unique<Callback>();
  auto on_lost = [](void *user, const char *) {
    auto *called = static_cast<Callback *>(user);
    called->begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    called->over = true;
  };
  CHECK(pl_guard_on_lost(guard, on_lost, called.get(), nullptr) == PL_OK);
  called->begun.get_future().get();
  pl_guard_free(guard);
  CHECK(called->over);
}

void a_callback_may_free_its_guard(const PlClient *client) {
  PlLockOptions options = defaults();
  options.max_hold_ms = 300;
  // Never freed: the callback still has it when the promise is kept.
  auto *called = new Callback;
  called->guard = acquire(client, "frees itself", &options);
  auto on_lost = [](void *user, const char *) {
    auto *called = static_cast<Callback *>(user);
    pl_guard_free(called->guard);
    called->begun.set_value();
  };
  CHECK(pl_guard_on_lost(called->guard, on_lost, called, nullptr) == PL_OK);
  CHECK(called->begun.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
}

// What a callback was told, in its order.
struct Events {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<std::string, std::string>> told;
  PlClient *client = nullptr;
  std::promise<void> dropped;

  static void keep(void *user, const char *event, const char *json) {
    auto *events = static_cast<Events *>(user);
    std::lock_guard<std::mutex> lock(events->mutex);
    events->told.emplace_back(event, json);
    events->changed.notify_all();
  }
  static void drop(void *user) { static_cast<Events *>(user)->dropped.set_value(); }

  // Waits until it came, and returns it as JSON.
  std::string of(const std::string &event) {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      for (const auto &one : told)
        if (one.first == event) return one.second;
      CHECK(changed.wait_for(lock, std::chrono::seconds(30)) == std::cv_status::no_timeout);
    }
  }
  size_t count(const std::string &event) {
    std::lock_guard<std::mutex> lock(mutex);
    size_t found = 0;
    for (const auto &one : told) found += one.first == event;
    return found;
  }
};

PlClient *listening(const char *url, Events &events, const char *const *options = nullptr) {
  PlClient *client = nullptr;
  CHECK(pl_connect_with_events(url, options, nullptr, Events::keep, &events, Events::drop, &client, nullptr) == PL_OK);
  return client;
}

const char *const all_events[] = {"level", "debug", nullptr};

void events_are_told_in_their_order(const PlClient *other, const char *url) {
  Events events;
  PlClient *client = listening(url, events, all_events);
  PlGuard *holder = acquire(other, "told");
  auto waiting = std::async(std::launch::async, [&] { return acquire(client, "told"); });
  CHECK(has(events.of("waiting"), "\"lock\":\"told\""));
  pl_guard_free(holder);
  PlGuard *guard = waiting.get();
  const std::string token = "\"fencing_token\":" + std::to_string(pl_guard_fencing_token(guard));
  CHECK(has(events.of("acquired"), token));
  char *json = nullptr;
  CHECK(pl_break_lease(other, "told", pl_guard_fencing_token(guard), "test", "why not", &json, nullptr) == PL_OK);
  pl_text_free(json);
  const std::string lost = events.of("lost");
  CHECK(has(lost, token) && has(lost, "\"reason\":\"broken\"") && has(lost, "\"level\":\"error\""));
  pl_guard_free(guard);
  PlGuard *last = acquire(client, "told too");
  CHECK(pl_guard_release(last, nullptr) == PL_OK);
  pl_guard_free(last);
  // Closing waits for the last event.
  CHECK(pl_client_close(client, nullptr) == PL_OK);
  CHECK(events.told.front().first == "waiting" && events.told.back().first == "released");
  pl_client_free(client);
  events.dropped.get_future().get();
}

void a_callback_hears_its_level_and_above(const char *url) {
  for (const char *level : {"info", "error", "loud"}) {
    Events events;
    const char *const options[] = {"level", level, nullptr};
    PlClient *client = nullptr;
    PlError *error = nullptr;
    const auto status =
        pl_connect_with_events(url, options, nullptr, Events::keep, &events, Events::drop, &client, &error);
    if (std::string(level) == "loud") {
      CHECK(status == PL_ERROR && has(Failed(error).message, "must be one of error, warn, info, debug"));
      events.dropped.get_future().get();
      continue;
    }
    CHECK(status == PL_OK);
    PlGuard *free = acquire(client, "free");
    auto waiting = std::async(std::launch::async, [&] { return acquire(client, "free"); });
    if (std::string(level) == "info") CHECK(has(events.of("waiting"), "\"level\":\"info\""));
    CHECK(pl_guard_release(free, nullptr) == PL_OK);
    pl_guard_free(free);
    PlGuard *guard = waiting.get();
    char *json = nullptr;
    CHECK(pl_break_lease(client, "free", pl_guard_fencing_token(guard), "test", "why not", &json, nullptr) == PL_OK);
    pl_text_free(json);
    CHECK(has(events.of("lost"), "\"level\":\"error\""));
    pl_guard_free(guard);
    CHECK(pl_client_close(client, nullptr) == PL_OK);
    CHECK(events.count("released") == 0 && events.told.back().first == "lost");
    CHECK(events.told.front().first == (std::string(level) == "info" ? "waiting" : "lost"));
    pl_client_free(client);
    // Only then nothing is called with `events` any more.
    events.dropped.get_future().get();
  }
}

// Where what was given for the callback is freed behind the client, nothing may call any more.
void a_client_is_freed_when_its_callback_is_over(const char *url) {
  struct Slow {
    std::promise<void> begun;
    std::atomic<bool> over{false};
  };
  auto slow = std::make_unique<Slow>();
  auto on_event = [](void *user, const char *event, const char *) {
    auto *slow = static_cast<Slow *>(user);
    CHECK(!slow->over.load());
    if (std::string(event) != "acquired") return;
    slow->begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    slow->over = true;
  };
  PlClient *client = nullptr;
  CHECK(pl_connect_with_events(url, all_events, nullptr, on_event, slow.get(), nullptr, &client, nullptr) == PL_OK);
  PlGuard *guard = acquire(client, "slow");
  slow->begun.get_future().get();
  CHECK(pl_guard_release(guard, nullptr) == PL_OK);
  pl_guard_free(guard);
  pl_client_free(client);
  CHECK(slow->over);
}

// On a thread of its own: it may call, close and free.
void a_callback_may_free_its_client(const char *url) {
  Events events;
  auto on_event = [](void *user, const char *event, const char *) {
    auto *events = static_cast<Events *>(user);
    if (std::string(event) != "released") return;
    pl_guard_free(acquire(events->client, "from the callback"));
    CHECK(pl_client_close(events->client, nullptr) == PL_OK);
    pl_client_free(events->client);
  };
  CHECK(pl_connect_with_events(url, all_events, nullptr, on_event, &events, Events::drop, &events.client, nullptr) == PL_OK);
  PlGuard *guard = acquire(events.client, "frees itself");
  CHECK(pl_guard_release(guard, nullptr) == PL_OK);
  pl_guard_free(guard);
  events.dropped.get_future().get();
}

void what_is_given_for_a_callback_is_dropped_also_if_connecting_fails() {
  Events one, two;
  PlClient *client = nullptr;
  PlError *error = nullptr;
  CHECK(pl_connect_with_events("nonsense://x", nullptr, nullptr, Events::keep, &one, Events::drop, &client, &error) == PL_ERROR);
  CHECK(Failed(error).code == "invalid_config" && !client);
  one.dropped.get_future().get();
  CHECK(pl_connect_with_events("memory:", nullptr, nullptr, nullptr, &two, Events::drop, &client, &error) == PL_ERROR);
  CHECK(has(Failed(error).message, "on_event is NULL") && !client);
  two.dropped.get_future().get();
}

void a_forked_child_hears_its_own_client(const char *url) {
  // On SQLite, and in memory, a child has no store.
  if (std::string(url).rfind("redis", 0) != 0) return;
  Events events;
  PlClient *client = listening(url, events, all_events);
  pl_guard_free(acquire(client, "parent"));
  events.of("released");
  const pid_t child = fork();
  if (child == 0) {
    PlGuard *guard = acquire(client, "child");
    const bool released = pl_guard_release(guard, nullptr) == PL_OK;
    const bool closed = pl_client_close(client, nullptr) == PL_OK;
    _exit(released && closed && has(events.told.back().second, "\"lock\":\"child\"") ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(pl_client_close(client, nullptr) == PL_OK && events.count("acquired") == 1);
  pl_client_free(client);
  events.dropped.get_future().get();
}

// `server` is the process of the Redis server at `url`.
void a_store_that_goes_away_is_told_once_and_that_it_is_back(const char *url, pid_t server) {
  Events events;
  const char *options[] = {"timeout", "300ms", "poll", "100ms", nullptr};
  PlClient *client = listening(url, events, options);
  kill(server, SIGSTOP);
  auto waiting = std::async(std::launch::async, [&] { return acquire(client, "away"); });
  CHECK(has(events.of("store_unreachable"), "\"level\":\"warn\""));
  kill(server, SIGCONT);
  pl_guard_free(waiting.get());
  CHECK(has(events.of("store_reachable"), "\"level\":\"info\""));
  CHECK(events.count("store_unreachable") == 1);
  pl_client_free(client);
  events.dropped.get_future().get();
}

void a_broken_lease_is_told(const PlClient *client) {
  PlGuard *guard = acquire(client, "broken");
  char *json = nullptr;
  PlError *error = nullptr;
  CHECK(pl_break_lease(client, "broken", pl_guard_fencing_token(guard) - 1, "test", "why not", &json, &error) == PL_OK);
  CHECK(std::string(json).find("changed_hands") != std::string::npos);
  pl_text_free(json);
  CHECK(pl_break_lease(client, "broken", pl_guard_fencing_token(guard), "test", "", &json, &error) == PL_ERROR);
  CHECK(!json && Failed(error).message.find("reason") != std::string::npos);
  CHECK(pl_break_lease(client, "broken", pl_guard_fencing_token(guard), "test", "why not", &json, &error) == PL_OK);
  CHECK(std::string(json).find("\"broken\"") != std::string::npos);
  pl_text_free(json);
  pl_guard_free(guard);
}

void a_forked_child_does_not_hold_the_lock(const PlClient *client) {
  PlGuard *guard = acquire(client, "fork");
  const pid_t child = fork();
  if (child == 0) {
    PlError *error = nullptr;
    const bool foreign = !pl_guard_is_held(guard) && pl_guard_check(guard, &error) == PL_ERROR &&
                         Failed(error).message.find("fork") != std::string::npos;
    pl_guard_free(guard);
    _exit(foreign ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(pl_guard_is_held(guard) && pl_guard_check(guard, nullptr) == PL_OK);
  pl_guard_free(guard);
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
  }
  return 0;
}

void cycles(const PlClient *client, int count) {
  for (int i = 0; i < count; ++i) {
    PlGuard *guard = acquire(client, "cycle");
    CHECK(pl_guard_release(guard, nullptr) == PL_OK);
    pl_guard_free(guard);
    PlError *error = nullptr;
    CHECK(pl_acquire(client, "", nullptr, nullptr, &guard, &error) == PL_ERROR);
    pl_error_free(error);
  }
}

void memory_is_steady() {
  PlClient *client = connect("memory:");
  cycles(client, 10000);
  const long before = resident_kib();
  const auto started = std::chrono::steady_clock::now();
  cycles(client, 100000);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
  const long grown = resident_kib() - before;
  std::printf("100000 cycles on memory: %.2f us each, %ld KiB more memory\n", took.count() / 100000, grown);
  CHECK(grown < 4096);
  pl_client_free(client);
}

void a_closed_client_says_so(PlClient *client) {
  PlGuard *guard = acquire(client, "closed");
  CHECK(pl_client_close(client, nullptr) == PL_OK && pl_client_close(client, nullptr) == PL_OK);
  CHECK(!pl_guard_is_held(guard));
  refused(client, "a", defaults(), "canceled", "closed");
  pl_guard_free(guard);
  pl_client_free(client);
}

} // namespace

int main(int argc, char **argv) {
  CHECK(std::strlen(pl_version()) > 0);
  if (argc == 4 && std::string(argv[1]) == "--away") {
    a_store_that_goes_away_is_told_once_and_that_it_is_back(argv[2], std::atoi(argv[3]));
    return 0;
  }
  for (int i = 1; i < argc; ++i) {
    PlClient *client = connect(argv[i]);
    a_lock_is_had_and_given_back(client);
    a_kept_lock_is_entered_again_and_released_for_another_client(client, argv[i]);
    kinds_are_kept(client);
    bad_input_is_told(client);
    a_store_says_what_it_can_do(client);
    numbers_tell_a_small_story(argv[i]);
    a_wait_ends_when_it_is_cancelled(client);
    a_timed_wait_ends(client);
    a_guard_steps_down_and_up(client);
  a_held_lease_gets_another_length(client);
    several_locks_are_had_together(client);
    a_loss_is_told(client);
  a_guard_is_freed_when_its_callback_is_over(client);
  a_callback_may_free_its_guard(client);
    a_broken_lease_is_told(client);
    a_forked_child_does_not_hold_the_lock(client);
    events_are_told_in_their_order(client, argv[i]);
    a_callback_hears_its_level_and_above(argv[i]);
    a_client_is_freed_when_its_callback_is_over(argv[i]);
    a_callback_may_free_its_client(argv[i]);
    a_forked_child_hears_its_own_client(argv[i]);
    a_closed_client_says_so(client);
    std::printf("ok %.16s\n", argv[i]);
  }
  what_is_given_for_a_callback_is_dropped_also_if_connecting_fails();
  memory_is_steady();
}
