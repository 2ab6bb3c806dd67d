//! Timers: a queue of deadlines, and one `setTimeout` for the earliest of them.
//!
//! Most time limits are never reached, so they cost no call of the host: a later deadline than the one
//! that is waited for already is only an entry in the queue.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(callback: &Closure<dyn FnMut()>, millis: f64) -> JsValue;
    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
}

/// Longest time that `setTimeout` takes (a signed 32-bit number); then the queue is looked at again.
const LONGEST_MILLIS: f64 = 2_147_483_647.0;

/// When, in microseconds of `performance.now()`, and which of several at that moment.
type Place = (u64, u64);

#[derive(Default)]
struct Queue {
    /// In the order of their places; new ones mostly come last.
    entries: Vec<(Place, Waker)>,
    last_id: u64,
    /// The deadline that the host was asked to call for.
    armed: Option<(u64, JsValue)>,
    callback: Option<Closure<dyn FnMut()>>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

fn now_micros() -> u64 {
    (performance_now() * 1e3) as u64
}

impl Queue {
    /// Has the host call when the earliest deadline is there.
    fn arm(&mut self) {
        let Some(&((due, _), _)) = self.entries.first() else { return };
        if let Some((armed, timer)) = &self.armed {
            if *armed <= due {
                return;
            }
            clear_timeout(timer);
        }
        let millis = (due.saturating_sub(now_micros()) as f64 / 1e3).ceil().min(LONGEST_MILLIS);
        let callback = self.callback.get_or_insert_with(|| Closure::new(fire));
        let timer = set_timeout(callback, millis);
        unref(&timer);
        self.armed = Some((due, timer));
    }

    /// How many places come before this one.
    fn before(&self, place: Place) -> usize {
        self.entries.partition_point(|(other, _)| *other < place)
    }

    /// Puts a waker at a place and returns the one that was there.
    fn put(&mut self, place: Place, waker: Waker) -> Option<Waker> {
        let at = self.before(place);
        match self.entries.get_mut(at) {
            Some((there, before)) if *there == place => Some(std::mem::replace(before, waker)),
            _ => {
                self.entries.insert(at, (place, waker));
                None
            }
        }
    }

    fn take(&mut self, place: Place) -> Option<Waker> {
        let at = self.before(place);
        self.entries.get(at).is_some_and(|(there, _)| *there == place).then(|| self.entries.remove(at).1)
    }
}

/// A timer does not keep a Node process alive: a held lock must not, and a caller that waits for one does.
fn unref(timer: &JsValue) {
    if timer.is_object()
        && let Ok(unref) = js_sys::Reflect::get(timer, &"unref".into())
        && let Some(unref) = unref.dyn_ref::<js_sys::Function>()
    {
        let _ = unref.call0(timer);
    }
}

/// Wakes what is due.
fn fire() {
    let due = QUEUE.with_borrow_mut(|queue| {
        queue.armed = None;
        let later = queue.entries.split_off(queue.before((now_micros() + 1, 0)));
        std::mem::replace(&mut queue.entries, later)
    });
    for (_, waker) in due {
        waker.wake();
    }
    QUEUE.with_borrow_mut(Queue::arm);
}

/// Completes after a time.
#[derive(Debug)]
pub struct Sleep {
    due: u64,
    place: Option<Place>,
}

/// Sleeps for `duration`, by a clock that may stand still while the machine sleeps.
pub fn sleep(duration: Duration) -> Sleep {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    Sleep { due: now_micros().saturating_add(micros), place: None }
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            // Dropped outside: dropping a waker may drop its task, and with it another timer.
            drop(QUEUE.with_borrow_mut(|queue| queue.take(place)));
        }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now_micros() >= self.due {
            self.leave();
            return Poll::Ready(());
        }
        let due = self.due;
        let (place, before) = QUEUE.with_borrow_mut(|queue| {
            let place = self.place.unwrap_or_else(|| {
                queue.last_id += 1;
                (due, queue.last_id)
            });
            let before = queue.put(place, context.waker().clone());
            queue.arm();
            (place, before)
        });
        // Outside, too.
        drop(before);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The time was over first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was over")
    }
}

impl std::error::Error for Elapsed {}

/// Awaits `work` for at most `limit`, from now.
pub fn timeout<F: Future>(limit: Duration, work: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let end = sleep(limit);
    async move {
        tokio::select! {
            biased;
            output = work => Ok(output),
            () = end => Err(Elapsed(())),
        }
    }
}
