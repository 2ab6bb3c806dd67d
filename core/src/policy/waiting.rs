//! What a waiter does next: poll, enter on a push, sleep, or give up.
//!
//! Three wake sources, one loop: a grant or hint pushed by the store, the known end of the current
//! lease, and a jittered back-stop. The back-stop alone is correct; the push only makes it fast.
//!
//! A waiter may enter on a push alone, without asking the store, only under these rules (each was
//! shown necessary by a counterexample in the model check under `tests/model`):
//!
//! - R1: every acquisition has a fresh random owner token.
//! - R2: the anchor is the *send* time of the latest poll that was answered "wait".
//! - R3: the push is mine, and its fence is above the fence of that answer.
//! - R4: the window `valid_until(anchor, first lease)` has not passed. Nor is it about to pass: the first renewal has to be
//!   confirmed within it, or the lease is lost as soon as it is held.
//! - R5: a renewal leaves at once (the lease is made with its first renewal due).

use std::time::Duration;

use crate::clock::BootInstant;
use crate::policy::backoff::Jitter;
use crate::policy::lease::valid_until;

/// The share of the first lease that must be left for entering on a push, as one part in so many. Waiters far back poll
/// no more often than a first lease lasts.
const LEFT_TO_ENTER: u32 = 3;

/// How eagerly waiters ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitTimes {
    /// Poll and heartbeat interval of the first waiters in the queue.
    pub near: Duration,
    /// The same further back, where a hand-off is not imminent.
    pub far: Duration,
    /// A push may be trusted under R1–R5; otherwise it only triggers a poll.
    pub enter_on_push: bool,
}

impl WaitTimes {
    /// Waiters before this position count as near.
    pub(crate) const NEAR_POSITIONS: u32 = 4;

    pub(crate) fn every(near: Duration, enter_on_push: bool) -> Self {
        Self { near, far: near * 3, enter_on_push }
    }

    /// How long the store keeps a near waiter in the queue without a heartbeat: 3.5 polls.
    pub(crate) fn near_heartbeat(&self) -> Duration {
        self.near * 7 / 2
    }

    /// The same for waiters further back.
    pub(crate) fn far_heartbeat(&self) -> Duration {
        self.far * 7 / 2
    }
}

/// What the store said to a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitAnswer {
    /// The fence counter when the answer was given.
    pub fence: u64,
    /// Position in the queue, 0 for the first; `None` where the store keeps no order.
    pub position: Option<u32>,
    /// What is left of the current holder's lease, if the store knows.
    pub holder_left: Option<Duration>,
    /// How long this waiter may be silent, if the store is stricter than the usual interval.
    pub poll_within: Option<Duration>,
}

/// How soon the first in the queue asks again while another library, which notifies no client of a release, holds the
/// lock or may take it: about as often as such libraries ask, and more often once it has waited for longer than its turn
/// should take.
pub(crate) fn among_pollers(waited: Duration, seed: u64) -> Duration {
    let most = match waited.as_millis() {
        0..200 => 100,
        // Several of them that ask every 10 ms would win nearly always.
        200..600 => 4,
        600..5_000 => 10,
        5_000..30_000 => 20,
        // A long job rather than many short ones.
        _ => 100,
    };
    Jitter::seeded(seed).upper_half(Duration::from_millis(most))
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Poll,
    /// Enter with this fence; the validity counts from this send time.
    Enter {
        fence: u64,
        anchor: BootInstant,
    },
    Sleep(BootInstant),
    GiveUp,
}

/// The waiting of one acquisition.
#[derive(Debug)]
pub(crate) struct Waiting {
    times: WaitTimes,
    first_lease: Duration,
    deadline: Option<BootInstant>,
    anchor: Option<(BootInstant, u64)>,
    pushed: Option<u64>,
    next_poll: BootInstant,
    jitter: Jitter,
}

impl Waiting {
    pub(crate) fn new(
        times: WaitTimes,
        first_lease: Duration,
        deadline: Option<BootInstant>,
        now: BootInstant,
        seed: u64,
    ) -> Self {
        Self {
            times,
            first_lease,
            deadline,
            anchor: None,
            pushed: None,
            next_poll: now,
            jitter: Jitter::seeded(seed),
        }
    }

