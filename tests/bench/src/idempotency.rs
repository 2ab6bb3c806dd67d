//! Idempotent work on Redis, PostgreSQL, MariaDB and SQLite: a first run against a raw claim and completion, a repetition
//! against a raw read, by the same driver where there is one. On PostgreSQL and SQLite also claims in a table with many
//! records that are over, while these are deleted.
//!
//! `POLYLATCH_BENCH_RECORDS` is how many they are, 1 000 000 by default.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mysql_async::Value;
use mysql_async::prelude::Queryable;
use polylatch::Polylatch;
use polylatch::idempotency::{Begun, RunOptions};
use polylatch_test_services::TempDir;
use polylatch_test_services::mariadb::MariadbServer;
use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::redis::RedisServer;
use rusqlite::Connection;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;
use tokio_postgres::types::{ToSql, Type};

use crate::database::runtime;
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;
use crate::mariadb;
use crate::raw::Wire;

const ROUNDS: usize = 10;
const PER_ROUND: usize = 100;
const CLAIMS: usize = 2_000;

/// What every row of the raw tables has, with the columns of the library's.
const ROW: &str =
    "'s', $1, 'key', 1, 'claimed', '00112233445566778899aabbccddeeff', 1, '', 'host:1:00000000', 1, 15000, 0";

