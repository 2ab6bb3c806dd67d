//! The program `polylatch`: what is typed, and which part answers.

mod break_lease;
mod check;
mod completions;
mod demo;
mod doctor;
mod exit;
mod exporter;
mod graph;
mod idem;
mod ls;
mod man;
mod paint;
mod permits;
mod record;
mod rules;
mod run;
mod schema;
mod settled;
mod show;
mod signals;
mod store;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use host::duration::parse_duration;

use paint::say;
use permits::parse_permits;
use run::wait_for::{WaitFor, parse_wait};
use store::Failure;

/// Run commands under a distributed lock, and see who holds, who waits and why a lock is stuck.
#[derive(Debug, Parser)]
#[command(name = "polylatch", version, max_term_width = 100, after_help = MAIN_HELP)]
struct Cli {
    /// The store, such as sqlite:/var/lib/locks.db or redis://cache:6379
    ///
    /// Without it: the embedded SQLite file in your state directory, shared by the programs of this
    /// host that run as you. A new SQLite file is readable and writable by its user only; to share one between
    /// users, create it first, empty, with the rights that they need.
    // The value is not shown in help texts: it may hold a password.
    #[arg(long, global = true, value_name = "URL", env = "POLYLATCH_URL", hide_env_values = true)]
    url: Option<String>,

