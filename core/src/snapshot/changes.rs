//! What happened between two readings of one store.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::{AuditEntry, Event, EventKind, HolderView, LockView, Snapshot, WaiterView};

/// How far the end of a lease and the grant that follows it may seem to lie in the wrong order: the
/// first is counted by a monotonic clock and the second by the wall clock, each in whole milliseconds,
/// and a busy machine may do something else between reading the one and the other.
const CLOCKS_APART_MS: u64 = 20;

/// Tells what happened between two readings of the same query, in the order of the locks' names;
/// within one lock: endings first, then beginnings, renewals, and the queue.
///
/// Guarantees: pure, and only what the two readings show. What began and ended between them is not
/// seen, except a break, which leaves an audit entry. A lease whose time ran out between the readings
/// counts as expired; read more often than half of the shortest lease to tell that from a late
/// renewal and a release. A lock that is missing from a truncated reading is not judged.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<Event> {
    let elapsed_ms = after.taken_at_ms.saturating_sub(before.taken_at_ms);
    let old_audit: HashSet<AuditKey<'_>> = before.audit.iter().map(audit_key).collect();
    let mut breaks: HashMap<(&str, u64), &AuditEntry> = after
        .audit
        .iter()
        .filter(|entry| !old_audit.contains(&audit_key(entry)))
        .map(|entry| ((entry.name.as_str(), entry.fencing_token.get()), entry))
        .collect();
    let mut events = Vec::new();
    // Both are in the order of their names, so one walk through both finds the pairs.
    let (old_locks, new_locks) = (sorted(before), sorted(after));
    let (mut old_locks, mut new_locks) = (old_locks.into_iter().peekable(), new_locks.into_iter().peekable());
    loop {
        let order = match (old_locks.peek(), new_locks.peek()) {
            (Some(old), Some(new)) => old.name.cmp(&new.name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let old = if order.is_le() { old_locks.next() } else { None };
        let new = if order.is_ge() { new_locks.next() } else { None };
        let Some(lock) = new.or(old) else { break };
        let unseen = (old.is_none() && before.truncated) || (new.is_none() && after.truncated);
        if !unseen {
            let mut scribe = Scribe { at_ms: after.taken_at_ms, lock: &lock.name, events: &mut events };
            compare(&mut scribe, old, new, elapsed_ms, before.taken_at_ms, &mut breaks);
        }
    }
    // A lease that was granted and broken between the readings was in neither of them.
    let mut unmatched: Vec<&AuditEntry> = breaks.into_values().collect();
    unmatched.sort_by(|a, b| (a.at_ms, &a.name, a.fencing_token).cmp(&(b.at_ms, &b.name, b.fencing_token)));
    events.extend(unmatched.into_iter().map(|entry| Event {
        at_ms: after.taken_at_ms,
        lock: entry.name.clone(),
        client: Some(entry.holder.clone()),
        label: String::new(),
        kind: EventKind::Broken { by: entry.by.clone(), reason: entry.reason.clone() },
    }));
    events
}

type AuditKey<'a> = (u64, &'a str, u64);

fn audit_key(entry: &AuditEntry) -> AuditKey<'_> {
    (entry.at_ms, &entry.name, entry.fencing_token.get())
}

/// The locks in the order of their names, as stores give them.
fn sorted(snapshot: &Snapshot) -> Vec<&LockView> {
    let mut locks: Vec<&LockView> = snapshot.locks.iter().collect();
    if !locks.is_sorted_by(|a, b| a.name <= b.name) {
        locks.sort_by(|a, b| a.name.cmp(&b.name));
    }
    locks
}

/// Writes events of one lock.
struct Scribe<'a, 'e> {
    at_ms: u64,
    lock: &'a str,
    events: &'e mut Vec<Event>,
}

