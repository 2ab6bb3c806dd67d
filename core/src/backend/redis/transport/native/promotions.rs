//! Follows promotions, where Sentinels name the master.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::redis::protocol::sentinels::Report;
use crate::backend::redis::transport::native::Shared;
use crate::error::Result;
use crate::policy::backoff::Backoff;
use crate::wakeups::unpoisoned;

impl Shared {
    /// Listens to every Sentinel, once there is something to lose.
    pub(crate) fn follow_promotions(self: &Arc<Self>) {
        let Some(sentinels) = self.way.sentinels() else { return };
        if self.follows.swap(true, Ordering::SeqCst) {
            return;
        }
        let looking = Arc::clone(self);
        self.until_closed(async move {
            loop {
                looking.promoted.notified().await;
                looking.look_for_the_master().await;
            }
        });
        for at in 0..sentinels.count() {
            self.until_closed(Arc::clone(self).listen_to_sentinel(at));
        }
    }

    fn until_closed(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::select! {
                () = work => {}
                () = shared.closed.notified() => {}
            }
        });
    }

    async fn listen_to_sentinel(self: Arc<Self>, at: usize) {
        let Some(sentinels) = self.way.sentinels() else { return };
        let new_backoff = || Backoff::new(Duration::from_millis(100), Duration::from_secs(2), at as u64);
        let mut backoff = new_backoff();
        loop {
            match sentinels.listen(at, || self.promoted.notify_one()).await {
                Ok(()) => backoff = new_backoff(),
                Err(error) => tracing::debug!(%error, "a Sentinel cannot be listened to; trying again"),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Gives up all connections if another server has become master: the old one may be silent, or go on.
    async fn look_for_the_master(&self) {
        let Some(sentinels) = self.way.sentinels() else { return };
        if !sentinels.has_moved().await {
            return;
        }
        let before = std::mem::take(&mut *unpoisoned(&self.present));
        tracing::info!(
            service = sentinels.service(),
            before = sentinels.place(),
            "another server is the primary now"
        );
        before.values().for_each(|connection| connection.driven.end());
        self.moved.send_modify(|times| *times += 1);
    }

    /// What each Sentinel says. Asked on the client's own runtime: the caller's may have no I/O.
    pub(crate) async fn reports(self: Arc<Self>) -> Result<Vec<Report>> {
        let runtime = self.runtime.clone();
        let asking = runtime.spawn(async move {
            match self.way.sentinels() {
                Some(sentinels) => sentinels.reports().await,
                None => Vec::new(),
            }
        });
        Ok(asking.await.unwrap_or_default())
    }
}
