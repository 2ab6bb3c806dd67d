//! Rows and files of another version of Polylatch.

use std::path::Path;

use rusqlite::Connection;

use super::{Client, WAIT, held, refused};
use crate::backend::{Answer, Ask, Released};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest, Query};

const MODES: [Mode; 4] = [Mode::Mutex, Mode::Read, Mode::Write, Mode::Permits { count: 1, capacity: 5 }];

/// Writes as a later version would, whose modes this one does not know.
fn alter(path: &Path, sql: &str) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    conn.execute_batch(sql).unwrap();
}

/// The boot of the file and a time of it, in ms, of about now.
fn present(path: &Path) -> (String, i64) {
    let client = Client::open(path);
    let (contender, fence) = client.hold("present");
    let conn = Connection::open(path).unwrap();
    let now = conn.query_row("SELECT acquired_ms FROM lease", [], |row| row.get(0)).unwrap();
    let boot = conn.query_row("SELECT boot FROM store", [], |row| row.get(0)).unwrap();
    pollster::block_on(client.backend.release(&contender, fence)).unwrap();
    (boot, now)
}

#[test]
fn a_waiter_of_another_version_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (_, now) = present(&path);
    let client = Client::open(&path);
    for (at, mode) in MODES.into_iter().enumerate() {
        let name = format!("lock {at}");
        alter(
            &path,
            &format!(
                "INSERT INTO waiter VALUES ('later {at}', '{name}', {at}, 'intent', 1, NULL, 'h:1:x', '', 1, 1, 1, 1, \
                 {})",
                now + 60_000
            ),
        );
        let first = client.wants(&name, mode);
        let fence = held(client.ask(&first, Ask::Try).unwrap());
        let writer =
            client.wants(&name, if at == 3 { Mode::Permits { count: 5, capacity: 5 } } else { mode });
        let writer = if at == 1 { client.wants(&name, Mode::Write) } else { writer };
        assert!(matches!(client.ask(&writer, WAIT), Ok(Answer::Wait { .. })), "{mode:?}");
        let released = pollster::block_on(client.backend.release(&first, fence)).unwrap();
        assert_eq!(released, Released::Released);
        held(client.ask(&writer, Ask::Try).unwrap());
    }
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    assert_eq!(seen.locks.len(), MODES.len());
    for lock in &seen.locks {
        assert_eq!(
            (lock.holders.len(), lock.waiters.len(), lock.unreadable().count()),
            (1, 0, 1),
            "{lock:?}"
        );
    }
}

#[test]
fn a_lease_of_another_version_excludes_everything_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (_, now) = present(&path);
    let client = Client::open(&path);
    for (at, mode) in MODES.into_iter().enumerate() {
        let name = format!("lock {at}");
        let ends = now + 600_000;
        alter(
            &path,
            &format!(
                "INSERT INTO lease VALUES ('{name}', 'later', 7, 'intent', 1, NULL, 'h:1:x', '', 1, 1, 1, {ends}, 0, \
                 NULL, 1)"
            ),
        );
        let wanted = client.wants(&name, mode);
        assert!(matches!(client.ask(&wanted, Ask::Try), Ok(Answer::Wait { .. })), "{mode:?}");
        let query = Query { name: Some(name.clone()), ..Query::default() };
        let seen = pollster::block_on(client.backend.snapshot(&query)).unwrap();
        assert_eq!((seen.locks[0].holders.len(), seen.locks[0].unreadable().count()), (1, 1));
        alter(&path, &format!("UPDATE lease SET ends_ms = {now} WHERE name = '{name}'"));
        held(client.ask(&wanted, Ask::Try).unwrap());
    }
}

#[test]
fn a_used_up_counter_refuses_grants_and_not_releases() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let (contender, fence) = client.hold("held");
    alter(&path, "UPDATE store SET counter = 9007199254740990, reserved = 9100000000000000");
    let (last, exact) = client.hold("last");
    assert_eq!(exact.get(), (1 << 53) - 1);
    let error = client.ask(&client.contender("one more"), Ask::Try).unwrap_err();
    assert_eq!(error.code(), "backend_rejected", "{error}");
    assert!(error.to_string().contains("used up"), "{error}");
    for (contender, fence) in [(contender, fence), (last, exact)] {
        let released = pollster::block_on(client.backend.release(&contender, fence)).unwrap();
        assert_eq!(released, Released::Released);
    }
}

