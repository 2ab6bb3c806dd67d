//! One lease's life: `Held ⇄ Endangered → Released | Lost`, judged by the holder's own clock.
//!
//! The validity window is counted from before the request left: `valid_until = sent_at + lease ×
//! (1 − drift) − margin`. A reply can shorten it, never extend it. Whatever the store says or does
//! not say, the lease is lost once `now ≥ valid_until`.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::LostReason;
use crate::policy::backoff::Jitter;
use crate::policy::watchdog::{BATCH_WINDOW, COHORTS_IN_TURN};

/// Share of a lease given up for clocks that run at different rates: 1 %, as in the Redlock text.
const DRIFT: f64 = 0.01;

/// Flat part given up for timer granularity, on top of the drift.
const MARGIN: Duration = Duration::from_millis(2);

/// Returns until when a lease of this length may be relied on, if its request left at `sent_at`.
pub(crate) fn valid_until(sent_at: BootInstant, lease: Duration) -> BootInstant {
    sent_at + lease.mul_f64(1.0 - DRIFT).saturating_sub(MARGIN)
}

/// What a lease is, as far as its holder knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Held,
    /// Still valid, but no renewal was confirmed for half of the lease.
    Endangered,
    Released,
    Lost(LostReason),
}

impl LeaseState {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Released | Self::Lost(_))
    }

    /// Why the lease was lost, if it was.
    pub(crate) fn lost_reason(self) -> Option<LostReason> {
        match self {
            Self::Lost(reason) => Some(reason),
            Self::Held | Self::Endangered | Self::Released => None,
        }
    }
}

/// How a lease is kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeasePlan {
    /// Length of a renewed lease.
    pub lease: Duration,
    /// Length of the first lease; shorter where it is provisional.
    pub first: Duration,
    /// Whether the watchdog extends it at all.
    pub renew: bool,
    /// The lease never reaches beyond this long after the grant.
    pub max_hold: Option<Duration>,
    /// The lease never reaches beyond this long after the latest progress beat.
    pub beat_every: Option<Duration>,
    /// Shifts the instants at which this client renews against those of other clients.
    pub phase: Duration,
    /// Which of its client's cohorts it belongs to: [`cohort_of`](crate::policy::watchdog::cohort_of).
    pub cohort: u32,
}

impl LeasePlan {
    /// When to renew a lease that was confirmed at `anchor`: at a third, or up to a tenth of that
    /// earlier, at one of the instants that all leases of this length and client share. So hundreds
    /// of them go out in a few batches, and those of different clients do not go out together.
    ///
    /// Where a client holds more, each cohort beyond the first has instants of its own, a third of the lease apart: the
    /// first renewal may come at any time until then, and the next ones a third after each other. So thousands of
    /// leases that were granted at once do not keep the store busy all at once.
    fn renewal_after(&self, anchor: BootInstant, length: Duration) -> BootInstant {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (due, step, shift) = if self.cohort == 0 {
            (anchor + length / 3, length / 30, Duration::ZERO)
        } else {
            // One that left a little before its instant, with others, is not renewed at that instant once more.
            let due = anchor + length / 3 + BATCH_WINDOW.min(length / 60);
            (due, length / 3, length / 3 * (self.cohort % COHORTS_IN_TURN) / COHORTS_IN_TURN)
        };
        let step = nanos(step).max(1);
        let phase = (nanos(self.phase) % step + nanos(shift)) % step;
        let late = (due.as_nanos() + step - phase) % step;
        due - Duration::from_nanos(late)
    }
}

/// What the watchdog should do for a lease now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Extend it by this much.
    Renew(Duration),
    /// Nothing before this instant.
    Nothing(BootInstant),
    /// It is over; forget it.
    Over,
}

/// What came of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalOutcome {
    Extended,
    NotYours,
    Failed,
}

