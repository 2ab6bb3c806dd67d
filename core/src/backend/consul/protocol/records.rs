//! What stands in the values.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::consul::protocol::keys::{client_of, written};
use crate::backend::{Contender, HolderHint};
use crate::client_info::{ClientInfo, process_id};
use crate::clock::millis;
use crate::mode::Mode;
use crate::token::{ClientId, OwnerToken};

/// Flags of a mutex, as Consul's own client library has them (`api/lock.go`).
pub(crate) const MUTEX_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;
/// Flags of a semaphore, as Consul's own client library has them (`api/semaphore.go`).
pub(crate) const SEMAPHORE_FLAGS: u64 = 0xe0f6_9a2b_aa41_4de0;
/// Flags of a read-write lock: nobody else's.
pub(crate) const RW_FLAGS: u64 = 0x706f_6c79_6c74_6372;
/// Flags of everything beside the held key.
pub(crate) const OWN_FLAGS: u64 = 0x706f_6c79_6c74_6368;

/// Who holds or waits, under one owner token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordFields", into = "RecordFields")]
pub(crate) struct Record {
    /// Version of this form.
    pub v: u32,
    /// 32 hex digits.
    pub owner: String,
    /// As in the key of its inbox.
    pub client: String,
    pub label: String,
    /// `m`, `r`, `w` or `pCOUNT/CAPACITY`.
    pub mode: String,
    /// Length of the first lease; shorter than `lease_ms` where renewal is on.
    pub first_ms: u64,
    pub lease_ms: u64,
    /// How long nobody is let in after the session has ended.
    pub delay_ms: u64,
    /// Since when it waits or holds, by the clock of the client that wrote this.
    pub at_ms: u64,
    /// The fencing token, where it is not the index of the key.
    pub fence: Option<u64>,
    /// The sessions that hold the permits of a semaphore.
    pub permits: Vec<String>,
}

/// A record as it stands in the store: its values in the order of its fields. Records are written and read
/// on the way of every hand-off, and names of fields would be half of them.
#[derive(Serialize, Deserialize)]
struct RecordFields(u32, String, String, String, String, u64, u64, u64, u64, Option<u64>, Vec<String>);

impl From<RecordFields> for Record {
    fn from(fields: RecordFields) -> Self {
        let RecordFields(v, owner, client, label, mode, first_ms, lease_ms, delay_ms, at_ms, fence, permits) =
            fields;
        Self { v, owner, client, label, mode, first_ms, lease_ms, delay_ms, at_ms, fence, permits }
    }
}

impl From<Record> for RecordFields {
    fn from(record: Record) -> Self {
        let Record { v, owner, client, label, mode, first_ms, lease_ms, delay_ms, at_ms, fence, permits } =
            record;
        Self(v, owner, client, label, mode, first_ms, lease_ms, delay_ms, at_ms, fence, permits)
    }
}

impl Record {
    /// `at_ms` is the wall clock of this client: Consul tells no time, so people see times by the clocks of clients;
    /// nothing is decided by them.
    pub(crate) fn of(contender: &Contender, delay_ms: u64, permits: Vec<String>, at_ms: u64) -> Self {
        Self {
            v: 1,
            owner: contender.owner.to_hex(),
            client: written(&contender.client),
            label: contender.label.clone(),
            mode: mode_text(contender.mode),
            first_ms: millis(contender.first_lease),
            lease_ms: millis(contender.lease),
            delay_ms,
            at_ms,
            fence: None,
            permits,
        }
    }

    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(value).ok()?;
        (record.v == 1 && record.mode().is_some() && record.owner().is_some()).then_some(record)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same from a moment on: a waiter becomes a holder.
    pub(crate) fn from(&self, at_ms: u64) -> Self {
        Self { at_ms, ..self.clone() }
    }

    pub(crate) fn owner(&self) -> Option<OwnerToken> {
        OwnerToken::from_hex(&self.owner)
    }

