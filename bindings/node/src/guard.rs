//! Held locks.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::{Guard, GuardSet, Polylatch};
use polylatch_bridge::{Failure, Place};

use crate::failure::Fault;

/// One held lock. Dropping it releases the lock in the background.
pub struct HeldGuard {
    name: String,
    place: Place,
    /// Only to be held, so that it can be closed as long as a guard is left.
    _client: Arc<Polylatch>,
}

fn gone() -> Failure {
    Failure::invalid_argument("this guard was given back; acquire the lock anew")
}

/// The held locks of one environment, by small numbers that are given again. A number is free again when
/// its lock was given back ([`Guards::given_back`]) or its guard was forgotten ([`Guards::remove`]).
#[derive(Default)]
pub struct Guards {
    held: Vec<Option<HeldGuard>>,
    free: Vec<usize>,
}

impl Guards {
    pub fn add(&mut self, guard: Guard, client: Arc<Polylatch>) -> usize {
        let name = guard.name().to_owned();
        let held = Some(HeldGuard { name, place: Place::of(guard), _client: client });
        match self.free.pop() {
            Some(number) => {
                self.held[number] = held;
                number
            }
            None => {
                self.held.push(held);
                self.held.len() - 1
            }
        }
    }

    pub fn get(&self, number: usize) -> Result<&Arc<Guard>, Failure> {
        let held = self.held.get(number).and_then(Option::as_ref).ok_or_else(gone)?;
        held.place.guard(&held.name)
    }

    /// Takes the guard out for a step that consumes it; the number stays its own.
    pub fn take(&mut self, number: usize, up: bool) -> Result<Guard, Failure> {
        let held = self.held.get_mut(number).and_then(Option::as_mut).ok_or_else(gone)?;
        held.place.take(&held.name, up)
    }

    /// Puts it in again. If nobody knows its number any more, the lock is given back.
    pub fn put_back(&mut self, number: usize, guard: Guard) {
        if let Some(held) = self.held.get_mut(number).and_then(Option::as_mut) {
            held.place = Place::of(guard);
        }
    }

    /// Its step failed: there is no guard any more, and nothing to give back.
    pub fn given_up(&mut self, number: usize) {
        if let Some(held) = self.held.get_mut(number).and_then(Option::as_mut) {
            held.place = Place::Gone;
        }
    }

    /// Frees the number of a guard whose release the store has confirmed, the first time it is told.
    pub fn given_back(&mut self, number: usize, guard: &Arc<Guard>) {
        if self.get(number).is_ok_and(|held| Arc::ptr_eq(held, guard)) {
            self.remove(number);
        }
    }

    /// Frees the number of a guard that a step has given up; says whether it was one.
    pub fn leave_given_up(&mut self, number: usize) -> bool {
        let is_one = matches!(self.held.get(number), Some(Some(HeldGuard { place: Place::Gone, .. })));
        if is_one {
            self.remove(number);
        }
        is_one
    }

    pub fn remove(&mut self, number: usize) {
        if self.held.get_mut(number).and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }
}

/// Several held locks.
#[napi]
pub struct NativeSet {
    pub(crate) set: Arc<GuardSet>,
    /// Only to be held: see [`HeldGuard`].
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
