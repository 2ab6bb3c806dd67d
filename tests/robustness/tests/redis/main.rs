//! Robustness on a real Redis server.
#![cfg(unix)]

mod line;
mod load;
mod recovery;

use std::time::Duration;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// Defaults of the library: first lease and poll interval, and what is allowed on top.
const C: Duration = Duration::from_secs(3);
const P: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_millis(250);
