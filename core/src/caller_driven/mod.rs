//! Caller-driven I/O: the thread that waits for an answer also does the reading and writing.
//!
//! A task of its own for a connection, or a thread of its own for a client, costs every request two hops between threads:
//! one to hand the request over and one to wake the caller. Measured with one byte each way over loopback, on two busy
//! cores: 15 µs on the caller's thread, 26 µs or more by a runtime on another thread (medians of 20 000).
//!
//! There are three forms, by what a caller waits for:
//!
//! | form | for | used by |
//! | --- | --- | --- |
//! | [`SharedConnection`] | one answer on a connection that other callers use at the same time | Redis |
//! | [`ExclusiveIo`] | one answer on a connection that nobody else uses meanwhile | Consul |
//! | [`CallerSteps`] | work of several requests, which must not stop between two of them | Consul, etcd, ZooKeeper, databases |
//!
//! A caller may be dropped, or may not get to run. A shared connection and work of several steps are then gone on with in
//! the background, after 25 ms; an exclusive connection ends with its request, which has a time limit.
//!
//! A thread in a blocking call goes one step further ([`blocking`]): it waits in the operating system at the socket
//! itself ([`socket`]), so that no event queue stands in between either. The event loops of other languages do the same
//! from outside of this crate: their thread polls a call when it is made, and watches one descriptor for all of them.

#[cfg(not(target_family = "wasm"))]
pub(crate) mod blocking;
#[cfg(all(feature = "http", not(target_family = "wasm")))]
mod exclusive;
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
mod shared;
#[cfg(all(any(feature = "redis", feature = "http", feature = "postgres"), not(target_family = "wasm")))]
pub(crate) mod socket;
#[cfg(any(feature = "http", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
mod steps;

#[cfg(all(feature = "http", not(target_family = "wasm")))]
pub(crate) use exclusive::ExclusiveIo;
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
pub(crate) use shared::SharedConnection;
#[cfg(any(feature = "http", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
pub(crate) use steps::CallerSteps;
