//! Several locks in one step: one call of one script, on a server that has all their keys.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::port::Call;
use super::port::no_answer;
use super::records::{parse_mode, waiter_record};
use super::scripts;
use super::verbs::foreign_data;
use crate::backend::{AnswerAll, Contender};
use crate::clock::millis;
use crate::error::Result;
use crate::policy::fencing::FencingToken;

impl Inner {
    pub(super) async fn take_all(self: Arc<Self>, contenders: Vec<Arc<Contender>>) -> Result<AnswerAll> {
        let Some(first) = contenders.first() else { return Ok(AnswerAll::Held { fences: Vec::new() }) };
        for contender in &contenders {
            self.keys.check(&contender.name)?;
        }
        let spelled = self.keys.spell(&first.name);
        let mut keys = self.keys.granting_spelled(&spelled);
        keys.extend(self.keys.sharing_spelled(&spelled));
        let mut args = self.granting_args(spelled);
        for (at, contender) in contenders.iter().enumerate() {
            let spelled = self.keys.spell(&contender.name);
            if at > 0 {
                // Without the three that all names have in common.
                keys.extend(self.keys.granting_spelled(&spelled).into_iter().take(3));
                keys.extend(self.keys.sharing_spelled(&spelled));
            }
            args.extend([
                spelled,
                contender.owner.to_hex(),
                waiter_record(contender, false),
                millis(contender.first_lease).to_string(),
                u8::from(contender.barge).to_string(),
            ]);
        }
        let call = Call { script: &scripts::TAKE_ALL, keys, args };
        let answer = self.one(call, self.acknowledge).await?.list()?;
        let field = |at: usize| answer.get(at).ok_or_else(no_answer);
        let which = || -> Result<(usize, &Arc<Contender>)> {
            let at = usize::try_from(field(1)?.uint()?).unwrap_or(0).wrapping_sub(1);
            Ok((at, contenders.get(at).ok_or_else(no_answer)?))
        };
        match field(0)?.text()?.as_str() {
            "held" if answer.len() == contenders.len() + 1 => {
                let fences: Result<_> =
                    answer[1..].iter().map(|fence| fence.uint().map(FencingToken::new)).collect();
                contenders.iter().for_each(|contender| self.unlisted.add(contender));
                Ok(AnswerAll::Held { fences: fences? })
            }
            "refused" => Ok(AnswerAll::Refused),
            "withheld" => Ok(AnswerAll::Withheld { left: Duration::from_millis(field(1)?.uint()?) }),
            "other" => {
                let present = parse_mode(&field(2)?.text()?).ok_or_else(no_answer)?.kind();
                Ok(AnswerAll::OtherKind { at: which()?.0, present })
            }
            "foreign" => Err(foreign_data(&which()?.1.name)),
            _ => Err(no_answer()),
        }
    }
}
