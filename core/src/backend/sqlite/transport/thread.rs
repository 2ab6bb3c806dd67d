//! The database thread: one per client. It owns the connection, runs the requests in the order in
//! which they came, and looks for what other processes did. While the process forks it has no connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use crate::backend::rows::Now;
use crate::backend::sqlite::SqliteOptions;
use crate::backend::sqlite::backend::RESERVE_US;
use crate::backend::sqlite::push::Watch;
use crate::backend::sqlite::store::{Sql, Store};
use crate::backend::sqlite::tidy::SweepMark;
use crate::backend::sqlite::transport::errors::{Failure, two_hosts, used_up};
use crate::backend::sqlite::transport::forked::InUse;
use crate::backend::sqlite::transport::host::Host;
use crate::backend::sqlite::transport::open::{self, BusyUntil, OpenFile, Opened};
use crate::clock::{BootInstant, Clock, SystemClock};
use crate::error::{Effect, ErrorKind, Result};
use crate::token::ClientId;
use crate::wakeups::Wakeups;

/// How many requests share one transaction at most: together they hold the write lock for a few
/// milliseconds, which other processes have to wait.
const BATCH: usize = 64;

/// What one transaction uses of the reserved numbers at most, by far.
const BATCH_NUMBERS: i64 = 1_000_000;

/// Numbers from 2^53 on are not exact in every language.
const MOST_COUNTED: i64 = (1 << 53) - 1;

/// What the thread is asked to do.
pub(crate) enum Message {
    Job(Job),
    Close(oneshot::Sender<()>),
    /// Close the file until the next request, unless this client holds or waits for a lock; answer whether it is
    /// closed.
    Rest(SyncSender<bool>),
}

/// Why the thread lets go of its connection.
pub(crate) enum Stop {
    Close(oneshot::Sender<()>),
    Rest(SyncSender<bool>),
    NobodyAsks,
}

/// One request.
pub(crate) struct Job {
    /// Not started after this: whoever asked has stopped waiting.
    pub deadline: BootInstant,
    pub writes: bool,
    /// What it writes is synced to the disk before it is answered: it has to outlive a power cut, as no lease does.
    pub durable: bool,
    pub work: Box<dyn Work>,
}

/// A step of the store and whoever waits for what comes of it.
pub(crate) trait Work: Send {
    /// Carries out the step. Runs again if the transaction was rolled back.
    fn run(&mut self, store: &mut Store<'_>) -> Sql<()>;

    /// Answers, once the transaction is over.
    fn finish(self: Box<Self>, failure: Option<&Failure>);
}

/// The usual [`Work`]: a closure and a channel for its result.
pub(crate) struct Asked<T, F> {
    pub step: F,
    pub result: Option<T>,
    pub reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Store<'_>) -> Sql<T> + Send> Work for Asked<T, F> {
    fn run(&mut self, store: &mut Store<'_>) -> Sql<()> {
        self.result = Some((self.step)(store)?);
        Ok(())
    }

    fn finish(self: Box<Self>, failure: Option<&Failure>) {
        let answer = match (failure, self.result) {
            (None, Some(result)) => Ok(result),
            (Some(failure), _) => Err(failure.to_error()),
            (None, None) => Err(Failure::new(ErrorKind::Internal, "a step was not carried out").to_error()),
        };
        // Whoever asked may have gone; the step was carried out nevertheless.
        let _ = self.reply.send(answer);
    }
}

/// What a file is opened with, at first and after a fork.
pub(crate) struct Opener {
    pub path: PathBuf,
    pub options: SqliteOptions,
    pub client: ClientId,
    pub wakeups: Arc<Wakeups>,
}

impl Opener {
    /// Serves until asked to stop, or until nobody can ask any more. Whoever asked to stop may have gone.
    pub(crate) fn serve(&self, first: Database, queue: &Receiver<Message>) {
        let (mut database, mut message) = (first, None);
        loop {
            match database.serve(message.take(), queue) {
                Stop::Close(closed) => {
                    let _ = closed.send(());
                    return;
                }
                Stop::NobodyAsks => return,
                Stop::Rest(rests) => {
                    let _ = rests.send(true);
                }
            }
            let Some((job, reopened)) = self.rest(queue) else { return };
            (message, database) = (Some(Message::Job(job)), reopened);
        }
    }

