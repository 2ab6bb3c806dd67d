//! The contract on an SQLite file.

#![cfg(feature = "sqlite")]

struct Sqlite(tempfile::TempDir);

impl crate::contract::Store for Sqlite {
    fn url(&self, options: &str) -> String {
        format!("sqlite:{}?{options}", self.0.path().join("locks.db").display())
    }
}

fn fresh() -> Sqlite {
    Sqlite(tempfile::tempdir().unwrap())
}

crate::contract!(fresh);

/// Tests that stop a client look for this lock: stopped within a write, it would keep everybody else out.
#[cfg(target_os = "linux")]
#[test]
fn a_write_is_seen_among_the_locks_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    file.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN IMMEDIATE").unwrap();
    assert!(polylatch_test_services::proc::writes_to_sqlite(std::process::id()));
    file.execute_batch("ROLLBACK").unwrap();
}
