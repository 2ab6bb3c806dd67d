//! What is asked of held locks and answered at once. These are functions with numbers, not methods of an object: to look
//! up what stands behind an object takes longer than the answer, and that is what a loop asks in each round.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::Guard;
use polylatch_bridge::{Failure, Handle};

use crate::failure::Fault;
use crate::hub::{Calls, ending, renewals, token};
use crate::options::NUMBERS;

/// What [`enter`] and [`leave`] return where the store has to be asked.
const ASK: f64 = -1.0;

type Environment = RefCell<Option<Calls>>;

thread_local! {
    /// The hubs of this thread, by number. An environment has one, and a thread has one environment, or a few.
    static HUBS: RefCell<Vec<Weak<Environment>>> = const { RefCell::new(Vec::new()) };
}

/// Gives a hub its number.
pub fn add(calls: &Rc<Environment>) -> u32 {
    HUBS.with_borrow_mut(|hubs| {
        hubs.push(Rc::downgrade(calls));
        hubs.len() as u32 - 1
    })
}

fn with<T>(hub: u32, ask: impl FnOnce(&mut Calls) -> Result<T, Failure>) -> Result<T, Failure> {
    let calls = HUBS.with_borrow(|hubs| hubs.get(hub as usize)?.upgrade()).ok_or_else(ending)?;
    ask(calls.borrow_mut().as_mut().ok_or_else(ending)?)
}

fn ask<T>(hub: u32, guard: u32, ask: impl FnOnce(&Handle) -> Result<T, Failure>) -> Result<T, Failure> {
    with(hub, |calls| ask(calls.guards.get(guard as usize)?))
}

/// Enters a plain lock that a client has kept; the guard is to have this number. Returns the fencing token, or [`ASK`].
#[napi(catch_unwind)]
pub fn enter(hub: u32, guard: u32, client: u32, name: String, lease: Option<f64>, keep_idle: f64) -> f64 {
    let entered = with(hub, |calls| {
        let lease = NUMBERS.length("lease", lease)?;
        let keep_idle = NUMBERS.millis("keepIdle", keep_idle)?;
        let Some(client) = calls.client(client) else { return Ok(ASK) };
        let Some(handle) = client.enter_kept(name, lease, keep_idle) else { return Ok(ASK) };
        let token = token(&handle);
        calls.guards.put(guard as usize, handle, client);
        Ok(token)
    });
    // What is wrong is said by the usual way, which is taken then.
    entered.unwrap_or(ASK)
}

/// Releases a lock that its client keeps. Returns how often its lease was renewed, or [`ASK`].
#[napi(catch_unwind)]
pub fn leave(hub: u32, guard: u32) -> f64 {
    let left = with(hub, |calls| {
        let handle = calls.guards.get(guard as usize)?;
        if !handle.leave_kept() {
            return Ok(ASK);
        }
        let renewals = renewals(handle);
        calls.guards.remove(guard as usize);
        Ok(renewals)
    });
    left.unwrap_or(ASK)
}

/// The mode in which a lock is held.
#[napi(catch_unwind)]
pub fn mode(hub: u32, guard: u32) -> Option<&'static str> {
    ask(hub, guard, |handle| handle.with(Guard::mode)).ok().map(|mode| mode.code())
}

/// Milliseconds.
#[napi(catch_unwind)]
pub fn remaining(hub: u32, guard: u32) -> f64 {
    ask(hub, guard, |handle| Ok(handle.remaining())).unwrap_or_default().as_secs_f64() * 1e3
}

#[napi(catch_unwind)]
pub fn is_held(hub: u32, guard: u32) -> bool {
    ask(hub, guard, |handle| Ok(handle.is_held())).unwrap_or(false)
}

/// How often the lease of a held lock was renewed.
#[napi(js_name = "renewals", catch_unwind)]
pub fn renewals_of(hub: u32, guard: u32) -> f64 {
    ask(hub, guard, |handle| Ok(renewals(handle))).unwrap_or(0.0)
}

#[napi(catch_unwind)]
pub fn beat(hub: u32, guard: u32) {
    // What is not held needs no beat.
    let _ = ask(hub, guard, Handle::beat);
}

/// Nothing, or why it is not held.
#[napi(catch_unwind)]
pub fn check(hub: u32, guard: u32) -> Either<Fault, ()> {
    match ask(hub, guard, Handle::check) {
        Ok(()) => Either::B(()),
        Err(failure) => Either::A(failure.into()),
    }
}

/// What a guard says that was released, and has no number any more.
#[napi(catch_unwind)]
pub fn given_back(name: String) -> Fault {
    let text = format!("the lease of {name} was released; acquire a new one");
    let mut fault = Fault::from(Failure::invalid_argument(text));
    fault.lock = Some(name);
    fault
}
