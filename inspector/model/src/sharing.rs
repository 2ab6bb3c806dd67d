//! How several hold one lock, in words.

use polylatch::inspect::{HolderView, LockView, WaiterView};

use super::text::count;

/// Returns `read`, `write`, or `3/5` for permits; empty for a lock of one holder.
pub fn mode(lock: &LockView) -> String {
    match (lock.capacity, lock.holders.first()) {
        (Some(capacity), _) => format!("{}/{capacity}", taken(lock)),
        (None, Some(holder)) if lock.mode == "rw" => holder.mode.clone().into_owned(),
        _ => String::new(),
    }
}

/// Returns `held`, `held for reading`, `held for writing` or `3 of 5 permits held`.
pub fn held(lock: &LockView) -> String {
    match (lock.capacity, lock.holders.first().map(|holder| &*holder.mode)) {
        (Some(capacity), _) => format!("{} of {} held", taken(lock), permits(capacity)),
        (None, Some("read")) => "held for reading".into(),
        (None, Some("write")) => "held for writing".into(),
        _ => "held".into(),
    }
}

/// Returns `, and by 2 others` if there are more holders than one.
pub fn and_others(lock: &LockView) -> String {
    match lock.holders.len() {
        0 | 1 => String::new(),
        several => format!(", and by {}", count(several - 1, "other", "others")),
    }
}

/// Returns what one holder has, if it is not the whole lock: `reading` or `2 of 5 permits`.
pub fn share(lock: &LockView, holder: &HolderView) -> Option<String> {
    match (lock.capacity, &*holder.mode) {
        (Some(capacity), _) => Some(format!("{} of {}", holder.permits, permits(capacity))),
        (None, "read") => Some("reading, beside other readers".into()),
        (None, "write") => Some("writing, alone".into()),
        _ => None,
    }
}

/// Returns what a waiter wants: ` to read`, ` to write`, ` for 2 permits`; empty for a lock of one holder.
pub fn wish(waiter: &WaiterView) -> String {
    match &*waiter.mode {
        "read" | "write" => format!(" to {}", waiter.mode),
        "permits" => format!(" for {}", permits(waiter.permits)),
        _ => String::new(),
    }
}

/// Says whether this waiter could hold the lock beside its present holders.
pub(super) fn has_room(lock: &LockView, waiter: &WaiterView) -> bool {
    match (&*waiter.mode, lock.capacity) {
        _ if lock.holders.is_empty() => true,
        ("read", _) => lock.holders.iter().all(|holder| holder.mode == "read"),
        ("permits", Some(capacity)) => taken(lock) + u64::from(waiter.permits) <= u64::from(capacity),
        _ => false,
    }
}

fn taken(lock: &LockView) -> u64 {
    lock.holders.iter().map(|holder| u64::from(holder.permits)).sum()
}

fn permits(number: u32) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "permit", "permits")
}
