//! Held locks.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch_bridge::{Client, Failure, Handle};

use crate::failure::Fault;

/// One held lock.
struct Held {
    handle: Arc<Handle>,
    /// Only to be held, so that it can be closed as long as a guard is left.
    _client: Arc<Client>,
}

/// The held locks of one environment, by small numbers that are given again. A number is free again when its lock was
/// released ([`Guards::released`]) or its guard was forgotten ([`Guards::remove`]).
#[derive(Default)]
pub struct Guards {
    held: Vec<Option<Held>>,
    free: Vec<usize>,
}

impl Guards {
    pub fn add(&mut self, handle: Handle, client: Arc<Client>) -> usize {
        let held = Some(Held { handle: Arc::new(handle), _client: client });
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

    pub fn get(&self, number: usize) -> Result<&Arc<Handle>, Failure> {
        let held = self.held.get(number).and_then(Option::as_ref).map(|held| &held.handle);
        held.ok_or_else(|| Failure::invalid_argument("this guard was released; acquire the lock again"))
    }

    /// Frees the number of a guard whose release the store has confirmed, the first time it is told.
    pub fn released(&mut self, number: usize, handle: &Arc<Handle>) {
        if self.get(number).is_ok_and(|held| Arc::ptr_eq(held, handle)) {
            self.remove(number);
        }
    }

    /// Frees the number of a guard; a lock that is still held is released in the background.
    pub fn remove(&mut self, number: usize) {
        if self.held.get_mut(number).and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }
}

/// Several held locks.
#[napi]
pub struct NativeSet {
    pub(crate) handle: Arc<Handle>,
    /// Only to be held: see [`Held`].
    pub(crate) _client: Arc<Client>,
}

#[napi]
impl NativeSet {
    #[napi(catch_unwind)]
    pub fn names(&self) -> Vec<String> {
        self.handle.held().into_iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[napi(catch_unwind)]
    pub fn tokens(&self) -> Vec<f64> {
        self.handle.held().into_iter().map(|(_, token)| token as f64).collect()
    }

    /// Milliseconds that all of them have left.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.handle.remaining().as_secs_f64() * 1e3
    }

    #[napi(catch_unwind)]
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    #[napi(catch_unwind)]
    pub fn check(&self) -> Either<Fault, ()> {
        match self.handle.check() {
            Ok(()) => Either::B(()),
            Err(failure) => Either::A(failure.into()),
        }
    }
}
