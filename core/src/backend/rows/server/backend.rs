//! Verbs become calls.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::AbortHandle;

use crate::backend::records::Records;
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released,
    RenewItem, Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::error::Result;
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::snapshot::{BreakOutcome, BreakRequest, Examination, Query, Snapshot};

use super::link::Link;
use super::store::Store;
use super::{Server, snapshot};

/// Opens the tables, or makes them. `listens` starts the task that hears grants, where the server pushes them.
///
/// Errors: as of [`Server::prepare`]; `backend_unavailable` if the server cannot be reached.
pub(crate) async fn open<S: Server>(
    server: S,
    context: OpenContext,
    purpose: Purpose,
    listens: Option<impl FnOnce(Arc<Store<S>>) -> AbortHandle>,
) -> Result<Arc<dyn Backend>> {
    let link = Arc::new(Link::new(server, context.runtime.clone(), context.timeout));
    let store = Arc::new(Store::new(link, context.client, context.wakeups));
    if purpose != Purpose::Examine {
        // Each of these has the time limit of a request.
        if purpose == Purpose::Lock {
            let opened = Arc::clone(&store);
            store.link.run("connect", async move { opened.refuse_poolers().await }).await?;
        }
        let opened = Arc::clone(&store);
        store.link.run("connect", async move { S::prepare(&opened.link, purpose).await }).await?;
        if purpose == Purpose::Lock {
            let opened = Arc::clone(&store);
            store.link.run("connect", async move { opened.session().await.map(drop) }).await?;
        }
    }
    let push = listens.is_some();
    let listener = listens.filter(|_| purpose == Purpose::Lock).map(|listen| listen(Arc::clone(&store)));
    Ok(Arc::new(DatabaseBackend {
        store,
        listener,
        capability: Capability {
            backend: S::STORE,
            fifo: true,
            push,
            expiry: true,
            sharing: true,
            atomic_sets: true,
            fencing: FenceQuality::Strict,
            min_lease: MIN_LEASE,
            max_lease: MAX_LEASE,
        },
    }))
}

pub(super) struct DatabaseBackend<S: Server> {
    pub(super) store: Arc<Store<S>>,
    listener: Option<AbortHandle>,
    capability: Capability,
}

impl<S: Server> fmt::Debug for DatabaseBackend<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(S::STORE).field("capability", &self.capability).finish_non_exhaustive()
    }
}

impl<S: Server> Drop for DatabaseBackend<S> {
    fn drop(&mut self) {
        self.store.stop_keeping();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

impl<S: Server> DatabaseBackend<S> {
    /// Sends a request when the reply is first polled.
    pub(super) fn ask<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        operation: &'static str,
        request: impl FnOnce(Arc<Store<S>>) -> F,
    ) -> Reply<T> {
        self.store.link.run(operation, request(Arc::clone(&self.store)))
    }
}

impl<S: Server> Backend for DatabaseBackend<S> {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        let contender = Arc::clone(contender);
        self.ask("acquire", |store| async move { store.poll_in_session(&contender, ask).await })
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        let contenders = contenders.to_vec();
        self.ask("acquire", |store| async move { store.take_all_in_session(&contenders).await })
    }

    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        let (contender, reason) = (Arc::clone(contender), reason.to_owned());
        self.ask("acquire", |store| async move { store.steal_in_session(&contender, &reason).await })
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.ask("renew", |store| async move { store.renew_in_session(&items).await })
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        let contender = Arc::clone(contender);
        self.ask("convert", |store| async move { store.convert_in_session(&contender, fence, to).await })
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        let contender = Arc::clone(contender);
        self.ask("release", |store| async move {
            store.unbind(&contender).await;
            store.release(&contender, fence).await
        })
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        let contender = Arc::clone(contender);
        self.ask("cancel", |store| async move {
            store.unbind(&contender).await;
            store.cancel(&contender).await
        })
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        let client = Arc::clone(client);
        self.ask("announce", |store| async move { store.announce(&client).await })
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let query = query.clone();
        let asked = Instant::now();
        self.ask("snapshot", move |store| async move {
            let mut snapshot = snapshot::read(&store, &query).await?;
            snapshot.round_trip = asked.elapsed();
            Ok(snapshot)
        })
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        let request = request.clone();
        self.ask("break", |store| async move { store.break_lease(&request).await })
    }

    fn examine(&self) -> Reply<Examination> {
        self.ask("examine", |store| async move { S::examine(&store).await })
    }

    fn records(&self) -> Result<&dyn Records> {
        Ok(self)
    }

    fn close(&self) -> Reply<()> {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        self.ask("close", |store| async move {
            store.end_session().await;
            store.link.close().await;
            Ok(())
        })
    }
}
