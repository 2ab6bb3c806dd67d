//! Holders and waiters that are killed or paused: who has the lock next, and who is told. The same
//! for every store.

use std::time::Duration;

use polylatch_test_services::wait_until;

use crate::look::{seen, wait_for_line};
use crate::process::{SOON, Worker};
use crate::record::{Record, Verdict};
use crate::stage::Stage;
use crate::{boot_nanos, size};

/// Defaults of the library: first lease and poll interval; and what is allowed on top.
pub const C: Duration = Duration::from_secs(3);
pub const P: Duration = Duration::from_secs(1);
pub const SLACK: Duration = Duration::from_millis(250);

/// A test for every scenario. The function given runs one on a stage of its own.
#[macro_export]
macro_rules! scenarios {
    ($on_stage:ident) => {
        $crate::scenarios!(@each $on_stage;
            the_next_waiter_follows_a_holder_killed_under_its_first_lease
            the_next_waiter_follows_a_holder_killed_after_a_renewal
            a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused
            a_dead_waiter_at_the_head_of_the_queue_is_skipped
            a_waiter_that_was_granted_during_a_pause_does_not_enter_late
        );
    };
    (@each $on_stage:ident; $($scenario:ident)*) => {
        $(
            #[test]
            fn $scenario() {
                $on_stage($crate::scenarios::$scenario);
            }
        )*
    };
}

