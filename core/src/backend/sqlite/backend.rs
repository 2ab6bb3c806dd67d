//! Verbs become steps on the database thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::backend::records::Records;
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Capability, Contender, Conversion, OpenContext, Released, RenewItem,
    Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::clock::{Clock, SystemClock};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::snapshot::{BreakOutcome, BreakRequest, Examination, Followed, Query, Snapshot};

use super::config::SqliteOptions;
use super::doctor;
use super::inspect::snapshot as read;
use super::store::{Sql, Store};
use super::transport::thread::{Asked, Job, Message, Opener};
use super::transport::{forked, open as opening};
use crate::backend::rows::Steps;

/// How far ahead of the numbers in use the synced reservation is kept: ten minutes, because numbers
/// follow the wall clock in microseconds.
pub(crate) const RESERVE_US: i64 = 600_000_000;

/// Opens the file at `path`, or makes it.
///
/// Errors: `invalid_config` if the path cannot name a lock file (a directory, a missing folder, a
/// network file system); `backend_rejected` if it is read-only, damaged, no database, or of a newer
/// version; `name_conflict` if it is another program's database; `backend_unavailable` if the disk is
/// full or the file locked; `unsupported` in a process that was forked while a file was open. A file
/// that is not ours is left as it is.
pub(crate) async fn open(
    path: PathBuf,
    options: SqliteOptions,
    context: OpenContext,
) -> Result<Arc<dyn Backend>> {
    let (queue, requests) = mpsc::channel();
    let (opened, is_open) = oneshot::channel();
    let timeout = context.timeout;
    let opener = Opener { path, options, client: context.client, wakeups: context.wakeups };
    std::thread::Builder::new()
        .name("polylatch-sqlite".into())
        .spawn(move || match opener.open() {
            // If nobody waits for it any more, the queue is closed and the thread ends.
            Ok(database) => {
                let _ = opened.send(Ok(()));
                opener.serve(database, &requests);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        })
        .map_err(|error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                "the operating system gave no thread for the lock file; check its limit on threads",
            )
            .with_source(error)
        })?;
    let queue = Arc::new(queue);
    // Before it is open: a fork that is prepared meanwhile waits for the answer.
    forked::remember(&queue);
    is_open.await.unwrap_or_else(|_| Err(thread_ended()))?;
    Ok(Arc::new(SqliteBackend {
        queue,
        closed: Arc::default(),
        timeout,
        capability: Capability {
            backend: "sqlite",
            fifo: true,
            push: true,
            expiry: true,
            sharing: true,
            atomic_sets: true,
            fencing: FenceQuality::Strict,
            min_lease: MIN_LEASE,
            max_lease: MAX_LEASE,
        },
    }))
}

/// Makes the directory of the default file, for its user only (mode 0700), with its parents. One that
/// exists is left as it is.
pub(crate) fn make_state_directory(directory: &Path) -> Result<()> {
    opening::make_private_directory(directory).map_err(|error| {
        Error::new(
            ErrorKind::InvalidConfig,
            format!(
                "the folder {} for the embedded store cannot be made; make it, or name a file elsewhere with \
                 POLYLATCH_URL=sqlite:PATH",
                directory.display()
            ),
        )
        .with_source(error)
    })
}

/// A client's end of its database thread. Dropping it lets the thread finish what was asked and end.
pub(super) struct SqliteBackend {
    queue: Arc<mpsc::Sender<Message>>,
    /// Set before the thread is told to end: what is answered by nobody afterwards was not started.
    closed: Arc<AtomicBool>,
    timeout: Duration,
    capability: Capability,
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend").field("capability", &self.capability).finish_non_exhaustive()
    }
}

impl SqliteBackend {
    /// Sends a step to the database thread. It leaves now, not when the reply is first polled.
    fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        writes: bool,
        step: impl FnMut(&mut Store<'_>) -> Sql<T> + Send + 'static,
    ) -> Reply<T> {
        self.ask_for(operation, writes, false, step)
    }

