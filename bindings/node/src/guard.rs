//! Held locks.

use std::sync::{Arc, Mutex, PoisonError};

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::{Guard, GuardSet, Polylatch};
use polylatch_bridge::Failure;

use crate::failure::Fault;

/// One held lock. When JavaScript forgets it, it is released in the background.
#[napi]
pub struct NativeGuard {
    /// Empty after a step from reading to writing or back, which makes another guard of it.
    guard: Mutex<Option<Arc<Guard>>>,
    pub(crate) client: Arc<Polylatch>,
}

impl NativeGuard {
    pub(crate) fn new(guard: Guard, client: Arc<Polylatch>) -> Self {
        Self { guard: Mutex::new(Some(Arc::new(guard))), client }
    }

    pub(crate) fn get(&self) -> Result<Arc<Guard>, Failure> {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.clone().ok_or_else(gone)
    }

    /// Takes the guard out for a step that consumes it.
    pub(crate) fn take(&self) -> Result<Guard, Failure> {
        let mut place = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = place.take().ok_or_else(gone)?;
        Arc::try_unwrap(guard).map_err(|guard| {
            *place = Some(guard);
            Failure::invalid_argument(
                "the guard is just being released; a lock that is given back cannot change its way",
            )
        })
    }

    pub(crate) fn put_back(&self, guard: Guard) {
        *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(guard));
    }
}

fn gone() -> Failure {
    Failure::invalid_argument(
        "this guard was given up by a step between reading and writing that failed; acquire the lock anew",
    )
}

#[napi]
impl NativeGuard {
    #[napi(catch_unwind)]
    pub fn name(&self) -> Option<String> {
        self.get().ok().map(|guard| guard.name().to_owned())
    }

    /// The fencing token; below 2^53, so a double keeps it exactly.
    #[napi(catch_unwind)]
    pub fn token(&self) -> Option<f64> {
        self.get().ok().map(|guard| guard.fencing_token().get() as f64)
    }

    #[napi(catch_unwind)]
    pub fn fence_quality(&self) -> Option<&'static str> {
        self.get().ok().map(|guard| guard.fence_quality().code())
    }

    #[napi(catch_unwind)]
    pub fn mode(&self) -> Option<&'static str> {
        self.get().ok().map(|guard| guard.mode().code())
    }

    #[napi(catch_unwind)]
    pub fn permits(&self) -> Option<u32> {
        self.get().ok().map(|guard| guard.mode().permits())
    }

    /// Milliseconds.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.get().map_or(0.0, |guard| guard.remaining().as_secs_f64() * 1e3)
    }

    #[napi(catch_unwind)]
    pub fn is_held(&self) -> bool {
        self.get().is_ok_and(|guard| guard.is_held())
    }

    #[napi(catch_unwind)]
    pub fn renewals(&self) -> u32 {
        self.get().map_or(0, |guard| guard.renewals())
    }

    #[napi(catch_unwind)]
    pub fn beat(&self) {
        if let Ok(guard) = self.get() {
            guard.beat();
        }
    }

    /// Nothing, or why it is not held.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Either<Fault, ()> {
        match self.get().and_then(|guard| guard.check().map_err(Failure::from)) {
            Ok(()) => Either::B(()),
            Err(failure) => Either::A(failure.into()),
        }
    }
}

/// Several held locks.
#[napi]
pub struct NativeSet {
    pub(crate) set: Arc<GuardSet>,
    /// Only to be held: see [`crate::client::NativeClient`].
    pub(crate) _client: Arc<Polylatch>,
}

#[napi]
impl NativeSet {
    #[napi(catch_unwind)]
    pub fn names(&self) -> Vec<String> {
        self.set.guards().iter().map(|guard| guard.name().to_owned()).collect()
    }

    #[napi(catch_unwind)]
    pub fn tokens(&self) -> Vec<f64> {
        self.set.guards().iter().map(|guard| guard.fencing_token().get() as f64).collect()
    }

    /// Milliseconds that all of them have left.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        let remaining = self.set.guards().iter().map(Guard::remaining).min();
        remaining.unwrap_or_default().as_secs_f64() * 1e3
    }

    #[napi(catch_unwind)]
    pub fn is_held(&self) -> bool {
        self.set.guards().iter().all(Guard::is_held)
    }

    #[napi(catch_unwind)]
    pub fn check(&self) -> Either<Fault, ()> {
        match self.set.check() {
            Ok(()) => Either::B(()),
            Err(error) => Either::A(error.into()),
        }
    }
}
