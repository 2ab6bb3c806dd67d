//! The rules of the protocol that a model can switch off, and the bounds of a search.

/// One rule of the protocol. Every search states which ones hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every acquisition draws a fresh owner token.
    FreshOwner,
    /// The anchor of a push entry is the send time of the poll that was answered "wait".
    AnchorAtSend,
    /// The window of a push entry starts at the anchor, not when the push arrives.
    WindowFromAnchor,
    /// A push counts only if its fence is above the one in the answer that gave the anchor.
    FenceAboveAnchor,
    /// A push whose window has passed is refused.
    WindowNotPast,
    /// The window of an answered poll starts when the poll was sent, not when the answer arrives.
    AnswerFromSend,
    /// A poll by the owner never shortens the lease.
    ConfirmKeepsLease,
    /// A renewal never shortens the lease, so that a short one may arrive after a long one.
    RenewKeepsLease,
    /// Release deletes the lock only if it names the releasing owner and fence.
    ReleaseChecksOwner,
    /// Renewal never creates a lock that is gone.
    RenewNeverCreates,
    /// A grant made by another client's script lasts as long as the receiver counts on. Without it,
    /// the granting client is configured with a provisional lease that is one tick shorter.
    LeaseOfReceiver,
    /// A guard whose window has passed stays lost, whatever arrives later.
    LossIsFinal,
}

/// The set of rules that hold in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules(u16);

impl Rules {
    /// The protocol as shipped.
    pub const FULL: Self = Self(u16::MAX);

    /// Returns these rules with one taken away.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u16))
    }

    /// Whether the rule holds.
    #[must_use]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u16) != 0
    }
}

/// The size of the world a search looks at. Durations are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Number of clients, 2 or 3.
    pub clients: usize,
    /// The provisional lease that every grant and every poll gives.
    pub provisional: u8,
    /// The lease that a long renewal gives; at least as long as the provisional one, which is what a short
    /// renewal gives.
    pub lease: u8,
    /// What a client subtracts from every window.
    pub margin: u8,
    /// Whether a client's clock may lose one tick in every `lease` ticks.
    pub drift: bool,
    /// Most messages in flight at once, at most [`Bounds::MAX_MESSAGES`].
    pub messages: usize,
    /// Most waiters on the server at once, at most [`Bounds::MAX_WAITERS`].
    pub waiters: usize,
}

impl Bounds {
    /// Most clients that a packed state has room for.
    pub const MAX_CLIENTS: usize = 3;
    /// Most messages in flight that a packed state has room for.
    pub const MAX_MESSAGES: usize = 7;
    /// Most waiters that a packed state has room for.
    pub const MAX_WAITERS: usize = 4;

    /// The smallest world in which every rule matters.
    pub const SMALL: Self =
        Self { clients: 2, provisional: 2, lease: 3, margin: 0, drift: false, messages: 3, waiters: 2 };
}

/// Which violations stop a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Any of [`crate::Violation`].
    Everything,
    /// Only two clients that hold at the same time. The other invariants usually break some steps
    /// earlier; this one shows that the harm is real.
    Overlap,
    /// Only entries whose fence is not above every fence entered before.
    FenceOrder,
}

/// One protocol in one world.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Which rules hold.
    pub rules: Rules,
    /// How large the world is.
    pub bounds: Bounds,
    /// Whether a push may be entered on at all, or is only a hint to poll.
    pub entry_by_push: bool,
    /// Which violations count.
    pub watch: Watch,
    /// Whether messages that cannot change anything any more are dropped. Off only to check that
    /// dropping them hides nothing.
    pub prune: bool,
}

impl Model {
    /// The full protocol within the given bounds.
    ///
    /// # Panics
    ///
    /// If the bounds do not fit a packed state, or the lease is shorter than the provisional one.
    #[must_use]
    pub const fn full(bounds: Bounds) -> Self {
        assert!(bounds.clients >= 1 && bounds.clients <= Bounds::MAX_CLIENTS);
        assert!(bounds.messages <= Bounds::MAX_MESSAGES);
        assert!(bounds.waiters >= 1 && bounds.waiters <= Bounds::MAX_WAITERS);
        assert!(bounds.provisional > bounds.margin && bounds.provisional <= bounds.lease);
        assert!(bounds.lease < 16);
        Self { rules: Rules::FULL, bounds, entry_by_push: true, watch: Watch::Everything, prune: true }
    }

    /// Returns this model with one rule taken away.
    #[must_use]
    pub const fn without(mut self, rule: Rule) -> Self {
        self.rules = self.rules.without(rule);
        self
    }

    /// Returns this model with pushes as hints only.
    #[must_use]
    pub const fn hint_only(mut self) -> Self {
        self.entry_by_push = false;
        self
    }

    /// Returns this model looking for other violations.
    #[must_use]
    pub const fn watching(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Returns this model keeping messages that cannot change anything.
    #[must_use]
    pub const fn unpruned(mut self) -> Self {
        self.prune = false;
        self
    }

    /// How long a holder relies on a provisional lease, counted from the send time.
    #[must_use]
    pub const fn provisional_window(&self) -> u8 {
        self.bounds.provisional - self.bounds.margin
    }

    /// How long a holder relies on a renewed lease, counted from the send time.
    #[must_use]
    pub const fn lease_window(&self) -> u8 {
        self.bounds.lease - self.bounds.margin
    }

    pub(crate) const fn has(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }
}
