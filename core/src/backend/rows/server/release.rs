//! Releasing, converting, cancelling and breaking.

use crate::backend::rows::Steps;
use crate::backend::{Contender, Conversion, Released};
use crate::error::Result;
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest};

use super::Server;
use super::failure::Failure;
use super::link::Tries;
use super::store::{Concerned, Store, fence as fence_of};
use super::window::Window;

impl<S: Server> Store<S> {
    /// One statement for a lock that no other client holds or waits for, a step for any other.
    pub(crate) async fn release(&self, contender: &Contender, fence: FencingToken) -> Result<Released> {
        self.forget(contender.owner);
        let statement = [self.server().release_alone(contender, fence)];
        let mut tries = Tries::default();
        loop {
            match self.link.ask(&statement, true).await {
                Ok(answers) => match fence_of(&answers) {
                    Some(_) => return Ok(Released::Released),
                    None => break,
                },
                Err(Failure::Collision(_)) => break,
                Err(failure) => tries.again(failure, false)?,
            }
        }
        let concerned = Concerned::contender(contender, false, false);
        self.step(&concerned, |window: &mut Window| window.release(contender, fence)).await
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
