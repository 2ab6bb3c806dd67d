use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::{Client, SOON, WAIT, contender, held, refused};
use crate::backend::{Answer, Ask, Released, RenewItem, Renewal};
use crate::error::Effect;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest, Query};

#[test]
fn two_clients_of_one_file_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two) = (Client::open(&path), Client::open(&path));
    let (holder, fence) = one.hold("orders");
    let other = two.contender("orders");
    assert!(matches!(two.ask(&other, Ask::Try).unwrap(), Answer::Wait { .. }));
    assert_eq!(held(one.ask(&holder, Ask::Try).unwrap()), fence, "asking again confirms");
    let release = || pollster::block_on(one.backend.release(&holder, fence)).unwrap();
    assert_eq!(release(), Released::Released);
    assert_eq!(release(), Released::NotHeld);
    assert!(held(two.ask(&other, Ask::Try).unwrap()) > fence);
}

#[test]
fn a_grant_by_another_client_is_pushed_with_a_fence_above_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two) = (Client::open(&path), Client::open(&path));
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let (holder, fence) = one.hold("orders");
        let waiter = two.contender("orders");
        let place = two.wakeups.register(waiter.owner);
        let Answer::Wait { answer, holder: hint } = two.ask(&waiter, WAIT).unwrap() else { panic!() };
        assert_eq!(answer.position, Some(0));
        assert_eq!(hint.unwrap().client, Some(one.id.clone()));
        pollster::block_on(one.backend.release(&holder, fence)).unwrap();
        let released = Instant::now();
        assert!(within(SOON, place.changed()), "the grant is noticed");
        slowest = slowest.max(released.elapsed());
        let pushed = place.take().grant.expect("as a grant");
        assert!(pushed > answer.fence && pushed > fence.get());
        assert_eq!(held(two.ask(&waiter, WAIT).unwrap()).get(), pushed);
        drop(place);
        pollster::block_on(two.backend.release(&waiter, FencingToken::new(pushed))).unwrap();
    }
    println!("slowest hand-off between two clients: {slowest:?}");
}

/// Waits for `work` with a time limit, without any executor.
pub(super) fn within(limit: Duration, work: impl Future<Output = ()>) -> bool {
    std::thread::scope(|scope| {
        let stop = Arc::new(tokio::sync::Notify::new());
        let (told, done) = mpsc::channel::<()>();
        let for_thread = Arc::clone(&stop);
        scope.spawn(move || {
            if done.recv_timeout(limit).is_err() {
                for_thread.notify_one();
            }
        });
        let in_time = pollster::block_on(async {
            tokio::select! { () = work => true, () = stop.notified() => false }
        });
        let _ = told.send(());
        in_time
    })
}

#[test]
fn a_break_by_another_client_reaches_a_holder_that_asks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two) = (Client::open(&path), Client::open(&path));
    let (tell, told) = mpsc::channel();
    one.wakeups.when_revoked(Box::new(move |owner, fence, _| tell.send((owner, fence)).unwrap()));
    // So that a look is due right after the next request, and the break comes beside it.
    std::thread::sleep(Duration::from_millis(120));
    let (holder, fence) = one.hold("orders");
    let order = |expected| BreakRequest {
        name: "orders".into(),
        expected,
        by: "ops@desk".into(),
        reason: "stuck".into(),
    };
    let give = |expected| pollster::block_on(two.backend.break_lease(&order(expected))).unwrap();
    assert_eq!(give(FencingToken::new(1)), BreakOutcome::ChangedHands { present: fence });
    assert_eq!(give(fence), BreakOutcome::Broken { holder: one.id.clone(), next: None });
    assert_eq!(give(fence), BreakOutcome::Free);
    let asked = Instant::now();
    assert_eq!(told.recv_timeout(SOON).unwrap(), (holder.owner, fence.get()));
    println!("a break was told after {:?}", asked.elapsed());

    let item = RenewItem {
        contender: holder.clone(),
        fence,
        lease: holder.lease,
        length: holder.lease,
        renewals: 1,
    };
    let renewed = pollster::block_on(one.backend.renew(vec![item])).unwrap();
    assert_eq!(renewed, [Renewal::NotYours]);
    assert_eq!(told.try_recv().unwrap(), (holder.owner, fence.get()), "said before the renewal's answer");
    let seen = pollster::block_on(one.backend.snapshot(&Query::default())).unwrap();
    assert_eq!(seen.audit.len(), 1);
    assert_eq!((seen.audit[0].by.as_str(), seen.audit[0].fencing_token), ("ops@desk", fence));
}

