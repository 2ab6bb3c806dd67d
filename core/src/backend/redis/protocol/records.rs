//! Records: lock values, waiters, holders that share. See `core/docs/wire-format.md`.

use std::fmt;
use std::time::Duration;

use crate::backend::redis::protocol::spelling::{escape_field, unescape_field};
use crate::backend::{Contender, HolderHint, is_renewed};
use crate::clock::millis;
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{Detail, HolderView, UNREADABLE, WaiterView};
use crate::token::{ClientId, OwnerToken};

/// How a mode is written in records.
pub(crate) fn mode_code(mode: Mode) -> String {
    match mode {
        Mode::Mutex => "m".into(),
        Mode::Read => "r".into(),
        Mode::Write => "w".into(),
        Mode::Permits { count, capacity } => format!("p{count}/{capacity}"),
    }
}

pub(crate) fn parse_mode(code: &str) -> Option<Mode> {
    Some(match code {
        "m" => Mode::Mutex,
        "r" => Mode::Read,
        "w" => Mode::Write,
        _ => {
            let (count, capacity) = code.strip_prefix('p')?.split_once('/')?;
            Mode::Permits { count: count.parse().ok()?, capacity: capacity.parse().ok()? }
        }
    })
}

/// The record of a contender: what a releaser needs to grant it the lock.
/// `listens` is false or [`Pushes::code`](crate::backend::redis::transport::port::Pushes::code); `true` is the inbox of the client.
pub(crate) fn waiter_record(contender: &Contender, listens: impl Into<u8>) -> String {
    format!(
        "{}|{}|{}|{}|{}|{}|{}",
        contender.owner.to_hex(),
        contender.client,
        millis(contender.first_lease),
        millis(contender.lease),
        listens.into(),
        mode_code(contender.mode),
        escape_field(&contender.label),
    )
}

/// The end of a lock value, from the first lease on.
pub(crate) fn value_tail(contender: &Contender) -> String {
    let label = escape_field(&contender.label);
    let (first, lease) = (millis(contender.first_lease), millis(contender.lease));
    format!("|{first}|{lease}|{}|{label}", contender.client.as_str())
}

/// What a lock key of ours says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockValue {
    pub owner: OwnerToken,
    pub renewals: u32,
    pub fence: u64,
    pub acquired_ms: u64,
    pub first: Duration,
    pub lease: Duration,
    pub client: ClientId,
    pub label: String,
}

impl LockValue {
    /// Reads a value; `None` if it is not one of ours.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(9, '|');
        let owner = OwnerToken::from_hex(fields.next()?)?;
        if fields.next()? != "pl1" {
            return None;
        }
        Some(Self {
            owner,
            renewals: fields.next()?.parse().ok()?,
            fence: fields.next()?.parse().ok()?,
            acquired_ms: fields.next()?.parse().ok()?,
            first: Duration::from_millis(fields.next()?.parse().ok()?),
            lease: Duration::from_millis(fields.next()?.parse().ok()?),
            client: ClientId::from_stored(fields.next()?),
            label: unescape_field(fields.next()?),
        })
    }

    /// How long ago the lease was last extended. A renewal sets the time left to the full lease, so
    /// what is missing from it is the age; but for the early one that lists the lock, which sets it to
    /// the first lease. That one shows in an age that would be larger than that of the grant.
    fn renewed_ago(&self, held: Duration, left: Duration) -> Option<Duration> {
        let ago = |length: Duration| length.saturating_sub(left);
        (self.renewals > 0).then(|| if ago(self.lease) > held { ago(self.first) } else { ago(self.lease) })
    }

    /// Returns how long ago it was free for its client's next caller, by the record that stands beside it; `None` if that is
    /// of another lease, or counts no more.
    pub(crate) fn idle_ago_ms(&self, kept: &str, now_ms: u64) -> Option<u64> {
        let mut fields = kept.split('|');
        let (owner, fence) = (OwnerToken::from_hex(fields.next()?)?, fields.next()?.parse::<u64>().ok()?);
        let until_ms: u64 = fields.next()?.parse().ok()?;
        let counts = owner == self.owner && fence == self.fence && now_ms < until_ms;
        counts.then(|| (now_ms + millis(self.lease)).saturating_sub(until_ms))
    }

    pub(crate) fn hint(&self, now_ms: u64, left: Option<Duration>) -> HolderHint {
        HolderHint {
            client: Some(self.client.clone()),
            label: self.label.clone(),
            held_for: Some(Duration::from_millis(now_ms.saturating_sub(self.acquired_ms))),
            left,
        }
    }

    pub(crate) fn view(&self, mode: Mode, now_ms: u64, left: Option<Duration>) -> HolderView {
        let held = Duration::from_millis(now_ms.saturating_sub(self.acquired_ms));
        HolderView {
            client: Some(self.client.clone()),
            label: self.label.clone(),
            mode: mode.code().into(),
            permits: mode.permits(),
            owner_digest: self.owner.digest(),
            fencing_token: Some(FencingToken::new(self.fence)),
            acquired_at_ms: Some(self.acquired_ms),
            held_for_ms: Some(millis(held)),
            lease_ms: Some(millis(self.lease)),
            remaining_ms: left.map(millis),
            renewals: Some(self.renewals),
            renewed_ago_ms: left.and_then(|left| self.renewed_ago(held, left)).map(millis),
            renewed: is_renewed(self.renewals, self.first, self.lease),
            idle_ago_ms: None,
            details: Vec::new(),
        }
    }
}

