//! What this client knows of lock-delays: Consul tells that there is one, not how long it lasts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::clock::{BootInstant, Clock, SystemClock};
use crate::name::LockName;
use crate::wakeups::unpoisoned;

/// Until when locks are known to be under lock-delay.
#[derive(Default)]
pub(super) struct Delays(Mutex<HashMap<LockName, BootInstant>>);

impl Delays {
    /// How long it is at most, if the last holder's delay is known. It counts from when the lock was
    /// first found free, which is later than when it began.
    pub(super) fn left(&self, name: &LockName, known: Option<Duration>) -> Option<Duration> {
        let now = SystemClock.now();
        let mut until = unpoisoned(&self.0);
        until.retain(|_, until| now < *until);
        match (until.get(name), known) {
            (Some(until), _) => Some(until.since(now)),
            (None, Some(delay)) if !delay.is_zero() => {
                until.insert(name.clone(), now + delay);
                Some(delay)
            }
            _ => None,
        }
    }

    /// What this client knows of it.
    pub(super) fn seen(&self, name: &LockName) -> Option<Duration> {
        let until = unpoisoned(&self.0).get(name).copied()?;
        Some(until.since(SystemClock.now())).filter(|left| !left.is_zero())
    }

    pub(super) fn forget(&self, name: &LockName) {
        unpoisoned(&self.0).remove(name);
    }
}