    pub(crate) fn client(&self) -> ClientId {
        client_of(&self.client)
    }

    pub(crate) fn mode(&self) -> Option<Mode> {
        mode_of(&self.mode)
    }

    pub(crate) fn hint(&self, now_ms: u64) -> HolderHint {
        HolderHint {
            client: Some(self.client()),
            label: self.label.clone(),
            held_for: Some(Duration::from_millis(now_ms.saturating_sub(self.at_ms))),
            left: None,
        }
    }
}

fn mode_text(mode: Mode) -> String {
    match mode {
        Mode::Mutex => "m".into(),
        Mode::Read => "r".into(),
        Mode::Write => "w".into(),
        Mode::Permits { count, capacity } => format!("p{count}/{capacity}"),
    }
}

fn mode_of(text: &str) -> Option<Mode> {
    match text {
        "m" => Some(Mode::Mutex),
        "r" => Some(Mode::Read),
        "w" => Some(Mode::Write),
        _ => {
            let (count, capacity) = text.strip_prefix('p')?.split_once('/')?;
            Mode::Permits { count: count.parse().ok()?, capacity: capacity.parse().ok()? }.check().ok()
        }
    }
}

/// The coordination key of a semaphore: Consul's own form, and a mark that its own library drops.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Coordination {
    #[serde(rename = "Limit")]
    pub limit: u32,
    #[serde(rename = "Holders", default)]
    pub holders: BTreeMap<String, bool>,
    /// Only Polylatch has written here, so nothing of another program is lost when it goes.
    #[serde(rename = "Polylatch", default, skip_serializing_if = "Option::is_none")]
    pub polylatch: Option<u32>,
}

/// A session beside the first of an acquisition that holds several permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// The owner whose permit it is.
    pub beside: String,
}

/// A letter to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Letter {
    /// The mutex or share of this name is yours; the token is the index of the letter. Who stands behind
    /// you as far as the writer knew, so that you need not look: the next ones without a gap.
    Granted {
        name: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        next: Vec<Follower>,
        /// The writer saw the whole line, and nobody stood in it behind you.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
    },
    /// An operator ended the lease with this token.
    Revoked { fence: u64 },
}

/// Somebody who stands in line for a mutex, behind the reader of a letter: session and record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, Record)", into = "(String, Record)")]
pub(crate) struct Follower {
    pub session: String,
    pub record: Record,
}

impl From<(String, Record)> for Follower {
    fn from((session, record): (String, Record)) -> Self {
        Self { session, record }
    }
}

impl From<Follower> for (String, Record) {
    fn from(follower: Follower) -> Self {
        (follower.session, follower.record)
    }
}

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub host: String,
    pub pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<String>,
    pub program: String,
    pub language: String,
    pub version: String,
    pub seen_ms: u64,
}

impl About {
    pub(crate) fn of(client: &ClientInfo, seen_ms: u64) -> Self {
        Self {
            host: client.host.clone(),
            pid: client.pid,
            started_ms: client.process_started_at_ms,
            boot: client.boot.clone(),
            pid_namespace: client.pid_namespace.clone(),
            program: client.program.clone(),
            language: client.language.clone(),
            version: client.version.clone(),
            seen_ms,
        }
    }
}

/// A lock that a waiter was refused because of its lock-delay. Only its waiters learn of it, so they write it down for
/// display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delayed {
    pub name: String,
    /// When, by the clock of the client that wrote this.
    pub at_ms: u64,
    /// How long it was to last from then on at most, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

impl Delayed {
    /// For how long a refusal whose end is not known says something: a waiter that is refused on writes it again.
    const SAYS_FOR_MS: u64 = 5_000;

    /// Returns what is left of it at most, or `None` within if that is not known; `None` if it is over.
    pub(crate) fn left_ms(&self, now_ms: u64) -> Option<Option<u64>> {
        let passed = now_ms.saturating_sub(self.at_ms);
        match self.left_ms {
            Some(left) => left.checked_sub(passed).filter(|left| *left > 0).map(Some),
            None => (passed < Self::SAYS_FOR_MS).then_some(None),
        }
    }
}

