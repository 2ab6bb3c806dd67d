//! Renewing leases.

use std::sync::Arc;

use super::backend::Inner;
use super::protocol::renewed;
use crate::backend::{RenewItem, Renewal};
use crate::error::Result;

impl Inner {
    pub(crate) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let renewals = self.protocol.renew(&items);
        let answers = self.port.run(renewals.calls, None).await?;
        let renewed = renewed(&items, renewals.used, answers)?;
        // What was renewed is listed, and what is not held any more need not be.
        for (item, _) in items.iter().zip(&renewed).filter(|(_, renewal)| **renewal != Renewal::Unknown) {
            self.unlisted.remove(&item.contender);
        }
        Ok(renewed)
    }
}
