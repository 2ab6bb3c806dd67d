//! What keeps a whole store, or one of its nodes, from working: the first thing to know about a snapshot.

use serde::{Deserialize, Serialize};

use super::Snapshot;

/// Something that keeps a store, or one of its nodes, from granting, renewing and releasing locks.
///
/// Found without changing the store: a reader asks Redis for a write without an effect (`ZADD … XX` of a member
/// that does not exist) and looks at the refusal; nodes that do not answer are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trouble {
    /// What it is.
    pub kind: TroubleKind,
    /// The node concerned, while the store as a whole still works; `None` if the whole store is concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The store's own words, or numbers. May be hostile; never has a secret.
    pub detail: String,
}

/// The kind of a [`Trouble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TroubleKind {
    /// Writes are refused: the server is a read-only replica.
    ReadOnly,
    /// Writes that need memory are refused: it is full and nothing may be evicted. Leases of mutexes can still be renewed
    /// and released.
    OutOfMemory,
    /// Writes are refused: fewer replicas are connected than `min-replicas-to-write` asks for.
    TooFewReplicas,
    /// Writes are refused: the server cannot save its data to disk.
    CannotSave,
    /// A node did not answer.
    NodeSilent,
    /// Fewer than a majority of the nodes answer and accept writes.
    NoQuorum,
}

impl TroubleKind {
    /// Every kind, for tables and metrics.
    pub const ALL: &[Self] = &[
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::TooFewReplicas,
        Self::CannotSave,
        Self::NodeSilent,
        Self::NoQuorum,
    ];

    /// Returns the stable code, the same as in JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::TooFewReplicas => "too_few_replicas",
            Self::CannotSave => "cannot_save",
            Self::NodeSilent => "node_silent",
            Self::NoQuorum => "no_quorum",
        }
    }
}

impl Trouble {
    /// Reads a server's refusal of a write; `None` if it says nothing about the server, such as a missing
    /// permission of the reader.
    #[cfg(feature = "redis")]
    pub(crate) fn of_refusal(text: &str) -> Option<Self> {
        let kind = text.split(|c: char| !c.is_ascii_uppercase()).find_map(|word| match word {
            "READONLY" => Some(TroubleKind::ReadOnly),
            "OOM" => Some(TroubleKind::OutOfMemory),
            "NOREPLICAS" => Some(TroubleKind::TooFewReplicas),
            "MISCONF" => Some(TroubleKind::CannotSave),
            _ => None,
        })?;
        Some(Self { kind, node: None, detail: text.trim().trim_start_matches('-').to_owned() })
    }
}

impl Snapshot {
    /// Returns what keeps the whole store from granting, renewing and releasing locks. While there is such,
    /// missing renewals and heartbeats say nothing about clients.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.troubles.iter().find(|trouble| trouble.node.is_none())
    }

    /// Returns the nodes that did not answer.
    pub fn silent_nodes(&self) -> impl Iterator<Item = &str> {
        let silent = self.troubles.iter().filter(|trouble| trouble.kind == TroubleKind::NodeSilent);
        silent.filter_map(|trouble| trouble.node.as_deref())
    }

    /// Takes note of a refusal. A waiter whose heartbeats are refused is not stale.
    #[cfg(feature = "redis")]
    pub(crate) fn with_trouble(mut self, trouble: Option<Trouble>) -> Self {
        if trouble.is_some() {
            self.locks.iter_mut().flat_map(|lock| &mut lock.waiters).for_each(|waiter| waiter.silent = false);
        }
        self.troubles.extend(trouble);
        self
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_code_that_json_has() {
        for kind in TroubleKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.code());
        }
    }

    #[test]
    fn refusals_of_the_server_are_told_from_those_of_the_user() {
        let kind = |text| Trouble::of_refusal(text).map(|trouble| trouble.kind);
        for (text, expected) in [
            ("READONLY You can't write against a read only replica.", Some(TroubleKind::ReadOnly)),
            ("-OOM command not allowed when used memory > 'maxmemory'.", Some(TroubleKind::OutOfMemory)),
            ("NOREPLICAS Not enough good replicas to write.", Some(TroubleKind::TooFewReplicas)),
            ("@user_script: 9: -MISCONF Errors writing to the AOF file", Some(TroubleKind::CannotSave)),
            ("NOPERM this user has no permissions to run the 'zadd' command", None),
            ("", None),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