    /// Waits without a connection for the next request, and opens the file for it; `None` if there is none.
    fn rest(&self, queue: &Receiver<Message>) -> Option<(Job, Database)> {
        loop {
            match queue.recv().ok()? {
                Message::Job(job) => match self.open() {
                    Ok(database) => return Some((job, database)),
                    Err(error) => job.work.finish(Some(&Failure::of_error(&error))),
                },
                Message::Rest(rests) => {
                    let _ = rests.send(true);
                }
                Message::Close(closed) => {
                    let _ = closed.send(());
                    return None;
                }
            }
        }
    }

    pub(crate) fn open(&self) -> Result<Database> {
        Database::open(self)
    }
}

/// Everything that the thread owns while its file is open.
pub(crate) struct Database {
    conn: Connection,
    /// Behind the connection, because it must be dropped after it.
    _in_use: InUse,
    file: OpenFile,
    busy_until: BusyUntil,
    busy_timeout: Duration,
    host: Host,
    client: String,
    watch: Watch,
    sweep_mark: SweepMark,
}

impl Database {
    fn open(opener: &Opener) -> Result<Self> {
        let in_use = InUse::begin()?;
        let host = Host::of_this_process()?;
        let Opened { conn, file, busy_until } =
            open::open(&opener.path, &opener.options, &host).map_err(|failure| failure.to_error())?;
        let client = opener.client.as_str().to_owned();
        let watch = Watch::start(&conn, client.clone(), Arc::clone(&opener.wakeups))
            .map_err(|error| Failure::of_sqlite(&error, &opener.path).to_error())?;
        Ok(Self {
            conn,
            _in_use: in_use,
            file,
            busy_until,
            busy_timeout: opener.options.busy_timeout,
            host,
            client,
            watch,
            sweep_mark: SweepMark::default(),
        })
    }

    /// Serves until there is a reason to stop; the connection is closed then.
    fn serve(mut self, first: Option<Message>, queue: &Receiver<Message>) -> Stop {
        let mut first = first;
        loop {
            let message = match (first.take(), self.watch.pause()) {
                (Some(message), _) => Ok(message),
                (None, None) => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, Some(pause)) => queue.recv_timeout(pause),
            };
            match message {
                Ok(message) => {
                    if let Some(stop) = self.serve_batch(message, queue) {
                        return stop;
                    }
                    self.watch.asked();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Stop::NobodyAsks,
            }
            self.busy_until.set(SystemClock.now());
            self.watch.look_if_due(&self.conn, &self.host);
        }
    }

    /// Serves one message and what has queued up behind it. Writes that follow each other share a
    /// transaction.
    fn serve_batch(&mut self, first: Message, queue: &Receiver<Message>) -> Option<Stop> {
        let mut writes = Vec::new();
        let mut next = Ok(first);
        let mut stop = None;
        while let Ok(message) = next {
            match message {
                Message::Job(job) if job.writes => writes.push(job),
                Message::Job(job) => {
                    self.write(std::mem::take(&mut writes));
                    self.read(job);
                }
                Message::Close(reply) => stop = Some(Stop::Close(reply)),
                Message::Rest(reply) => stop = Some(Stop::Rest(reply)),
            }
            if stop.is_some() || writes.len() == BATCH {
                break;
            }
            next = queue.try_recv();
        }
        self.write(writes);
        match stop {
            Some(Stop::Rest(reply)) if self.is_needed() => {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(false);
                None
            }
            stop => stop,
        }
    }

