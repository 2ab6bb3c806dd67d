//! What is held when the interpreter exits is released.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use polylatch_bridge::{Client, run_interruptible};
use pyo3::prelude::*;

use crate::events;

/// The clients of this process, and of those that forked it.
static CLIENTS: Mutex<Vec<Weak<Client>>> = Mutex::new(Vec::new());

/// Remembers a client until it is gone.
pub fn remember(client: &Arc<Client>) {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|client| client.strong_count() > 0);
    clients.push(Arc::downgrade(client));
}

/// Closes every client that was used in this process; at most 5 s for all together.
#[pyfunction(name = "_close_all")]
pub fn close_all(py: Python<'_>) {
    let clients: Vec<_> = {
        let clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    };
    py.detach(|| {
        std::thread::scope(|scope| {
            for client in clients.iter().filter(|client| client.connected().is_some()) {
                scope.spawn(|| run_interruptible(client.close(), || Ok::<(), Infallible>(())));
            }
        });
    });
    // What was lost or could not be released at the end is logged too.
    events::finish(py);
}
