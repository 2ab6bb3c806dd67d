//! Entering, queueing, and finding out whose turn it is.

use std::sync::Arc;

use crate::backend::contenders::records::{Record, hint};
use crate::backend::{Answer, Ask, Contender};
use crate::clock::{BootInstant, Clock, SystemClock, wall_ms};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitAnswer;

use super::backend::Inner;
use super::protocol::answers::Entry;
use super::protocol::requests;
use super::sessions::Acquisition;
use super::transport::errors::is_lease_gone;

/// How often one poll begins again because its lease or its key was gone.
const TRIES: usize = 3;

/// A lease that lasts for long enough, and what has to be confirmed first if it was just renewed.
struct Fresh {
    id: i64,
    renewal: Option<Unconfirmed>,
}

/// A renewal of a leader that may have been deposed without knowing it: it counts only if what was read from a majority
/// afterwards is of the same term.
#[derive(Clone, Copy)]
struct Unconfirmed {
    sent_at: BootInstant,
    term: u64,
}

/// Where a contender stands.
enum Place {
    Holds {
        fence: u64,
    },
    Waits {
        oldest: Entry,
        before: Option<Entry>,
        position: u32,
        revision: u64,
    },
    /// Its key is no longer there.
    Gone,
    /// Its key is there; the rest has to be asked.
    Present {
        fence: u64,
    },
}

