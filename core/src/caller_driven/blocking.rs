//! Blocking a thread that has nothing else to do.
//!
//! A thread in a blocking call may as well wait for its answer in the operating system's own wait
//! for the socket: no other thread has to be woken to wake it. An async caller must not do that, so
//! the permission is a property of the thread, given for the time of one blocking call.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

thread_local! {
    static PATIENCE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long a blocking call waits at a socket before it sleeps until another thread wakes it. Longer
/// than a round trip in one data centre; short, because nothing else wakes it meanwhile.
const AT_A_SOCKET: Duration = Duration::from_millis(2);

/// Gives the permission back when the call ends, also by a panic.
struct Patient(Duration);

impl Patient {
    fn begin() -> Self {
        Self(PATIENCE.replace(AT_A_SOCKET))
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        PATIENCE.set(self.0);
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let _patient = Patient::begin();
    pollster::block_on(future)
}

/// Wakes a thread that sleeps in [`block_on_while`].
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// Runs a future on this thread until it ends or `look` says `None`. Whenever the thread has to sleep,
/// `look` says for how long at most.
pub(crate) fn block_on_while<F: Future>(
    future: F,
    mut look: impl FnMut() -> Option<Duration>,
) -> Option<F::Output> {
    let _patient = Patient::begin();
    let sleeper = Arc::new(Sleeper { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        while !sleeper.woken.swap(false, Ordering::SeqCst) {
            // May return early, which costs one more look.
            thread::park_timeout(look()?);
        }
    }
}

/// Does something without blocking at a socket: an answer may come from somewhere else meanwhile.
#[cfg(feature = "redis")]
pub(crate) fn impatient<T>(work: impl FnOnce() -> T) -> T {
    let _back = Patient(PATIENCE.replace(Duration::ZERO));
    work()
}

/// How long this thread may block at a socket now; zero unless it is in a blocking call.
#[cfg(any(feature = "redis", feature = "http"))]
pub(crate) fn at_a_socket() -> Duration {
    PATIENCE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_its_host_says_so_and_not_before() {
        let mut looks = 0;
        let ended = block_on_while(std::future::pending::<()>(), || {
            looks += 1;
            (looks < 3).then_some(Duration::from_millis(1))
        });
        assert_eq!((ended, looks), (None, 3));
    }

    #[test]
    fn a_wake_up_from_another_thread_ends_the_wait() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let other = thread::spawn(move || tell.send(7));
        let answer = block_on_while(told, || Some(Duration::from_secs(3600)));
        assert_eq!(answer.expect("it went on"), Ok(7));
        other.join().expect("no panic").expect("somebody listens");
    }
}
