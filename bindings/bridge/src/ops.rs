//! The one list of operations on a client. A binding converts its language's values, calls these, and converts what they
//! return; what can be done with held locks is the list of [`Handle`].
//!
//! An operation is sent at its first poll, and dropping its future undoes it as in the core.

use std::time::Duration;

use polylatch::inspect::{BreakOutcome, BreakRequest, Query, Snapshot};
use polylatch::{FencingToken, Polylatch};

use crate::client::Client;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::options::Wanted;
use crate::stats;

impl Client {
    /// Acquires what is wanted, waiting as long as its options say; without `waits`, `None` if it is not free.
    ///
    /// Errors: as [`polylatch::Lock::acquire`], [`polylatch::LockAll::acquire`] and [`Client::get`].
    /// Cancellation: what it may have acquired is released in the background.
    pub async fn acquire(&self, wanted: &Wanted, waits: bool) -> Result<Option<Handle>, Failure> {
        let client = self.get().await?;
        Ok(match wanted {
            Wanted::One(spec) => {
                let lock = spec.of(client);
                let guard = if waits { Some(lock.acquire().await?) } else { lock.try_acquire().await? };
                guard.map(Handle::one)
            }
            // In a box: several are rare, and a call that is kept small is moved at less cost.
            Wanted::All { names, options } => {
                let locks = options.all(client, names);
                let acquiring = async move {
                    if waits { locks.acquire().await.map(Some) } else { locks.try_acquire().await }
                };
                let guards = Box::pin(acquiring).await?;
                guards.map(Handle::all)
            }
        })
    }

    /// Enters a plain lock that this client has kept, at once and without a request; see [`polylatch::Lock::enter_kept`].
    /// Returns `None` if the lock has to be acquired.
    pub fn enter_kept(&self, name: String, lease: Option<Duration>, keep_idle: Duration) -> Option<Handle> {
        let lock = self.connected()?.lock(name).keep_idle(keep_idle);
        let lock = if let Some(lease) = lease { lock.lease(lease) } else { lock };
        lock.enter_kept().map(Handle::one)
    }

    /// Reads who holds and who waits. Errors: as [`polylatch::inspect::Inspector::list`] and [`Client::get`].
    pub async fn list(&self, query: &Query) -> Result<Snapshot, Failure> {
        Ok(self.get().await?.inspect().list(query).await?)
    }

    /// The same as JSON.
    pub async fn list_json(&self, query: &Query) -> Result<String, Failure> {
        written(serde_json::to_string(&self.list(query).await?))
    }

    /// Ends another client's lease. Errors: as [`polylatch::inspect::Inspector::break_lease`] and [`Client::get`].
    pub async fn break_lease(&self, request: &BreakRequest) -> Result<BreakOutcome, Failure> {
        Ok(self.get().await?.inspect().break_lease(request).await?)
    }

    /// The same as JSON.
    pub async fn break_lease_json(&self, request: &BreakRequest) -> Result<String, Failure> {
        written(serde_json::to_string(&self.break_lease(request).await?))
    }

    /// Asks the connected client something that costs no request; in a forked child, connects first.
    ///
    /// Errors: as [`Client::get`].
    pub async fn ask<T>(&self, of: impl FnOnce(&Polylatch) -> T) -> Result<T, Failure> {
        self.get().await.map(of)
    }

    /// The same at once.
    ///
    /// Errors: `canceled` in a forked child that has not connected yet.
    pub fn read<T>(&self, of: impl FnOnce(&Polylatch) -> T) -> Result<T, Failure> {
        let inherited =
            || Failure::canceled("this process inherited the client by a fork; acquire something first");
        self.connected().map(of).ok_or_else(inherited)
    }
}

/// Returns the id under which a client is stored.
pub fn id(client: &Polylatch) -> String {
    client.id().as_str().to_owned()
}

/// Returns the store's URL without its secrets.
pub fn url(client: &Polylatch) -> String {
    client.url_for_display().to_owned()
}

/// Returns what the client's store can do, as JSON.
pub fn capability_json(client: &Polylatch) -> Result<String, Failure> {
    written(serde_json::to_string(client.capability()))
}

/// Returns what the client has done, in numbers, as JSON; see [`stats::json`].
pub fn stats_json(client: &Polylatch) -> String {
    stats::json(&client.stats()).to_string()
}

/// Returns the same as text that Prometheus reads; see [`stats::prometheus`].
pub fn prometheus(client: &Polylatch, labels: &[(String, String)]) -> Result<String, Failure> {
    Ok(stats::prometheus(&client.stats(), labels)?)
}

/// Reads what a break is asked for, with the token as decimal text. What does not fit 64 bits is no token of any lease.
pub fn break_request(name: String, expected: &str, by: String, reason: String) -> BreakRequest {
    BreakRequest { name, expected: FencingToken::new(expected.parse().unwrap_or(u64::MAX)), by, reason }
}

fn written(text: Result<String, serde_json::Error>) -> Result<String, Failure> {
    text.map_err(|_| Failure::internal("what was read cannot be written as JSON"))
}
