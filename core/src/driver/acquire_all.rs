//! Several locks in one step of the store.

use std::sync::Arc;

use crate::backend::AnswerAll;
use crate::driver::acquire::{Acquisition, Outcome};
use crate::driver::owners::{OwnerSlot, Turn};
use crate::driver::refusals::{lock_delay, too_slow, withheld};
use crate::driver::undo::Undo;
use crate::driver::{Core, HeldLease};
use crate::error::Result;
use crate::mode::other_kind;
use crate::options::AcquireOptions;
use crate::policy::acquisition::{after_own_releases, request_limit};
use crate::policy::lease::valid_until;

/// Acquires locks of different names without waiting: all of them in one step of the store, or none.
/// `None` if not all can be had now. The answer has their order.
///
/// Those that their owner id holds already are entered again without the store.
/// `or_wait`: the caller waits for them one by one if they cannot be had now, so that is not the end of the call.
/// Cancellation: as for one lock.
pub(crate) async fn try_acquire_all(
    core: Arc<Core>,
    all: Vec<AcquireOptions>,
    or_wait: bool,
) -> Result<Option<Vec<Arc<HeldLease>>>> {
    let mut outcomes: Vec<_> = all.iter().map(|_| Outcome::of(&core)).collect();
    let result = enter_all(core, all).await;
    for outcome in &mut outcomes {
        match &result {
            Ok(None) | Err(_) if or_wait => outcome.is_open(),
            result => outcome.is(result),
        }
    }
    result
}

async fn enter_all(core: Arc<Core>, all: Vec<AcquireOptions>) -> Result<Option<Vec<Arc<HeldLease>>>> {
    core.check_open()?;
    let mut members = Vec::with_capacity(all.len());
    for options in all {
        let Some(owner) = &options.owner else {
            members.push(Member::New(Box::new(Acquisition::new(Arc::clone(&core), options)?), None));
            continue;
        };
        let slot = core.owners.slot(&options.name, owner, options.mode);
        if let Some(lease) = slot.enter_again() {
            members.push(Member::Again(Some(lease)));
            continue;
        }
        let Some(turn) = slot.try_turn() else { return Ok(None) };
        // Again, because the one before may have ended with a lease since the look.
        members.push(match slot.enter_again() {
            Some(lease) => Member::Again(Some(lease)),
            None => Member::New(Box::new(Acquisition::new(Arc::clone(&core), options)?), Some((slot, turn))),
        });
    }
    let new: Vec<_> = members.iter().filter_map(Member::acquisition).collect();
    let Some(taken) = take(&core, &new).await? else { return Ok(None) };
    let mut taken = taken.into_iter();
    Ok(Some(members.iter_mut().filter_map(|member| member.settle(&mut taken)).collect()))
}

/// One of the locks.
enum Member {
    /// Held by the same owner id. Given back with this value unless it was taken out.
    Again(Option<Arc<HeldLease>>),
    /// To be had from the store; with an owner id, nobody else acquires for it meanwhile.
    New(Box<Acquisition>, Option<(Arc<OwnerSlot>, Turn)>),
}

impl Member {
    fn acquisition(&self) -> Option<&Acquisition> {
        match self {
            Self::Again(_) => None,
            Self::New(acquisition, _) => Some(acquisition),
        }
    }

    /// The lease, if need be the next one taken.
    fn settle(&mut self, taken: &mut impl Iterator<Item = Arc<HeldLease>>) -> Option<Arc<HeldLease>> {
        match self {
            Self::Again(lease) => lease.take(),
            Self::New(_, place) => {
                let lease = taken.next()?;
                if let Some((slot, _)) = place {
                    slot.set(&lease);
                }
                Some(lease)
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Self::Again(Some(lease)) = self
            && lease.leave()
        {
            lease.release_in_background();
        }
    }
}

/// Asks the store once. The leases are in the order of the acquisitions.
async fn take(core: &Arc<Core>, all: &[&Acquisition]) -> Result<Option<Vec<Arc<HeldLease>>>> {
    let Some(first) = all.first() else { return Ok(Some(Vec::new())) };
    let contenders: Vec<_> = all.iter().map(|acquisition| Arc::clone(&acquisition.contender)).collect();
    let _under_way = core.acquiring.begin();
    let mut undo = Undo::new(Arc::clone(core), contenders.clone());
    core.watchdog.somebody_is_active();
    let began = core.clock.now();
    let limit = request_limit(core.settings.timeout, Some(began), began);
    core.behind_own_releases(all.iter().map(|one| &one.options.name), limit).await;
    let sent_at = core.clock.now();
    let limit = after_own_releases(limit, sent_at.since(began));
    let answer = undo.ask(core.backend.take_all(&contenders), limit).await;
    let now = core.clock.now();
    match answer.map_err(|error| first.in_context(error))? {
        AnswerAll::Held { fences } => {
            // An answer that took longer than one of the leases is worth nothing.
            let late = all
                .iter()
                .map(|one| one.options.plan.first)
                .find(|lease| now >= valid_until(sent_at, *lease));
            if let Some(lease) = late {
                return Err(first.in_context(too_slow(lease)));
            }
            undo.disarm();
            let held = all.iter().zip(fences).map(|(one, fence)| one.held(fence, sent_at, now, false));
            Ok(Some(held.collect()))
        }
        AnswerAll::Refused => {
            undo.disarm();
            Ok(None)
        }
        AnswerAll::OtherKind { at, present } => {
            undo.disarm();
            let acquisition = all.get(at).unwrap_or(first);
            let wanted = acquisition.options.mode.kind();
            Err(acquisition.in_context(other_kind(acquisition.options.name.as_str(), present, wanted)))
        }
        AnswerAll::Withheld { left } => {
            undo.disarm();
            Err(first.in_context(withheld(left)))
        }
        AnswerAll::LockDelay { left } => {
            undo.disarm();
            Err(first.in_context(lock_delay(left)))
        }
    }
}
