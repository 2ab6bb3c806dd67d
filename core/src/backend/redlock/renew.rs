//! Keeping a lease on a majority of the nodes, and giving it back on all of them.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::protocol::call::{Call, Data, no_answer};
use crate::backend::redis::protocol::records::value_tail;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::protocol::scripts;
use crate::backend::{Ask, Contender, RenewItem, Renewal};
use crate::error::{Error, Result};
use crate::policy::quorum::Tally;

impl Inner {
    /// For how many ms nobody else can take a lock of which the next waiter was just told: some round trips.
    pub(crate) fn turn_ms(&self) -> String {
        let turn = (self.round_trip.get() * 8).clamp(Duration::from_millis(5), Duration::from_millis(200));
        turn.as_millis().to_string()
    }

    /// Extends leases. Each needs a majority of all nodes; a failed renewal never unlocks anything.
    pub(crate) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        self.is_renewed(&items);
        let asked: Vec<_> = items.iter().map(|item| (item.contender.owner, item.fence.get())).collect();
        let renewals = Arc::clone(&self).extend(items).await?;
        for ((owner, fence), renewal) in asked.into_iter().zip(&renewals) {
            if *renewal == Renewal::NotYours {
                self.is_lost(owner, fence);
            }
        }
        Ok(renewals)
    }

    /// Asks all nodes to extend leases, and gives those that a majority confirms to nodes that do not have them.
    pub(crate) async fn extend(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let keys: Vec<_> = items.iter().map(|item| self.keys.lock(&item.contender.name)).collect();
        let args: Vec<_> = items
            .iter()
            .flat_map(|item| {
                [
                    item.contender.owner.to_hex(),
                    item.fence.get().to_string(),
                    item.lease.as_millis().to_string(),
                    format!("{:08}", item.renewals.min(99_999_999)),
                    item.length.as_millis().to_string(),
                ]
            })
            .collect();
        let mut answers =
            self.ask_all(|_| Call { script: &scripts::RENEW, keys: keys.clone(), args: args.clone() });
        let asked = answers.unanswered().count();
        let mut tallies = vec![Tally { open: asked, ..Tally::default() }; items.len()];
        let mut absent: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
        let mut errors = Vec::new();
        let mut unheard = self.quorum.all();
        while !tallies.iter().all(|tally| tally.is_final(self.quorum)) {
            let Some((at, answer)) = answers.next().await else {
                if answers.wait_longer(self.patience()) {
                    continue;
                }
                break;
            };
            match answer.and_then(|answer| read_renewals(answer, items.len())) {
                Ok(renewed) => {
                    unheard &= !(1 << at);
                    for (item, renewed) in renewed.into_iter().enumerate() {
                        let tally = &mut tallies[item];
                        tally.open -= 1;
                        if renewed == 1 {
                            tally.yes += 1
                        } else {
                            tally.no += 1
                        }
                        if renewed == 0 {
                            absent[item].push(at);
                        }
                    }
                }
                Err(error) => {
                    tallies.iter_mut().for_each(|tally| tally.open -= 1);
                    errors.push((at, error));
                    self.care();
                }
            }
        }
        let verdicts: Vec<_> = tallies.iter().map(|tally| tally.verdict(self.quorum)).collect();
        let items = Arc::new(items);
        self.missed(&items, unheard);
        for (item, nodes) in absent.into_iter().enumerate() {
            if verdicts[item] == Some(true) {
                nodes.into_iter().for_each(|at| self.heal(&items[item], at));
            }
        }
        let late = Arc::clone(&items);
        let held: Vec<_> = verdicts.iter().map(|verdict| *verdict == Some(true)).collect();
        self.settle_late(answers, move |inner, at, answer| {
            let Ok(renewed) = answer.and_then(|answer| read_renewals(answer, late.len())) else { return };
            for (item, renewed) in renewed.into_iter().enumerate().filter(|(item, _)| held[*item]) {
                inner.is_missing(late[item].contender.owner, at, false);
                if renewed == 0 {
                    inner.heal(&late[item], at);
                }
            }
        });
        if verdicts.iter().all(Option::is_none) {
            return Err(self.unreachable(&errors));
        }
        Ok(verdicts
            .into_iter()
            .map(|verdict| match verdict {
                Some(true) => Renewal::Extended,
                Some(false) => Renewal::NotYours,
                None => Renewal::Unknown,
            })
            .collect())
    }

    /// Gives a lease that a majority has just confirmed to a node that does not have it.
    ///
    /// For half of the lease: so it lasts until the next renewal, at a third, and its first retries. Carried out
    /// late, after a release, it is not in the way for longer.
    fn heal(self: &Arc<Self>, item: &RenewItem, at: usize) {
        let contender = &item.contender;
        if !self.is_live(contender.owner) {
            return;
        }
        let token = item.fence.get().to_string();
        let args = vec![
            format!("{}|pl1|{:08}|{token}|", contender.owner.to_hex(), item.renewals.min(99_999_999)),
            value_tail(&Contender { lease: item.length, ..(**contender).clone() }),
            contender.first_lease.max(item.lease / 2).min(item.lease).as_millis().to_string(),
            token,
            self.keys.spell(&contender.name),
        ];
        let keys = vec![self.keys.lock(&contender.name), self.shape.counter.clone(), self.keys.index()];
        let node = &self.nodes[at];
        tracing::debug!(node = node.place, lock = %contender.name, "the node lost the lease, and gets it again");
        let answers = self.ask(vec![(at, node.run(Call { script: &scripts::HEAL, keys, args }))]);
        let item = item.clone();
        self.settle_late(answers, move |inner, at, answer| {
            let owner = item.contender.owner;
            match answer.and_then(|answer| answer.int()) {
                // It was released meanwhile, and the release may have come first.
                Ok(1) if !inner.is_live(owner) => {
                    inner.withdraw(&item.contender, Ask::Try, at, item.fence.get())
                }
                Ok(_) => {}
                Err(_) => inner.is_missing(owner, at, true),
            }
        });
    }
}

fn read_renewals(answer: Data, count: usize) -> Result<Vec<i64>> {
    let answers: Vec<_> = answer.list()?.iter().map(Data::int).collect::<Result<_, Error>>()?;
    if answers.len() == count { Ok(answers) } else { Err(no_answer()) }
}
