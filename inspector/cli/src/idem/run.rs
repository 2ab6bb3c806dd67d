//! `polylatch idem run`: claim, run, store; or repeat.

use std::cell::Cell;
use std::io::{self, Write};
use std::time::Duration;

use polylatch::idempotency::{
    Claim, Failure as WorkFailure, OnFailure, Outcome, RunError, RunOptions, fingerprint_of,
};
use rustix::process::Signal;

use super::RunArgs;
use super::child::{Running, ending};
use super::frame::{Frame, KEPT};
use crate::exit;
use crate::paint::say;
use crate::run::wait_for::WaitFor;
use crate::signals::Signals;
use crate::store::{Failure, Store};
use model::text::sanitized;

/// How often the claim is looked at while the command runs.
const LOOK_AT_CLAIM_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn run(url: Option<&str>, args: RunArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let command = std::path::Path::new(&args.command[0]).file_name().unwrap_or(&args.command[0]);
    let program = format!("{} (polylatch idem run)", command.to_string_lossy());
    let store = Store::open(url, Some(program)).await?;
    let scope = store.client.idempotency(args.scope.as_str());
    let options = options(&args);
    // Whether the command was begun decides what a signal means.
    let begun = Cell::new(false);
    let ended = {
        let (begun, signals, args) = (&begun, &mut signals, &args);
        let (inner, mut wishes) = tokio::sync::mpsc::unbounded_channel();
        let mut working = std::pin::pin!(scope.run(&args.key, &options, |claim| {
            begun.set(true);
            async move { work(args, &claim, &mut wishes).await }
        }));
        loop {
            tokio::select! {
                ended = &mut working => break Ok(ended),
                signal = signals.next() => {
                    if !begun.get() {
                        break Err(signal);
                    }
                    let _ = inner.send(signal);
                }
            }
        }
    };
    let code = match ended {
        // It only waited.
        Err(signal) => Ok(exit::SIGNAL_BASE + u8::try_from(signal.as_raw()).unwrap_or(0)),
        Ok(ended) => answer(ended),
    };
    store.client.close().await;
    code
}

fn options(args: &RunArgs) -> RunOptions {
    let mut options = RunOptions::new().retention(args.retention);
    options = match &args.fingerprint {
        Some(fingerprint) => options.fingerprint(fingerprint.as_str()),
        None => {
            let words: Vec<_> = args.command.iter().map(|word| word.as_encoded_bytes()).collect();
            options.fingerprint(fingerprint_of(&words.join(&0)))
        }
    };
    if let Some(lease) = args.lease {
        options = options.lease(lease);
    }
    if args.free_on_failure {
        options = options.on_failure(OnFailure::Free);
    }
    match args.wait {
        WaitFor::Forever => options.wait_forever(),
        WaitFor::No => options.no_wait(),
        WaitFor::AtMost(wait) => options.wait(wait),
    }
}

/// Runs the command. It is asked to end when the claim is endangered, and killed when it is lost.
async fn work(
    args: &RunArgs,
    claim: &Claim,
    wishes: &mut tokio::sync::mpsc::UnboundedReceiver<Signal>,
) -> Result<Vec<u8>, WorkFailure> {
    let env = [
        ("POLYLATCH_IDEM_KEY", args.key.clone()),
        ("POLYLATCH_IDEM_RUNS", claim.runs().to_string()),
        ("POLYLATCH_FENCING_TOKEN", claim.fencing_token().to_string()),
    ];
    let (running, mut end) = match Running::start(&args.command, &env) {
        Ok(started) => started,
        Err(error) => return Err(not_started(&args.command[0].to_string_lossy(), &error)),
    };
    let endangered = claim.remaining() / 4;
    let mut lost = std::pin::pin!(claim.lost());
    let (mut is_asked, mut is_killed) = (false, false);
    let status = loop {
        tokio::select! {
            status = &mut end => break status,
            Some(signal) = wishes.recv() => running.signal(signal),
            reason = &mut lost, if !is_killed => {
                say(&format!("the claim is lost ({reason}); killing the command"));
                running.signal(Signal::KILL);
                is_killed = true;
            }
            () = tokio::time::sleep(LOOK_AT_CLAIM_EVERY), if !is_asked && !is_killed => {
                if claim.remaining() < endangered {
                    say("the claim was not renewed for long; stopping the command");
                    running.signal(Signal::TERM);
                    running.signal(Signal::CONT);
                    is_asked = true;
                }
            }
        }
    };
    let ended = status.ok().and_then(Result::ok).map_or(Err(0), ending);
    let [out, err] = running.printed();
    let is_cut = out.is_cut || err.is_cut;
    let frame = |code| Frame { code, out: out.bytes.clone(), err: err.bytes.clone(), is_cut }.to_bytes();
    match ended {
        Ok(0) => Ok(frame(0)),
        Ok(code) => Err(WorkFailure::new(frame(code))),
        // It did not say how it ended.
        Err(signal) => Err(WorkFailure::freed(frame(exit::SIGNAL_BASE.saturating_add(signal)))),
    }
}

fn not_started(command: &str, error: &io::Error) -> WorkFailure {
    say(&format!("{}: {error}", sanitized(command)));
    let code =
        if error.kind() == io::ErrorKind::NotFound { exit::NO_SUCH_COMMAND } else { exit::CANNOT_EXECUTE };
    WorkFailure::freed(Frame { code, out: Vec::new(), err: Vec::new(), is_cut: false }.to_bytes())
}

/// Prints what is repeated, and returns the exit code. What ran now is printed already.
fn answer(ended: Result<Outcome, RunError>) -> Result<u8, Failure> {
    match ended {
        Ok(Outcome::First(value)) | Err(RunError::Failed { answer: value, replayed: false }) => {
            Ok(frame(&value)?.code)
        }
        Ok(Outcome::Replayed(value)) | Err(RunError::Failed { answer: value, replayed: true }) => {
            repeat(&frame(&value)?)
        }
        Err(error) => {
            let code = match &error {
                RunError::InProgress { .. } => exit::NOT_ACQUIRED,
                RunError::PayloadMismatch { .. } => exit::MISMATCH,
                RunError::NotRecorded { .. } => exit::LOST,
                RunError::Store(error) => exit::of(error),
                _ => exit::UNAVAILABLE,
            };
            let error_code = Some(error.code());
            Err(Failure { error_code, ..Failure::new(code, sanitized(&error.to_string())) })
        }
    }
}

fn frame(value: &[u8]) -> Result<Frame, Failure> {
    Frame::parse(value).ok_or_else(|| {
        Failure::new(
            exit::MISMATCH,
            "the answer that is stored for this key is not one of a command; use another scope for commands",
        )
    })
}

fn repeat(frame: &Frame) -> Result<u8, Failure> {
    io::stdout().write_all(&frame.out).and_then(|()| io::stdout().flush())?;
    io::stderr().write_all(&frame.err)?;
    if frame.is_cut {
        say(&format!("more than {} KiB of an output is not stored, and not repeated", KEPT / 1024));
    }
    Ok(frame.code)
}
