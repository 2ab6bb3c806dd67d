//! Releases that the background carries out: an acquisition of the same client goes behind them, so that it does not
//! meet its own lock and queue for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime;
use tokio::sync::watch;

use crate::service::Service;
use crate::wakeups::unpoisoned;

/// Not in pages and workers.
pub(super) const GOES_BEHIND: bool = true;

/// The releases of one client that are on their way. Usually there are none, which costs one look at a number.
#[derive(Default)]
pub(super) struct Leaving {
    under_way: AtomicU64,
    by_name: Mutex<BTreeMap<String, Vec<OnItsWay>>>,
}

struct OnItsWay {
    number: u64,
    /// It has left, and the store carries it out before what this runtime asks later.
    in_turn: Option<runtime::Id>,
    /// Ends with the first answer.
    answered: watch::Receiver<()>,
}

/// One release, until the store has answered it for the first time: it may have failed, and is asked for again.
pub(super) struct Leaves {
    leaving: Arc<Leaving>,
    name: String,
    number: u64,
    _answered: watch::Sender<()>,
}

impl Leaving {
    /// Notes a release that is about to leave, or, with the runtime that it has left from, one that has left in turn.
    /// `None` in pages and workers.
    pub(super) fn begin(self: &Arc<Self>, name: &str, in_turn: Option<runtime::Id>) -> Option<Leaves> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (sender, answered) = watch::channel(());
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let mut by_name = unpoisoned(&self.by_name);
        by_name.entry(name.to_owned()).or_default().push(OnItsWay { number, in_turn, answered });
        drop(by_name);
        Some(Leaves { leaving: Arc::clone(self), name: name.to_owned(), number, _answered: sender })
    }

    /// Completes when the releases of this name that have begun before were answered; `None` if a request that is made
    /// here and now need not wait for any.
    pub(super) fn behind(
        &self,
        name: &str,
        service: &Service,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.under_way.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let by_name = unpoisoned(&self.by_name);
        let releases = by_name.get(name)?;
        let here = Some(service.runtime_here());
        let overtaken = releases.iter().filter(|release| release.in_turn != here);
        let before: Vec<_> = overtaken.map(|release| release.answered.clone()).collect();
        if before.is_empty() {
            return None;
        }
        Some(async move {
            for mut answered in before {
                // Nothing is ever sent: it changes when its sender goes.
                let _ = answered.changed().await;
            }
        })
    }
}

impl Leaves {
    /// The first answer has come.
    pub(super) fn end(self) {}
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut by_name = unpoisoned(&self.leaving.by_name);
        if let Some(releases) = by_name.get_mut(&self.name) {
            releases.retain(|release| release.number != self.number);
            if releases.is_empty() {
                by_name.remove(&self.name);
            }
        }
        drop(by_name);
        self.leaving.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
