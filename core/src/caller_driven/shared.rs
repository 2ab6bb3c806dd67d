//! A connection that many requests share, whose I/O is done by the callers that wait for answers.
//!
//! A client library hands out a connection and a *driver*, a future that does its reading and writing. A caller polls
//! the driver itself while it waits. A background task steps in when no caller waits, or when the one whose turn it is
//! does not get to run.
//!
//! The background task also gives up a connection on which requests go unanswered and nothing else comes in: a
//! firewall or NAT that drops an established flow tells neither end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::caller_driven::blocking;
use crate::caller_driven::socket::{Heard, Socket};
use crate::clock::Instant;
use crate::wakeups::unpoisoned;

/// How long an answer can lie unread because the caller that was woken for it does not get to run.
const STEP_IN_AFTER: Duration = Duration::from_millis(25);

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets callers share the driving of one connection.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    driver: Arc<Mutex<Option<Driver>>>,
    hub: Arc<Hub>,
    /// Where a thread in a blocking call waits for its answer.
    socket: Option<Arc<Socket>>,
    /// Counts what comes in.
    heard: Arc<Heard>,
    /// For how long nothing may come in while an answer is due.
    limit: Duration,
}

/// Receives the driver's wake-ups and passes them on to one of those who wait.
#[derive(Default)]
struct Hub {
    /// The driver wants to be polled.
    woken: AtomicBool,
    /// Somebody polls it and looks at `woken` before stopping, so nobody else need be woken.
    driving: AtomicBool,
    /// The connection has ended.
    ended: AtomicBool,
    /// Calls made so far; tells the background whether the connection is in use.
    calls: AtomicU64,
    /// How much had come in when the latest call was made, and one more.
    asked: AtomicU64,
    /// For how many milliseconds answers have been due while nothing came in.
    silent_ms: AtomicU64,
    /// The background sleeps until it is woken.
    background_sleeps: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next_id: u64,
    /// Those who wait for an answer, the latest last: it is the most likely to be in cache.
    callers: Vec<(u64, Waker)>,
    background: Option<Waker>,
}

impl Wake for Hub {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.driving.load(Ordering::SeqCst) {
            self.pass_on();
        }
    }
}

