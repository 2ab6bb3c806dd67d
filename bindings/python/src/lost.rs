//! The signal that a lease is lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use polylatch::{GuardSet, LostReason};
use polylatch_bridge::{Failure, Homed};
use pyo3::prelude::*;

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block_at_most;
use crate::guard::Held;

/// Tells that a lease is lost, like a :class:`threading.Event` that is set then and never cleared.
#[pyclass(frozen, module = "polylatch")]
pub struct Lost(Option<Homed<Watched>>);

#[derive(Clone)]
enum Watched {
    One(Arc<Held>),
    All(Arc<GuardSet>),
}

type Ended = Pin<Box<dyn Future<Output = Option<LostReason>> + Send>>;

impl Watched {
    fn reason(&self) -> Option<LostReason> {
        match self {
            Self::One(held) => held.now()?.check().err()?.lost_reason(),
            Self::All(set) => set.check().err()?.lost_reason(),
        }
    }

    /// Completes with the reason when a lease is lost, and with `None` when it was given back.
    async fn ended(self) -> Result<Option<LostReason>, Failure> {
        match self {
            Self::One(held) => loop {
                let Some(guard) = held.now() else { return Ok(None) };
                let ended = guard.ended();
                // Kept no longer than needed: a conversion wants it alone.
                let before = Arc::downgrade(&guard);
                drop(guard);
                if let Some(reason) = ended.await {
                    return Ok(Some(reason));
                }
                // After a step from reading to writing the lease goes on as another.
                match held.now() {
                    Some(now) if !std::ptr::eq(Arc::as_ptr(&now), before.as_ptr()) => {}
                    _ => return Ok(None),
                }
            },
            Self::All(set) => {
                let mut leases: Vec<Ended> =
                    set.guards().iter().map(|guard| Box::pin(guard.ended()) as Ended).collect();
                drop(set);
                Ok(std::future::poll_fn(move |context| {
                    let mut lost = None;
                    leases.retain_mut(|lease| match lease.as_mut().poll(context) {
                        Poll::Ready(reason) => {
                            lost = lost.or(reason);
                            false
                        }
                        Poll::Pending => true,
                    });
                    if lost.is_some() || leases.is_empty() { Poll::Ready(lost) } else { Poll::Pending }
                })
                .await)
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
            Some(watched) => watched.reason().map(LostReason::code),
            None => Some(LostReason::Unverifiable.code()),
        }
    }

    /// Blocks until the lease is lost, at most ``timeout`` seconds. Returns whether it is lost; False
    /// at once when it was given back.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let limit = args::time_limit(timeout)?;
        let Some(watched) = self.watched() else { return Ok(true) };
        let ended = block_at_most(py, limit, watched.clone().ended())?;
        Ok(ended.flatten().is_some())
    }

    fn _start_wait(&self, py: Python<'_>) -> PyResult<StartedCall> {
        let watched = self.watched().cloned();
        let ended = async move {
            match watched {
                Some(watched) => Ok(watched.ended().await?.map(LostReason::code)),
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
