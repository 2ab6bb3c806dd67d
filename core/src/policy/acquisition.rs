//! One acquisition from its first request to its end: events in, the next action out.
//!
//! The driver carries the actions out (it sends requests, sleeps, and tells the caller) and reports what happened. It
//! decides nothing. When a push may be entered on is decided by [`crate::policy::waiting`].

use std::time::Duration;

use crate::clock::BootInstant;
use crate::policy::backoff::Backoff;
use crate::policy::lease::valid_until;
use crate::policy::waiting::{Next, WaitAnswer, WaitTimes, Waiting};

/// How long a request may take beyond the end of a wait, at least: one that leaves in time, or at once where the caller
/// does not wait, must have a chance to be answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A third of `timeout`, where that is more than a second: a slow store, for which `timeout` was raised, is slow here too.
const PART_OF_TIMEOUT: u32 = 3;

/// The first pause after a request that failed. The longest is the polling interval.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How long an acquisition waits for a lock that is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Asks once and is not queued.
    No,
    /// Also of zero: then it is queued for the time of one request.
    For(Duration),
    Forever,
}

/// What the caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub wait: Wait,
    pub times: WaitTimes,
    /// Length of the lease that a grant starts with.
    pub first_lease: Duration,
    /// How long one request may take.
    pub timeout: Duration,
}

/// What the store answered, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Held {
        fence: u64,
    },
    Wait(WaitAnswer),
    /// The name is in use as another kind of lock.
    OtherKind,
    /// No grants before this time has passed.
    Withheld {
        left: Duration,
    },
    /// Free, but in lock-delay; at most for this long, if that is known.
    LockDelay {
        left: Option<Duration>,
    },
    /// The store could not be asked or did not answer in time; asking again may help.
    Unreachable,
    /// It refused, and asking again does not help.
    Refused,
}

/// Why an acquisition ended without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Another client has it, and the caller does not wait.
    NotNow,
    /// The wait is over. The latest answer, if there was one, was to wait.
    TimedOut,
    /// The wait is over, and the lock is in lock-delay.
    TimedOutInLockDelay(Option<Duration>),
    /// The latest answer was this.
    OtherKind,
    Withheld(Duration),
    LockDelay(Option<Duration>),
    /// The latest request failed.
    Failed,
    /// The grant was confirmed only after its window had passed.
    TooSlow,
    /// The client was closed.
    Closed,
}

/// What an acquisition that ended without the lock may have left at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    Nothing,
    /// A place in the queue. It is left before the caller is told, so that the caller's next request does not meet it.
    Place,
    /// A place in the queue or a grant, perhaps: undone in the background.
    Unknown,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask the store, and wait for its answer for at most this long.
    Ask { limit: Duration },
    /// Nothing until this instant, a push, or the client's closing.
    Sleep { until: BootInstant },
    /// The lock is held with this fence. Its window counts from the sending of the request that proves it.
    Hold { fence: u64, sent_at: BootInstant, pushed: bool },
    /// The acquisition has ended without the lock.
    End { end: End, leaves: Leaves },
}

/// The latest that the store let a waiter know, for the end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Latest {
    Nothing,
    Withheld(Duration),
    LockDelay(Option<Duration>),
    Failed,
}

/// One acquisition.
#[derive(Debug)]
pub(crate) struct Acquisition {
    terms: Terms,
    began: BootInstant,
    deadline: Option<BootInstant>,
    waiting: Waiting,
    backoff: Backoff,
    /// When the request left whose answer is out.
    sent_at: Option<BootInstant>,
    asked: bool,
    latest: Latest,
    /// Final: later events change nothing.
    decided: Option<Action>,
}

impl Acquisition {
    pub(crate) fn new(terms: Terms, now: BootInstant, seed: u64) -> Self {
        let deadline = match terms.wait {
            Wait::No => Some(now),
            Wait::For(wait) => Some(now + wait),
            Wait::Forever => None,
        };
        Self {
            terms,
            began: now,
            deadline,
            waiting: Waiting::new(terms.times, terms.first_lease, deadline, now, seed),
            backoff: Backoff::new(FIRST_PAUSE, terms.times.near, seed),
            sent_at: None,
            asked: false,
            latest: Latest::Nothing,
            decided: None,
        }
    }

    /// Whether the caller waits, so that its requests are queued.
    pub(crate) fn waits(&self) -> bool {
        self.terms.wait != Wait::No
    }

