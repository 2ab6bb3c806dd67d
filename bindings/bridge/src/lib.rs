//! What every language binding shares, in the words of no language: failures as plain values, units,
//! options, calls that a host's own loop carries out, waits that a host can interrupt, callbacks,
//! and what a fork leaves behind.
//!
//! A binding parses its language's arguments, calls this, and turns what comes back into its
//! language's objects. It decides nothing: no defaults, no retries, no texts but those about types.
//! What can be done is listed once: with a client in [`ops`], with held locks in [`handle`], with keys of idempotent work
//! in `idempotency`, with the caller's own tables in `sql`, in the caller's own transactions in `sql_runs`.
//!
//! Compiled to WebAssembly, only what needs no threads is there: a JavaScript host has its own loop.
//!
//! How to read the code: [`options`] (what a caller may say), [`ops`] and [`handle`] (what can be done),
//! [`failure`] (what goes wrong), then [`host_loop`] for hosts with an event loop or [`blocking`] for hosts
//! with threads, and [`process`] for hosts that fork.

#[cfg(not(target_family = "wasm"))]
pub mod blocking;
pub mod border;
#[cfg_attr(target_family = "wasm", path = "client/web.rs")]
pub mod client;
mod ended;
#[cfg(target_os = "linux")]
mod event_queue;
pub mod events;
pub mod failure;
pub mod handle;
#[cfg_attr(target_family = "wasm", path = "held/web.rs")]
pub mod held;
#[cfg(not(target_family = "wasm"))]
pub mod host_loop;
#[cfg(not(target_family = "wasm"))]
pub mod idempotency;
pub mod numbers;
pub mod ops;
pub mod options;
#[cfg(not(target_family = "wasm"))]
pub mod per_process;
pub mod place;
#[cfg(not(target_family = "wasm"))]
mod places;
pub mod process;
#[cfg(not(target_family = "wasm"))]
pub mod runtime;
#[cfg(not(target_family = "wasm"))]
pub mod sql;
#[cfg(not(target_family = "wasm"))]
pub mod sql_runs;
pub mod stats;
pub mod units;

#[cfg(not(target_family = "wasm"))]
pub use blocking::{Interrupted, run_at_most, run_interruptible};
pub use client::Client;
#[cfg(not(target_family = "wasm"))]
pub use events::Inbox;
pub use events::{Event, Events, Heard, Level, Route};
pub use failure::{Context, Details, Failure};
pub use handle::Handle;
#[cfg(not(target_family = "wasm"))]
pub use host_loop::{HostLoop, Started, UnderWay};
#[cfg(not(target_family = "wasm"))]
pub use idempotency::{Begun, ClaimHandle, RunOptions};
pub use numbers::Numbers;
pub use options::{ConnectOptions, LockOptions, LockSpec, OptionValue, Wanted, Way};
#[cfg(not(target_family = "wasm"))]
pub use per_process::PerProcess;
pub use process::Homed;
