//! The decisions, without clocks, sockets or runtimes: `now` is an argument, the result a decision.

pub(crate) mod acquisition;
#[cfg(feature = "redis")]
pub(crate) mod admission;
pub(crate) mod backoff;
pub(crate) mod fencing;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod idempotency;
pub(crate) mod keeping;
pub(crate) mod lease;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod progress;
#[cfg(feature = "redis")]
pub(crate) mod quorum;
pub(crate) mod sharing;
pub(crate) mod waiting;
pub(crate) mod watchdog;