/// The state machine of one lease.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    plan: LeasePlan,
    state: LeaseState,
    granted_at: BootInstant,
    /// Send time of the latest request that the store confirmed.
    anchor: BootInstant,
    /// Length of the lease which that request asked for.
    anchored: Duration,
    valid_until: BootInstant,
    next_renewal: BootInstant,
    /// When the first try of the next renewal is due, or was.
    renewal_due: BootInstant,
    /// The first renewal comes early, for another reason than to extend the lease.
    early: bool,
    in_flight: bool,
    /// The holder is releasing it; the store has not answered yet.
    releasing: bool,
    /// The longest lease that the store was ever asked for.
    longest: Duration,
    /// Extensions by the holder: how many were begun, and the latest that the store confirmed.
    extensions: u32,
    extended: u32,
    /// The store may know the lease under another fence already; its answer is still out.
    converting: bool,
    failures: u32,
    renewals: u32,
    last_beat: BootInstant,
    jitter: Jitter,
}

impl Lease {
    /// A lease granted to a request that left at `sent_at`. With `at_once`, the first renewal is due
    /// within one batch window: the grant came as a push, and a failover may have lost it. A lock
    /// held for less than that window is released before its renewal would leave.
    pub(crate) fn granted(
        plan: LeasePlan,
        sent_at: BootInstant,
        now: BootInstant,
        at_once: bool,
        seed: u64,
    ) -> Self {
        let jitter = Jitter::seeded(seed);
        let next_renewal = if at_once { now + BATCH_WINDOW } else { plan.renewal_after(sent_at, plan.first) };
        let mut lease = Self {
            plan,
            state: LeaseState::Held,
            granted_at: now,
            anchor: sent_at,
            anchored: plan.first,
            valid_until: valid_until(sent_at, plan.first),
            next_renewal,
            renewal_due: next_renewal,
            early: false,
            in_flight: false,
            releasing: false,
            longest: plan.lease.max(plan.first),
            extensions: 0,
            extended: 0,
            converting: false,
            failures: 0,
            renewals: 0,
            last_beat: now,
            jitter,
        };
        lease.valid_until = lease.valid_until.min(lease.limit().0);
        lease
    }

    /// Lets the first renewal come at `at`, if it would come later. It asks for the first lease once
    /// more: a holder that ends soon after still blocks others no longer than that.
    pub(crate) fn renew_early(&mut self, at: BootInstant) {
        if at < self.next_renewal {
            self.next_renewal = at;
            self.renewal_due = at;
            self.early = true;
        }
    }

    /// A lease that goes on in another way: confirmed by a request that left at `sent_at`, for the
    /// first lease at least, and held since the same moment as before. Where no renewal follows it keeps the
    /// earlier deadline: a conversion shortens no lease, and that one may have been extended.
    pub(crate) fn continued(&self, sent_at: BootInstant, now: BootInstant) -> Self {
        let mut lease = Self::granted(self.plan, sent_at, now, false, sent_at.as_nanos());
        lease.granted_at = self.granted_at;
        lease.last_beat = self.last_beat;
        lease.renewals = self.renewals;
        lease.longest = self.longest;
        if !lease.plan.renew {
            lease.valid_until = lease.valid_until.max(self.valid_until);
        }
        lease.valid_until = lease.valid_until.min(lease.limit().0);
        lease
    }

    /// Judges the lease at `now`. Once over, it stays over.
    pub(crate) fn judge(&mut self, now: BootInstant) -> LeaseState {
        if self.state.is_over() {
            return self.state;
        }
        if now >= self.valid_until {
            self.state =
                LeaseState::Lost(if self.is_at_limit() { self.limit().1 } else { LostReason::Expired });
        } else if now >= self.endangered_at() {
            self.state = LeaseState::Endangered;
        } else {
            self.state = LeaseState::Held;
        }
        self.state
    }

    /// Says whether another caller may enter under this lease at `now`: it is neither at risk nor being released.
    pub(crate) fn is_sound(&self, now: BootInstant) -> bool {
        !self.state.is_over() && !self.releasing && now < self.valid_until && now < self.endangered_at()
    }

    /// Says what the watchdog should do at `now`.
    pub(crate) fn due(&mut self, now: BootInstant) -> Due {
        if self.judge(now).is_over() {
            return Due::Over;
        }
        let mut next = self.valid_until;
        if self.state == LeaseState::Held {
            next = next.min(self.endangered_at());
        }
        if self.in_flight || self.releasing || !(self.plan.renew || self.early) {
            return Due::Nothing(next);
        }
        // What ends the lease now is its limit; a renewal would change nothing.
        if self.is_at_limit() && !self.early {
            return Due::Nothing(next);
        }
        let wanted = self.wanted(now);
        if now >= self.next_renewal {
            return Due::Renew(wanted);
        }
        Due::Nothing(next.min(self.next_renewal))
    }

