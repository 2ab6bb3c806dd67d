//! Conversion of a held lease between reading and writing.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::backend::{Contender, Conversion, Reply};
use crate::driver::HeldLease;
use crate::driver::owners::{OwnerSlot, Turn};
use crate::driver::undo::undo;
use crate::error::{Effect, Error, ErrorKind, LostReason, Result};
use crate::mode::Mode;
use crate::policy::lease::LeaseState;
use crate::wakeups::unpoisoned;

impl HeldLease {
    /// Changes the mode in which the lock is held. `None` if the store refused because of other holders;
    /// then nothing changed.
    ///
    /// A lost reply leaves the mode open, so the lease is given up then. Cancellation: once polled, the
    /// conversion answers for the lease: dropping the future ends the lease in the background, whatever
    /// the store makes of the request.
    pub(crate) async fn convert(self: &Arc<Self>, to: Mode) -> Result<Option<Arc<Self>>> {
        self.check()?;
        let mut converting = Converting::begin(self, to)?;
        let core = &self.core;
        let in_context =
            |error: Error| error.during(core.backend.capability().backend, "convert").on_lock(self.name());
        let sent_at = core.clock.now();
        let request = core.backend.convert(&self.contender, self.fence, to);
        let answer = converting.ask(request).await;
        let now = core.clock.now();
        // From here to the end without an await: nobody can cancel it any more.
        converting.armed = false;
        match answer {
            Ok(Conversion::Refused) => Ok(None),
            Ok(Conversion::NotHeld) => {
                // Its time may have run out while the answer was on its way.
                let reason = match self.judge() {
                    LeaseState::Lost(reason) => reason,
                    _ => LostReason::Superseded,
                };
                self.finish(Some(reason));
                Err(self.lost_error(reason))
            }
            Ok(Conversion::Done { fence }) => {
                let contender = Arc::new(Contender { mode: to, ..(*self.contender).clone() });
                let mut machine = unpoisoned(&self.machine).continued(sent_at, now);
                // A loss is final, and an answer that took longer than the lease proves nothing: the
                // store may go on naming this owner for long, so that is ended there.
                let lost = [self.judge(), machine.judge(now)].into_iter().find_map(|state| match state {
                    LeaseState::Lost(reason) => Some(reason),
                    _ => None,
                });
                if let Some(reason) = lost {
                    self.finish(Some(reason));
                    let leaves = core.leaving.begin(self.name(), None);
                    core.cancel_in_background(contender, self.longest(), false, leaves);
                    return Err(self.lost_error(reason));
                }
                self.finish(None);
                let owner = self.owner.clone();
                let lease = Self::start(Arc::clone(core), contender, owner, fence, machine, None);
                if let Err(closed) = core.check_open() {
                    // The client was closed meanwhile, and closing releases what it finds.
                    lease.leave();
                    lease.release_in_background();
                    return Err(in_context(closed));
                }
                if let Some(slot) = &converting.new_slot {
                    slot.move_in(&lease);
                }
                Ok(Some(lease))
            }
            Err(error) => {
                if error.effect() == Effect::Maybe {
                    // Under the old fence or the new one: a cancellation by owner ends either.
                    self.lose(LostReason::Unverifiable);
                    let leaves = core.leaving.begin(self.name(), None);
                    core.cancel_in_background(Arc::clone(&self.contender), self.longest(), true, leaves);
                }
                Err(in_context(error))
            }
        }
    }
}

/// A conversion under way. Until it has ended nobody else releases the lease or enters it again.
struct Converting {
    lease: Arc<HeldLease>,
    in_flight: Option<Reply<Conversion>>,
    armed: bool,
    /// A release that begins meanwhile, as by closing the client, comes after it.
    alone: Option<OwnedMutexGuard<()>>,
    /// Where acquisitions of the same owner id find the lease afterwards.
    new_slot: Option<Arc<OwnerSlot>>,
    /// Acquisitions of the same owner id in the old mode wait for what comes of it.
    _turn: Option<Turn>,
}

impl Converting {
    fn begin(lease: &Arc<HeldLease>, to: Mode) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("{} {why}", lease.contender.name);
            Error::new(ErrorKind::InvalidArgument, message).on_lock(lease.name())
        };
        let Ok(alone) = Arc::clone(&lease.release).try_lock_owned() else {
            return Err(refused("is being released"));
        };
        if !lease.close_for_others() {
            return Err(refused("is shared by several guards of one owner id"));
        }
        unpoisoned(&lease.machine).conversion_started();
        let slot = |mode| {
            let owner = lease.owner.as_deref()?;
            Some(lease.core.owners.slot(&lease.contender.name, owner, mode))
        };
        Ok(Self {
            lease: Arc::clone(lease),
            in_flight: None,
            armed: true,
            alone: Some(alone),
            new_slot: slot(to),
            // Not free only if an acquisition found no lease to enter; that one asks the store.
            _turn: slot(lease.contender.mode).and_then(|slot| slot.try_turn()),
        })
    }

    async fn ask(&mut self, request: Reply<Conversion>) -> Result<Conversion> {
        let core = Arc::clone(&self.lease.core);
        let request = self.in_flight.insert(request);
        let answer = core.service.within(core.settings.timeout, request).await;
        self.in_flight = None;
        answer
    }
}

impl Drop for Converting {
    fn drop(&mut self) {
        let lease = Arc::clone(&self.lease);
        if !self.armed {
            unpoisoned(&lease.machine).conversion_ended();
            lease.open_for_others();
            return;
        }
        // The caller went away. What it held may be held under either fence, in either mode.
        lease.with_machine(crate::policy::lease::Lease::release_started);
        lease.leave();
        let (in_flight, alone) = (self.in_flight.take(), self.alone.take());
        let core = Arc::clone(&lease.core);
        let leaves = core.leaving.begin(lease.name(), None);
        core.service.spawn_job(async move {
            let core = &lease.core;
            let mut stray = false;
            if let Some(request) = in_flight {
                // First let it end: a store may take several steps for it, and dropping it would stop
                // between two of them.
                stray = core.service.within(core.settings.timeout, request).await.is_err();
            }
            if undo(Arc::clone(core), Arc::clone(&lease.contender), lease.longest(), stray, leaves).await {
                lease.finish(None);
            }
            drop(alone);
        });
    }
}
