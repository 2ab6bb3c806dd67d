//! Locks held for seconds on nodes that decide by majority, with the options that users have, while nodes fail.
//!
//! Only `max_lease` differs: it is the lease of 15 s, so a node that changed votes again within the run.
//!
//! `POLYLATCH_REDLOCK_NODES` sets the number of nodes, 1 to 7 (3; one test 5),
//! `POLYLATCH_REDLOCK_SECTIONS` (40) and `POLYLATCH_REDLOCK_FAULTS` (6) the least size. Faults are 2.5 s apart, so
//! they set the length: a long run has 100 for each of 3, 4, 5 and 7 nodes, and takes five minutes for each.
//!
//! Short sections go on beside the held ones. Three more locks are held for the whole run, and every node that has
//! been well for two renewals is to have them while they are renewed in time.
#![cfg(target_os = "linux")]

mod faults;
mod lookers;
mod nodes;
mod steady;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::history::{Rule, Violation};
use polylatch_robustness::load::{Plan, run};
use polylatch_robustness::sharing::Family;
use polylatch_robustness::size;

use faults::Faults;
use lookers::Lookers;
use nodes::{Guarantee, Nodes, RENEWED_AGAIN};
use steady::Steady;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// How long a lock is held.
const LONG: Duration = Duration::from_secs(7);

/// By now a lease has been renewed for its whole length: the first renewal comes after a second.
const RENEWED: Duration = Duration::from_secs(5);

const LOCKS: u64 = 24;

/// Short sections go over these and the ones above, which they find held.
const QUICK_LOCKS: u64 = 240;

/// Faults are so far apart.
const APART: Duration = Duration::from_millis(2500);

/// So many locks at most are lost with a node of a minority. Their leases were on a bare majority: a further node
/// had refused or was late, and the next renewal, a second after the acquisition, had not widened them yet.
const ON_A_BARE_MAJORITY: u64 = 5;

/// The documented case: without `guarantee=strict`, a new client takes a store that lost everything at once for
/// a new one, while holders have not noticed yet.
fn is_documented(nodes: &Nodes, violation: &Violation) -> bool {
    nodes.guarantee == Guarantee::BestEffort
        && matches!(violation.rule, Rule::Overlap | Rule::RefusedWhileHeld)
        && nodes.losses(nodes.count()).iter().any(|loss| loss.explains(violation.at))
}

/// Holds locks for 7 s while nodes fail. Holders never overlap, tokens never fall, and a renewed lease is lost only
/// when nodes have just lost it: with a majority all may be, with a minority hardly any.
#[track_caller]
fn held_across_faults(guarantee: Guarantee, usual: u64, seed: u64, faults: &'static Faults) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let nodes = Arc::new(Nodes::start(size("POLYLATCH_REDLOCK_NODES", usual) as usize, guarantee));
    let evidence = Evidence::new(Some(seed));
    let lookers = Lookers::start(&nodes.url_to_look());
    let steady = Steady::start(&nodes);
    let plan = Plan {
        sections: size("POLYLATCH_REDLOCK_SECTIONS", 40),
        faults: size("POLYLATCH_REDLOCK_FAULTS", 6),
        threads: 3,
        locks: LOCKS,
        long: LONG,
        long_one_in: 2,
        pause: Duration::from_secs(2),
        kills: 2,
        pauses: 2,
        others: vec![(16, faults.of(&nodes))],
        quick: (vec![nodes.url(false), nodes.url(true)], QUICK_LOCKS),
        apart: APART,
        ..Plan::usual(
            WORKER,
            Family::Mutex,
            seed,
            (0..6).map(|place| nodes.url(place % 2 == 1)).collect(),
            nodes.url_to_look(),
        )
    };
    let mut outcome = run(&plan, &evidence);
    let (looks, presence) = (lookers.stop(), steady.stop());
    let (figures, losses) = (outcome.figures, nodes.losses(1));
    let of_majorities = nodes.losses(nodes.spare() + 1);
    let early = outcome.history.expect_early_news();
    let of_minority = early.iter().filter(|at| !of_majorities.iter().any(|loss| loss.explains(**at))).count();
    let long = outcome
        .history
        .sections
        .iter()
        .filter(|section| section.end() >= section.entered + LONG.as_nanos() as u64);
    println!(
        "redlock, held across faults of {}, {} nodes, {guarantee:?} (seed {seed}):\n{figures}\n\
         held for {LONG:?}: {}; nodes lost their leases {} times, a majority {}, all {}; told early: {}, after no \
         loss of a majority: {of_minority}; {looks:?}\n\
         locks held all the time: {} readings of healed nodes, {} without the lease; {} losses",
        faults.what,
        nodes.count(),
        long.count(),
        losses.len(),
        of_majorities.len(),
        nodes.losses(nodes.count()).len(),
        early.len(),
        presence.readings,
        presence.missing.len(),
        presence.losses,
    );
    presence.missing.iter().for_each(|missing| println!("without the lease: {}", missing.what));
    let documented =
        evidence.judge_besides(&mut outcome.history, |violation| is_documented(&nodes, violation));
    println!("explained by the loss of all data: {}", documented.len());
    let bound = (losses.len() - of_majorities.len()) as u64 * ON_A_BARE_MAJORITY;
    assert!(of_minority as u64 <= bound, "{of_minority} losses were told early, more than {bound}");
    for section in outcome.history.lost_after(RENEWED) {
        let is_explained = losses.iter().any(|loss| loss.may_end(section));
        assert!(is_explained, "a renewed lease was lost: {section}");
    }
    let longest = presence.missing.iter().max_by_key(|missing| missing.so_far);
    let is_given_again = longest.is_none_or(|missing| missing.so_far < RENEWED_AGAIN);
    assert!(is_given_again, "a healed node was without a lease across a renewal: {longest:?}");
    // What a lost acquisition left on a node may end between two renewals.
    let lost: Vec<_> = presence.missing.iter().filter(|missing| !missing.had_another).collect();
    let bound = presence.readings / 50;
    assert!(lost.len() as u64 <= bound, "healed nodes lost leases again: {lost:?}");
    assert!(figures.across_faults as u64 >= plan.faults, "too few were held while something was hurt");
    assert!(figures.looks > 0 && looks.lists > 0 && looks.examinations > 0, "nobody could look: {looks:?}");
    assert!(nodes.count() < 3 || nodes.changed() > 0, "no node lost or kept anything: {figures}");
    for proxy in &nodes.proxies {
        assert!(proxy.malformed().is_empty(), "{:?}", proxy.malformed());
    }
}

/// Under both guarantees at once: the runs mostly sleep.
fn under_both(best_effort: impl FnOnce() + Send, strict: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(best_effort);
        scope.spawn(strict);
    });
}

#[test]
fn held_locks_survive_every_fault_of_a_minority() {
    under_both(
        || held_across_faults(Guarantee::BestEffort, 3, 20_261_201, &faults::MINORITY),
        || held_across_faults(Guarantee::Strict, 5, 20_261_202, &faults::MINORITY),
    );
}

#[test]
fn no_lock_is_held_twice_after_a_majority_lost_its_data() {
    under_both(
        || held_across_faults(Guarantee::BestEffort, 3, 20_261_203, &faults::MAJORITY),
        || held_across_faults(Guarantee::Strict, 3, 20_261_204, &faults::MAJORITY),
    );
}
