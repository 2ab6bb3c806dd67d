//! A worker process: takes locks through the public API and writes down what happens to it.
//!
//! `load URL RESOURCE HISTORY SEED LOCKS THREADS LONG_MS LONG_ONE_IN KIND` takes random locks until its
//! standard input ends; `script URL RESOURCE` does what it is told there.

mod load;
mod script;

use std::path::Path;
use std::process::ExitCode;

use polylatch::{Error, blocking};
use polylatch_robustness::record::Verdict;

fn main() -> ExitCode {
    // The end of standard input says it too, but not to a process that is paused.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["load", url, resource, history, seed, locks, threads, long_ms, long_one_in, family] => {
            let number = |text: &str| text.parse().expect("the test passes numbers");
            load::run(&load::Task {
                url: url.to_owned(),
                resource: Path::new(resource).to_owned(),
                history: Path::new(history).to_owned(),
                seed: number(seed),
                locks: number(locks),
                threads: number(threads),
                long_ms: number(long_ms),
                long_one_in: number(long_one_in),
                family: family.parse().expect("the test passes a kind of lock"),
            });
        }
        ["script", url, resource] => script::run(url, Path::new(resource)),
        _ => {
            eprintln!("this program is started by the robustness tests");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The code that tells most: why a lease was lost, or else what failed.
fn code(error: &Error) -> String {
    error.lost_reason().map_or_else(|| error.code(), |reason| reason.code()).to_owned()
}

/// What the guard says about itself now.
fn verdict(guard: &blocking::Guard) -> Verdict {
    match guard.check() {
        Ok(()) => Verdict::Held,
        Err(error) => Verdict::Lost(code(&error)),
    }
}