    /// How long the caller still waits; `None` if it waits without a limit.
    pub(crate) fn left(&self, now: BootInstant) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(now))
    }

    /// How long a request that leaves at `now` may take. What came before the first one is part of its time.
    pub(crate) fn request_limit(&self, now: BootInstant) -> Duration {
        let from = if self.asked { now } else { self.began };
        after_own_releases(request_limit(self.terms.timeout, self.deadline, from), now.since(from))
    }

    /// Decides what to do at `now`. An [`Action::Ask`] leaves at `now`, and nothing is decided before its answer.
    pub(crate) fn next(&mut self, now: BootInstant) -> Action {
        if let Some(action) = self.decided {
            return action;
        }
        // The first request comes before any thought of giving up: a wait of zero asks once.
        let next = if self.asked { self.waiting.next(now) } else { Next::Poll };
        match next {
            Next::Poll => {
                let limit = self.request_limit(now);
                self.asked = true;
                self.sent_at = Some(now);
                Action::Ask { limit }
            }
            Next::Sleep(until) => Action::Sleep { until },
            Next::Enter { fence, anchor } => {
                self.decide(Action::Hold { fence, sent_at: anchor, pushed: true })
            }
            Next::GiveUp => self.give_up(),
        }
    }

    /// Notes the answer to the latest request, or that there is none.
    pub(crate) fn answered(&mut self, now: BootInstant, said: Said) {
        let Some(sent_at) = self.sent_at.take().filter(|_| self.decided.is_none()) else { return };
        let near = self.terms.times.near;
        match said {
            Said::Held { fence } => {
                if now < valid_until(sent_at, self.terms.first_lease) {
                    self.decide(Action::Hold { fence, sent_at, pushed: false });
                } else if self.deadline.is_some_and(|deadline| now >= deadline) {
                    self.end(End::TooSlow, Leaves::Unknown);
                }
                // Otherwise the next request, which leaves at once, confirms it.
            }
            Said::Wait(answer) => {
                if !self.waits() {
                    self.end(End::NotNow, Leaves::Nothing);
                }
                self.latest = Latest::Nothing;
                self.waiting.told_to_wait(sent_at, now, answer);
            }
            Said::OtherKind => self.end(End::OtherKind, Leaves::Unknown),
            Said::Withheld { left } => {
                if !self.waits() {
                    self.end(End::Withheld(left), Leaves::Nothing);
                }
                self.latest = Latest::Withheld(left);
                self.waiting.could_not_ask(now, left.min(near));
            }
            Said::LockDelay { left } => {
                if !self.waits() {
                    self.end(End::LockDelay(left), Leaves::Nothing);
                }
                self.latest = Latest::LockDelay(left);
                self.waiting.could_not_ask(now, left.map_or(near, |left| left.min(near)));
            }
            Said::Unreachable if self.waits() => {
                self.latest = Latest::Failed;
                self.waiting.could_not_ask(now, self.backoff.delay());
            }
            Said::Unreachable | Said::Refused => self.end(End::Failed, Leaves::Unknown),
        }
    }

    /// Notes a pushed grant for this acquisition.
    pub(crate) fn pushed_grant(&mut self, fence: u64) {
        self.waiting.pushed_grant(fence);
    }

    /// Notes that something may have changed (a hint, a new subscription): ask at once.
    pub(crate) fn hinted(&mut self, now: BootInstant) {
        self.waiting.hinted(now);
    }

    /// Notes that the client was closed.
    pub(crate) fn closed(&mut self) {
        if self.decided.is_none() {
            self.end(End::Closed, Leaves::Unknown);
        }
    }

    fn give_up(&mut self) -> Action {
        let (end, leaves) = match self.latest {
            Latest::Nothing => (End::TimedOut, Leaves::Place),
            Latest::LockDelay(left) => (End::TimedOutInLockDelay(left), Leaves::Place),
            Latest::Withheld(left) => (End::Withheld(left), Leaves::Unknown),
            Latest::Failed => (End::Failed, Leaves::Unknown),
        };
        self.decide(Action::End { end, leaves })
    }

    fn end(&mut self, end: End, leaves: Leaves) {
        self.decide(Action::End { end, leaves });
    }

    fn decide(&mut self, action: Action) -> Action {
        *self.decided.insert(action)
    }
}