impl Scribe<'_, '_> {
    fn holder(&mut self, holder: &HolderView, kind: EventKind) {
        self.events.push(Event {
            at_ms: self.at_ms,
            lock: self.lock.to_owned(),
            client: holder.client.clone(),
            label: holder.label.clone(),
            kind,
        });
    }

    fn waiter(&mut self, waiter: &WaiterView, kind: EventKind) {
        self.events.push(Event {
            at_ms: self.at_ms,
            lock: self.lock.to_owned(),
            client: Some(waiter.client.clone()),
            label: waiter.label.clone(),
            kind,
        });
    }
}

fn compare<'a>(
    scribe: &mut Scribe<'a, '_>,
    old: Option<&LockView>,
    new: Option<&LockView>,
    elapsed_ms: u64,
    before_ms: u64,
    breaks: &mut HashMap<(&'a str, u64), &'a AuditEntry>,
) {
    let old_holders = old.map_or(&[][..], |lock| &lock.holders);
    let new_holders = new.map_or(&[][..], |lock| &lock.holders);
    let old_waiters = old.map_or(&[][..], |lock| &lock.waiters);
    let new_waiters = new.map_or(&[][..], |lock| &lock.waiters);

    for gone in old_holders.iter().filter(|holder| find(new_holders, holder).is_none()) {
        // Who cannot have held the lock beside it came after its end: that may prove the end was early.
        let known_end_ms = new_holders
            .iter()
            .filter(|holder| find(old_holders, holder).is_none() && (is_alone(holder) || is_alone(gone)))
            .filter_map(|successor| successor.acquired_at_ms.and_then(|at| at.checked_sub(before_ms)))
            .fold(elapsed_ms, u64::min);
        let broken = gone.fencing_token.and_then(|token| breaks.remove(&(scribe.lock, token.get())));
        let kind = match (broken, gone.remaining_ms) {
            (Some(entry), _) => EventKind::Broken { by: entry.by.clone(), reason: entry.reason.clone() },
            (None, Some(left)) if left <= known_end_ms + CLOCKS_APART_MS => EventKind::Expired,
            (None, _) => EventKind::Released,
        };
        scribe.holder(gone, kind);
    }
    for holder in new_holders {
        let Some(earlier) = find(old_holders, holder) else {
            scribe.holder(holder, EventKind::Granted { fencing_token: holder.fencing_token });
            continue;
        };
        if holder.mode != earlier.mode {
            let (mode, fencing_token) = (holder.mode.clone(), holder.fencing_token);
            scribe.holder(holder, EventKind::Converted { mode, fencing_token });
        }
        if let Some(renewals) = holder.renewals
            && earlier.renewals.is_some_and(|earlier| renewals > earlier)
        {
            scribe.holder(holder, EventKind::Renewed { renewals });
        }
        if is_endangered(holder) && !is_endangered(earlier) {
            let remaining_ms = holder.remaining_ms.unwrap_or_default();
            scribe.holder(holder, EventKind::Endangered { remaining_ms });
        }
    }
    let old_line: HashSet<&str> = old_waiters.iter().map(|waiter| waiter.owner_digest.as_str()).collect();
    let new_line: HashSet<&str> = new_waiters.iter().map(|waiter| waiter.owner_digest.as_str()).collect();
    for waiter in old_waiters {
        let digest = waiter.owner_digest.as_str();
        let got_it = new_holders.iter().any(|holder| holder.owner_digest == digest);
        if !new_line.contains(digest) && !got_it {
            scribe.waiter(waiter, EventKind::StoppedWaiting);
        }
    }
    for waiter in new_waiters.iter().filter(|waiter| !old_line.contains(waiter.owner_digest.as_str())) {
        scribe.waiter(waiter, EventKind::Waiting { position: waiter.position });
    }
}

