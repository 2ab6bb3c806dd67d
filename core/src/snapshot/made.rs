//! How views are made: by stores that fill them in step by step, from recordings, and for tests. They will get more fields, so each
//! is made from what it cannot be without, and the rest is set.

use std::borrow::Cow;
use std::time::Duration;

use super::{
    AuditEntry, ClientView, Detail, Event, EventKind, HolderView, LockView, Snapshot, Trouble, TroubleKind,
    VoteView, WaiterView,
};
use crate::policy::fencing::FencingToken;
use crate::token::ClientId;

impl Snapshot {
    /// Makes one of a store without locks.
    pub fn new(backend: impl Into<Cow<'static, str>>, taken_at_ms: u64) -> Self {
        Self {
            backend: backend.into(),
            taken_at_ms,
            round_trip: Duration::ZERO,
            requests: 0,
            locks: Vec::new(),
            clients: Vec::new(),
            audit: Vec::new(),
            truncated: false,
            troubles: Vec::new(),
        }
    }
}

impl LockView {
    /// Makes one that is free and has no waiters.
    pub fn new(name: impl Into<String>, mode: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            mode: mode.into(),
            capacity: None,
            holders: Vec::new(),
            waiters: Vec::new(),
            votes: Vec::new(),
            details: Vec::new(),
        }
    }
}

impl VoteView {
    /// Makes one of a node that did not answer.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), reached: false, owner_digest: None, client: None, remaining_ms: None }
    }
}

impl Detail {
    /// Makes a detail.
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

impl HolderView {
    /// Makes one with one permit, of which nothing else is known.
    pub fn new(mode: impl Into<Cow<'static, str>>) -> Self {
        Self {
            client: None,
            label: String::new(),
            mode: mode.into(),
            permits: 1,
            owner_digest: String::new(),
            fencing_token: None,
            acquired_at_ms: None,
            held_for_ms: None,
            lease_ms: None,
            remaining_ms: None,
            renewals: None,
            renewed_ago_ms: None,
            renewed: None,
            idle_ago_ms: None,
            details: Vec::new(),
        }
    }
}

impl WaiterView {
    /// Makes one that wants one permit and has just come, as the first.
    pub fn new(client: ClientId, mode: impl Into<Cow<'static, str>>, since_ms: u64) -> Self {
        Self {
            client,
            label: String::new(),
            mode: mode.into(),
            permits: 1,
            owner_digest: String::new(),
            position: 0,
            since_ms,
            waited_ms: 0,
            silent: false,
            gives_up_at_ms: None,
        }
    }
}

impl ClientView {
    /// Makes one that was seen just now, and of whose program and language nothing is known.
    pub fn new(id: ClientId, host: impl Into<String>, pid: u32) -> Self {
        Self {
            id,
            host: host.into(),
            pid,
            process_started_at_ms: None,
            boot: None,
            pid_namespace: None,
            program: String::new(),
            language: String::new(),
            version: String::new(),
            seen_ago_ms: 0,
        }
    }
}

impl AuditEntry {
    /// Makes one that says neither who nor why.
    pub fn new(at_ms: u64, name: impl Into<String>, fencing_token: FencingToken, holder: ClientId) -> Self {
        Self { at_ms, name: name.into(), fencing_token, holder, by: String::new(), reason: String::new() }
    }
}

impl Event {
    /// Makes one of a client that is not known.
    pub fn new(at_ms: u64, lock: impl Into<String>, kind: EventKind) -> Self {
        Self { at_ms, lock: lock.into(), client: None, label: String::new(), kind }
    }
}

impl Trouble {
    /// Makes one of the whole store.
    pub fn new(kind: TroubleKind, detail: impl Into<String>) -> Self {
        Self { kind, node: None, detail: detail.into() }
    }
}
