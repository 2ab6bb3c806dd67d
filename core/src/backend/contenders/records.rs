//! What contenders and clients say of themselves. It is for display only: the servers' numbers and sessions decide.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::{Contender, HolderHint};
use crate::client_info::ClientInfo;
use crate::clock::millis;
use crate::mode::Mode;
use crate::snapshot::{AuditEntry, BreakRequest, ClientView};
use crate::token::ClientId;

/// Version of these records.
const VERSION: u32 = 1;

/// A contender, in the value of its key or node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    v: u32,
    /// Digest of the owner token.
    pub owner: String,
    pub client: ClientId,
    #[serde(default)]
    pub label: String,
    pub lease_ms: u64,
    pub first_ms: u64,
    /// When it came, by its own clock.
    pub at_ms: u64,
    /// It found another contender there, so it was granted later than it came.
    #[serde(default)]
    pub queued: bool,
    /// Of a semaphore: how many permits it wants or has, and how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<(u32, u32)>,
    /// The fencing token of a reader that was a writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

impl Record {
    pub(crate) fn of(contender: &Contender, at_ms: u64, queued: bool) -> Self {
        Self {
            v: VERSION,
            owner: contender.owner.digest(),
            client: contender.client.clone(),
            label: contender.label.clone(),
            lease_ms: millis(contender.lease),
            first_ms: millis(contender.first_lease),
            at_ms,
            queued,
            permits: match contender.mode {
                Mode::Permits { count, capacity } => Some((count, capacity)),
                _ => None,
            },
            fence: None,
        }
    }

    #[cfg(feature = "zookeeper")]
    pub(crate) fn with_fence(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }

    pub(crate) fn permits(&self) -> u32 {
        self.permits.map_or(1, |(count, _)| count)
    }

    /// How many permits there are, if it is a semaphore.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn capacity(&self) -> Option<u32> {
        self.permits.map(|(_, capacity)| capacity)
    }

    /// `None` for another program's value, and for that of a later version.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok().filter(|record: &Self| record.v == VERSION)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// When it was granted the lock that it holds, if that is known.
    pub(crate) fn acquired_at_ms(&self) -> Option<u64> {
        (!self.queued).then_some(self.at_ms)
    }
}

/// Says who holds, for the errors of those who wait.
pub(crate) fn hint(value: &[u8], now_ms: u64) -> HolderHint {
    let Some(record) = Record::read(value) else {
        return HolderHint { client: None, label: String::new(), held_for: None, left: None };
    };
    let held_for = record.acquired_at_ms().map(|at| Duration::from_millis(now_ms.saturating_sub(at)));
    HolderHint { client: Some(record.client), label: record.label, held_for, left: None }
}

/// Who a client is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct About {
    id: ClientId,
    host: String,
    pid: u32,
    started_ms: Option<u64>,
    boot: Option<String>,
    pid_namespace: Option<String>,
    program: String,
    language: String,
    version: String,
    seen_ms: u64,
}

impl About {
    pub(crate) fn of(client: &ClientInfo, seen_ms: u64) -> Self {
        Self {
            id: client.id.clone(),
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

    pub(crate) fn view(self, now_ms: u64) -> ClientView {
        ClientView {
            id: self.id,
            host: self.host,
            pid: self.pid,
            process_started_at_ms: self.started_ms,
            boot: self.boot,
            pid_namespace: self.pid_namespace,
            program: self.program,
            language: self.language,
            version: self.version,
            seen_ago_ms: now_ms.saturating_sub(self.seen_ms),
        }
    }
}

/// The record of a broken lease.
pub(crate) fn broken(request: &BreakRequest, holder: &ClientId, at_ms: u64) -> AuditEntry {
    AuditEntry {
        at_ms,
        name: request.name.clone(),
        fencing_token: request.expected,
        holder: holder.clone(),
        by: request.by.clone(),
        reason: request.reason.clone(),
    }
}
