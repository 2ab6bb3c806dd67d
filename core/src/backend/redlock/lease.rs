//! Keeping a lease on a majority of the nodes, and giving it back on all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fanout::Fanout;
use super::{Inner, scripts};
use crate::backend::redis::port::{Call, Data, no_answer};
use crate::backend::redis::records::{value_tail, waiter_record};
use crate::backend::{Ask, Contender, Released, RenewItem, Renewal, Reply};
use crate::error::{Error, Result};
use crate::policy::quorum::Tally;
use crate::wakeups::unpoisoned;

impl Inner {
    /// For how many ms nobody else can take a lock of which the next waiter was just told: some round trips.
    pub(super) fn turn_ms(&self) -> String {
        let turn = (self.round_trip() * 8).clamp(Duration::from_millis(5), Duration::from_millis(200));
        turn.as_millis().to_string()
    }

    /// Extends leases. Each needs a majority of all nodes; a failed renewal never unlocks anything.
    pub(super) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        self.is_renewed(&items);
        self.extend(items).await
    }

    /// Asks all nodes to extend leases, and gives those that a majority confirms to nodes that do not have them.
    pub(super) async fn extend(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
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
        self.follow(answers, move |inner, at, answer| {
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
        self.follow(answers, move |inner, at, answer| {
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

    pub(super) async fn release(self: Arc<Self>, contender: Arc<Contender>) -> Result<Released> {
        let until = self.end_of(&contender);
        let (call, mut answers) = self.send_release(&contender, false, until);
        let mut tally = Tally { open: answers.unanswered().count(), ..Tally::default() };
        let (mut errors, mut others) = (Vec::new(), 0);
        while !tally.is_final(self.quorum) {
            let Some((at, answer)) = answers.next().await else {
                if tally.yes + tally.no < self.quorum.needed() && answers.wait_longer(self.patience()) {
                    continue;
                }
                break;
            };
            tally.open -= 1;
            match answer.and_then(|answer| answer.int()) {
                Ok(1) => tally.yes += 1,
                Ok(other) => {
                    tally.no += 1;
                    others += usize::from(other < 0);
                }
                Err(error) => {
                    self.owes(at, until, call.clone());
                    errors.push((at, error));
                }
            }
        }
        self.follow_release(answers, until, call);
        let released = match tally.verdict(self.quorum) {
            Some(true) => Released::Released,
            // Some node had the lease to its end. Where it was missing it never came, or the node was
            // emptied and does not vote; unless enough nodes have somebody else.
            _ if tally.yes > 0
                && others < self.quorum.needed()
                && tally.yes + tally.no >= self.quorum.needed() =>
            {
                Released::Released
            }
            Some(false) => Released::NotHeld,
            None => {
                self.care();
                return Err(self.unreachable(&errors));
            }
        };
        // Only now: whoever asks again after a failure still has to leave the crowds.
        unpoisoned(&self.waiting).remove(&contender.owner);
        Ok(released)
    }

    /// Leaves nothing of a contender on any node that can be reached.
    pub(super) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let until = self.end_of(&contender);
        let (call, mut answers) = self.send_release(&contender, true, until);
        let (mut answered, mut errors) = (0, Vec::new());
        loop {
            match answers.next().await {
                Some((_, Ok(_))) => answered += 1,
                Some((at, Err(error))) => {
                    self.owes(at, until, call.clone());
                    errors.push((at, error));
                }
                None if answered < self.quorum.needed() && answers.wait_longer(self.patience()) => {}
                None => break,
            }
        }
        self.follow_release(answers, until, call);
        if answered < self.quorum.needed() {
            self.care();
            return Err(self.unreachable(&errors));
        }
        unpoisoned(&self.waiting).remove(&contender.owner);
        Ok(())
    }

    /// Releases that nodes have not answered: what may not have arrived is sent again when they are back.
    pub(super) fn follow_release(self: &Arc<Self>, answers: Fanout<Data>, until: Instant, call: Call) {
        self.follow(answers, move |inner, at, answer| {
            if answer.is_err() {
                inner.owes(at, until, call.clone());
            }
        });
    }

    /// To every node that may have the lock, also one that has not answered for a while: what is sent on
    /// its connection is carried out in order when it comes back.
    fn send_release(
        self: &Arc<Self>,
        contender: &Contender,
        may_wait: bool,
        until: Instant,
    ) -> (Call, Fanout<Data>) {
        let noted = unpoisoned(&self.waiting).get_mut(&contender.owner).map(|waited| waited.leaves = true);
        let waited = may_wait || noted.is_some();
        let name = &contender.name;
        let record = if waited { waiter_record(contender, true) } else { String::new() };
        let keys = self.release_keys(name);
        let args = vec![
            contender.owner.to_hex(),
            self.keys.inbox_before(),
            self.keys.spell(name),
            self.turn_ms(),
            record,
        ];
        let call = Call { script: &scripts::RELEASE, keys, args };
        let needed = self.suspects_are_needed();
        let requests = self.nodes.iter().enumerate().filter_map(|(at, node)| {
            if node.is_usable(needed) {
                return Some((at, node.run(call.clone())));
            }
            if node.is_usable(true) && node.has_room() && !node.is_refusing() {
                let answers = self.ask(vec![(at, node.run(call.clone()))]);
                self.follow_release(answers, until, call.clone());
            } else {
                self.owes(at, until, call.clone());
            }
            None
        });
        let requests: Vec<(usize, Reply<Data>)> = requests.collect();
        let answers = self.ask(requests);
        (call, answers)
    }

    /// Renews and heals a contender's lease no more. Returns by when every node has let go of it.
    fn end_of(&self, contender: &Contender) -> Instant {
        let live = unpoisoned(&self.live).remove(&contender.owner);
        let asked = live.map_or(Duration::ZERO, |entry| entry.longest());
        Instant::now() + contender.lease.max(contender.first_lease).max(asked) * 2
    }

    /// Asks every node that is worth asking.
    pub(super) fn ask_all(self: &Arc<Self>, call: impl Fn(usize) -> Call) -> Fanout<Data> {
        let needed = self.suspects_are_needed();
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.is_usable(needed));
        let requests = nodes.map(|(at, node)| (at, node.run(call(at)))).collect();
        self.ask(requests)
    }
}

fn read_renewals(answer: Data, count: usize) -> Result<Vec<i64>> {
    let answers: Vec<_> = answer.list()?.iter().map(Data::int).collect::<Result<_, Error>>()?;
    if answers.len() == count { Ok(answers) } else { Err(no_answer()) }
}
