//! What ended connections, killed servers and many clients at once must not do to locks in a database, whichever the
//! server is.

#![cfg(all(any(feature = "postgres", feature = "mysql"), unix))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{Store, block_on, eventually, millis, seen, stands_in_line};
use polylatch::{Guard, LostReason, Polylatch};

/// A server that a test hurts.
pub trait Server {
    /// Without options.
    fn url(&self) -> String;

    /// Ends the connections of clients; returns how many.
    fn end_connections(&self) -> usize;

    /// Kills the server, as a power failure would end it.
    fn kill(&self);

    fn start_again(&self);

    /// Stops the server where it stands.
    fn pause(&self);

    fn resume(&self);
}

macro_rules! server {
    ($feature:literal, $server:ty, $end:ident) => {
        #[cfg(feature = $feature)]
        impl Server for $server {
            fn url(&self) -> String {
                self.url()
            }

            fn end_connections(&self) -> usize {
                self.$end()
            }

            fn kill(&self) {
                self.kill();
            }

            fn start_again(&self) {
                self.start_again();
            }

            fn pause(&self) {
                self.pause();
            }

            fn resume(&self) {
                self.resume();
            }
        }
    };
}

server!("postgres", polylatch_test_services::postgres::PostgresServer, terminate_clients);
server!("mysql", polylatch_test_services::mariadb::MariadbServer, kill_connections);

pub fn connect(server: &impl Server, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{options}", server.url())))
        .unwrap_or_else(|error| panic!("{error}"))
}

pub fn a_client_whose_connections_are_ended_keeps_its_lease_and_its_place(server: &impl Server, rounds: u32) {
    let (one, other) = (connect(server, "poll=200ms"), connect(server, "poll=200ms"));
    let mut holder = block_on(one.lock("a").acquire()).unwrap();
    for round in 0..rounds {
        let (next_client, looks) = if round % 2 == 0 { (&other, &one) } else { (&one, &other) };
        let lock = next_client.lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), looks, "a", 1);
        assert!(server.end_connections() >= 1, "clients are connected");
        holder.check().unwrap();
        let held = seen(looks, "a");
        assert_eq!(held.holders[0].fencing_token, Some(holder.fencing_token()), "round {round}");
        assert_eq!(held.waiters.len(), 1, "round {round}: a place in the queue outlives its connection");
        block_on(holder.release()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let next = block_on(waiting).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(next.fencing_token() > holder.fencing_token());
        holder = next;
    }
}

pub fn renewals_go_on_after_connections_were_ended(server: &impl Server) {
    let client = connect(server, "");
    let guard = block_on(client.lock("a").lease(millis(3_000)).acquire()).unwrap();
    let until = Instant::now() + millis(5_000);
    while Instant::now() < until {
        server.end_connections();
        thread::sleep(millis(300));
        guard.check().unwrap();
    }
    assert!(guard.renewals() >= 3, "{}", guard.renewals());
}

/// Sections of several threads on one lock; `hurt` runs meanwhile. Returns how many sections there were, and how
/// many failed with an error.
pub fn sections(clients: Vec<Polylatch>, hurt: impl FnOnce()) -> (usize, usize) {
    let inside: Arc<Mutex<Vec<Arc<Guard>>>> = Arc::default();
    let newest = Arc::new(Mutex::new(0));
    let (stop, done, failed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
            let (stop, done, failed) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&failed));
            thread::spawn(move || {
                let lock = client.lock("section").wait(millis(10_000));
                while !stop.load(Ordering::SeqCst) {
                    let guard = match block_on(lock.acquire()) {
                        Ok(guard) => Arc::new(guard),
                        Err(error) => {
                            eprintln!("not acquired: {error:?}");
                            failed.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                    };
                    {
                        let mut inside = inside.lock().unwrap();
                        // A holder that knows that it lost its lease has stopped.
                        let both = inside.iter().any(|other| other.is_held()) && guard.is_held();
                        assert!(!both, "two holders at once");
                        inside.push(Arc::clone(&guard));
                        let mut newest = newest.lock().unwrap();
                        assert!(guard.fencing_token().get() > *newest, "fencing tokens grow");
                        *newest = guard.fencing_token().get();
                    }
                    thread::sleep(millis(3));
                    inside.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &guard));
                    let _ = block_on(guard.release());
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    hurt();
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    (done.load(Ordering::SeqCst), failed.load(Ordering::SeqCst))
}

pub fn sections_do_not_overlap_while_the_server_is_killed(server: &impl Server, kills: u32) {
    let clients = (0..6).map(|_| connect(server, "poll=100ms")).collect();
    let (done, _) = sections(clients, || {
        for _ in 0..kills {
            thread::sleep(millis(1_000));
            server.kill();
            server.start_again();
        }
        thread::sleep(millis(2_000));
    });
    assert!(done > 20, "only {done} sections");
}

/// Connections are ended wherever they are, so also in the middle of a step and of a commit.
pub fn sections_do_not_overlap_while_connections_are_ended(server: &impl Server, times: u32) {
    let clients = (0..6).map(|_| connect(server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || {
        for _ in 0..times {
            server.end_connections();
            thread::sleep(millis(50));
        }
        thread::sleep(millis(1_000));
    });
    assert!(done > 20, "only {done} sections");
    assert!(failed <= done, "{failed} failures in {done} sections");
}

pub fn a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock(server: &impl Server) {
    let client = connect(server, "timeout=1s&poll=200ms&provisional=1s");
    let guard = block_on(client.lock("a").lease(millis(2_000)).acquire()).unwrap();
    let asked = Instant::now();
    server.pause();
    let reason = block_on(guard.lost());
    let took = asked.elapsed();
    server.resume();
    assert_eq!(reason, LostReason::Expired);
    assert!(took <= millis(2_500), "{took:?}");
    // The connection that did not answer was ended; a new one works.
    eventually("the lock is acquired again", || {
        matches!(block_on(client.lock("a").try_acquire()), Ok(Some(_)))
    });
}

/// `deadlocks` is how many the server has counted.
pub fn many_clients_at_many_new_names_and_sets_meet_no_deadlock(
    store: &impl Store,
    deadlocks: impl Fn() -> u64,
) {
    let clients: Vec<_> = (0..8).map(|_| store.connect()).collect();
    let before = deadlocks();
    let begin = Arc::new(Barrier::new(64));
    let threads: Vec<_> = (0..64)
        .map(|number| {
            let (client, begin) = (clients[number % 8].clone(), Arc::clone(&begin));
            thread::spawn(move || {
                begin.wait();
                let name = |at: usize| format!("n{}", (number * 7 + at * 31) % 64);
                let guard = block_on(client.lock(format!("own{number}")).acquire()).unwrap();
                block_on(guard.release()).unwrap();
                // Several names at a time, new to the store, in any order.
                let set = client.lock_all([name(2), name(0), name(1)]);
                let guards = block_on(set.wait(Duration::from_secs(60)).acquire()).unwrap();
                block_on(guards.release()).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(deadlocks(), before);
}
