//! Calls that a host polls, woken by the callback thread.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use polylatch_bridge::border::{caught, caught_call};
use polylatch_bridge::{Failure, runtime};

use crate::fault::NativeError;

/// Waking a host runs code of the host, which may have to wait for an interpreter lock that is held by
/// the thread that waits for this library. The thread that reads replies and renews leases must not, so it
/// only passes the word on.
struct Relay(Waker);

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        runtime::spawn_detached(async move { self.0.wake_by_ref() });
    }
}

/// Carries out a call that the host polls: the request has left before the call returns. A panic
/// becomes a failure of code `internal`.
///
/// Errors: those of the call; `backend_unavailable` if the operating system gives no thread.
/// Cancellation: as that of the call.
pub(crate) async fn handed<T>(
    call: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T, NativeError> {
    runtime::prepare()?;
    let mut call = pin!(caught_call(call));
    let done = poll_fn(|context| {
        let relay = Waker::from(Arc::new(Relay(context.waker().clone())));
        call.as_mut().poll(&mut Context::from_waker(&relay))
    });
    done.await.and_then(|result| result).map_err(NativeError::from)
}

/// Carries out a short call at once; a panic becomes a failure of code `internal`.
pub(crate) fn at_once<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, NativeError> {
    caught(work).and_then(|result| result).map_err(NativeError::from)
}
