//! ZooKeeper: a contender is an ephemeral sequential node, and the first one of a lock holds it.
//!
//! The nodes have the names of Curator's `InterProcessMutex`, `InterProcessReadWriteLock` and `InterProcessSemaphoreV2`, so
//! programs with those are excluded and exclude us. The order is that of the sequence numbers, and the zxid that created a
//! node is the fencing token.
//!
//! The client is our own. What a lock needs is what libraries keep to themselves: when a request left that was answered,
//! whether one was sent at all, and which connection of which session carried it.
//!
//! - `protocol`: frames, requests, answers, names and records; no I/O
//! - [`liveness`]: until when a session certainly lives; pure
//! - `acquire`, `renew`, `release`, `convert`: the verbs; [`acquisitions`]: what this client knows of each
//! - `queue`: who stands at a name; `permits`: what the first one of a semaphore's queue does
//! - [`leases`]: the end of leases that are not renewed in a session that is
//! - `transport`: one connection for each session, members in turn, errors

mod acquire;
mod acquisitions;
mod backend;
mod config;
mod convert;
mod doctor;
mod inspect;
mod leases;
mod liveness;
mod permits;
mod protocol;
mod queue;
mod release;
mod renew;
mod transport;

pub(crate) use backend::open;
pub(crate) use config::ZooKeeperConfig;
