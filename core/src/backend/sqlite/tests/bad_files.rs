use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{Client, contender, held, refused};
use crate::backend::{Answer, Ask};
use crate::error::{Effect, Retry};
use crate::snapshot::Query;

#[test]
fn a_path_that_cannot_name_a_lock_file_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (path, part) in [
        (dir.path().to_owned(), "is a directory"),
        (dir.path().join("missing/locks.db"), "folder that does not exist"),
        (dir.path().join("file/locks.db"), "cannot be reached"),
        ("".into(), "is empty"),
        ("/dev/null".into(), "device, pipe or socket"),
    ] {
        refused(Client::try_open(&path), "invalid_config", part);
    }
    assert!(!dir.path().join("missing").exists());
}

#[test]
fn a_file_that_is_not_a_database_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("short", b"hello".to_vec()),
        ("text", b"a diary, not a database\n".repeat(400)),
        ("cut", b"SQLite format 3\0".to_vec()),
        ("torn", [b"SQLite format 3\0".as_slice(), &[0xaa; 8000]].concat()),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, &content).unwrap();
        refused(Client::try_open(&path), "backend_rejected", "left as it is");
        assert_eq!(fs::read(&path).unwrap(), content, "{name}");
    }
}

#[test]
fn a_damaged_lock_file_is_rejected_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    for n in 0..200 {
        client.hold(&format!("lock {n}"));
    }
    pollster::block_on(client.backend.close()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let error = match Client::try_open(&path) {
        Ok(client) => client.ask(&client.contender("lock 1"), Ask::Try).unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.code(), "backend_rejected", "{error}");
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn another_programs_database_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for (name, sql) in [
        ("plain", "CREATE TABLE diary (day TEXT); INSERT INTO diary VALUES ('monday');"),
        ("marked", "PRAGMA application_id = 42; CREATE TABLE t (x);"),
        ("log", "PRAGMA journal_mode = WAL; CREATE TABLE t (x);"),
        ("versioned", "PRAGMA user_version = 7;"),
    ] {
        let path = dir.path().join(name);
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(sql).unwrap();
        conn.close().unwrap();
        let before = fs::read(&path).unwrap();
        refused(Client::try_open(&path), "name_conflict", "another program");
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
    }
}

#[test]
fn a_newer_schema_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    drop(Client::open(&path).hold("orders"));
    alter(&path, "PRAGMA user_version = 9");
    refused(Client::try_open(&path), "backend_rejected", "schema version 9");
}

#[test]
fn a_file_of_the_first_version_goes_on_with_its_leases() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let (_, fence) = client.hold("orders");
    pollster::block_on(client.backend.announce(&client.info())).unwrap();
    pollster::block_on(client.backend.close()).unwrap();
    alter(
        &path,
        "ALTER TABLE lease DROP COLUMN first_ms; ALTER TABLE client DROP COLUMN pid_namespace; \
         PRAGMA user_version = 1",
    );
    let client = Client::open(&path);
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    let holder = &seen.locks[0].holders[0];
    assert_eq!((holder.fencing_token, holder.renewed), (Some(fence), None));
    assert_eq!((seen.clients.len(), seen.clients[0].pid_namespace.as_deref()), (1, None));
    assert!(client.hold("stock").1 > fence);
}

#[test]
fn leases_end_with_the_boot_and_fences_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let (_, before) = client.hold("orders");
    pollster::block_on(client.backend.close()).unwrap();
    let reserved = number(&path, "SELECT reserved FROM store");
    // As if the power had failed: the last numbers are forgotten, the reservation was synced.
    alter(&path, "UPDATE store SET boot = 'an earlier one', counter = 0");
    let client = Client::open(&path);
    let (_, after) = client.hold("orders");
    assert!(after > before && after.get() > reserved as u64);
    let seen = pollster::block_on(client.backend.snapshot(&Query::default())).unwrap();
    assert_eq!(seen.locks[0].holders[0].fencing_token, Some(after));
}

#[test]
fn the_reservation_is_moved_on_before_it_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    client.hold("one");
    alter(&path, "UPDATE store SET counter = reserved - 10");
    let reserved = number(&path, "SELECT reserved FROM store");
    let (_, fence) = client.hold("two");
    assert_eq!(fence.get() as i64, reserved - 9);
    assert!(number(&path, "SELECT reserved FROM store") > reserved);
}

#[test]
fn a_second_machine_at_the_same_file_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    let (contender, fence) = client.hold("orders");
    alter(&path, "UPDATE store SET boot = 'another machine'");
    let error = refused(client.ask(&contender, Ask::Try), "backend_rejected", "another machine");
    assert_eq!((error.effect(), error.retry()), (Effect::None, Retry::Never));
    refused(pollster::block_on(client.backend.release(&contender, fence)), "backend_rejected", "");
    refused(pollster::block_on(client.backend.snapshot(&Query::default())), "backend_rejected", "");
}

#[test]
fn a_removed_or_replaced_file_is_noticed_before_anything_is_promised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    client.hold("orders");
    let aside = dir.path().join("aside.db");
    let gone = |client: &Client| {
        let error = refused(
            client.ask(&client.contender("new"), Ask::Try),
            "backend_unavailable",
            "removed or replaced",
        );
        assert_eq!((error.effect(), error.retry()), (Effect::None, Retry::AfterBackoff));
    };
    fs::rename(&path, &aside).unwrap();
    gone(&client);
    fs::write(&path, "").unwrap();
    gone(&client);
    // Put back, it is the same file again.
    fs::rename(&aside, &path).unwrap();
    client.hold("new");
}

#[test]
fn a_lease_in_the_file_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(&dir.path().join("locks.db"));
    let short = contender("orders", &client.id, Duration::from_millis(60));
    let asked = Instant::now();
    let fence = held(client.ask(&short, Ask::Try).unwrap());
    let other = client.contender("orders");
    let next = loop {
        match client.ask(&other, Ask::Try).unwrap() {
            Answer::Held { fence } => break fence,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert!(next > fence && asked.elapsed() >= Duration::from_millis(60));
}

fn alter(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

fn number(path: &Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}
