//! One question to many nodes, and the answers in the order in which they come.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::backend::Reply;
use crate::caller_driven::blocking;
use crate::error::Result;
use crate::wakeups::unpoisoned;

/// Requests to several nodes that are under way.
///
/// Whoever waits polls them all: every connection does its I/O in the task that waits for it. What is
/// left when a question is decided is handed to a task of its own, which waits for it in turn.
pub(crate) struct Fanout<T> {
    pending: Vec<(usize, Reply<T>)>,
    ready: VecDeque<(usize, Result<T>)>,
    limits: Arc<Limits>,
    deadline: Instant,
    place: Option<u64>,
    waited_longer: bool,
}

impl<T> Fanout<T> {
    /// Nothing leaves before the first poll; then everything leaves at once.
    pub(crate) fn new(limits: &Arc<Limits>, requests: Vec<(usize, Reply<T>)>) -> Self {
        let deadline = Instant::now() + limits.limit;
        Self {
            pending: requests,
            ready: VecDeque::new(),
            limits: Arc::clone(limits),
            deadline,
            place: None,
            waited_longer: false,
        }
    }

    /// Returns the next node's answer; `None` when all have answered or the time of one request is over.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<T>)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T>)>> {
        if let Some(first) = self.ready.pop_front() {
            return Poll::Ready(Some(first));
        }
        blocking::impatient(|| {
            self.pending.retain_mut(|(node, request)| match request.as_mut().poll(context) {
                Poll::Ready(answer) => {
                    self.ready.push_back((*node, answer));
                    false
                }
                Poll::Pending => true,
            });
        });
        if let Some(first) = self.ready.pop_front() {
            return Poll::Ready(Some(first));
        }
        if self.pending.is_empty() || Instant::now() >= self.deadline {
            return Poll::Ready(None);
        }
        self.limits.wake_at(&mut self.place, self.deadline, context.waker());
        Poll::Pending
    }

    /// Goes on waiting, once, because those that are late are needed. Says whether it does.
    pub(crate) fn wait_longer(&mut self, by: Duration) -> bool {
        if self.pending.is_empty() || std::mem::replace(&mut self.waited_longer, true) {
            return false;
        }
        self.prolong(by);
        true
    }

    /// Goes on waiting for as long as this, for what is late.
    pub(crate) fn prolong(&mut self, by: Duration) {
        self.leave();
        self.deadline = Instant::now() + by;
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            unpoisoned(&self.limits.waiting).wakers.remove(&place);
        }
    }

    /// The nodes that have not answered.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending.iter().map(|(node, _)| *node)
    }

    /// Takes what has not been answered, to wait for it once more.
    pub(crate) fn into_pending(mut self) -> Vec<(usize, Reply<T>)> {
        std::mem::take(&mut self.pending)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.pending.is_empty() && self.ready.is_empty()
    }
}

impl<T> Drop for Fanout<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The time limit of requests to single nodes.
///
/// One tick for all of them, only while there are any: a timer for each would wake the client's thread
/// for each, which costs more than the request.
pub(crate) struct Limits {
    limit: Duration,
    runtime: Handle,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, (Instant, Waker)>,
    ticks: bool,
}

impl Limits {
    pub(crate) fn new(limit: Duration, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { limit, runtime, waiting: Mutex::default() })
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    fn wake_at(self: &Arc<Self>, place: &mut Option<u64>, deadline: Instant, waker: &Waker) {
        let mut waiting = unpoisoned(&self.waiting);
        match place.and_then(|place| waiting.wakers.get_mut(&place)) {
            Some((_, known)) => known.clone_from(waker),
            None => {
                waiting.next += 1;
                let number = waiting.next;
                waiting.wakers.insert(number, (deadline, waker.clone()));
                *place = Some(number);
            }
        }
        if !std::mem::replace(&mut waiting.ticks, true) {
            drop(waiting);
            self.runtime.spawn(tick(Arc::clone(self)));
        }
    }

    /// Wakes those whose time is over. Returns whether anybody waits.
    fn wake_late(&self) -> bool {
        let now = Instant::now();
        let mut waiting = unpoisoned(&self.waiting);
        let mut late = Vec::new();
        waiting.wakers.retain(|_, (deadline, waker)| {
            let is_late = *deadline <= now;
            if is_late {
                late.push(waker.clone());
            }
            !is_late
        });
        let anybody = !waiting.wakers.is_empty() || !late.is_empty();
        drop(waiting);
        late.into_iter().for_each(Waker::wake);
        anybody
    }
}

async fn tick(limits: Arc<Limits>) {
    /// After so many ticks without anybody the ticking ends.
    const IDLE: u32 = 50;
    let every = (limits.limit / 4).clamp(Duration::from_millis(2), Duration::from_millis(50));
    let mut idle = 0;
    loop {
        tokio::time::sleep(every).await;
        idle = if limits.wake_late() { 0 } else { idle + 1 };
        if idle > IDLE {
            let mut waiting = unpoisoned(&limits.waiting);
            if waiting.wakers.is_empty() {
                waiting.ticks = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    fn limits(runtime: &tokio::runtime::Runtime) -> Arc<Limits> {
        Limits::new(Duration::from_millis(20), runtime.handle().clone())
    }

    #[test]
    fn answers_come_as_they_are_and_silence_ends_with_the_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limits = limits(&runtime);
        let failed = || Err(Error::new(ErrorKind::BackendUnavailable, "refused"));
        let requests: Vec<(usize, Reply<u32>)> = vec![
            (0, Box::pin(std::future::pending())),
            (1, Box::pin(std::future::ready(Ok(7)))),
            (2, Box::pin(std::future::ready(failed()))),
        ];
        runtime.block_on(async {
            let mut fanout = Fanout::new(&limits, requests);
            assert_eq!(fanout.next().await.unwrap().1.unwrap(), 7);
            assert!(fanout.next().await.unwrap().1.is_err());
            assert!(!fanout.is_finished());
            assert!(fanout.next().await.is_none());
            assert_eq!(fanout.unanswered().collect::<Vec<_>>(), [0]);
        });
        assert!(unpoisoned(&limits.waiting).wakers.is_empty());
    }
}
