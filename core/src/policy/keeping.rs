//! A lease that its client keeps after a release, for the next caller of the same process.
//!
//! The lock stays the client's at the store, so nobody else is in the section; what a caller gets is a fencing token of
//! its own. Four rules make that safe, and each is removed in turn by the model `kept`:
//!
//! - K1 an entry uses a token that the store has set aside for this lease: larger than all before it, smaller than all
//!   that the store gives out later;
//! - K2 once another client wants the lock, nobody enters any more: the lease is released as soon as it is not in use;
//! - K3 while the store is asked whether to keep the lease nobody enters, because it may have handed the lock on;
//! - K4 nobody enters once no renewal was confirmed for half of the lease.
//!
//! K2 rests on a message that may be lost. So the store is asked again at every renewal, which also finds waiters of
//! versions that send no such message.

use std::time::Duration;

use crate::clock::BootInstant;

/// How many tokens are set aside for a lease at first: all leases of a store have them from one counter, which runs ahead
/// of the clock by a microsecond for each.
const TOKENS: u64 = 100;

/// How many at most. Each time that a lease has used up its own it asks for four times as many.
const MOST_TOKENS: u64 = 10_000;

/// How far tokens may be set aside beyond the store's clock, which they begin at after the store has lost its data.
pub(crate) const TOKENS_AHEAD: Duration = Duration::from_millis(100);

/// Returns the tokens that a store sets aside, the first and the last one, if it is asked for `count`: those that
/// follow `last_given` and are not behind the clock, but none that is too far ahead of it. `None` if there is none.
#[allow(dead_code, reason = "a client of servers alone leaves it to their scripts")]
pub(crate) fn set_aside(last_given: u64, clock_us: u64, count: u64) -> Option<(u64, u64)> {
    let first = (last_given + 1).max(clock_us);
    let most = clock_us + TOKENS_AHEAD.as_micros() as u64;
    let last = (first + count).saturating_sub(1).min(most);
    (count > 0 && first <= last).then_some((first, last))
}

/// What to do with a lease that is not in use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It stays as it is.
    Idle,
    /// Ask the store to keep it, and for so many tokens.
    Ask {
        tokens: u64,
    },
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Entered,
    Idle,
    /// The store is being asked.
    Asked,
    /// It is released, or its answer is not known.
    Ended,
}

/// What is known of a lease that may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// How long it may be idle.
    idle_for: Duration,
    used: Use,
    /// When the latest caller left.
    since: BootInstant,
    /// How many tokens to ask for next.
    asks_for: u64,
    /// The next token and the last one that are set aside.
    tokens: Option<(u64, u64)>,
    /// Another client wants the lock, or the caller wants it released.
    wanted: bool,
    /// A renewal was due since the store was last asked, or a message may have been missed.
    asks: bool,
}

impl Keeping {
    /// A lease that was granted to a caller, who is in.
    pub(crate) fn new(idle_for: Duration) -> Self {
        Self {
            idle_for,
            used: Use::Entered,
            since: BootInstant::from_nanos(0),
            asks_for: TOKENS,
            tokens: None,
            wanted: false,
            asks: false,
        }
    }

    /// Returns the token of the next caller, who enters now. `None` if nobody can; `is_sound`: the lease is not at risk.
    pub(crate) fn enter(&mut self, is_sound: bool) -> Option<u64> {
        let (next, last) = self.tokens.filter(|_| self.is_free() && !self.wanted && is_sound)?;
        self.tokens = (next < last).then_some((next + 1, last));
        self.used = Use::Entered;
        Some(next)
    }

    /// Says whether it is kept and not in use.
    pub(crate) fn is_free(&self) -> bool {
        self.used == Use::Idle
    }

    /// Says whether the store is being asked, after which it may be free to enter.
    pub(crate) fn is_asked(&self) -> bool {
        self.used == Use::Asked
    }

    /// The caller who was in leaves at `now`.
    pub(crate) fn left(&mut self, now: BootInstant, is_sound: bool) -> Left {
        if self.stays_idle(is_sound) {
            (self.used, self.since) = (Use::Idle, now);
            return Left::Idle;
        }
        if self.used != Use::Entered || self.wanted || !is_sound {
            self.used = Use::Ended;
            return Left::Release;
        }
        self.since = now;
        self.ask()
    }

    /// Whether [`Keeping::left`] would leave it idle now.
    pub(crate) fn stays_idle(&self, is_sound: bool) -> bool {
        self.used == Use::Entered && !self.wanted && is_sound && self.tokens.is_some() && !self.asks
    }

    fn ask(&mut self) -> Left {
        (self.used, self.asks) = (Use::Asked, false);
        if self.tokens.is_some() {
            return Left::Ask { tokens: 0 };
        }
        let tokens = self.asks_for;
        self.asks_for = (4 * tokens).min(MOST_TOKENS);
        Left::Ask { tokens }
    }

    /// The store has kept it, and set these tokens aside, the first and the last one. Returns whether it stays.
    pub(crate) fn kept(&mut self, tokens: Option<(u64, u64)>) -> bool {
        if self.used != Use::Asked {
            return false;
        }
        self.tokens = tokens.or(self.tokens);
        let stays = self.tokens.is_some() && !self.wanted;
        self.used = if stays { Use::Idle } else { Use::Ended };
        stays
    }

    /// The store has not kept it, or its answer is not known.
    pub(crate) fn ended(&mut self) {
        self.used = Use::Ended;
    }

    /// Another client wants the lock. Returns whether to release it now.
    pub(crate) fn wanted(&mut self) -> bool {
        self.wanted = true;
        let now = self.is_free();
        if now {
            self.used = Use::Ended;
        }
        now
    }