impl Hub {
    fn pass_on(&self) {
        let waker = {
            let waiters = unpoisoned(&self.waiters);
            waiters.callers.last().map(|(_, waker)| waker).or(waiters.background.as_ref()).cloned()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_background(&self) {
        let waker = unpoisoned(&self.waiters).background.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl SharedConnection {
    pub(crate) fn new(
        driver: impl Future<Output = ()> + Send + 'static,
        socket: Option<Arc<Socket>>,
        heard: Arc<Heard>,
        limit: Duration,
    ) -> Self {
        let hub = Arc::new(Hub::default());
        // Never polled so far, so it has woken nobody: the first poll is due.
        hub.woken.store(true, Ordering::SeqCst);
        // Without tokio's budget for cooperation, which is that of the task that happens to drive: the
        // driver does the work of others, too, and with a budget that is used up it would only wake
        // itself, in the midst of a task that does not return before the driver rests.
        let driver: Driver = Box::pin(tokio::task::unconstrained(driver));
        Self { driver: Arc::new(Mutex::new(Some(driver))), hub, socket, heard, limit }
    }

    /// For how long answers have been due while nothing came in, as far as this process has run.
    pub(crate) fn silent_for(&self) -> Duration {
        Duration::from_millis(self.hub.silent_ms.load(Ordering::Relaxed))
    }

    /// Whether an answer is due: to a caller that waits, or to the latest call, whose caller may have given up.
    fn owes_an_answer(&self) -> bool {
        self.waiting() > 0 || self.hub.asked.load(Ordering::Relaxed) == self.heard.count() + 1
    }

    /// Says whether the connection is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.hub.ended.load(Ordering::SeqCst)
    }

    /// Gives the connection up: whoever waits for an answer learns at once that none comes.
    pub(crate) fn end(&self) {
        drop(self.driver.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
        self.hub.ended.store(true, Ordering::SeqCst);
        let waiting = {
            let waiters = unpoisoned(&self.hub.waiters);
            let callers = waiters.callers.iter().map(|(_, waker)| waker);
            callers.chain(&waiters.background).cloned().collect::<Vec<_>>()
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// How many calls wait for an answer.
    fn waiting(&self) -> usize {
        unpoisoned(&self.hub.waiters).callers.len()
    }

    /// Awaits the answer to a request, driving the connection meanwhile. Where others wait too, it goes
    /// out together with what they send next, unless it is to go at once.
    pub(crate) async fn call<T>(&self, request: impl Future<Output = T>, at_once: bool) -> T {
        let place = Place::new(&self.hub);
        self.hub.asked.store(self.heard.count() + 1, Ordering::Relaxed);
        let mut request = std::pin::pin!(request);
        // In one write, by the one who drives next: sending it wakes that one.
        let mut joins_others = !at_once && self.waiting() > 0;
        poll_fn(|context| {
            if std::mem::take(&mut joins_others) {
                let answer = request.as_mut().poll(context);
                if answer.is_pending() {
                    place.wait_with(context.waker());
                }
                return answer;
            }
            loop {
                let mut answer = Poll::Pending;
                let drove = self.drive_around(|| {
                    if answer.is_pending() {
                        answer = request.as_mut().poll(context);
                    }
                    answer.is_ready()
                });
                if !drove {
                    // Somebody else drives. It sees what this poll sends before it stops.
                    answer = request.as_mut().poll(context);
                }
                if answer.is_ready() {
                    return answer;
                }
                if drove && self.wait_at_the_socket() {
                    continue;
                }
                place.wait_with(context.waker());
                // A wake-up between driving and registering would have gone to somebody else.
                if !self.hub.woken.load(Ordering::SeqCst) || self.hub.driving.load(Ordering::SeqCst) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// In a blocking call, blocks until there is something to read. Not while others wait too: their
    /// requests would wait with this thread.
    fn wait_at_the_socket(&self) -> bool {
        let limit = blocking::at_a_socket();
        let Some(socket) = self.socket.as_ref().filter(|_| !limit.is_zero() && self.waiting() == 0) else {
            return false;
        };
        // This thread is about to drive, so nobody need be woken for the answer.
        self.hub.driving.store(true, Ordering::SeqCst);
        let readable = socket.wait_readable(limit);
        self.hub.driving.store(false, Ordering::SeqCst);
        if readable {
            self.hub.woken.store(true, Ordering::SeqCst);
        }
        self.hub.woken.load(Ordering::SeqCst)
    }

    /// Polls the driver while it wants to be, with `step` before the first and after each round,
    /// until `step` says that it is done. Returns `false` without doing anything if somebody else
    /// drives.
    fn drive_around(&self, mut step: impl FnMut() -> bool) -> bool {
        loop {
            let mut driver = match self.driver.try_lock() {
                Ok(driver) => driver,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            self.hub.driving.store(true, Ordering::SeqCst);
            let mut done = step();
            let waker = Waker::from(Arc::clone(&self.hub));
            while !done && self.hub.woken.swap(false, Ordering::SeqCst) {
                if let Some(running) = driver.as_mut()
                    && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
                {
                    // The connection has ended: dropping the driver fails what still waits.
                    self.hub.ended.store(true, Ordering::SeqCst);
                    *driver = None;
                }
                done = step();
            }
            self.hub.driving.store(false, Ordering::SeqCst);
            drop(driver);
            // Whoever is done leaves what came in meanwhile to the next: it must not be kept driving
            // for others. Leaving its place passes the wake-up on.
            if done || !self.hub.woken.load(Ordering::SeqCst) {
                return true;
            }
        }
    }

    /// Drives the connection when no caller does, until it ends or has been silent for too long. Runs on a tokio
    /// runtime.
    pub(crate) async fn background(self) {
        let mut calls_before = 0;
        let mut silence = Silence::default();
        loop {
            let calls = self.hub.calls.load(Ordering::SeqCst);
            let in_use = calls != calls_before || self.owes_an_answer();
            calls_before = calls;
            let mut asleep = false;
            let wake_up = poll_fn(|context: &mut Context<'_>| {
                unpoisoned(&self.hub.waiters).background = Some(context.waker().clone());
                // After registering, so that the first call after a pause finds somebody to wake.
                self.hub.background_sleeps.store(!in_use, Ordering::SeqCst);
                let must_act = self.hub.woken.load(Ordering::SeqCst) && self.waiting() == 0;
                if must_act || std::mem::replace(&mut asleep, true) { Poll::Ready(()) } else { Poll::Pending }
            });
            let passed = if in_use {
                let before = Instant::now();
                let _ = tokio::time::timeout(STEP_IN_AFTER, wake_up).await;
                before.elapsed()
            } else {
                wake_up.await;
                Duration::ZERO
            };
            self.drive_around(|| false);
            if self.has_ended() {
                return;
            }
            let silent = silence.went_on(passed, self.heard.count(), self.owes_an_answer(), self.limit);
            self.hub.silent_ms.store(silent.as_millis() as u64, Ordering::Relaxed);
            if silent >= self.limit {
                tracing::debug!(?silent, "a connection does not answer; it is given up");
                self.end();
                return;
            }
        }
    }
}

/// For how long a connection has been silent while an answer was due.
#[derive(Default)]
struct Silence {
    heard: u64,
    lasted: Duration,
}

impl Silence {
    /// Adds the time since the last look. A process that did not run for long has not looked for an answer either,
    /// so one look counts for a part of the limit at most.
    fn went_on(&mut self, passed: Duration, heard: u64, owes: bool, limit: Duration) -> Duration {
        let is_silent = owes && heard == self.heard;
        self.heard = heard;
        self.lasted = if is_silent { self.lasted + passed.min(limit / 8) } else { Duration::ZERO };
        self.lasted
    }
}

/// One caller's place among those who wait. Leaving passes on a wake-up that came too late.
struct Place<'a> {
    hub: &'a Hub,
    id: u64,
}

impl<'a> Place<'a> {
    fn new(hub: &'a Hub) -> Self {
        hub.calls.fetch_add(1, Ordering::SeqCst);
        if hub.background_sleeps.swap(false, Ordering::SeqCst) {
            hub.wake_background();
        }
        let mut waiters = unpoisoned(&hub.waiters);
        waiters.next_id += 1;
        Self { hub, id: waiters.next_id }
    }

    fn wait_with(&self, waker: &Waker) {
        let mut waiters = unpoisoned(&self.hub.waiters);
        match waiters.callers.iter_mut().rev().find(|(id, _)| *id == self.id) {
            Some((_, known)) => known.clone_from(waker),
            None => waiters.callers.push((self.id, waker.clone())),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let others_wait = {
            let mut waiters = unpoisoned(&self.hub.waiters);
            if let Some(at) = waiters.callers.iter().rposition(|(id, _)| *id == self.id) {
                waiters.callers.remove(at);
            }
            !waiters.callers.is_empty()
        };
        // If nobody waits, what has come in can wait for the next call or the background's next look.
        if others_wait && self.hub.woken.load(Ordering::SeqCst) && !self.hub.driving.load(Ordering::SeqCst) {
            self.hub.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    #[test]
    fn only_an_answer_that_is_due_makes_silence_and_whatever_comes_in_ends_it() {
        let mut silence = Silence::default();
        let mut after = |millis, heard, owes| {
            silence.went_on(Duration::from_millis(millis), heard, owes, LIMIT).as_millis()
        };
        assert_eq!(after(500, 0, false), 0, "no answer is due");
        assert_eq!([after(500, 0, true), after(300, 0, true)], [500, 800]);
        assert_eq!(after(300, 1, true), 0, "something came in");
        assert_eq!(after(300, 1, true), 300);
        assert_eq!(after(300, 1, false), 0);
    }

    #[test]
    fn a_process_that_was_stopped_does_not_take_its_own_pause_for_silence() {
        let mut silence = Silence::default();
        let mut after_an_hour = || silence.went_on(Duration::from_secs(3_600), 0, true, LIMIT);
        assert!(after_an_hour() < LIMIT);
        assert!((0..6).all(|_| after_an_hour() < LIMIT));
        assert_eq!(after_an_hour(), LIMIT);
    }
}