    /// Returns how long a renewal for `asked` that leaves at `now` may take, before it counts as not answered and is
    /// tried again. At least three tries fit between the first at a third of a lease and its end, and at least one
    /// more fits into whatever is left of the present lease, which may be the first, much shorter one.
    pub(crate) fn renewal_limit(&self, now: BootInstant, asked: Duration) -> Duration {
        (asked / 5).min(self.valid_until.since(now) / 3)
    }

    /// Notes that a renewal leaves now; returns how many there have been with it.
    pub(crate) fn renewal_sent(&mut self) -> u32 {
        self.in_flight = true;
        self.renewals + 1
    }

    /// Notes what came of a renewal for `asked` that left at `sent_at`.
    pub(crate) fn renewal_done(
        &mut self,
        sent_at: BootInstant,
        asked: Duration,
        now: BootInstant,
        outcome: RenewalOutcome,
    ) {
        self.in_flight = false;
        if self.judge(now).is_over() {
            return;
        }
        match outcome {
            RenewalOutcome::Extended => {
                self.renewals += 1;
                self.confirmed(sent_at, asked);
            }
            RenewalOutcome::NotYours if self.releasing || !self.converting => self.refused(),
            // One that was overtaken by a conversion is no loss: the answer to that tells, and the clock.
            RenewalOutcome::NotYours | RenewalOutcome::Failed => {
                let pause = (self.plan.lease / 20).min(Duration::from_secs(1)) * (1 << self.failures.min(2));
                // As for the time limit: the next try still has most of what is left.
                let pause = pause.min(self.valid_until.since(now) / 3);
                self.failures += 1;
                self.next_renewal = now + self.jitter.upper_half(pause);
            }
        }
        self.judge(now);
    }

    /// The store has extended the lease by a request that left at `sent_at`.
    fn confirmed(&mut self, sent_at: BootInstant, asked: Duration) {
        self.early = false;
        self.failures = 0;
        if sent_at > self.anchor {
            self.anchor = sent_at;
            self.anchored = asked;
        }
        // Never shorter than before: the store shortens no lease, and a late answer says nothing bad.
        self.valid_until = self.valid_until.max(valid_until(sent_at, asked)).min(self.limit().0);
        self.next_renewal = self.plan.renewal_after(self.anchor, self.anchored);
        self.renewal_due = self.next_renewal;
    }

    /// The store names another holder. After a release or a conversion has left that says nothing.
    fn refused(&mut self) {
        if !self.releasing && !self.converting {
            self.state = LeaseState::Lost(LostReason::Superseded);
        }
    }

    /// Notes that the holder wants another length; returns the number of this extension.
    pub(crate) fn extension_begun(&mut self, length: Duration) -> u32 {
        self.longest = self.longest.max(length);
        self.extensions += 1;
        self.extensions
    }

    /// Returns what to ask the store for, if an extension to `length` leaves now: its length, cut by the
    /// limits, and the number of the renewal; zero if the lease is not renewed automatically.
    pub(crate) fn extension_at(&self, now: BootInstant, length: Duration) -> (Duration, u32) {
        (self.cut(now, length), if self.plan.renew { self.renewals + 1 } else { 0 })
    }

    /// Notes what came of one request of an extension. Once confirmed, renewals use the new length, unless
    /// an extension that began later was confirmed before.
    pub(crate) fn extension_done(
        &mut self,
        number: u32,
        length: Duration,
        (sent_at, asked): (BootInstant, Duration),
        now: BootInstant,
        outcome: RenewalOutcome,
    ) {
        if self.judge(now).is_over() {
            return;
        }
        match outcome {
            RenewalOutcome::Extended => {
                if number > self.extended {
                    self.extended = number;
                    self.plan.lease = length;
                }
                self.renewals += u32::from(self.plan.renew);
                self.confirmed(sent_at, asked);
            }
            RenewalOutcome::NotYours => self.refused(),
            RenewalOutcome::Failed => {}
        }
        self.judge(now);
    }

