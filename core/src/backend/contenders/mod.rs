//! What the stores share in which each contender has a key or node of its own, and the oldest ones hold the lock.

pub(crate) mod records;

use std::time::Duration;

use crate::backend::is_renewed;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{Detail, HolderView, LockView, WaiterView};

use self::records::Record;

/// A contender as it stands in the store.
pub(crate) struct Seen<'a> {
    pub holds: bool,
    /// The code of the mode in which it holds or wants the lock.
    pub mode: &'static str,
    pub permits: u32,
    /// What it says of itself, if it is one of ours.
    pub value: &'a [u8],
    pub fence: FencingToken,
    /// Where it stands and what it hangs on, as its store calls them.
    pub details: Vec<Detail>,
}

/// A lock of this kind, from its contenders in the order in which they came.
pub(crate) fn lock_view<'a>(
    name: String,
    kind: &'static str,
    capacity: Option<u32>,
    contenders: impl Iterator<Item = Seen<'a>>,
    now_ms: u64,
) -> LockView {
    let (mut holders, mut waiters, mut others) = (Vec::new(), Vec::new(), 0);
    for contender in contenders {
        if contender.holds {
            holders.push(holder_view(contender, now_ms));
            continue;
        }
        match Record::read(contender.value) {
            Some(record) => {
                let position = waiters.len() as u32 + others;
                waiters.push(waiter_view(record, contender.mode, position, now_ms));
            }
            // Another program's contender says nothing of itself.
            None => others += 1,
        }
    }
    let details = (others > 0).then(|| Detail::new("waiters of other programs", others.to_string()));
    LockView {
        name,
        mode: kind.into(),
        capacity,
        holders,
        waiters,
        votes: Vec::new(),
        details: details.into_iter().collect(),
    }
}

fn holder_view(seen: Seen<'_>, now_ms: u64) -> HolderView {
    let record = Record::read(seen.value);
    let acquired_at_ms = record.as_ref().and_then(Record::acquired_at_ms);
    let renewed = record.as_ref().and_then(|record| {
        is_renewed(0, Duration::from_millis(record.first_ms), Duration::from_millis(record.lease_ms))
    });
    HolderView {
        client: record.as_ref().map(|record| record.client.clone()),
        label: record.as_ref().map(|record| record.label.clone()).unwrap_or_default(),
        mode: seen.mode.into(),
        permits: seen.permits,
        owner_digest: record.as_ref().map(|record| record.owner.clone()).unwrap_or_default(),
        fencing_token: Some(seen.fence),
        acquired_at_ms,
        held_for_ms: acquired_at_ms.map(|at| now_ms.saturating_sub(at)),
        lease_ms: record.as_ref().map(|record| record.lease_ms),
        // The servers do not tell it with the key or node.
        remaining_ms: None,
        renewals: None,
        renewed_ago_ms: None,
        renewed,
        idle_ago_ms: None,
        details: seen.details,
    }
}

fn waiter_view(record: Record, mode: &'static str, position: u32, now_ms: u64) -> WaiterView {
    let permits = record.permits();
    WaiterView {
        client: record.client,
        label: record.label,
        mode: mode.into(),
        permits,
        owner_digest: record.owner,
        position,
        since_ms: record.at_ms,
        waited_ms: now_ms.saturating_sub(record.at_ms),
        // The servers remove a waiter whose session has expired.
        silent: false,
        gives_up_at_ms: None,
    }
}
