//! One acquisition, and what it holds.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use polylatch::Guard;
use polylatch_bridge::{Client, Failure, Handle, Homed, Wanted, border, runtime, units};
use tokio::sync::watch;

use crate::fault::NativeError;
use crate::handed::{at_once, handed};
use crate::view::whole;

/// Is notified of a loss. It may call this library, and may block.
#[uniffi::export(foreign)]
pub trait LossListener: Send + Sync {
    /// The lease is lost, for this reason, such as `expired`.
    fn lost(&self, reason: String) -> Result<(), NativeError>;
}

impl From<uniffi::UnexpectedUniFFICallbackError> for NativeError {
    fn from(error: uniffi::UnexpectedUniFFICallbackError) -> Self {
        Failure::internal(format!("a listener failed: {}", error.reason)).into()
    }
}

/// The place for one acquisition: made before it begins, filled by it, empty again.
#[derive(uniffi::Object)]
pub struct Slot {
    client: Arc<Client>,
    wanted: Wanted,
    canceled: watch::Sender<bool>,
    state: Mutex<State>,
    /// Listeners; they end with the slot.
    watches: Mutex<Vec<Homed<runtime::Task>>>,
    /// Why the latest call failed that was begun directly.
    failure: Mutex<Option<Failure>>,
    lost: OnceLock<String>,
}