/// A break, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub at_ms: u64,
    pub name: String,
    pub fencing_token: u64,
    pub holder: String,
    pub by: String,
    pub reason: String,
}

/// A value that nobody has written before.
///
/// Consul leaves the index of a key as it is when what is written stands there already. Checks by index
/// see a change only if its value is another, so keys that are written to move their index hold one of
/// these.
pub(crate) fn never_written() -> Vec<u8> {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| {
        let mut random = [0; 8];
        // Not from `RandomState` alone: that is the same in every page of a JavaScript host.
        let seed = getrandom::fill(&mut random).map_or(0, |()| u64::from_ne_bytes(random));
        RandomState::new().hash_one(seed)
    });
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // With the process id, because a forked child goes on with its parent's numbers.
    let (process, next) = (process_id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{:016x}-{process:x}-{next:x}", *PROCESS).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_records_are_read() {
        let golden = r#"[1,"00112233445566778899aabbccddeeff","web-1:42:0a0b0c0d","nightly","p2/5",3000,15000,15000,1763680000000,null,["03728c09-2062-b76f-1615-ea71761caff2"]]"#;
        let record = Record::read(golden.as_bytes()).unwrap();
        assert_eq!(record.client().as_str(), "web-1:42:0a0b0c0d");
        let present = Record { client: "web-1=3A42=3A0a0b0c0d".into(), ..record.clone() };
        assert_eq!(present.client(), record.client());
        assert_eq!(record.mode(), Some(Mode::Permits { count: 2, capacity: 5 }));
        assert_eq!(record.bytes(), golden.as_bytes());
        let letter = br#"{"granted":{"name":"a/b"}}"#;
        assert_eq!(
            serde_json::from_slice::<Letter>(letter).unwrap(),
            Letter::Granted { name: "a/b".into(), next: Vec::new(), alone: false }
        );
        let alone = Letter::Granted { name: "a/b".into(), next: Vec::new(), alone: true };
        assert_eq!(serde_json::to_string(&alone).unwrap(), r#"{"granted":{"name":"a/b","alone":true}}"#);
        let next = format!(r#"{{"granted":{{"name":"a","next":[["s1",{golden}]]}}}}"#);
        let letter: Letter = serde_json::from_str(&next).unwrap();
        let Letter::Granted { next: followers, .. } = &letter else { panic!("{letter:?}") };
        assert_eq!((followers[0].session.as_str(), &followers[0].record), ("s1", &record));
        assert_eq!(serde_json::to_string(&letter).unwrap(), next);
        let semaphore = br#"{"Limit":3,"Holders":{"s1":true}}"#;
        let read: Coordination = serde_json::from_slice(semaphore).unwrap();
        assert_eq!((read.limit, read.holders.len(), read.polylatch), (3, 1, None));
        assert_eq!(serde_json::to_vec(&read).unwrap(), semaphore);
    }

    #[test]
    fn no_two_values_that_move_an_index_are_the_same() {
        let values: std::collections::HashSet<_> = (0..1_000).map(|_| never_written()).collect();
        assert_eq!(values.len(), 1_000);
    }

    #[test]
    fn what_is_no_record_is_none() {
        for text in [
            "",
            "{}",
            "null",
            "hello",
            "[]",
            r#"[1,"x","c","","m",1,1,0,0,null,[]]"#,
            r#"[2,"00112233445566778899aabbccddeeff","c","","m",1,1,0,0,null,[]]"#,
            r#"[1,"00112233445566778899aabbccddeeff","c","","q",1,1,0,0,null,[]]"#,
        ] {
            assert_eq!(Record::read(text.as_bytes()), None, "{text}");
        }
        for text in ["p0/5", "p6/5", "p1/1001", "p/", "q", ""] {
            assert_eq!(mode_of(text), None, "{text}");
        }
    }
}
