//! What a cancelled, dropped or timed-out acquisition leaves behind is undone here.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Contender, Reply};
use crate::driver::Core;
use crate::driver::leaving::Leaves;
use crate::error::{Effect, Result, Retry};
use crate::policy::backoff::Backoff;

/// Owns the request in flight of one acquisition, of one lock or of several in one step, and sees to it
/// that contenders which go away neither keep a place in line nor become holders that nobody knows of.
pub(super) struct Undo<A: Send + 'static> {
    core: Arc<Core>,
    contenders: Vec<Arc<Contender>>,
    in_flight: Option<Reply<A>>,
    armed: bool,
    /// A request was given up whose answer has not come: it may still be on its way to the store.
    stray: bool,
}

impl<A: Send + 'static> Undo<A> {
    pub(super) fn new(core: Arc<Core>, contenders: Vec<Arc<Contender>>) -> Self {
        Self { core, contenders, in_flight: None, armed: false, stray: false }
    }

    /// Sends a request whose effect would have to be undone, and waits for its answer within `limit`. One that is not
    /// answered in time stays in flight, and with it what there is to undo.
    pub(super) async fn ask(&mut self, request: Reply<A>, limit: Duration) -> Result<A> {
        // Armed before the request can leave, so that no await lies between its effect and us.
        self.armed = true;
        let request = self.in_flight.insert(request);
        let answer = self.core.service.within(limit, request).await;
        self.in_flight = None;
        self.stray |= answer.as_ref().is_err_and(|error| error.effect() == Effect::Maybe);
        answer
    }

    /// Nothing is left to undo: the contenders hold, or the store remembers nothing of them.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl<A: Send + 'static> Drop for Undo<A> {
    fn drop(&mut self) {
        if self.armed {
            let core = Arc::clone(&self.core);
            let contenders = std::mem::take(&mut self.contenders);
            let in_flight = self.in_flight.take();
            let mut stray = self.stray;
            let leaving: Vec<_> =
                contenders.iter().map(|one| core.leaving.begin(one.name.as_str(), None)).collect();
            self.core.service.spawn_job(async move {
                if let Some(request) = in_flight {
                    // First let the request arrive: a cancellation that overtakes it would find nothing,
                    // and the request would then leave an orphan in line.
                    let answer = core.service.within(core.settings.timeout, request).await;
                    stray |= answer.is_err_and(|error| error.effect() == Effect::Maybe);
                }
                for (contender, leaves) in contenders.into_iter().zip(leaving) {
                    let longest = contender.lease.max(contender.first_lease);
                    core.cancel_in_background(contender, longest, stray, leaves);
                }
            });
        }
    }
}

/// How long a store that hangs is asked again to undo an acquisition, at least. What it was sent before counts from when
/// it goes on, not from when it was sent.
const HANGS: Duration = Duration::from_secs(600);

/// When an acquisition is undone again after the store has confirmed it once. A store that goes on after it hung may read
/// the request that is to be undone, from another connection, after the request to undo it.
const AGAIN: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(1)];

/// Cancels at the store until it has answered, or until a lease of this length has expired there. Returns
/// whether the store has confirmed it. `stray`: a request to acquire may still be on its way. `leaves` ends with the
/// first answer.
pub(super) async fn undo(
    core: Arc<Core>,
    contender: Arc<Contender>,
    longest: Duration,
    stray: bool,
    mut leaves: Option<Leaves>,
) -> bool {
    let end = core.clock.now() + if stray { longest.max(HANGS) } else { longest };
    let mut backoff =
        Backoff::new(Duration::from_millis(20), Duration::from_secs(1), u64::from(core.client.pid));
    loop {
        let answer = core.service.within(core.settings.timeout, core.backend.cancel(&contender)).await;
        if let Some(leaves) = leaves.take() {
            leaves.end();
        }
        match answer {
            Ok(()) => {
                if stray {
                    // Nothing that closing the client waits for.
                    let again = Arc::clone(&core);
                    core.service.spawn(async move {
                        for pause in AGAIN {
                            again.service.sleep(pause).await;
                            let request = again.backend.cancel(&contender);
                            let _ = again.service.within(again.settings.timeout, request).await;
                        }
                    });
                }
                return true;
            }
            Err(error) if error.retry() == Retry::AfterBackoff && core.clock.now() < end => {
                core.service.sleep(backoff.delay()).await;
            }
            Err(error) => {
                tracing::warn!(
                    lock = contender.name.as_str(),
                    %error,
                    "a cancelled acquisition could not be undone; what it left ends with its lease"
                );
                return false;
            }
        }
    }
}
