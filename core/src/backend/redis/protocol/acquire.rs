//! Acquiring: the requests, and what their answers say.

use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, Data, no_answer};
use super::records::{LockValue, parse_mode, value_tail, waiter_record};
use super::{Guarantee, More, Protocol, foreign_data, lists_at_once, scripts, unreadable};
use crate::backend::{AUDIT_LENGTH, Answer, AnswerAll, Ask, Contender, HolderHint};
use crate::clock::millis;
use crate::error::Result;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::{WaitAnswer, WaitTimes, among_pollers};

/// A wait of so long has no limit that anyone would want to see: a hundred years.
const ENDLESS_MS: u64 = 3_155_760_000_000;

/// How a waiter is notified of its grant. Part of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listens {
    /// How its client listens (`Pushes::code`); 0 if it does not.
    pub code: u8,
    /// Its client hears its messages now.
    pub hears: bool,
}

impl Protocol {
    /// One poll: acquires, confirms or queues.
    ///
    /// Errors: `invalid_argument` for a name that has no key of its own.
    pub(crate) fn poll(&self, contender: &Contender, ask: Ask, listens: Listens) -> Result<Call> {
        self.keys.check(&contender.name)?;
        let waits = matches!(ask, Ask::Wait { .. });
        let (near, far, left) = match ask {
            Ask::Try => (Duration::ZERO, Duration::ZERO, None),
            Ask::Wait { near_heartbeat, far_heartbeat, left } => (near_heartbeat, far_heartbeat, left),
        };
        let left = left.map(millis).filter(|left| *left < ENDLESS_MS);
        let left = left.map_or_else(|| "-".to_owned(), |left| left.to_string());
        // A waiter that does not hear its inbox now says so beside its heartbeat.
        let deaf = if waits && listens.code > 0 && !listens.hears { ".5" } else { "" };
        let (waits, barge, code) = (u8::from(waits), u8::from(contender.barge), listens.code);
        let [near, far] = [near, far].map(|heartbeat| format!("{}{deaf}", millis(heartbeat)));
        let near_positions = WaitTimes::NEAR_POSITIONS;
        if contender.mode == Mode::Mutex {
            let spelled = self.keys.spell(&contender.name);
            let packed = &self.packed_args;
            let rest =
                format!("{packed} {waits} {barge} {near} {far} {near_positions} {left} {code} {spelled}");
            let keys = self.keys.usual(&spelled);
            let first_lease = millis(contender.first_lease).to_string();
            let mut args = vec![contender.owner.to_hex(), value_tail(contender), first_lease, rest];
            args.extend(lists_at_once(contender).then_some(spelled));
            let strict = self.guarantee == Guarantee::Strict;
            let script = if strict { &*scripts::POLL_STRICT } else { &*scripts::POLL };
            return Ok(Call { script, keys, args });
        }
        let args = [
            contender.owner.to_hex(),
            waiter_record(contender, code),
            millis(contender.first_lease).to_string(),
            waits.to_string(),
            barge.to_string(),
            near,
            far,
            near_positions.to_string(),
            left,
        ];
        Ok(self.granting((&scripts::SHARED_POLL, More::HoldersAndDetails), &contender.name, args))
    }

    /// Reads the answer to [`Protocol::poll`].
    ///
    /// Errors: `name_conflict` for a key that holds another program's data; `internal`.
    pub(crate) fn polled(&self, contender: &Contender, listens: Listens, answer: Data) -> Result<Answer> {
        let answer = match answer {
            Data::List(answer) => answer,
            fence => {
                let fence = FencingToken::new(fence.uint()?);
                return Ok(Answer::Held { fence });
            }
        };
        let field = |at: usize| answer.get(at).ok_or_else(no_answer);
        match without_wait(&contender.name, &answer)? {
            Some(answer) => Ok(answer),
            None => {
                let left = |at: usize| -> Result<Option<Duration>> {
                    Ok(u64::try_from(field(at)?.int()?).ok().map(Duration::from_millis))
                };
                let holder_left = left(3)?;
                // Of several holders, the one that is named need not be the first whose lease ends.
                let is_mutex = contender.mode == Mode::Mutex;
                let named_left = if answer.len() > 6 && !is_mutex { left(6)? } else { holder_left };
                let value = field(4)?.text()?;
                let now_ms = field(5)?.uint()?;
                let holder = (!value.is_empty()).then(|| match LockValue::parse(&value) {
                    Some(value) => value.hint(now_ms, named_left),
                    None => {
                        HolderHint { client: None, label: String::new(), held_for: None, left: named_left }
                    }
                });
                let position = u32::try_from(field(2)?.uint()?).unwrap_or(u32::MAX);
                // More stale waiters stand in front than one step drops.
                let unswept = answer.len() > 7 && field(7)?.int()? == 1;
                let poll_within = match answer.get(8) {
                    _ if unswept => Some(Duration::ZERO),
                    Some(waited) if position == 0 => {
                        Some(among_pollers(Duration::from_millis(waited.uint()?), now_ms))
                    }
                    // A release that leaves the lock to other libraries could not say so.
                    None if position == 0 && listens.code == 0 && self.keys.are_shared() => {
                        Some(among_pollers(Duration::ZERO, now_ms))
                    }
                    _ => None,
                };
                let answer = WaitAnswer {
                    fence: field(1)?.uint()?,
                    position: Some(position),
                    holder_left,
                    poll_within,
                };
                Ok(Answer::Wait { answer, holder })
            }
        }
    }

