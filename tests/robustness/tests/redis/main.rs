//! Robustness on a real Redis server.
#![cfg(unix)]

mod held;
mod line;
mod load;
mod recovery;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");
