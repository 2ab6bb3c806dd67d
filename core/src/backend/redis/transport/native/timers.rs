//! Time limits by the timers of the client's own runtime, for tasks on the runtimes of its callers: these may have no
//! timers.
//!
//! A task of the client's runtime sleeps, and is awaited here. The timer itself must not be polled in a task that can
//! outlive the client: it panics once the runtime that it belongs to has ended.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// A task that ends when its result is not awaited any more.
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    pub(crate) fn spawn(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(runtime.spawn(work))
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Completes after `time`. `false`, and at once, if the client is gone.
pub(crate) fn pause(runtime: &Handle, time: Duration) -> impl Future<Output = bool> + Send + 'static {
    let sleeping = AbortOnDrop::spawn(runtime, async move { tokio::time::sleep(time).await });
    async move { sleeping.await.is_ok() }
}

/// Awaits `work` for at most `limit`; `None` if that was not enough, or the client is gone.
pub(crate) async fn in_time<T>(
    runtime: &Handle,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        _ = pause(runtime, limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_the_runtime_that_measures_it() {
        let clients =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Without timers of its own.
        let callers = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = clients.handle().clone();
        assert!(callers.block_on(pause(&handle, Duration::from_millis(1))));
        let long = pause(&handle, Duration::from_secs(3_600));
        clients.shutdown_background();
        assert!(!callers.block_on(long));
        assert!(!callers.block_on(pause(&handle, Duration::from_millis(1))));
        let never = in_time(&handle, Duration::from_secs(3_600), std::future::pending::<()>());
        assert_eq!(callers.block_on(never), None);
    }
}
