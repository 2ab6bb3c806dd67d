//! Releasing on all nodes, and what a node that was away still has to hear of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::records::waiter_record;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::live::{Live, SharedParting};
use crate::backend::redlock::protocol::scripts;
use crate::backend::redlock::transport::fanout::Fanout;
use crate::backend::{Ask, Contender, Released, Reply};
use crate::error::Result;
use crate::policy::quorum::Tally;
use crate::wakeups::unpoisoned;

/// A release or a cancellation, as every node gets it.
#[derive(Clone)]
pub(super) struct Departure {
    contender: Arc<Contender>,
    call: Call,
    /// By when every node has let go of the lease anyway.
    pub until: Instant,
    parting: SharedParting,
}

impl Inner {
    pub(crate) async fn release(self: Arc<Self>, contender: Arc<Contender>) -> Result<Released> {
        let departure = self.departure(&contender, false);
        let mut answers = self.send_release(&departure);
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
            match self.departed(&departure, at, answer) {
                Ok(1) => tally.yes += 1,
                Ok(other) => {
                    tally.no += 1;
                    others += usize::from(other < 0);
                }
                Err(error) => errors.push((at, error)),
            }
        }
        self.settle_release(answers, departure);
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
        let departure = self.departure(&contender, true);
        let mut answers = self.send_release(&departure);
        let (mut answered, mut errors) = (0, Vec::new());
        loop {
            match answers.next().await {
                Some((at, answer)) => match self.departed(&departure, at, answer) {
                    Ok(_) => answered += 1,
                    Err(error) => errors.push((at, error)),
                },
                None if answered < self.quorum.needed() && answers.wait_longer(self.patience()) => {}
                None => break,
            }
        }
        self.settle_release(answers, departure);
        if answered < self.quorum.needed() {
            self.care();
            return Err(self.unreachable(&errors));
        }
        unpoisoned(&self.acquisitions.waiting).remove(&contender.owner);
        Ok(())
    }

    /// Lets a contender that has left leave one node once more, which may have put it into its crowd since.
    pub(super) fn leave_again(self: &Arc<Self>, contender: &Arc<Contender>, at: usize) {
        self.depart_from(at, self.departure(contender, true));
    }

    /// Sends a release or a cancellation to one node.
    pub(super) fn depart_from(self: &Arc<Self>, at: usize, departure: Departure) {
        let answers = self.ask(vec![(at, self.nodes[at].run(departure.call.clone()))]);
        self.settle_release(answers, departure);
    }

    /// Releases that nodes have not answered: what may not have arrived is sent again when they are back. Closing waits
    /// a moment for them.
    fn settle_release(self: &Arc<Self>, answers: Fanout<Data>, departure: Departure) {
        let under_way = self.leaving.begin();
        self.settle_late(answers, move |inner, at, answer| {
            let _ = &under_way;
            let _ = inner.departed(&departure, at, answer);
        });
    }

    /// Reads a node's answer to a release: 1 if it had the lease, -1 if another client has the lock, else 0. One that may
    /// not have arrived is owed.
    fn departed(self: &Arc<Self>, departure: &Departure, at: usize, answer: Result<Data>) -> Result<i64> {
        let answer = answer.and_then(|answer| answer.int());
        match &answer {
            Ok(found) => {
                let parting = departure.parting.as_ref();
                let late = parting.and_then(|parting| unpoisoned(parting).released(at, *found == 1));
                if let Some(number) = late {
                    self.withdraw(&departure.contender, Ask::Try, at, number);
                }
            }
            Err(_) => self.owes(at, departure.clone()),
        }
        answer
    }

    /// To every node that may have the lock, also one that has not answered for a while: what is sent on
    /// its connection is carried out in order when it comes back.
    fn send_release(self: &Arc<Self>, departure: &Departure) -> Fanout<Data> {
        let needed = self.suspects_are_needed();
        let requests = self.nodes.iter().enumerate().filter_map(|(at, node)| {
            if node.is_usable(needed) {
                return Some((at, node.run(departure.call.clone())));
            }
            if node.is_usable(true) && node.has_room() && !node.is_refusing() {
                self.depart_from(at, departure.clone());
            } else {
                self.owes(at, departure.clone());
            }
            None
        });
        let requests: Vec<(usize, Reply<Data>)> = requests.collect();
        self.ask(requests)
    }

    /// Renews and heals a contender's lease no more. Makes the request that frees the lock of a node, if it is the
    /// contender's, and takes the contender out of its crowd if it may have waited.
    fn departure(&self, contender: &Arc<Contender>, may_wait: bool) -> Departure {
        let noted = unpoisoned(&self.acquisitions.waiting)
            .get_mut(&contender.owner)
            .map(|waited| waited.leaves = true);
        let waited = may_wait || noted.is_some();
        let name = &contender.name;
        let record = if waited { waiter_record(contender, true) } else { String::new() };
        let args = vec![
            contender.owner.to_hex(),
            self.keys.inbox_before(),
            self.keys.spell(name),
            self.turn_ms(),
            record,
        ];
        let call = Call { script: &scripts::RELEASE, keys: self.release_keys(name), args };
        let live = unpoisoned(&self.acquisitions.live).remove(&contender.owner);
        let asked = live.as_ref().map_or(Duration::ZERO, Live::longest);
        let until = Instant::now() + contender.lease.max(contender.first_lease).max(asked) * 2;
        let parting = live.and_then(Live::parting);
        Departure { contender: Arc::clone(contender), call, until, parting }
    }

    /// Asks every node that is worth asking.
    pub(crate) fn ask_all(self: &Arc<Self>, call: impl Fn(usize) -> Call) -> Fanout<Data> {
        let needed = self.suspects_are_needed();
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.is_usable(needed));
        let requests = nodes.map(|(at, node)| (at, node.run(call(at)))).collect();
        self.ask(requests)
    }
}
