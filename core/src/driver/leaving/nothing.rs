//! In pages and workers an acquisition does not go behind its own client's releases: every kilobyte is loaded there, and a
//! guard is released by a call that is awaited.

use std::future::Ready;
use std::sync::Arc;

use tokio::runtime;

use crate::service::Service;

pub(super) const GOES_BEHIND: bool = false;

/// Knows of none.
#[derive(Default)]
pub(super) struct Leaving;

/// There is none.
pub(super) enum Leaves {}

impl Leaving {
    pub(super) fn begin(self: &Arc<Self>, _name: &str, _in_turn: Option<runtime::Id>) -> Option<Leaves> {
        None
    }

    pub(super) fn behind(&self, _name: &str, _service: &Service) -> Option<Ready<()>> {
        None
    }
}

impl Leaves {
    pub(super) fn end(self) {
        match self {}
    }
}
