//! `polylatch demo`: real processes that contend for locks, one of them paused beyond its lease.
//!
//! The parent shows what happens (`stage.rs`), decides what happens next (`story.rs`) and is the
//! resource that the locks protect (`ledger.rs`). Workers (`worker.rs`) are processes of their own
//! (`crew.rs`); one more process cleans up, also when the parent is killed (`host::demo_place`).

#[cfg(unix)]
mod crew;
#[cfg(unix)]
mod ledger;
#[cfg(unix)]
mod show;
#[cfg(unix)]
mod stage;
#[cfg(unix)]
mod story;
#[cfg(unix)]
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser};

use super::store::Failure;

/// Watch real processes share locks, lose one, and be refused by a fencing token
///
/// Starts five worker processes on a throw-away store and shows their locks live, with a line that
/// says what happens: normal hand-offs; a worker that is paused beyond its lease, so that the next one
/// enters with a larger fencing token and the late write of the first is refused; a killed holder
/// and a dead waiter that are passed over.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub(super) struct DemoArgs {
    /// How long to play, 10 to 600
    #[arg(long, value_name = "NUMBER", default_value_t = 28, value_parser = clap::value_parser!(u64).range(10..=600))]
    seconds: u64,
}

const DEMO_HELP: &str = "\
Examples:
  polylatch demo                         on a throw-away SQLite file
  polylatch demo --seconds 60            slower, and more of it
  polylatch demo --url redis://cache     on your own store, under a name that
                                         begins with polylatch-demo-
  polylatch demo | cat                   the story, line by line

Keys: q or Ctrl-C leaves. Nothing is left behind: no process, no file, no lock.
Without --url, POLYLATCH_URL and your own store are left alone: the demo makes
a throw-away SQLite file. If the output is not a terminal, the story is printed
line by line.";

/// What a worker of the demo is started with.
const WORKER: &str = "demo-worker";

/// A worker of the demo. Started by the demo itself.
#[derive(Debug, Parser)]
#[command(name = WORKER)]
pub(super) struct WorkerArgs {
    /// The store
    #[arg(long, env = "POLYLATCH_URL", hide_env_values = true)]
    url: Option<String>,
    /// Name of the worker
    #[arg(long)]
    name: String,
    /// What lock names begin with
    #[arg(long, default_value = "")]
    prefix: String,
    /// The demo's folder
    #[arg(long)]
    folder: PathBuf,
    /// Speed of the story, 1000 is normal, larger is slower
    #[arg(long, default_value_t = 1000)]
    pace: u32,
}

#[cfg(unix)]
pub(super) async fn demo(url: Option<&str>, args: &DemoArgs) -> Result<u8, Failure> {
    stage::play(url, args.seconds).await
}

/// Says what this process is to do if it was started as a part of the demo.
pub(super) fn worker_args() -> Option<Result<WorkerArgs, clap::Error>> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == WORKER).then(|| WorkerArgs::try_parse_from(std::iter::once(WORKER.into()).chain(words)))
}

#[cfg(unix)]
pub(super) async fn worker(args: &WorkerArgs) -> Result<u8, Failure> {
    worker::work(args).await
}

#[cfg(not(unix))]
pub(super) async fn demo(_: Option<&str>, _: &DemoArgs) -> Result<u8, Failure> {
    Err(needs_unix())
}

#[cfg(not(unix))]
pub(super) async fn worker(_: &WorkerArgs) -> Result<u8, Failure> {
    Err(needs_unix())
}

#[cfg(not(unix))]
fn needs_unix() -> Failure {
    Failure::new(super::exit::UNAVAILABLE, "demo needs a Unix system: pausing a process takes signals")
}

/// The locks of the demo: the first one protects the ledger.
#[cfg(unix)]
const LOCKS: [&str; 3] = [LEDGER, "mail", "reports"];

#[cfg(unix)]
const LEDGER: &str = "ledger";

/// The workers.
#[cfg(unix)]
const NAMES: [&str; 5] = ["ann", "bob", "cid", "dee", "eve"];

/// A time of the story at a pace.
#[cfg(unix)]
fn paced(millis: u64, pace: u32) -> std::time::Duration {
    std::time::Duration::from_millis(millis) * pace / 1000
}
