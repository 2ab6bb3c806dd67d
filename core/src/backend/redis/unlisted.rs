//! The locks that this client was granted and that the index of names does not show so far.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::protocol::lists_at_once;
use crate::backend::Contender;
use crate::clock::Instant;
use crate::mode::Mode;
use crate::name::LockName;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// When an entry is old in any case: the first renewal, which lists the lock, was long due.
const OLD: Duration = Duration::from_secs(60);

/// From how many entries on old ones are looked for: those of leases that were lost before they were
/// listed stay until then.
const MANY: usize = 1024;

/// What a client adds to its own view, so that it sees what it holds from the first moment.
#[derive(Debug, Default)]
pub(super) struct Unlisted(Mutex<HashMap<OwnerToken, (LockName, Instant)>>);

impl Unlisted {
    /// Notes a grant.
    pub(super) fn add(&self, contender: &Contender) {
        if contender.mode != Mode::Mutex || lists_at_once(contender) {
            return;
        }
        let now = Instant::now();
        let mut entries = unpoisoned(&self.0);
        if entries.len() >= MANY && entries.len().is_power_of_two() {
            entries.retain(|_, (_, since)| now.duration_since(*since) < OLD);
        }
        entries.insert(contender.owner, (contender.name.clone(), now));
    }

    /// It is listed by now, or over.
    pub(super) fn remove(&self, contender: &Contender) {
        unpoisoned(&self.0).remove(&contender.owner);
    }

    pub(super) fn names(&self) -> Vec<LockName> {
        unpoisoned(&self.0).values().map(|(name, _)| name.clone()).collect()
    }
}
