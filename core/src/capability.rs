//! What a store can do.

use std::time::Duration;

use crate::clock::as_millis;
use crate::policy::fencing::FenceQuality;

/// What a backend can do; shown by inspection and in the matrix of `core/docs/stores.md`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Capability {
    /// Kind of store, such as `redis`.
    pub backend: &'static str,
    /// Waiters are served in the order in which they came.
    pub fifo: bool,
    /// A release wakes the next waiter by a message instead of by its next poll.
    pub push: bool,
    /// A lease ends by itself when its holder is gone.
    pub expiry: bool,
    /// Locks can be shared: read-write locks and semaphores.
    pub sharing: bool,
    /// Several locks can be acquired in one step: all or none, and no client sees a part. Consul takes
    /// as many as fit into one of its transactions: 9 of any kind, 31 mutexes without waiters.
    pub atomic_sets: bool,
    /// How far the order of fencing tokens can be relied on, as the store was found when this client connected.
    /// What holds for one lease, [`crate::Guard::fence_quality`] says.
    pub fencing: FenceQuality,
    /// Shortest lease that this store can keep.
    #[serde(serialize_with = "as_millis")]
    pub min_lease: Duration,
    /// Longest lease that this store, as configured, can keep.
    #[serde(serialize_with = "as_millis")]
    pub max_lease: Duration,
}
