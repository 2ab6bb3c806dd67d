//! Idempotent work on real stores.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contract::{Store, block_on};

/// Runs all cases against the stores that `$fresh` makes.
macro_rules! idempotency {
    ($fresh:expr) => {
        idempotency!(@cases $fresh;
                a_repetition_gets_the_first_answer,
                two_hundred_duplicates_at_once_run_once,
                a_run_in_progress_is_reported_or_waited_for,
                the_same_key_with_another_payload_is_refused,
                the_key_of_another_caller_gets_nothing_of_its_answer,
                a_stored_failure_is_replayed_as_a_failure,
                a_failure_after_the_effect_does_not_free_its_key,
                a_claim_that_dies_ends_with_its_lease_and_not_with_the_retention,
                a_claim_is_renewed_beyond_its_lease,
                a_claim_that_was_taken_over_stores_nothing,
                an_answer_is_kept_for_its_retention_or_for_ever,
                records_that_are_over_are_purged_in_batches,
                a_result_that_is_too_large_is_not_worked_for_again,
                a_token_is_consumed_by_one_of_a_hundred,
                records_are_listed_shown_and_forgotten,
                wrong_arguments_are_errors_before_anything_is_sent,
        );
    };
    (@cases $fresh:expr; $($case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                crate::idempotency_cases::$case(&$fresh());
            }
        )*
    };
}

/// A part of a shared store that no other case uses.
pub struct Part(String);

impl Store for Part {
    fn url(&self, options: &str) -> String {
        format!("{}&{options}", self.0)
    }
}

fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

mod memory {
    use super::*;

    fn fresh() -> Part {
        Part(format!("memory:idempotency-{}?timeout=5s", number()))
    }

    idempotency!(fresh);
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;

    pub struct File(tempfile::TempDir);

    impl Store for File {
        fn url(&self, options: &str) -> String {
            format!("sqlite:{}?timeout=20s&{options}", self.0.path().join("locks.db").display())
        }
    }

    fn fresh() -> File {
        File(tempfile::tempdir().unwrap())
    }

    idempotency!(fresh);

    #[test]
    fn the_schema_stays_the_one_that_earlier_programs_know() {
        let store = fresh();
        let options = polylatch::idempotency::RunOptions::new();
        let client = store.connect();
        block_on(client.idempotency("s").run("k", &options, |_| async { Ok(vec![1]) })).unwrap();
        block_on(client.close());
        // What `user_version` says stands in the header of the file at offset 60 (sqlite.org/fileformat.html, 1.3).
        let header = std::fs::read(store.0.path().join("locks.db")).unwrap();
        assert_eq!(header[60..64], [0, 0, 0, 2]);
    }
}

#[cfg(all(feature = "redis", unix))]
mod redis {
    use super::*;
    use polylatch_test_services::redis::RedisServer;

    static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

    fn fresh() -> Part {
        Part(format!("{}?prefix=case-{}", SERVER.url(), number()))
    }

    idempotency!(fresh);

    #[test]
    fn a_first_run_costs_two_requests_and_a_repetition_one() {
        let server = RedisServer::start();
        let client = block_on(polylatch::Polylatch::connect(&server.url())).unwrap();
        let scope = client.idempotency("s");
        // Long enough that no renewal comes.
        let options = polylatch::idempotency::RunOptions::new().lease(std::time::Duration::from_secs(600));
        let run = |key: &str| block_on(scope.run(key, &options, |_| async { Ok(vec![1]) })).unwrap();
        let calls = || -> u64 {
            let stats = server.command(&["INFO", "commandstats"]);
            let text = stats.text().unwrap();
            let calls = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            calls.unwrap().split(',').next().unwrap().parse().unwrap()
        };
        // The server has the script from now on.
        run("before");
        let before = calls();
        assert!(!run("k").is_replayed());
        assert_eq!(calls() - before, 2);
        assert!(run("k").is_replayed());
        assert_eq!(calls() - before, 3);
    }