pub fn run() {
    let records: u64 = std::env::var("POLYLATCH_BENCH_RECORDS")
        .map_or(1_000_000, |text| text.parse().expect("POLYLATCH_BENCH_RECORDS is a number of records"));
    let server = on_processor_of_servers(RedisServer::start);
    pairs("Redis, beside a blocking socket", &server.url(), &mut socket_floor(&server));
    pairs("Redis, beside the redis crate", &server.url(), &mut redis_floor(&server));
    drop(server);
    for (what, settings) in mariadb::DURABLE {
        let server = on_processor_of_servers(|| MariadbServer::with(settings));
        pairs(&format!("MariaDB, {what}"), &server.url(), &mut mariadb_floor(&server));
    }
    let server = on_processor_of_servers(|| PostgresServer::with(&["synchronous_commit=off"]));
    pairs("PostgreSQL, synchronous_commit=off", &server.url(), &mut postgres_floor(&server));
    let server = on_processor_of_servers(PostgresServer::start);
    pairs("PostgreSQL, every commit on disk", &server.url(), &mut postgres_floor(&server));
    many("PostgreSQL", &server.url(), records, |from, to| {
        server.sql(&format!(
            "INSERT INTO polylatch.idempotency SELECT 'old', n::text, 'key', n, 'done', '00112233445566778899aabbccddeeff', \
             n, '', 'host:1:00000000', 1, 15000, 0, 0, n, 0, '\\x6f6b' FROM generate_series({from}, {to}) n"
        ));
    });
    let folder = TempDir::new();
    let path = folder.join("locks.db");
    let url = format!("sqlite:{}", path.display());
    pairs("SQLite", &url, &mut sqlite_floor(&folder));
    many("SQLite", &url, records, |from, to| {
        let file = Connection::open(&path).expect("it is there");
        file.busy_timeout(std::time::Duration::from_secs(20)).expect("a time");
        file.execute(
            "INSERT INTO idempotency WITH RECURSIVE n(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2) \
             SELECT 'old', CAST(n AS TEXT), 'key', n, 'done', '00112233445566778899aabbccddeeff', n, '', 'host:1:00000000', 1, \
             15000, 0, '', 0, n, 0, x'6f6b' FROM n",
            (from as i64, to as i64),
        )
        .expect("it is filled");
    });
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// A raw first run, and a raw repetition, of a key.
type Floor<'a> = dyn FnMut(&str, bool) + 'a;

fn pairs(store: &str, url: &str, floor: &mut Floor<'_>) {
    heading(&format!("{store}: idempotent work, one client (µs a run)"));
    let runtime = runtime();
    let client = runtime.block_on(Polylatch::connect(url)).expect("it connects");
    let scope = client.idempotency(store);
    let options = RunOptions::new();
    let mut samples: [Samples; 4] = Default::default();
    for number in 0..ROUNDS * PER_ROUND {
        let key = number.to_string();
        for (at, is_repeated) in [(0, false), (2, true)] {
            let started = Instant::now();
            floor(&key, is_repeated);
            samples[at].add(micros(started));
            let started = Instant::now();
            let ran = runtime
                .block_on(scope.run(&key, &options, |_| async { Ok(b"ok".to_vec()) }))
                .expect("it runs");
            samples[at + 1].add(micros(started));
            assert_eq!(ran.is_replayed(), is_repeated);
        }
    }
    let [first_floor, first, read, replay] = &samples;
    row("floor: a claim and a completion", "µs", first_floor, &[]);
    row("polylatch, a first run", "µs", first, &[("floor", first_floor.median())]);
    row("floor: a read", "µs", read, &[]);
    row("polylatch, a repetition", "µs", replay, &[("floor", read.median())]);
    runtime.block_on(client.close());
}

/// Two requests that set a key, or one that reads it, by the driver that the library uses.
fn redis_floor(server: &RedisServer) -> impl FnMut(&str, bool) {
    let runtime = runtime();
    let mut raw = runtime.block_on(async {
        let client = redis::Client::open(server.url()).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("it connects")
    });
    move |key, is_repeated| {
        let key = format!("crate:{key}");
        runtime.block_on(async {
            if is_repeated {
                let found: String =
                    redis::cmd("GET").arg(&key).query_async(&mut raw).await.expect("it is asked");
                assert_eq!(found, "ok");
                return;
            }
            let steps = [("00112233445566778899aabbccddeeff", "NX", 15_000), ("ok", "XX", 86_400_000)];
            for (value, when, ms) in steps {
                let mut set = redis::cmd("SET");
                let done: String = set
                    .arg(&key)
                    .arg(value)
                    .arg(when)
                    .arg("PX")
                    .arg(ms)
                    .query_async(&mut raw)
                    .await
                    .expect("it is set");
                assert_eq!(done, "OK");
            }
        });
    }
}

/// The same by a socket, on the thread that waits.
fn socket_floor(server: &RedisServer) -> impl FnMut(&str, bool) {
    let mut wire = Wire::connect(server.address());
    move |key, is_repeated| {
        let key = format!("floor:{key}");
        if is_repeated {
            assert_eq!(wire.ask(&["GET", &key]), "$2");
            assert_eq!(wire.line(), "ok");
            return;
        }
        assert_eq!(wire.ask(&["SET", &key, "00112233445566778899aabbccddeeff", "NX", "PX", "15000"]), "+OK");
        assert_eq!(wire.ask(&["SET", &key, "ok", "XX", "PX", "86400000"]), "+OK");
    }
}

fn mariadb_floor(server: &MariadbServer) -> impl FnMut(&str, bool) {
    let runtime = runtime();
    // The library makes its tables when it connects.
    let client = runtime.block_on(Polylatch::connect(&server.url())).expect("it connects");
    runtime.block_on(client.close());
    server.sql("CREATE TABLE locks.floor LIKE locks.polylatch_idempotency");
    let mut raw = runtime.block_on(mariadb::connect(server));
    move |key, is_repeated| {
        let params: Vec<Value> = vec![key.into()];
        runtime.block_on(async {
            if is_repeated {
                let sql = "SELECT state, fence, result FROM floor WHERE scope = 's' AND record_key = ? AND kind = 'key'";
                let found: Vec<mysql_async::Row> = raw.exec(sql, params).await.expect("it is asked");
                assert_eq!(found.len(), 1);
                return;
            }
            let claim = format!(
                "INSERT INTO floor (scope, record_key, kind, version, state, owner, fence, fingerprint, client, runs, \
                 lease_ms, renewals, ends_ms, keep_until_ms, written_ms, result) VALUES ({}, 1, 1, 1, '')",
                ROW.replace("$1", "?")
            );
            raw.exec_drop(claim, params.clone()).await.expect("it is inserted");
            let done = "UPDATE floor SET version = version + 1, state = 'done', result = 'ok' WHERE scope = 's' AND \
                        record_key = ? AND kind = 'key' AND version = 1";
            raw.exec_drop(done, params).await.expect("it is updated");
            assert_eq!(raw.affected_rows(), 1);
        });
    }
}

fn postgres_floor(server: &PostgresServer) -> impl FnMut(&str, bool) {
    let runtime = runtime();
    let url = server.url();
    // The library makes its tables when it connects.
    let client = runtime.block_on(Polylatch::connect(&url)).expect("it connects");
    let options = RunOptions::new();
    let made = client.idempotency("made");
    runtime.block_on(made.run("k", &options, |_| async { Ok(Vec::new()) })).expect("it runs");
    server.sql("CREATE TABLE floor (LIKE polylatch.idempotency INCLUDING ALL)");
    let raw = runtime.block_on(async {
        let (raw, connection) = tokio_postgres::connect(&url, NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        raw
    });
    move |key, is_repeated| {
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(&key, Type::TEXT)];
        let ask = |runtime: &Runtime, sql: &str| {
            runtime.block_on(raw.query_typed(sql, &params)).expect("it is asked").len()
        };
        if is_repeated {
            let found = ask(&runtime, "SELECT * FROM floor WHERE scope = 's' AND key = $1 AND kind = 'key'");
            assert_eq!(found, 1);
            return;
        }
        ask(
            &runtime,
            &format!(
                "INSERT INTO floor VALUES ({ROW}, 1, 1, 1, '') ON CONFLICT DO NOTHING RETURNING version"
            ),
        );
        let done = "UPDATE floor SET version = version + 1, state = 'done', result = '\\x6f6b' WHERE scope = 's' AND \
                    key = $1 AND kind = 'key' AND version = 1 RETURNING version";
        assert_eq!(ask(&runtime, done), 1);
    }
}

fn sqlite_floor(folder: &TempDir) -> impl FnMut(&str, bool) {
    let file = Connection::open(folder.join("floor.db")).expect("a file");
    // As durable as the library's.
    file.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE floor (scope TEXT, key TEXT, kind TEXT, version INTEGER, state TEXT, owner TEXT, fence INTEGER,
             fingerprint TEXT, client TEXT, runs INTEGER, lease_ms INTEGER, renewals INTEGER, boot TEXT, ends_ms INTEGER,
             keep INTEGER, written INTEGER, result BLOB, PRIMARY KEY (scope, key, kind)) STRICT;
         CREATE INDEX floor_over ON floor (keep);",
    )
    .expect("it is made");
    move |key, is_repeated| {
        let ask = |sql: &str| {
            let mut statement = file.prepare_cached(sql).expect("it is SQL");
            let mut rows = statement.query([key]).expect("it is asked");
            let mut count = 0;
            while rows.next().expect("a row").is_some() {
                count += 1;
            }
            count
        };
        if is_repeated {
            assert_eq!(ask("SELECT * FROM floor WHERE scope = 's' AND key = $1 AND kind = 'key'"), 1);
            return;
        }
        ask(&format!("INSERT INTO floor VALUES ({ROW}, '', 1, 1, 1, x'') RETURNING version"));
        let done = "UPDATE floor SET version = version + 1, state = 'done', result = x'6f6b' WHERE scope = 's' AND key = $1 \
                    AND kind = 'key' AND version = 1 RETURNING version";
        assert_eq!(ask(done), 1);
    }
}

