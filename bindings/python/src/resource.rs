//! What a protected resource checks.

use std::sync::{Mutex, PoisonError};

use polylatch::resource;
use pyo3::prelude::*;

use crate::args;
use crate::errors::OrRaise;

/// Remembers the largest fencing token that a resource has seen, and refuses smaller ones.
///
/// One gate guards one resource inside this process; threads may share it. Equal tokens pass: they
/// come from the same holder. For a database, compare and write in one statement instead.
#[pyclass(frozen, module = "polylatch")]
pub struct TokenGate(Mutex<polylatch::TokenGate>);

#[pymethods]
impl TokenGate {
    #[new]
    #[pyo3(signature = (largest=None))]
    fn new(largest: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let gate = match largest {
            Some(largest) => polylatch::TokenGate::resumed_at(args::token(largest)?),
            None => polylatch::TokenGate::new(),
        };
        Ok(Self(Mutex::new(gate)))
    }

    /// Lets a write with this token pass, or raises :class:`StaleToken` because a newer holder was here
    /// before.
    fn admit(&self, py: Python<'_>, fencing_token: &Bound<'_, PyAny>) -> PyResult<()> {
        let token = args::token(fencing_token)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(token).or_raise(py)
    }

    /// The largest token seen, or ``None``.
    #[getter]
    fn largest(&self) -> Option<u64> {
        let gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.largest().map(polylatch::FencingToken::get)
    }

    fn __repr__(&self) -> String {
        self.largest()
            .map_or("<polylatch.TokenGate>".into(), |largest| format!("<polylatch.TokenGate {largest}>"))
    }
}

/// A lock's name, its holder and its fencing token, read from one printable value.
///
/// ``Sequencer("name=orders/42; holder=web-1:4711:9f3a01bc; token=34")``. It tells late writers from
/// present ones, not friends from foes: a client that can send one can invent a token.
///
/// Raises: :class:`InvalidArgument` with the rule that was broken.
#[pyclass(frozen, eq, hash, module = "polylatch")]
#[derive(PartialEq, Hash)]
pub struct Sequencer(resource::Sequencer);

#[pymethods]
impl Sequencer {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        text.parse::<resource::Sequencer>().or_raise(py).map(Self)
    }

    /// The lock's name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The holder, for display; ``None`` if that was not said.
    #[getter]
    fn holder(&self) -> Option<&str> {
        self.0.holder()
    }

    /// The fencing token of the grant.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.0.token().get()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Sequencer({:?})", self.0.to_string())
    }
}