    /// The user of the page of the store, which says that records can be listed with one command more.
    #[test]
    fn the_rights_that_locks_need_are_enough_and_listing_names_what_it_lacks() {
        let page = include_str!("../../src/backend/redis/docs.md");
        let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER polylatch on ")).unwrap();
        let rights = line.replace(">PASSWORD", ">secret").replace("polylatch:*", "p:*");
        let server = RedisServer::builder().acl_user(&format!("worker on {rights}")).start();
        let url = format!("{}?prefix=p", server.url_as("worker", "secret"));
        let client = block_on(polylatch::Polylatch::connect(&url)).unwrap();
        let scope = client.idempotency("s");
        let ever =
            polylatch::idempotency::RunOptions::new().retention(polylatch::idempotency::Retention::Forever);
        for _ in 0..2 {
            block_on(scope.run("k", &ever, |_| async { Ok(vec![1]) })).unwrap();
        }
        assert_eq!(block_on(scope.show("k")).unwrap().unwrap().keep_left_ms, None);
        let token = block_on(scope.issue(std::time::Duration::from_secs(60))).unwrap();
        let first = polylatch::idempotency::Consumed::First;
        assert_eq!(block_on(scope.consume(&token)).unwrap(), first);
        let error = block_on(client.idempotency_records().list("", 9)).unwrap_err();
        assert_eq!(error.code(), "backend_rejected");
        assert!(error.to_string().contains("allow SCAN"), "{error}");
    }

    #[test]
    fn a_key_of_another_program_is_left_as_it_is() {
        let store = fresh();
        let prefix = store.0.split("prefix=").nth(1).unwrap();
        let key = format!("{prefix}:{{k%1Fs%1Fk}}:idem");
        let options = polylatch::idempotency::RunOptions::new();
        for words in [["SET", &key, "theirs", "", ""], ["HSET", &key, "field", "theirs", ""]] {
            SERVER.command(&words.iter().filter(|word| !word.is_empty()).collect::<Vec<_>>());
            let client = store.connect();
            let run = client.idempotency("s");
            let error = block_on(run.run("k", &options, |_| async { panic!("it was run") })).unwrap_err();
            assert_eq!(error.code(), "name_conflict", "{error}");
            SERVER.command(&["DEL", &key]);
        }
    }
}

#[cfg(all(feature = "redis", unix))]
mod cluster {
    use super::*;
    use polylatch_test_services::redis::Cluster;

    static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

    fn fresh() -> Part {
        Part(format!("{}?prefix=case-{}", CLUSTER.url(), number()))
    }

    idempotency!(fresh);
}

#[cfg(all(feature = "postgres", unix))]
mod postgres {
    use crate::contract_postgres::{Postgres, fresh as fresh_schema};

    fn fresh() -> Postgres {
        fresh_schema("wake=poll&timeout=20s")
    }

    idempotency!(fresh);
}

#[cfg(all(feature = "mysql", unix))]
mod mariadb {
    use crate::contract::Store;
    use crate::contract_mariadb::{Mariadb, fresh as fresh_database};

    pub struct Patient(Mariadb);

    impl Store for Patient {
        fn url(&self, options: &str) -> String {
            self.0.url(&format!("timeout=20s&{options}"))
        }
    }

    fn fresh() -> Patient {
        Patient(fresh_database())
    }

    idempotency!(fresh);
}

/// A store that keeps no records says so, and says where to go.
#[cfg(all(feature = "redis", unix))]
#[test]
fn a_store_without_records_refuses_before_the_work() {
    use polylatch_test_services::redis::RedisServer;
    let servers = [(); 3].map(|()| RedisServer::start());
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let client = block_on(polylatch::Polylatch::connect(&format!("redlock://{}", places.join(",")))).unwrap();
    let options = polylatch::idempotency::RunOptions::new();
    let error = block_on(client.idempotency("s").run("k", &options, |_| async { panic!("it was run") }));
    let error = error.unwrap_err();
    assert_eq!(error.code(), "unsupported");
    assert!(error.to_string().contains("SQLite, Redis, PostgreSQL or MySQL"), "{error}");
    assert_eq!(block_on(client.idempotency_records().list("", 1)).unwrap_err().code(), "unsupported");
}
