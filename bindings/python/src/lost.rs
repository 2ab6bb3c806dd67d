//! The signal that a lease is lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use polylatch::{Guard, GuardSet, LostReason};
use polylatch_bridge::{Failure, Held, Homed, one_ended};
use pyo3::prelude::*;

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block_at_most;

/// Tells that a lease is lost, like a :class:`threading.Event` that is set then and never cleared.
#[pyclass(frozen, module = "polylatch")]
pub struct Lost(Option<Homed<Watched>>);

enum Watched {
    One(Arc<Held>),
    All(Arc<GuardSet>),
}

impl Watched {
    fn reason(&self) -> Option<&'static str> {
        let checked = match self {
            Self::One(held) => held.with(Guard::check).and_then(|checked| Ok(checked?)),
            Self::All(set) => set.check().map_err(Failure::from),
        };
        checked.err()?.lost_reason
    }

    /// Completes with the reason when a lease is lost, and with `None` when it was given back.
    fn ended(&self) -> Pin<Box<dyn Future<Output = Result<Option<LostReason>, Failure>> + Send>> {
        match self {
            Self::One(held) => {
                let ended = held.ended();
                Box::pin(async { Ok(ended.await) })
            }
            Self::All(set) => {
                let ended = one_ended(set);
                Box::pin(async { Ok(ended.await) })
            }
        }
    }
}

impl Lost {
    pub fn of(held: Arc<Held>) -> Self {
        Self(Some(Homed::new(Watched::One(held))))
    }

    pub fn of_all(set: Arc<GuardSet>) -> Self {
        Self(Some(Homed::new(Watched::All(set))))
    }

    /// For a guard that a forked child inherited: it is lost there from the beginning.
    pub fn inherited() -> Self {
        Self(None)
    }

    fn watched(&self) -> Option<&Watched> {
        self.0.as_ref().and_then(Homed::get)
    }
}

#[pymethods]
impl Lost {
    /// Returns whether the lease is lost, by the clock, now. False after a release.
    fn is_set(&self) -> bool {
        self.watched().is_none_or(|watched| watched.reason().is_some())
    }

    /// Why it is lost, such as ``"expired"``; ``None`` if it is not.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        match self.watched() {
            Some(watched) => watched.reason(),
            None => Some(LostReason::Unverifiable.code()),
        }
    }

    /// Blocks until the lease is lost, at most ``timeout`` seconds. Returns whether it is lost; False
    /// at once when it was given back.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let limit = args::time_limit(timeout)?;
        let Some(watched) = self.watched() else { return Ok(true) };
        let ended = block_at_most(py, limit, watched.ended())?;
        Ok(ended.flatten().is_some())
    }

    fn _start_wait(&self, py: Python<'_>) -> PyResult<StartedCall> {
        let ended = self.watched().map(Watched::ended);
        let ended = async move {
            match ended {
                Some(ended) => Ok(ended.await?.map(LostReason::code)),
                None => Ok(Some(LostReason::Unverifiable.code())),
            }
        };
        asyncio::start(py, ended, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            Some(reason) => format!("<polylatch.Lost {reason}>"),
            None => "<polylatch.Lost, not set>".to_owned(),
        }
    }
}
