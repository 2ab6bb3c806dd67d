//! Ending leases whose holders did not release them: by an operator, or by a contender that takes the lock.

use std::sync::Arc;

use super::{Holder, Now, Push, Store};
use crate::backend::{AUDIT_LENGTH, Answer, Contender};
use crate::policy::fencing::FencingToken;
use crate::snapshot::{AuditEntry, BreakOutcome, BreakRequest};

impl Store {
    /// Ends a lease that still has the expected fence.
    pub(crate) fn break_lease(&mut self, now: Now, request: &BreakRequest) -> (BreakOutcome, Vec<Push>) {
        let mut lock = self.take(&request.name, now);
        let mut pushes = Vec::new();
        let outcome = match lock.end(|holder| holder.fence == request.expected.get()) {
            Some(victim) => {
                pushes.push(self.broken(now, &victim, &request.by, &request.reason));
                let next = self.grant_next(&mut lock, now);
                let next_client = next.first().and_then(|push| match push {
                    Push::Granted { owner, .. } => lock.held_by(*owner),
                    Push::Revoked { .. } | Push::Wanted { .. } => None,
                });
                let outcome = BreakOutcome::Broken {
                    holder: victim.contender.client.clone(),
                    next: next_client.map(|next| next.contender.client.clone()),
                };
                pushes.extend(next);
                outcome
            }
            None => match lock.holders.iter().map(|holder| holder.fence).max() {
                None => BreakOutcome::Free,
                Some(present) => BreakOutcome::ChangedHands { present: FencingToken::new(present) },
            },
        };
        self.put(request.name.clone(), lock);
        (outcome, pushes)
    }

    /// Ends every lease of a lock and grants it to the contender, before all waiters: see `Backend::steal`.
    pub(crate) fn steal(
        &mut self,
        now: Now,
        contender: &Arc<Contender>,
        reason: &str,
    ) -> (Answer, Vec<Push>) {
        let mut pushes = Vec::new();
        let name = contender.name.as_str().to_owned();
        let mut lock = self.take(&name, now);
        let answer = 'answer: {
            lock.live_head(now);
            if let Some(present) = lock.kind(now).filter(|kind| *kind != contender.mode.kind()) {
                break 'answer Answer::OtherKind { present };
            }
            if let Some(fence) = lock.confirm(contender, now) {
                break 'answer Answer::Held { fence };
            }
            let mut victims = std::mem::take(&mut lock.holders);
            victims.sort_by_key(|victim| victim.fence);
            for victim in &victims {
                pushes.push(self.broken(now, victim, contender.client.as_str(), reason));
            }
            lock.leave_line(contender.owner);
            Answer::Held { fence: FencingToken::new(self.grant(&mut lock, contender, now)) }
        };
        self.put(name, lock);
        (answer, pushes)
    }

    /// Records a broken lease; returns the message to its client.
    fn broken(&mut self, now: Now, victim: &Holder, by: &str, reason: &str) -> Push {
        self.audit.push_front(AuditEntry {
            at_ms: now.wall_us / 1000,
            name: victim.contender.name.as_str().to_owned(),
            fencing_token: FencingToken::new(victim.fence),
            holder: victim.contender.client.clone(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
        self.audit.truncate(AUDIT_LENGTH);
        Push::Revoked { owner: victim.contender.owner, fence: victim.fence }
    }
}
