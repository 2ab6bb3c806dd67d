//! Releasing, converting, cancelling and breaking.

use crate::backend::rows::{Push, Steps, unsigned};
use crate::backend::{Contender, Conversion, Released};
use crate::error::Result;
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest};
use crate::token::OwnerToken;

use super::failure::Failure;
use super::link::Tries;
use super::store::{Concerned, Store};
use super::value::Cells;
use super::window::Window;
use super::{Asked, Server};

impl<S: Server> Store<S> {
    /// One statement for a lock that no other client holds or waits for, one request where the first waiter gets it, and a
    /// step for any other.
    pub(crate) async fn release(&self, contender: &Contender, fence: FencingToken) -> Result<Released> {
        self.forget(contender.owner);
        let name = contender.name.as_str();
        // Which of them is tried first is only a matter of time.
        let was_wanted = self.is_wanted(name);
        if was_wanted && self.hand_over(contender, fence).await? {
            return Ok(Released::Released);
        }
        let alone = vec![self.server().release_alone(contender, fence)];
        if self.one_row(Asked { statements: alone, at: 0 }).await?.is_some() {
            self.note_wanted(name, false);
            return Ok(Released::Released);
        }
        if !was_wanted && self.hand_over(contender, fence).await? {
            self.note_wanted(name, true);
            return Ok(Released::Released);
        }
        let concerned = Concerned::contender(contender, false, false);
        self.step(&concerned, |window: &mut Window| window.release(contender, fence)).await
    }

    /// Whether the first waiter got the lock in one request.
    async fn hand_over(&self, contender: &Contender, fence: FencingToken) -> Result<bool> {
        if contender.mode != Mode::Mutex {
            return Ok(false);
        }
        let Some(asked) = self.server().hand_over(contender, fence) else { return Ok(false) };
        let Some(row) = self.one_row(asked).await? else { return Ok(false) };
        let (client, fence) = (row.text(0), unsigned(row.int(2)));
        let Some(owner) = OwnerToken::from_hex(&row.text(1)) else { return Ok(true) };
        self.deliver(&[(client, Push::Granted { owner, fence })]);
        Ok(true)
    }

    /// The row that a request answers with, which is a step of its own. Where it meets another transaction, a step
    /// decides.
    async fn one_row(&self, asked: Asked) -> Result<Option<Cells>> {
        let mut tries = Tries::default();
        loop {
            match self.link.ask(&asked.statements, true).await {
                Ok(mut answers) => return Ok(answers.swap_remove(asked.at).pop()),
                Err(Failure::Collision(_)) => return Ok(None),
                Err(failure) => tries.again(failure, false)?,
            }
        }
    }

    pub(crate) async fn convert(
        &self,
        contender: &Contender,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        let concerned = Concerned::contender(contender, false, false);
        self.step(&concerned, |window: &mut Window| window.convert(contender, fence, to)).await
    }

    pub(crate) async fn cancel(&self, contender: &Contender) -> Result<()> {
        self.forget(contender.owner);
        let concerned = Concerned::contender(contender, false, true);
        self.step(&concerned, |window: &mut Window| window.cancel(contender)).await
    }

    pub(crate) async fn break_lease(&self, request: &BreakRequest) -> Result<BreakOutcome> {
        let concerned = Concerned {
            names: vec![request.name.clone()],
            owners: vec![String::new()],
            make: false,
            repeats: false,
        };
        self.step(&concerned, |window: &mut Window| window.break_lease(request)).await
    }
}
