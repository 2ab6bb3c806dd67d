//! Calls that a host's own event loop carries out.
//!
//! The usual way runs every call on a thread of its own and sends the result back: two wake-ups of a
//! thread for each. Here the loop's thread polls the call itself when it is made, so the request has
//! left before the call returns, and again when the loop is told that there is something to do: one
//! wake-up, and none for what can be answered at once. Where a loop can watch a descriptor, answers
//! come in on the loop's own thread, too ([`HostLoop::watched`]).

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(target_os = "linux")]
use crate::event_queue::EventQueue;
use crate::failure::Failure;
use crate::places::{Placed, Places};

/// How many polls one turn makes at most, so that the loop gets to its other work.
const POLLS_PER_TURN: usize = 1_024;

/// Stands for no number among the calls under way.
const NOWHERE: usize = usize::MAX;

/// The calls of one event loop. `D` is what the host needs to deliver a result.
///
/// Every method is called on the loop's thread; the notification comes from any thread. Dropping it
/// ends the calls that are under way, as [`UnderWay::cancel`] does.
pub struct HostLoop<D: Send + 'static> {
    woken: Arc<Woken<D>>,
    #[cfg(target_os = "linux")]
    queue: Option<EventQueue>,
}

struct Woken<D> {
    calls: Mutex<VecDeque<Arc<Running<D>>>>,
    under_way: Mutex<Numbered<Weak<Running<D>>>>,
    places: Mutex<Places>,
    /// The loop was told, and has not looked since.
    told: AtomicBool,
    /// See [`HostLoop::is_due`].
    due: AtomicBool,
    notify: Box<dyn Fn() + Send + Sync>,
}

struct Running<D> {
    /// Its number among those under way.
    number: AtomicUsize,
    call: Mutex<Option<Placed<D>>>,
    /// Stands among the woken.
    queued: AtomicBool,
    woken: Arc<Woken<D>>,
}

/// What came of the first poll of a call.
#[derive(Debug)]
pub enum Started<D> {
    /// It is done.
    Done(D),
    /// It goes on; the result comes from [`HostLoop::turn`].
    UnderWay(UnderWay<D>),
}

/// A call that waits for something. Dropping this does nothing.
pub struct UnderWay<D>(Arc<Running<D>>);

impl<D: Send + 'static> fmt::Debug for HostLoop<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLoop").field("told", &self.woken.told).finish_non_exhaustive()
    }
}

impl<D> fmt::Debug for UnderWay<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").finish_non_exhaustive()
    }
}

impl<D: Send + 'static> HostLoop<D> {
    /// Makes a loop's side. `notify` makes the loop call [`HostLoop::turn`] soon; it is called on any
    /// thread, must not block and must not wait for an interpreter lock.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            woken: Arc::new(Woken {
                calls: Mutex::default(),
                under_way: Mutex::default(),
                places: Mutex::default(),
                told: AtomicBool::new(false),
                due: AtomicBool::new(false),
                notify: Box::new(notify),
            }),
            #[cfg(target_os = "linux")]
            queue: None,
        }
    }

    /// Makes the side of a loop that can watch a descriptor: [`HostLoop::descriptor`], if there is one.
    /// Besides being notified, it then calls [`HostLoop::turn`] whenever that is readable.
    pub fn watched(notify: impl Fn() + Send + Sync + 'static) -> Self {
        #[allow(unused_mut, reason = "only where there are such descriptors")]
        let mut host_loop = Self::new(notify);
        #[cfg(target_os = "linux")]
        {
            host_loop.queue = EventQueue::new();
        }
        host_loop
    }

    /// What the loop has to watch: open as long as this value lives. `None` where the system cannot do
    /// it, and then notifications tell everything.
    pub fn descriptor(&self) -> Option<i32> {
        #[cfg(target_os = "linux")]
        return self.queue.as_ref().map(EventQueue::descriptor);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Starts a call and polls it once. `finish` makes of its output, or of its panic, what the host
    /// needs; it is called on the loop's thread.
    ///
    /// For what a call that goes on has woken, itself included, nobody is notified: ask
    /// [`HostLoop::is_due`] then.
    pub fn start<T: 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        finish: impl FnOnce(Result<T, Failure>) -> D + Send + 'static,
    ) -> Started<D> {
        let place = unpoisoned(&self.woken.places).place(call, finish);
        let running = Arc::new(Running {
            number: AtomicUsize::new(NOWHERE),
            call: Mutex::new(Some(place)),
            queued: AtomicBool::new(false),
            woken: Arc::clone(&self.woken),
        });
        let told_before = self.woken.told.swap(true, Ordering::SeqCst);
        let first = self.poll(&running);
        let due = !told_before && !self.woken.rest();
        match first {
            Some(done) => {
                // A call that is done at once may have woken another.
                if due {
                    (self.woken.notify)();
                }
                Started::Done(done)
            }
            None => {
                if due {
                    self.woken.due.store(true, Ordering::Relaxed);
                }
                let number = unpoisoned(&self.woken.under_way).add(Arc::downgrade(&running));
                running.number.store(number, Ordering::Relaxed);
                Started::UnderWay(UnderWay(running))
            }
        }
    }

    /// Says, once, that a start has left something to do for [`HostLoop::turn`]. The host sees to that turn
    /// itself, best when everything that it starts now is started.
    pub fn is_due(&self) -> bool {
        self.woken.due.swap(false, Ordering::Relaxed)
    }

    /// Polls the calls that were woken, and hands over what is done.
    pub fn turn(&self, mut done: impl FnMut(D)) {
        // Whatever is woken until the end of the turn is looked at in it, so nobody need be told.
        self.woken.told.store(true, Ordering::SeqCst);
        #[cfg(target_os = "linux")]
        if let Some(queue) = &self.queue {
            queue.turn();
        }
        for _ in 0..POLLS_PER_TURN {
            let Some(running) = self.woken.next_or_rest() else { return };
            // Before the poll, so that a wake-up during the poll counts.
            running.queued.store(false, Ordering::SeqCst);
            if let Some(output) = self.poll(&running) {
                running.leave();
                done(output);
            }
        }
        (self.woken.notify)();
    }

    fn poll(&self, running: &Arc<Running<D>>) -> Option<D> {
        // The sockets that this call opens belong to the loop.
        #[cfg(target_os = "linux")]
        let _context = self.queue.as_ref().and_then(EventQueue::enter);
        running.poll()
    }
}