/// Claims in a table that holds next to nothing, with many records, and while those are deleted.
fn many(store: &str, url: &str, records: u64, fill: impl Fn(u64, u64)) {
    heading(&format!("{store}: a claim, by what the table holds (µs a claim)"));
    let runtime = runtime();
    let client = runtime.block_on(Polylatch::connect(url)).expect("it connects");
    let empty = claims(&runtime, &client, "empty");
    row("few records", "µs", &empty, &[]);
    const AT_ONCE: u64 = 100_000;
    let mut from = 1;
    while from <= records {
        let to = records.min(from + AT_ONCE - 1);
        fill(from, to);
        from = to + 1;
    }
    let floors = [("the median of few", empty.median())];
    row(&format!("{records} records that are over"), "µs", &claims(&runtime, &client, "many"), &floors);
    let is_over = AtomicBool::new(false);
    let (samples, purged) = std::thread::scope(|threads| {
        let purging = threads.spawn(|| {
            let runtime = self::runtime();
            let client = runtime.block_on(Polylatch::connect(url)).expect("it connects");
            let mut purged = 0;
            // As clients do it, but one after the other.
            while !is_over.load(Ordering::SeqCst) {
                purged += runtime.block_on(client.idempotency_records().purge(256)).expect("it deletes");
            }
            purged
        });
        let samples = claims(&runtime, &client, "purged");
        is_over.store(true, Ordering::SeqCst);
        (samples, purging.join().expect("no panic"))
    });
    row("the same, while they are deleted, 256 at a time", "µs", &samples, &floors);
    println!(
        "  p99 of a claim: {:.2} × that of few records; {purged} records were deleted meanwhile",
        samples.quantile(0.99) / empty.quantile(0.99)
    );
}

fn claims(runtime: &Runtime, client: &Polylatch, scope: &str) -> Samples {
    let scope = client.idempotency(scope);
    let options = RunOptions::new();
    let mut samples = Samples::default();
    for number in 0..CLAIMS {
        let started = Instant::now();
        let Begun::Mine(run) =
            runtime.block_on(scope.begin(&number.to_string(), &options)).expect("it is free")
        else {
            panic!("a new key")
        };
        samples.add(micros(started));
        runtime.block_on(run.finish(Ok(b"ok".to_vec()))).expect("it is stored");
    }
    samples
}
