//! Renewing leases in batches, and announcing who this client is.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::backend::rows::{signed, unsigned};
use crate::backend::{ANNOUNCE_TTL, RenewItem, Renewal};
use crate::client_info::ClientInfo;
use crate::clock::millis;
use crate::error::Result;
use crate::token::OwnerToken;

use super::Server;
use super::store::Store;
use super::value::Cells;

/// How long rows of crashed clients are kept: a waiter that was away may come back to its place.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// How long the row of a lock that is not used is kept.
const UNUSED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// One in so many announcements sweeps: about every five minutes.
const SWEEP_EVERY: u32 = 60;

impl<S: Server> Store<S> {
    /// Extends leases. The rows of their locks are locked in the order of names, as by every other step.
    pub(crate) async fn renew(&self, items: &[RenewItem]) -> Result<Vec<Renewal>> {
        let extended = S::renew(self, items).await?;
        let is_extended =
            |item: &RenewItem| extended.contains(&(item.contender.owner.to_hex(), signed(item.fence.get())));
        let lost: Vec<_> = items.iter().filter(|item| !is_extended(item)).collect();
        if !lost.is_empty() {
            // Told before the answer, so that the holder learns "broken" and not just "not yours".
            self.look_up_breaks(lost.iter().map(|item| item.contender.owner).collect()).await?;
        }
        let renewal =
            |item: &RenewItem| if is_extended(item) { Renewal::Extended } else { Renewal::NotYours };
        Ok(items.iter().map(renewal).collect())
    }

    /// Reports which leases of these owners were broken, by what the store has recorded.
    pub(crate) async fn look_up_breaks(&self, owners: Vec<OwnerToken>) -> Result<()> {
        let owners = owners.into_iter().map(OwnerToken::to_hex).collect();
        let answers = self.ask(&[self.server().broken(owners)], true).await?;
        for (owner, fence) in answers.iter().flatten().map(owner_and_fence) {
            if let Some(owner) = OwnerToken::from_hex(&owner) {
                self.wakeups.revoked(owner, unsigned(fence));
            }
        }
        Ok(())
    }

    pub(crate) async fn announce(&self, client: &ClientInfo) -> Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let ms = |duration: Duration| i64::try_from(millis(duration)).unwrap_or(0);
        self.ask(&self.server().announce(client, ms(ANNOUNCE_TTL)), true).await?;
        if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
            S::sweep(self, ms(FORGOTTEN_AFTER), ms(UNUSED_AFTER)).await?;
        }
        Ok(())
    }
}

pub(crate) fn owner_and_fence(row: &Cells) -> (String, i64) {
    (row.text(0), row.int(1))
}
