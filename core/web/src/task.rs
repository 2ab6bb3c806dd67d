//! Tasks on the event loop.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{Notify, mpsc, oneshot};

/// Starts a task. Its first step is a microtask of its own, so not inside this call.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    joined(Box::pin(work))
}

/// Generic by what comes of the work and not by the work, of which there are many more kinds.
fn joined<T: 'static>(work: Pin<Box<dyn Future<Output = T>>>) -> JoinHandle<T> {
    let (tell, told) = oneshot::channel();
    let abort = start(Box::pin(async move { drop(tell.send(work.await)) }));
    JoinHandle { told, abort }
}

/// Not generic, so that it is there once.
fn start(work: Pin<Box<dyn Future<Output = ()>>>) -> AbortHandle {
    let abort = AbortHandle(Arc::new(Notify::new()));
    let stop = Arc::clone(&abort.0);
    wasm_bindgen_futures::spawn_local(async move {
        tokio::select! {
            biased;
            () = stop.notified() => {}
            () = work => {}
        }
    });
    abort
}

/// Waits for a task. Dropping it lets the task go on.
#[derive(Debug)]
pub struct JoinHandle<T> {
    told: oneshot::Receiver<T>,
    abort: AbortHandle,
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next turn.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Says whether the task is done.
    pub fn is_finished(&self) -> bool {
        !self.told.is_empty()
    }

    /// Returns what can end the task.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.told).poll(context).map(|told| told.map_err(|_| JoinError(())))
    }
}

/// Ends a task.
#[derive(Debug, Clone)]
pub struct AbortHandle(Arc<Notify>);

impl AbortHandle {
    /// Ends the task at its next turn.
    pub fn abort(&self) {
        self.0.notify_one();
    }
}

/// The task was ended before it was done.
#[derive(Debug)]
pub struct JoinError(());

impl JoinError {
    /// Says whether the task panicked: a panic ends the whole instance here, so never.
    pub fn is_panic(&self) -> bool {
        false
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task was ended")
    }
}

impl std::error::Error for JoinError {}

/// Several tasks, which end with it.
#[derive(Debug)]
pub struct JoinSet<T> {
    tell: mpsc::UnboundedSender<T>,
    told: mpsc::UnboundedReceiver<T>,
    tasks: Vec<AbortHandle>,
    waited_for: usize,
}

impl<T: 'static> JoinSet<T> {
    /// Makes an empty set.
    pub fn new() -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self { tell, told, tasks: Vec::new(), waited_for: 0 }
    }

    /// Starts one more task.
    pub fn spawn(&mut self, work: impl Future<Output = T> + 'static) {
        let tell = self.tell.clone();
        self.waited_for += 1;
        self.tasks.push(spawn(async move { drop(tell.send(work.await)) }).abort_handle());
    }

    /// Waits for the next task to end; `None` when none is left. Cancellation: safe.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        if self.waited_for == 0 {
            return None;
        }
        let output = self.told.recv().await?;
        self.waited_for -= 1;
        Some(Ok(output))
    }
}

impl<T: 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