    /// Notes a "wait" answered to a poll that left at `sent_at`.
    pub(crate) fn told_to_wait(&mut self, sent_at: BootInstant, now: BootInstant, answer: WaitAnswer) {
        self.anchor = Some((sent_at, answer.fence));
        // A push older than this answer is about a grant that has already ended.
        self.pushed = self.pushed.filter(|fence| *fence > answer.fence);
        let near = answer.position.is_none_or(|position| position < WaitTimes::NEAR_POSITIONS);
        let mut pause = self.jitter.tenth(if near { self.times.near } else { self.times.far });
        if let Some(within) = answer.poll_within {
            pause = pause.min(within);
        }
        // The first in the queue also asks when the lease it saw has ended: no other waiter will. A little
        // later than told, because stores expire keys on their next tick.
        if answer.position.is_none_or(|position| position == 0)
            && let Some(left) = answer.holder_left
        {
            pause = pause.min(left + Duration::from_millis(2));
        }
        self.next_poll = now + pause;
    }

    /// Notes that the store could not be asked; ask again after `pause`.
    pub(crate) fn could_not_ask(&mut self, now: BootInstant, pause: Duration) {
        self.next_poll = now + pause;
    }

    /// Notes a pushed grant for this acquisition.
    pub(crate) fn pushed_grant(&mut self, fence: u64) {
        self.pushed = Some(self.pushed.map_or(fence, |before| before.max(fence)));
    }

    /// Notes that something may have changed (a hint, a new subscription): ask at once.
    pub(crate) fn hinted(&mut self, now: BootInstant) {
        self.next_poll = self.next_poll.min(now);
    }

