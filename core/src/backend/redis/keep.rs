//! Keeping a lease after a release.

use std::sync::Arc;

use super::backend::Inner;
use super::protocol::keep::kept;
use crate::backend::{Kept, RenewItem};
use crate::error::Result;

impl Inner {
    pub(crate) async fn keep(self: Arc<Self>, item: RenewItem, tokens: u64) -> Result<Kept> {
        // Heard for as long as the lease lasts.
        let turn = self.listens(item.lease).await;
        let call = self.protocol.keep(&item, tokens, self.listening_code());
        let answer = self.in_turn(turn, self.one(call, self.acknowledge)).await?;
        self.unlisted.remove(&item.contender);
        kept(answer)
    }
}
