//! What a program keeps of a client, and what its end waits for.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::driver::Core;
#[cfg(not(target_family = "wasm"))]
use crate::service::Linger;

/// A share of a client, in everything of it that a program keeps: the client itself, locks and guards.
/// Background work has none, so the last one to go is the end of the program's use of the client.
#[derive(Clone)]
pub(crate) struct Handle {
    core: Arc<Core>,
    _last: Arc<Last>,
}

/// What the last share does when it goes.
struct Last {
    core: Arc<Core>,
    #[cfg(not(target_family = "wasm"))]
    _linger: Option<Linger>,
}

impl Drop for Last {
    fn drop(&mut self) {
        self.core.keep_nothing();
    }
}

impl Handle {
    /// With `lingers`, the last one waits shortly for background releases when it is dropped.
    #[cfg_attr(target_family = "wasm", allow(unused_variables, reason = "an event loop must not block"))]
    pub(crate) fn new(core: Arc<Core>, lingers: bool) -> Self {
        let last = Last {
            #[cfg(not(target_family = "wasm"))]
            _linger: lingers.then(|| core.service.linger()),
            core: Arc::clone(&core),
        };
        Self { core, _last: Arc::new(last) }
    }
}

impl Deref for Handle {
    type Target = Arc<Core>;
    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.core.client.id).finish()
    }
}
