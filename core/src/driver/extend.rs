//! Another length for a held lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::{RenewItem, Renewal};
use crate::clock::BootInstant;
use crate::driver::HeldLease;
use crate::error::{Effect, Error, ErrorKind, Result, Retry};
use crate::limits::in_range;
use crate::policy::backoff::Backoff;
use crate::policy::lease::RenewalOutcome;
use crate::wakeups::unpoisoned;

impl HeldLease {
    /// Sets the length of the lease: asks the store now, and later renewals ask for it, too. Returns until
    /// when the lease may be relied on.
    ///
    /// Tries again until the client's time limit is over. Nothing changes for the holder before the store has
    /// confirmed it. Cancellation: the background goes on, and what the store confirms counts.
    pub(crate) async fn extend(self: Arc<Self>, length: Duration) -> Result<BootInstant> {
        self.check()?;
        self.check_length(length).map_err(|error| error.on_lock(self.name()))?;
        let (tell, told) = oneshot::channel();
        let (lease, mut signal) = (Arc::clone(&self), self.signal());
        // Not by the caller, who may go away: the answer to a request that has left must not get lost.
        self.core.service.spawn_job(async move {
            let _ = tell.send(lease.ask_for(length).await);
        });
        // What it finds borrows the signal, and judging the lease below writes to it.
        let ended = async move { drop(signal.wait_for(|state| state.is_over()).await.map(|state| *state)) };
        tokio::select! {
            biased;
            answer = told => answer.unwrap_or_else(|_| Err(self.in_extension(unconfirmed()))),
            () = ended => {
                self.check()?;
                Err(self.released_error())
            }
        }
    }

    fn check_length(&self, length: Duration) -> Result<()> {
        let (backend, present) = (&self.core.backend, self.length());
        let capability = backend.capability();
        in_range("lease", length, capability.min_lease, capability.max_lease)?;
        if length != present && !backend.can_change_lease() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} cannot change the lease of a held lock from {present:?} to {length:?}: the lease is the TTL \
                     of the holder's session, which is fixed when the session is created; release the lock and \
                     acquire it with lease={length:?}, or extend it by {present:?} to renew it now",
                    capability.backend
                ),
            ));
        }
        Ok(())
    }

    async fn ask_for(self: &Arc<Self>, length: Duration) -> Result<BootInstant> {
        let core = &self.core;
        self.keep_no_longer();
        let number = unpoisoned(&self.machine).extension_begun(length);
        let started = core.clock.now();
        let end = started + core.settings.timeout;
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1), self.fence.get());
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.ask_once(number, length, end).await {
                Ok(Renewal::Extended) => {
                    core.observer.renewed(core.clock.now().since(started));
                    self.check()?;
                    return Ok(self.valid_until());
                }
                // Not a loss if a conversion is under way; the check below tells.
                Ok(Renewal::NotYours | Renewal::Unknown) => unconfirmed(),
                Err(error) => error,
            };
            self.check()?;
            let (pause, now) = (backoff.delay(), core.clock.now());
            if error.retry() != Retry::AfterBackoff || now + pause >= end {
                return Err(self.in_extension(error).after(tries, now.since(started)));
            }
            core.service.sleep(pause).await;
            self.check()?;
        }
    }

    async fn ask_once(self: &Arc<Self>, number: u32, length: Duration, end: BootInstant) -> Result<Renewal> {
        let core = &self.core;
        let sent_at = core.clock.now();
        let (asked, renewals) = unpoisoned(&self.machine).extension_at(sent_at, length);
        let contender = Arc::clone(&self.contender);
        let item = RenewItem { contender, fence: self.fence, lease: asked, length, renewals };
        let request = core.backend.renew(vec![item]);
        let answer = core.service.within(end.since(sent_at), request).await?;
        let now = core.clock.now();
        let renewal = answer.first().copied().unwrap_or(Renewal::Unknown);
        let outcome = match renewal {
            Renewal::Extended => RenewalOutcome::Extended,
            Renewal::NotYours => RenewalOutcome::NotYours,
            Renewal::Unknown => RenewalOutcome::Failed,
        };
        self.with_machine(|machine| {
            machine.extension_done(number, length, (sent_at, asked), now, outcome);
        });
        // Its next renewal may be due earlier now, or later.
        core.watchdog.look_again(self, now);
        Ok(renewal)
    }

    fn in_extension(&self, error: Error) -> Error {
        error.during(self.core.backend.capability().backend, "extend").on_lock(self.name())
    }
}

fn unconfirmed() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "the store did not confirm the extension; the lease keeps its deadline",
    )
    .with_effect(Effect::Maybe)
}
