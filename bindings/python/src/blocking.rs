//! Calls that block the calling thread, with the interpreter released.

use std::future::Future;
use std::time::Duration;

use polylatch_bridge::border::caught_call;
use polylatch_bridge::{Failure, Interrupted, run_at_most};
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Runs a call to its end. A signal handler that raises, such as Ctrl-C's, ends the wait and undoes
/// what the call may have done.
pub fn block<T: Send>(py: Python<'_>, call: impl Future<Output = Result<T, Failure>> + Send) -> PyResult<T> {
    let output = block_at_most(py, None, call)?;
    output.ok_or_else(|| unreachable!("without a limit it goes on until it is done"))
}

/// The same with a time limit; `None` when it is over.
pub fn block_at_most<T: Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<Option<T>> {
    // Looks for signals on the main thread; elsewhere it does nothing. While the interpreter shuts down
    // there is nothing left to look for.
    let look = || Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()));
    match py.detach(|| run_at_most(caught_call(call), limit, look)) {
        Ok(Some(Ok(output))) => output.or_raise(py).map(Some),
        Ok(Some(Err(panic))) => Err(panic).or_raise(py),
        Ok(None) => Ok(None),
        Err(Interrupted(error)) => Err(error),
    }
}