/// Another program's lock under a key of ours: all that can be said of it.
pub(crate) fn foreign_view(left: Option<Duration>) -> HolderView {
    let mut holder = HolderView::new(Mode::Mutex.code());
    holder.remaining_ms = left.map(millis);
    holder
}

/// The version that a record says it is of, or that its form shows; `None` for what is no record of ours.
pub(crate) fn version_of(record: &str) -> Option<&str> {
    let (first, rest) = record.split_once('|')?;
    let is_version = |text: &&str| {
        text.strip_prefix("pl").is_some_and(|number| {
            !number.is_empty() && number.len() < 6 && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let after_owner = || OwnerToken::from_hex(first).and_then(|_| rest.split('|').next());
    Some(first).filter(is_version).or_else(|| after_owner().filter(is_version))
}

/// Says what of a lock cannot be read. Never quotes the record: the owner in it is a secret.
pub(crate) fn unreadable(what: fmt::Arguments<'_>, record: &str) -> Detail {
    let form = version_of(record).unwrap_or("unknown");
    Detail::new(UNREADABLE, format!("{what}: written by another version of Polylatch (form {form})"))
}

/// Whether this is a gate of `guarantee=strict` in a form known here.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn is_gate(record: &str) -> bool {
    let opens = record.split_once('|').map(|(_, opens)| opens);
    opens.is_some_and(|opens| opens == "open" || opens.parse::<u64>().is_ok())
}

/// The longest lease that a client with `guarantee=strict` has declared. Every version begins like this.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn longest_lease(record: &str) -> Option<Duration> {
    let mut fields = record.split('|');
    fields.next()?.strip_prefix("pl")?.parse::<u32>().ok()?;
    let longest = fields.next()?.parse().ok()?;
    let _since_ms: u64 = fields.next()?.parse().ok()?;
    fields.next()?;
    Some(Duration::from_millis(longest))
}

/// A lease in a form unknown here: held, by a client that cannot be named.
pub(crate) fn unreadable_view(left: Option<Duration>, what: Detail) -> HolderView {
    HolderView { details: vec![what], ..foreign_view(left) }
}

/// One of several holders, as the store keeps it: `owner|fence|mode`, and `mode|lock value`. Without
/// details it is still held, by somebody.
pub(crate) fn sharing_view(
    member: &str,
    details: &str,
    now_ms: u64,
    left: Duration,
) -> Option<(Mode, HolderView)> {
    let mut fields = member.splitn(3, '|');
    let (owner, fence) = (OwnerToken::from_hex(fields.next()?)?, fields.next()?.parse().ok()?);
    let mode = parse_mode(fields.next()?)?;
    let value = details.split_once('|').and_then(|(_, value)| LockValue::parse(value));
    let view = match value {
        Some(value) => value.view(mode, now_ms, Some(left)),
        None => HolderView {
            mode: mode.code().into(),
            permits: mode.permits(),
            owner_digest: owner.digest(),
            fencing_token: Some(FencingToken::new(fence)),
            ..foreign_view(Some(left))
        },
    };
    Some((mode, view))
}

/// Shows a waiter record; `None` if it is not one of ours.
pub(crate) fn waiter_view(
    record: &str,
    position: u32,
    ticket_us: u64,
    silent_at_ms: u64,
    now_ms: u64,
) -> Option<(Mode, WaiterView)> {
    let mut fields = record.splitn(7, '|');
    let owner = OwnerToken::from_hex(fields.next()?)?;
    let client = ClientId::from_stored(fields.next()?);
    let (_first, _lease): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mode = parse_mode(fields.nth(1)?)?;
    let label = unescape_field(fields.next().filter(|label| !label.contains('|'))?);
    // A ticket is at least the server's time in µs when it was drawn, and seldom more.
    let since_ms = (ticket_us / 1000).min(now_ms);
    let view = WaiterView {
        client,
        label,
        mode: mode.code().into(),
        permits: mode.permits(),
        owner_digest: owner.digest(),
        position,
        since_ms,
        waited_ms: now_ms - since_ms,
        silent: silent_at_ms <= now_ms,
        gives_up_at_ms: None,
    };
    Some((mode, view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;

    const VALUE: &str = "00112233445566778899aabbccddeeff|pl1|00000002|1763680000000001|1763680000000|3000|15000|web-1:42:0a0b0c0d|nightly %7C import";

    const WAITER: &str = "00112233445566778899aabbccddeeff|h:1:x|3000|15000|1|m|a%7Cb";
    const SHARING_WAITER: &str = "00112233445566778899aabbccddeeff|h:1:x|3000|15000|1|p2/5|a%7Cb";
    const HOLDER: &str = "00112233445566778899aabbccddeeff|1763680000000001|p2/5";
    const DETAILS: &str = "p2/5|00112233445566778899aabbccddeeff|pl1|00000002|1763680000000001|1763680000000|3000|15000|web-1:42:0a0b0c0d|nightly %7C import";

    #[test]
    fn the_documented_records_are_the_golden_ones() {
        let documented = include_str!("../../../../docs/wire-format.md");
        for golden in [VALUE, WAITER, SHARING_WAITER, HOLDER, DETAILS] {
            assert!(documented.contains(golden), "{golden}");
        }
    }

    #[test]
    fn a_golden_lock_value_stays_readable() {
        let value = LockValue::parse(VALUE).unwrap();
        assert_eq!(value.fence, 1_763_680_000_000_001);
        assert_eq!(value.client.pid(), Some(42));
        assert_eq!(value.label, "nightly | import");
        let view = value.view(Mode::Mutex, 1_763_680_010_000, Some(Duration::from_secs(11)));
        assert_eq!(view.held_for_ms, Some(10_000));
        assert_eq!(view.renewed_ago_ms, Some(4_000));
        assert_eq!(view.renewals, Some(2));
        // The early renewal, which lists the lock, is for the length of the first lease.
        let first = LockValue { renewals: 1, ..value };
        let left = first.first - Duration::from_millis(150);
        let view = first.view(Mode::Mutex, 1_763_680_000_200, Some(left));
        assert_eq!((view.held_for_ms, view.renewed_ago_ms), (Some(200), Some(150)));
    }

    #[test]
    fn a_record_of_a_kept_lease_counts_for_that_lease_and_until_its_time() {
        let value = LockValue::parse(VALUE).unwrap();
        let owner = "00112233445566778899aabbccddeeff";
        let (lease, kept_at) = (millis(value.lease), 1_763_680_010_000);
        let record = |owner, fence: u64| format!("{owner}|{fence}|{}|1|h:1:x", kept_at + lease);
        assert_eq!(value.idle_ago_ms(&record(owner, value.fence), kept_at + 700), Some(700));
        assert_eq!(value.idle_ago_ms(&record(owner, value.fence), kept_at + lease), None);
        assert_eq!(value.idle_ago_ms(&record(owner, value.fence + 1), kept_at), None);
        assert_eq!(
            value.idle_ago_ms(&record("ff112233445566778899aabbccddeeff", value.fence), kept_at),
            None
        );
        for text in ["", "what|is|this", owner] {
            assert_eq!(value.idle_ago_ms(text, kept_at), None, "{text}");
        }
    }

    #[test]
    fn other_libraries_values_are_not_ours() {
        for value in ["", "00112233445566778899aabbccddeeff", "a|pl1|0|0|0|0|0|c|l", "uuid-1234"] {
            assert_eq!(LockValue::parse(value), None, "{value}");
        }
    }

    #[test]
    fn a_waiter_record_shows_itself() {
        let contender = Contender {
            name: LockName::new("n").unwrap(),
            owner: OwnerToken::from_hex("00112233445566778899aabbccddeeff").unwrap(),
            client: ClientId::from_stored("h:1:x"),
            label: "a|b".into(),
            lease: Duration::from_secs(15),
            first_lease: Duration::from_secs(3),
            barge: false,
            mode: Mode::Permits { count: 2, capacity: 5 },
        };
        let record = waiter_record(&contender, true);
        assert_eq!(record, SHARING_WAITER);
        let (mode, view) = waiter_view(&record, 1, 5_000_000, 9_000, 7_000).unwrap();
        assert_eq!((view.label.as_str(), view.waited_ms, view.silent), ("a|b", 2_000, false));
        assert_eq!((mode, &*view.mode, view.permits), (contender.mode, "permits", 2));
        let mutex = Contender { mode: Mode::Mutex, ..contender };
        assert_eq!(waiter_record(&mutex, true), WAITER);
    }

    #[test]
    fn a_golden_holder_stays_readable_and_needs_no_details() {
        let left = Duration::from_secs(11);
        let (mode, view) = sharing_view(HOLDER, DETAILS, 1_763_680_010_000, left).unwrap();
        assert_eq!(mode, Mode::Permits { count: 2, capacity: 5 });
        assert_eq!((&*view.mode, view.permits, view.renewals), ("permits", 2, Some(2)));
        assert_eq!((view.label.as_str(), view.remaining_ms), ("nightly | import", Some(11_000)));
        let (_, bare) = sharing_view(HOLDER, "", 1_763_680_010_000, left).unwrap();
        assert_eq!((bare.client, bare.fencing_token), (None, view.fencing_token));
        assert_eq!(bare.owner_digest, view.owner_digest);
        assert!(sharing_view("something else", "", 0, left).is_none());
    }

    #[test]
    fn modes_survive_their_codes() {
        let permits = Mode::Permits { count: 3, capacity: 1000 };
        for mode in [Mode::Mutex, Mode::Read, Mode::Write, permits] {
            assert_eq!(parse_mode(&mode_code(mode)), Some(mode));
        }
        for code in ["", "x", "p", "p1", "p/2", "p1/x"] {
            assert_eq!(parse_mode(code), None, "{code}");
        }
    }
}
