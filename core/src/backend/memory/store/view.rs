//! What people see of the locks.

use super::{Holder, Lock, Now, Waiter};
use crate::backend::{HolderHint, is_renewed};
use crate::clock::{BootInstant, millis};
use crate::mode::Kind;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{HolderView, LockView, WaiterView};

impl Lock {
    pub(super) fn view(&self, name: &str, now: Now) -> LockView {
        LockView {
            name: name.to_owned(),
            mode: self.kind(now).map_or("mutex", Kind::code).into(),
            capacity: self.kind(now).and_then(Kind::capacity),
            holders: self.live_holders(now).map(|holder| holder.view(now)).collect(),
            waiters: self.line.iter().enumerate().map(|(at, waiter)| waiter.view(at as u32, now)).collect(),
            votes: Vec::new(),
            details: Vec::new(),
        }
    }
}

impl Holder {
    /// Returns when it was free for its client's next caller, if that client keeps it.
    pub(super) fn idle_at(&self, now: Now) -> Option<BootInstant> {
        self.kept.filter(|(_, until)| now.boot < *until).map(|(at, _)| at)
    }

    pub(super) fn hint(&self, now: Now) -> HolderHint {
        HolderHint {
            client: Some(self.contender.client.clone()),
            label: self.contender.label.clone(),
            held_for: Some(now.boot.since(self.acquired.boot)),
            left: Some(self.ends_at.since(now.boot)),
        }
    }

    pub(super) fn view(&self, now: Now) -> HolderView {
        HolderView {
            client: Some(self.contender.client.clone()),
            label: self.contender.label.clone(),
            mode: self.contender.mode.code().into(),
            permits: self.contender.mode.permits(),
            owner_digest: self.contender.owner.digest(),
            fencing_token: Some(FencingToken::new(self.fence)),
            acquired_at_ms: Some(self.acquired.wall_us / 1000),
            held_for_ms: Some(millis(now.boot.since(self.acquired.boot))),
            lease_ms: Some(millis(self.contender.lease)),
            remaining_ms: Some(millis(self.ends_at.since(now.boot))),
            renewals: Some(self.renewals),
            renewed_ago_ms: self.renewed_at.map(|at| millis(now.boot.since(at))),
            renewed: is_renewed(self.renewals, self.contender.first_lease, self.contender.lease),
            idle_ago_ms: self.idle_at(now).map(|at| millis(now.boot.since(at))),
            details: Vec::new(),
        }
    }
}

impl Waiter {
    pub(super) fn view(&self, position: u32, now: Now) -> WaiterView {
        WaiterView {
            client: self.contender.client.clone(),
            label: self.contender.label.clone(),
            mode: self.contender.mode.code().into(),
            permits: self.contender.mode.permits(),
            owner_digest: self.contender.owner.digest(),
            position,
            since_ms: self.since.wall_us / 1000,
            waited_ms: millis(now.boot.since(self.since.boot)),
            silent: now.boot >= self.silent_at,
            gives_up_at_ms: self.gives_up_at_ms,
        }
    }
}
