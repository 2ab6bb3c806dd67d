//! The native part of the Node package. It has no opinion on how an API should look: `bindings/javascript` has.
//!
//! Calls are carried out by Node's own loop ([`polylatch_bridge::HostLoop`]): a request leaves before
//! the call returns, and one wake-up of the loop brings the answer: on Linux straight from the socket
//! (`watch`). Renewal needs neither the loop nor the thread it runs on.
//!
//! How to read the code: `js/calls.cjs` (how a promise is made of this), `hub`, `guard`, `at_once`, `claims`.

#![allow(missing_debug_implementations, reason = "only JavaScript uses these")]
#![cfg_attr(test, allow(dead_code, reason = "napi registers functions for JavaScript outside of tests only"))]

mod at_once;
mod claims;
mod client;
mod events;
mod failure;
mod gate;
mod guard;
mod hub;
mod options;
mod sql;
mod sql_runs;
#[cfg(target_os = "linux")]
mod watch;
