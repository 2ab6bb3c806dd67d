//! The native half of the Kotlin, Java, Swift and Ruby packages.
//!
//! From these declarations a generator writes each language's low-level half; the files in `kotlin/`,
//! `swift/` and `ruby/` make of it what people use. Nothing is decided here: no defaults, no retries.
//!
//! Three rules keep leases from leaking and from being lost:
//!
//! - **No call that may be cancelled returns an object.** A result that is ready but was not fetched
//!   yet when the host gives up would be lost, and renewed for ever. So the host makes a [`Slot`] first,
//!   the call fills it, and a caller that gives up abandons the slot.
//! - **No thread that renews leases waits for a host.** A call is polled by the host's own thread; the
//!   word that there is more to poll is passed on by the callback thread of the bridge (`handed`).
//! - **Events reach a host language on threads of their own**, so that a listener may itself call.
//!
//! How to read the code: `client` (what is connected to), `slot` (one acquisition and what it holds), `run` (one run of idempotent work), `sql_runs` (the same in a transaction of the caller's),
//! `direct` (what the JVM asks most), `events`, `options` and `fault` (what goes in, what comes out wrong), `view` (who holds, who waits).
#![allow(
    clippy::result_large_err,
    reason = "an error is written into a buffer for the host at once; it is not passed through calls"
)]

mod client;
mod direct;
mod events;
mod fault;
mod gate;
mod handed;
mod options;
#[cfg(unix)]
mod ruby;
mod run;
mod slot;
mod sql;
mod sql_runs;
mod stats;
mod view;

pub use client::NativeClient;
pub use direct::{
    polylatch_uniffi_begin, polylatch_uniffi_drop_lock, polylatch_uniffi_drop_slot, polylatch_uniffi_end,
    polylatch_uniffi_follow, polylatch_uniffi_is_held, polylatch_uniffi_on_lost, polylatch_uniffi_on_woken,
    polylatch_uniffi_poll, polylatch_uniffi_slot, polylatch_uniffi_token, slot_of,
};
pub use events::{LockEvent, NativeEvents};
pub use fault::{Fault, NativeError};
pub use gate::NativeGate;
pub use options::{Capability, ConnectWith, OptionEntry, OptionWord, Wanted, WantedOptions, WantedWay};
pub use run::{RunEntry, RunSlot, RunWith};
pub use slot::{LossListener, Slot};
pub use sql::{
    BoundText, ColumnSign, LockTexts, ProbedRow, WriteTexts, conditional_write, fenced_accepted,
    fenced_unchanged, fenced_write, transaction_lock_texts, versioned_unchanged, versioned_write,
};
pub use sql_runs::{
    FinishedStep, NativeRun, NativeRunClaim, NativeRuns, NativeTalk, SqlCell, SqlRunWith, SqlText, TalkEnd,
};
pub use stats::{Histogram, Stats};
pub use view::{BreakResult, ClientView, HolderView, LockView, Look, Snapshot, WaiterView};

uniffi::setup_scaffolding!("polylatch_native");

/// The version of this library, such as `0.1.0`.
#[uniffi::export]
pub fn native_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
