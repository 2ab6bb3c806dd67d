//! Measures Polylatch on Redis against the raw floor of the same run: `cargo run --release -p
//! polylatch-bench [-- NAME…]` with names out of `uncontended`, `kept`, `throughput`, `handoff`, `renewal`,
//! `family`, `memory`, `redlock`, `consul` (on a Consul agent), `postgres` and `mariadb` (on servers of those), `idempotency`
//! (on Redis, PostgreSQL, MariaDB and SQLite), `etcd` and `zookeeper`.
//!
//! It starts a server of its own. Every figure stands beside a floor that is taken in the same run,
//! in alternation with it: trust the ratios, not the absolute times.

use std::process::ExitCode;

mod companion;
mod consul;
mod contender;
mod contention;
mod database;
mod etcd;
mod family;
mod figures;
mod handoff;
mod http;
mod idempotency;
mod kept;
mod mariadb;
mod memory;
mod postgres;
mod raw;
mod redlock;
mod renewal;
mod throughput;
mod uncontended;
mod zookeeper;

const NAMES: [&str; 14] = [
    "uncontended",
    "kept",
    "throughput",
    "handoff",
    "renewal",
    "family",
    "memory",
    "redlock",
    "consul",
    "postgres",
    "mariadb",
    "idempotency",
    "etcd",
    "zookeeper",
];

fn main() -> ExitCode {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    if contender::run(&asked) {
        return ExitCode::SUCCESS;
    }
    if let [word, url] = asked.as_slice()
        && word == "companion"
    {
        return companion::run(url);
    }
    if let Some(unknown) = asked.iter().find(|name| !NAMES.contains(&name.as_str())) {
        eprintln!("there is no benchmark {unknown:?}; there are {}", NAMES.join(", "));
        return ExitCode::from(2);
    }
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    if cfg!(debug_assertions) {
        eprintln!("note: not built with --release, so these figures say little");
    }
    if wanted("uncontended") {
        uncontended::run();
    }
    if wanted("kept") {
        kept::run();
    }
    if wanted("throughput") {
        throughput::run();
    }
    if wanted("handoff") {
        handoff::run();
    }
    if wanted("renewal") {
        renewal::run();
    }
    if wanted("consul") {
        consul::run();
    }
    if wanted("postgres") {
        postgres::run();
    }
    if wanted("mariadb") {
        mariadb::run();
    }
    if wanted("etcd") {
        etcd::run();
    }
    if wanted("zookeeper") {
        zookeeper::run();
    }
    if wanted("idempotency") {
        idempotency::run();
    }
    if wanted("family") {
        family::run();
    }
    if wanted("memory") {
        memory::run();
    }
    if wanted("redlock") {
        redlock::run();
    }
    ExitCode::SUCCESS
}
