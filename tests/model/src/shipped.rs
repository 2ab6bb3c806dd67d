//! The shipped types beside the model: in every explored step of the full protocol they are asked the same question.
//!
//! The model is the larger of the two: its clients poll and renew whenever they like. So what is checked is a
//! refinement. A waiter of the core enters at most where the model's waiter enters, and does enter while half of the
//! window is left; a lease of the core lasts as long as the model's, to within a tick, and a lost one stays lost.
//!
//! What the model keeps is too small to hold the shipped types as they are, so they are made again for each step from
//! what the model's client knows: anchor, fence, and what is left of its window. The schedules (when a poll or a renewal
//! is due) are therefore not checked here.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::message::{Kind, Message};
use crate::policy::acquisition::{Acquisition, Action, Said, Terms, Wait};
use crate::policy::lease::{Lease, LeasePlan, LeaseState, RenewalOutcome};
use crate::policy::waiting::{WaitAnswer, WaitTimes};
use crate::rules::{Model, Rules};
use crate::state::{Client, Phase, State};
use crate::step::{Event, Successor, Violation};

/// Long against the flat margin of a shipped window, which so ends within the last tick of the model's.
const TICK: Duration = Duration::from_secs(100);

/// The present of every step, late enough for any age before it.
const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000_000_000);

fn ticks(count: u8) -> Duration {
    TICK * u32::from(count)
}

