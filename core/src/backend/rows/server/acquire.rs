//! Acquiring: one statement for a lock that is free, a step for any other.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::rows::{Steps, ceil_ms};
use crate::backend::{Answer, AnswerAll, Ask, Contender};
use crate::error::Result;
use crate::mode::Mode;

use super::failure::Failure;
use super::link::Tries;
use super::read::waits;
use super::store::{Concerned, Store, fence};
use super::window::Window;
use super::{Asked, Server};

impl<S: Server> Store<S> {
    pub(crate) async fn poll(&self, contender: &Contender, ask: Ask) -> Result<Answer> {
        let answer = match ask {
            Ask::Wait { near_heartbeat, far_heartbeat, .. } if self.queued().contains(&contender.owner) => {
                // Nothing in the row of a lock says that the session of its holder is over.
                if self.is_orphaned(contender.name.as_str()).await? {
                    None
                } else {
                    self.beat(contender, near_heartbeat, far_heartbeat).await?
                }
            }
            _ => {
                // A lock that clients waited for lately is hardly free.
                let is_wanted = self.is_wanted(contender.name.as_str());
                let entered = if is_wanted { None } else { self.enter(contender).await? };
                if entered.is_some() {
                    entered
                } else if self.is_orphaned(contender.name.as_str()).await? {
                    None
                } else if let Ask::Wait { near_heartbeat, far_heartbeat, .. } = ask {
                    self.queue_behind(contender, near_heartbeat, far_heartbeat).await?
                } else {
                    None
                }
            }
        };
        let mut answer = match answer {
            Some(answer) => answer,
            None => {
                let concerned = Concerned::contender(contender, true, true);
                self.step(&concerned, |window: &mut Window| window.poll(contender, ask)).await?
            }
        };
        match (&mut answer, ask) {
            (Answer::Wait { answer, holder }, Ask::Wait { .. }) => {
                let holder = holder.as_ref().and_then(|holder| holder.client.as_ref());
                let within = answer
                    .position
                    .and_then(|position| self.server().poll_within(contender, position, holder));
                answer.poll_within = [answer.poll_within, within].into_iter().flatten().min();
                self.remember(contender.owner);
                self.note_wanted(contender.name.as_str(), true);
            }
            _ => self.forget(contender.owner),
        }
        Ok(answer)
    }

    /// Takes a lock that is free.
    async fn enter(&self, contender: &Contender) -> Result<Option<Answer>> {
        let statement = [self.server().acquire_free(contender)];
        let mut tries = Tries::default();
        loop {
            match self.link.ask(&statement, true).await {
                Ok(answers) => return Ok(fence(&answers).map(|fence| Answer::Held { fence })),
                // Under another isolation than the usual one it may fail where the step waits.
                Err(Failure::Collision(_)) => return Ok(None),
                Err(failure) => tries.again(failure, true)?,
            }
        }
    }

    /// Records a heartbeat where there is nothing else to do. It may be lost in a crash of the server.
    async fn beat(&self, contender: &Contender, near: Duration, far: Duration) -> Result<Option<Answer>> {
        match self.server().heartbeat(contender, ceil_ms(near), ceil_ms(far)) {
            Some(asked) => self.waits(asked).await,
            None => Ok(None),
        }
    }

    /// Queues where there is nothing else to do.
    async fn queue_behind(
        &self,
        contender: &Contender,
        near: Duration,
        far: Duration,
    ) -> Result<Option<Answer>> {
        if contender.mode != Mode::Mutex {
            return Ok(None);
        }
        match self.server().queue_behind(contender, ceil_ms(near), ceil_ms(far), self.timeout_ms()) {
            Some(asked) => self.waits(asked).await,
            None => Ok(None),
        }
    }

    /// The answer to a waiter, from a request that is a step of its own; `None` if a step decides.
    async fn waits(&self, asked: Asked) -> Result<Option<Answer>> {
        let mut tries = Tries::default();
        loop {
            match self.link.ask(&asked.statements, true).await {
                Ok(answers) => return Ok(answers[asked.at].first().map(waits)),
                Err(Failure::Collision(_)) => return Ok(None),
                Err(failure) => tries.again(failure, true)?,
            }
        }
    }

    /// As by `poll`, for several locks: see `Backend::take_all`.
    pub(crate) async fn take_all(&self, contenders: &[Arc<Contender>]) -> Result<AnswerAll> {
        let concerned = Concerned {
            names: contenders.iter().map(|contender| contender.name.as_str().to_owned()).collect(),
            owners: contenders.iter().map(|contender| contender.owner.to_hex()).collect(),
            make: true,
            repeats: true,
        };
        let answer = self.step(&concerned, |window: &mut Window| window.take_all(contenders)).await?;
        if answer == AnswerAll::Refused {
            for name in &concerned.names {
                self.is_orphaned(name).await?;
            }
        }
        Ok(answer)
    }

    pub(crate) async fn steal(&self, contender: &Contender, reason: &str) -> Result<Answer> {
        let concerned = Concerned::contender(contender, true, true);
        self.step(&concerned, |window: &mut Window| window.steal(contender, reason)).await
    }
}

impl Concerned {
    pub(crate) fn contender(contender: &Contender, make: bool, repeats: bool) -> Self {
        Self {
            names: vec![contender.name.as_str().to_owned()],
            owners: vec![contender.owner.to_hex()],
            make,
            repeats,
        }
    }
}
