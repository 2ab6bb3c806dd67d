//! Leases and waiters from rows, and leases as values for rows.

use std::collections::BTreeMap;

use crate::backend::rows::{Candidate, EXCLUSIVE, Holder, Now, millis, unsigned};
use crate::backend::{Answer, HolderHint};
use crate::mode::Mode;
use crate::policy::waiting::WaitAnswer;
use crate::token::ClientId;

use super::StepRows;
use super::value::{Cells, Param};
use super::window::{Lease, Lock, Waiter, Window};

/// The time of a step by the server's clock.
pub(crate) fn now(us: i64) -> Now {
    Now { clock_ms: us.div_euclid(1000), begun_ms: (us + 999).div_euclid(1000), wall_us: us }
}

/// Reads a mode from the columns `mode, permits, capacity`; `None` for one of another version of Polylatch.
pub(crate) fn mode(row: &Cells, at: usize) -> Option<Mode> {
    let count = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    Some(match row.text(at).as_str() {
        "mutex" => Mode::Mutex,
        "read" => Mode::Read,
        "write" => Mode::Write,
        "permits" => Mode::Permits { count: count(row.int(at + 1)), capacity: count(row.int(at + 2)) },
        _ => return None,
    })
}

/// Reads a lease from the columns `owner, fence, client, label, mode, permits, capacity, lease_ms, first_ms,
/// acquired_ms, ends_ms, renewals, renewed_ms`; `None` if there is none.
pub(crate) fn lease(row: &Cells, at: usize) -> Option<Lease> {
    let owner = row.optional_text(at)?;
    let mode = mode(row, at + 4);
    Some(Lease {
        holder: Holder {
            owner,
            fence: row.int(at + 1),
            client: row.text(at + 2),
            label: row.text(at + 3),
            acquired_ms: row.int(at + 9),
            ends_ms: row.int(at + 10),
            mode: mode.unwrap_or(EXCLUSIVE),
            is_known: mode.is_some(),
        },
        lease_ms: row.int(at + 7),
        first_ms: row.int(at + 8),
        renewals: row.int(at + 11),
        renewed_ms: row.optional_int(at + 12),
    })
}

/// Reads the answer to a heartbeat.
pub(crate) fn waits(row: &Cells) -> Answer {
    let left = millis(row.int(2));
    Answer::Wait {
        answer: WaitAnswer {
            fence: unsigned(row.int(0)),
            position: Some(u32::try_from(row.int(1)).unwrap_or(u32::MAX)),
            holder_left: Some(left),
            poll_within: None,
        },
        holder: Some(HolderHint {
            client: Some(ClientId::from_stored(&row.text(4))),
            label: row.text(5),
            held_for: Some(millis(row.int(3))),
            left: Some(left),
        }),
    }
}

fn waiter(row: &Cells) -> Waiter {
    Waiter {
        candidate: Candidate {
            owner: row.text(1),
            client: row.text(3),
            label: row.text(4),
            lease_ms: row.int(8),
            first_ms: row.int(9),
            // It was selected by its mode.
            mode: mode(row, 5).unwrap_or(EXCLUSIVE),
        },
        ticket: row.int(2),
        silent_ms: row.int(10),
    }
}

/// Puts the rows of a step together. `most` is how many waiters were asked for.
pub(crate) fn window(rows: &StepRows, most: i64) -> Window {
    let StepRows { locks, leases, front, places } = rows;
    let mut found: BTreeMap<String, Lock> = BTreeMap::new();
    for row in locks {
        let lock = Lock {
            exists: true,
            counter: row.int(1),
            is_shared: row.int(2) != 0,
            own: lease(row, 3),
            ..Lock::default()
        };
        found.insert(row.text(0), lock);
    }
    for row in leases {
        found.entry(row.text(0)).or_default().beside.extend(lease(row, 1));
    }
    for row in front {
        found.entry(row.text(0)).or_default().front.push_back(waiter(row));
    }
    let mut us = 0;
    for row in places {
        us = us.max(row.int(0));
        let lock = found.entry(row.text(1)).or_default();
        (lock.ticket, lock.before) = (row.optional_int(2), row.int(3));
        lock.more = lock.front.len() as i64 >= most;
    }
    Window::new(now(us), found)
}

/// The values of the columns `mode, permits, capacity`.
pub(crate) fn mode_params(mode: &Mode) -> [Param; 3] {
    [mode.code().into(), i64::from(mode.permits()).into(), mode.kind().capacity().map(i64::from).into()]
}

/// The values of the columns of a lease, in the order in which [`lease`] reads them.
pub(crate) fn lease_params(lease: &Lease) -> Vec<Param> {
    let holder = &lease.holder;
    let mut params = vec![Param::from(holder.owner.as_str()), holder.fence.into()];
    params.extend([Param::from(holder.client.as_str()), holder.label.as_str().into()]);
    params.extend(mode_params(&holder.mode));
    params.extend([Param::from(lease.lease_ms), lease.first_ms.into(), holder.acquired_ms.into()]);
    params.extend([Param::from(holder.ends_ms), lease.renewals.into(), lease.renewed_ms.into()]);
    params
}
