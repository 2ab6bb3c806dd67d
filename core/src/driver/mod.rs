//! Runs the policy against a backend. The only place that spawns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::backend::{Backend, Contender};
use crate::client_info::ClientInfo;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::options::Settings;
use crate::service::{Jobs, Service};
use crate::wakeups::{Wakeups, unpoisoned};

mod acquire;
mod acquire_all;
mod held;
mod undo;
mod watchdog;

pub(crate) use acquire::acquire;
pub(crate) use acquire_all::try_acquire_all;
pub(crate) use held::HeldLease;
use watchdog::Watchdog;

/// How long closing a client waits for releases and cancellations that are under way.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long closing a client waits for acquisitions to notice it. Not longer: a caller that holds one
/// which it does not await would keep the client open.
const NOTICE_LIMIT: Duration = Duration::from_millis(500);

/// The lease that an owner id holds, or the place of the acquisition that is under way for it.
type OwnerSlot = Arc<tokio::sync::Mutex<Weak<HeldLease>>>;

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
    owners: Mutex<HashMap<(LockName, String, Mode), OwnerSlot>>,
    /// Acquisitions under way, with what they may have to undo.
    acquiring: Arc<Jobs>,
    closed: AtomicBool,
}

impl Core {
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        service: Service,
        wakeups: Arc<Wakeups>,
        client: ClientInfo,
        settings: Settings,
    ) -> Arc<Self> {
        let client = Arc::new(client);
        let watchdog = Arc::new(Watchdog::new(
            Arc::clone(&backend),
            Arc::clone(&clock),
            service.handle().clone(),
            Arc::clone(&wakeups),
            Arc::clone(&client),
            settings.timeout,
        ));
        let weak = Arc::downgrade(&watchdog);
        wakeups.when_revoked(Box::new(move |owner, fence| {
            if let Some(watchdog) = weak.upgrade() {
                watchdog.revoked(owner, fence);
            }
        }));
        service.spawn(watchdog::run(Arc::clone(&watchdog)));
        Arc::new(Self {
            // When it was started is as good a number as any to tell clients of one host apart.
            renewal_phase: Duration::from_nanos(clock.now().as_nanos()),
            backend,
            clock,
            service,
            wakeups,
            client,
            settings,
            watchdog,
            owners: Mutex::default(),
            acquiring: Arc::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Refuses new work after the client was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorKind::Canceled,
                "this client was closed; connect a new one to acquire locks",
            ));
        }
        Ok(())
    }

    /// Ends all waiting, releases what is held, and waits (at most 5 s) until the store knows.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.wakeups.hint_all();
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

    /// Ends whatever this contender has at the store, in the background.
    fn cancel_in_background(self: &Arc<Self>, contender: Arc<Contender>) {
        self.service.spawn_job(undo::undo(Arc::clone(self), contender));
    }

    /// One who reads does not enter again to write: the way of holding is part of whose turn it is.
    fn owner_slot(&self, name: &LockName, owner: &str, mode: Mode) -> OwnerSlot {
        let mut owners = unpoisoned(&self.owners);
        // A slot that only this map knows belongs to nobody any more.
        owners.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|lease| lease.strong_count() > 0)
        });
        Arc::clone(owners.entry((name.clone(), owner.to_owned(), mode)).or_default())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.watchdog.stop();
    }
}
