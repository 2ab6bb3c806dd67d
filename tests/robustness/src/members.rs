//! Stores of several members that elect a leader, and whose sessions end by themselves: every way to end one, under load.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use polylatch::blocking::Polylatch;
use polylatch_test_services::proxy::{Hold, Proxy};

use crate::evidence::Evidence;
use crate::forced::{end_a_session, expect_forced_ends};
use crate::load::{Healing, Hurt, Plan, run};
use crate::sharing::Family;
use crate::size;

/// For so long a lock is not entered at most, also if its holders die or are cut off one after the other while a leader is
/// elected.
const FREE_AGAIN: Duration = Duration::from_secs(15);

/// A store of several members.
#[derive(Debug)]
pub struct Members {
    pub store: &'static str,
    /// The worker program.
    pub program: &'static str,
    pub seed: u64,
    pub addresses: Vec<SocketAddr>,
    /// Options of every URL, and those of workers.
    pub common: &'static str,
    pub options: &'static str,
    /// What a lease in `options` lasts.
    pub lease: Duration,
}

/// Holders are paused and killed, sessions are ended, the network of every second worker is cut, and leaders
/// are killed and paused.
/// `POLYLATCH_MEMBERS_SECTIONS` and `POLYLATCH_MEMBERS_FAULTS` say how much.
///
/// `end` ends the session that is named so in the details of a holder. `hurt_leader` kills the leader, or pauses it, until there
/// is another one, and returns when all members serve again.
#[track_caller]
pub fn sections_never_overlap_while_sessions_end_and_leaders_die(
    members: &Members,
    end: impl Fn(&str),
    hurt_leader: impl Fn(bool),
) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", members.seed);
    let sections = size("POLYLATCH_MEMBERS_SECTIONS", 500);
    let faults = size("POLYLATCH_MEMBERS_FAULTS", 8);
    let Members { store, common, options, .. } = *members;
    let proxies: Vec<_> = members.addresses.iter().map(|address| Proxy::start_raw(*address)).collect();
    let joined = |addresses: Vec<SocketAddr>| {
        let places: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        format!("{store}://{}?{common}", places.join(","))
    };
    let direct = joined(members.addresses.clone());
    let through = joined(proxies.iter().map(Proxy::address).collect());
    let urls = (0..6).map(|place| format!("{}&{options}", if place % 2 == 0 { &direct } else { &through }));
    let evidence = Evidence::new(Some(seed));
    let looks = Polylatch::connect(&direct).unwrap_or_else(|error| panic!("{error:?}"));
    let ends = RefCell::default();
    let by_force = end_a_session(&looks, &ends, |holder| {
        let session = holder.details.iter().find(|detail| detail.name == "session").expect("it hangs on one");
        end(&session.value.to_string());
    });
    let cut: Hurt<'_> = Box::new(|random| {
        let hold = [Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(3) as usize];
        proxies.iter().for_each(|proxy| proxy.set_hold(hold));
        // Beyond the lease, mostly.
        let length = Duration::from_millis(1_500 + random.below(2_500));
        let healing: Healing<'_> =
            (length, Box::new(|| proxies.iter().for_each(|proxy| proxy.set_hold(Hold::Off))));
        (format!("cut network: {hold:?} for {length:?}"), Some(healing))
    });
    let kill: Hurt<'_> = Box::new(|_| {
        hurt_leader(false);
        ("kill of the leader".into(), None)
    });
    let pause: Hurt<'_> = Box::new(|_| {
        hurt_leader(true);
        ("pause of the leader".into(), None)
    });
    let plan = Plan {
        sections,
        faults,
        threads: 2,
        locks: 4,
        // Beyond a first lease.
        long: Duration::from_millis(1_200),
        long_one_in: 200,
        pause: Duration::from_secs(4),
        kills: 3,
        pauses: 9,
        others: vec![(8, by_force), (7, cut), (5, kill), (2, pause)],
        ..Plan::usual(members.program, Family::Mutex, seed, urls.collect(), direct.clone())
    };
    let mut outcome = run(&plan, &evidence);
    let told = expect_forced_ends(&mut outcome.history, &ends.borrow(), members.lease);
    println!(
        "{store} under load (seed {seed}): {} ended by force, {told} holders told\n{}",
        ends.borrow().len(),
        outcome.figures
    );
    evidence.judge(&mut outcome.history);
    assert!(outcome.figures.longest_gap <= FREE_AGAIN, "a lock was stuck: {}", outcome.figures);
    assert!(outcome.figures.sections as u64 >= sections, "{}", outcome.figures);
    assert!(outcome.figures.faults.values().sum::<u64>() >= faults, "{}", outcome.figures);
}
