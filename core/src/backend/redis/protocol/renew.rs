//! Renewing: the requests, and what their answers say.

use super::call::{Call, Data, no_answer};
use super::{Protocol, scripts};
use crate::backend::{RenewItem, Renewal};
use crate::clock::millis;
use crate::error::{Error, Result};
use crate::mode::Mode;

fn is_shared(item: &RenewItem) -> bool {
    item.contender.mode != Mode::Mutex
}

/// The calls that renew some leases: mutexes and locks that can be shared by one script each.
pub(crate) struct Renewals {
    /// At most one of each kind.
    pub calls: Vec<Call>,
    /// Whether there is a call for mutexes, and one for locks that can be shared.
    pub used: [bool; 2],
}

impl Protocol {
    pub(crate) fn renew(&self, items: &[RenewItem]) -> Renewals {
        let mut calls: [_; 2] = [&scripts::RENEW, &scripts::SHARED_RENEW].map(|script| {
            let args = Vec::with_capacity(items.len() * 6);
            Call { script, keys: Vec::with_capacity(items.len() + 1), args }
        });
        for item in items {
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
        Renewals { calls, used }
    }
}

/// Reads the answers to [`Protocol::renew`], in the order of the items. Where one script failed, the locks of the
/// other are renewed.
///
/// Errors: that of the scripts, if all failed; `internal`.
pub(crate) fn renewed(
    items: &[RenewItem],
    used: [bool; 2],
    answers: Vec<Result<Data>>,
) -> Result<Vec<Renewal>> {
    let mut answers = answers.into_iter();
    let mut of_each = [const { None }; 2];
    let mut failed: Option<Error> = None;
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
            Ok(match answers.next().ok_or_else(no_answer)?.int()? {
                1 => Renewal::Extended,
                0 => Renewal::NotYours,
                // The record of the new length was refused.
                _ => Renewal::Unknown,
            })
        })
        .collect()
}
