//! Keeping a lease after a release: the request, and what its answer says.

use super::call::{Call, Data, no_answer};
use super::{More, Protocol, scripts};
use crate::backend::{Kept, RenewItem};
use crate::clock::millis;
use crate::error::Result;
use crate::policy::keeping::TOKENS_AHEAD;

impl Protocol {
    pub(crate) fn keep(&self, item: &RenewItem, tokens: u64, listens: u8) -> Call {
        let contender = &item.contender;
        let args = [
            contender.owner.to_hex(),
            item.fence.get().to_string(),
            millis(item.lease).to_string(),
            format!("{:08}", item.renewals.min(99_999_999)),
            tokens.to_string(),
            TOKENS_AHEAD.as_micros().to_string(),
            listens.to_string(),
            contender.client.as_str().to_owned(),
        ];
        self.granting((&scripts::KEEP, More::Holders), &contender.name, args)
    }
}

/// Reads the answer to [`Protocol::keep`].
pub(crate) fn kept(answer: Data) -> Result<Kept> {
    let answer = answer.list()?;
    Ok(match answer.first().ok_or_else(no_answer)?.text()?.as_str() {
        "kept" => match &answer[1..] {
            [] => Kept::Extended { tokens: None },
            [first, last, ..] => Kept::Extended { tokens: Some((first.uint()?, last.uint()?)) },
            _ => return Err(no_answer()),
        },
        "released" => Kept::Released,
        _ => Kept::NotHeld,
    })
}
