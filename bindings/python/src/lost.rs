//! The signal that a lease is lost.

use std::sync::Arc;

use polylatch::LostReason;
use polylatch_bridge::Handle;
use pyo3::prelude::*;

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block_at_most;

/// Tells that a lease is lost, like a :class:`threading.Event` that is set then and never cleared.
#[pyclass(frozen, module = "polylatch")]
pub struct Lost(pub Arc<Handle>);

#[pymethods]
impl Lost {
    /// Returns whether the lease is lost, by the clock, now. False after a release.
    fn is_set(&self) -> bool {
        self.reason().is_some()
    }

    /// Why it is lost, such as ``"expired"``; ``None`` if it is not.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.check().err()?.lost_reason
    }

    /// Blocks until the lease is lost, at most ``timeout`` seconds. Returns whether it is lost; False
    /// at once when it was released.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let limit = args::time_limit(timeout)?;
        let ended = self.0.ended();
        Ok(block_at_most(py, limit, async { Ok(ended.await) })?.flatten().is_some())
    }

    fn _start_wait(&self, py: Python<'_>) -> PyResult<StartedCall> {
        let ended = self.0.ended();
        let ended = async move { Ok(ended.await.map(LostReason::code)) };
        asyncio::start(py, ended, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            Some(reason) => format!("<polylatch.Lost {reason}>"),
            None => "<polylatch.Lost, not set>".to_owned(),
        }
    }
}