    /// Ends every lease of a lock and grants it to the contender.
    ///
    /// Errors: `invalid_argument` for a name that has no key of its own.
    pub(crate) fn steal(&self, contender: &Contender, listens: Listens, reason: &str) -> Result<Call> {
        self.keys.check(&contender.name)?;
        let spelled = self.keys.spell(&contender.name);
        let mut keys = self.granting_keys(&spelled, More::HoldersAndDetails);
        keys.push(self.keys.audit());
        let mut args = self.granting_args(spelled);
        args.extend([
            contender.owner.to_hex(),
            waiter_record(contender, listens.code),
            millis(contender.first_lease).to_string(),
            contender.name.as_str().to_owned(),
            contender.client.as_str().to_owned(),
            reason.to_owned(),
            AUDIT_LENGTH.to_string(),
        ]);
        Ok(Call { script: &scripts::STEAL, keys, args })
    }

    /// Takes several locks of different names in one call. There is at least one.
    ///
    /// Errors: `invalid_argument` for a name that has no key of its own.
    pub(crate) fn take_all(&self, contenders: &[Arc<Contender>]) -> Result<Call> {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for contender in contenders {
            self.keys.check(&contender.name)?;
            let spelled = self.keys.spell(&contender.name);
            if keys.is_empty() {
                keys = self.keys.granting_spelled(&spelled);
                args = self.granting_args(spelled.clone());
            } else {
                // Without the three that all names have in common.
                keys.extend(self.keys.granting_spelled(&spelled).into_iter().take(3));
            }
            keys.extend(self.keys.sharing_spelled(&spelled));
            args.extend([
                spelled,
                contender.owner.to_hex(),
                waiter_record(contender, false),
                millis(contender.first_lease).to_string(),
                u8::from(contender.barge).to_string(),
            ]);
        }
        Ok(Call { script: &scripts::TAKE_ALL, keys, args })
    }

    /// Reads the answer to [`Protocol::take_all`].
    ///
    /// Errors: `name_conflict` for a key that holds another program's data; `internal`.
    pub(crate) fn taken_all(&self, contenders: &[Arc<Contender>], answer: Data) -> Result<AnswerAll> {
        let answer = answer.list()?;
        let field = |at: usize| answer.get(at).ok_or_else(no_answer);
        let which = || -> Result<(usize, &Arc<Contender>)> {
            let at = usize::try_from(field(1)?.uint()?).unwrap_or(0).wrapping_sub(1);
            Ok((at, contenders.get(at).ok_or_else(no_answer)?))
        };
        match field(0)?.text()?.as_str() {
            "held" if answer.len() == contenders.len() + 1 => {
                let fences: Result<_> =
                    answer[1..].iter().map(|fence| fence.uint().map(FencingToken::new)).collect();
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

/// Reads the answer to [`Protocol::steal`].
///
/// Errors: `name_conflict` for a key that holds another program's data; `backend_rejected` for a lease of another
/// version; `internal`.
pub(crate) fn stolen(contender: &Contender, answer: Data) -> Result<Answer> {
    without_wait(&contender.name, &answer.list()?)?.ok_or_else(no_answer)
}

/// Reads an answer that is final; `None` for one that tells to wait.
fn without_wait(name: &LockName, answer: &[Data]) -> Result<Option<Answer>> {
    let field = |at: usize| answer.get(at).ok_or_else(no_answer);
    Ok(Some(match field(0)?.text()?.as_str() {
        "held" => Answer::Held { fence: FencingToken::new(field(1)?.uint()?) },
        "withheld" => Answer::Withheld { left: Duration::from_millis(field(1)?.uint()?) },
        "other" => {
            let present = parse_mode(&field(1)?.text()?).ok_or_else(no_answer)?.kind();
            Answer::OtherKind { present }
        }
        "foreign" => return Err(foreign_data(name)),
        "unreadable" => return Err(unreadable(name)),
        _ => return Ok(None),
    }))
}
