//! The reasons for a loss, which the policy gives.

use std::fmt;

/// Why a lease ended without being released by its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The validity ran out: no renewal was confirmed in time, or the process or machine was paused.
    Expired,
    /// The store answered that the lock is free or held by another client.
    Superseded,
    /// The session that the lease hung on has ended.
    SessionEnded,
    /// An operator broke the lease.
    Broken,
    /// The hold limit (`max_hold`) was reached.
    HoldLimit,
    /// No progress beat arrived in time (`beat_every`).
    NoProgress,
    /// The part that watches the lease has stopped, so nothing can be said for it any more.
    Unverifiable,
}

impl LostReason {
    /// Every reason, for tables and metrics.
    pub const ALL: &[Self] = &[
        Self::Expired,
        Self::Superseded,
        Self::SessionEnded,
        Self::Broken,
        Self::HoldLimit,
        Self::NoProgress,
        Self::Unverifiable,
    ];

    /// Returns the stable code, the same in every language.
    pub fn code(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Superseded => "superseded",
            Self::SessionEnded => "session_ended",
            Self::Broken => "broken",
            Self::HoldLimit => "hold_limit",
            Self::NoProgress => "no_progress",
            Self::Unverifiable => "unverifiable",
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Expired => "no renewal was confirmed before the lease ended",
            Self::Superseded => "the store no longer names this holder",
            Self::SessionEnded => "the session it hung on has ended",
            Self::Broken => "an operator broke the lease",
            Self::HoldLimit => "the hold limit was reached",
            Self::NoProgress => "no progress beat arrived in time",
            Self::Unverifiable => "the watchdog of this client has stopped",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
