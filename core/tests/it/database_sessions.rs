//! Session mode of the databases: leases that hang on a connection, whichever the server is.

#![cfg(all(any(feature = "postgres", feature = "mysql"), unix))]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::contract::{block_on, eventually, millis, seen, stands_in_line};
use crate::database_faults::{Server, connect};
use polylatch::{ErrorKind, LostReason, Polylatch};

/// Leases that do not end in these tests.
const LONG: &str = "lease=60s&provisional=60s&poll=200ms";

/// Of the contract, what a session could change: everything else is decided by the same rows as in lease mode.
#[macro_export]
macro_rules! session_contract {
    ($factory:expr) => {
        $crate::contract!(@cases $factory;
            cases_wait::{
                waiters_enter_in_the_order_in_which_they_came,
                a_waiting_acquisition_cancelled_at_any_point_leaves_nothing,
                two_holders_never_meet_under_load,
                many_waiters_are_all_served,
            }
            cases_lease::{
                a_held_lock_is_renewed_beyond_its_lease,
                a_lease_without_renewal_ends_and_its_holder_knows_first,
                many_leases_are_renewed_together,
            }
            cases_sets::{
                several_locks_are_all_acquired_or_none,
                a_set_cancelled_at_any_point_leaves_nothing,
            }
            cases_steal::{
                a_thief_enters_before_all_waiters,
            }
            cases_inspect::{
                holders_waiters_and_clients_are_visible,
                a_broken_lease_goes_to_the_next_and_its_holder_is_notified,
            }
            cases_family::{
                readers_share_and_a_writer_is_alone,
                permits_are_granted_up_to_the_capacity,
                a_conversion_cancelled_at_any_point_leaves_nothing,
            }
        );
    };
}

fn in_session(server: &impl Server) -> Polylatch {
    connect(server, &format!("mode=session&{LONG}"))
}

/// The lease would last for a minute. `end_sessions` ends the connection of each session, and no other one.
pub fn a_lease_ends_with_its_connection(server: &impl Server, end_sessions: impl Fn()) {
    let (one, other) = (in_session(server), in_session(server));
    let guards: Vec<_> = ["a", "b"].map(|name| block_on(one.lock(name).acquire()).unwrap()).into();
    let lock = other.lock("a").wait(millis(20_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &one, "a", 1);
    guards.iter().for_each(|guard| guard.check().unwrap());
    let ended = Instant::now();
    end_sessions();
    for guard in &guards {
        assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::LeaseLost);
    }
    // The session of the waiter has ended too; it opens another one.
    let next = block_on(waiting).unwrap();
    assert!(ended.elapsed() < millis(15_000), "{:?}", ended.elapsed());
    assert!(next.fencing_token() > guards[0].fencing_token());
    next.check().unwrap();
    // One that was not waited for is free as well, also for a client in lease mode: its holder has ended it.
    let free = connect(server, LONG);
    let took = block_on(free.lock("b").wait(millis(20_000)).acquire()).unwrap();
    assert!(took.fencing_token() > guards[1].fencing_token());
    // The client whose session ended has a new one.
    drop(block_on(one.lock("c").acquire()).unwrap());
}

const URL: &str = "POLYLATCH_TEST_SESSION_AT";
/// What the child prints while it holds the lock.
const HELD: &str = "a is held";

/// The whole program of the child.
#[test]
fn holds_until_it_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let _guard = block_on(client.lock("a").acquire()).unwrap();
    println!("{HELD}");
    loop {
        thread::park();
    }
}

/// Its lease would last for a minute, and nothing of it is left to say that it ended.
pub fn a_killed_process_frees_its_locks_at_once(server: &impl Server) {
    let next = in_session(server);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "database_sessions::holds_until_it_is_killed", "--nocapture"])
        .env(URL, format!("{}?mode=session&{LONG}", server.url()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.take_while(|line| !line.contains("test result")).any(|line| line.contains(HELD)));
    let lock = next.lock("a").wait(millis(20_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &next, "a", 1);
    let fence = seen(&next, "a").holders[0].fencing_token.unwrap();
    let at = Instant::now();
    child.kill().unwrap();
    let guard = block_on(waiting).unwrap();
    assert!(at.elapsed() < millis(15_000), "{:?}", at.elapsed());
    assert!(guard.fencing_token() > fence);
    child.wait().unwrap();
}

/// The same rows decide in both modes.
pub fn both_modes_exclude_each_other_with_one_sequence_of_tokens(server: &impl Server) {
    let (session, lease) = (in_session(server), connect(server, LONG));
    let mut last = 0;
    for round in 0..6 {
        let (holder, other) = if round % 2 == 0 { (&session, &lease) } else { (&lease, &session) };
        let guard = block_on(holder.lock("a").acquire()).unwrap();
        assert!(guard.fencing_token().get() > last, "round {round}");
        last = guard.fencing_token().get();
        assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none(), "round {round}");
        let lock = other.lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), holder, "a", 1);
        block_on(guard.release()).unwrap();
        let next = block_on(waiting).unwrap();
        assert!(next.fencing_token().get() > last, "round {round}");
        last = next.fencing_token().get();
        block_on(next.release()).unwrap();
    }
}

/// A server that answers nothing has not ended the session either; the holder cannot know.
pub fn a_silent_server_ends_a_lease_by_the_holders_clock(server: &impl Server) {
    let client = connect(server, "mode=session&timeout=1s&poll=200ms&provisional=2s");
    let guard = block_on(client.lock("a").lease(millis(3_000)).acquire()).unwrap();
    let asked = Instant::now();
    server.pause();
    let reason = block_on(guard.lost());
    let took = asked.elapsed();
    server.resume();
    assert_eq!(reason, LostReason::Expired);
    assert!(took <= millis(3_500), "{took:?}");
}

/// Its session ended while nothing hung on it, and another client has noted that for so long that every lease under it is
/// free for the next.
pub fn a_client_whose_idle_session_ended_acquires_in_another_one(
    server: &impl Server,
    end_sessions: impl Fn(),
    noted_as_over: impl Fn() -> usize,
) {
    let one = in_session(server);
    block_on(block_on(one.lock("a").acquire()).unwrap().release()).unwrap();
    end_sessions();
    let mut other = in_session(server);
    eventually("a client that opens its session notes those that are over", || {
        other = in_session(server);
        block_on(block_on(other.lock("b").acquire()).unwrap().release()).unwrap();
        noted_as_over() == 1
    });
    thread::sleep(millis(3_500));
    let guard = block_on(one.lock("a").acquire()).unwrap();
    for _ in 0..20 {
        assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none(), "two holders at once");
        guard.check().unwrap();
    }
    block_on(guard.release()).unwrap();
}

pub fn sections_do_not_overlap_while_sessions_are_ended(server: &impl Server, end_sessions: impl Fn()) {
    let url = format!("{}?mode=session&{LONG}", server.url());
    let clients: Vec<_> = (0..4).map(|_| block_on(Polylatch::connect(&url)).unwrap()).collect();
    let (done, _) = crate::database_faults::sections(clients, || {
        for _ in 0..6 {
            thread::sleep(millis(500));
            end_sessions();
        }
        thread::sleep(millis(500));
    });
    assert!(done > 3, "only {done} sections");
}
