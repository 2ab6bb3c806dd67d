//! Releasing on all nodes, and what a node that was away still has to hear of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::records::waiter_record;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::protocol::scripts;
use crate::backend::redlock::transport::fanout::Fanout;
use crate::backend::{Contender, Released, Reply};
use crate::error::Result;
use crate::policy::quorum::Tally;
use crate::wakeups::unpoisoned;

impl Inner {
    pub(crate) async fn release(self: Arc<Self>, contender: Arc<Contender>) -> Result<Released> {
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
        self.settle_release(answers, until, call);
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
        unpoisoned(&self.acquisitions.waiting).remove(&contender.owner);
        Ok(released)
    }

    /// Leaves nothing of a contender on any node that can be reached.
    pub(crate) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
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
        self.settle_release(answers, until, call);
        if answered < self.quorum.needed() {
            self.care();
            return Err(self.unreachable(&errors));
        }
        unpoisoned(&self.acquisitions.waiting).remove(&contender.owner);
        Ok(())
    }

    /// Releases that nodes have not answered: what may not have arrived is sent again when they are back. Closing waits
    /// a moment for them.
    pub(crate) fn settle_release(self: &Arc<Self>, answers: Fanout<Data>, until: Instant, call: Call) {
        let under_way = self.leaving.begin();
        self.settle_late(answers, move |inner, at, answer| {
            let _ = &under_way;
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
        let noted = unpoisoned(&self.acquisitions.waiting)
            .get_mut(&contender.owner)
            .map(|waited| waited.leaves = true);
        let call = self.departure(contender, may_wait || noted.is_some());
        let needed = self.suspects_are_needed();
        let requests = self.nodes.iter().enumerate().filter_map(|(at, node)| {
            if node.is_usable(needed) {
                return Some((at, node.run(call.clone())));
            }
            if node.is_usable(true) && node.has_room() && !node.is_refusing() {
                let answers = self.ask(vec![(at, node.run(call.clone()))]);
                self.settle_release(answers, until, call.clone());
            } else {
                self.owes(at, until, call.clone());
            }
            None
        });
        let requests: Vec<(usize, Reply<Data>)> = requests.collect();
        let answers = self.ask(requests);
        (call, answers)
    }

    /// Lets a contender that has left leave one node once more, which may have put it into its crowd since.
    pub(super) fn leave_again(self: &Arc<Self>, contender: &Contender, at: usize) {
        let call = self.departure(contender, true);
        let answers = self.ask(vec![(at, self.nodes[at].run(call.clone()))]);
        self.settle_release(answers, self.end_of(contender), call);
    }

    /// The call that frees the lock of one node, if it is the contender's, and takes the contender out of its crowd if it
    /// may have waited.
    fn departure(&self, contender: &Contender, waited: bool) -> Call {
        let name = &contender.name;
        let record = if waited { waiter_record(contender, true) } else { String::new() };
        let args = vec![
            contender.owner.to_hex(),
            self.keys.inbox_before(),
            self.keys.spell(name),
            self.turn_ms(),
            record,
        ];
        Call { script: &scripts::RELEASE, keys: self.release_keys(name), args }
    }

    /// Renews and heals a contender's lease no more. Returns by when every node has let go of it.
    fn end_of(&self, contender: &Contender) -> Instant {
        let live = unpoisoned(&self.acquisitions.live).remove(&contender.owner);
        let asked = live.map_or(Duration::ZERO, |entry| entry.longest());
        Instant::now() + contender.lease.max(contender.first_lease).max(asked) * 2
    }

    /// Asks every node that is worth asking.
    pub(crate) fn ask_all(self: &Arc<Self>, call: impl Fn(usize) -> Call) -> Fanout<Data> {
        let needed = self.suspects_are_needed();
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.is_usable(needed));
        let requests = nodes.map(|(at, node)| (at, node.run(call(at)))).collect();
        self.ask(requests)
    }
}
