//! Failures as Python exceptions.

use polylatch_bridge::Failure;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Makes the exception of the package that stands for this failure; see `_errors.py`.
pub fn exception(py: Python<'_>, failure: &Failure) -> PyErr {
    make(py, failure).unwrap_or_else(|error| error)
}

fn make(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "polylatch._errors", "make")?;
    let context = PyDict::new(py);
    context.set_item("backend", failure.context.backend)?;
    context.set_item("operation", failure.context.operation)?;
    context.set_item("lock", failure.context.lock.as_deref())?;
    context.set_item("attempt", failure.context.attempt)?;
    context.set_item("elapsed", failure.context.elapsed.map(|elapsed| elapsed.as_secs_f64()))?;
    let made = make.call1((
        failure.code,
        failure.message.as_str(),
        failure.retry,
        failure.effect,
        failure.hint,
        failure.lost_reason,
        context,
    ))?;
    Ok(PyErr::from_value(made))
}

/// Turns what a call of the core brought into Python's result.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Failure> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|failure| exception(py, &failure))
    }
}

impl<T> OrRaise<T> for polylatch::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(Failure::from).or_raise(py)
    }
}
