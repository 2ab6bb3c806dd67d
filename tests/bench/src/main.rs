//! Measures Polylatch on Redis against the raw floor of the same run: `cargo run --release -p
//! polylatch-bench [-- NAME…]` with names out of `uncontended`, `kept`, `throughput`, `handoff`, `renewal`,
//! `family`, `memory`, `redlock`, `consul` (on a Consul agent), `postgres` and `mariadb` (on servers of those), `idempotency`
//! (on Redis, PostgreSQL, MariaDB and SQLite), `etcd` and `zookeeper`; `peers`, which only runs where it is named, stands beside
//! other libraries (`tests/bench/beside` starts it with them).
//!
//! `--layout one-core` puts servers and clients on one processor, `--layout split` on one each: say which, the ratios depend
//! on it. `--record FILE` writes the ratios of the run into a file of ratios, `--check FILE` fails if one is worse by more
//! than 15 % than it is there.
//!
//! It starts a server of its own. Every figure stands beside a floor that is taken in the same run,
//! in alternation with it: trust the ratios, not the absolute times.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod baseline;
mod companion;
mod consul;
mod contender;
mod contention;
mod cost;
mod database;
mod etcd;
mod family;
mod figures;
mod handoff;
mod http;
mod idempotency;
mod kept;
mod layout;
mod mariadb;
mod memory;
mod peer;
mod peers;
mod postgres;
mod raw;
mod redlock;
mod renewal;
mod throughput;
mod uncontended;
mod zookeeper;

use baseline::Baseline;
use layout::Layout;
use peers::Peer;

const NAMES: [&str; 15] = [
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
    "peers",
];

fn main() -> ExitCode {
    let asked: Vec<_> = std::env::args().skip(1).collect();
    if contender::run(&asked) || peer::run(&asked) {
        return ExitCode::SUCCESS;
    }
    if let [word, url] = asked.as_slice()
        && word == "companion"
    {
        return companion::run(url);
    }
    let Plan { asked, layout, record, check, beside } = match Plan::read(asked) {
        Ok(plan) => plan,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    if let Err(wrong) = layout::choose(layout) {
        eprintln!("{wrong}");
        return ExitCode::from(2);
    }
    println!("layout: {}", layout.name());
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
    if asked.iter().any(|asked| asked == "peers") {
        peers::run(&beside);
    }
    match conclude(record.as_deref(), check.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

/// What this run measures, where, and what becomes of its ratios.
struct Plan {
    asked: Vec<String>,
    layout: Layout,
    record: Option<PathBuf>,
    check: Option<PathBuf>,
    /// Other libraries.
    beside: Vec<Peer>,
}

impl Plan {
    fn read(words: Vec<String>) -> Result<Self, String> {
        let mut plan =
            Self { asked: Vec::new(), layout: Layout::Any, record: None, check: None, beside: Vec::new() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--layout" => {
                    let name = value()?;
                    let unknown = || format!("--layout is any, one-core or split, not {name:?}");
                    plan.layout = Layout::named(&name).ok_or_else(unknown)?;
                }
                "--record" => plan.record = Some(value()?.into()),
                "--check" => plan.check = Some(value()?.into()),
                "--beside" => plan.beside.push(Peer::read(&value()?)?),
                name if NAMES.contains(&name) => plan.asked.push(word),
                _ => return Err(format!("there is no benchmark {word:?}; there are {}", NAMES.join(", "))),
            }
        }
        Ok(plan)
    }
}

/// Writes the ratios of this run down, or compares them with those that were.
fn conclude(record: Option<&Path>, check: Option<&Path>) -> Result<(), String> {
    let measured = figures::ratios();
    if let Some(path) = record {
        let mut all = if path.exists() { Baseline::read(path)? } else { Baseline::default() };
        all.note(&measured);
        std::fs::write(path, all.text()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let Some(path) = check else { return Ok(()) };
    let (worse, unknown) = Baseline::read(path)?.compare(&measured);
    let mut wrong = String::new();
    if !worse.is_empty() {
        wrong += &format!("\nworse than in {}, by more than 15 %:\n  {}", path.display(), worse.join("\n  "));
    }
    if !unknown.is_empty() {
        let what = unknown.join("\n  ");
        wrong += &format!("\nnot in {}, --record writes it there:\n  {what}", path.display());
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    println!("\n{} ratios are no worse than in {}", measured.len(), path.display());
    Ok(())
}