impl<D: Send + 'static> Drop for HostLoop<D> {
    fn drop(&mut self) {
        // A call and what it waits for hold each other, so nothing else would end them.
        let calls = std::mem::take(&mut *unpoisoned(&self.woken.under_way));
        for running in calls.into_iter().filter_map(|running| running.upgrade()) {
            running.end();
        }
        // Those that were woken and not looked at stand here, and hold what they stand in.
        let woken = std::mem::take(&mut *unpoisoned(&self.woken.calls));
        drop(woken);
    }
}

impl<D> Running<D> {
    fn end(&self) {
        let call = unpoisoned(&self.call).take();
        if let Some(call) = call {
            self.put_away(call);
        }
    }

    /// Drops the call, and keeps its place for the next.
    fn put_away(&self, mut call: Placed<D>) {
        call.as_mut().end();
        call.put_away(&mut unpoisoned(&self.woken.places));
    }

    /// Leaves those under way.
    fn leave(&self) {
        let number = self.number.swap(NOWHERE, Ordering::Relaxed);
        if number != NOWHERE {
            unpoisoned(&self.woken.under_way).remove(number);
        }
    }
}

impl<D> Woken<D> {
    fn tell(&self) {
        if !self.told.swap(true, Ordering::SeqCst) {
            (self.notify)();
        }
    }

    /// The next call that was woken. If there is none, the loop has to be told of the next one.
    fn next_or_rest(&self) -> Option<Arc<Running<D>>> {
        let mut calls = unpoisoned(&self.calls);
        let next = calls.pop_front();
        if next.is_none() {
            // Under the lock: a call that is woken now finds it so when it has been put in.
            self.told.store(false, Ordering::SeqCst);
        }
        next
    }

    /// From now on the loop has to be told, unless something was woken already; says which.
    fn rest(&self) -> bool {
        let calls = unpoisoned(&self.calls);
        let nothing = calls.is_empty();
        if nothing {
            // Under the lock, as above.
            self.told.store(false, Ordering::SeqCst);
        }
        nothing
    }
}

impl<D: Send + 'static> Running<D> {
    fn poll(self: &Arc<Self>) -> Option<D> {
        let waker = Waker::from(Arc::clone(self));
        let mut place = unpoisoned(&self.call);
        let call = place.as_mut()?;
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                let finished = place.take();
                drop(place);
                if let Some(finished) = finished {
                    self.put_away(finished);
                }
                Some(output)
            }
        }
    }
}

impl<D: Send + 'static> Wake for Running<D> {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let woken = Arc::clone(&self.woken);
            unpoisoned(&woken.calls).push_back(self);
            woken.tell();
        }
    }
}

impl<D> UnderWay<D> {
    /// Ends the call without a result: it is dropped, which undoes what it may have done. Does
    /// nothing if it is done.
    pub fn cancel(&self) {
        self.0.leave();
        self.0.end();
    }
}