/// Finds the same lease: the same acquisition under the same fencing token, or converted between
/// reading and writing.
fn find<'a>(holders: &'a [HolderView], wanted: &HolderView) -> Option<&'a HolderView> {
    let shared = |holder: &HolderView| matches!(&*holder.mode, "read" | "write");
    holders.iter().find(|holder| {
        holder.owner_digest == wanted.owner_digest
            && (holder.fencing_token == wanted.fencing_token || (shared(holder) && shared(wanted)))
    })
}

/// Says whether no other client can hold the lock beside this holder.
fn is_alone(holder: &HolderView) -> bool {
    matches!(&*holder.mode, "mutex" | "write")
}

/// No renewal for more than half of the term that runs now. The term is what has passed since the
/// latest renewal plus what is left, so a short first lease is judged by its own length.
fn is_endangered(holder: &HolderView) -> bool {
    let since = holder.renewed_ago_ms.or(holder.held_for_ms);
    since.zip(holder.remaining_ms).is_some_and(|(since, left)| since > left)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::fencing::FencingToken;
    use crate::token::ClientId;

    fn at(taken_at_ms: u64, locks: Vec<LockView>) -> Snapshot {
        Snapshot {
            backend: "memory".into(),
            taken_at_ms,
            round_trip: Duration::ZERO,
            requests: 0,
            locks,
            clients: Vec::new(),
            audit: Vec::new(),
            truncated: false,
            troubles: Vec::new(),
        }
    }

    fn lock(name: &str, holders: Vec<HolderView>, waiters: Vec<WaiterView>) -> LockView {
        LockView {
            name: name.into(),
            mode: "mutex".into(),
            capacity: None,
            holders,
            waiters,
            votes: Vec::new(),
            details: vec![],
        }
    }

    fn client(digest: &str) -> ClientId {
        ClientId::from_stored(&format!("host-{digest}:7:00000000"))
    }

    /// A holder with a lease of 10 s that was renewed `renewals` times, last `since_ms` ago.
    fn holder(digest: &str, fence: u64, renewals: u32, since_ms: u64) -> HolderView {
        HolderView {
            client: Some(client(digest)),
            label: "job".into(),
            mode: "mutex".into(),
            permits: 1,
            owner_digest: digest.into(),
            fencing_token: Some(FencingToken::new(fence)),
            acquired_at_ms: None,
            held_for_ms: Some(since_ms + 3_000 * u64::from(renewals)),
            lease_ms: Some(10_000),
            remaining_ms: Some(10_000 - since_ms),
            renewals: Some(renewals),
            renewed_ago_ms: (renewals > 0).then_some(since_ms),
            renewed: None,
            idle_ago_ms: None,
            details: Vec::new(),
        }
    }

    fn waiter(digest: &str, position: u32) -> WaiterView {
        WaiterView {
            client: client(digest),
            label: "job".into(),
            mode: "mutex".into(),
            permits: 1,
            owner_digest: digest.into(),
            position,
            since_ms: 0,
            waited_ms: 10,
            gives_up_at_ms: None,
            silent: false,
        }
    }

    fn broken(fence: u64) -> AuditEntry {
        AuditEntry {
            at_ms: 1_500,
            name: "a".into(),
            fencing_token: FencingToken::new(fence),
            holder: client("one"),
            by: "root@host".into(),
            reason: "stuck".into(),
        }
    }

    /// What is seen when the one lock of a store goes from one state to another within `elapsed_ms`.
    fn seen(elapsed_ms: u64, before: Vec<LockView>, after: Vec<LockView>) -> Vec<(String, EventKind)> {
        told(&at(1_000, before), &at(1_000 + elapsed_ms, after))
    }

    fn told(before: &Snapshot, after: &Snapshot) -> Vec<(String, EventKind)> {
        let host = |event: &Event| event.client.as_ref().map_or("", |id| id.host()).to_owned();
        changes(before, after).into_iter().map(|event| (host(&event), event.kind)).collect()
    }

    fn granted(fence: u64) -> EventKind {
        EventKind::Granted { fencing_token: Some(FencingToken::new(fence)) }
    }

    #[test]
    fn nothing_happened_if_only_time_passed() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 100)], vec![waiter("two", 0)])];
        let now = vec![lock("a", vec![holder("one", 1, 0, 1_100)], vec![waiter("two", 0)])];
        assert_eq!(seen(1_000, then, now), []);
    }

    #[test]
    fn a_hand_off_is_a_release_and_a_grant_and_not_a_waiter_that_left() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 100)], vec![waiter("two", 0), waiter("six", 1)])];
        let now = vec![lock("a", vec![holder("two", 2, 0, 50)], vec![waiter("six", 0), waiter("ten", 1)])];
        assert_eq!(
            seen(1_000, then, now),
            [
                ("host-one".into(), EventKind::Released),
                ("host-two".into(), granted(2)),
                ("host-ten".into(), EventKind::Waiting { position: 1 }),
            ]
        );
    }

    #[test]
    fn the_same_owner_under_a_new_token_has_a_new_lease() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 100)], vec![])];
        let now = vec![lock("a", vec![holder("one", 2, 0, 50)], vec![])];
        assert_eq!(
            seen(1_000, then, now),
            [("host-one".into(), EventKind::Released), ("host-one".into(), granted(2))]
        );
    }

    #[test]
    fn a_lease_that_ran_out_expired_and_one_with_time_left_was_released() {
        let then = || vec![lock("a", vec![holder("one", 1, 0, 9_500)], vec![])];
        assert_eq!(seen(1_000, then(), vec![]), [("host-one".into(), EventKind::Expired)]);
        assert_eq!(seen(400, then(), vec![]), [("host-one".into(), EventKind::Released)]);
    }

    #[test]
    fn a_successor_granted_early_proves_a_release() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 9_000)], vec![])];
        let mut successor = holder("two", 2, 0, 0);
        successor.acquired_at_ms = Some(1_200);
        let now = vec![lock("a", vec![successor], vec![])];
        assert_eq!(seen(5_000, then, now)[0].1, EventKind::Released);
    }

    #[test]
    fn a_successor_granted_at_the_very_end_proves_nothing() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 9_000)], vec![])];
        let successor = HolderView { acquired_at_ms: Some(1_997), ..holder("two", 2, 0, 0) };
        assert_eq!(seen(5_000, then, vec![lock("a", vec![successor], vec![])])[0].1, EventKind::Expired);
    }

    fn in_mode(mode: &'static str, holders: Vec<HolderView>) -> Vec<LockView> {
        let holders = holders.into_iter().map(|holder| HolderView { mode: mode.into(), ..holder }).collect();
        vec![LockView { mode: "rw".into(), ..lock("a", holders, vec![]) }]
    }

    #[test]
    fn several_holders_come_and_go_one_by_one() {
        let then = in_mode("read", vec![holder("one", 1, 0, 100), holder("two", 2, 0, 9_900)]);
        let late = HolderView { acquired_at_ms: Some(1_001), ..holder("six", 3, 0, 0) };
        let now = in_mode("read", vec![holder("one", 1, 1, 50), late]);
        // A reader that came meanwhile says nothing about when another reader went.
        assert_eq!(
            seen(1_000, then, now),
            [
                ("host-two".into(), EventKind::Expired),
                ("host-one".into(), EventKind::Renewed { renewals: 1 }),
                ("host-six".into(), granted(3)),
            ]
        );
    }

    #[test]
    fn a_writer_proves_when_the_readers_before_it_went() {
        let then = in_mode("read", vec![holder("one", 1, 0, 9_000), holder("two", 2, 0, 9_000)]);
        let writer = HolderView { acquired_at_ms: Some(1_200), ..holder("six", 3, 0, 0) };
        let told = seen(5_000, then, in_mode("write", vec![writer]));
        let released = |host: &str| (host.to_owned(), EventKind::Released);
        assert_eq!(told, [released("host-one"), released("host-two"), ("host-six".into(), granted(3))]);
    }

    #[test]
    fn a_converted_lease_goes_on() {
        let reads = || in_mode("read", vec![holder("one", 1, 0, 100)]);
        let writes = || in_mode("write", vec![holder("one", 2, 0, 200)]);
        let converted = |mode: &'static str, fence| {
            let fencing_token = Some(FencingToken::new(fence));
            [("host-one".to_owned(), EventKind::Converted { mode: mode.into(), fencing_token })]
        };
        assert_eq!(seen(100, reads(), writes()), converted("write", 2));
        assert_eq!(seen(100, writes(), reads()), converted("read", 1));
    }

    #[test]
    fn a_lease_without_an_end_cannot_expire() {
        let mut foreign = holder("one", 1, 0, 9_500);
        foreign.remaining_ms = None;
        let then = vec![lock("a", vec![foreign], vec![])];
        assert_eq!(seen(60_000, then, vec![]), [("host-one".into(), EventKind::Released)]);
    }

    #[test]
    fn renewals_and_their_absence_are_told_once() {
        let state = |renewals, since| vec![lock("a", vec![holder("one", 1, renewals, since)], vec![])];
        let renewed = ("host-one".into(), EventKind::Renewed { renewals: 2 });
        let endangered = ("host-one".into(), EventKind::Endangered { remaining_ms: 4_500 });
        assert_eq!(seen(1_000, state(1, 3_000), state(2, 100)), [renewed]);
        assert_eq!(seen(1_000, state(1, 4_500), state(1, 5_500)), [endangered]);
        assert_eq!(seen(1_000, state(1, 5_500), state(1, 6_500)), []);
    }

    #[test]
    fn a_short_first_lease_is_judged_by_its_own_length() {
        let first = |since_ms| {
            let mut provisional = holder("one", 1, 0, since_ms);
            provisional.remaining_ms = Some(3_000 - since_ms);
            vec![lock("a", vec![provisional], vec![])]
        };
        assert_eq!(seen(500, first(100), first(600)), []);
        let endangered = EventKind::Endangered { remaining_ms: 1_400 };
        assert_eq!(seen(1_000, first(600), first(1_600)), [("host-one".into(), endangered)]);
    }

    #[test]
    fn a_break_is_told_from_a_release_by_its_audit_entry() {
        let then = at(1_000, vec![lock("a", vec![holder("one", 1, 0, 100)], vec![])]);
        let mut now = at(2_000, vec![]);
        now.audit = vec![broken(1)];
        let event = EventKind::Broken { by: "root@host".into(), reason: "stuck".into() };
        assert_eq!(told(&then, &now), [("host-one".to_owned(), event.clone())]);
        // The lease was in neither reading: the entry alone tells of it, and only once.
        assert_eq!(told(&at(1_000, vec![]), &now), [("host-one".to_owned(), event)]);
        assert_eq!(told(&now, &now), []);
    }

    #[test]
    fn a_waiter_that_left_without_the_lock_stopped_waiting() {
        let then = vec![lock("a", vec![holder("one", 1, 0, 100)], vec![waiter("two", 0)])];
        let now = vec![lock("a", vec![holder("one", 1, 0, 1_100)], vec![])];
        assert_eq!(seen(1_000, then, now), [("host-two".into(), EventKind::StoppedWaiting)]);
    }

    #[test]
    fn a_lock_missing_from_a_truncated_reading_is_not_judged() {
        let then = at(1_000, vec![lock("z", vec![holder("one", 1, 0, 100)], vec![])]);
        let mut now = at(2_000, vec![lock("a", vec![holder("two", 1, 0, 100)], vec![])]);
        now.truncated = true;
        let seen = changes(&then, &now);
        assert_eq!(seen.iter().map(|event| event.lock.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(changes(&now, &then).iter().map(|event| event.lock.as_str()).collect::<Vec<_>>(), ["a"]);
    }
}
