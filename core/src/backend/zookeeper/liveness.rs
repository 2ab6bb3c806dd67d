//! Until when a session certainly lives, by the clock of this client. Pure: times are arguments.
//!
//! A session ends a timeout after the *leader* has heard of it last. A client that is connected to a follower is answered
//! by the follower, and the leader hears of that with the follower's answer to its next ping: every half tick
//! (`Leader.lead`, `LearnerHandler.ping`). So that a ping was answered proves nothing for as long as a follower is cut off
//! from the leader. What proves it, on one connection:
//!
//! 1. an exchange with the member, answered before
//! 2. a tick passes, in which the leader has pinged the member, and then
//! 3. a request leaves that a majority logs, and is answered. It took the same way as the follower's answer to the ping,
//!    behind it; and a leader that was deposed gets no majority.
//!
//! Then the session lives for a timeout from when the exchange of 1 left. If another leader was elected after 3, it lets
//! every session last for a whole timeout again. A new session is itself a request that a majority logs; and the leader
//! is asked at once when a session is taken to another connection.
//!
//! What is assumed of servers: a leader that carries out requests pings its members every half tick. If it is late for
//! more than a tick, and the member or its link dies right then, a session may end sooner than is said here.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;

/// Exchanges within a tick that are remembered: more say little more.
const PER_TICK: u32 = 16;

/// How long a session has to last for a lock of this lease: renewed by requests as [`renews_every`] says, each of which
/// proves what was a tick ago, on a machine that may be late by some. Whole milliseconds, as it is asked for.
pub(crate) fn timeout_for(lease: Duration, tick: Duration) -> Duration {
    let exact = lease + lease / 4 + tick + Duration::from_millis(200);
    exact + Duration::from_nanos(u64::from((1_000_000_000 - exact.subsec_nanos()) % 1_000_000))
}

/// The longest lease that a session of this length allows.
pub(crate) fn lease_for(timeout: Duration, tick: Duration) -> Duration {
    timeout.saturating_sub(tick + Duration::from_millis(200)) * 4 / 5
}

/// How often a session of locks with this lease is pinged.
pub(crate) fn pings_every(lease: Duration) -> Duration {
    (lease / 5).max(Duration::from_millis(20))
}

/// What is known of one session.
#[derive(Debug)]
pub(crate) struct Liveness {
    tick: Duration,
    timeout: Duration,
    /// When exchanges left and were answered, on this connection.
    recent: VecDeque<(BootInstant, BootInstant)>,
    /// When the latest exchange left of which the leader has heard, if a majority still follows it.
    relayed: Option<BootInstant>,
    until: Option<BootInstant>,
}

impl Liveness {
    pub(crate) fn new(tick: Duration) -> Self {
        Self { tick, timeout: Duration::ZERO, recent: VecDeque::new(), relayed: None, until: None }
    }

    /// The session was created by a request that left then.
    pub(crate) fn created(&mut self, sent: BootInstant, timeout: Duration) {
        self.timeout = timeout;
        self.reconnected(sent);
        self.until = Some(sent + timeout);
    }

    /// The session was taken to another connection by a request that left then. A majority is still to confirm it.
    pub(crate) fn reconnected(&mut self, sent: BootInstant) {
        self.recent.clear();
        self.relayed = Some(sent);
    }

    /// An exchange that left at `sent` was answered.
    pub(crate) fn answered(&mut self, sent: BootInstant, now: BootInstant) {
        self.relay(now);
        if self.recent.back().is_none_or(|(before, _)| sent.since(*before) >= self.tick / PER_TICK) {
            self.recent.push_back((sent, now));
        }
    }

    /// A request that left at `sent` was logged by a majority.
    pub(crate) fn confirmed(&mut self, sent: BootInstant) {
        self.relay(sent);
        let until = self.relayed.map(|relayed| relayed + self.timeout);
        self.until = self.until.max(until);
    }

