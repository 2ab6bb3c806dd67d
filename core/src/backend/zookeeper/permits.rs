//! Semaphores: the first one of the queue takes its permits when they are free, as Curator's `InterProcessSemaphoreV2` does.
//!
//! Only the first one of `NAME/locks` creates nodes in `NAME/leases`. In one transaction it creates as many as it has
//! permits and leaves the queue, so an operator who has deleted its place is not overlooked, and the next one is woken once.

use std::sync::Arc;

use crate::backend::contenders::records::Record;
use crate::backend::{Answer, Ask, Contender};
use crate::clock::{BootInstant, wall_ms};
use crate::error::{Effect, Error, Result};

use super::acquire::{fits, wait};
use super::acquisitions::{Own, State};
use super::backend::Inner;
use super::protocol::answers::{Answer as Answered, Stat, code};
use super::protocol::nodes::{self, Role};
use super::protocol::requests::{self, Lives};
use super::queue::{Seen, names, used_up};
use super::transport::errors::{refused, unreadable};
use super::transport::session::Session;

impl Inner {
    /// It is the first one of the queue. `None` if what was seen has changed.
    pub(crate) async fn take_permits(
        &self,
        session: &Arc<Session>,
        state: &mut State,
        contender: &Arc<Contender>,
        mut seen: Seen,
        begun: BootInstant,
        ask: Ask,
    ) -> Result<Option<Answer>> {
        let name = contender.name.as_str();
        let Some(own) = state.node.clone() else { return Ok(None) };
        let folder = self.config.nodes.leases(name);
        if !fits(contender.mode, seen.leases.len()) && ask != Ask::Try {
            if !std::mem::replace(&mut state.queued, true) {
                self.say_queued(session, &own, contender);
            }
            // No one but the first waits for permits, so one waiter wakes for each that is released.
            if !session.watches(&folder, contender.owner) {
                let answers =
                    session.ask_for(vec![requests::watched_children(&folder)], Some(contender.owner)).await?;
                let present = names(&answers[0], &folder)?.unwrap_or_default();
                seen.leases = nodes::queue(present).ok_or_else(|| used_up(&folder))?;
            }
        }
        if !fits(contender.mode, seen.leases.len()) {
            let holder = match self.holder_path(contender, &seen) {
                Some(path) => self.holder(session, state, path).await?,
                None => None,
            };
            if ask == Ask::Try {
                self.remove(session, state).await?;
            }
            return Ok(Some(wait(0, holder)));
        }
        // The first one says what all of them are.
        let record = Record::of(contender, wall_ms(), false).bytes();
        let count = contender.mode.permits() as usize;
        let data = [&record[..]].into_iter().chain(std::iter::repeat_n(&b""[..], count - 1));
        let path = format!("{folder}/{}", nodes::without_number(state.id, Role::Permit));
        let take = requests::replace(&own.paths, &path, Lives::WithSessionInOrder, data, self.own_rights());
        state.uncertain = true;
        let answered = session.ask(vec![take]).await;
        if answered.as_ref().map_or_else(Error::effect, |_| Effect::None) == Effect::None {
            state.uncertain = false;
        }
        let answer = answered?.remove(0);
        match answer.code {
            code::OK => {}
            // Its place, or the folder of permits.
            code::NO_NODE => {
                self.make_folders(session, &path).await?;
                return Ok(None);
            }
            code => return Err(refused(code, &folder)),
        }
        let paths = match answer.together().ok_or_else(|| unreadable("a member"))? {
            Ok(created) => created,
            Err(code::NO_NODE) => {
                self.make_folders(session, &path).await?;
                return Ok(None);
            }
            Err(code) => return Err(refused(code, &folder)),
        };
        (state.node, state.has_permits) = (Some(Own { paths, ..Own::default() }), true);
        self.confirm_permits(session, state, contender, begun).await
    }

    /// It was granted permits. `None` if they are gone. A transaction does not answer the number by which it created them.
    pub(crate) async fn confirm_permits(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Arc<Contender>,
        begun: BootInstant,
    ) -> Result<Option<Answer>> {
        let Some(mut own) = state.node.clone() else {
            state.has_permits = false;
            return Ok(None);
        };
        let answers = session.ask(own.paths.iter().map(|path| requests::exists(path)).collect()).await?;
        let is_own = |stat: Stat| stat.session == session.id();
        let are_there = answers.iter().all(|answer| answer.is_ok() && answer.stat().is_some_and(is_own));
        if !are_there || own.paths.len() != contender.mode.permits() as usize {
            self.remove(session, state).await?;
            return Ok(None);
        }
        let created = answers.first().and_then(Answered::stat).map_or(0, |stat| stat.created as u64);
        (own.created, own.fence) = (created, created);
        state.node = Some(own.clone());
        self.hold(session, contender, &own, begun).await.map(Some)
    }
}
