//! The end of several leases.

use std::future::{Future, poll_fn};
use std::task::Poll;

use polylatch::{GuardSet, LostReason};

/// Completes with the reason when one of the leases is lost, with `None` when all were released. It
/// does not keep the locks held.
pub fn one_ended(set: &GuardSet) -> impl Future<Output = Option<LostReason>> + Send + 'static {
    let mut leases: Vec<_> = set.guards().iter().map(|guard| Box::pin(guard.ended())).collect();
    poll_fn(move |context| {
        let mut lost = None;
        leases.retain_mut(|lease| match lease.as_mut().poll(context) {
            Poll::Ready(reason) => {
                lost = lost.or(reason);
                false
            }
            Poll::Pending => true,
        });
        if lost.is_some() || leases.is_empty() { Poll::Ready(lost) } else { Poll::Pending }
    })
}
