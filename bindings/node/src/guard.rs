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

/// The held locks of one environment, by the numbers that `js/held.cjs` gives: small, and given again.
#[derive(Default)]
pub struct Guards(Vec<Option<Held>>);

impl Guards {
    pub fn put(&mut self, number: usize, handle: Handle, client: Arc<Client>) {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        self.0[number] = Some(Held { handle: Arc::new(handle), _client: client });
    }

    pub fn get(&self, number: usize) -> Result<&Arc<Handle>, Failure> {
        let held = self.0.get(number).and_then(Option::as_ref).map(|held| &held.handle);
        held.ok_or_else(|| Failure::invalid_argument("this guard was released; acquire the lock again"))
    }

    /// Forgets a guard whose release the store has confirmed. By now its number may be another's.
    pub fn released(&mut self, number: usize, handle: &Arc<Handle>) {
        if self.get(number).is_ok_and(|held| Arc::ptr_eq(held, handle)) {
            self.remove(number);
        }
    }

    /// Forgets a guard; a lock that is still held is released in the background.
    pub fn remove(&mut self, number: usize) {
        drop(self.0.get_mut(number).and_then(Option::take));
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