    /// Until when it lives, if that is known.
    #[cfg(test)]
    pub(crate) fn until(&self) -> Option<BootInstant> {
        self.until
    }

    /// Whether it lives for this long from then on.
    pub(crate) fn lasts(&self, from: BootInstant, need: Duration) -> bool {
        self.until.is_some_and(|until| until >= from + need)
    }

    fn relay(&mut self, now: BootInstant) {
        while let Some((sent, answered)) = self.recent.front()
            && *answered + self.tick <= now
        {
            self.relayed = self.relayed.max(Some(*sent));
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_millis(millis)
    }

    fn session() -> Liveness {
        let mut session = Liveness::new(TICK);
        session.created(at(1_000), TIMEOUT);
        session
    }

    #[test]
    fn a_session_lives_from_when_the_request_left_that_created_it() {
        assert_eq!(Liveness::new(TICK).until(), None);
        assert_eq!(session().until(), Some(at(21_000)));
        assert!(session().lasts(at(11_000), Duration::from_secs(10)));
        assert!(!session().lasts(at(11_001), Duration::from_secs(10)));
    }

    #[test]
    fn answered_pings_prove_nothing_until_a_majority_has_logged_something_a_tick_later() {
        let mut session = session();
        for ping in 2..30 {
            session.answered(at(ping * 1_000), at(ping * 1_000 + 1));
        }
        assert_eq!(session.until(), Some(at(21_000)), "a follower that is cut off answers all of them");
        session.confirmed(at(29_500));
        assert_eq!(session.until(), Some(at(47_000)), "the one at 27 s was answered a tick before");
    }

    #[test]
    fn an_exchange_less_than_a_tick_ago_may_not_have_reached_the_leader() {
        let mut session = session();
        session.answered(at(5_000), at(5_001));
        session.confirmed(at(7_000));
        assert_eq!(session.until(), Some(at(21_000)));
        session.confirmed(at(7_001));
        assert_eq!(session.until(), Some(at(25_000)));
    }

    #[test]
    fn what_was_slow_to_be_answered_counts_from_its_answer() {
        let mut session = session();
        // It may have lain on the way for all of that time.
        session.answered(at(5_000), at(9_000));
        session.confirmed(at(9_100));
        assert_eq!(session.until(), Some(at(21_000)));
    }

    #[test]
    fn another_connection_asks_the_leader_and_a_majority_confirms_it() {
        let mut session = session();
        session.answered(at(5_000), at(5_001));
        session.reconnected(at(10_000));
        assert_eq!(session.until(), Some(at(21_000)), "a leader that was deposed says yes too");
        session.confirmed(at(10_100));
        assert_eq!(session.until(), Some(at(30_000)));
    }

    #[test]
    fn nothing_makes_it_shorter_and_what_is_remembered_is_bounded() {
        let mut session = session();
        session.confirmed(at(1_100));
        assert_eq!(session.until(), Some(at(21_000)));
        for millis in 2_000..40_000 {
            session.answered(at(millis), at(millis));
        }
        assert!(session.recent.len() <= PER_TICK as usize + 2, "{}", session.recent.len());
    }

    #[test]
    fn a_session_that_is_pinged_in_time_covers_each_renewal() {
        for lease in [100, 1_000, 15_000, 30_000, 600_000].map(Duration::from_millis) {
            assert_eq!(lease_for(timeout_for(lease, TICK), TICK), lease);
            let (timeout, every) = (timeout_for(lease, TICK), pings_every(lease));
            let mut session = Liveness::new(TICK);
            session.created(at(0), timeout);
            let mut now = at(0);
            for nth in 0..200 {
                now = now + every;
                session.answered(now, now + Duration::from_millis(5));
                if nth % 2 == 0 {
                    session.confirmed(now + Duration::from_millis(6));
                    assert!(session.lasts(now, lease), "{lease:?}");
                }
            }
        }
    }
}
