//! The client's own native thread: timers, I/O and background work go on there, whatever the host
//! program does with its threads (a blocked event loop, a held interpreter lock, a dropped runtime).

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(target_family = "wasm"))]
use std::thread::ThreadId;
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use tokio::runtime::Builder;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;

use crate::clock::{BootInstant, Clock};
use crate::error::{Effect, Error, ErrorKind, Result};

#[cfg(not(target_family = "wasm"))]
mod later;
#[cfg(not(target_family = "wasm"))]
pub(crate) use later::PutOff;

/// How long the thread goes on with unfinished background work after its client was dropped.
#[cfg(not(target_family = "wasm"))]
const GRACE: Duration = Duration::from_secs(5);

/// How long the last handle of a client waits for background work when it is dropped: longer than a release
/// takes, shorter than a person notices.
#[cfg(not(target_family = "wasm"))]
const LINGER: Duration = Duration::from_millis(500);

/// Counts work under way, for the caller that waits for its end.
#[derive(Default)]
pub(crate) struct Jobs {
    running: AtomicUsize,
    one_ended: Notify,
    stop: Notify,
}

impl Jobs {
    /// Counts a job until the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(self))
    }

    /// Completes when no job runs. Jobs that start meanwhile are waited for too.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.one_ended.notified();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// A job under way.
pub(crate) struct Running(Arc<Jobs>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.one_ended.notify_waiters();
    }
}

/// The timers of a client: those of its own thread, or its clock, if that one is moved by hand. May be awaited on any
/// executor.
#[derive(Clone)]
pub(crate) struct Timers {
    handle: Handle,
    clock: Arc<dyn Clock>,
}

impl Timers {
    pub(crate) async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.clock.now() + duration).await;
    }

    /// Sleeps until an instant of the clock. What the clock moves between the caller's decision and this call counts.
    pub(crate) async fn sleep_until(&self, at: BootInstant) {
        // A JavaScript host has no clock that is moved by hand: every kilobyte is loaded there.
        #[cfg(not(target_family = "wasm"))]
        if let Some(reached) = self.clock.reached(at) {
            return reached.await;
        }
        let sleep = {
            let _context = self.handle.enter();
            tokio::time::sleep(at.since(self.clock.now()))
        };
        sleep.await;
    }

    /// Awaits `work` for at most `limit`; `None` if it is not done by then.
    pub(crate) async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(reached) = self.clock.reached(self.clock.now() + limit) {
            tokio::select! {
                biased;
                done = work => return Some(done),
                () = reached => return None,
            }
        }
        let timeout = {
            let _context = self.handle.enter();
            tokio::time::timeout(limit, work)
        };
        timeout.await.ok()
    }
}

/// A running service thread. Dropping it lets the thread finish its jobs (at most 5 s) and end.
pub(crate) struct Service {
    timers: Timers,
    jobs: Arc<Jobs>,
    #[cfg(not(target_family = "wasm"))]
    later: Arc<later::Later>,
    #[cfg(not(target_family = "wasm"))]
    thread: ThreadId,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("jobs", &self.jobs.running.load(Ordering::Relaxed)).finish()
    }
}