#[test]
fn tables_that_another_version_changed_meanwhile_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    drop(client.hold("a"));
    alter(&path, "ALTER TABLE lease RENAME COLUMN label TO note; PRAGMA user_version = 3");
    let error = client.ask(&client.contender("b"), Ask::Try).unwrap_err();
    assert_eq!(error.code(), "backend_rejected", "{error}");
    assert!(error.to_string().contains("another version"), "{error}");
    refused(Client::try_open(&path), "backend_rejected", "schema version 3");
}

#[test]
fn a_golden_file_of_schema_2_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let (boot, now) = present(&dir.path().join("other.db"));
    let path = dir.path().join("locks.db");
    let golden = include_str!("../../../../tests/it/golden/sqlite-2.sql");
    alter(&path, &golden.replace(":boot", &boot).replace(":now", &now.to_string()));
    let client = Client::open(&path);
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    let [orders, slots] = &seen.locks[..] else { panic!("{seen:?}") };
    let holder = &orders.holders[0];
    assert_eq!(holder.client.as_ref().unwrap().as_str(), "web-1:42:0a0b0c0d");
    assert_eq!((holder.label.as_str(), holder.renewals), ("nightly | import", Some(2)));
    assert_eq!((holder.lease_ms, orders.waiters[0].label.as_str()), (Some(15_000), "a|b"));
    assert_eq!(orders.waiters[0].gives_up_at_ms, None, "it is not known");
    assert_eq!((slots.capacity, slots.holders[0].permits), (Some(5), 2));
    assert_eq!((seen.clients.len(), seen.audit.len()), (1, 1));
    assert_eq!(seen.audit[0].reason, "holder is stuck");
    let order = BreakRequest {
        name: "orders/42".into(),
        expected: FencingToken::new(1_763_680_000_000_001),
        by: "ann@desk".into(),
        reason: "test".into(),
    };
    let broken = pollster::block_on(client.backend.break_lease(&order)).unwrap();
    let BreakOutcome::Broken { next: Some(next), .. } = broken else { panic!("{broken:?}") };
    assert_eq!(next.as_str(), "h:1:x");
    let four = client.wants("slots", Mode::Permits { count: 4, capacity: 5 });
    assert!(matches!(client.ask(&four, Ask::Try), Ok(Answer::Wait { .. })));
}

#[test]
fn the_deadlines_of_waiters_need_no_other_schema_and_go_with_them_in_any_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let (holder, fence) = client.hold("a");
    let count = |what: &str| -> i64 {
        Connection::open(&path).unwrap().query_row(&format!("SELECT {what}"), [], |row| row.get(0)).unwrap()
    };
    let tables = "count(*) FROM sqlite_schema WHERE name LIKE 'wait_limit%'";
    assert!(matches!(client.ask(&client.contender("a"), WAIT), Ok(Answer::Wait { .. })));
    assert_eq!(count(tables), 0, "nothing is made before a waiter has a limit");
    let Ask::Wait { near_heartbeat, far_heartbeat, .. } = WAIT else { unreachable!() };
    let limited = Ask::Wait { near_heartbeat, far_heartbeat, left: Some(std::time::Duration::from_secs(30)) };
    let waiting = client.contender("a");
    for _ in 0..3 {
        assert!(matches!(client.ask(&waiting, limited), Ok(Answer::Wait { .. })));
    }
    assert_eq!((count(tables), count("count(*) FROM wait_limit")), (2, 1));
    let version: i64 =
        Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 2, "earlier programs go on to use the file");
    // As a program does that knows nothing of it.
    alter(&path, &format!("DELETE FROM waiter WHERE owner = '{}'", waiting.owner.to_hex()));
    assert_eq!(count("count(*) FROM wait_limit"), 0);
    pollster::block_on(client.backend.release(&holder, fence)).unwrap();
}
