//! When the watchdog has to look at which lease: a heap of instants with lazy removal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use crate::clock::BootInstant;

/// Renewals that are due within this window leave together.
pub(crate) const BATCH_WINDOW: Duration = Duration::from_millis(10);

/// How many leases one batch renews at most: one script call that stays well under a millisecond.
pub(crate) const BATCH_SIZE: usize = 250;

/// How many cohorts take turns within a third of a lease. Of 10 000 leases of ten seconds, 500 are renewed at once then,
/// six times a second.
pub(crate) const COHORTS_IN_TURN: u32 = 20;

/// The cohort of a lease that is granted to a client which holds this many already.
///
/// The leases of a cohort are renewed at the same instants. It has as many as one batch renews, so a client with
/// thousands of leases sends as few batches as one that renews them all at once.
pub(crate) fn cohort_of(held: usize) -> u32 {
    u32::try_from(held / BATCH_SIZE).unwrap_or(u32::MAX)
}

/// The instants at which leases, named by number, want to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Reverse<(BootInstant, u64)>>,
    /// The entry of each lease that counts; any other in the heap is stale.
    wanted: HashMap<u64, BootInstant>,
    /// Up to when the watchdog intends to sleep; an earlier entry has to wake it.
    asleep_until: Option<BootInstant>,
}

impl Schedule {
    /// Adds an instant for a lease. Returns whether the watchdog must be woken for it.
    ///
    /// A lease that will be looked at earlier anyway is not added again: it says then what it needs.
    pub(crate) fn add(&mut self, at: BootInstant, lease: u64) -> bool {
        if self.wanted.get(&lease).is_some_and(|before| *before <= at) {
            return false;
        }
        self.wanted.insert(lease, at);
        self.heap.push(Reverse((at, lease)));
        match self.asleep_until {
            // Within the window it would go out with the batch that is planned anyway.
            Some(until) if at + BATCH_WINDOW < until => {
                self.asleep_until = Some(at);
                true
            }
            _ => false,
        }
    }

    /// Takes the leases that are due at `now` or within the batch window after it.
    pub(crate) fn take_due(&mut self, now: BootInstant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(Reverse((at, lease))) = self.heap.peek().copied() {
            if at > now + BATCH_WINDOW / 2 {
                break;
            }
            self.heap.pop();
            if self.wanted.get(&lease) == Some(&at) {
                self.wanted.remove(&lease);
                due.push(lease);
            }
        }
        self.asleep_until = None;
        due
    }

    /// Takes a lease out.
    pub(crate) fn remove(&mut self, lease: u64) {
        self.wanted.remove(&lease);
    }

    /// Notes that the watchdog goes to sleep; returns until when, at most `longest` from now.
    ///
    /// The cap makes a watchdog whose timers stood still during a suspend look at the clock soon
    /// after the resume.
    pub(crate) fn fall_asleep(&mut self, now: BootInstant, longest: Duration) -> BootInstant {
        while let Some(Reverse((at, lease))) = self.heap.peek()
            && self.wanted.get(lease) != Some(at)
        {
            self.heap.pop();
        }
        let first = self.heap.peek().map(|Reverse((at, _))| *at);
        let until = first.map_or(now + longest, |at| at.max(now + BATCH_WINDOW / 2).min(now + longest));
        self.asleep_until = Some(until);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_due_within_the_window_leaves_together() {
        let mut schedule = Schedule::default();
        for (when, lease) in [(100, 1), (104, 2), (130, 3)] {
            schedule.add(at(when), lease);
        }
        assert_eq!(schedule.take_due(at(100)), [1, 2]);
        assert_eq!(schedule.fall_asleep(at(100), Duration::from_secs(9)), at(130));
        assert_eq!(schedule.take_due(at(130)), [3]);
        assert!(schedule.take_due(at(9_000)).is_empty());
    }

    #[test]
    fn a_lease_stands_in_the_schedule_once_and_not_after_its_removal() {
        let mut schedule = Schedule::default();
        schedule.add(at(100), 1);
        schedule.add(at(200), 1);
        schedule.add(at(50), 1);
        schedule.add(at(60), 2);
        schedule.remove(2);
        assert_eq!(schedule.fall_asleep(at(0), Duration::from_secs(9)), at(50));
        assert_eq!(schedule.take_due(at(60)), [1]);
        assert_eq!(schedule.fall_asleep(at(60), Duration::from_secs(9)), at(9_060));
        assert!(schedule.take_due(at(300)).is_empty());
    }

    #[test]
    fn only_an_earlier_instant_wakes_the_sleeper() {
        let mut schedule = Schedule::default();
        assert!(!schedule.add(at(500), 1), "it is awake");
        schedule.fall_asleep(at(0), Duration::from_secs(9));
        assert!(!schedule.add(at(600), 2));
        assert!(!schedule.add(at(495), 3), "it goes with the batch planned at 500");
        assert!(schedule.add(at(100), 4));
        assert!(!schedule.add(at(150), 4), "it is looked at earlier anyway");
    }

    #[test]
    fn sleep_is_capped_and_never_spins() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.fall_asleep(at(0), Duration::from_millis(500)), at(500));
        schedule.add(at(0), 1);
        assert!(schedule.fall_asleep(at(10), Duration::from_millis(500)) > at(10));
    }
}