    /// Decides what to do at `now`.
    pub(crate) fn next(&mut self, now: BootInstant) -> Next {
        if let Some(fence) = self.pushed.take() {
            if self.times.enter_on_push
                && let Some((anchor, seen)) = self.anchor
                && fence > seen
                && now + self.first_lease / LEFT_TO_ENTER < valid_until(anchor, self.first_lease)
            {
                return Next::Enter { fence, anchor };
            }
            return Next::Poll;
        }
        if let Some(deadline) = self.deadline
            && now >= deadline
        {
            return Next::GiveUp;
        }
        if now >= self.next_poll {
            return Next::Poll;
        }
        Next::Sleep(self.deadline.map_or(self.next_poll, |deadline| deadline.min(self.next_poll)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_millis(millis)
    }

    fn times() -> WaitTimes {
        WaitTimes::every(Duration::from_secs(1), true)
    }

    fn answer(fence: u64, position: u32) -> WaitAnswer {
        WaitAnswer { fence, position: Some(position), holder_left: None, poll_within: None }
    }

    fn waiting() -> Waiting {
        Waiting::new(times(), LEASE, Some(at(10_000)), at(0), 1)
    }

    #[test]
    fn a_waiter_polls_first_and_then_sleeps_about_one_interval() {
        let mut waiting = waiting();
        assert_eq!(waiting.next(at(0)), Next::Poll);
        waiting.told_to_wait(at(0), at(1), answer(7, 0));
        let Next::Sleep(until) = waiting.next(at(1)) else { panic!("must sleep") };
        assert!(until >= at(901) && until <= at(1_101), "{until:?}");
        assert_eq!(waiting.next(until), Next::Poll);
    }

    #[test]
    fn who_waits_for_another_library_asks_more_often_after_a_while() {
        let most =
            |waited| (0..50).map(|seed| among_pollers(Duration::from_millis(waited), seed)).max().unwrap();
        let least =
            |waited| (0..50).map(|seed| among_pollers(Duration::from_millis(waited), seed)).min().unwrap();
        assert!(most(0) <= Duration::from_millis(100) && least(0) >= Duration::from_millis(50));
        assert!(most(200) <= Duration::from_millis(4) && least(200) >= Duration::from_millis(2));
        assert!(most(600) <= Duration::from_millis(10) && least(600) >= Duration::from_millis(5));
        assert!(least(60_000) >= Duration::from_millis(50));
    }

    #[test]
    fn waiters_far_back_ask_less_often() {
        let mut waiting = waiting();
        waiting.told_to_wait(at(0), at(0), answer(7, 4));
        let Next::Sleep(until) = waiting.next(at(0)) else { panic!("must sleep") };
        assert!(until >= at(2_700));
    }

    #[test]
    fn the_first_waiter_asks_when_the_lease_it_saw_has_ended() {
        let told = WaitAnswer { holder_left: Some(Duration::from_millis(200)), ..answer(7, 0) };
        let mut first = waiting();
        first.told_to_wait(at(0), at(0), told);
        assert_eq!(first.next(at(0)), Next::Sleep(at(202)));
        let mut second = waiting();
        second.told_to_wait(at(0), at(0), WaitAnswer { position: Some(1), ..told });
        assert_ne!(second.next(at(0)), Next::Sleep(at(202)));
    }

    #[test]
    fn a_push_is_entered_with_the_send_time_of_the_last_poll_as_anchor() {
        let mut waiting = waiting();
        waiting.told_to_wait(at(100), at(150), answer(7, 0));
        waiting.pushed_grant(8);
        assert_eq!(waiting.next(at(400)), Next::Enter { fence: 8, anchor: at(100) });
        // A third of the lease is left, in which its first renewal can be confirmed.
        waiting.pushed_grant(8);
        assert_eq!(waiting.next(at(2_067)), Next::Enter { fence: 8, anchor: at(100) });
    }

    #[test]
    fn a_push_that_breaks_a_rule_only_triggers_a_poll() {
        type Prepare = fn(&mut Waiting);
        let cases: [(&str, Prepare, u64); 5] = [
            ("no anchor", |_| {}, 1),
            ("fence not above the answer's", |w| w.told_to_wait(at(0), at(1), answer(8, 0)), 10),
            ("window passed", |w| w.told_to_wait(at(0), at(1), answer(7, 0)), 2_968),
            ("no time left to renew", |w| w.told_to_wait(at(0), at(1), answer(7, 0)), 1_968),
            (
                "switched off",
                |w| {
                    w.times.enter_on_push = false;
                    w.told_to_wait(at(0), at(1), answer(7, 0));
                },
                10,
            ),
        ];
        for (what, prepare, now) in cases {
            let mut waiting = waiting();
            prepare(&mut waiting);
            waiting.pushed_grant(8);
            assert_eq!(waiting.next(at(now)), Next::Poll, "{what}");
        }
    }

    #[test]
    fn a_push_older_than_the_latest_answer_is_forgotten() {
        let mut waiting = waiting();
        waiting.pushed_grant(6);
        waiting.told_to_wait(at(0), at(1), answer(7, 0));
        assert!(matches!(waiting.next(at(1)), Next::Sleep(_)));
    }

    #[test]
    fn a_waiter_gives_up_at_its_deadline_but_takes_a_grant_that_is_already_there() {
        let mut waiting = waiting();
        waiting.told_to_wait(at(9_500), at(9_500), answer(7, 0));
        assert_eq!(waiting.next(at(9_500)), Next::Sleep(at(10_000)));
        assert_eq!(waiting.next(at(10_000)), Next::GiveUp);
        waiting.pushed_grant(8);
        assert!(matches!(waiting.next(at(10_000)), Next::Enter { .. }));
    }

    #[test]
    fn a_hint_asks_at_once_and_an_outage_backs_off() {
        let mut waiting = waiting();
        waiting.told_to_wait(at(0), at(0), answer(7, 0));
        waiting.hinted(at(5));
        assert_eq!(waiting.next(at(5)), Next::Poll);
        waiting.could_not_ask(at(5), Duration::from_millis(40));
        assert_eq!(waiting.next(at(5)), Next::Sleep(at(45)));
    }

    #[test]
    fn a_heartbeat_outlives_three_polls() {
        assert!(times().near_heartbeat() >= 3 * times().near);
        assert!(times().far_heartbeat() >= 3 * times().far);
    }
}
