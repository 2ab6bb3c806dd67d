//! What is done around a fork of this process.

use polylatch_bridge::process;
use pyo3::prelude::*;

/// Closes the files of `sqlite:` stores whose clients hold nothing; at most a second.
#[pyfunction(name = "_before_fork")]
pub fn before_fork(py: Python<'_>) {
    py.detach(process::before_fork);
}

#[pyfunction(name = "_after_fork_in_parent")]
pub fn after_fork_in_parent() {
    process::after_fork_in_parent();
}
