//! The signs that a lease is kept: renewals, or the session that it hangs on.

use polylatch::inspect::HolderView;

use super::text::sanitized;

/// A running lease's beat, judged by the length of its present term: a first lease may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Since the latest renewal, or since the grant.
    pub since_ms: u64,
    /// What is left.
    pub left_ms: u64,
    /// How often a renewal is expected.
    pub every_ms: u64,
}

impl Beat {
    /// Reads the beat, if the store can tell.
    pub fn of(holder: &HolderView) -> Option<Self> {
        let since_ms = holder.renewed_ago_ms.or(holder.held_for_ms)?;
        let left_ms = holder.remaining_ms?;
        let term = since_ms.saturating_add(left_ms);
        Some(Self { since_ms, left_ms, every_ms: holder.lease_ms.map_or(term, |lease| lease.min(term)) / 3 })
    }

    /// More than half of the term went by without a renewal.
    pub fn is_late(self) -> bool {
        self.since_ms > self.left_ms
    }

    /// How many beats did not come; one counts as missed when it is half an interval late.
    pub fn missed(self) -> u32 {
        let halves = self.since_ms.saturating_mul(2) / self.every_ms.max(1);
        u32::try_from(halves.saturating_sub(1) / 2).unwrap_or(u32::MAX)
    }

    /// Two renewals are missing.
    pub fn has_stopped(self) -> bool {
        self.since_ms / 2 > self.left_ms
    }
}

/// The session that a lease hangs on, where the store has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session<'a> {
    ttl: Option<&'a str>,
}

impl<'a> Session<'a> {
    pub(super) fn of(holder: &'a HolderView) -> Option<Self> {
        let detail = |name| holder.details.iter().find(|detail| detail.name == name);
        detail("session")?;
        Some(Self { ttl: detail("session TTL").map(|ttl| ttl.value.as_str()) })
    }

    /// Returns when it ends after its client has stopped, in words.
    pub(super) fn ends(self) -> String {
        match self.ttl {
            // Source: developer.hashicorp.com, sessions: the TTL is a lower bound, and Consul may wait for
            // up to twice that time.
            Some(ttl) if ttl != "none" => format!("within twice its time to live, {}", sanitized(ttl)),
            Some(_) => "only with its node's health checks".into(),
            None => "when the store finds its client gone".into(),
        }
    }
}
