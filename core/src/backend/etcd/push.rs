//! Each waiter watches the key before its own, so that the end of a key wakes one waiter and not all.

use std::sync::Arc;

use crate::token::OwnerToken;

use super::backend::Inner;
use super::sessions::Acquisition;

impl Inner {
    /// Wakes a waiter when this key is deleted. One watch at a time; the next poll starts a new one after a failure.
    pub(crate) fn watch(&self, acquisition: &Arc<Acquisition>, owner: OwnerToken, key: &str, revision: u64) {
        let mut state = acquisition.state();
        if state.ended
            || state.watch.as_ref().is_some_and(|(watched, task)| watched == key && !task.is_finished())
        {
            return;
        }
        let (api, wakeups, watched) = (Arc::clone(&self.api), Arc::clone(&self.wakeups), key.to_owned());
        let task = self.runtime.spawn(async move {
            match api.watch_end(&watched, revision + 1).await {
                // Not a grant: whether its own key is still there has to be asked.
                Ok(()) => wakeups.hint(owner),
                Err(error) => tracing::debug!(%error, "a watch ended; the waiter polls"),
            }
        });
        if let Some((_, before)) = state.watch.replace((key.to_owned(), task)) {
            before.abort();
        }
    }
}
