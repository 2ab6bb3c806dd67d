//! Where the guard of a held lock is: a step between reading and writing takes it away, and brings another.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use polylatch::{Converted, Guard};

use crate::failure::Failure;

/// Completes with `true` when a lease is endangered or lost, with `false` when it is over otherwise.
pub type Endangered = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Follows the danger of a guard's lease, without keeping the lock held.
pub fn endangered(guard: &Guard) -> Endangered {
    let (endangered, ended) = (guard.endangered(), guard.ended());
    Box::pin(async move {
        tokio::select! {
            biased;
            () = endangered => true,
            // A loss that comes between the two looks is a danger, too.
            lost = ended => lost.is_some(),
        }
    })
}

/// Where the guard is.
#[derive(Debug)]
pub enum Place {
    /// Shared only with a release.
    Here(Arc<Guard>),
    /// A step between reading and writing has it.
    Stepping,
    /// A step failed or was given up, or no caller has the handle any more.
    Gone,
}

impl Place {
    /// Makes the place of a guard.
    pub fn of(guard: Guard) -> Self {
        Self::Here(Arc::new(guard))
    }

    /// Returns the guard. `name` is the lock's, for the error.
    ///
    /// Errors: `invalid_argument` while a step is under way, and after one that failed.
    pub fn guard(&self, name: &str) -> Result<&Arc<Guard>, Failure> {
        Err(Failure::invalid_argument(match self {
            Self::Here(guard) => return Ok(guard),
            Self::Stepping => {
                format!("a step between reading and writing of {name:?} is under way; let it end first")
            }
            Self::Gone => format!(
                "the lease of {name:?} was given up by a step between reading and writing; acquire the lock again"
            ),
        }))
    }

    /// Returns the guard, `Some(None)` if there is none any more, and `None` while a step is under way.
    pub fn after_steps(&self) -> Option<Option<Arc<Guard>>> {
        match self {
            Self::Here(guard) => Some(Some(Arc::clone(guard))),
            Self::Stepping => None,
            Self::Gone => Some(None),
        }
    }

    /// Takes the guard out for a step `up` from reading to writing, or down; see [`step`]. What stands in its
    /// way leaves it where it is.
    ///
    /// Errors: `invalid_argument` if it is not held in the way that the step begins with, is being released,
    /// or is not here.
    pub fn take(&mut self, name: &str, up: bool) -> Result<Guard, Failure> {
        let guard = self.guard(name)?;
        // Asked before the guard is given away: the core drops one that is held in another way.
        let (from, mode) = (if up { "read" } else { "write" }, guard.mode().code());
        if mode != from {
            return Err(Failure::invalid_argument(format!("{name:?} is held by {mode}, not by {from}")));
        }
        let before = mem::replace(self, Self::Stepping);
        let taken = match before {
            Self::Here(guard) => Arc::try_unwrap(guard).map_err(Self::Here),
            other => Err(other),
        };
        taken.map_err(|before| {
            *self = before;
            Failure::invalid_argument(format!(
                "{name:?} is being released; acquire it again in the mode that you want"
            ))
        })
    }
}

/// Upgrades from reading to writing, or downgrades; returns the guard, and whether it is held in the new mode. See
/// [`Guard::try_upgrade`] and [`Guard::downgrade`].
///
/// Errors: what the store says; the lock is given up.
/// Cancellation: the lock is given up.
pub async fn step(guard: Guard, up: bool) -> Result<(Guard, bool), Failure> {
    if !up {
        return Ok((guard.downgrade().await?, true));
    }
    Ok(match guard.try_upgrade().await? {
        Converted::Done(guard) => (guard, true),
        Converted::Refused(guard) => (guard, false),
    })
}
