//! No panic crosses into another language.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::failure::Failure;

/// Runs `work`; a panic becomes a failure of code `internal`.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    // What a panic may leave half done is dropped or never looked at again by the caller.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| failure_of(&*panic))
}

/// Awaits `call`; a panic becomes a failure of code `internal`, and the call is not polled again.
pub async fn caught_call<T>(call: impl Future<Output = T>) -> Result<T, Failure> {
    let mut call = pin!(call);
    poll_fn(|context| match caught(|| call.as_mut().poll(context)) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(failure) => Poll::Ready(Err(failure)),
    })
    .await
}

fn failure_of(panic: &(dyn Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    Failure::internal(format!("Polylatch panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_failure_that_asks_for_a_report() {
        let failure = caught(|| panic!("{}", "on purpose")).unwrap_err();
        assert_eq!((failure.code, failure.effect), ("internal", "none"));
        assert!(failure.message.contains("on purpose") && failure.hint.contains("report"));
    }
}