impl Service {
    /// In a JavaScript host there is no thread to have: its event loop carries out everything.
    #[cfg(target_family = "wasm")]
    pub(crate) fn start(clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self { timers: Timers { handle: Handle::current(), clock }, jobs: Arc::default() })
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn start(clock: Arc<dyn Clock>) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                "the operating system gave no thread or no event queue for this client; check its limits \
                 on threads and open files",
            )
            .with_source(error)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let jobs = Arc::new(Jobs::default());
        let for_thread = Arc::clone(&jobs);
        let thread = std::thread::Builder::new()
            .name("polylatch".into())
            .spawn(move || {
                runtime.block_on(async {
                    for_thread.stop.notified().await;
                    let _ = tokio::time::timeout(GRACE, for_thread.idle()).await;
                });
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Self {
            timers: Timers { handle, clock },
            jobs,
            later: Arc::default(),
            thread: thread.thread().id(),
        })
    }

    /// A service without a thread of its own, for tests that decide how time passes.
    #[cfg(all(test, not(target_family = "wasm")))]
    pub(crate) fn of_this_runtime(clock: Arc<dyn Clock>) -> Self {
        let thread = std::thread::current().id();
        Self {
            timers: Timers { handle: Handle::current(), clock },
            jobs: Arc::default(),
            later: Arc::default(),
            thread,
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.timers.handle
    }

    /// The runtime in which the present code runs; this client's own if it runs in none.
    pub(crate) fn runtime_here(&self) -> runtime::Id {
        Handle::try_current().map_or_else(|_| self.timers.handle.id(), |handle| handle.id())
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns what makes the end of the client's use wait for its background work.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn linger(&self) -> Linger {
        Linger {
            handle: self.timers.handle.clone(),
            jobs: Arc::clone(&self.jobs),
            thread: self.thread,
            process: crate::client_info::process_id(),
        }
    }

    /// Starts work that ends with the client.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.timers.handle.spawn(work);
    }

    /// Starts work at its time, unless what this returns is dropped before.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn begin_at(
        &self,
        at: BootInstant,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> PutOff {
        self.later.begin_at(&self.timers, at, work)
    }

    /// Starts work that closing the client waits for.
    pub(crate) fn spawn_job(&self, work: impl Future<Output = ()> + Send + 'static) {
        let running = self.jobs.begin();
        self.timers.handle.spawn(async move {
            work.await;
            drop(running);
        });
    }

    /// Completes when no background work is left.
    pub(crate) async fn idle(&self) {
        self.jobs.idle().await;
    }

    /// Sleeps; may be awaited on any executor.
    pub(crate) async fn sleep(&self, duration: Duration) {
        self.timers.sleep(duration).await;
    }

    /// Awaits `work` for at most `limit`; may be awaited on any executor.
    ///
    /// Errors: `backend_unavailable` with effect `maybe`, because the request has left.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.timers.timeout(limit, work).await.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::BackendUnavailable,
                format!("the store did not answer within {limit:?}; the option `timeout` says how long a request may take"),
            )
            .with_effect(Effect::Maybe))
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.jobs.stop.notify_one();
    }
}

/// Waits, when it is dropped, for the background work of a client: the process may end right after, and
/// with it the thread that carries the work out.
#[cfg(not(target_family = "wasm"))]
pub(crate) struct Linger {
    handle: Handle,
    jobs: Arc<Jobs>,
    thread: ThreadId,
    process: u32,
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Linger {
    fn drop(&mut self) {
        // The service thread would wait for itself, and a forked child has none.
        let is_pointless = self.jobs.running.load(Ordering::SeqCst) == 0
            || std::thread::current().id() == self.thread
            || crate::client_info::process_id() != self.process;
        if is_pointless {
            return;
        }
        let (done, told) = std::sync::mpsc::channel::<()>();
        let jobs = Arc::clone(&self.jobs);
        self.handle.spawn(async move {
            jobs.idle().await;
            drop(done);
        });
        // Ends with the sender, also if the runtime drops the task.
        let _ = told.recv_timeout(LINGER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn sleeping_and_time_limits_work_without_a_runtime_of_the_caller() {
        let service = Service::start(Arc::new(SystemClock)).unwrap();
        pollster::block_on(service.sleep(Duration::from_millis(5)));
        let late = pollster::block_on(
            service.within(Duration::from_millis(5), std::future::pending::<Result<()>>()),
        );
        let late = late.unwrap_err();
        assert_eq!(late.effect(), Effect::Maybe);
        assert!(late.to_string().contains("within 5ms; the option `timeout`"), "{late}");
    }

    #[test]
    fn idle_waits_for_jobs_only() {
        let service = Service::start(Arc::new(SystemClock)).unwrap();
        service.spawn(std::future::pending());
        let (tell, told) = std::sync::mpsc::channel();
        service.spawn_job(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            tell.send(()).unwrap();
        });
        pollster::block_on(service.idle());
        told.try_recv().expect("the job had ended");
    }
}
