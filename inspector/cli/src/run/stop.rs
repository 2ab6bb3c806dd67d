//! When the command must be asked to stop, and when it must be gone. Pure.

use std::time::Duration;

use polylatch::{BootInstant, LostReason};

/// The command's group is killed this long before the lease ends, so that it is gone in time.
const KILL_MARGIN: Duration = Duration::from_millis(250);

/// Time for cleaning up when the lock belongs to another client already.
const GRACE_AFTER_LOSS: Duration = Duration::from_secs(2);

/// Longest time between two looks at the lease.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The validity of a lease, and how long it was when it was last extended.
///
/// The first lease may be much shorter than the renewed ones, so grace and margin are shares of the
/// present one: a lease that is renewed in time is never near its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    valid_until: BootInstant,
    length: Duration,
}

impl Window {
    pub(super) fn new(now: BootInstant, valid_until: BootInstant) -> Self {
        Self { valid_until, length: valid_until.since(now) }
    }

    /// Notes what the lease says now.
    pub(super) fn observe(&mut self, now: BootInstant, valid_until: BootInstant) {
        if valid_until != self.valid_until {
            *self = Self::new(now, valid_until);
        }
    }

    /// When the command's group gets SIGKILL.
    pub(super) fn kill_at(&self) -> BootInstant {
        self.valid_until - KILL_MARGIN.min(self.length / 10)
    }

    /// When the command gets SIGTERM: `grace` before the kill, but within the last third and a bit.
    /// Renewals start at a third, so by then they have failed for a third of the lease.
    pub(super) fn term_at(&self, grace: Duration) -> BootInstant {
        self.kill_at() - grace.min(self.length / 3)
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Let it run; look again at this instant.
    Run(BootInstant),
    /// Ask it to stop; kill it at this instant.
    Stop { kill_at: BootInstant },
    /// Kill it at once.
    Kill,
}

/// Judges a command that was not asked to stop yet.
pub(super) fn judge(now: BootInstant, window: &Window, lost: Option<LostReason>, grace: Duration) -> Verdict {
    if now >= window.kill_at() {
        return Verdict::Kill;
    }
    match lost {
        // These say that the time is over, whatever the window looks like.
        Some(LostReason::Expired | LostReason::HoldLimit | LostReason::NoProgress) => Verdict::Kill,
        Some(_) => Verdict::Stop { kill_at: window.kill_at().min(now + grace.min(GRACE_AFTER_LOSS)) },
        None if now >= window.term_at(grace) => Verdict::Stop { kill_at: window.kill_at() },
        None => Verdict::Run(window.term_at(grace).min(now + LOOK_EVERY.min(window.length / 8))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
    }

    /// A lease extended at 0 that ends at `end_ms`.
    fn window(end_ms: u64) -> Window {
        Window::new(at(0), at(end_ms))
    }

    #[test]
    fn a_lease_of_fifteen_seconds_stops_the_command_in_its_last_third() {
        let window = window(15_000);
        assert_eq!(judge(at(0), &window, None, GRACE), Verdict::Run(at(1_000)));
        assert_eq!(judge(at(9_700), &window, None, GRACE), Verdict::Run(at(9_750)));
        assert_eq!(judge(at(9_750), &window, None, GRACE), Verdict::Stop { kill_at: at(14_750) });
        assert_eq!(judge(at(14_750), &window, None, GRACE), Verdict::Kill);
    }

    #[test]
    fn the_kill_comes_before_the_end_and_the_term_before_the_kill() {
        for end_ms in [100, 300, 1_000, 3_000, 15_000, 600_000] {
            for grace_ms in [0, 1, 5_000, 60_000, 3_600_000] {
                let window = window(end_ms);
                let term = window.term_at(Duration::from_millis(grace_ms));
                assert!(term <= window.kill_at() && window.kill_at() < at(end_ms), "{end_ms} {grace_ms}");
                // Renewed at a third, with time for retries: a healthy lease never gets there.
                assert!(term >= at(end_ms / 2), "{end_ms} {grace_ms}");
            }
        }
    }

    #[test]
    fn no_grace_means_no_stop_before_the_kill() {
        let window = window(15_000);
        assert_eq!(judge(at(14_749), &window, None, Duration::ZERO), Verdict::Run(at(14_750)));
        assert_eq!(judge(at(14_750), &window, None, Duration::ZERO), Verdict::Kill);
    }

    #[test]
    fn an_extended_lease_starts_anew_and_an_unchanged_one_keeps_its_length() {
        let mut window = window(3_000);
        window.observe(at(1_000), at(3_000));
        assert_eq!(window, Window::new(at(0), at(3_000)));
        window.observe(at(1_010), at(16_010));
        assert_eq!(window.term_at(GRACE), at(16_010 - 250 - 5_000));
    }

    #[test]
    fn a_runner_that_was_paused_beyond_the_lease_kills_at_once() {
        let mut window = window(15_000);
        assert_eq!(judge(at(60_000), &window, None, GRACE), Verdict::Kill);
        // The lease cannot have become longer, and an instant in the past has no length.
        window.observe(at(60_000), at(14_000));
        assert_eq!(judge(at(60_000), &window, None, GRACE), Verdict::Kill);
    }

    #[test]
    fn a_loss_leaves_little_time_or_none() {
        let window = window(15_000);
        let lost = |reason| judge(at(1_000), &window, Some(reason), GRACE);
        assert_eq!(lost(LostReason::Broken), Verdict::Stop { kill_at: at(3_000) });
        assert_eq!(lost(LostReason::Superseded), Verdict::Stop { kill_at: at(3_000) });
        assert_eq!(lost(LostReason::Expired), Verdict::Kill);
        assert_eq!(lost(LostReason::HoldLimit), Verdict::Kill);
        let late = judge(at(14_000), &window, Some(LostReason::Superseded), GRACE);
        assert_eq!(late, Verdict::Stop { kill_at: at(14_750) });
    }
}