enum State {
    Empty,
    Filled(Arc<Handle>),
    /// The caller will not ask: what is acquired from now on is released.
    Abandoned,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Slot {
    pub(crate) fn new(client: Arc<Client>, wanted: Wanted) -> Self {
        Self {
            client,
            wanted,
            canceled: watch::Sender::new(false),
            state: Mutex::new(State::Empty),
            watches: Mutex::default(),
            failure: Mutex::default(),
            lost: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self) -> Result<Arc<Handle>, Failure> {
        match &*self.state() {
            State::Filled(handle) => Ok(Arc::clone(handle)),
            _ => Err(Failure::invalid_argument("nothing was acquired here")),
        }
    }

    fn fill(&self, handle: Handle) -> Result<(), Failure> {
        let mut state = self.state();
        match *state {
            State::Empty => {
                *state = State::Filled(Arc::new(handle));
                Ok(())
            }
            // What is held is dropped here, which releases it.
            State::Abandoned => Err(given_up()),
            State::Filled(_) => Err(Failure::internal("this slot was filled before")),
        }
    }

    /// Acquires what is wanted, and returns whether it could, unless that is ended before.
    pub(crate) async fn entered(&self, wait: bool) -> Result<bool, Failure> {
        let mut canceled = self.canceled.subscribe();
        let entered = async {
            let handle = self.client.acquire(&self.wanted, wait).await?;
            handle.map(|handle| self.fill(handle)).transpose().map(|filled| filled.is_some())
        };
        tokio::select! {
            biased;
            _ = canceled.wait_for(|canceled| *canceled) => Err(given_up()),
            result = entered => result,
        }
    }

    /// Releases what it holds.
    pub(crate) async fn given_back(&self) -> Result<(), Failure> {
        let released = self.handle()?.release().await;
        if released.is_ok() {
            self.forget_listeners();
        }
        released
    }

    /// Has this called once if a lease is lost, on a thread of its own: it may call, and its call is woken by the thread that
    /// notices the loss.
    fn follow(&self, tell: impl FnOnce(&str) + Send + 'static) -> Result<(), Failure> {
        let watch = self.handle()?.on_lost(move |reason| {
            let reason = reason.to_owned();
            let listening = thread::Builder::new().name("polylatch-loss".into());
            if let Err(error) = listening.spawn(move || border::caught(|| tell(&reason))) {
                // The lease says so itself as well, to a caller that asks.
                eprintln!("polylatch: no thread to tell a listener that its lock is lost: {error}");
            }
        })?;
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        Ok(())
    }

    /// The same, with [`Slot::lost_reason`] to be asked for the reason.
    pub(crate) fn followed(self: &Arc<Self>, tell: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        // It is not kept for its own loss.
        let slot = Arc::downgrade(self);
        self.follow(move |reason| {
            if let Some(slot) = slot.upgrade() {
                // The first loss is the reason.
                let _ = slot.lost.set(reason.to_owned());
                tell();
            }
        })
    }

    /// Notes why a call failed.
    pub(crate) fn failed(&self, failure: Failure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// The fencing token of what it holds; of several locks, that of the first.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.handle().ok()?.fencing_token())
    }
}

fn given_up() -> Failure {
    Failure::canceled("the wait was ended by its caller; nothing is held")
}

#[uniffi::export]
impl Slot {
    /// Acquires what is wanted, waiting as long as the options say.
    ///
    /// Errors: as [`polylatch::Lock::acquire`].
    /// Cancellation: dropping the call undoes it; so do [`Slot::cancel`] and [`Slot::abandon`].
    pub async fn acquire(self: Arc<Self>) -> Result<(), NativeError> {
        handed(async move { self.entered(true).await.map(drop) }).await
    }

    /// Acquires what is wanted if it is available at once; whether it could.
    pub async fn try_acquire(self: Arc<Self>) -> Result<bool, NativeError> {
        handed(async move { self.entered(false).await }).await
    }

    /// Ends the acquisition, from any thread: it fails with `canceled`. Does nothing to what is held.
    pub fn cancel(&self) {
        self.canceled.send_replace(true);
    }

    /// Ends the acquisition, and releases in the background what it held or still gets.
    pub fn abandon(&self) {
        self.cancel();
        let before = std::mem::replace(&mut *self.state(), State::Abandoned);
        self.forget_listeners();
        drop(before);
    }

    /// Releases and waits until the store has confirmed it. Repeatable. See [`polylatch::Guard::release`].
    pub async fn release(self: Arc<Self>) -> Result<(), NativeError> {
        handed(async move { self.given_back().await }).await
    }

    /// Fails with what the latest call failed with that was begun directly.
    pub fn failure(&self) -> Result<(), NativeError> {
        at_once(|| self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err))
    }

    /// Gives the lease another length, in seconds; see [`polylatch::Guard::extend`].
    pub async fn extend(self: Arc<Self>, lease: f64) -> Result<f64, NativeError> {
        handed(async move {
            let lease = units::seconds("lease", lease)?;
            Ok(self.handle()?.extend(lease).await?.as_nanos() as f64 / 1e9)
        })
        .await
    }

    /// Downgrades from writing to reading; see [`polylatch::Guard::downgrade`].
    pub async fn downgrade(self: Arc<Self>) -> Result<(), NativeError> {
        handed(async move { self.handle()?.convert(false).await.map(drop) }).await
    }

    /// Upgrades a read lock to a write lock if there is no other reader; see [`polylatch::Guard::try_upgrade`].
    pub async fn try_upgrade(self: Arc<Self>) -> Result<bool, NativeError> {
        handed(async move { self.handle()?.convert(true).await }).await
    }

    /// Has the listener called once if a lease is lost, not if it is released.
    pub fn on_lost(&self, listener: Arc<dyn LossListener>) -> Result<(), NativeError> {
        at_once(|| self.follow(move |reason| drop(listener.lost(reason.to_owned()))))
    }

    /// Why a lease was lost, if that was reported directly.
    pub fn lost_reason(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    /// Waits until a lease is lost, with the reason, or all were released. It does not keep them held.
    pub async fn ended(self: Arc<Self>) -> Result<Option<String>, NativeError> {
        handed(async move {
            let ended = self.handle()?.ended();
            drop(self);
            Ok(ended.await.map(|reason| reason.code().to_owned()))
        })
        .await
    }

    /// Errors: as [`polylatch::Guard::check`]; `lease_lost` in a forked child.
    pub fn check(&self) -> Result<(), NativeError> {
        at_once(|| self.handle()?.check())
    }

    pub fn is_held(&self) -> bool {
        self.handle().is_ok_and(|handle| handle.is_held())
    }

    pub fn names(&self) -> Vec<String> {
        self.held(|name, _| name.to_owned())
    }

    pub fn fencing_tokens(&self) -> Vec<i64> {
        self.held(|_, token| whole(token))
    }

    /// Seconds for which all of it may be relied on from now; zero once one is over.
    pub fn remaining(&self) -> f64 {
        self.handle().map_or(0.0, |handle| handle.remaining().as_secs_f64())
    }

    /// Seconds of the clock that goes on while the machine sleeps.
    pub fn valid_until(&self) -> Result<f64, NativeError> {
        at_once(|| Ok(self.handle()?.with(Guard::valid_until)?.as_nanos() as f64 / 1e9))
    }

    /// `strict`, `time-floored` or `none`.
    pub fn fence_quality(&self) -> Result<String, NativeError> {
        at_once(|| Ok(self.handle()?.with(Guard::fence_quality)?.code().to_owned()))
    }

    /// Name, holder and fencing token as one printable value.
    pub fn sequencer(&self) -> Result<String, NativeError> {
        at_once(|| Ok(self.handle()?.with(Guard::sequencer)?.to_string()))
    }

    /// `mutex`, `read`, `write` or `permits`.
    pub fn mode(&self) -> Result<String, NativeError> {
        at_once(|| Ok(self.handle()?.with(Guard::mode)?.code().to_owned()))
    }

    pub fn renewals(&self) -> Result<i64, NativeError> {
        at_once(|| Ok(self.handle()?.with(Guard::renewals)?.into()))
    }

    /// The protected work moves on.
    pub fn beat(&self) -> Result<(), NativeError> {
        at_once(|| self.handle()?.beat())
    }
}

impl Slot {
    /// Reads each name and token of what is held.
    fn held<T>(&self, of: impl Fn(&str, u64) -> T) -> Vec<T> {
        let read =
            |handle: Arc<Handle>| handle.held().into_iter().map(|(name, token)| of(name, token)).collect();
        self.handle().map_or_else(|_| Vec::new(), read)
    }

    fn forget_listeners(&self) {
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        drop(watches);
    }
}