    /// Whether this client holds or waits for a lock, as far as can be told.
    fn is_needed(&self) -> bool {
        let needed = self
            .conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM lease WHERE client = ?1 AND ends_ms > ?2) \
                 OR EXISTS (SELECT 1 FROM waiter WHERE client = ?1)",
            )
            .and_then(|mut statement| {
                statement.query_row(params![self.client, self.host.now().clock_ms], |row| row.get(0))
            });
        needed.unwrap_or(true)
    }

    fn write(&mut self, mut jobs: Vec<Job>) {
        let now = SystemClock.now();
        for late in jobs.extract_if(.., |job| job.deadline <= now) {
            late.work.finish(Some(&waited_too_long()));
        }
        let Some(latest) = jobs.iter().map(|job| job.deadline).max() else { return };
        self.busy_until.set(latest.min(now + self.busy_timeout));
        let durable = jobs.iter().any(|job| job.durable);
        if durable && let Err(error) = self.conn.execute_batch("PRAGMA synchronous = FULL") {
            let failure = Failure::of_sqlite(&error, &self.file.path);
            return jobs.into_iter().for_each(|job| job.work.finish(Some(&failure)));
        }
        let mut outcome = self.transaction(&mut jobs);
        if matches!(outcome, Err((_, Stage::DiskFull))) && self.reuse_log() {
            outcome = self.transaction(&mut jobs);
        }
        // Should it fail, later commits are synced without need.
        if durable && let Err(error) = self.conn.execute_batch("PRAGMA synchronous = NORMAL") {
            tracing::debug!(%error, "commits stay synced");
        }
        match outcome {
            Ok(()) => jobs.into_iter().for_each(|job| job.work.finish(None)),
            // One request must not spoil the others: each alone, then.
            Err((failure, Stage::Steps)) if jobs.len() > 1 && failure.effect == Effect::None => {
                jobs.into_iter().for_each(|job| self.write(vec![job]));
            }
            Err((failure, _)) => jobs.into_iter().for_each(|job| job.work.finish(Some(&failure))),
        }
    }

    fn transaction(&mut self, jobs: &mut [Job]) -> Result<(), (Failure, Stage)> {
        let (now, counter) = self.begin().map_err(|failure| (failure, Stage::Begin))?;
        let mut store = Store {
            conn: &self.conn,
            now,
            counter,
            pushes: Vec::new(),
            sweep_mark: &mut self.sweep_mark,
            unswept: false,
        };
        let done = jobs.iter_mut().try_for_each(|job| job.work.run(&mut store)).and_then(|()| {
            if store.counter == counter {
                return Ok(0);
            }
            store.run("UPDATE store SET counter = ?1", params![store.counter])
        });
        let is_used_up = store.counter != counter && store.counter > MOST_COUNTED;
        let pushes = store.pushes;
        if done.is_ok() && is_used_up {
            return Err((self.roll_back(used_up(&self.file.path)), Stage::Steps));
        }
        if let Err(error) = done {
            let stage = if is_full(&error) { Stage::DiskFull } else { Stage::Steps };
            return Err((self.roll_back(Failure::of_sqlite(&error, &self.file.path)), stage));
        }
        if let Err(error) = run(&self.conn, "COMMIT") {
            let failure = self.roll_back(Failure::of_sqlite(&error, &self.file.path));
            // A full disk refuses before the last page of the commit is written. After another error
            // the commit may be found, whole, when the log is next recovered.
            return Err(if is_full(&error) {
                (failure, Stage::DiskFull)
            } else {
                (failure.maybe(), Stage::Commit)
            });
        }
        // A file that was replaced meanwhile may have taken the commit with it.
        self.file.check().map_err(|failure| (failure.maybe(), Stage::Commit))?;
        self.watch.deliver(&pushes);
        Ok(())
    }

    /// Gets the write lock, and reads the time and the counter under it.
    fn begin(&mut self) -> Result<(Now, i64), Failure> {
        loop {
            self.file.check()?;
            let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, &self.file.path);
            run(&self.conn, "BEGIN IMMEDIATE").map_err(fail)?;
            let state = self.state();
            // Read only now: the wait for the lock must not count as time that a lease has left.
            let now = self.host.now();
            match state {
                Ok((counter, reserved)) if counter.max(now.wall_us) + BATCH_NUMBERS < reserved => {
                    return Ok((now, counter));
                }
                Ok((counter, _)) => {
                    run(&self.conn, "ROLLBACK").map_err(fail)?;
                    self.reserve(counter.max(now.wall_us)).map_err(fail)?;
                }
                Err(failure) => return Err(self.roll_back(failure)),
            }
        }
    }

    /// Reads (counter, reserved), and checks that the file is this boot's.
    fn state(&self) -> Result<(i64, i64), Failure> {
        let (counter, reserved, ours) = self
            .conn
            .prepare_cached("SELECT counter, reserved, boot = ?1 FROM store")
            .and_then(|mut statement| {
                statement
                    .query_row(params![self.host.boot], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            })
            .map_err(|error| Failure::of_sqlite(&error, &self.file.path))?;
        // Opening made it ours, and this boot goes on: only another machine can have changed it.
        if ours { Ok((counter, reserved)) } else { Err(two_hosts(&self.file.path)) }
    }

    /// Puts a later end of the reserved numbers on the disk, with a sync, every ten minutes of use.
    fn reserve(&self, from: i64) -> Sql<()> {
        self.conn.execute_batch("PRAGMA synchronous = FULL")?;
        let reserved =
            self.conn.execute("UPDATE store SET reserved = max(reserved, ?1)", params![from + RESERVE_US]);
        self.conn.execute_batch("PRAGMA synchronous = NORMAL")?;
        reserved.map(|_| ())
    }

    /// Moves the log's content into the database, so that the next transaction writes over the log's
    /// old blocks: on a full disk, what was there before can go on being renewed and released.
    fn reuse_log(&self) -> bool {
        let busy = self.conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, bool>(0));
        matches!(busy, Ok(false))
    }

    fn roll_back(&self, failure: Failure) -> Failure {
        // Some errors have rolled back already.
        if !self.conn.is_autocommit()
            && let Err(error) = run(&self.conn, "ROLLBACK")
        {
            tracing::error!(%error, "could not roll back");
            return failure.maybe();
        }
        failure
    }

    fn read(&mut self, mut job: Job) {
        let now = SystemClock.now();
        if job.deadline <= now {
            return job.work.finish(Some(&waited_too_long()));
        }
        self.busy_until.set(job.deadline.min(now + self.busy_timeout));
        let outcome = self.read_transaction(&mut job);
        job.work.finish(outcome.err().as_ref());
    }

    fn read_transaction(&mut self, job: &mut Job) -> Result<(), Failure> {
        self.file.check()?;
        let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, &self.file.path);
        run(&self.conn, "BEGIN").map_err(fail)?;
        let read = self.state().and_then(|(counter, _)| {
            let mut store = Store {
                conn: &self.conn,
                now: self.host.now(),
                counter,
                pushes: Vec::new(),
                sweep_mark: &mut self.sweep_mark,
                unswept: false,
            };
            job.work.run(&mut store).map_err(fail)
        });
        let ended = run(&self.conn, "ROLLBACK").map_err(fail);
        read.and(ended)
    }
}

/// How far a failed transaction had come.
enum Stage {
    Begin,
    Steps,
    Commit,
    /// At either of the two.
    DiskFull,
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

fn run(conn: &Connection, sql: &str) -> Sql<()> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn waited_too_long() -> Failure {
    Failure::new(
        ErrorKind::BackendUnavailable,
        "the request waited in this client for longer than its time limit and was not started; the lock \
         file's disk is slow, or the file is locked by another program",
    )
}
