//! What every language binding shares, in the words of no language: failures as plain values, units,
//! options, calls that a host's own loop carries out, waits that a host can interrupt, callbacks,
//! and what a fork leaves behind.
//!
//! A binding parses its language's arguments, calls this, and turns what comes back into its
//! language's objects. It decides nothing: no defaults, no retries, no texts but those about types.
//!
//! How to read the code: [`options`] (what a caller may say), [`failure`] (what goes wrong), then
//! [`host_loop`] for hosts with an event loop or [`blocking`] for hosts with threads, and [`process`]
//! for hosts that fork.

pub mod blocking;
pub mod border;
pub mod client;
#[cfg(target_os = "linux")]
mod event_queue;
pub mod failure;
pub mod held;
pub mod host_loop;
pub mod options;
pub mod process;
pub mod runtime;
pub mod units;

pub use blocking::{Interrupted, run_at_most, run_interruptible};
pub use client::Client;
pub use failure::{Context, Details, Failure};
pub use held::Held;
pub use host_loop::{HostLoop, Started, UnderWay};
pub use options::{ConnectOptions, LockOptions, LockSpec, OptionValue, Way};
pub use process::Homed;
