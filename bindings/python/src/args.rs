//! Python's arguments: what has the wrong type is a `TypeError`, what has a wrong value is the
//! package's own `InvalidArgument`, which is a `ValueError`.

use std::time::Duration;

use polylatch_bridge::{ConnectOptions, Failure, LockOptions, OptionValue, units};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyString};

use crate::errors::OrRaise;
use crate::events;

const LOCK_OPTIONS: &str = "lease, wait, label, owner, max_hold, beat_every, fifo, renew, keep_idle";

/// Reads the keyword arguments that every kind of lock has. `None` counts as not given.
pub fn lock_options(function: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<LockOptions> {
    let mut options = LockOptions::default();
    read_lock_options(function, given, &mut options)?;
    Ok(options)
}

/// The same over options that were given before.
pub fn read_lock_options(
    function: &str,
    given: Option<&Bound<'_, PyDict>>,
    options: &mut LockOptions,
) -> PyResult<()> {
    let Some(given) = given else { return Ok(()) };
    for (key, value) in given {
        let key = key.cast_into::<PyString>()?;
        let key = key.to_cow()?;
        if value.is_none() && LOCK_OPTIONS.split(", ").any(|known| known == key) {
            continue;
        }
        match &*key {
            "lease" => options.lease = Some(seconds("lease", &value)?),
            "wait" => options.wait = wait(&value)?,
            "label" => options.label = Some(text("label", &value)?),
            "owner" => options.owner = Some(text("owner", &value)?),
            "max_hold" => options.max_hold = Some(seconds("max_hold", &value)?),
            "beat_every" => options.beat_every = Some(seconds("beat_every", &value)?),
            "fifo" => options.fifo = Some(flag("fifo", &value)?),
            "renew" => options.renew = Some(flag("renew", &value)?),
            "keep_idle" => options.keep_idle = Some(seconds("keep_idle", &value)?),
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got an unexpected keyword argument '{key}'; it takes {LOCK_OPTIONS}"
                )));
            }
        }
    }
    Ok(())
}

/// Reads how to connect. Which options there are, the core says.
pub fn connect_options(
    py: Python<'_>,
    url: Option<String>,
    program: Option<String>,
    on_event: Option<&Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<ConnectOptions> {
    // The executable's name, which the core would say, is the interpreter's.
    let program = program.or_else(|| script(py));
    let language = Some(("python".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let mut options = ConnectOptions { url, program, language, ..ConnectOptions::default() };
    for (key, value) in given.into_iter().flatten() {
        let key = key.extract::<String>()?;
        if value.is_none() {
            continue;
        }
        let read = if let Ok(text) = value.cast::<PyString>() {
            OptionValue::Text(text.to_string())
        } else if value.is_instance_of::<PyBool>() {
            OptionValue::Flag(value.extract()?)
        } else if ConnectOptions::is_duration(&key) || is_timedelta(&value)? {
            OptionValue::Duration(seconds(&key, &value)?)
        } else {
            OptionValue::Number(number(&key, &value, "a str, a number, a bool or a timedelta")?)
        };
        options.set(&key, read).or_raise(value.py())?;
    }
    // Last: it keeps the callback.
    options.listener = Some(events::listener(py, on_event)?);
    Ok(options)
}

/// The name of the running script.
fn script(py: Python<'_>) -> Option<String> {
    let path: String = py.import("sys").ok()?.getattr("argv").ok()?.get_item(0).ok()?.extract().ok()?;
    let name = std::path::Path::new(&path).file_name()?.to_str()?;
    // `python -c` has no script; an interactive interpreter has an empty path.
    (name != "-c" && name != "-m").then(|| name.to_owned())
}

/// Reads a length of time: seconds as a number, or a `timedelta`.
pub fn seconds(option: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let number = if is_timedelta(value)? {
        value.call_method0("total_seconds")?.extract()?
    } else {
        number(option, value, "a number of seconds or a timedelta")?
    };
    units::seconds(option, number).or_raise(value.py())
}

/// Reads how long to wait for a lock; infinity is as long as it takes, like no limit.
pub fn wait(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.extract::<f64>().is_ok_and(|number| number == f64::INFINITY) {
        return Ok(None);
    }
    seconds("wait", value).map(Some)
}

/// Reads a time limit for waiting on something local; `None` has none, and neither has infinity.
pub fn time_limit(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    match value {
        None => Ok(None),
        Some(value) if value.is_none() => Ok(None),
        Some(value) => seconds("timeout", value).map(Some),
    }
}

/// Reads a count such as a number of permits. The core checks its range.
pub fn count(option: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(option, "an int", value));
    }
    let refuse = |number: &str| {
        Failure::invalid_argument(format!(
            "{option} is {number}; it must be between 1 and {}",
            polylatch::MAX_PERMITS
        ))
    };
    match value.extract::<i64>() {
        Ok(number) => u32::try_from(number).map_err(|_| refuse(&number.to_string())).or_raise(value.py()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(refuse("out of all bounds")).or_raise(value.py())
        }
        Err(_) => Err(wrong_type(option, "an int", value)),
    }
}

/// Reads a fencing token.
pub fn token(value: &Bound<'_, PyAny>) -> PyResult<polylatch::FencingToken> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type("the fencing token", "an int", value));
    }
    let refuse = || {
        Failure::invalid_argument("a fencing token is a whole number from 0 to 2**53 - 1, as a guard has it")
    };
    match value.extract::<u64>() {
        Ok(number) if number < 1 << 53 => Ok(polylatch::FencingToken::new(number)),
        Ok(_) => Err(refuse()).or_raise(value.py()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(refuse()).or_raise(value.py())
        }
        Err(_) => Err(wrong_type("the fencing token", "an int", value)),
    }
}

pub fn text(option: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_cow()?.into_owned()),
        Err(_) => Err(wrong_type(option, "a str", value)),
    }
}

fn flag(option: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.cast::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => Err(wrong_type(option, "a bool", value)),
    }
}

fn number(option: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyResult<f64> {
    // True is 1 to Python, but nobody means a second by it.
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(option, expected, value));
    }
    match value.extract::<f64>() {
        Ok(number) => Ok(number),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(f64::INFINITY),
        Err(_) => Err(wrong_type(option, expected, value)),
    }
}

fn is_timedelta(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TIMEDELTA: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    value.is_instance(TIMEDELTA.import(value.py(), "datetime", "timedelta")?)
}

fn wrong_type(option: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let given = value.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string());
    PyTypeError::new_err(format!("{option} must be {expected}, not {given}"))
}
