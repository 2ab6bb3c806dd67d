//! What Sentinels say of the server that they watch.

use std::collections::HashMap;

use crate::error::Result;

/// What one Sentinel says about the service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Where the master is.
    pub master: (String, u16),
    /// What it knows besides, as `SENTINEL MASTER` tells it; empty if this user may not ask.
    pub fields: HashMap<String, String>,
}

impl Word {
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.parse().ok()
    }
}

/// What came of asking one Sentinel, with its place.
pub(crate) type Report = (String, Result<Word>);