#[test]
fn a_new_file_may_be_opened_by_many_at_once() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let client = Client::open(&path);
                    client.hold(&format!("lock of {}", client.id));
                });
            }
        });
    }
}

#[test]
fn sections_never_overlap_and_fences_only_grow() {
    const THREADS: u64 = 8;
    const SECTIONS: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let inside = AtomicBool::new(false);
    let last_fence = AtomicU64::new(0);
    let sections = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = Client::open(&path);
                for _ in 0..SECTIONS {
                    let contender = client.contender("the one");
                    let place = client.wakeups.register(contender.owner);
                    let fence = loop {
                        match client.ask(&contender, WAIT).unwrap() {
                            Answer::Held { fence } => break fence.get(),
                            Answer::Wait { .. } => {}
                            other => panic!("the lock must be held or waited for: {other:?}"),
                        }
                        within(Duration::from_secs(1), place.changed());
                        if let Some(fence) = place.take().grant {
                            break fence;
                        }
                    };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                    assert!(last_fence.swap(fence, Ordering::SeqCst) < fence, "fences must grow");
                    sections.fetch_add(1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    let released = client.backend.release(&contender, FencingToken::new(fence));
                    assert_eq!(pollster::block_on(released).unwrap(), Released::Released);
                }
            });
        }
    });
    assert_eq!(sections.into_inner(), THREADS * SECTIONS);
    println!("{} contended sections in {:?}", THREADS * SECTIONS, started.elapsed());
}

#[test]
fn requests_that_queue_up_share_transactions_and_all_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(&dir.path().join("locks.db"));
    let contenders: Vec<_> = (0..500).map(|n| client.contender(&format!("lock {n:03}"))).collect();
    let replies: Vec<_> = contenders.iter().map(|who| client.backend.poll(who, Ask::Try)).collect();
    let fences: HashSet<_> =
        replies.into_iter().map(|reply| held(pollster::block_on(reply).unwrap())).collect();
    assert_eq!(fences.len(), 500);
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    assert_eq!(seen.locks.len(), 500);
    assert!(seen.locks.is_sorted_by(|a, b| a.name < b.name));
}

#[test]
fn a_dropped_reply_does_not_undo_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(&dir.path().join("locks.db"));
    let first = client.contender("orders");
    drop(client.backend.poll(&first, Ask::Try));
    let second = client.contender("orders");
    assert!(matches!(client.ask(&second, Ask::Try).unwrap(), Answer::Wait { .. }));
    pollster::block_on(client.backend.cancel(&first)).unwrap();
    held(client.ask(&second, Ask::Try).unwrap());
}

#[test]
fn closing_finishes_what_was_asked_and_tidies_the_log_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let contender = client.contender("orders");
    let reply = client.backend.poll(&contender, Ask::Try);
    pollster::block_on(client.backend.close()).unwrap();
    held(pollster::block_on(reply).unwrap());
    assert!(!dir.path().join("locks.db-wal").exists());
    let error = refused(client.ask(&contender, Ask::Try), "canceled", "closed");
    assert_eq!(error.effect(), Effect::None);
    pollster::block_on(client.backend.close()).unwrap();
}

