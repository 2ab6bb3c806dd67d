//! One client of one store.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use polylatch::inspect::BreakRequest;
use polylatch_bridge::{Client, Failure, Inbox, ops};

use crate::direct;
use crate::events::NativeEvents;
use crate::fault::NativeError;
use crate::handed::{at_once, handed};
use crate::options::{Capability, ConnectWith, Wanted, token};
use crate::slot::Slot;
use crate::stats::Stats;
use crate::view::{BreakResult, Look, Snapshot};

/// One client of one store. It is made first and connected then, so that a host that gives up on
/// connecting loses nothing that stays connected.
#[derive(uniffi::Object)]
pub struct NativeClient {
    store: OnceLock<Arc<Client>>,
    /// Only if events are wanted.
    inbox: OnceLock<Arc<Inbox>>,
}

impl fmt::Debug for NativeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeClient").field("store", &self.store.get()).finish_non_exhaustive()
    }
}

impl NativeClient {
    pub(crate) fn store(&self) -> Result<Arc<Client>, Failure> {
        let store = self.store.get().ok_or_else(|| Failure::internal("this client was never connected"))?;
        Ok(Arc::clone(store))
    }
}

#[uniffi::export]
impl NativeClient {
    #[uniffi::constructor]
    #[expect(clippy::new_without_default, reason = "for the generated constructors alone")]
    pub fn new() -> Self {
        Self { store: OnceLock::new(), inbox: OnceLock::new() }
    }

    /// Returns where the events of this client come in. They do if this is called before it is connected.
    pub fn events(&self) -> Arc<NativeEvents> {
        Arc::new(NativeEvents(Arc::clone(self.inbox.get_or_init(Inbox::new))))
    }

    /// Errors: as [`polylatch::Polylatch::connect`].
    pub async fn connect(self: Arc<Self>, with: ConnectWith) -> Result<(), NativeError> {
        handed(async move {
            let mut options = with.checked()?;
            options.listener = self.inbox.get().map(Inbox::listener);
            let store = Client::connect(options).await?;
            self.store.set(Arc::new(store)).map_err(|_| Failure::internal("this client was connected before"))
        })
        .await
    }

    /// Makes the place for one acquisition. Nothing is sent.
    ///
    /// Errors: `invalid_argument` for what is no count and no length of time.
    pub fn slot(&self, wanted: Wanted) -> Result<Arc<Slot>, NativeError> {
        at_once(|| Ok(Arc::new(Slot::new(self.store()?, wanted.checked()?))))
    }

    /// Has a lock acquired by its number, which functions of this library's take that hosts may call directly. Nothing is sent.
    ///
    /// Errors: as [`NativeClient::slot`].
    pub fn prepare(&self, wanted: Wanted) -> Result<u64, NativeError> {
        at_once(|| Ok(direct::prepared(self.store()?, wanted.checked()?)))
    }

    /// Errors: as [`polylatch::inspect::Inspector::list`].
    pub async fn inspect_locks(self: Arc<Self>, look: Look) -> Result<Snapshot, NativeError> {
        handed(async move {
            let (store, query) = (self.store()?, look.checked()?);
            Ok(store.list(&query).await?.into())
        })
        .await
    }

    /// Errors: as [`polylatch::inspect::Inspector::break_lease`].
    pub async fn break_lease(
        self: Arc<Self>,
        name: String,
        fencing_token: i64,
        by: String,
        reason: String,
    ) -> Result<BreakResult, NativeError> {
        handed(async move {
            let request = BreakRequest { name, expected: token(fencing_token)?, by, reason };
            Ok(self.store()?.break_lease(&request).await?.into())
        })
        .await
    }

    /// Ends waiting, releases what is held, and waits at most 5 s until the store knows. Repeatable.
    pub async fn shut_down(self: Arc<Self>) -> Result<(), NativeError> {
        handed(async move {
            if let Some(store) = self.store.get() {
                store.close().await;
            }
            Ok(())
        })
        .await
    }

    /// Errors: `canceled` in a forked child that has not used it yet.
    pub fn capability(&self) -> Result<Capability, NativeError> {
        at_once(|| self.store()?.read(|client| client.capability().into()))
    }

    /// What it has done, in numbers.
    pub fn stats(&self) -> Result<Stats, NativeError> {
        at_once(|| self.store()?.read(|client| client.stats().into()))
    }

    /// The same as text that Prometheus reads.
    ///
    /// Errors: `invalid_argument` for a label that Prometheus does not accept or that is there already.
    pub fn prometheus(&self, labels: HashMap<String, String>) -> Result<String, NativeError> {
        at_once(|| {
            let mut labels: Vec<_> = labels.into_iter().collect();
            labels.sort();
            self.store()?.read(|client| ops::prometheus(client, &labels))?
        })
    }

    /// The id of this client in the store.
    pub fn id(&self) -> Result<String, NativeError> {
        at_once(|| self.store()?.read(ops::id))
    }

    /// The store's URL without its secrets.
    pub fn url(&self) -> Result<String, NativeError> {
        at_once(|| self.store()?.read(ops::url))
    }
}
