//! The clocks of a JavaScript host.

use std::cell::RefCell;
use std::time::Duration;

use wasm_bindgen::prelude::*;

use crate::clock::BootInstant;
use crate::clock::joined::{Joined, Reading};

#[wasm_bindgen]
extern "C" {
    /// Source: High Resolution Time, "Monotonic clock": it need not advance while the machine sleeps.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
    #[wasm_bindgen(js_namespace = Date, js_name = now)]
    fn date_now() -> f64;
}

thread_local! {
    static CLOCK: RefCell<Option<Joined>> = const { RefCell::new(None) };
}

pub(super) fn now() -> BootInstant {
    // A clock that says nonsense must not panic here: what cannot be a time counts as zero.
    let time = |millis: f64| Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default();
    let reading = Reading { monotonic: time(performance_now()), wall: time(date_now()) };
    CLOCK.with_borrow_mut(|clock| clock.get_or_insert_with(|| Joined::starting_at(reading)).read(reading))
}