    /// As [`SqliteBackend::ask`]. `durable`: what it writes is on the disk, synced, before it is answered.
    pub(super) fn ask_for<T: Send + 'static>(
        &self,
        operation: &'static str,
        writes: bool,
        durable: bool,
        step: impl FnMut(&mut Store<'_>) -> Sql<T> + Send + 'static,
    ) -> Reply<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            deadline: SystemClock.now() + self.timeout,
            writes,
            durable,
            work: Box::new(Asked { step, result: None, reply }),
        };
        // If the thread has ended, the job is dropped, and its answer says so.
        let _ = self.queue.send(Message::Job(job));
        let closed = Arc::clone(&self.closed);
        Box::pin(async move {
            let answer = match answer.await {
                Ok(answer) => answer,
                Err(_) if closed.load(Ordering::SeqCst) => Err(client_closed()),
                Err(_) => Err(thread_ended()),
            };
            answer.map_err(|error| error.during("sqlite", operation))
        })
    }
}

impl Backend for SqliteBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        let contender = Arc::clone(contender);
        self.ask("acquire", true, move |store| {
            let answer = store.poll(&contender, ask)?;
            if let (Answer::Wait { .. }, Ask::Wait { left: Some(left), .. }) = (&answer, ask) {
                store.limit_wait(contender.owner, left)?;
            }
            Ok(answer)
        })
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        let contenders = contenders.to_vec();
        self.ask("acquire", true, move |store| store.take_all(&contenders))
    }

    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        let (contender, reason) = (Arc::clone(contender), reason.to_owned());
        self.ask("acquire", true, move |store| store.steal(&contender, &reason))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.ask("renew", true, move |store| items.iter().map(|item| store.renew(item)).collect())
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        let contender = Arc::clone(contender);
        self.ask("convert", true, move |store| store.convert(&contender, fence, to))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        let contender = Arc::clone(contender);
        self.ask("release", true, move |store| store.release(&contender, fence))
    }

    /// The thread of the file carries requests out in the order in which they were made.
    fn release_in_turn(&self, contender: &Arc<Contender>, fence: FencingToken) -> Option<Reply<Released>> {
        Some(self.release(contender, fence))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        let contender = Arc::clone(contender);
        self.ask("cancel", true, move |store| store.cancel(&contender))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        let client = Arc::clone(client);
        self.ask("announce", true, move |store| store.announce(&client))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let query = query.clone();
        let asked = Instant::now();
        let reply = self.ask("snapshot", false, move |store| read::snapshot(store.conn, store.now, &query));
        Box::pin(async move {
            let mut snapshot = reply.await?;
            snapshot.round_trip = asked.elapsed();
            Ok(snapshot)
        })
    }

    fn follow(&self, query: &Query, before: Option<Followed>) -> Reply<Followed> {
        let query = query.clone();
        let asked = Instant::now();
        let reply = self.ask("snapshot", false, move |store| {
            read::follow(store.conn, store.now, &query, before.as_ref())
        });
        Box::pin(async move {
            let mut followed = reply.await?;
            if let Some(snapshot) = Arc::get_mut(&mut followed.snapshot) {
                snapshot.round_trip = asked.elapsed();
            }
            Ok(followed)
        })
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        let request = request.clone();
        self.ask("break", true, move |store| store.break_lease(&request))
    }

    fn examine(&self) -> Reply<Examination> {
        let look = self.ask("examine", false, |store| {
            let facts = doctor::look(store.conn, store.now);
            Ok((facts, Instant::now()))
        });
        let write = self.ask("examine", true, |_| Ok(Instant::now()));
        Box::pin(async move {
            let (facts, looked) = look.await?;
            let writing = match write.await {
                Ok(wrote) => doctor::Writing::Took(wrote - looked),
                Err(error) => doctor::Writing::Failed(error.to_string()),
            };
            Ok(doctor::judge(&facts, &writing))
        })
    }

    fn records(&self) -> Result<&dyn Records> {
        Ok(self)
    }

    fn close(&self) -> Reply<()> {
        let (reply, closed) = oneshot::channel();
        self.closed.store(true, Ordering::SeqCst);
        let sent = self.queue.send(Message::Close(reply)).is_ok();
        Box::pin(async move {
            if sent {
                // The thread may have ended on its own; it is gone either way.
                let _ = closed.await;
            }
            Ok(())
        })
    }
}

fn client_closed() -> Error {
    Error::new(ErrorKind::Canceled, "this client was closed; connect a new one")
}

fn thread_ended() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the thread of the lock file ended before it answered; please report this, with what it printed",
    )
    .with_effect(Effect::Maybe)
}
