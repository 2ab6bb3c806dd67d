//! The part of tokio's interface that Polylatch's core uses, where tokio has none: in a JavaScript host
//! (browser, worker, Node, Deno, edge runtime). Tasks are microtasks, timers are `setTimeout`.
//!
//! For `wasm32-unknown-unknown` the core's manifest puts this crate in the place of tokio, under its
//! name, so that the core is written once. The macros of `tracing` come from here too (`events`). Synchronisation
//! and `select!` are tokio's own. What is missing here (sockets, threads, blocking) does not compile, instead of
//! panicking at run time.
//!
//! On other targets this crate is empty.
#![deny(missing_docs)]
#![cfg(target_family = "wasm")]

#[cfg(target_feature = "atomics")]
compile_error!("timers and tasks live in one thread here; build without the target feature `atomics`");

pub use tokio::{join, pin, select, sync};

pub mod events;
pub mod runtime;
pub mod task;
pub mod time;

pub use task::spawn;
