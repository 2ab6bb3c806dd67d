//! Looks after nodes that are down, hung or closed, in the background, until all of them vote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OnceCell};

use super::backend::Inner;
use super::gate::{Look, now};
use crate::backend::Reply;
use crate::backend::redlock::release::Departure;
use crate::backend::redlock::transport::node::Node;
use crate::clock::BootInstant;
use crate::error::Result;
use crate::policy::admission::{Opening, Standing, openable, stepped};
use crate::policy::backoff::Backoff;
use crate::wakeups::unpoisoned;

/// A connection to a node that was silent for this long is given up for another one.
const GIVE_UP_CONNECTION: Duration = Duration::from_secs(3);

/// So many releases are kept for nodes that are away; beyond that their leases run out.
const MOST_OWED: usize = 4096;

/// How long care sleeps at most while a node does not vote: a node may be opened by others, or come back, at any moment.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What the background remembers.
#[derive(Default)]
pub(crate) struct Care {
    /// Whether it goes on at present.
    runs: AtomicBool,
    /// Wakes it while it sleeps because all nodes vote.
    calls: Arc<Notify>,
    /// Done once this client takes locks.
    joining: OnceCell<()>,
    /// Releases that did not reach a node.
    owed: Mutex<Vec<(usize, Departure)>>,
}

