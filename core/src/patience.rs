//! Blocking a thread that has nothing else to do.
//!
//! A thread in a blocking call may as well wait for its answer in the operating system's own wait
//! for the socket: no other thread has to be woken to wake it. An async caller must not do that, so
//! the permission is a property of the thread, given for the time of one blocking call.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

thread_local! {
    static PATIENCE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long a blocking call waits at a socket before it sleeps until another thread wakes it. Longer
/// than a round trip in one data centre; short, because nothing else wakes it meanwhile.
const AT_A_SOCKET: Duration = Duration::from_millis(2);

struct Restore(Duration);

impl Drop for Restore {
    fn drop(&mut self) {
        PATIENCE.set(self.0);
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let _restore = Restore(PATIENCE.replace(AT_A_SOCKET));
    pollster::block_on(future)
}

/// Does something without blocking at a socket: an answer may come from somewhere else meanwhile.
#[cfg(feature = "redis")]
pub(crate) fn impatient<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore(PATIENCE.replace(Duration::ZERO));
    work()
}

/// How long this thread may block at a socket now; zero unless it is in a blocking call.
#[cfg(feature = "redis")]
pub(crate) fn at_a_socket() -> Duration {
    PATIENCE.get()
}
