//! Changing between reading and writing, without giving the place up.

use std::sync::Arc;

use crate::backend::contenders::records::Record;
use crate::backend::{Contender, Conversion};
use crate::clock::{Clock, SystemClock, wall_ms};
use crate::error::{Effect, Error, Result};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;

use super::acquisitions::{Own, State};
use super::backend::Inner;
use super::protocol::answers::code;
use super::protocol::nodes::{self, Role};
use super::protocol::requests::{self, Lives};
use super::protocol::turns;
use super::queue::names;
use super::transport::errors::{refused, unreadable};
use super::transport::session::Session;

impl Inner {
    pub(crate) async fn convert(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        let Some(acquisition) = self.acquisitions.get(contender.owner) else {
            return Ok(Conversion::NotHeld);
        };
        let mut state = acquisition.state.lock().await;
        let own = state.node.clone().filter(|own| own.fence == fence.get());
        let session = state.session.clone().filter(|session| !session.is_ended());
        let (Some(own), Some(session)) = (own, session) else { return Ok(Conversion::NotHeld) };
        let begun = SystemClock.now();
        // Before anything is changed, so that a session that is not known to live is no loss.
        self.make_sure(&session, begun, &contender).await?;
        let contender = Arc::new(Contender { mode: to, ..(*contender).clone() });
        // Until what came of it is known, its nodes are looked for by their name.
        state.uncertain = true;
        let done = match to {
            Mode::Write => self.upgrade(&session, &mut state, &contender, own).await,
            _ => self.downgrade(&session, &mut state, &contender, own).await,
        };
        if done.as_ref().map_or_else(Error::effect, |_| Effect::None) == Effect::None {
            state.uncertain = false;
        }
        let done = done?;
        if let Conversion::Done { fence } = done {
            session.forget(contender.owner);
            session.holds(contender.owner, fence.get());
            self.leases.hold(&contender, begun + contender.first_lease);
        }
        Ok(done)
    }

    /// The reader takes the number of the writer, before all who wait, in the transaction that ends the writer. Curator
    /// does the same.
    async fn downgrade(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
        own: Own,
    ) -> Result<Conversion> {
        let folder = self.config.nodes.queue(contender.name.as_str(), contender.mode);
        let path = format!("{folder}/{}", nodes::with_number(state.id, Role::Read, number(&own)));
        let record = Record::of(contender, wall_ms(), false).with_fence(own.fence).bytes();
        let replace =
            requests::replace(&own.paths, &path, Lives::WithSession, [&record[..]], self.own_rights());
        let answers = session.ask(vec![replace, requests::exists(&path)]).await?;
        let replaced = match answers[0].code {
            code::OK => answers[0].together().ok_or_else(|| left(unreadable("a member")))?,
            code => Err(code),
        };
        match replaced {
            Ok(_) => {
                // An operator has deleted it meanwhile.
                let Some(stat) = answers[1].stat().filter(|_| answers[1].is_ok()) else {
                    return Ok(Conversion::NotHeld);
                };
                state.node = Some(Own { paths: vec![path], created: stat.created as u64, fence: own.fence });
                Ok(Conversion::Done { fence: FencingToken::new(own.fence) })
            }
            Err(code::NO_NODE) => Ok(Conversion::NotHeld),
            Err(code) => Err(refused(code, &path)),
        }
    }

    /// The writer takes the number of the reader beside it: from then on no other reader enters. If one had entered before,
    /// the writer goes, and otherwise the reader.
    async fn upgrade(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
        own: Own,
    ) -> Result<Conversion> {
        let folder = self.config.nodes.queue(contender.name.as_str(), contender.mode);
        let path = format!("{folder}/{}", nodes::with_number(state.id, Role::Write, number(&own)));
        let record = Record::of(contender, wall_ms(), false).bytes();
        let create = requests::create(&path, &record, Lives::WithSession, self.own_rights());
        let answers = session.ask(vec![create, requests::children(&folder)]).await?;
        match answers[0].code {
            code::OK => {}
            code::NO_NODE => return Ok(Conversion::NotHeld),
            code => return Err(refused(code, &path)),
        }
        let (_, stat) = answers[0].created().ok_or_else(|| left(unreadable("a member")))?;
        let all = names(&answers[1], &folder).map_err(left)?.unwrap_or_default();
        let queue = nodes::queue(all).ok_or_else(|| left(super::queue::used_up(&folder)))?;
        let is_ours = |node: &str| node.starts_with(&nodes::own(state.id));
        // Without the two of ours, as everyone saw it who came before the writer.
        let others: Vec<_> = queue.into_iter().filter(|place| !is_ours(&place.node)).collect();
        let front = turns::holders(&others);
        let paths = others[..front].iter().map(|place| format!("{folder}/{}", place.node));
        let readers: Vec<_> = paths.collect();
        let found = match readers.is_empty() {
            true => Vec::new(),
            false => session
                .ask(readers.iter().map(|path| requests::exists(path)).collect())
                .await
                .map_err(left)?,
        };
        // One that came later waits behind the writer.
        let is_earlier = |created: i64| created < stat.created;
        let has_others = found.iter().zip(&others).any(|(answer, place)| {
            place.role() == Role::Read
                && answer.is_ok()
                && answer.stat().is_some_and(|one| is_earlier(one.created))
        });
        let gone = if has_others { &path } else { &own.paths[0] };
        let answers = session.ask(vec![requests::delete(gone)]).await.map_err(left)?;
        match (has_others, answers[0].code) {
            (true, code::OK | code::NO_NODE) => Ok(Conversion::Refused),
            (false, code::OK) => {
                let created = stat.created as u64;
                state.node = Some(Own::created([path], created));
                Ok(Conversion::Done { fence: FencingToken::new(created) })
            }
            // An operator has ended the lease meanwhile: the writer is no one's.
            (false, code::NO_NODE) => {
                session.ask(vec![requests::delete(&path)]).await.map_err(left)?;
                Ok(Conversion::NotHeld)
            }
            (_, code) => Err(left(refused(code, gone))),
        }
    }
}

/// The error of a conversion that may have been carried out in part.
fn left(error: Error) -> Error {
    error.with_effect(Effect::Maybe)
}

/// The number by which it is queued.
fn number(own: &Own) -> u64 {
    nodes::queue(vec![own.name().to_owned()])
        .and_then(|queue| Some(queue.first()?.number))
        .unwrap_or_default()
}