    /// The URL was typed and does not come from the environment.
    #[arg(skip)]
    url_is_typed: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Watch(WatchArgs),
    Graph(GraphArgs),
    Record(RecordArgs),
    Break(BreakArgs),
    Idem(idem::IdemArgs),
    Doctor(doctor::DoctorArgs),
    Check(check::CheckArgs),
    Exporter(exporter::ExporterArgs),
    Demo(demo::DemoArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Run a command while holding a lock
///
/// Waits until the lock is free, runs the command with a lease that is renewed in the background,
/// releases the lock, and passes the command's exit code on.
///
/// The command is stopped before it could run without the lock: when renewals fail (SIGTERM, then
/// SIGKILL before the lease ends), when the lease is broken or lost, and at the hold limit.
#[derive(Debug, Args)]
#[command(override_usage = "polylatch run [OPTIONS] <NAME> -- <CMD>...")]
#[command(after_long_help = RUN_HELP, after_help = "See `polylatch run --help` for examples and exit codes.")]
struct RunArgs {
    /// Name of the lock, such as orders/42
    name: String,

    /// How long to wait while another holder has it or the store is unavailable: forever, no, or a time
    /// such as 5s
    #[arg(long, value_name = "TIME", default_value = "forever", value_parser = parse_wait)]
    wait: WaitFor,

    /// Hold it together with others that say --shared, but not with --write
    ///
    /// Every run of this name must then say --shared or --write: without either, a lock is for one
    /// holder, and a name that is in use as one kind of lock is refused as another.
    #[arg(long, group = "kind")]
    shared: bool,

    /// Hold it alone, among those that say --shared or --write
    ///
    /// Waits until all that share it are gone; those that come to share it later wait behind this one.
    #[arg(long, group = "kind")]
    write: bool,

    /// Take N of CAP permits, such as 2/5; every run of this name must say the same CAP
    #[arg(long, value_name = "N/CAP", group = "kind", value_parser = parse_permits)]
    permits: Option<polylatch::Mode>,

    /// Length of the lease; after a crash the lock is free at the latest after this
    ///
    /// It is renewed at a third of its length. Shorter: faster recovery, less patience with a slow
    /// store or a paused machine. The store's default is 15s.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// Stop the command when it has held the lock for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_hold: Option<Duration>,

    /// Shown beside the lock, such as the job or the ticket
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Take a free lock even if other clients are queued
    #[arg(long)]
    no_fifo: bool,

    /// Time between SIGTERM and SIGKILL when the command must stop; cut to what the lease allows
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    kill_after: Duration,

    /// The command with its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// List locks: who holds them, since when, and who waits; problems first
#[derive(Debug, Args)]
#[command(after_help = LS_HELP)]
struct LsArgs {
    /// Only locks whose name starts with this
    prefix: Option<String>,

    /// Also other libraries' locks whose keys match, such as lock:* (Redis)
    #[arg(long, value_name = "PATTERN")]
    foreign: Option<String>,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Explain one lock: holder, lease, renewals, waiters, and why it does not move
#[derive(Debug, Args)]
#[command(visible_alias = "why", override_usage = "polylatch show [OPTIONS] <NAME>", after_help = SHOW_HELP)]
struct ShowArgs {
    /// Name of the lock
    name: String,

    /// The name is the key of another library's lock (Redis)
    #[arg(long)]
    foreign: bool,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Watch locks live, with what happens to them
#[derive(Debug, Args)]
#[command(after_help = WATCH_HELP)]
struct WatchArgs {
    /// Only locks whose name starts with this
    prefix: Option<String>,

    /// How often to read the store, 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    every: Duration,

    /// Also other libraries' locks whose keys match, such as lock:* (Redis)
    #[arg(long, value_name = "PATTERN")]
    foreign: Option<String>,

    /// Also tell every renewal when printing line by line
    #[arg(long)]
    renewals: bool,

    /// Print one JSON object per event and line
    #[arg(long)]
    json: bool,
}

/// Show the wait-for graph: deadlocks and blocking clients
#[derive(Debug, Args)]
#[command(after_help = GRAPH_HELP)]
struct GraphArgs {
    /// Only locks whose name starts with this
    prefix: Option<String>,

    /// Another store whose locks are part of the graph; may be repeated
    #[arg(long, value_name = "URL", hide_env_values = true)]
    also: Vec<String>,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Record what happens into a file that polylatch-inspector plays back
#[derive(Debug, Args)]
struct RecordArgs {
    /// The file; it must not be there yet
    file: std::path::PathBuf,

    /// Only locks whose name starts with this
    prefix: Option<String>,

    /// How often to read the store, 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    every: Duration,

    /// End by itself after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
}

/// Break a lease
///
/// Names the fencing token of the lease you looked at (`polylatch show NAME`), so that a lock which
/// changed hands meanwhile is left alone. The next waiter gets the lock. The old holder is notified
/// at its next renewal; until then it may still work, and only fencing tokens keep its writes out.
#[derive(Debug, Args)]
#[command(override_usage = "polylatch break [OPTIONS] --token <NUMBER> --reason <TEXT> <NAME>")]
#[command(after_help = BREAK_HELP)]
struct BreakArgs {
    /// Name of the lock
    name: String,

    /// Fencing token of the lease to end
    #[arg(long, value_name = "NUMBER")]
    token: u64,

    /// Why; kept in the store for those who ask later
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(60);
    if range.contains(&every) { Ok(every) } else { Err(format!("{text:?} is not between 100ms and 1m")) }
}

// Lines of examples and lists fit into 80 columns; paragraphs are one line each and wrapped by clap.
const MAIN_HELP: &str = "\
Examples:
  polylatch run nightly/backup -- ./backup.sh    one at a time, on all machines
  polylatch run deploy --wait no -- ./deploy.sh  exit 75 if another is at it
  polylatch idem run orders 9f1c -- ./order.sh   once for each key
  polylatch ls                                   what is held, by whom, how long
  polylatch show nightly/backup                  why does it not move?
  polylatch watch                                live
  polylatch doctor                               what can this store promise?
  polylatch check --max-wait 30s                 for cron: one line, exit code
  polylatch exporter                             metrics for Prometheus
  polylatch demo                                 see how it works";

const RUN_HELP: &str = "\
Examples:
  polylatch run nightly/backup -- ./backup.sh
  polylatch run deploy --wait 5m --label 'release 7' -- make deploy
  polylatch run import --lease 60s --max-hold 2h -- python import.py
  polylatch run stock/9 -- sh -c './write --fence $POLYLATCH_FENCING_TOKEN'
  polylatch run index --shared -- ./search    beside others that read
  polylatch run index --write -- ./rebuild    when all readers are gone
  polylatch run convert --permits 1/4 -- ./convert.sh    at most 4 at a time

The command's environment:
  POLYLATCH_LOCK           the lock's name
  POLYLATCH_FENCING_TOKEN  grows with every grant; give it to what the lock
                           protects, which can then refuse a late writer
  POLYLATCH_URL            the store, if you gave one

Exit codes:
  the command's own, or 128+N if signal N ended it
  64   the command line is wrong
  69   the store could not be reached until the wait was over (--wait), or it
       refuses, or the name is in use as another kind of lock (--shared,
       --write, --permits)
  70   a bug in polylatch
  74   the operating system failed a call, such as writing the output
  75   not acquired: the wait was over (--wait); the command was not started
  76   the lease was lost or nearly lost, or the hold limit came; the command
       was stopped
  126  the command cannot be executed
  127  there is no such command
  130  interrupted while waiting (128+N for other signals); the place in the queue
       is given up

Signals: INT, TERM, HUP and QUIT go on to the command, which runs in a process \
group of its own and has the terminal. A stopped (SIGSTOP) polylatch cannot \
renew; if it continues after the lease's end, it kills the command at once.

Not protected: processes that the command leaves behind when it ends. If \
polylatch itself is killed (SIGKILL), Linux kills the command with it, but not \
what the command has started; other systems kill neither. The lock is then \
free when the lease ends.";

const LS_HELP: &str = "\
Examples:
  polylatch ls
  polylatch ls orders/
  polylatch ls --foreign 'lock:*'    also other libraries' locks on Redis
  polylatch ls --json | jq -r '.locks[] | select(.state != \"held\") | .name'

States, worst first:
  deadlock     clients wait for each other in a ring
  deadlock?    they may: see `polylatch graph --help`
  stopped      the holder's process is stopped (SIGSTOP, Ctrl-Z)
  no expiry    nothing ends it by itself
  holder gone  the holder's process has ended; its lease still runs
  no renewal   two renewals are missing
  endangered   a renewal is late
  foreign      another program's lock
  contended    held, and others wait
  held, free

MODE is read, write, or how many permits are taken of how many, and empty for \
a lock of one holder. +2 behind a holder: two others hold it too. HELD is how long, LEASE what is left of it, RENEWED how often and when last, \
WAITING how many and how long the first. A narrow terminal leaves columns out; \
`polylatch show` has everything.";

const SHOW_HELP: &str = "\
Examples:
  polylatch show orders/42
  polylatch show --foreign lock:plain    a key of another library on Redis
  polylatch show orders/42 --json | jq -r '.locks[0].findings[0].sentence'";

const GRAPH_HELP: &str = "\
Examples:
  polylatch graph
  polylatch graph --url redis://cache --also sqlite:/var/lib/locks.db
  polylatch graph --json | jq -r '.deadlocks[].waits[].lock'

A deadlock is proved where nested `polylatch run`s wait for each other. Other \
clients may have several tasks, and the store does not tell them apart: a ring \
of such clients is a possible deadlock. It is shown when no lock in it changed \
hands for 4 s, or for 30 s if a client in it also waits for other locks.

Exit codes:
  0    no deadlock
  2    a deadlock, or a possible one
  64   the command line is wrong
  69   a store cannot be reached or refuses";

const WATCH_HELP: &str = "\
Examples:
  polylatch watch
  polylatch watch orders/ --every 250ms
  polylatch watch --json | jq -c 'select(.event == \"expired\")'

Keys: arrows select, Enter shows why and who, / filters (state:stuck, held>10m, \
ttl<5s, -text), s sorts, g groups, space pauses, b breaks a lease, ? lists all, q \
leaves. If the output is not a terminal, events are printed line by line.";

const BREAK_HELP: &str = "\
Examples:
  polylatch show orders/42        first look who holds it, and take the token
  polylatch break orders/42 --token 17 --reason 'host is down, ticket 4711'

Exit codes:
  0    broken
  1    nothing broken: free, another token, or not confirmed
  64   the command line is wrong, or no terminal to ask at and no --yes
  69   the store cannot be reached or refuses";

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = host::demo_place::cleaner() {
        return code;
    }
    if let Some(code) = demo_part() {
        return code;
    }
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return told(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => Cli { url_is_typed: is_typed(&matches, "url"), ..cli },
        Err(error) => return told(&error),
    };
    run_to_end(answer(cli))
}

/// Plays a part of the demo, if this process was started for that. It is not among the commands:
/// no user types it, so completions and help need not know it.
fn demo_part() -> Option<ExitCode> {
    Some(match demo::worker_args()? {
        Ok(args) => run_to_end(demo::worker(&args)),
        Err(error) => told(&error),
    })
}

/// Prints what is wrong with the command line, or the help that it asks for.
fn told(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    match without_urls(&rendered, std::env::args()) {
        shown if shown == rendered => drop(error.print()),
        shown => eprint!("{shown}"),
    }
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 })
}

/// Takes URLs that may hold a password out of what is said about the command line: one in the wrong place is
/// repeated there.
fn without_urls(text: &str, args: impl Iterator<Item = String>) -> String {
    args.filter(|arg| arg.contains(':') && arg.contains('@'))
        .fold(text.to_owned(), |text, arg| text.replace(&arg, "URL"))
}

fn run_to_end(answer: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("no event loop: {error}"));
            return ExitCode::from(exit::INTERNAL);
        }
    };
    let code = runtime.block_on(answer).unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            say(&failure.message);
        }
        failure.code
    });
    // A thread that waits for a key is not worth waiting for.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Says whether an argument was given on the command line, before or behind the subcommand.
