//! Sessions that are ended by force, with the default lock-delay: by an operator, by the removal of their
//! node, and while nobody can notify the holder. Beside `consul lock`, which has the same lock-delay.
//!
//! `POLYLATCH_CONSUL_FORCED_ENDS` says how many ends there are at the contended lock; every one of them
//! closes it for 15 s.

#![cfg(all(feature = "consul", unix))]

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually_within, millis};
use polylatch::{Guard, LostReason, Polylatch};
use polylatch_test_services::TempDir;
use polylatch_test_services::consul::{ConsulAgent, field};
use polylatch_test_services::proc;
use polylatch_test_services::proxy::{Hold, Proxy};

fn connect(url: &str, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{url}?prefix=forced&session_ttl_min=100ms&{options}"))).unwrap()
}

fn session_at(agent: &ConsulAgent, key: &str) -> Option<String> {
    field(&agent.try_ask("GET", &format!("/v1/kv/forced/{key}/.lock"), "").ok()?.body, "Session")
}

fn destroy(agent: &ConsulAgent, session: &str) {
    assert!(agent.ask("PUT", &format!("/v1/session/destroy/{session}"), "").is_ok());
}

/// The holder cannot be notified, and its lease is longer than Consul's own lock-delay.
#[test]
fn a_holder_that_cannot_be_notified_knows_before_the_next_one_enters() {
    let agent = ConsulAgent::start();
    let proxy = Proxy::start_raw(agent.address());
    let deaf = connect(&agent.url_through(proxy.address()), "lease=30s");
    let other = connect(&agent.url(), "lease=30s");
    let guard = block_on(deaf.lock("a").acquire()).unwrap();
    eventually_within("it has its full lease", Duration::from_secs(20), || guard.renewals() > 0);
    proxy.set_hold(Hold::Stall);
    destroy(&agent, &session_at(&agent, "a").unwrap());
    let lost = thread::spawn(move || (block_on(guard.lost()), Instant::now()));
    let next = block_on(other.lock("a").wait(Duration::from_secs(120)).acquire()).unwrap();
    let entered = Instant::now();
    let (reason, told) = lost.join().unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(told <= entered, "two holders for {:?}", told - entered);
    block_on(next.release()).unwrap();
}

/// What only one may be in: a file that nobody else may have made.
struct Section<'a>(&'a Path);

