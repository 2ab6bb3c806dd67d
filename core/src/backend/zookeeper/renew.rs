//! Renewing leases: all locks of a session in one round trip.

use std::sync::Arc;

use crate::backend::{RenewItem, Renewal};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;

use super::acquire::unconfirmed;
use super::acquisitions::Own;
use super::backend::Inner;
use super::protocol::requests;
use super::transport::errors::refused;
use super::transport::session::{Session, is_probed};

/// How many nodes one round trip looks at.
const TOGETHER: usize = 200;

/// One lease to renew: its place among the items, and its nodes.
struct Held {
    at: usize,
    session: Arc<Session>,
    own: Own,
}

impl Inner {
    /// A session that is known to live says nothing of a node: an operator may have broken the lock. So the nodes are
    /// read, behind a request that a majority logs: what it shows is not older than that.
    pub(crate) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let mut renewals = vec![Renewal::NotYours; items.len()];
        let mut held = Vec::new();
        for (at, item) in items.iter().enumerate() {
            held.extend(self.held(at, item).await);
        }
        let mut unsure = false;
        while let Some(first) = held.first() {
            let session = Arc::clone(&first.session);
            let (mut some, rest): (Vec<_>, Vec<_>) =
                held.into_iter().partition(|one| Arc::ptr_eq(&one.session, &session));
            held = rest;
            held.extend(some.split_off(some.len().min(TOGETHER)));
            let begun = SystemClock.now();
            let mut together = vec![session.probe()];
            together.extend(some.iter().flat_map(|one| &one.own.paths).map(|path| requests::exists(path)));
            let answers = match session.ask(together).await {
                // The loss was reported when the session ended.
                Err(_) if session.is_ended() => continue,
                answers => answers?,
            };
            if !is_probed(&answers[0]) {
                return Err(refused(answers[0].code, self.config.nodes.root()));
            }
            let mut answers = answers[1..].iter();
            for one in &some {
                let item = &items[one.at];
                let mut is_own = true;
                for answer in answers.by_ref().take(one.own.paths.len()) {
                    is_own &= answer.is_ok()
                        && answer.stat().is_some_and(|stat| {
                            stat.session == session.id() && stat.created as u64 == one.own.created
                        });
                }
                match is_own {
                    true if session.lasts(begun, item.lease) => {
                        if self.leases.extend(item.contender.owner, begun + item.lease) {
                            renewals[one.at] = Renewal::Extended;
                        }
                    }
                    true => unsure = true,
                    false => session.forget(item.contender.owner),
                }
            }
        }
        match unsure {
            true => Err(unconfirmed()),
            false => Ok(renewals),
        }
    }

    async fn held(&self, at: usize, item: &RenewItem) -> Option<Held> {
        let acquisition = self.acquisitions.get(item.contender.owner)?;
        let state = acquisition.state.lock().await;
        let own = state.node.as_ref().filter(|own| own.fence == item.fence.get())?;
        let session = state.session.as_ref().filter(|session| !session.is_ended())?;
        Some(Held { at, session: Arc::clone(session), own: own.clone() })
    }
}
