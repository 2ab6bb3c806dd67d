//! The native part of the Python package `polylatch`: arguments in, objects and exceptions out.
//!
//! Blocking calls run on the calling thread with the interpreter released (`blocking`); asyncio calls
//! are polled by the event loop's own thread (`asyncio`). Each operation is written once, as a future.
//! The asyncio classes that users see are in `python/polylatch/_aio.py`, over the `_start_…` methods.

#![allow(missing_debug_implementations, reason = "Python, which has its own `repr`, is the only user")]

use pyo3::prelude::*;

mod args;
mod asyncio;
mod blocking;
mod client;
mod errors;
mod events;
mod exit;
mod fork;
mod guard;
mod guard_set;
mod idempotency;
mod lock;
mod lock_all;
mod lost;
mod resource;
mod sql;
mod sql_runs;

#[pymodule]
mod _polylatch {
    #[pymodule_export]
    use super::asyncio::UnderWayCall;
    #[pymodule_export]
    use super::client::{Client, connect, start_connect};
    #[pymodule_export]
    use super::exit::close_all;
    #[pymodule_export]
    use super::fork::{after_fork_in_parent, before_fork};
    #[pymodule_export]
    use super::guard::Guard;
    #[pymodule_export]
    use super::guard_set::GuardSet;
    #[pymodule_export]
    use super::idempotency::{Claim, Scope};
    #[pymodule_export]
    use super::lock::{Lock, RwLock, Semaphore};
    #[pymodule_export]
    use super::lock_all::LockAll;
    #[pymodule_export]
    use super::lost::Lost;
    #[pymodule_export]
    use super::resource::{Sequencer, TokenGate};
    #[pymodule_export]
    use super::sql::{ConditionalUpdate, FencedUpdate, TransactionLock, VersionedUpdate};
    #[pymodule_export]
    use super::sql_runs::{SqlRun, SqlRuns, SqlTalk, TransactionClaim};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // The first thread that attaches by itself has pyo3 look once more for an interpreter, and panics if that ends at this
        // very moment. Callbacks come late in a program's life; so the first time is now.
        module.py().detach(|| Python::try_attach(|_| ()));
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