impl<'a> Section<'a> {
    fn enter(place: &'a Path, who: &str) -> Self {
        if let Err(error) = File::create_new(place) {
            panic!("{who} entered beside another: {error}");
        }
        Self(place)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// What the run counts.
#[derive(Default)]
struct Counts {
    ours: AtomicU32,
    lost: AtomicU32,
    ends: AtomicU32,
    /// Our workers leave the lock alone.
    pause: AtomicBool,
    stop: AtomicBool,
}

impl Counts {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

/// Enters again and again, and leaves at once when it is told of the loss.
fn enter_and_leave(url: &str, place: &Path, counts: &Counts) {
    let client = connect(url, "lease=3s&provisional=2500ms&timeout=2s");
    let mut turn = 0;
    while counts.goes_on() {
        if counts.pause.load(Ordering::SeqCst) {
            thread::sleep(millis(20));
            continue;
        }
        let Ok(guard) = block_on(client.lock("web").wait(millis(1_000)).acquire()) else { continue };
        let section = Section::enter(place, "Polylatch");
        // Most are short; some are held over renewals.
        let until = Instant::now() + if turn % 5 == 0 { millis(1_500) } else { millis(50) };
        while guard.is_held() && Instant::now() < until {
            thread::sleep(millis(5));
        }
        drop(section);
        counts.ours.fetch_add(1, Ordering::SeqCst);
        if !guard.is_held() {
            counts.lost.fetch_add(1, Ordering::SeqCst);
        }
        let _ = block_on(guard.release());
        turn += 1;
        thread::sleep(millis(20));
    }
}

/// `consul lock` around sections of its own; ended as it ends its command.
fn consul_lock(agent: &ConsulAgent, place: &Path, log: &Path, counts: &Counts) {
    let script = format!(
        "set -C; if ! : >'{0}'; then echo overlap >>'{1}'; exit 1; fi 2>>'{1}'; trap 'rm -f \"{0}\"; exit' TERM INT; \
         sleep 0.2; rm -f '{0}'; echo entered >>'{1}.count'",
        place.display(),
        log.display()
    );
    while counts.goes_on() {
        let words = ["lock", "-shell=false", "forced/web", "bash", "-c", &script];
        let mut child = agent.spawn(&words).expect("consul is there");
        while counts.goes_on() && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(millis(20));
        }
        if matches!(child.try_wait(), Ok(None)) {
            proc::terminate(child.id());
        }
        let _ = child.wait();
    }
}

#[test]
fn forced_ends_beside_consul_lock_overlap_nowhere_and_take_only_what_they_end() {
    let ends = std::env::var("POLYLATCH_CONSUL_FORCED_ENDS").map_or(1, |text| text.parse().unwrap());
    let agent = ConsulAgent::start();
    let dir = TempDir::try_new().unwrap();
    let (place, log) = (dir.join("inside"), dir.join("overlaps"));
    let counts = Counts::default();
    let theirs = || fs::read_to_string(dir.join("overlaps.count")).unwrap_or_default().lines().count();
    // Held all the time: nothing but a forced end may take one.
    let steady = connect(&agent.url(), "session=per-lock&lease=10s");
    let held: Vec<Guard> =
        (0..6).map(|number| block_on(steady.lock(format!("steady-{number}")).acquire()).unwrap()).collect();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| enter_and_leave(&agent.url(), &place, &counts));
        }
        scope.spawn(|| consul_lock(&agent, &place, &log, &counts));
        // A failure of this thread must not leave the others running.
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut entered = 0;
            let mut moves_on = |within: u64| {
                let now = || counts.ours.load(Ordering::SeqCst);
                eventually_within("the lock is entered again", Duration::from_secs(within), || {
                    now() >= entered + 5
                });
                entered = now();
            };
            moves_on(30);
            for number in 0..ends {
                if let Some(session) = session_at(&agent, "web") {
                    destroy(&agent, &session);
                    counts.ends.fetch_add(1, Ordering::SeqCst);
                }
                if let Some(session) = session_at(&agent, &format!("steady-{}", number % 5)) {
                    destroy(&agent, &session);
                    assert_eq!(block_on(held[number % 5].lost()), LostReason::SessionEnded);
                }
                // Lock-delay, and a poll.
                moves_on(40);
            }
            for (number, guard) in held.iter().enumerate() {
                let ended = number < ends.min(5);
                assert_eq!(guard.is_held(), !ended, "steady-{number}");
            }
            // An agent that leaves takes its node, and with it all sessions; then it comes back.
            let node = format!("{{\"Node\":\"{}\"}}", agent.node());
            assert!(agent.ask("PUT", "/v1/catalog/deregister", &node).is_ok());
            counts.ends.fetch_add(1, Ordering::SeqCst);
            for guard in &held[ends.min(5)..] {
                assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
            }
            let back = format!("{{\"Node\":\"{}\",\"Address\":\"127.0.0.1\"}}", agent.node());
            assert!(agent.ask("PUT", "/v1/catalog/register", &back).is_ok());
            moves_on(60);
            // On a busy machine it may have found no gap between our sections until now.
            counts.pause.store(true, Ordering::SeqCst);
            eventually_within("consul lock enters", Duration::from_secs(60), || theirs() > 0);
        }));
        counts.stop.store(true, Ordering::SeqCst);
        if let Err(failure) = judged {
            std::panic::resume_unwind(failure);
        }
    });
    let overlaps = fs::read_to_string(&log).unwrap_or_default();
    assert!(!overlaps.contains("overlap"), "consul lock entered beside us: {overlaps}");
    let (ours, lost) = (counts.ours.load(Ordering::SeqCst), counts.lost.load(Ordering::SeqCst));
    println!("{ours} sections of ours, {} of consul lock, {lost} lost", theirs());
    // One lock, so one holder for each end at most.
    assert!(lost <= counts.ends.load(Ordering::SeqCst), "{lost} losses");
}
