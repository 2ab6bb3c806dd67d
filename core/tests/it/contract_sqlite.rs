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