#[test]
fn free_locks_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    for n in 0..300 {
        let (contender, fence) = client.hold(&format!("once {n}"));
        if n % 2 == 0 {
            pollster::block_on(client.backend.release(&contender, fence)).unwrap();
        }
    }
    let short = contender("short", &client.id, Duration::from_millis(1));
    held(client.ask(&short, Ask::Try).unwrap());
    let rows = || {
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.query_row("SELECT count(*) FROM lease", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(), 151);
    std::thread::sleep(Duration::from_millis(20));
    pollster::block_on(client.backend.announce(&client.info())).unwrap();
    assert_eq!(rows(), 150, "an ended lease is swept");
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    assert_eq!(seen.clients.len(), 1);
}

#[test]
fn a_transaction_of_another_program_is_waited_for_and_then_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let options = super::SqliteOptions { busy_timeout: Duration::from_secs(1), ..Default::default() };
    let client = Client::with(&path, options, Duration::from_secs(8)).unwrap();
    let shell = rusqlite::Connection::open(&path).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let who = client.contender("orders");
    let replies: Vec<_> = (0..4).map(|_| client.backend.poll(&who, Ask::Try)).collect();
    let asked = Instant::now();
    for reply in replies {
        let error = refused(pollster::block_on(reply), "backend_unavailable", "another program");
        assert_eq!(error.effect(), Effect::None);
        // Who blocks is told where the system lists locks by file; some file systems hide it.
        let (told, pid) = (error.to_string(), format!("pid {} (", std::process::id()));
        assert!(told.contains(&pid) || !told.contains("holds it"), "{told}");
    }
    // They waited together: one by one it would have been four times as long.
    assert!(asked.elapsed() < Duration::from_millis(3_500), "{:?}", asked.elapsed());
    shell.execute_batch("COMMIT").unwrap();
    held(client.ask(&who, Ask::Try).unwrap());
}

#[test]
fn a_request_that_waits_too_long_in_the_queue_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let hasty = Client::with(&path, super::SqliteOptions::default(), Duration::ZERO).unwrap();
    let error =
        refused(hasty.ask(&hasty.contender("orders"), Ask::Try), "backend_unavailable", "was not started");
    assert_eq!(error.effect(), Effect::None);
    refused(pollster::block_on(hasty.backend.snapshot(&Query::default())), "backend_unavailable", "");
    Client::open(&path).hold("orders");
}

#[test]
fn waiters_are_served_in_order_across_clients() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let clients: Vec<_> = (0..4).map(|_| Client::open(&path)).collect();
    let (mut holder, mut fence) = clients[0].hold("orders");
    let line: Vec<_> = (0..12).map(|n| clients[n % 4].contender("orders")).collect();
    for (n, waiter) in line.iter().enumerate() {
        let Answer::Wait { answer, .. } = clients[n % 4].ask(waiter, WAIT).unwrap() else { panic!() };
        assert_eq!(answer.position, Some(n as u32));
    }
    let order = Mutex::new(Vec::new());
    for n in 0..line.len() {
        pollster::block_on(clients[0].backend.release(&holder, fence)).unwrap();
        holder = line[n].clone();
        fence = held(clients[n % 4].ask(&holder, WAIT).unwrap());
        order.lock().unwrap().push(fence);
    }
    assert!(order.into_inner().unwrap().is_sorted_by(|a, b| a < b));
}

#[cfg(unix)]
#[test]
fn a_new_file_is_its_users_own_and_an_existing_one_keeps_its_rights() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let mode_of = |name: &str| {
        let found =
            std::fs::metadata(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        found.permissions().mode() & 0o777
    };
    let shared = dir.path().join("shared.db");
    std::fs::write(&shared, "").unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o664)).unwrap();
    let mut open = Vec::new();
    for (name, mode) in [("own.db", 0o600), ("shared.db", 0o664)] {
        let client = Client::open(&dir.path().join(name));
        // Held, so that the log is there.
        let contender = client.contender("orders");
        assert!(matches!(client.ask(&contender, WAIT).unwrap(), Answer::Held { .. }));
        for part in ["", "-wal", "-shm"] {
            assert_eq!(mode_of(&format!("{name}{part}")), mode, "{name}{part}");
        }
        open.push(client);
    }
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 6, "nothing else is left in the folder");
}
