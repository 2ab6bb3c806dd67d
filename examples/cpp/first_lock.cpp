// A lock in C++: a guard whose destructor gives the lock back.
//
//   ./first_lock [URL]
#include <polylatch.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

struct Free {
  void operator()(PlClient *client) const { pl_client_free(client); }
  void operator()(PlGuard *guard) const { pl_guard_free(guard); }
  void operator()(PlError *error) const { pl_error_free(error); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

// Turns a failed call into an exception that says what to do. A reference: it is read after the call.
void must(PlStatus status, PlError *&error) {
  Owned<PlError> owned(error);
  if (status == PL_ERROR) {
    throw std::runtime_error(std::string(pl_error_message(error)) + "\n" + pl_error_hint(error));
  }
}

Owned<PlClient> connect(const char *url) {
  PlClient *client = nullptr;
  PlError *error = nullptr;
  must(pl_connect(url, nullptr, "c++", &client, &error), error);
  return Owned<PlClient>(client);
}

Owned<PlGuard> acquire(const PlClient *client, const char *name, int64_t wait_ms) {
  PlLockOptions options;
  pl_lock_options_init(&options, sizeof options);
  options.wait_ms = wait_ms;
  options.label = "an example";
  PlGuard *guard = nullptr;
  PlError *error = nullptr;
  must(pl_acquire(client, name, &options, nullptr, &guard, &error), error);
  return Owned<PlGuard>(guard);
}

} // namespace

int main(int argc, char **argv) try {
  Owned<PlClient> client = connect(argc > 1 ? argv[1] : "memory:");
  Owned<PlGuard> guard = acquire(client.get(), "orders/42", 5000);
  std::printf("held for another %llu ms; write with token %llu\n",
              static_cast<unsigned long long>(pl_guard_remaining_ms(guard.get())),
              static_cast<unsigned long long>(pl_guard_fencing_token(guard.get())));
  PlError *error = nullptr;
  must(pl_guard_check(guard.get(), &error), error); // still mine? costs no request
  must(pl_guard_release(guard.get(), &error), error);
  std::puts("released");
} catch (const std::exception &failed) {
  std::fprintf(stderr, "%s\n", failed.what());
  return 1;
}
