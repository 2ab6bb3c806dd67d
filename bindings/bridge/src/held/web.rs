//! A held lock in a JavaScript host, where its API lets no release and nothing that follows come into the middle of a step.
//! So nothing waits for a step here, and a page loads some kilobytes less.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polylatch::{BootInstant, Guard, LostReason};

use crate::failure::Failure;
use crate::place::{Endangered, Place, endangered, step};

/// Why a lease is lost in a forked child.
pub(crate) const INHERITED: LostReason = LostReason::Unverifiable;

/// A held lock.
#[derive(Debug)]
pub struct Held {
    name: String,
    place: Mutex<Place>,
}

impl Held {
    /// Makes the handle of a guard.
    pub fn new(guard: Guard) -> Self {
        Self { name: guard.name().to_owned(), place: Mutex::new(Place::of(guard)) }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fencing token; zero where there is no guard.
    pub fn fencing_token(&self) -> u64 {
        self.with(|guard| guard.fencing_token().get()).unwrap_or(0)
    }

    /// Asks the guard something that is answered at once.
    ///
    /// Errors: `invalid_argument` while a step between reading and writing is under way, and after one that failed.
    pub fn with<T>(&self, ask: impl FnOnce(&Guard) -> T) -> Result<T, Failure> {
        self.place().guard(&self.name).map(|guard| ask(guard))
    }

    /// Gives the lease another length; see [`Guard::extend`].
    pub async fn extend(&self, lease: Duration) -> Result<BootInstant, Failure> {
        let extension = self.with(|guard| guard.extend(lease))?;
        Ok(extension.await?)
    }

    /// Releases the lock; see [`Guard::release`]. Errors: `invalid_argument` amid a step; as there.
    pub async fn release(&self) -> Result<(), Failure> {
        let guard = match &*self.place() {
            // What a failed step has given up is released in the background.
            Place::Gone => return Ok(()),
            place => Arc::clone(place.guard(&self.name)?),
        };
        Ok(guard.release().await?)
    }

    /// Upgrades from reading to writing if no other client reads, or downgrades; returns whether it is held in the other
    /// mode now.
    pub async fn convert(&self, up: bool) -> Result<bool, Failure> {
        let guard = self.place().take(&self.name, up)?;
        let stepped = step(guard, up).await;
        let mut place = self.place();
        *place = Place::Gone;
        let (guard, done) = stepped?;
        *place = Place::of(guard);
        Ok(done)
    }

    /// Completes when the present lease is over: with the reason if it was lost, otherwise with `None`. It does not keep the
    /// lock held.
    pub fn ended(&self) -> Pin<Box<dyn Future<Output = Option<LostReason>> + Send>> {
        match &*self.place() {
            Place::Here(guard) => Box::pin(guard.ended()),
            _ => Box::pin(ready(None)),
        }
    }

    /// See [`Endangered`]. Errors: as [`Held::with`].
    pub fn endangered(&self) -> Result<Endangered, Failure> {
        self.with(endangered)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
