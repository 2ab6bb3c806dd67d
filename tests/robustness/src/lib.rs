//! Robustness of Polylatch, judged from outside: real processes contend for real locks while they
//! are killed and paused and their connections are cut, and their histories are checked afterwards.
//!
//! - The worker program (`src/bin/worker`) takes locks through the public API and writes down, by
//!   the boot clock that all processes of a machine share, when it entered and left ([`record`]).
//! - [`resource`] is what the locks protect: it keeps the largest fencing token and refuses others.
//! - [`history`] is the judge: sections that exclude each other ([`sharing`]) never overlap, tokens only
//!   grow, a loss is always told. [`watcher`] looks into the store meanwhile for the same.
//! - [`forced`] knows what a store ended by force, of which no holder can know before it is told.
//! - [`members`] ends sessions in every way, and kills leaders.
//! - [`load`] runs many workers under a seeded plan of faults; [`mod@scenarios`] and [`crowd`] drive
//!   single workers step by step, the same way on every store; [`evidence`] says what a person needs
//!   to know when something went wrong.
//!
//! Sizes come from the environment for longer runs: `POLYLATCH_ROBUSTNESS_SECTIONS`,
//! `POLYLATCH_ROBUSTNESS_FAULTS`, `POLYLATCH_ROBUSTNESS_ROUNDS`, and `POLYLATCH_ROBUSTNESS_SEED`
//! repeats a plan of faults. `POLYLATCH_ROBUSTNESS_BESIDE` names a worker of another version: every second worker of
//! a run under load is that one, as in a fleet that is upgraded one by one.
#![cfg(unix)]

pub mod crowd;
pub mod evidence;
pub mod forced;
pub mod history;
pub mod load;
pub mod look;
pub mod members;
pub mod process;
pub mod random;
pub mod record;
pub mod resource;
pub mod scenarios;
pub mod sharing;
pub mod stage;
pub mod watcher;

use polylatch::{Clock, SystemClock};

/// Nanoseconds on the clock that all processes of this machine share.
pub fn boot_nanos() -> u64 {
    SystemClock.now().as_nanos()
}

/// The name of a numbered lock.
pub fn lock_name(lock: u32) -> String {
    format!("lock-{lock}")
}

/// A number from the environment, or the usual one.
pub fn size(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => {
            text.replace('_', "").parse().unwrap_or_else(|_| panic!("{variable}={text} is no number"))
        }
        Err(_) => usual,
    }
}
