//! The C ABI: the same locks for every language that can call C.
//!
//! Thin over the bridge: it checks pointers and text, waits on the caller's thread, and keeps panics on
//! this side. The committed header, `include/polylatch.h`, is made from these files.
//!
//! How to read the code: `error` (how a call tells what went wrong), `client`, `events`, `lock`, `guard`.
#![deny(missing_docs)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says once for all functions what pointers must be; see `border`"
)]

mod border;
mod cancel;
mod client;
mod error;
mod events;
mod guard;
mod inspect;
mod lock;
mod runs;
mod set;
mod sql;

pub use cancel::*;
pub use client::*;
pub use error::*;
pub use events::{PlDrop, PlOnEvent};
pub use guard::*;
pub use inspect::*;
pub use lock::*;
pub use runs::*;
pub use set::*;
pub use sql::*;
