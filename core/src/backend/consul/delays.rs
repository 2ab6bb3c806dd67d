//! What this client knows of lock-delays: Consul tells that there is one, not how long it lasts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::backend::consul::protocol::records::Delayed;
use crate::clock::wall_ms;
use crate::clock::{BootInstant, Clock, SystemClock, millis};
use crate::name::LockName;
use crate::wakeups::unpoisoned;

/// A refusal that goes on is written down again after this time.
const WRITTEN_EVERY: Duration = Duration::from_secs(2);

/// Most refusals that are written down.
const MOST_WRITTEN: usize = 64;

/// Until when locks are known to be under lock-delay.
#[derive(Default)]
pub(super) struct Delays {
    until: Mutex<HashMap<LockName, BootInstant>>,
    /// What was refused lately, and when it was written down.
    refused: Mutex<Vec<(BootInstant, Delayed)>>,
}

impl Delays {
    /// How long it is at most, if the last holder's delay is known. It counts from when the lock was
    /// first found free, which is later than when it began.
    pub(super) fn left(&self, name: &LockName, known: Option<Duration>) -> Option<Duration> {
        let now = SystemClock.now();
        let mut until = unpoisoned(&self.until);
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
        let until = unpoisoned(&self.until).get(name).copied()?;
        Some(until.since(SystemClock.now())).filter(|left| !left.is_zero())
    }

    /// Notes a refusal. Returns all that are to be written down, if it is time to.
    pub(super) fn refused(&self, name: &LockName, left: Option<Duration>) -> Option<Vec<Delayed>> {
        let (now, at_ms) = (SystemClock.now(), wall_ms());
        let mut refused = unpoisoned(&self.refused);
        let known = |(_, one): &(BootInstant, Delayed)| one.name == name.as_str();
        if refused.iter().any(|one| known(one) && now.since(one.0) < WRITTEN_EVERY) {
            return None;
        }
        refused.retain(|one| !known(one) && one.1.left_ms(at_ms).is_some());
        if refused.len() == MOST_WRITTEN {
            refused.remove(0);
        }
        let left_ms = left.map(millis);
        refused.push((now, Delayed { name: name.as_str().to_owned(), at_ms, left_ms }));
        Some(refused.iter().map(|(_, one)| one.clone()).collect())
    }

    pub(super) fn forget(&self, name: &LockName) {
        unpoisoned(&self.until).remove(name);
    }
}
