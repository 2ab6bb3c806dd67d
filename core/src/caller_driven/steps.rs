//! Work of several requests that is done on the thread that waits for it.
//!
//! The client's own thread goes on with it if the caller went away, or does not get to run: one of several requests must
//! not be the last.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::Instant;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::wakeups::unpoisoned;

/// How long work is left to its caller. What takes longer no longer gains by it.
const STEP_IN_AFTER: Duration = Duration::from_millis(25);

/// How often the client's thread looks in vain before it stops until the next work.
const LOOKS_IN_VAIN: u32 = 40;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How work ended.
enum End {
    Done,
    Panicked,
}

/// One piece of work; empty once it is done or the client's thread has taken it over.
struct Piece {
    work: Mutex<Option<Work>>,
    began: Instant,
}

impl Piece {
    fn poll(&self, runtime: &Handle, context: &mut Context<'_>) {
        let mut work = unpoisoned(&self.work);
        // Timers and sockets are those of the client's own thread.
        let _context = runtime.enter();
        if let Some(going_on) = work.as_mut()
            && going_on.as_mut().poll(context).is_ready()
        {
            *work = None;
        }
    }
}

/// Leaves what the caller does not finish to the client's thread.
struct Caller<'a>(Arc<Piece>, &'a Handle);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some(rest) = unpoisoned(&self.0.work).take() {
            self.1.spawn(rest);
        }
    }
}

/// The work of one client that its callers do.
#[derive(Default)]
pub(crate) struct CallerSteps(Mutex<Open>);

#[derive(Default)]
struct Open {
    pieces: Vec<Weak<Piece>>,
    /// A task looks after them.
    watched: bool,
}

impl CallerSteps {
    /// Does `work` to its end, on this thread or in the background.
    ///
    /// Errors: `canceled` with effect `maybe` if the client was closed meanwhile.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        work: Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>,
    ) -> Result<T> {
        // What comes of it goes by here, so that all else is there once and not for every kind of answer.
        let answer = Arc::new(Mutex::new(None));
        let answered = Arc::clone(&answer);
        self.see_to(runtime, Box::pin(async move { *unpoisoned(&answered) = Some(work.await) })).await?;
        let answer = unpoisoned(&answer).take();
        answer.unwrap_or_else(|| Err(closed()))
    }

    async fn see_to(self: &Arc<Self>, runtime: &Handle, work: Work) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let work = Box::pin(async move { drop(tell.send(caught(work).await)) });
        let piece = Arc::new(Piece { work: Mutex::new(Some(work)), began: Instant::now() });
        self.look_after(&piece, runtime);
        let caller = Caller(piece, runtime);
        let mut told = pin!(told);
        let end = poll_fn(|context| {
            caller.0.poll(runtime, context);
            told.as_mut().poll(context)
        });
        match end.await {
            Ok(End::Done) => Ok(()),
            Ok(End::Panicked) => {
                let error =
                    Error::new(ErrorKind::Internal, "a step at the store panicked; please report this");
                Err(error.with_effect(Effect::Maybe))
            }
            Err(_) => Err(closed()),
        }
    }

    fn look_after(self: &Arc<Self>, piece: &Arc<Piece>, runtime: &Handle) {
        let mut open = unpoisoned(&self.0);
        open.pieces.push(Arc::downgrade(piece));
        if !std::mem::replace(&mut open.watched, true) {
            runtime.spawn(step_in(Arc::clone(self)));
        }
    }

    /// Takes over what its caller has had long enough. Returns whether anything is open.
    fn take_over(&self) -> bool {
        let mut open = unpoisoned(&self.0);
        open.pieces.retain(|piece| {
            let Some(piece) = piece.upgrade() else { return false };
            if piece.began.elapsed() < STEP_IN_AFTER {
                return true;
            }
            let mut work = match piece.work.try_lock() {
                Ok(work) => work,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its caller is at it.
                Err(TryLockError::WouldBlock) => return true,
            };
            if let Some(rest) = work.take() {
                tokio::spawn(rest);
            }
            false
        });
        !open.pieces.is_empty()
    }
}

/// Looks after the work of a client until there have been none for a while.
async fn step_in(pieces: Arc<CallerSteps>) {
    let mut in_vain = 0;
    loop {
        tokio::time::sleep(STEP_IN_AFTER).await;
        in_vain = if pieces.take_over() { 0 } else { in_vain + 1 };
        let mut open = unpoisoned(&pieces.0);
        if in_vain >= LOOKS_IN_VAIN && open.pieces.is_empty() {
            open.watched = false;
            return;
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Canceled, "this client was closed").with_effect(Effect::Maybe)
}

/// A panic is told, and does not unwind through whoever happens to do the work.
async fn caught(mut work: Work) -> End {
    poll_fn(|context| {
        let step = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        step.map_or(Poll::Ready(End::Panicked), |step| step.map(|()| End::Done))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Service;

    fn stalled_after_one_poll(pieces: &Arc<CallerSteps>, service: &Service) -> (bool, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = tell.send(());
            Ok(())
        };
        let mut piece = Box::pin(pieces.run(service.handle(), Box::pin(work)));
        let first = piece.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready();
        // A caller that does not get to run: never polled again, never dropped.
        std::mem::forget(piece);
        (first, told)
    }

    #[test]
    fn the_background_finishes_what_a_stalled_caller_does_not() {
        let (pieces, service) =
            (Arc::default(), Service::start(Arc::new(crate::clock::SystemClock)).unwrap());
        let (done_at_once, told) = stalled_after_one_poll(&pieces, &service);
        assert!(!done_at_once);
        pollster::block_on(told).expect("somebody finished it");
    }

    #[test]
    fn the_background_finishes_what_was_dropped() {
        let (pieces, service) =
            (Arc::<CallerSteps>::default(), Service::start(Arc::new(crate::clock::SystemClock)).unwrap());
        let (tell, told) = oneshot::channel();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = tell.send(());
            Ok(())
        };
        let mut piece = Box::pin(pieces.run(service.handle(), Box::pin(work)));
        assert!(piece.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        drop(piece);
        pollster::block_on(told).expect("somebody finished it");
    }

    #[test]
    fn what_is_done_at_once_needs_no_other_thread_and_a_panic_becomes_an_error() {
        let (pieces, service) =
            (Arc::<CallerSteps>::default(), Service::start(Arc::new(crate::clock::SystemClock)).unwrap());
        let here = std::thread::current().id();
        let work = async move { Ok(std::thread::current().id() == here) };
        assert!(pollster::block_on(pieces.run(service.handle(), Box::pin(work))).unwrap());
        let work = async { if true { panic!("on purpose") } else { Ok(()) } };
        let error = pollster::block_on(pieces.run(service.handle(), Box::pin(work))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}