/// The time between two moments of the boot clock.
pub fn since(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// A holder killed before its first renewal: the next one enters within C + P.
#[track_caller]
pub fn the_next_waiter_follows_a_holder_killed_under_its_first_lease(stage: &Stage) {
    let mut holder = stage.worker("holder", "");
    let mut waiter = stage.worker("waiter", "");
    holder.order("acquire 0 holder");
    let (first, _) = holder.entered(0, SOON);
    // Its first renewal is a second away, and on a busy host the other one needs longer to queue.
    let killed = boot_nanos();
    holder.pause();
    waiter.order("acquire 0 waiter");
    wait_for_line(&stage.client, 0, &["waiter"]);
    let view = seen(&stage.client, 0);
    holder.kill();
    assert_eq!(view.holders[0].renewals, Some(0), "the lease was to be the first one");
    let (second, entered) = waiter.entered(0, SOON);
    let took = since(killed, entered);
    println!("killed under the first lease: the next one enters after {took:?}");
    assert!(took <= C + P + SLACK, "{took:?}");
    assert!(second > first);
    stage.judge([holder, waiter]);
}

/// A holder killed later: the next one enters within what was left of the lease, plus P.
#[track_caller]
pub fn the_next_waiter_follows_a_holder_killed_after_a_renewal(stage: &Stage) {
    // A shorter lease than the default 15 s; all other times are the default.
    let mut holder = stage.worker("holder", "lease=6s");
    let mut waiter = stage.worker("waiter", "lease=6s");
    holder.order("acquire 0 holder");
    let _ = holder.entered(0, SOON);
    waiter.order("acquire 0 waiter");
    wait_until("a renewal", SOON, || seen(&stage.client, 0).holders[0].renewals >= Some(1));
    let left = seen(&stage.client, 0).holders[0].remaining_ms.expect("the store says it");
    let killed = holder.kill();
    let (_, entered) = waiter.entered(0, SOON);
    let took = since(killed, entered);
    println!("killed with {left} ms of its lease left: the next one enters after {took:?}");
    assert!(took <= Duration::from_millis(left) + P + SLACK, "{took:?} with {left} ms left");
    assert!(took + SLACK >= Duration::from_millis(left), "nobody may enter before: {took:?}");
    stage.judge([holder, waiter]);
}

#[track_caller]
fn looked(worker: &mut Worker) -> Verdict {
    worker.wait_for("looked", SOON, |record| match record {
        Record::Looked { verdict, .. } => Some(verdict.clone()),
        _ => None,
    })
}

/// A holder paused beyond its lease knows at its first look, is told at once, and cannot write.
#[track_caller]
pub fn a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused(stage: &Stage) {
    a_holder_paused_so_often_is_notified_at_once_and_refused(stage, 20);
}

/// The same for a store on which each pause takes longer.
#[track_caller]
pub fn a_holder_paused_so_often_is_notified_at_once_and_refused(stage: &Stage, rounds: u64) {
    const OPTIONS: &str = "lease=900ms&provisional=600ms&poll=50ms";
    let rounds = size("POLYLATCH_ROBUSTNESS_ROUNDS", rounds);
    let mut holder = stage.worker("holder", OPTIONS);
    let mut next = stage.worker("next", OPTIONS);
    let mut delays = Vec::new();
    for round in 0..rounds {
        holder.order("acquire 0 holder");
        let (token, _) = holder.entered(0, SOON);
        // In turn: a program that looks at its guard all the time, and one that only waits.
        let looks = round % 2 == 0;
        holder.order("watch 0");
        if looks {
            holder.order("spin 0");
            assert_eq!(looked(&mut holder), Verdict::Held);
        }
        next.order("acquire 0 next");
        wait_for_line(&stage.client, 0, &["next"]);
        holder.pause();
        let (newer, _) = next.entered(0, SOON);
        assert!(newer > token);
        next.order("write 0");
        assert!(next.wrote());
        let resumed = boot_nanos();
        holder.resume();
        let told = holder.wait_for("lost", SOON, |record| match record {
            Record::Lost { at, .. } => Some(*at),
            _ => None,
        });
        if looks {
            assert_eq!(
                looked(&mut holder),
                Verdict::Lost("expired".into()),
                "its first look after the pause"
            );
        } else {
            delays.push(since(resumed, told));
        }
        holder.order("write 0");
        assert!(!holder.wrote(), "a write under an old token must be refused");
        holder.order("leave 0");
        assert_eq!(holder.released(), "expired");
        next.order("leave 0");
        assert_eq!(next.released(), "ok");
    }
    delays.sort_unstable();
    let (median, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!("told after SIGCONT, {} times: median {median:?}, worst {worst:?}", delays.len());
    assert!(worst < SLACK, "{delays:?}");
    stage.judge([holder, next]);
}

/// The first waiter was killed before the lock became free.
#[track_caller]
pub fn a_dead_waiter_at_the_head_of_the_queue_is_skipped(stage: &Stage) {
    let [mut holder, mut dead, mut next] = stage.lined_up(stage.worker("dead", ""));
    dead.kill();
    let released = boot_nanos();
    holder.order("leave 0");
    assert_eq!(holder.released(), "ok");
    let (_, entered) = next.entered(0, SOON);
    let took = since(released, entered);
    println!("the head of the line was killed, its subscription is gone: {took:?}");
    assert!(took <= C + P + SLACK, "{took:?}");
    stage.judge([holder, dead, next]);
}

/// A waiter is granted while it is paused, and resumes when somebody else holds.
#[track_caller]
pub fn a_waiter_that_was_granted_during_a_pause_does_not_enter_late(stage: &Stage) {
    let [mut holder, mut paused, mut next] = stage.lined_up(stage.worker("paused", ""));
    paused.pause();
    holder.order("leave 0");
    assert_eq!(holder.released(), "ok");
    let (token, _) = next.entered(0, SOON);
    next.order("write 0");
    assert!(next.wrote());
    // Its grant is in its socket, and its time is over: it has to ask, and stands in line again.
    paused.resume();
    wait_for_line(&stage.client, 0, &["paused"]);
    let left = boot_nanos();
    next.order("leave 0");
    assert_eq!(next.released(), "ok");
    let (later, entered) = paused.entered(0, SOON);
    assert!(later > token && entered > left, "{later} {token}, {entered} {left}");
    paused.order("write 0");
    assert!(paused.wrote());
    stage.judge([holder, paused, next]);
}

/// A process is killed with many tasks that wait for the lock which it holds: the next one to come has it
/// within the lease and two seconds.
#[track_caller]
pub fn a_process_killed_with_many_waiting_tasks_delays_a_newcomer_by_its_lease_only(stage: &Stage) {
    let count = usize::try_from(size("POLYLATCH_ROBUSTNESS_TASKS", 300)).expect("a number of threads");
    let mut dead = stage.worker("dead", "lease=5s");
    let mut next = stage.worker("next", "lease=5s");
    dead.order("acquire 0 holder");
    let _ = dead.entered(0, SOON);
    dead.order(&format!("queue 0 {count} task"));
    // Some stores show the first thousand.
    wait_until("its tasks to stand in line", SOON, || {
        seen(&stage.client, 0).waiters.len() >= count.min(1_000)
    });
    wait_until("a renewal", SOON, || seen(&stage.client, 0).holders[0].renewals >= Some(2));
    let killed = dead.kill();
    next.order("acquire 0 next");
    let (_, entered) = next.entered(0, SOON);
    let took = since(killed, entered);
    println!("{count} waiting tasks were killed with the holder: the next one enters after {took:?}");
    assert!(took <= Duration::from_secs(5 + 2), "{took:?}");
    stage.judge([dead, next]);
}
