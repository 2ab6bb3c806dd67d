//! What the core says, for `logging` and for callbacks; see `_events.py`.
//!
//! Events come up on threads that must not wait for the interpreter, so they are handed over on the thread for
//! callbacks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polylatch_bridge::events::{Listener, Value};
use polylatch_bridge::process::Process;
use polylatch_bridge::{Event, Events, Heard, Level, runtime};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The callbacks of clients, by number. Touched with the interpreter attached only, so no fork finds it locked.
static CALLBACKS: Mutex<Option<HashMap<u64, Py<PyAny>>>> = Mutex::new(None);

/// Returns how a client that connects now is listened to. The callback is kept until the client is closed or gone.
pub fn listener(py: Python<'_>, on_event: Option<&Bound<'_, PyAny>>) -> PyResult<Listener> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let on_event = on_event.filter(|callback| !callback.is_none());
    if on_event.is_some_and(|callback| !callback.is_callable()) {
        return Err(PyTypeError::new_err("on_event must be callable with the event, which is a dict"));
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    if let Some(callback) = on_event {
        with_callbacks(|callbacks| callbacks.insert(number, callback.clone().unbind()));
    }
    follow_logger(py, &queue());
    Ok(Listener { events: Arc::new(|| Ok(queue())), number, level: on_event.map(|_| Level::default()) })
}

/// Which process is handing over now, on its thread for callbacks. Touched with the interpreter attached only.
static HANDING_OVER: Mutex<Option<Process>> = Mutex::new(None);

/// The interpreter exits: the thread for callbacks must not be in the middle of writing then.
static EXITING: AtomicBool = AtomicBool::new(false);

/// How long the exit of the interpreter waits for a callback.
const LAST_CALLBACK: Duration = Duration::from_secs(5);

fn handing_over(now: Option<Process>) {
    *HANDING_OVER.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

fn hand_over_on_thread(py: Python<'_>) {
    if !EXITING.load(Ordering::SeqCst) {
        handing_over(Some(Process::this()));
        hand_over(py);
        handing_over(None);
    }
}

/// Hands over what is left before the interpreter exits; from then on nothing is.
pub fn finish(py: Python<'_>) {
    EXITING.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + LAST_CALLBACK;
    while Instant::now() < deadline {
        let is_busy = {
            let place = HANDING_OVER.lock().unwrap_or_else(PoisonError::into_inner);
            place.is_some_and(Process::is_this)
        };
        if !is_busy {
            return hand_over(py);
        }
        py.detach(|| thread::sleep(Duration::from_millis(2)));
    }
}

fn hand_over(py: Python<'_>) {
    let queue = queue();
    let heard = queue.take();
    if heard.is_empty() {
        return;
    }
    for one in heard {
        match one {
            Heard::Event(event, number) => {
                let callback = number
                    .and_then(|number| with_callbacks(|all| all.get(&number).map(|one| one.clone_ref(py))));
                if let Err(error) = deliver(py, &event, callback) {
                    error.write_unraisable(py, None);
                }
            }
            Heard::Ended(number) => drop(with_callbacks(|callbacks| callbacks.remove(&number))),
        }
    }
    follow_logger(py, &queue);
}

fn queue() -> Arc<Events> {
    Events::of_this_process(|| {
        runtime::spawn_detached(async {
            Python::try_attach(hand_over_on_thread);
        });
    })
}

fn with_callbacks<T>(change: impl FnOnce(&mut HashMap<u64, Py<PyAny>>) -> T) -> T {
    let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    change(callbacks.get_or_insert_default())
}

/// The logger's own level is what is logged. It is asked when a client connects and whenever something was logged, not
/// with every event: what it does not take is not made.
fn follow_logger(py: Python<'_>, queue: &Events) {
    let least = || -> PyResult<Option<Level>> {
        // A program that has not loaded it logs warnings at most.
        let modules = py.import("sys")?.getattr("modules")?;
        let logging = modules.call_method1("get", ("logging",))?;
        if logging.is_none() {
            return Ok(Some(Level::Warn));
        }
        let logger = logging.call_method1("getLogger", ("polylatch",))?;
        let levels = [
            (Level::Debug, "DEBUG"),
            (Level::Info, "INFO"),
            (Level::Warn, "WARNING"),
            (Level::Error, "ERROR"),
        ];
        for (level, name) in levels {
            if logger.call_method1("isEnabledFor", (logging.getattr(name)?,))?.is_truthy()? {
                return Ok(Some(level));
            }
        }
        Ok(None)
    };
    queue.want(least().unwrap_or(Some(Level::Warn)));
}

fn deliver(py: Python<'_>, event: &Event, callback: Option<Py<PyAny>>) -> PyResult<()> {
    static DELIVER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = PyDict::new(py);
    made.set_item("event", &event.name)?;
    made.set_item("level", event.level.word())?;
    made.set_item("message", &event.message)?;
    made.set_item("client", event.client.as_deref())?;
    for (name, value) in &event.fields {
        match value {
            Value::Text(text) => made.set_item(name, text)?,
            Value::Number(number) => made.set_item(name, number)?,
            Value::Flag(flag) => made.set_item(name, flag)?,
        }
    }
    let deliver = DELIVER.import(py, "polylatch._events", "deliver")?;
    deliver.call1((made, event.line(), callback)).map(drop)
}
