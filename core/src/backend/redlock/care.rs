//! Looks after nodes that are down, hung or closed, in the background, until all of them vote.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Inner;
use super::node::Node;
use crate::backend::Reply;
use crate::error::{ErrorKind, Result};
use crate::policy::admission::{Standing, openable};
use crate::policy::backoff::Backoff;
use crate::wakeups::unpoisoned;

/// A connection to a node that was silent for this long is given up for another one.
const GIVE_UP_CONNECTION: Duration = Duration::from_secs(3);

/// How long care sleeps at most: a node may be opened by others, or come back, at any moment.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl Inner {
    /// Starts looking after the nodes, unless that goes on already.
    pub(super) fn care(self: &Arc<Self>) {
        if self.cares.swap(true, Ordering::SeqCst) || self.closed.load(Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        let seed = self.seed();
        self.runtime.spawn(async move {
            let mut backoff = Backoff::new(Duration::from_millis(50), AT_LEAST_EVERY, seed);
            loop {
                let Some(inner) = weak.upgrade() else { return };
                if inner.closed.load(Ordering::SeqCst) {
                    return;
                }
                inner.look_at_all(false).await;
                if inner.nodes.iter().all(|node| node.unfit().is_some() || votes(node)) {
                    inner.cares.store(false, Ordering::SeqCst);
                    // Somebody may have asked for care since the look.
                    if inner.nodes.iter().all(|node| node.unfit().is_some() || votes(node)) {
                        return;
                    }
                    if inner.cares.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
                let pause = inner.ripe_in().unwrap_or(AT_LEAST_EVERY).min(backoff.delay());
                drop(inner);
                tokio::time::sleep(pause.max(Duration::from_millis(5))).await;
            }
        });
    }

    /// Looks at the nodes that need it (or at all of them), and opens those that may vote by now.
    pub(super) async fn look_at_all(self: &Arc<Self>, patiently: bool) {
        let needy = |node: &&Arc<Node>| node.unfit().is_none() && (patiently || !votes(node));
        let looked_at: Vec<_> = self.nodes.iter().filter(needy).cloned().collect();
        self.look_at(&looked_at, patiently).await;
        let closed = |standing: &Standing| matches!(standing, Standing::Closed { .. });
        if !self.standings().iter().any(closed) {
            return;
        }
        if !patiently && self.opening().is_some() {
            // Their counters have grown since they were looked at.
            let voting: Vec<_> = self.nodes.iter().filter(|node| votes(node)).cloned().collect();
            self.look_at(&voting, false).await;
        }
        let Some((counter, which)) = self.opening() else { return };
        let requests = which.into_iter().map(|at| {
            let (node, shape) = (Arc::clone(&self.nodes[at]), Arc::clone(&self.shape));
            let open: Reply<bool> = Box::pin(async move { node.open(&shape, counter).await });
            (at, open)
        });
        let mut opening = self.ask(requests.collect());
        while let Some((at, answer)) = opening.next().await {
            match answer {
                Ok(true) => tracing::info!(node = self.nodes[at].place, counter, "the node votes"),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(node = self.nodes[at].place, %error, "the node could not be opened")
                }
            }
        }
    }

    fn opening(&self) -> Option<(u64, Vec<usize>)> {
        openable(self.quorum, &self.standings(), self.shape.strict)
    }

    /// Asks these nodes, and waits a moment for their answers; `patiently` for as long as a connection may
    /// take to come up. What takes longer goes on.
    async fn look_at(self: &Arc<Self>, nodes: &[Arc<Node>], patiently: bool) {
        let limit = self.timeout;
        let looks = nodes.iter().filter(|node| node.begin_look()).map(|node| {
            let inner = Arc::clone(self);
            let node = Arc::clone(node);
            self.runtime.spawn(async move {
                let look = tokio::time::timeout(limit, node.look(&inner.shape)).await;
                inner.looked(&node, limit, look.ok());
                node.end_look();
            })
        });
        let enough = if patiently { self.quorum.needed() } else { 0 };
        self.until_enough(looks.collect(), enough).await;
    }

    /// Waits for all tasks, but not long for those that are left when enough have ended well.
    async fn until_enough(&self, mut tasks: Vec<tokio::task::JoinHandle<()>>, enough: usize) {
        let mut grace: Option<Instant> = None;
        while !tasks.is_empty() {
            tasks.retain(|task| !task.is_finished());
            let well = self.nodes.iter().filter(|node| node.looked().is_some() && !node.is_suspect()).count();
            if well >= enough {
                let until = *grace.get_or_insert_with(|| Instant::now() + self.limits.limit() * 2);
                if Instant::now() >= until {
                    return;
                }
            }
            if !tasks.is_empty() {
                let pause = {
                    let _context = self.runtime.enter();
                    tokio::time::sleep(Duration::from_millis(1))
                };
                pause.await;
            }
        }
    }

    fn looked(self: &Arc<Self>, node: &Node, limit: Duration, look: Option<Result<super::node::Look>>) {
        match look {
            Some(Ok(look)) => {
                unpoisoned(&self.proposals).learn(look.counter);
                let same = |other: &&Arc<Node>| {
                    other.place != node.place
                        && other.unfit().is_none()
                        && other.looked().is_some_and(|seen| seen.run_id() == look.run_id())
                };
                if let Some(other) = self.nodes.iter().find(same) {
                    node.is_unfit(
                        ErrorKind::InvalidConfig,
                        format!(
                            "{} and {} are the same server; every vote has to come from another one",
                            other.place, node.place
                        ),
                    );
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

    pub(super) fn standings(&self) -> Vec<Standing> {
        self.nodes.iter().map(|node| node.standing()).collect()
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

fn votes(node: &Arc<Node>) -> bool {
    matches!(node.standing(), Standing::Voting { .. })
}