/// The time limit of a request that leaves at `now` for a caller who waits until `deadline`.
pub(crate) fn request_limit(timeout: Duration, deadline: Option<BootInstant>, now: BootInstant) -> Duration {
    let at_least = ANSWER_WITHIN.max(timeout / PART_OF_TIMEOUT);
    deadline.map_or(timeout, |deadline| timeout.min(deadline.since(now).max(at_least)))
}

/// How long a request waits at most for its own client's releases of the lock to be answered: a quarter of the time that
/// it may take itself. A store that answers at all usually does so long before.
pub(crate) fn behind_own_release(request_limit: Duration) -> Duration {
    request_limit / 4
}

/// What is left of that time for the request itself after such a wait: three quarters at least, also for a process that
/// did not run meanwhile.
pub(crate) fn after_own_releases(request_limit: Duration, waited: Duration) -> Duration {
    request_limit - waited.min(behind_own_release(request_limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);
    const TIMEOUT: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(0) + ms(millis)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn terms(wait: Wait) -> Terms {
        let times = WaitTimes::every(Duration::from_secs(1), true);
        Terms { wait, times, first_lease: LEASE, timeout: TIMEOUT }
    }

    /// Has sent its first request at 0.
    fn asked(wait: Wait) -> Acquisition {
        let mut acquisition = Acquisition::new(terms(wait), at(0), 1);
        assert!(matches!(acquisition.next(at(0)), Action::Ask { .. }));
        acquisition
    }

    fn told(fence: u64) -> Said {
        Said::Wait(WaitAnswer { fence, position: Some(0), holder_left: None, poll_within: None })
    }

    fn ended(end: End, leaves: Leaves) -> Action {
        Action::End { end, leaves }
    }

    #[test]
    fn what_came_before_the_first_request_is_part_of_its_time_and_leaves_it_most() {
        for (first_at, limit) in [(0, 1_000), (200, 800), (250, 750), (60_000, 750)] {
            let mut acquisition = Acquisition::new(terms(Wait::No), at(0), 1);
            assert_eq!(acquisition.next(at(first_at)), Action::Ask { limit: ms(limit) }, "at {first_at}");
        }
        let mut waits = Acquisition::new(terms(Wait::Forever), at(0), 1);
        assert_eq!(waits.next(at(500)), Action::Ask { limit: ms(2_500) });
        waits.answered(at(600), Said::Unreachable);
        waits.hinted(at(700));
        assert_eq!(waits.next(at(5_000)), Action::Ask { limit: TIMEOUT }, "later ones have all of it");
    }

    #[test]
    fn a_grant_counts_from_the_sending_of_its_request() {
        let mut acquisition = asked(Wait::Forever);
        acquisition.answered(at(700), Said::Held { fence: 7 });
        let held = Action::Hold { fence: 7, sent_at: at(0), pushed: false };
        assert_eq!(acquisition.next(at(700)), held);
        // Final, whatever comes later.
        acquisition.closed();
        acquisition.pushed_grant(9);
        acquisition.answered(at(800), Said::Refused);
        assert_eq!(acquisition.next(at(9_000)), held);
    }

    #[test]
    fn a_grant_that_took_longer_than_its_window_is_confirmed_or_too_slow() {
        let mut waits = asked(Wait::For(ms(10_000)));
        waits.answered(at(2_968), Said::Held { fence: 7 });
        assert_eq!(waits.next(at(2_968)), Action::Ask { limit: TIMEOUT });
        waits.answered(at(3_000), Said::Held { fence: 7 });
        assert_eq!(waits.next(at(3_000)), Action::Hold { fence: 7, sent_at: at(2_968), pushed: false });
        let mut at_once = asked(Wait::No);
        at_once.answered(at(2_968), Said::Held { fence: 7 });
        assert_eq!(at_once.next(at(2_968)), ended(End::TooSlow, Leaves::Unknown));
    }

    #[test]
    fn a_caller_who_does_not_wait_asks_once_and_leaves_nothing() {
        let left = ms(900);
        for (said, end, leaves) in [
            (told(7), End::NotNow, Leaves::Nothing),
            (Said::Withheld { left }, End::Withheld(left), Leaves::Nothing),
            (Said::LockDelay { left: Some(left) }, End::LockDelay(Some(left)), Leaves::Nothing),
            (Said::OtherKind, End::OtherKind, Leaves::Unknown),
            (Said::Unreachable, End::Failed, Leaves::Unknown),
            (Said::Refused, End::Failed, Leaves::Unknown),
        ] {
            let mut acquisition = Acquisition::new(terms(Wait::No), at(50), 1);
            assert!(!acquisition.waits());
            assert_eq!(acquisition.next(at(50)), Action::Ask { limit: ANSWER_WITHIN });
            acquisition.answered(at(51), said);
            assert_eq!(acquisition.next(at(51)), ended(end, leaves), "{said:?}");
        }
    }

    #[test]
    fn a_wait_that_is_over_says_the_latest_that_the_store_said() {
        let left = ms(900);
        for (said, end, leaves) in [
            (told(7), End::TimedOut, Leaves::Place),
            (Said::LockDelay { left: None }, End::TimedOutInLockDelay(None), Leaves::Place),
            (Said::Withheld { left }, End::Withheld(left), Leaves::Unknown),
            (Said::Unreachable, End::Failed, Leaves::Unknown),
        ] {
            for before in [told(6), Said::Unreachable, Said::Withheld { left }] {
                let mut acquisition = asked(Wait::For(ms(2_000)));
                acquisition.answered(at(1), before);
                acquisition.hinted(at(2));
                while !matches!(acquisition.next(at(30)), Action::Ask { .. }) {
                    acquisition.hinted(at(30));
                }
                acquisition.answered(at(31), said);
                assert_eq!(acquisition.next(at(2_000)), ended(end, leaves), "{before:?}, then {said:?}");
            }
        }
    }

    #[test]
    fn a_refusal_ends_a_wait_and_an_outage_does_not() {
        let mut refused = asked(Wait::Forever);
        refused.answered(at(1), Said::Refused);
        assert_eq!(refused.next(at(1)), ended(End::Failed, Leaves::Unknown));
        let mut away = asked(Wait::Forever);
        let mut now = at(1);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            away.answered(now, Said::Unreachable);
            let Action::Sleep { until } = away.next(now) else { panic!("must pause") };
            pauses.push(until.since(now));
            now = until;
            assert_eq!(away.next(now), Action::Ask { limit: TIMEOUT });
        }
        assert!(pauses[0] <= FIRST_PAUSE && pauses[0] >= FIRST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= ms(1_000)) && pauses[11] >= ms(500), "{pauses:?}");
    }

    #[test]
    fn a_store_that_withholds_grants_is_asked_again_when_it_may_grant() {
        for said in [Said::Withheld { left: ms(200) }, Said::LockDelay { left: Some(ms(200)) }] {
            let mut acquisition = asked(Wait::Forever);
            acquisition.answered(at(1), said);
            assert_eq!(acquisition.next(at(1)), Action::Sleep { until: at(201) }, "{said:?}");
        }
        let mut acquisition = asked(Wait::Forever);
        acquisition.answered(at(1), Said::Withheld { left: ms(60_000) });
        assert_eq!(acquisition.next(at(1)), Action::Sleep { until: at(1_001) }, "as often as it polls");
    }

    #[test]
    fn a_push_is_entered_and_a_closed_client_ends_the_wait() {
        let mut pushed = asked(Wait::Forever);
        pushed.answered(at(5), told(7));
        pushed.pushed_grant(8);
        assert_eq!(pushed.next(at(300)), Action::Hold { fence: 8, sent_at: at(0), pushed: true });
        let mut closed = asked(Wait::Forever);
        closed.answered(at(5), told(7));
        closed.closed();
        assert_eq!(closed.next(at(6)), ended(End::Closed, Leaves::Unknown));
    }

    #[test]
    fn a_request_near_the_end_of_a_wait_has_a_second_or_a_third_of_the_timeout_to_be_answered() {
        assert_eq!(request_limit(TIMEOUT, None, at(0)), TIMEOUT);
        assert_eq!(request_limit(TIMEOUT, Some(at(3_000)), at(100)), ms(2_900));
        assert_eq!(request_limit(TIMEOUT, Some(at(3_000)), at(2_900)), ANSWER_WITHIN);
        assert_eq!(request_limit(ms(300), Some(at(3_000)), at(2_900)), ms(300));
        // A caller who does not wait, of a store that was said to be slow.
        assert_eq!(request_limit(ms(30_000), Some(at(0)), at(0)), ms(10_000));
        assert_eq!(request_limit(ms(30_000), Some(at(20_000)), at(0)), ms(20_000));
    }
}
