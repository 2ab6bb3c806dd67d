//! The verbs as script calls, and their answers as words. A mutex and locks that can be shared have
//! scripts of their own; which one is decided by the contender's mode.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::config::Guarantee;
use super::port::{Acknowledge, Call, Data, Pushes, no_answer};
use super::records::{LockValue, mode_code, parse_mode, value_tail, waiter_record};
use super::scripts::{self, Script};
use crate::backend::{
    AUDIT_LENGTH, Answer, Ask, Contender, Conversion, HolderHint, Released, RenewItem, Renewal,
};
use crate::clock::millis;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{BreakOutcome, BreakRequest};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::{WaitAnswer, WaitTimes, among_pollers};
use crate::token::ClientId;

/// Which keys a script takes besides those of every script that can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Holders,
    HoldersAndDetails,
}

/// A script for a mutex and its counterpart for locks that can be shared.
fn one_of(
    contender: &Contender,
    mutex: (&'static Script, More),
    shared: &'static Script,
) -> (&'static Script, More) {
    if contender.mode == Mode::Mutex { mutex } else { (shared, More::HoldersAndDetails) }
}

/// Whether a grant lists the lock in the index of names. Others are listed by their first renewal, which
/// comes soon, or because somebody waits for them: most sections are over before, and an index entry
/// would cost the server a quarter of their time.
pub(super) fn lists_at_once(contender: &Contender) -> bool {
    contender.first_lease == contender.lease
}

impl Inner {
    fn keys(&self, spelled: &str, more: More) -> Vec<String> {
        let mut keys = self.keys.granting_spelled(spelled);
        match more {
            More::Holders => keys.push(self.keys.holders(spelled)),
            More::HoldersAndDetails => keys.extend(self.keys.sharing_spelled(spelled)),
        }
        keys
    }

    /// Calls a script that can grant.
    async fn granting(
        &self,
        (script, more): (&'static Script, More),
        name: &LockName,
        args: impl IntoIterator<Item = String>,
        acknowledge: Option<Acknowledge>,
    ) -> Result<Data> {
        let spelled = self.keys.spell(name);
        let keys = self.keys(&spelled, more);
        let mut all = self.granting_args(spelled);
        all.extend(args);
        self.one(Call { script, keys, args: all }, acknowledge).await
    }

    pub(super) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let Ask::Wait { near_heartbeat, far_heartbeat } = ask else {
            return self.poll_as(&contender, ask, 0).await;
        };
        if self.port.pushes() == Pushes::InSlot && !self.hears_here() {
            // Most locks are free, and every shard would be one more to listen in. It may stand in line already.
            let answer = self.poll_as(&contender, Ask::Try, self.listening_code()).await?;
            if !matches!(answer, Answer::Wait { .. }) {
                return Ok(answer);
            }
        }
        let turn = self.listens(near_heartbeat.max(far_heartbeat)).await;
        self.in_turn(turn, self.poll_as(&contender, ask, self.listening_code())).await
    }

    /// As whom a waiter of this client stands in line: how it hears of its grant is part of its record.
    fn listening_code(&self) -> u8 {
        if self.inboxes.may_listen() { self.port.pushes().code() } else { 0 }
    }

    async fn poll_as(&self, contender: &Contender, ask: Ask, listens: u8) -> Result<Answer> {
        self.keys.check(&contender.name)?;
        let waits = matches!(ask, Ask::Wait { .. });
        let (near, far) = match ask {
            Ask::Try => (Duration::ZERO, Duration::ZERO),
            Ask::Wait { near_heartbeat, far_heartbeat } => (near_heartbeat, far_heartbeat),
        };
        let (waits, barge) = (u8::from(waits), u8::from(contender.barge));
        // A waiter that does not hear its inbox now says so beside its heartbeat.
        let deaf = if waits == 1 && listens > 0 && !self.inboxes.hears() { ".5" } else { "" };
        let [near, far] = [near, far].map(|heartbeat| format!("{}{deaf}", millis(heartbeat)));
        let answer = if contender.mode == Mode::Mutex {
            let spelled = self.keys.spell(&contender.name);
            let rest = format!(
                "{} {waits} {barge} {near} {far} {} {} {spelled}",
                self.packed_args,
                WaitTimes::NEAR_POSITIONS,
                listens
            );
            let keys = self.keys.usual(&spelled);
            let first_lease = millis(contender.first_lease).to_string();
            let mut args = vec![contender.owner.to_hex(), value_tail(contender), first_lease, rest];
            args.extend(lists_at_once(contender).then_some(spelled));
            let strict = self.guarantee == Guarantee::Strict;
            let script = if strict { &*scripts::POLL_STRICT } else { &*scripts::POLL };
            self.usual(contender, Call { script, keys, args }, self.acknowledge).await?
        } else {
            let args = [
                contender.owner.to_hex(),
                waiter_record(contender, listens),
                millis(contender.first_lease).to_string(),
                waits.to_string(),
                barge.to_string(),
                near,
                far,
                WaitTimes::NEAR_POSITIONS.to_string(),
            ];
            let script = (&*scripts::SHARED_POLL, More::HoldersAndDetails);
            self.granting(script, &contender.name, args, self.acknowledge).await?
        };
        let answer = match answer {
            Data::List(answer) => answer,
            fence => {
                let fence = FencingToken::new(fence.uint()?);
                self.unlisted.add(contender);
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
                    None if position == 0 && listens == 0 && self.keys.are_shared() => {
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

    /// Mutexes and locks that can be shared by one script each, and the answers in the order of the items. Where one
    /// script fails, the locks of the other are renewed.
    pub(super) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut calls: [_; 2] = [&scripts::RENEW, &scripts::SHARED_RENEW].map(|script| {
            let args = Vec::with_capacity(items.len() * 6);
            Call { script, keys: Vec::with_capacity(items.len() + 1), args }
        });
        let is_shared = |item: &RenewItem| item.contender.mode != Mode::Mutex;
        for item in &items {
            let call = &mut calls[usize::from(is_shared(item))];
            let owner = item.contender.owner.to_hex();
            if is_shared(item) {
                call.keys.extend(self.keys.sharing(&item.contender.name));
                call.args.push(owner);
            } else {
                call.keys.push(self.keys.lock(&item.contender.name));
                call.args.push(format!("{owner}|pl1|"));
            }
            call.args.push(item.fence.get().to_string());
            call.args.push(millis(item.lease).to_string());
            call.args.push(format!("{:08}", item.renewals.min(99_999_999)));
            if !is_shared(item) {
                let to_list = item.renewals == 1;
                call.args.push(if to_list { self.keys.spell(&item.contender.name) } else { String::new() });
            }
            call.args.push(millis(item.length).to_string());
        }
        if !calls[0].keys.is_empty() {
            calls[0].keys.push(self.keys.index());
        }
        let used = calls.each_ref().map(|call| !call.keys.is_empty());
        let calls = calls.into_iter().filter(|call| !call.keys.is_empty()).collect();
        let mut answers = self.port.run(calls, None).await?.into_iter();
        let mut of_each = [const { None }; 2];
        let mut failed = None;
        for (of_one, _) in of_each.iter_mut().zip(used).filter(|(_, used)| *used) {
            match answers.next().unwrap_or_else(|| Err(no_answer())).and_then(Data::list) {
                Ok(answers) => *of_one = Some(answers.into_iter()),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if of_each.iter().all(Option::is_none) => return Err(error),
            Some(error) => tracing::warn!(%error, "one kind of locks could not be renewed"),
            None => {}
        }
        items
            .iter()
            .map(|item| {
                let Some(answers) = &mut of_each[usize::from(is_shared(item))] else {
                    return Ok(Renewal::Unknown);
                };
                let answer = answers.next().ok_or_else(no_answer)?;
                self.unlisted.remove(&item.contender);
                Ok(match answer.int()? {
                    1 => Renewal::Extended,
                    0 => Renewal::NotYours,
                    // The record of the new length was refused.
                    _ => Renewal::Unknown,
                })
            })
            .collect()
    }

    pub(super) async fn convert(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        let args = [
            contender.owner.to_hex(),
            fence.get().to_string(),
            mode_code(to),
            millis(contender.first_lease).to_string(),
        ];
        let script = (&*scripts::CONVERT, More::HoldersAndDetails);
        let answer = self.granting(script, &contender.name, args, self.acknowledge).await?.list()?;
        Ok(match answer.first().ok_or_else(no_answer)?.text()?.as_str() {
            "done" => {
                Conversion::Done { fence: FencingToken::new(answer.get(1).ok_or_else(no_answer)?.uint()?) }
            }
            "refused" => Conversion::Refused,
            _ => Conversion::NotHeld,
        })
    }

    pub(super) async fn release(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let owner = contender.owner.to_hex();
        let answer = if contender.mode == Mode::Mutex {
            let spelled = self.keys.spell(&contender.name);
            let keys = self.keys.usual(&spelled);
            let mut args =
                vec![owner, format!("|{}|", fence.get()), format!("{} {spelled}", self.packed_args)];
            args.extend(lists_at_once(&contender).then_some(spelled));
            self.usual(&contender, Call { script: &scripts::RELEASE, keys, args }, None).await?
        } else {
            let script = (&*scripts::SHARED_RELEASE, More::HoldersAndDetails);
            self.granting(script, &contender.name, [owner, fence.get().to_string()], None).await?
        };
        self.unlisted.remove(&contender);
        Ok(if answer.int()? == 1 { Released::Released } else { Released::NotHeld })
    }

    pub(super) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let args = [contender.owner.to_hex(), waiter_record(&contender, self.listening_code())];
        let script = one_of(&contender, (&scripts::CANCEL, More::Holders), &scripts::SHARED_CANCEL);
        self.granting(script, &contender.name, args, None).await?;
        self.unlisted.remove(&contender);
        Ok(())
    }

    pub(super) async fn steal(self: Arc<Self>, contender: Arc<Contender>, reason: String) -> Result<Answer> {
        self.keys.check(&contender.name)?;
        let spelled = self.keys.spell(&contender.name);
        let mut keys = self.keys(&spelled, More::HoldersAndDetails);
        keys.push(self.keys.audit());
        let mut args = self.granting_args(spelled);
        args.extend([
            contender.owner.to_hex(),
            waiter_record(&contender, self.listening_code()),
            millis(contender.first_lease).to_string(),
            contender.name.as_str().to_owned(),
            contender.client.as_str().to_owned(),
            reason,
            AUDIT_LENGTH.to_string(),
        ]);
        let call = Call { script: &scripts::STEAL, keys, args };
        let answer = self.one(call, self.acknowledge).await?.list()?;
        without_wait(&contender.name, &answer)?.ok_or_else(no_answer)
    }

    pub(super) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        let spelled = self.keys.spell(&name);
        let mut keys = self.keys(&spelled, More::HoldersAndDetails);
        keys.push(self.keys.audit());
        let mut args = self.granting_args(spelled);
        args.extend([
            request.expected.get().to_string(),
            request.name.clone(),
            request.by.clone(),
            request.reason.clone(),
            AUDIT_LENGTH.to_string(),
        ]);
        let answer = self.one(Call { script: &scripts::BREAK, keys, args }, None).await?.list()?;
        let field = |at: usize| answer.get(at).ok_or_else(no_answer).and_then(Data::text);
        Ok(match field(0)?.as_str() {
            "free" => BreakOutcome::Free,
            "foreign" => return Err(foreign_data(&name)),
            "unreadable" => return Err(unreadable(&name)),
            "changed" => BreakOutcome::ChangedHands {
                present: FencingToken::new(answer.get(1).ok_or_else(no_answer)?.uint()?),
            },
            _ => BreakOutcome::Broken {
                holder: ClientId::from_stored(&field(1)?),
                next: Some(field(2)?)
                    .filter(|next| !next.is_empty())
                    .map(|next| ClientId::from_stored(&next)),
            },
        })
    }
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

fn unreadable(name: &LockName) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        "the lease was written by another version of Polylatch in a form unknown here; break it with that \
         version, or wait until it expires",
    )
    .on_lock(name.as_str())
}

pub(super) fn foreign_data(name: &LockName) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the key of the lock {name:?} holds data that is no lock of ours and never expires; it was left alone, \
             so use another name or another prefix"
        ),
    )
    .on_lock(name.as_str())
}
