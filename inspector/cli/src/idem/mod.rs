//! `polylatch idem`: commands that are run once and answered every time.

#[cfg(unix)]
mod child;
mod frame;
pub(crate) mod records;
#[cfg(unix)]
mod run;

use std::time::Duration;

use clap::{Args, Subcommand};
use host::duration::parse_duration;
use polylatch::idempotency::Retention;

use crate::run::wait_for::{WaitFor, parse_wait};
use crate::store::Failure;

/// Run a command once for each key, and repeat its output and exit code ever after
///
/// A script that is repeated after a timeout, a retry of a job, two deliveries of one message: give each request a key, and
/// the second run prints what the first one printed.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct IdemArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Forget(ForgetArgs),
}

/// Run a command unless it has run for this key; otherwise repeat its output and exit code
///
/// The first run claims the key, runs the command, and stores standard output, standard error and the exit code. Later runs
/// print the same and start nothing. A run that comes meanwhile waits for the first one.
///
/// An exit code other than 0 is stored too: a command that failed may have had an effect. With --free-on-failure, and if a
/// signal ended the command, the next run starts it again.
#[derive(Debug, Args)]
#[command(override_usage = "polylatch idem run [OPTIONS] <SCOPE> <KEY> -- <CMD>...")]
#[command(after_long_help = RUN_HELP, after_help = "See `polylatch idem run --help` for examples and exit codes.")]
struct RunArgs {
    /// What is done and for which caller, such as orders/customer-7; keys of different scopes never meet
    scope: String,

    /// What is unique to one request, such as a UUID that its client made
    key: String,

    /// How long the answer is kept: forever, or a time from 1s to 3660d. Longer than requests are repeated
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_retention)]
    retention: Retention,

    /// How long to wait for another run of the key: forever, no, or a time such as 5s
    #[arg(long, value_name = "TIME", default_value = "forever", value_parser = parse_wait)]
    wait: WaitFor,

    /// What the request is recognized by, such as a digest of its payload; without it, the command with its arguments
    ///
    /// A run of the same key with another one is refused.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,

    /// Length of the claim's lease; after a crash the next run waits no longer than this
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// Do not store an exit code other than 0: the next run starts the command again
    #[arg(long)]
    free_on_failure: bool,

    /// The command with its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// List keys and tokens: what is running, what is stored and until when
#[derive(Debug, Args)]
struct LsArgs {
    /// Only scopes that start with this
    prefix: Option<String>,

    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    most: usize,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Explain one key: who ran it and when, and what the next run does
#[derive(Debug, Args)]
struct ShowArgs {
    /// The scope
    scope: String,

    /// The key
    key: String,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Delete what is stored for a key, so that its command is run again
///
/// Exit codes: 0 forgotten, 1 nothing to forget or still running.
#[derive(Debug, Args)]
struct ForgetArgs {
    /// The scope
    scope: String,

    /// The key
    key: String,

    /// Also while a client runs it: it loses its claim, and until it notices, another may run beside it
    #[arg(long)]
    even_if_running: bool,
}

const HELP: &str = "\
Examples:
  polylatch idem run orders/anna 9f1c -- ./order.sh 42
  polylatch idem ls orders/
  polylatch idem show orders/anna 9f1c
  polylatch idem forget orders/anna 9f1c";

const RUN_HELP: &str = "\
Examples:
  polylatch idem run orders/anna 9f1c -- ./order.sh 42
  polylatch idem run mail \"$MESSAGE_ID\" --retention 30d -- ./send.sh
  polylatch idem run import 2026-11-23 --wait no -- python import.py

The command's environment:
  POLYLATCH_IDEM_KEY       the key
  POLYLATCH_IDEM_RUNS      1, or more if an earlier run died: it may have had an
                           effect
  POLYLATCH_FENCING_TOKEN  grows with every run of the key; give it to what the
                           command changes, which can then refuse a late writer

Exit codes:
  the command's own, now or as it is stored, or 128+N if signal N ended it
  64   the command line is wrong
  65   the key was used with another command or --fingerprint; nothing was run
  69   the store cannot be reached, refuses, or keeps no records
  75   another run of the key is in progress, and the wait was over (--wait)
  76   the command was run, and its answer is not stored: the claim was lost and \
the command killed, or the store did not answer
  126  the command cannot be executed (not stored)
  127  there is no such command (not stored)

Stored are the first 384 KiB of each output. Both are printed while the command \
runs; repeated are first standard output, then standard error. Standard input is \
not a part of what is compared: give its digest as --fingerprint.

If this program or its machine dies after the command had its effect and before \
the answer is stored, the next run starts it again when the lease has ended. A \
command whose second effect does harm has to refuse it itself, by the key or by \
the fencing token.";

fn parse_retention(text: &str) -> Result<Retention, String> {
    match text {
        "forever" => Ok(Retention::Forever),
        _ => parse_duration(text).map(Retention::For).map_err(|error| format!("{error}; or `forever`")),
    }
}

pub(super) async fn idem(url: Option<&str>, args: IdemArgs) -> Result<u8, Failure> {
    match args.command {
        #[cfg(unix)]
        Command::Run(args) => run::run(url, args).await,
        #[cfg(not(unix))]
        Command::Run(_) => Err(Failure::new(
            crate::exit::UNAVAILABLE,
            "idem run needs a Unix system: stopping a command in time takes signals",
        )),
        Command::Ls(args) => records::ls(url, &args).await,
        Command::Show(args) => records::show(url, &args).await,
        Command::Forget(args) => records::forget(url, &args).await,
    }
}
