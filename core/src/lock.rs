//! A lock that may be acquired: a name and options.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::{self, Found, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::options::{AcquireOptions, Asked, Wait};

/// How long a caller who does not wait lets the store answer whether the lease can be entered.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_millis(200);

/// A lock to acquire: a name and options. Nothing is sent, and nothing is checked, before
/// [`Lock::acquire`] or [`Lock::try_acquire`].
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    core: Handle,
    asked: Asked,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Lock {
    pub(crate) fn new(core: Handle, name: String, mode: Mode) -> Self {
        let asked = Asked {
            name,
            lease: None,
            wait: Wait::Forever,
            label: String::new(),
            owner: None,
            max_hold: None,
            beat_every: None,
            fifo: None,
            renew: true,
            keep_idle: None,
            steal: None,
            mode,
        };
        Self { core, asked }
    }

    /// Returns the lock's name, as it was given.
    pub fn name(&self) -> &str {
        &self.asked.name
    }

    /// The mode that is asked for.
    pub(crate) fn mode(&self) -> Mode {
        self.asked.mode
    }

    /// What all locks of one client share.
    pub(crate) fn core(&self) -> &Handle {
        &self.core
    }

    /// Sets the length of the lease: 100 ms to 24 h, 15 s unless the client says otherwise.
    ///
    /// Shorter: a dead holder is noticed sooner, but a slow network or a pause loses the lock
    /// sooner. Longer: the reverse. Renewal happens at a third. [`Guard::extend`] changes it while the lock is held.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.asked.lease = Some(lease);
        self
    }

    /// Waits at most this long, 0 to a year, for a lock that another client holds. When the time is over, the
    /// wait is removed from the store before the call returns: one request more, half a second at most.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.asked.wait = Wait::For(wait);
        self
    }

    /// Waits as long as it takes. This is the default.
    pub fn wait_forever(mut self) -> Self {
        self.asked.wait = Wait::Forever;
        self
    }

    /// Does not wait: [`Lock::acquire`] fails with `wait_timeout` if another client holds the lock.
    pub fn no_wait(mut self) -> Self {
        self.asked.wait = Wait::No;
        self
    }

    /// Sets a description shown to operators: at most 256 bytes, no secrets.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.asked.label = label.into();
        self
    }

    /// Makes the lock reentrant for this owner id, 1 to 128 bytes, within this client.
    ///
    /// A caller that acquires with the same id while it is held enters at once, without a request, under
    /// the same lease and fencing token; another `lease` has no effect then, so use [`Guard::extend`]. The lock
    /// is released when the last guard is.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.asked.owner = Some(owner.into());
        self
    }

    /// Never holds the lock for longer than this, however healthy the process is: 100 ms to a year,
    /// unlimited by default. The guard is lost, reason `hold_limit`, when the time is over.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.asked.max_hold = Some(max_hold);
        self
    }

    /// Renews only while the work says through [`Guard::beat`] that it moves on, at least this often:
    /// 100 ms to a year, off by default. Otherwise the guard is lost, reason `no_progress`.
    pub fn beat_every(mut self, beat_every: Duration) -> Self {
        self.asked.beat_every = Some(beat_every);
        self
    }

    /// With `false`, may take a free lock although other clients are queued: faster under heavy load,
    /// and unfair. With `true`, a store that keeps no order is refused (`unsupported`). In order where
    /// the store can, by default.
    pub fn fifo(mut self, fifo: bool) -> Self {
        self.asked.fifo = Some(fifo);
        self
    }

    /// With `false`, the lease is never renewed and ends after its full length. `true` by default.
    pub fn renew(mut self, renew: bool) -> Self {
        self.asked.renew = renew;
        self
    }

    /// Keeps the lease after a release for the next caller of this client, until it has not been used for this long:
    /// 100 ms to 24 h, off by default.
    ///
    /// Acquiring a lock that is kept, with the same options, costs no request: the guard has a new, larger fencing token
    /// of a number that the store has set aside. To other clients the lock looks held. If one of them asks for it,
    /// the lease is released at once, or as soon as the present guard is; that takes about as long as a hand-off. The
    /// lock is released, too, by [`crate::Polylatch::close`] and with the last handle of the client.
    ///
    /// The price: a client that is paused or cut off while it keeps a lease blocks the lock until the lease ends,
    /// although no caller is in the section. A caller of this client may enter before one of another client whose request
    /// is still being pushed here. And [`Lock::try_acquire`] elsewhere does not get a lock that is kept, but has it
    /// released.
    ///
    /// While it is kept, a lease is renewed by a request of its own, not together with others.
    ///
    /// For plain locks, not in a set, and not with `owner`, `max_hold`, `beat_every`, `renew(false)` or `steal`
    /// (`invalid_argument`). On memory and Redis stores (also Sentinel and Cluster, without `lock_key=`); `unsupported`
    /// on the others. The store shows the token of the grant, which [`crate::inspect::Inspector::break_lease`] expects.
    pub fn keep_idle(mut self, keep_idle: Duration) -> Self {
        self.asked.keep_idle = Some(keep_idle);
        self
    }

    /// Whether its lease may stay with the client.
    pub(crate) fn stays(&self) -> bool {
        self.asked.keep_idle.is_some()
    }

    /// Ends the leases of the present holders and enters before all waiters, in one step of the store, for this
    /// reason: 1 to 256 bytes without control characters. The holders' guards are lost, reason `broken`, and an audit
    /// entry is left for each, as for [`crate::inspect::Inspector::break_lease`]. The fencing token is larger than
    /// theirs, but a holder may go on until it is notified, so what the lock protects must check tokens.
    ///
    /// Cancellation: leaves no lease of the thief, but a request that has left may still end those that it finds.
    ///
    /// For plain locks and for writing; not in a set, and not with [`Lock::owner`] (`invalid_argument`). On memory,
    /// SQLite and Redis stores; `unsupported` on RedLock and Consul.
    pub fn steal(mut self, reason: impl Into<String>) -> Self {
        self.asked.steal = Some(reason.into());
        self
    }

    /// Whether it is to be stolen.
    pub(crate) fn steals(&self) -> bool {
        self.asked.steal.is_some()
    }

    /// Acquires the lock, waiting as long as the options say.
    ///
    /// Errors: `wait_timeout` with who holds it; `invalid_argument` before anything is sent;
    /// `name_conflict` if foreign data stands under the name; `backend_unavailable` or
    /// `backend_rejected` if the store fails. While waiting, an unreachable store is asked again
    /// until the wait is over.
    /// Cancellation: dropping the future undoes what it may have done, in the background. It may be
    /// awaited on any executor.
    pub async fn acquire(&self) -> Result<Guard> {
        self.core.observer.counted(self.get().await)
    }

    pub(crate) async fn get(&self) -> Result<Guard> {
        match self.enter(self.asked.wait).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::new(
                ErrorKind::WaitTimeout,
                format!(
                    "the lock {:?} is held by another client, and no_wait says not to wait",
                    self.asked.name
                ),
            )
            .on_lock(&self.asked.name)),
        }
    }

    /// Acquires the lock if it is free and no client is queued, without waiting.
    ///
    /// Returns `None` if another client holds it: contention is a result, not an error. Errors and
    /// cancellation: as [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.core.observer.counted(self.enter(Wait::No).await)
    }

    /// Enters the lease that this client has kept for these options (see [`Lock::keep_idle`]), at once and without a request.
    /// Returns `None` if there is none, or it is in use, or the store has to be asked: then [`Lock::acquire`] does it.
    ///
    /// To acquire is to do this first, so a program has no need of it. It is for bindings whose language pays for every
    /// call that may have to wait.
    pub fn enter_kept(&self) -> Option<Guard> {
        if !self.stays() {
            return None;
        }
        match self.core.enter_kept(&self.asked) {
            Found::Entered(lease, entry) => Some(Guard::entered(lease, entry, self.core.clone())),
            Found::Asked(_) | Found::Nothing => None,
        }
    }

    pub(crate) async fn enter(&self, mut wait: Wait) -> Result<Option<Guard>> {
        while self.stays() {
            match self.core.enter_kept(&self.asked) {
                Found::Entered(lease, entry) => {
                    return Ok(Some(Guard::entered(lease, entry, self.core.clone())));
                }
                Found::Asked(lease) => {
                    let started = self.core.clock.now();
                    let limit = match wait {
                        Wait::For(wait) => wait.max(LOOK_AGAIN_WITHIN),
                        Wait::No => LOOK_AGAIN_WITHIN,
                        Wait::Forever => self.core.settings.timeout,
                    };
                    let answered = async {
                        lease.answered().await;
                        Ok(())
                    };
                    let is_late = self.core.service.within(limit, answered).await.is_err();
                    if let Wait::For(left) = &mut wait {
                        *left = left.saturating_sub(self.core.clock.now().since(started));
                    }
                    // A store that does not answer says so to the acquisition, too.
                    if is_late {
                        break;
                    }
                }
                Found::Nothing => break,
            }
        }
        let lease = driver::acquire(Arc::clone(&self.core), self.checked(wait)?).await?;
        Ok(lease.map(|lease| Guard::new(lease, self.core.clone())))
    }

    /// What is asked for, checked, with this wait.
    pub(crate) fn checked(&self, wait: Wait) -> Result<AcquireOptions> {
        let backend = &self.core.backend;
        let options = AcquireOptions::check(&self.asked, &self.core.settings, backend.capability())?;
        if options.keep_idle.is_some() && !backend.can_keep() {
            #[cfg(not(target_family = "wasm"))]
            let message = format!(
                "{} cannot keep a lease after its release; leave keep_idle out, or use a memory or Redis store, the latter \
                 without lock_key=",
                backend.capability().backend
            );
            #[cfg(target_family = "wasm")]
            let message = "a page or worker cannot keep a lease after its release; leave keep_idle out";
            return Err(Error::new(ErrorKind::Unsupported, message).on_lock(&self.asked.name));
        }
        Ok(AcquireOptions { wait, ..options })
    }
}