    /// A renewal is due, or a message may have been missed. Returns whether the store is to be asked in its place.
    pub(crate) fn renewal_due(&mut self) -> bool {
        let asks = self.is_free();
        if asks {
            self.ask();
        } else {
            self.asks = true;
        }
        asks
    }

    /// Whether the store is to be asked once more: messages may have been missed while it was asked.
    pub(crate) fn asks_again(&mut self) -> bool {
        let again = self.asks && self.is_free();
        if again {
            self.ask();
        }
        again
    }

    /// Until when it may be idle; if it is not, how soon that could be. To ask changes nothing.
    pub(crate) fn idle_until(&self, now: BootInstant) -> BootInstant {
        let since = if self.is_free() { self.since } else { now };
        since + self.idle_for
    }

    /// Returns whether it was idle for long enough, and is to be released now. Nobody enters from then on.
    pub(crate) fn ends_idle(&mut self, now: BootInstant) -> bool {
        let ends = self.is_free() && self.idle_until(now) <= now;
        if ends {
            self.used = Use::Ended;
        }
        ends
    }

    /// How long it may be idle.
    pub(crate) fn idle_for(&self) -> Duration {
        self.idle_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    /// Kept since 0 with these tokens.
    fn kept(tokens: (u64, u64)) -> Keeping {
        let mut keeping = Keeping::new(SECOND * 5);
        assert_eq!(keeping.left(at(0), true), Left::Ask { tokens: TOKENS });
        assert!(keeping.kept(Some(tokens)));
        keeping
    }

    #[test]
    fn each_entry_has_the_next_token_until_none_is_left() {
        let mut keeping = kept((7, 8));
        for token in [7, 8] {
            assert_eq!(keeping.enter(true), Some(token));
            assert_eq!(keeping.enter(true), None, "one caller at a time");
            if token == 7 {
                assert_eq!(keeping.left(at(1), true), Left::Idle);
            }
        }
        assert_eq!(keeping.left(at(1), true), Left::Ask { tokens: 4 * TOKENS });
        assert_eq!(keeping.enter(true), None, "the store may have handed it on");
        assert!(!keeping.kept(None), "without tokens nobody can enter");
        assert_eq!(keeping.enter(true), None);
    }

    #[test]
    fn a_lease_that_another_client_wants_is_released_when_it_is_not_in_use() {
        let mut idle = kept((7, 9));
        assert!(idle.wanted() && idle.enter(true).is_none());
        let mut used = kept((7, 9));
        assert_eq!(used.enter(true), Some(7));
        assert!(!used.wanted());
        assert_eq!(used.left(at(1), true), Left::Release);
        assert!(!used.is_free() && used.enter(true).is_none());
        let mut asked = Keeping::new(SECOND);
        assert_eq!(asked.left(at(0), true), Left::Ask { tokens: TOKENS });
        assert!(!asked.wanted());
        assert!(!asked.kept(Some((7, 9))), "wanted while the store was asked");
    }

    #[test]
    fn the_store_is_asked_again_at_every_renewal() {
        let mut idle = kept((7, 9));
        assert!(idle.renewal_due() && idle.is_asked());
        assert!(idle.kept(None), "it has tokens");
        assert_eq!(idle.enter(true), Some(7));
        assert!(!idle.renewal_due(), "in use: a usual renewal");
        assert_eq!(idle.left(at(2), true), Left::Ask { tokens: 0 });
        assert!(idle.kept(None));
        assert_eq!(idle.enter(true), Some(8));
        assert_eq!(idle.left(at(2), true), Left::Idle);
        // While the store is being asked: its answer may be from before.
        assert!(idle.renewal_due() && !idle.renewal_due());
        assert!(idle.kept(None) && idle.asks_again() && idle.is_asked());
        assert!(idle.kept(None) && !idle.asks_again());
    }

    #[test]
    fn a_lease_at_risk_is_neither_entered_nor_kept() {
        let mut keeping = kept((7, 9));
        assert_eq!(keeping.enter(false), None);
        assert_eq!(keeping.enter(true), Some(7));
        assert_eq!(keeping.left(at(1), false), Left::Release);
    }

    #[test]
    fn it_is_idle_for_as_long_as_was_said() {
        let mut keeping = kept((7, 9));
        assert_eq!(keeping.idle_until(at(4)), at(5));
        assert!(keeping.renewal_due() && !keeping.ends_idle(at(6)), "the store is being asked");
        assert!(keeping.kept(None));
        assert_eq!(keeping.idle_until(at(4)), at(5), "a renewal is no use of it");
        assert!(!keeping.ends_idle(at(4)));
        assert_eq!(keeping.enter(true), Some(7));
        assert!(!keeping.ends_idle(at(9)), "in use");
        assert_eq!(keeping.idle_until(at(9)), at(14));
        assert_eq!(keeping.left(at(9), true), Left::Idle);
        // However often it is asked.
        assert_eq!([keeping.idle_until(at(13)), keeping.idle_until(at(20))], [at(14); 2]);
        assert!(!keeping.ends_idle(at(13)) && keeping.ends_idle(at(14)));
        assert_eq!(keeping.enter(true), None);
        assert!(!keeping.ends_idle(at(15)), "once");
    }

    #[test]
    fn tokens_follow_those_given_out_and_the_clock_but_not_too_far_ahead() {
        assert_eq!(set_aside(41, 5, 3), Some((42, 44)));
        assert_eq!(set_aside(41, 50, 3), Some((50, 52)));
        assert_eq!(set_aside(100_003, 5, 10), Some((100_004, 100_005)));
        assert_eq!(set_aside(100_005, 5, 10), None);
        assert_eq!(set_aside(41, 5, 0), None);
    }
}