impl Inner {
    /// Starts looking after the nodes, unless that goes on already.
    pub(super) fn care(self: &Arc<Self>) {
        self.care.calls.notify_one();
        if self.care.runs.swap(true, Ordering::SeqCst) || self.closed.load(Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        let seed = self.seed();
        let calls = Arc::clone(&self.care.calls);
        self.runtime.spawn(async move {
            let backoff = || Backoff::new(Duration::from_millis(50), AT_LEAST_EVERY, seed);
            let (mut pauses, mut is_well) = (backoff(), false);
            loop {
                let Some(inner) = weak.upgrade() else { return };
                if inner.closed.load(Ordering::SeqCst) {
                    return;
                }
                inner.look_after(is_well).await;
                is_well = inner.all_vote();
                if is_well && !inner.shape.has_joined() {
                    inner.care.runs.store(false, Ordering::SeqCst);
                    // Another task may have asked for care since the look.
                    if inner.all_vote() || inner.care.runs.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
                if is_well {
                    pauses = backoff();
                    let pause = inner.look_every();
                    drop(inner);
                    let _ = tokio::time::timeout(pause, calls.notified()).await;
                } else {
                    let pause = inner.ripe_in().unwrap_or(AT_LEAST_EVERY).min(pauses.delay());
                    drop(inner);
                    tokio::time::sleep(pause.max(Duration::from_millis(5))).await;
                }
            }
        });
    }

    /// A client that takes locks looks at nodes that are well, too: their clocks may step.
    fn look_every(&self) -> Duration {
        (self.max_lease / 4).clamp(Duration::from_millis(250), Duration::from_secs(5))
    }

    fn all_vote(&self) -> bool {
        self.nodes.iter().all(|node| self.votes(node))
    }

    fn votes(&self, node: &Node) -> bool {
        matches!(node.standing(&self.shape), Standing::Voting { .. })
    }

    /// From the first lock that this client takes it takes part: it closes nodes that changed and opens those
    /// that may vote. Looking alone writes nothing.
    pub(super) async fn join(self: &Arc<Self>) {
        let join = || async {
            self.shape.joined.store(true, Ordering::SeqCst);
            if !self.all_vote() {
                self.look_at_all().await;
            }
            self.care();
        };
        self.care.joining.get_or_init(join).await;
    }

    /// Looks at all nodes, with time for a majority to answer, and opens those that may vote by now.
    pub(super) async fn look_at_all(self: &Arc<Self>) {
        self.look_at(&self.nodes, true).await;
        self.settle_clocks().await;
        self.open_what_may_vote().await;
    }

    /// Looks at the nodes that need it (or at all of them), and opens those that may vote by now.
    async fn look_after(self: &Arc<Self>, all: bool) {
        let needy: Vec<_> = self.nodes.iter().filter(|node| all || !self.votes(node)).cloned().collect();
        self.look_at(&needy, false).await;
        self.settle_clocks().await;
        self.open_what_may_vote().await;
    }

    /// Closes the nodes whose clocks have stepped, unless it is this client's own clock that did.
    async fn settle_clocks(self: &Arc<Self>) {
        let moved = || -> Vec<_> { self.nodes.iter().map(|node| node.moved()).collect() };
        if !moved().into_iter().flatten().any(|by| by != 0) {
            return;
        }
        // The others tell whether it is this client's clock.
        self.look_at(&self.nodes, false).await;
        let moved = moved();
        let stepped = stepped(self.quorum, &moved);
        for ((node, by), stepped) in self.nodes.iter().zip(moved).zip(stepped) {
            let (Some(by), Some(look)) = (by.filter(|by| *by != 0), node.looked()) else { continue };
            if stepped {
                if !self.shape.has_joined() {
                    continue;
                }
                tracing::warn!(node = node.place, by_ms = by, "the node's clock stepped; it is quarantined");
                if !self.close(node, look.gate).await {
                    continue;
                }
            }
            node.trust_clock();
        }
    }

    /// Closes a node behind this gate. On this client's runtime: the caller's thread may have none.
    async fn close(self: &Arc<Self>, node: &Arc<Node>, gate: String) -> bool {
        let (shape, node, limit) = (Arc::clone(&self.shape), Arc::clone(node), self.timeout);
        let closing = self.runtime.spawn(async move {
            let look = tokio::time::timeout(limit, node.look(&shape, &gate)).await;
            matches!(look, Ok(Ok(_)))
        });
        closing.await.unwrap_or(false)
    }

    async fn open_what_may_vote(self: &Arc<Self>) {
        let begun = now();
        if !self.shape.has_joined() || self.opening(None).is_none() {
            return;
        }
        // Their counters have grown since they were looked at, and what was drawn until now counts.
        let voting: Vec<_> = self.nodes.iter().filter(|node| self.votes(node)).cloned().collect();
        self.look_at(&voting, false).await;
        let Some(opening) = self.opening(Some(begun)) else { return };
        let opening = Arc::new(opening);
        let requests = opening.nodes.iter().map(|at| {
            let (node, shape) = (Arc::clone(&self.nodes[*at]), Arc::clone(&self.shape));
            let opening = Arc::clone(&opening);
            let open: Reply<bool> = Box::pin(async move { node.open(&shape, &opening).await });
            (*at, open)
        });
        let mut answers = self.ask(requests.collect());
        while let Some((at, answer)) = answers.next().await {
            let (place, counter) = (&self.nodes[at].place, opening.counter);
            match answer {
                Ok(true) => {
                    tracing::info!(node = place, counter, floored = opening.floored, "the node votes")
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(node = place, %error, "the node could not be opened"),
            }
        }
        self.settle_late(answers, |_, _, _| {});
    }

    /// What may be opened; with a time, only counters that were read after it count.
    fn opening(&self, since: Option<BootInstant>) -> Option<Opening> {
        let standings = self.nodes.iter().map(|node| match node.standing(&self.shape) {
            Standing::Voting { .. }
                if since.is_some_and(|since| node.looked().is_none_or(|look| look.clock.sent < since)) =>
            {
                Standing::Unknown
            }
            standing => standing,
        });
        openable(self.quorum, &standings.collect::<Vec<_>>(), self.shape.terms())
    }

    /// Asks these nodes, and waits a moment for their answers; `patiently` for as long as a connection may
    /// take to come up. What takes longer goes on.
    async fn look_at(self: &Arc<Self>, nodes: &[Arc<Node>], patiently: bool) {
        let mut left = nodes.to_vec();
        // One that another task looks at is looked at once more: that look may have begun long ago.
        for _ in 0..2 {
            let (mine, busy): (Vec<_>, Vec<_>) = left.into_iter().partition(|node| node.begin_look());
            let looks = mine.iter().map(|node| self.begin_to_look_at(node)).collect();
            let enough = if patiently { self.quorum.needed() } else { 0 };
            self.until_enough(looks, nodes, enough).await;
            left = busy;
            if left.is_empty() {
                return;
            }
        }
    }

    fn begin_to_look_at(self: &Arc<Self>, node: &Arc<Node>) -> tokio::task::JoinHandle<()> {
        let (inner, node, limit) = (Arc::clone(self), Arc::clone(node), self.timeout);
        self.runtime.spawn(async move {
            let look = tokio::time::timeout(limit, node.look(&inner.shape, "")).await;
            inner.looked(&node, limit, look.ok());
            node.end_look();
        })
    }

    /// Waits for all tasks, but not long for those that are left when enough have ended well.
    async fn until_enough(
        &self,
        mut tasks: Vec<tokio::task::JoinHandle<()>>,
        nodes: &[Arc<Node>],
        enough: usize,
    ) {
        let mut grace: Option<Instant> = None;
        // Some may be looked at by another task.
        let goes_on = |tasks: &[_]| !tasks.is_empty() || nodes.iter().any(|node| node.is_looked_at());
        while goes_on(&tasks) {
            tasks.retain(|task| !task.is_finished());
            let well = self.nodes.iter().filter(|node| node.looked().is_some() && !node.is_suspect()).count();
            if well >= enough {
                let until = *grace.get_or_insert_with(|| Instant::now() + self.limits.limit() * 2);
                if Instant::now() >= until {
                    return;
                }
            }
            if goes_on(&tasks) {
                let pause = {
                    let _context = self.runtime.enter();
                    tokio::time::sleep(Duration::from_millis(1))
                };
                pause.await;
            }
        }
    }

    fn looked(self: &Arc<Self>, node: &Node, limit: Duration, look: Option<Result<Look>>) {
        match look {
            Some(Ok(look)) => {
                unpoisoned(&self.acquisitions.proposals).learn(look.counter);
                if let Some(at) = self.nodes.iter().position(|other| other.place == node.place) {
                    self.settle_debts(at);
                    self.widen_to(at);
                }
            }
            Some(Err(error)) => tracing::debug!(node = node.place, %error, "the node does not answer"),
            None => {
                node.was_silent(limit);
                if node.suspect_for().is_some_and(|silent| silent > GIVE_UP_CONNECTION) {
                    // A cut cable never ends a connection by itself.
                    let begun_anew = node.reconnect().map(|()| self.listen_again(node));
                    if let Err(error) = begun_anew {
                        tracing::warn!(node = node.place, %error, "no new connection");
                    }
                }
            }
        }
    }

    /// Sends once more the releases that did not reach this node.
    fn settle_debts(self: &Arc<Self>, at: usize) {
        let now = Instant::now();
        let owed: Vec<_> = {
            let mut all = unpoisoned(&self.care.owed);
            all.retain(|(_, departure)| departure.until > now);
            all.extract_if(.., |(of, _)| *of == at).collect()
        };
        for (at, departure) in owed {
            self.depart_from(at, departure);
        }
    }

    /// Notes a release that did not reach a node.
    pub(super) fn owes(&self, at: usize, departure: Departure) {
        let mut owed = unpoisoned(&self.care.owed);
        if owed.len() < MOST_OWED {
            owed.push((at, departure));
        }
    }

    pub(super) fn standings(&self) -> Vec<Standing> {
        self.nodes.iter().map(|node| node.standing(&self.shape)).collect()
    }

    pub(super) fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| self.votes(node)).count()
    }

    /// When the next closed node may be opened.
    fn ripe_in(&self) -> Option<Duration> {
        let left = self.standings().into_iter().filter_map(|standing| match standing {
            Standing::Closed { left, .. } => Some(left),
            _ => None,
        });
        left.min()
    }

    /// How long until enough nodes can vote, as far as that depends on time.
    pub(super) fn withheld_for(&self) -> Duration {
        let standings = self.standings();
        let voting = standings.iter().filter(|one| matches!(one, Standing::Voting { .. })).count();
        let mut left: Vec<_> = standings
            .into_iter()
            .filter_map(|standing| match standing {
                Standing::Closed { left, .. } => Some(left),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        let missing = self.quorum.needed().saturating_sub(voting).saturating_sub(1);
        left.get(missing).copied().unwrap_or(AT_LEAST_EVERY)
    }
}
