//! Acquiring one lock, or several in one step.

use std::sync::Arc;

use super::backend::Inner;
use super::protocol::call::Data;
use super::protocol::{Listens, stolen};
use super::transport::port::Pushes;
use crate::backend::{Answer, AnswerAll, Ask, Contender};
use crate::error::Result;
use crate::mode::Mode;

impl Inner {
    pub(crate) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let Ask::Wait { near_heartbeat, far_heartbeat, .. } = ask else {
            return self.poll_as(&contender, ask, 0).await;
        };
        if self.port.pushes() == Pushes::InSlot && !self.hears_here() {
            // Most locks are free, and every shard would be one more to listen in. It may be queued already.
            let answer = self.poll_as(&contender, Ask::Try, self.listening_code()).await?;
            if !matches!(answer, Answer::Wait { .. }) {
                return Ok(answer);
            }
        }
        let turn = self.listens(near_heartbeat.max(far_heartbeat)).await;
        self.in_turn(turn, self.poll_as(&contender, ask, self.listening_code())).await
    }

    /// How a waiter of this client is notified of its grant; part of its record.
    pub(crate) fn listening_code(&self) -> u8 {
        if self.inboxes.may_listen() { self.port.pushes().code() } else { 0 }
    }

    async fn poll_as(&self, contender: &Contender, ask: Ask, code: u8) -> Result<Answer> {
        let listens = Listens { code, hears: self.inboxes.hears() };
        let call = self.protocol.poll(contender, ask, listens)?;
        let answer = match contender.mode {
            Mode::Mutex => self.usual(contender, call, self.acknowledge).await?,
            _ => self.one(call, self.acknowledge).await?,
        };
        // Only a new grant is answered with its fence alone.
        let is_new = !matches!(answer, Data::List(_));
        let answer = self.protocol.polled(contender, listens, answer)?;
        if is_new {
            self.unlisted.add(contender);
        }
        Ok(answer)
    }

    pub(crate) async fn steal(self: Arc<Self>, contender: Arc<Contender>, reason: String) -> Result<Answer> {
        let listens = Listens { code: self.listening_code(), hears: self.inboxes.hears() };
        let call = self.protocol.steal(&contender, listens, &reason)?;
        stolen(&contender, self.one(call, self.acknowledge).await?)
    }

    pub(crate) async fn take_all(self: Arc<Self>, contenders: Vec<Arc<Contender>>) -> Result<AnswerAll> {
        if contenders.is_empty() {
            return Ok(AnswerAll::Held { fences: Vec::new() });
        }
        let call = self.protocol.take_all(&contenders)?;
        let answer = self.one(call, self.acknowledge).await?;
        let answer = self.protocol.taken_all(&contenders, answer)?;
        if matches!(answer, AnswerAll::Held { .. }) {
            contenders.iter().for_each(|contender| self.unlisted.add(contender));
        }
        Ok(answer)
    }
}
