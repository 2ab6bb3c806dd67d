//! What is said to a Redis server and what it answers: keys, records, scripts; requests as values and answers
//! parsed. No I/O. What stands in the store is in `core/docs/wire-format.md`.

use std::time::Duration;

use crate::backend::{ANNOUNCE_TTL, Contender};
use crate::client_info::ClientInfo;
use crate::clock::millis;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::params::Params;

mod acquire;
pub(crate) mod call;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod idempotency;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod keep;
pub(crate) mod keys;
pub(crate) mod records;
mod release;
mod renew;
pub(crate) mod scripts;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod sentinels;
pub(crate) mod spelling;

pub(crate) use acquire::{Listens, stolen};
use call::Call;
use keys::Keys;
pub(crate) use release::{broken, converted, released};
pub(crate) use renew::renewed;
use scripts::Script;

/// What the user declares to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// For efficiency: doing work twice is a nuisance.
    BestEffort,
    /// For correctness: what cannot keep the promise is refused.
    Strict,
}

impl Guarantee {
    pub(crate) fn from_params(params: &mut Params) -> Result<Self> {
        let choices = [("best-effort", Self::BestEffort), ("strict", Self::Strict)];
        params.choice("guarantee", &choices, Self::BestEffort)
    }

    /// As it is written in a URL and in the record of a client.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Strict => "strict",
        }
    }
}

/// The requests of one client, for the keys of one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    pub keys: Keys,
    pub guarantee: Guarantee,
    /// Longest lease that any client of this prefix uses.
    pub max_lease: Duration,
    /// The first arguments of scripts that can grant, where they come in one: every argument costs
    /// time at the server, and the usual cases need none of these.
    packed_args: String,
}

/// Which keys a script takes besides those of every script that can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Holders,
    HoldersAndDetails,
}

impl Protocol {
    pub(crate) fn new(keys: Keys, guarantee: Guarantee, max_lease: Duration) -> Self {
        let is_strict = if guarantee == Guarantee::Strict { 's' } else { '-' };
        let packed_args = format!("{} {} {is_strict}", keys.inbox_before(), millis(max_lease));
        Self { keys, guarantee, max_lease, packed_args }
    }

    /// The first arguments of every script that can grant.
    fn granting_args(&self, spelled: String) -> Vec<String> {
        let mut args = Vec::with_capacity(13);
        args.push(self.keys.inbox_before());
        args.push(spelled);
        args.push(if self.guarantee == Guarantee::Strict { "strict".into() } else { String::new() });
        args.push(millis(self.max_lease).to_string());
        args
    }

    fn granting_keys(&self, spelled: &str, more: More) -> Vec<String> {
        let mut keys = self.keys.granting_spelled(spelled);
        match more {
            More::Holders => keys.push(self.keys.holders(spelled)),
            More::HoldersAndDetails => keys.extend(self.keys.sharing_spelled(spelled)),
        }
        keys
    }

    /// A call of a script that can grant.
    fn granting(
        &self,
        (script, more): (&'static Script, More),
        name: &LockName,
        args: impl IntoIterator<Item = String>,
    ) -> Call {
        let spelled = self.keys.spell(name);
        let keys = self.granting_keys(&spelled, more);
        let mut all = self.granting_args(spelled);
        all.extend(args);
        Call { script, keys, args: all }
    }

    /// The call that records who this client is.
    pub(crate) fn announce(&self, client: &ClientInfo) -> Call {
        let mut call = announcement(&self.keys, client);
        call.args.extend(["guarantee", self.guarantee.code()].map(str::to_owned));
        call
    }
}

/// A script for a mutex and its counterpart for locks that can be shared.
fn one_of(
    contender: &Contender,
    mutex: (&'static Script, More),
    shared: &'static Script,
) -> (&'static Script, More) {
    if contender.mode == Mode::Mutex { mutex } else { (shared, More::HoldersAndDetails) }
}

/// Whether a grant lists the lock in the index of names. Others are listed by their first renewal, which
/// comes soon, or because another client waits for them: most sections are over before, and an index entry
/// would cost the server a quarter of their time.
pub(crate) fn lists_at_once(contender: &Contender) -> bool {
    contender.first_lease == contender.lease
}

/// The call that records who a client is.
pub(crate) fn announcement(keys: &Keys, client: &ClientInfo) -> Call {
    let record = [
        ("host", client.host.clone()),
        ("pid", client.pid.to_string()),
        ("started_ms", client.process_started_at_ms.map(|ms| ms.to_string()).unwrap_or_default()),
        ("boot", client.boot.clone().unwrap_or_default()),
        ("pid_ns", client.pid_namespace.clone().unwrap_or_default()),
        ("program", client.program.clone()),
        ("language", client.language.clone()),
        ("version", client.version.clone()),
        ("v", "1".to_owned()),
    ];
    let mut args = vec![client.id.to_string(), millis(ANNOUNCE_TTL).to_string()];
    args.extend(keys.around_names());
    args.extend(record.into_iter().flat_map(|(field, value)| [field.to_owned(), value]));
    let keys = vec![format!("{}{}", keys.client_before(), client.id), keys.clients(), keys.index()];
    Call { script: &scripts::ANNOUNCE, keys, args }
}

/// The error for a key that holds another program's data.
fn foreign_data(name: &LockName) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the key of the lock {name:?} holds data that is no lock of ours and never expires; it was left alone, \
             so use another name or another prefix"
        ),
    )
    .on_lock(name.as_str())
}

/// The error for a lease that another version wrote.
fn unreadable(name: &LockName) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        "the lease was written by another version of Polylatch in a form unknown here; break it with that \
         version, or wait until it expires",
    )
    .on_lock(name.as_str())
}
