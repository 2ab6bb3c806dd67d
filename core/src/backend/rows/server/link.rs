//! The one connection for the verbs of a client: opened when it is needed, shared by statements that are a step of
//! their own, and lent to one transaction at a time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::AbortHandle;

use crate::backend::Reply;
use crate::caller_driven::CallerSteps;
use crate::error::{Effect, Error, ErrorKind, Result};

use super::failure::Failure;
use super::value::{Cells, Statement};
use super::{Server, Session, rollback};

/// How often a step is tried that met another transaction or lost its connection; each is idempotent.
const TRIES: u32 = 4;

pub(crate) struct Link<S: Server> {
    pub server: S,
    /// Several read: statements that are a step of their own. One writes: a transaction.
    slot: RwLock<Option<S::Session>>,
    runtime: Handle,
    steps: Arc<CallerSteps>,
    pub timeout: Duration,
    closed: AtomicBool,
}

impl<S: Server> Link<S> {
    pub(crate) fn new(server: S, runtime: Handle, timeout: Duration) -> Self {
        Self {
            server,
            slot: RwLock::new(None),
            runtime,
            steps: Arc::default(),
            timeout,
            closed: AtomicBool::new(false),
        }
    }

    /// Carries out a request within the time limit, on the thread that waits for it or, whatever becomes of the caller, in
    /// the background.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<T> {
        let link = Arc::clone(self);
        let work = Box::pin(async move {
            match tokio::time::timeout(link.timeout, request).await {
                Ok(answer) => answer,
                Err(_) => {
                    // What the server has not answered for so long is not waited for by later requests.
                    if let Ok(slot) = link.slot.try_read()
                        && let Some(session) = &*slot
                    {
                        session.end();
                    }
                    Err(Error::new(
                        ErrorKind::BackendUnavailable,
                        format!(
                            "{} at {} did not answer within {:?}; is it overloaded, or a transaction in the way?",
                            S::NAME,
                            link.server.place(),
                            link.timeout
                        ),
                    )
                    .with_effect(Effect::Maybe))
                }
            }
        });
        let link = Arc::clone(self);
        Box::pin(async move {
            let answer = link.steps.run(&link.runtime, work).await;
            answer.map_err(|error| error.during(S::STORE, operation))
        })
    }

    /// Runs in the background until it ends or is aborted.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }

    /// Sends statements that are a step of their own, or a whole transaction, together with those of others.
    pub(crate) async fn ask(
        &self,
        statements: &[Statement],
        changes: bool,
    ) -> std::result::Result<Vec<Vec<Cells>>, Failure> {
        let slot = self.open().await?;
        match &*slot {
            Some(session) => session.ask(statements, changes).await,
            None => Err(closed().into()),
        }
    }

    /// Lends the connection to one transaction. If that is given up, the connection ends, and with it the
    /// transaction.
    pub(crate) async fn lend(&self) -> std::result::Result<Lent<'_, S>, Failure> {
        let mut slot = self.slot.write().await;
        let session = match slot.take().filter(S::Session::is_open) {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Lent { slot, session })
    }

    async fn open(&self) -> std::result::Result<RwLockReadGuard<'_, Option<S::Session>>, Failure> {
        let slot = self.slot.read().await;
        if slot.as_ref().is_some_and(S::Session::is_open) {
            return Ok(slot);
        }
        drop(slot);
        let mut slot = self.slot.write().await;
        if !slot.as_ref().is_some_and(S::Session::is_open) {
            *slot = None;
            *slot = Some(self.connect().await?);
        }
        Ok(slot.downgrade())
    }

    async fn connect(&self) -> std::result::Result<S::Session, Failure> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(closed().into());
        }
        let session = self.server.open().await?;
        if let Some(introduction) = self.server.introduction() {
            // A server that refuses it wakes no other clients.
            let told = session.ask(&[introduction], false).await;
            if let Err(lost @ Failure::Lost { .. }) = told {
                return Err(lost);
            }
        }
        Ok(session)
    }

    /// Ends the connection after the requests before; later requests are refused.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        *self.slot.write().await = None;
    }
}

/// The connection during one transaction.
pub(crate) struct Lent<'l, S: Server> {
    slot: RwLockWriteGuard<'l, Option<S::Session>>,
    pub session: S::Session,
}

impl<S: Server> Lent<'_, S> {
    /// Takes the connection back after a transaction that has ended, or failed and is rolled back now.
    pub(crate) async fn end<T>(
        mut self,
        result: std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let is_usable = match &result {
            Ok(_) => true,
            Err(Failure::Lost { .. }) => false,
            Err(_) => self.session.ask(&[rollback()], false).await.is_ok(),
        };
        if is_usable {
            *self.slot = Some(self.session);
        }
        result
    }
}

/// Counts how often a request was tried.
#[derive(Debug, Default)]
pub(crate) struct Tries(u32);

impl Tries {
    /// Says that the same may be tried again: it met another transaction, or lost its connection.
    ///
    /// `repeats`: a request that was carried out already answers the same. Of one that does not, the caller learns
    /// that nothing is known.
    pub(crate) fn again(&mut self, failure: Failure, repeats: bool) -> Result<()> {
        self.0 += 1;
        // A server that refuses connections does so again; the caller waits and comes back.
        let is_away = matches!(&failure, Failure::Lost { sent: false, .. }) && self.0 > 1;
        let is_unknown = matches!(&failure, Failure::Lost { sent: true, .. }) && !repeats;
        if self.0 >= TRIES || is_away || is_unknown || !failure.may_repeat() {
            return Err(failure.into_error());
        }
        Ok(())
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Canceled, "this client was closed; connect a new one")
}
