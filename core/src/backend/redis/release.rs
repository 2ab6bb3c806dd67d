//! Releasing, cancelling, converting and breaking.

use std::sync::Arc;

use super::backend::Inner;
use super::protocol::{Listens, broken, converted, released};
use crate::backend::{Contender, Conversion, Released};
use crate::error::Result;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest};

impl Inner {
    pub(crate) async fn convert(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        converted(self.one(self.protocol.convert(&contender, fence, to), self.acknowledge).await?)
    }

    pub(crate) async fn release(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let call = self.protocol.release(&contender, fence);
        let answer = match contender.mode {
            Mode::Mutex => self.usual(&contender, call, None).await?,
            _ => self.one(call, None).await?,
        };
        self.unlisted.remove(&contender);
        released(&answer)
    }

    /// The same, without waiting for company.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) async fn release_alone(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let _under_way = self.together.begin();
        let answer = self.one(self.protocol.release(&contender, fence), None).await?;
        self.unlisted.remove(&contender);
        released(&answer)
    }

    pub(crate) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let listens = Listens { code: self.listening_code(), hears: self.inboxes.hears() };
        self.one(self.protocol.cancel(&contender, listens), None).await?;
        self.unlisted.remove(&contender);
        Ok(())
    }

    pub(crate) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        broken(&name, self.one(self.protocol.break_lease(&name, &request), None).await?)
    }
}
