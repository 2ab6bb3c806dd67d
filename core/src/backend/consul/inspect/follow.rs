//! Following the servers: one request, which they answer when something is written, stands for all snapshots
//! in which nothing was.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::backend::consul::backend::Inner;
use crate::clock::Instant;
use crate::clock::wall_ms;
use crate::error::Result;
use crate::snapshot::{Followed, Query, WHOLE_EVERY};
use crate::wakeups::unpoisoned;

/// How long one request waits for a change. As long, and one request's time limit more, an agent that hangs
/// may seem to have nothing new.
const WAIT: Duration = Duration::from_secs(2);

/// Pause after a request that failed, or did not wait.
const PAUSE: Duration = Duration::from_millis(500);

/// Requests that wait for the next change, one after the other, until this is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    heard: Arc<Heard>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Heard {
    /// Up to where the keys below the prefix are known not to have changed; `None` if that is not known.
    index: Mutex<Option<u64>>,
    /// Somebody looked at the present index: so a store that changes all the time is not asked all the time.
    looked: Notify,
}

impl Following {
    fn start(inner: &Arc<Inner>) -> Self {
        let heard = Arc::<Heard>::default();
        let task = inner.runtime.spawn(listen(Arc::clone(inner), Arc::clone(&heard))).abort_handle();
        Self { heard, task }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(inner: Arc<Inner>, heard: Arc<Heard>) {
    // Only the names of folders come back, and only the index is of interest.
    let path = format!("/v1/kv/{}", inner.keys.all());
    let mut index = 0;
    while !inner.is_closed() {
        let query = format!("keys&separator=/&consistent&index={index}&wait={}ms", WAIT.as_millis());
        // The server adds up to a sixteenth to the wait (Consul, "Blocking Queries").
        let limit = WAIT + WAIT / 8 + inner.api.timeout;
        let asked = Instant::now();
        let answer = inner.api.ask("GET", &path, &query, Vec::new(), limit).await;
        let now =
            answer.ok().filter(|answer| matches!(answer.status, 200 | 404)).and_then(|answer| answer.index);
        let now = now.filter(|index| *index > 0);
        *unpoisoned(&heard.index) = now;
        match now {
            // It is read anew, and whoever reads tells what is wrong.
            None => {
                index = 0;
                tokio::time::sleep(PAUSE).await;
            }
            // One that does not let requests wait is not to be asked all the time.
            Some(now) if now == index && asked.elapsed() < PAUSE => tokio::time::sleep(PAUSE).await,
            Some(now) if now == index => {}
            Some(now) => {
                // One that goes back is from another history; both are a change.
                index = now;
                heard.looked.notified().await;
            }
        }
    }
}

/// What a snapshot leaves for the next.
struct Kept {
    /// Up to where the keys were known not to have changed, if that was known.
    index: Option<u64>,
    /// When all of it was last read.
    whole_at: Instant,
    /// What waits for the next change.
    following: Option<Arc<Following>>,
}

impl Inner {
    /// As `snapshot`, but reads only if something was written below the prefix since the snapshot before.
    pub(crate) async fn follow(self: Arc<Self>, query: Query, before: Option<Followed>) -> Result<Followed> {
        let started = Instant::now();
        // Keys that stand elsewhere are not listened to.
        let listens = self.keys.locks_elsewhere().is_none();
        let before = before.as_ref().and_then(|before| Some((&before.snapshot, before.kept::<Kept>()?)));
        let known = before.and_then(|(_, kept)| kept.following.clone());
        let following = listens.then(|| known.unwrap_or_else(|| Arc::new(Following::start(&self))));
        // Before the reading: what is written meanwhile is found by the next look.
        let index = following.as_ref().and_then(|following| *unpoisoned(&following.heard.index));
        if let Some(following) = &following {
            following.heard.looked.notify_one();
        }
        let same = before
            .filter(|(_, kept)| {
                index.is_some() && kept.index == index && kept.whole_at.elapsed() < WHOLE_EVERY
            })
            .and_then(|(before, kept)| {
                // How long a lock-delay lasts is known here alone.
                let counts_down = before.locks.iter().any(|lock| {
                    lock.holders.is_empty() && lock.details.iter().any(|detail| detail.name == "lock-delay")
                });
                let passed_ms = wall_ms().checked_sub(before.taken_at_ms).filter(|_| !counts_down)?;
                let mut same = before.older(passed_ms)?;
                // The request that waits for a change is counted with the reading that follows it.
                same.requests = 0;
                Some((same, kept.whole_at))
            });
        let (mut snapshot, whole_at) = match same {
            Some(same) => same,
            None => {
                let mut read = Arc::clone(&self).snapshot(&query).await?;
                read.requests += 1;
                (read, started)
            }
        };
        snapshot.round_trip = started.elapsed();
        Ok(Followed::keeping(snapshot, Kept { index, whole_at, following }))
    }
}