/// Values by small numbers that are given again.
struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    fn add(&mut self, value: T) -> usize {
        if let Some(number) = self.free.pop() {
            self.values[number] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    fn remove(&mut self, number: usize) {
        if self.values.get_mut(number).and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }

    fn into_iter(self) -> impl Iterator<Item = T> {
        self.values.into_iter().flatten()
    }
}

/// Every critical section here is one assignment or one queue operation, or a poll after whose panic
/// nobody polls again.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use polylatch::{Guard, Polylatch, Result};

    use super::*;

    fn connect(url: &str) -> Polylatch {
        crate::run_interruptible(Polylatch::connect(url), || Ok::<(), ()>(())).unwrap().unwrap()
    }

    fn loop_of() -> (HostLoop<Result<Guard>>, mpsc::Receiver<()>) {
        let (tell, told) = mpsc::channel();
        let notify = move || {
            let _ = tell.send(());
        };
        (HostLoop::new(notify), told)
    }

    fn start(host_loop: &HostLoop<Result<Guard>>, lock: polylatch::Lock) -> Started<Result<Guard>> {
        host_loop.start(async move { lock.acquire().await }, |done| done.expect("no panic"))
    }

    #[test]
    fn what_can_be_answered_at_once_is_done_by_the_first_poll() {
        let client = connect("memory:");
        let (host_loop, told) = loop_of();
        let Started::Done(guard) = start(&host_loop, client.lock("a")) else {
            panic!("memory answers at once");
        };
        drop(guard);
        drop(host_loop);
        assert!(told.recv_timeout(Duration::from_secs(30)).is_err(), "nobody was told");
    }

    #[test]
    fn a_waiting_call_tells_the_loop_when_there_is_something_to_do() {
        let client = connect("memory:");
        let (host_loop, told) = loop_of();
        let Started::Done(Ok(held)) = start(&host_loop, client.lock("a")) else {
            panic!("it is free");
        };
        let Started::UnderWay(waiting) = start(&host_loop, client.lock("a")) else {
            panic!("it is held");
        };
        drop(held);
        let mut guard = None;
        while guard.is_none() {
            told.recv_timeout(Duration::from_secs(30)).expect("the release is told");
            host_loop.turn(|done| guard = Some(done.unwrap()));
        }
        waiting.cancel();
        assert!(guard.unwrap().is_held());
    }

    /// Pending once, and woken by then.
    async fn once_more() {
        let mut is_first = true;
        std::future::poll_fn(|context| {
            if !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn of_what_a_start_has_woken_the_host_is_told_when_it_asks() {
        let (tell, told) = mpsc::channel();
        let host_loop = HostLoop::new(move || tell.send(()).unwrap());
        let Started::UnderWay(_call) = host_loop.start(once_more(), |done| done.is_ok()) else {
            panic!("it waits");
        };
        assert!(host_loop.is_due());
        assert!(!host_loop.is_due(), "it is said once");
        let mut done = Vec::new();
        host_loop.turn(|ended| done.push(ended));
        assert_eq!(done, [true]);
        assert!(told.try_recv().is_err(), "nobody else was told");
    }

    #[test]
    fn a_loop_that_ends_with_woken_calls_keeps_nothing() {
        let kept = Arc::new(());
        let notify = Arc::clone(&kept);
        let host_loop = HostLoop::new(move || drop(Arc::clone(&notify)));
        let in_call = Arc::clone(&kept);
        let call = async move {
            once_more().await;
            drop(in_call);
        };
        let Started::UnderWay(under_way) = host_loop.start(call, |done| done.is_ok()) else {
            panic!("it waits")
        };
        drop(under_way);
        drop(host_loop);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn a_cancelled_call_leaves_nothing_behind() {
        let client = connect("memory:");
        let (host_loop, _told) = loop_of();
        let Started::Done(Ok(held)) = start(&host_loop, client.lock("a")) else {
            panic!("it is free");
        };
        let Started::UnderWay(waiting) = start(&host_loop, client.lock("a")) else {
            panic!("it is held");
        };
        waiting.cancel();
        drop(held);
        host_loop.turn(|_| panic!("a cancelled call has no result"));
        let wait = Duration::from_secs(30);
        let next = client.lock("a").wait(wait);
        let guard = crate::run_interruptible(next.acquire(), || Ok::<(), ()>(())).unwrap().unwrap();
        let Started::UnderWay(_) = start(&host_loop, client.lock("a")) else {
            panic!("it is held");
        };
        drop(host_loop);
        drop(guard);
        let guard = crate::run_interruptible(next.acquire(), || Ok::<(), ()>(())).unwrap().unwrap();
        assert!(guard.is_held(), "the loop took its calls with it");
    }
}