fn is_typed(matches: &clap::ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
        || matches.subcommand().is_some_and(|(_, matches)| is_typed(matches, id))
}

async fn answer(cli: Cli) -> Result<u8, Failure> {
    let url = cli.url.as_deref();
    match cli.command {
        Command::Run(args) => run::run(url, args).await,
        Command::Ls(args) => ls::ls(url, &args).await,
        Command::Show(args) => show::show(url, &args).await,
        Command::Watch(args) => watch::watch(url, &args).await,
        Command::Graph(args) => graph::graph(url, &args).await,
        Command::Record(args) => record::record(url, &args).await,
        Command::Break(args) => break_lease::break_lease(url, &args).await,
        Command::Idem(args) => idem::idem(url, args).await,
        Command::Check(args) => check::check(url, &args).await,
        Command::Exporter(args) => exporter::exporter(url, &args).await,
        Command::Doctor(args) => doctor::doctor(url, &args).await,
        // Never the user's own store unless it was named for this.
        Command::Demo(args) => demo::demo(url.filter(|_| cli.url_is_typed), &args).await,
        Command::Schema(args) => schema::schema(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("polylatch").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_in_the_wrong_place_is_not_repeated() {
        let line = ["polylatch", "doctor", "redis://:Zq7xWv/Kj9pLm@cache"].map(String::from);
        let told = Cli::try_parse_from(&line).unwrap_err().to_string();
        assert!(told.contains("Zq7xWv"), "{told}");
        let shown = without_urls(&told, line.into_iter());
        assert!(!shown.contains("Zq7x") && !shown.contains("Kj9p") && shown.contains("'URL'"), "{shown}");
    }

    #[test]
    fn names_behind_a_double_dash_are_names() {
        let words = ["polylatch", "show", "--", "--all"];
        let Command::Show(args) = Cli::try_parse_from(words).unwrap().command else { panic!("not show") };
        assert_eq!(args.name, "--all");
        let words = ["polylatch", "break", "--token", "7", "--reason=-v", "--", "-x"];
        let Command::Break(args) = Cli::try_parse_from(words).unwrap().command else { panic!("not break") };
        assert_eq!((args.name.as_str(), args.reason.as_str()), ("-x", "-v"));
        assert!(parse("break -x --token 7 --reason y").is_err());
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_everything_behind_the_dashes_as_the_command() {
        let line = "run orders --wait 5s --lease 1m30s --max-hold 10m --label x --no-fifo -- ls --json -- x";
        let Command::Run(args) = parse(line).unwrap().command else { panic!("not run") };
        assert_eq!(args.name, "orders");
        assert_eq!(args.wait, WaitFor::AtMost(Duration::from_secs(5)));
        assert_eq!(args.lease, Some(Duration::from_secs(90)));
        assert_eq!(args.max_hold, Some(Duration::from_secs(600)));
        assert!(args.no_fifo);
        assert_eq!(args.command, ["ls", "--json", "--", "x"]);
        let Command::Run(args) = parse("run orders -- true").unwrap().command else { panic!("not run") };
        assert_eq!(
            (args.wait, args.lease, args.kill_after),
            (WaitFor::Forever, None, Duration::from_secs(5))
        );
    }

    #[test]
    fn the_url_may_stand_anywhere() {
        for line in ["--url sqlite:x ls", "ls --url sqlite:x"] {
            assert_eq!(parse(line).unwrap().url.as_deref(), Some("sqlite:x"), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_told_with_what_is_wrong() {
        for (line, part) in [
            ("run", "<NAME>"),
            ("run orders", "<CMD>"),
            ("run orders --", "<CMD>"),
            ("run orders ls", "unexpected argument 'ls'"),
            ("run orders --wiat 5s -- ls", "--wait"),
            ("run orders --lease 5 -- ls", "the unit is missing"),
            ("run orders --shared --write -- ls", "cannot be used with"),
            ("run orders --write --permits 1/2 -- ls", "cannot be used with"),
            ("run orders --permits 3/2 -- ls", "the semaphore has 2 permits; request 1 to 2"),
            ("run orders --permits 3 -- ls", "write it like 2/5"),
            ("show", "<NAME>"),
            ("ls --frobnicate", "--frobnicate"),
            ("watch --every 1ms", "not between 100ms and 1m"),
            ("break orders --reason x", "--token"),
            ("break orders --token 7", "--reason"),
            ("break orders --token seven --reason x", "invalid digit"),
            ("break orders --token 7 --reason=", "--reason"),
            ("frobnicate", "unrecognized subcommand"),
            ("", "Usage"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