/// Compares one step with what the shipped types make of it.
///
/// # Errors
///
/// [`Violation::ShippedDiffers`] names the client.
pub(crate) fn follows(model: &Model, before: &State, next: &Successor) -> Result<(), Violation> {
    if model.rules != Rules::FULL {
        return Ok(());
    }
    let agree = |client: usize, agrees: bool| {
        if agrees { Ok(()) } else { Err(Violation::ShippedDiffers { client }) }
    };
    match next.event {
        Event::Deliver { message, enters } => {
            let Some(client) = before.user_of(model, message.owner) else { return Ok(()) };
            let (me, then) = (before.clients[client], next.state.clients[client]);
            let agrees = match me.phase {
                Phase::Idle => !enters,
                Phase::Waiting | Phase::Anchored => waiter_agrees(model, me, message, then, enters),
                Phase::Held => holder_agrees(me, message, then, model),
                Phase::Lost => !enters && loss_is_final(message, model),
            };
            agree(client, agrees)
        }
        Event::Tick { slow } => {
            let ticked = (0..before.client_count).filter(|client| slow >> client & 1 == 0);
            for client in ticked {
                let (me, then) = (before.clients[client], next.state.clients[client]);
                agree(client, tick_agrees(model, me, then))?;
            }
            // An answer that has aged is asked about now: one that is useless is never delivered.
            let answers = next.state.network.iter().filter(|message| message.kind == Kind::Held);
            for message in answers {
                let Some(client) = next.state.user_of(model, message.owner) else { continue };
                let enters = message.age < model.provisional_window();
                let waits = next.state.clients[client].phase.is_waiting();
                agree(client, !waits || grant_agrees(model, *message, enters))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An acquisition whose request, sent so long ago, is out.
fn asked(model: &Model, age: u8) -> Acquisition {
    let times = WaitTimes::every(TICK, model.entry_by_push);
    let first_lease = ticks(model.provisional_window());
    let terms = Terms { wait: Wait::Forever, times, first_lease, timeout: TICK };
    let sent_at = NOW - ticks(age);
    let mut acquisition = Acquisition::new(terms, sent_at, 1);
    let _ = acquisition.next(sent_at);
    acquisition
}

fn told_to_wait(model: &Model, age: u8, fence: u16) -> Acquisition {
    let mut acquisition = asked(model, age);
    let fence = u64::from(fence);
    acquisition.answered(
        NOW,
        Said::Wait(WaitAnswer { fence, position: None, holder_left: None, poll_within: None }),
    );
    acquisition
}

/// With what fence and from when it would hold.
fn entered(mut acquisition: Acquisition) -> Option<(u64, BootInstant)> {
    match acquisition.next(NOW) {
        Action::Hold { fence, sent_at, .. } => Some((fence, sent_at)),
        _ => None,
    }
}

fn waiter_agrees(model: &Model, me: Client, message: Message, then: Client, enters: bool) -> bool {
    let Message { kind, fence, age, .. } = message;
    match kind {
        Kind::Push => {
            let anchored = me.phase == Phase::Anchored;
            let mut acquisition =
                if anchored { told_to_wait(model, me.time, me.fence) } else { asked(model, 0) };
            if !anchored {
                acquisition.answered(NOW, Said::Unreachable);
            }
            acquisition.pushed_grant(u64::from(fence));
            push_agrees(model, acquisition, fence, me.time, enters)
        }
        Kind::Held => grant_agrees(model, message, enters),
        Kind::Wait => {
            let quiet = entered(told_to_wait(model, age, fence)).is_none();
            !enters && quiet && then.phase == Phase::Anchored && anchor_agrees(model, then)
        }
        // Answers to renewals are for holders.
        _ => !enters,
    }
}

fn grant_agrees(model: &Model, answer: Message, enters: bool) -> bool {
    let mut acquisition = asked(model, answer.age);
    let fence = u64::from(answer.fence);
    acquisition.answered(NOW, Said::Held { fence });
    entered(acquisition) == enters.then_some((fence, NOW - ticks(answer.age)))
}

/// What would come of a push now, of this fence and of the next.
fn anchor_agrees(model: &Model, me: Client) -> bool {
    let pushed = |fence| {
        let mut acquisition = told_to_wait(model, me.time, me.fence);
        acquisition.pushed_grant(u64::from(fence));
        acquisition
    };
    let in_window = model.entry_by_push && me.time < model.provisional_window();
    entered(pushed(me.fence)).is_none()
        && push_agrees(model, pushed(me.fence + 1), me.fence + 1, me.time, in_window)
}

fn tick_agrees(model: &Model, me: Client, then: Client) -> bool {
    match me.phase {
        Phase::Held => {
            let lost = matches!(held(me.time).judge(NOW + TICK), LeaseState::Lost(_));
            lost == (then.phase == Phase::Lost)
        }
        Phase::Anchored => anchor_agrees(model, then),
        Phase::Idle | Phase::Waiting | Phase::Lost => true,
    }
}

/// The shipped waiter enters on a push at most where the model's does, and does so in the first half of the window.
fn push_agrees(model: &Model, acquisition: Acquisition, fence: u16, age: u8, enters: bool) -> bool {
    let early = age * 2 <= model.provisional_window();
    match entered(acquisition) {
        Some(held) => enters && held == (u64::from(fence), NOW - ticks(age)),
        None => !(enters && early),
    }
}

/// A lease that lasts so many ticks from now.
fn held(left: u8) -> Lease {
    let first = ticks(left);
    let plan = LeasePlan {
        lease: first,
        first,
        renew: true,
        max_hold: None,
        beat_every: None,
        phase: Duration::ZERO,
        cohort: 0,
    };
    Lease::granted(plan, NOW, NOW, false, 1)
}

/// The length which the answer's renewal asked for.
fn asked_for(message: Message, model: &Model) -> Option<Duration> {
    match message.kind {
        Kind::Renewed => Some(ticks(model.lease_window())),
        Kind::Held => Some(ticks(model.provisional_window())),
        _ => None,
    }
}

fn holder_agrees(me: Client, message: Message, then: Client, model: &Model) -> bool {
    let mut lease = held(me.time);
    if let Some(length) = asked_for(message, model).filter(|_| message.fence == me.fence) {
        lease.renewal_done(NOW - ticks(message.age), length, NOW, RenewalOutcome::Extended);
    }
    let left = lease.valid_until().since(NOW);
    then.phase == Phase::Held && left <= ticks(then.time) && left + TICK > ticks(then.time)
}

fn loss_is_final(message: Message, model: &Model) -> bool {
    let mut lease = held(1);
    let lost = lease.judge(NOW + TICK);
    if let Some(length) = asked_for(message, model) {
        lease.renewal_done(NOW + TICK, length, NOW + TICK, RenewalOutcome::Extended);
    }
    matches!(lost, LeaseState::Lost(_)) && lease.judge(NOW + TICK) == lost
}