    /// Returns the length of a renewed lease.
    pub(crate) fn length(&self) -> Duration {
        self.plan.lease
    }

    /// Returns the longest lease that the store was ever asked for.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Notes progress of the protected work.
    pub(crate) fn beat(&mut self, now: BootInstant) {
        if !self.judge(now).is_over() {
            self.last_beat = now;
        }
    }

    /// Notes that a release is under way. There is no way back: from when it has left, another client
    /// may hold the lock, whatever comes of the answer. Renewals stop.
    pub(crate) fn release_started(&mut self) {
        self.releasing = true;
    }

    /// Says whether a release is or was under way.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing
    }

    /// Notes that a conversion is under way: it may give the lease another fence.
    pub(crate) fn conversion_started(&mut self) {
        self.converting = true;
    }

    /// Notes that the conversion was answered.
    pub(crate) fn conversion_ended(&mut self) {
        self.converting = false;
    }

    /// Ends the lease because its holder released it. `false` if it was over already.
    pub(crate) fn released(&mut self, now: BootInstant) -> bool {
        if self.judge(now).is_over() {
            return false;
        }
        self.state = LeaseState::Released;
        true
    }

    /// Ends the lease for a reason that is known from outside.
    pub(crate) fn lose(&mut self, now: BootInstant, reason: LostReason) {
        if !self.judge(now).is_over() {
            self.state = LeaseState::Lost(reason);
        }
    }

    pub(crate) fn valid_until(&self) -> BootInstant {
        self.valid_until
    }

    /// Returns the state as of the latest judgement, without looking at a clock.
    pub(crate) fn last_judged(&self) -> LeaseState {
        self.state
    }

    pub(crate) fn granted_at(&self) -> BootInstant {
        self.granted_at
    }

    /// Returns when the renewal that is confirmed next was due at first, however often it was tried since.
    pub(crate) fn renewal_due(&self) -> BootInstant {
        self.renewal_due
    }

    pub(crate) fn renewals(&self) -> u32 {
        self.renewals
    }

    /// Returns by when the store itself will have let go, at the latest, if nothing more is sent.
    pub(crate) fn server_end(&self, now: BootInstant) -> BootInstant {
        now + self.longest
    }

    fn endangered_at(&self) -> BootInstant {
        if !self.plan.renew {
            return self.valid_until;
        }
        if self.is_at_limit() {
            // Nothing can extend it any more: the last third is the warning.
            return self.valid_until - self.anchored / 3;
        }
        self.anchor + self.anchored / 2
    }

    /// How long a renewal should ask for at `now`: the lease, cut by the limits.
    fn wanted(&self, now: BootInstant) -> Duration {
        self.cut(now, if self.early { self.plan.first } else { self.plan.lease })
    }

    /// Cuts a length that is asked for at `now` by the limits.
    fn cut(&self, now: BootInstant, length: Duration) -> Duration {
        let (limit, _) = self.limit();
        // `valid_until` of the result must not pass the limit, and the server's lease should end
        // soon after it: ask for just so much that drift and margin land on the limit.
        let reach = limit.since(now) + MARGIN;
        length.min(reach.div_f64(1.0 - DRIFT))
    }

    /// Says whether the lease reaches as far as its limits let it, but for drift, margin and batching.
    fn is_at_limit(&self) -> bool {
        let slack = MARGIN + BATCH_WINDOW + self.anchored.mul_f64(2.0 * DRIFT);
        self.limit().0.since(self.valid_until) <= slack
    }

    /// The instant beyond which this lease must not reach, and the reason told then.
    fn limit(&self) -> (BootInstant, LostReason) {
        let far = (BootInstant::from_nanos(u64::MAX), LostReason::Expired);
        let hold = self.plan.max_hold.map_or(far, |hold| (self.granted_at + hold, LostReason::HoldLimit));
        let beat = self.plan.beat_every.map_or(far, |every| (self.last_beat + every, LostReason::NoProgress));
        if beat.0 < hold.0 { beat } else { hold }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