impl Inner {
    pub(crate) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let acquisition = self.sessions.of(contender.owner);
        let _turn = acquisition.turn.lock().await;
        for _ in 0..TRIES {
            let fresh = self.fresh(&acquisition, &contender).await?;
            let fence = acquisition.state().fence;
            let (place, term) = match fence {
                Some(fence) => self.stand(&contender, fresh.id, fence).await?,
                None => match self.enter(&acquisition, &contender, fresh.id, ask != Ask::Try).await {
                    Err(error) if is_lease_gone(&error) => {
                        acquisition.state().lease = None;
                        continue;
                    }
                    entered => entered?,
                },
            };
            if let Some(renewal) = fresh.renewal {
                confirm(&acquisition, renewal, term)?;
            }
            match place {
                Place::Holds { fence } => {
                    acquisition.state().fence = Some(fence);
                    acquisition.stop_watching();
                    return Ok(Answer::Held { fence: FencingToken::new(fence) });
                }
                Place::Waits { oldest, before, position, revision } => {
                    if oldest.lease == 0 {
                        return Err(self.not_a_lock(&contender, &oldest).await);
                    }
                    match before {
                        Some(before) => self.watch(&acquisition, contender.owner, &before.key, revision),
                        None => self.leave_nothing(&acquisition, &contender),
                    }
                    return Ok(Answer::Wait {
                        answer: WaitAnswer {
                            fence: oldest.created,
                            position: Some(position),
                            holder_left: None,
                            poll_within: None,
                        },
                        holder: Some(hint(&oldest.value, wall_ms())),
                    });
                }
                Place::Gone => acquisition.state().fence = None,
                Place::Present { fence } => acquisition.state().fence = Some(fence),
            }
        }
        Err(Error::new(
            ErrorKind::BackendUnavailable,
            "the key of this acquisition was deleted again and again; it is tried again",
        ))
    }

    /// Sees to it that the acquisition has a lease that lasts for its first lease from now on.
    async fn fresh(&self, acquisition: &Acquisition, contender: &Contender) -> Result<Fresh> {
        let now = SystemClock.now();
        let present = acquisition.state().lease.clone();
        if let Some(lease) = present {
            if lease.lasts(now, contender.first_lease) {
                return Ok(Fresh { id: lease.id, renewal: None });
            }
            let renewed = self.api.keep_alive(&[lease.id]).await?;
            if let Some(renewed) = renewed.first().filter(|renewed| renewed.ttl > 0) {
                let renewal = Unconfirmed { sent_at: now, term: renewed.header.raft_term };
                return Ok(Fresh { id: lease.id, renewal: Some(renewal) });
            }
            // It has expired or was revoked, and its key went with it.
            let mut state = acquisition.state();
            (state.lease, state.fence, state.uncertain) = (None, None, false);
        }
        let longest = contender.lease.max(contender.first_lease);
        let lease = self.sessions.lease(&self.api, longest, contender.first_lease).await?;
        let id = lease.id;
        let mut state = acquisition.state();
        if state.ended {
            drop(state);
            self.put_back(lease);
            return Err(Error::new(ErrorKind::Canceled, "this acquisition was cancelled"));
        }
        state.lease = Some(lease);
        Ok(Fresh { id, renewal: None })
    }

    /// Creates its key: as the only one, or behind the others if it waits.
    async fn enter(
        &self,
        acquisition: &Acquisition,
        contender: &Contender,
        lease: i64,
        waits: bool,
    ) -> Result<(Place, u64)> {
        let name = contender.name.as_str();
        let (folder, key) = (self.keys.folder(name), self.keys.contender(name, lease));
        let now = wall_ms();
        let granted = Record::of(contender, now, false).bytes();
        let queued = waits.then(|| Record::of(contender, now, true).bytes());
        let request = requests::enter(&folder, &key, lease, &granted, queued.as_deref());
        let was_uncertain = std::mem::replace(&mut acquisition.state().uncertain, true);
        let answered = self.api.transact_once(&request).await;
        // Whether it was carried out is known, unless it is said not to be.
        if answered.as_ref().map_or_else(Error::effect, |_| Effect::None) == Effect::None {
            acquisition.state().uncertain = was_uncertain;
        }
        let answer = answered?;
        let (term, revision) = (answer.header.raft_term, answer.header.revision);
        if answer.succeeded {
            return Ok((Place::Holds { fence: revision }, term));
        }
        let oldest = answer.found(usize::from(waits)).first().cloned().unwrap_or_default();
        if oldest.key == key {
            return Ok((Place::Holds { fence: oldest.created }, term));
        }
        let Some(queue) = answer.inner(0) else {
            // Behind all who are there, if it waited.
            let position = (answer.count(0).saturating_sub(1)) as u32;
            return Ok((Place::Waits { oldest, before: None, position, revision }, term));
        };
        let place = match (queue.succeeded, queue.found(0).first(), answer.found(2).get(1)) {
            (true, _, Some(before)) => {
                acquisition.state().fence = Some(revision);
                let position = (answer.count(2).saturating_sub(2)) as u32;
                Place::Waits { oldest, before: Some(before.clone()), position, revision }
            }
            (true, _, None) => Place::Present { fence: revision },
            (false, Some(own), _) => Place::Present { fence: own.created },
            (false, None, _) => Place::Gone,
        };
        Ok((place, term))
    }

    /// Asks where its key stands.
    async fn stand(&self, contender: &Contender, lease: i64, fence: u64) -> Result<(Place, u64)> {
        let name = contender.name.as_str();
        let answer = self.api.transact(&requests::stand(&self.keys.folder(name), fence)).await?;
        let (term, revision) = (answer.header.raft_term, answer.header.revision);
        let own = self.keys.contender(name, lease);
        let up_to = answer.found(1);
        let place = match (answer.found(0).first(), up_to.first(), up_to.get(1)) {
            (Some(oldest), Some(mine), before) if mine.created == fence && mine.key == own => {
                match before {
                    None => Place::Holds { fence },
                    Some(before) => Place::Waits {
                        oldest: oldest.clone(),
                        before: Some(before.clone()),
                        // Of those further in front it does not matter how many they are.
                        position: (up_to.len() - 2) as u32,
                        revision,
                    },
                }
            }
            _ => Place::Gone,
        };
        Ok((place, term))
    }

    /// The oldest key hangs on no lease, so it is no contender's and would never end.
    async fn not_a_lock(&self, contender: &Contender, entry: &Entry) -> Error {
        if let Some(acquisition) = self.sessions.forget(contender.owner) {
            let lease = acquisition.state().lease.take();
            if let Some(lease) = lease {
                // What cannot be revoked expires.
                let _ = self.api.revoke(lease.id).await;
            }
        }
        Error::new(
            ErrorKind::NameConflict,
            format!(
                "key {:?} holds a value that Polylatch did not write and that has no lease; it was not modified; use \
                 another name or prefix",
                entry.key
            ),
        )
    }

    /// Forgets a contender that does not wait. Its lease has no key, unless a request is still on its way.
    fn leave_nothing(&self, acquisition: &Acquisition, contender: &Contender) {
        let (lease, uncertain) = {
            let mut state = acquisition.state();
            state.ended = true;
            (state.lease.take(), state.uncertain)
        };
        self.sessions.forget(contender.owner);
        match lease {
            Some(lease) if uncertain => self.revoke_later(lease.id),
            Some(lease) => self.put_back(lease),
            None => {}
        }
    }
}

/// Counts a renewal if no other leader was elected meanwhile.
fn confirm(acquisition: &Acquisition, renewal: Unconfirmed, term: u64) -> Result<()> {
    if renewal.term != term {
        return Err(elected());
    }
    if let Some(lease) = &mut acquisition.state().lease {
        lease.renewed = renewal.sent_at;
    }
    Ok(())
}

pub(crate) fn elected() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "etcd elected another leader during a renewal, so it does not count; it is sent again",
    )
}
