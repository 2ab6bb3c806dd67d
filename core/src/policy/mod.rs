//! The decisions, without clocks, sockets or runtimes: `now` is an argument, the result a decision.

pub(crate) mod backoff;
pub(crate) mod fencing;
pub(crate) mod lease;
pub(crate) mod sharing;
pub(crate) mod waiting;
pub(crate) mod watchdog;
