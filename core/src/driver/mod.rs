//! Runs the policy against a backend. The only place that spawns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{Backend, Contender, Purpose};
use crate::client_info::ClientInfo;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::observe::{Observer, Reach};
use crate::options::Settings;
use crate::policy::acquisition::behind_own_release;
use crate::service::{Jobs, Service};
use crate::wakeups::Wakeups;

mod acquire;
mod acquire_all;
mod convert;
mod extend;
mod handle;
mod held;
mod keep;
#[cfg_attr(target_family = "wasm", path = "leaving/nothing.rs")]
mod leaving;
mod owners;
mod refusals;
#[cfg(all(test, not(target_family = "wasm")))]
mod tests;
mod undo;
mod watchdog;

pub(crate) use acquire::acquire;
pub(crate) use acquire_all::try_acquire_all;
pub(crate) use handle::Handle;
pub(crate) use held::HeldLease;
use keep::KeptLeases;
pub(crate) use keep::{Entry, Found};
use leaving::{GOES_BEHIND, Leaves, Leaving};
use owners::Owners;
use watchdog::Watchdog;

/// How long closing a client waits for releases and cancellations that are under way.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long closing a client waits for acquisitions to notice it. Not longer: a caller that holds one
/// which it does not await would keep the client open.
const NOTICE_LIMIT: Duration = Duration::from_millis(500);

/// Everything that the handles of one client share.
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) service: Service,
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) settings: Settings,
    /// See [`crate::policy::lease::LeasePlan::phase`].
    renewal_phase: Duration,
    watchdog: Arc<Watchdog>,
    owners: Owners,
    kept: KeptLeases,
    /// Releases that the background carries out.
    leaving: Arc<Leaving>,
    pub(crate) observer: Arc<Observer>,
    /// Whether the store answered lately.
    reach: Reach,
    /// Acquisitions under way, with what they may have to undo.
    acquiring: Arc<Jobs>,
    closed: AtomicBool,
    /// What the store was opened for.
    purpose: Purpose,
}

impl Core {
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        service: Service,
        wakeups: Arc<Wakeups>,
        client: ClientInfo,
        settings: Settings,
        purpose: Purpose,
    ) -> Arc<Self> {
        let client = Arc::new(client);
        let observer = Observer::new(backend.capability().backend);
        let watchdog = Arc::new(Watchdog::new(
            Arc::clone(&backend),
            Arc::clone(&clock),
            &service,
            Arc::clone(&wakeups),
            Arc::clone(&client),
            Arc::clone(&observer),
            settings.timeout,
        ));
        let weak = Arc::downgrade(&watchdog);
        wakeups.when_revoked(Box::new(move |owner, fence, reason| {
            if let Some(watchdog) = weak.upgrade() {
                watchdog.revoked(owner, fence, reason);
            }
        }));
        service.spawn(watchdog::run(Arc::clone(&watchdog)));
        let core = Arc::new(Self {
            // When it was started is as good a number as any to tell clients of one host apart.
            renewal_phase: Duration::from_nanos(clock.now().as_nanos()),
            backend,
            clock,
            service,
            wakeups,
            client,
            settings,
            watchdog,
            owners: Owners::default(),
            kept: KeptLeases::default(),
            leaving: Arc::default(),
            observer,
            reach: Reach::default(),
            acquiring: Arc::default(),
            closed: AtomicBool::new(false),
            purpose,
        });
        let weak = Arc::downgrade(&core);
        core.wakeups.when_wanted(Box::new(move |which| {
            if let Some(core) = weak.upgrade() {
                core.wanted(which);
            }
        }));
        core
    }

    /// Refuses new work after the client was closed, and where nothing was checked that locks need.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.purpose != Purpose::Lock {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "this client was connected for inspection only; connect another one to acquire locks",
            ));
        }
        if self.is_closed() { Err(refusals::closed()) } else { Ok(()) }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until the releases of these locks that this client's background has begun are answered, but not for long: a
    /// store that hangs is asked all the same. `limit`: of the request that is to follow.
    async fn behind_own_releases(&self, names: impl Iterator<Item = &LockName>, limit: Duration) {
        if !GOES_BEHIND {
            return;
        }
        let before: Vec<_> =
            names.filter_map(|name| self.leaving.behind(name.as_str(), &self.service)).collect();
        if !before.is_empty() {
            let all = async {
                for release in before {
                    release.await;
                }
            };
            let _ = self.service.timers().timeout(behind_own_release(limit), all).await;
        }
    }

    /// Ends all waiting, releases what is held, and waits (at most 5 s) until the store knows.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.wakeups.hint_all();
        self.keep_nothing();
        for lease in self.watchdog.leases() {
            lease.release_in_background();
        }
        // Whoever waits leaves the line before the store is closed under it.
        let left = async {
            self.acquiring.idle().await;
            Ok(())
        };
        let _ = self.service.within(NOTICE_LIMIT, left).await;
        let _ = self
            .service
            .within(CLOSE_LIMIT, async {
                self.service.idle().await;
                self.backend.close().await
            })
            .await;
    }

    /// Ends whatever this contender has at the store, in the background. No lease of it is longer than `longest`.
    /// `stray` and `leaves`: see [`undo::undo`].
    fn cancel_in_background(
        self: &Arc<Self>,
        contender: Arc<Contender>,
        longest: Duration,
        stray: bool,
        leaves: Option<Leaves>,
    ) {
        let core = Arc::clone(self);
        self.service.spawn_job(async move {
            undo::undo(core, contender, longest, stray, leaves).await;
        });
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.watchdog.stop();
    }
}
