//! Releasing, cancelling, converting and breaking: the requests, and what their answers say.

use super::call::{Call, Data, no_answer};
use super::records::{mode_code, waiter_record};
use super::{Listens, More, Protocol, foreign_data, lists_at_once, one_of, scripts, unreadable};
use crate::backend::{AUDIT_LENGTH, Contender, Conversion, Released};
use crate::clock::millis;
use crate::error::Result;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest};
use crate::token::ClientId;

impl Protocol {
    pub(crate) fn release(&self, contender: &Contender, fence: FencingToken) -> Call {
        let owner = contender.owner.to_hex();
        if contender.mode != Mode::Mutex {
            let script = (&*scripts::SHARED_RELEASE, More::HoldersAndDetails);
            return self.granting(script, &contender.name, [owner, fence.get().to_string()]);
        }
        let spelled = self.keys.spell(&contender.name);
        let keys = self.keys.usual(&spelled);
        let mut args = vec![owner, format!("|{}|", fence.get()), format!("{} {spelled}", self.packed_args)];
        args.extend(lists_at_once(contender).then_some(spelled));
        Call { script: &scripts::RELEASE, keys, args }
    }

    pub(crate) fn cancel(&self, contender: &Contender, listens: Listens) -> Call {
        let args = [contender.owner.to_hex(), waiter_record(contender, listens.code)];
        let script = one_of(contender, (&scripts::CANCEL, More::Holders), &scripts::SHARED_CANCEL);
        self.granting(script, &contender.name, args)
    }

    pub(crate) fn convert(&self, contender: &Contender, fence: FencingToken, to: Mode) -> Call {
        let args = [
            contender.owner.to_hex(),
            fence.get().to_string(),
            mode_code(to),
            millis(contender.first_lease).to_string(),
        ];
        self.granting((&scripts::CONVERT, More::HoldersAndDetails), &contender.name, args)
    }

    /// Ends the lease of another client.
    pub(crate) fn break_lease(&self, name: &LockName, request: &BreakRequest) -> Call {
        let spelled = self.keys.spell(name);
        let mut keys = self.granting_keys(&spelled, More::HoldersAndDetails);
        keys.push(self.keys.audit());
        let mut args = self.granting_args(spelled);
        args.extend([
            request.expected.get().to_string(),
            request.name.clone(),
            request.by.clone(),
            request.reason.clone(),
            AUDIT_LENGTH.to_string(),
        ]);
        Call { script: &scripts::BREAK, keys, args }
    }
}

/// Reads the answer to [`Protocol::release`].
pub(crate) fn released(answer: &Data) -> Result<Released> {
    Ok(if answer.int()? == 1 { Released::Released } else { Released::NotHeld })
}

/// Reads the answer to [`Protocol::convert`].
pub(crate) fn converted(answer: Data) -> Result<Conversion> {
    let answer = answer.list()?;
    Ok(match answer.first().ok_or_else(no_answer)?.text()?.as_str() {
        "done" => Conversion::Done { fence: FencingToken::new(answer.get(1).ok_or_else(no_answer)?.uint()?) },
        "refused" => Conversion::Refused,
        _ => Conversion::NotHeld,
    })
}

/// Reads the answer to [`Protocol::break_lease`].
///
/// Errors: `name_conflict` for a key that holds another program's data; `backend_rejected` for a lease of another
/// version; `internal`.
pub(crate) fn broken(name: &LockName, answer: Data) -> Result<BreakOutcome> {
    let answer = answer.list()?;
    let field = |at: usize| answer.get(at).ok_or_else(no_answer).and_then(Data::text);
    Ok(match field(0)?.as_str() {
        "free" => BreakOutcome::Free,
        "foreign" => return Err(foreign_data(name)),
        "unreadable" => return Err(unreadable(name)),
        "changed" => BreakOutcome::ChangedHands {
            present: FencingToken::new(answer.get(1).ok_or_else(no_answer)?.uint()?),
        },
        _ => BreakOutcome::Broken {
            holder: ClientId::from_stored(&field(1)?),
            next: Some(field(2)?).filter(|next| !next.is_empty()).map(|next| ClientId::from_stored(&next)),
        },
    })
}
