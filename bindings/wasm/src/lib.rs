//! The part in Rust of the npm package `polylatch-wasm`. It has no opinion on how an API should look: the
//! TypeScript in `bindings/javascript` has, which both packages share, and `js/` has what differs here.
//!
//! Everything runs on the host's event loop; there is no thread. So a page that is hidden or a loop that
//! is blocked renews late, and may lose its lease, which its guard then says by its clock.
//!
//! How to read the code: `js/calls.mjs` (how a promise is made of this), `hub`, `events`, `redis`, `fetch`.

// Elsewhere the crate is empty, so that the whole workspace builds.
#![cfg(target_family = "wasm")]
#![allow(missing_debug_implementations, reason = "only JavaScript uses these")]

mod events;
mod failure;
#[cfg(any(feature = "consul", feature = "etcd"))]
mod fetch;
mod guard;
mod hub;
mod options;
#[cfg(any(feature = "redis", feature = "consul", feature = "etcd"))]
mod promise;
#[cfg(feature = "redis")]
mod redis;
mod stats;
