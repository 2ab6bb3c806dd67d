//! etcd: a contender is a key on a lease of its own, and the oldest key of a lock holds it.
//!
//! The keys are those of `etcdctl lock` and of the Go package `concurrency` (its `Mutex`), so programs with those are
//! excluded and exclude us. The order is that of create revisions, and the create revision is the fencing token.
//!
//! - `protocol`: keys, records, requests and answers of the JSON gateway; no I/O
//! - `acquire`, `renew`, `release`: the verbs; [`sessions`]: leases, one for each acquisition; `push`: each waiter watches
//!   the key before its own
//! - `transport`: members in turn, authentication, errors

mod acquire;
mod backend;
mod config;
#[cfg(not(target_family = "wasm"))]
mod doctor;
mod inspect;
mod protocol;
mod push;
mod release;
mod renew;
mod sessions;
mod transport;

pub(crate) use backend::open;
pub(crate) use config::EtcdConfig;