/// A lock that many may read or one may write.
///
/// Readers and writers share one queue: a reader that comes after a waiting writer enters after
/// it, and readers that are next to each other enter together, so neither starve. Every reader has a lease
/// of its own. For a step from reading to writing and back see [`Guard::try_upgrade`] and
/// [`Guard::downgrade`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct RwLock {
    core: Handle,
    name: String,
}

/// A lock with a number of permits.
///
/// Every permit is a lease: those of a holder that died come back by themselves. The name has one
/// capacity at a time; asking for it with another is a `name_conflict`.
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until it is acquired"]
pub struct Semaphore {
    core: Handle,
    name: String,
    capacity: u32,
}

impl RwLock {
    pub(crate) fn new(core: Handle, name: String) -> Self {
        Self { core, name }
    }

    /// The lock beside other readers.
    pub fn read(&self) -> Lock {
        Lock::new(self.core.clone(), self.name.clone(), Mode::Read)
    }

    /// The lock alone.
    pub fn write(&self) -> Lock {
        Lock::new(self.core.clone(), self.name.clone(), Mode::Write)
    }
}

impl Semaphore {
    pub(crate) fn new(core: Handle, name: String, capacity: u32) -> Self {
        Self { core, name, capacity }
    }

    /// Some of the permits, as one lease: 1 to the capacity, all or none.
    pub fn permits(&self, count: u32) -> Lock {
        let mode = Mode::Permits { count, capacity: self.capacity };
        Lock::new(self.core.clone(), self.name.clone(), mode)
    }

    /// Acquires some of the permits, waiting as long as it takes; see [`Lock::acquire`].
    pub async fn acquire(&self, count: u32) -> Result<Guard> {
        self.permits(count).acquire().await
    }

    /// Acquires some of the permits if they are available at once; see [`Lock::try_acquire`].
    pub async fn try_acquire(&self, count: u32) -> Result<Option<Guard>> {
        self.permits(count).try_acquire().await
    }
}
