//! Taking a lock on a majority of the nodes, and taking it back where that failed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::backend::{Inner, Waited};
use super::protocol::scripts;
use crate::backend::redis::protocol::call::{Call, Data, no_answer};
use crate::backend::redis::protocol::records::{LockValue, value_tail, waiter_record};
use crate::backend::redlock::transport::fanout::Fanout;
use crate::backend::{Answer, Ask, Contender, HolderHint};
use crate::clock::wall_us;
use crate::error::{Effect, Error, ErrorKind, Result, Retry};
use crate::mode::Mode;
use crate::policy::backoff::Jitter;
use crate::policy::fencing::FencingToken;
use crate::policy::quorum::{Election, Fence, Lost, Outcome, Parting, Vote};
use crate::policy::waiting::WaitAnswer;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// How often a contender that does not wait asks again when contenders got in each other's way.
const ROUNDS_OF_A_TRY: u32 = 4;

/// What came of asking all nodes once.
enum Attempt {
    Won(FencingToken),
    Lost { why: Lost, seen: Seen },
}

/// What the nodes said beside their votes.
#[derive(Default)]
struct Seen {
    counter: u64,
    /// When each node that said no would be free, in the order of the answers.
    free_in: Vec<Duration>,
    places: Vec<u32>,
    /// Each holder that was named, with what is known of it.
    holders: Vec<(u64, HolderHint)>,
    errors: Vec<(usize, Error)>,
}

impl Inner {
    pub(super) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        if contender.mode != Mode::Mutex {
            return Err(Error::new(ErrorKind::Unsupported, "redlock keeps no locks that are shared"));
        }
        self.keys.check(&contender.name)?;
        let waits = matches!(ask, Ask::Wait { .. });
        self.join().await;
        if waits {
            self.listen().await;
        }
        let mut looked_again = false;
        let mut jitter = Jitter::seeded(self.seed());
        let mut round = 0;
        loop {
            round += 1;
            match self.attempt(&contender, ask).await? {
                Attempt::Won(fence) => return Ok(Answer::Held { fence }),
                Attempt::Lost { why: Lost::Closed, .. } => {
                    // Another client may only have changed what the gates say beside.
                    if !std::mem::replace(&mut looked_again, true) {
                        self.look_at_all().await;
                        if self.voting() >= self.quorum.needed() {
                            continue;
                        }
                    }
                    self.care();
                    return Ok(Answer::Withheld { left: self.withheld_for() });
                }
                Attempt::Lost { why: Lost::Unreachable, seen } => {
                    self.care();
                    return Err(self.unreachable(&seen.errors));
                }
                Attempt::Lost { why: Lost::Split, .. } if !waits && round < ROUNDS_OF_A_TRY => {
                    let pause = jitter.upper_half(self.pause_of(round));
                    let _ = self.sleep(pause).await;
                }
                Attempt::Lost { why, seen } => {
                    let place = middle(seen.places.clone());
                    let splits = self.note_wait(&contender, waits, why);
                    // The one who has waited longest comes first, so that the others do not meet it again.
                    let rank = place.unwrap_or(0).min(32) + splits.min(6);
                    let soon = jitter.upper_half(self.pause_of(1 + rank));
                    let answer = WaitAnswer {
                        fence: seen.counter,
                        position: place,
                        holder_left: self.free_in(&seen),
                        poll_within: (why == Lost::Split).then_some(soon),
                    };
                    let holder = seen.holders.into_iter().max_by_key(|(count, _)| *count);
                    return Ok(Answer::Wait { answer, holder: holder.map(|(_, hint)| hint) });
                }
            }
        }
    }

    /// Counts how often in a row nobody got a majority while a contender waits.
    fn note_wait(&self, contender: &Contender, waits: bool, why: Lost) -> u32 {
        let mut waiting = unpoisoned(&self.acquisitions.waiting);
        let Some(waited) = waiting.get_mut(&contender.owner).filter(|_| waits) else { return 0 };
        waited.seen = Instant::now();
        waited.splits = if why == Lost::Split { waited.splits + 1 } else { 0 };
        waited.splits
    }

    /// Notes that a contender may stand in a crowd from now on; returns since when it waits, in µs.
    fn waits_since(&self, contender: &Contender, now_us: u64) -> u64 {
        let mut waiting = unpoisoned(&self.acquisitions.waiting);
        waiting.entry(contender.owner).or_insert_with(|| Waited::since(now_us)).since_us
    }

    /// A pause in which other contenders get through: some round trips.
    fn pause_of(&self, rank: u32) -> Duration {
        (self.round_trip.get() * 3).max(Duration::from_millis(1)) * rank
    }

    async fn sleep(&self, pause: Duration) {
        let sleep = {
            let _context = self.runtime.enter();
            tokio::time::sleep(pause)
        };
        sleep.await;
    }

    /// Asks all nodes once. Nothing is left of an attempt that fails, or will be as soon as its answers come.
    async fn attempt(self: &Arc<Self>, contender: &Arc<Contender>, ask: Ask) -> Result<Attempt> {
        let started = Instant::now();
        let mut election = Election::new(self.quorum);
        let mut votes = self.send_for_votes(contender, ask, &mut election);
        let mut seen = Seen::default();
        while election.outcome() == Outcome::Open {
            match votes.next().await {
                Some((at, answer)) => {
                    let vote = self.read_vote(contender, ask, at, answer, &mut seen);
                    election.cast(at, vote);
                }
                None => {
                    let mut without = election.clone();
                    for at in votes.unanswered() {
                        self.nodes[at].was_silent(self.limits.limit());
                        without.cast(at, Vote::Failed);
                    }
                    self.care();
                    // Nobody waits for a node that is not needed; where they are needed, they get their time.
                    let needed = without.outcome() == Outcome::Lost(Lost::Unreachable);
                    if !(needed && votes.wait_longer(self.patience())) {
                        election = without;
                    }
                }
            }
        }
        match election.outcome() {
            Outcome::Won => self.round_trip.note(started.elapsed()),
            Outcome::Open | Outcome::Lost(_) => {
                let why = match election.outcome() {
                    Outcome::Lost(why) => why,
                    _ => Lost::Unreachable,
                };
                self.take_back(contender, ask, &election, votes).await;
                return Ok(Attempt::Lost { why, seen });
            }
        }
        let mut fence = Fence::of(&election);
        if fence.outcome() == Outcome::Open {
            self.write_back(contender, &mut fence).await;
        }
        if fence.outcome() != Outcome::Won {
            self.take_back(contender, ask, &election, votes).await;
            return Ok(Attempt::Lost { why: Lost::Split, seen });
        }
        unpoisoned(&self.acquisitions.proposals).learn(fence.token());
        let parting = (!votes.is_finished()).then(Arc::default);
        self.is_won(contender, fence.token(), &election, parting.clone());
        if let Some(parting) = parting {
            self.settle_late_votes(contender, votes, parting);
        }
        Ok(Attempt::Won(FencingToken::new(fence.token())))
    }

    fn send_for_votes(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        ask: Ask,
        election: &mut Election,
    ) -> Fanout<Data> {
        let (record, alive) = standing(contender, ask);
        let keys = self.acquire_keys(&contender.name);
        let wall = wall_us();
        let proposal = unpoisoned(&self.acquisitions.proposals).next(wall);
        // Noted before anything is sent: a node may say no to one whom the others let in, and then it
        // stands in that node's crowd until its release takes it away there.
        let since = if record.is_empty() { wall } else { self.waits_since(contender, wall) };
        let args = [
            contender.owner.to_hex(),
            String::new(),
            proposal.to_string(),
            value_tail(contender),
            contender.first_lease.as_millis().to_string(),
            self.max_lease.as_millis().to_string(),
            self.keys.spell(&contender.name),
            record,
            alive.as_millis().to_string(),
            since.to_string(),
        ];
        let needed = self.suspects_are_needed();
        let mut requests = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            if !node.is_usable(needed) {
                election.cast(at, Vote::Failed);
                continue;
            }
            let request = node.vote(&self.shape, |gate| {
                let mut args = args.to_vec();
                args[1] = gate;
                Call { script: &scripts::ACQUIRE, keys: keys.clone(), args }
            });
            requests.push((at, request));
        }
        self.ask(requests)
    }

    fn read_vote(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        ask: Ask,
        at: usize,
        answer: Result<Data>,
        seen: &mut Seen,
    ) -> Vote {
        let node = &self.nodes[at];
        if let Some(number) = answer.as_ref().ok().and_then(doubted_yes) {
            self.withdraw(contender, ask, at, number);
            self.care();
            return Vote::Closed;
        }
        match answer.and_then(|answer| read_answer(answer, seen)) {
            Ok(Vote::Closed) => {
                node.is_closed();
                self.care();
                Vote::Closed
            }
            Ok(vote) => {
                self.shape.is_used();
                vote
            }
            Err(error) => {
                if error.retry() == Retry::AfterBackoff {
                    self.care();
                }
                seen.errors.push((at, error));
                Vote::Failed
            }
        }
    }

    /// Raises the counters of the nodes that answered with smaller numbers.
    async fn write_back(self: &Arc<Self>, contender: &Arc<Contender>, fence: &mut Fence) {
        let keys = vec![self.keys.lock(&contender.name), self.shape.counter.clone()];
        let args = vec![contender.owner.to_hex(), fence.token().to_string()];
        let behind: Vec<_> = fence.behind().collect();
        let requests = behind.iter().map(|at| {
            let call = Call { script: &scripts::RAISE, keys: keys.clone(), args: args.clone() };
            (*at, self.nodes[*at].vote(&self.shape, |_| call))
        });
        let mut answers = self.ask(requests.collect());
        while fence.outcome() == Outcome::Open {
            let Some((at, answer)) = answers.next().await else {
                if answers.wait_longer(self.patience()) {
                    continue;
                }
                behind.iter().for_each(|at| fence.told(*at, false));
                break;
            };
            fence.told(at, matches!(answer.and_then(|data| data.int()), Ok(1)));
        }
        self.settle_late(answers, |_, _, _| {});
    }

    /// Takes back every yes of a failed attempt: at once where it was heard, otherwise when it comes.
    async fn take_back(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        ask: Ask,
        election: &Election,
        votes: Fanout<Data>,
    ) {
        let requests = election
            .yes()
            .map(|(at, number)| (at, self.nodes[at].run(self.withdrawal(contender, ask, number))));
        let mut answers = self.ask(requests.collect());
        while answers.next().await.is_some() {}
        self.settle_late(answers, |_, _, _| {});
        let contender = Arc::clone(contender);
        self.settle_late(votes, move |inner, at, answer| {
            // By the time of a late yes it may have given up, or have held the lock and given it back.
            let ask = if inner.waits(contender.owner) { ask } else { Ask::Try };
            inner.withdraw_late(&contender, ask, at, answer);
        });
    }

    /// A yes that comes after the decision widens the lease. Where it was released meanwhile, the release mostly takes the
    /// yes back. A node that says anything else is offered the lease a moment later.
    fn settle_late_votes(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        votes: Fanout<Data>,
        parting: Arc<Mutex<Parting>>,
    ) {
        let contender = Arc::clone(contender);
        self.settle_late(votes, move |inner, at, answer| {
            let vote = answer.and_then(|answer| read_answer(answer, &mut Seen::default()));
            match (vote, inner.is_live(contender.owner)) {
                (Ok(Vote::Yes(number)), true) => unpoisoned(&inner.acquisitions.proposals).learn(number),
                (Ok(Vote::Yes(number)), false) => {
                    if unpoisoned(&parting).late_yes(at, number) {
                        inner.withdraw(&contender, Ask::Try, at, number);
                    }
                }
                (_, true) => {
                    inner.is_missing(contender.owner, at, true);
                    inner.widen_soon(contender.owner);
                }
                (_, false) => {}
            }
        });
    }

    fn withdraw_late(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        ask: Ask,
        at: usize,
        answer: Result<Data>,
    ) {
        let mut seen = Seen::default();
        if let Ok(Vote::Yes(number)) = answer.and_then(|answer| read_answer(answer, &mut seen)) {
            self.withdraw(contender, ask, at, number);
        }
    }

    /// Takes back one yes, in the background. It may be sent after what lets the contender leave: then it has put the
    /// contender into this node's crowd again, and takes it out once more. Closing waits a moment for that.
    pub(super) fn withdraw(self: &Arc<Self>, contender: &Arc<Contender>, ask: Ask, at: usize, number: u64) {
        let answers = self.ask(vec![(at, self.nodes[at].run(self.withdrawal(contender, ask, number)))]);
        let (contender, under_way) = (Arc::clone(contender), self.leaving.begin());
        self.settle_late(answers, move |inner, at, _| {
            let _ = &under_way;
            if matches!(ask, Ask::Wait { .. }) && !inner.waits(contender.owner) {
                inner.leave_again(&contender, at);
            }
        });
    }

    /// Whether it waits still, and neither its release nor its cancellation has been sent.
    fn waits(&self, owner: OwnerToken) -> bool {
        unpoisoned(&self.acquisitions.waiting).get(&owner).is_some_and(|waited| !waited.leaves)
    }

    /// The call that takes a yes back, from a contender that goes on waiting or does not.
    fn withdrawal(&self, contender: &Contender, ask: Ask, number: u64) -> Call {
        let (record, alive) = standing(contender, ask);
        let since = unpoisoned(&self.acquisitions.waiting)
            .get(&contender.owner)
            .map_or_else(wall_us, |waited| waited.since_us);
        let mut keys = self.keys.granting(&contender.name);
        keys.truncate(3);
        keys.push(self.keys.index());
        let args = vec![
            contender.owner.to_hex(),
            number.to_string(),
            record,
            alive.as_millis().to_string(),
            since.to_string(),
            self.keys.spell(&contender.name),
        ];
        Call { script: &scripts::WITHDRAW, keys, args }
    }

    /// When a majority of the nodes will be free, as far as they know.
    fn free_in(&self, seen: &Seen) -> Option<Duration> {
        let mut left = seen.free_in.clone();
        left.sort_unstable();
        // So many have to become free that a majority is.
        let taken = left.len();
        let free = self.quorum.nodes() - taken;
        left.get(self.quorum.needed().saturating_sub(free).checked_sub(1)?).copied()
    }

    /// Why there is no majority, with every node that failed.
    pub(super) fn unreachable(&self, errors: &[(usize, Error)]) -> Error {
        let for_good = errors.iter().filter(|(_, error)| error.retry() != Retry::AfterBackoff);
        if let Some((_, error)) = for_good.clone().next()
            && for_good.count() >= self.quorum.covering()
        {
            return error.twin();
        }
        let told = |at: usize| errors.iter().find(|(of, _)| *of == at).map(|(_, error)| error.to_string());
        let mut reasons = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if let Some(why) = told(at).or_else(|| node.failure()) {
                reasons.push(format!("{}: {why}", node.place));
            }
        }
        let reached = self.nodes.len() - reasons.len();
        Error::new(
            ErrorKind::QuorumUnreachable,
            format!(
                "{} of {} nodes can be used and {} are needed; {}",
                reached,
                self.nodes.len(),
                self.quorum.needed(),
                reasons.join("; ")
            ),
        )
        .with_effect(Effect::Maybe)
    }
}

/// The number of a yes from a node whose clock has moved, which must not count.
fn doubted_yes(answer: &Data) -> Option<u64> {
    let Data::List(fields) = answer else { return None };
    let is_doubted = fields.first()?.text().is_ok_and(|text| text == "moved");
    is_doubted.then(|| fields.get(1)?.uint().ok()).flatten()
}

fn read_answer(answer: Data, seen: &mut Seen) -> Result<Vote> {
    let answer = answer.list()?;
    let field = |at: usize| answer.get(at).ok_or_else(no_answer);
    match field(0)?.text()?.as_str() {
        "yes" => Ok(Vote::Yes(field(1)?.uint()?)),
        "closed" | "moved" => Ok(Vote::Closed),
        "foreign" => Err(Error::new(
            ErrorKind::NameConflict,
            "the key of this lock holds data that is no lock of ours and never expires; it was left alone, so use \
             another name or another prefix",
        )),
        _ => {
            seen.counter = seen.counter.max(field(1)?.uint()?);
            seen.places.push(u32::try_from(field(2)?.uint()?).unwrap_or(u32::MAX));
            let left = u64::try_from(field(3)?.int()?).ok().map(Duration::from_millis);
            seen.free_in.extend(left);
            let (value, now_ms) = (field(4)?.text()?, field(5)?.uint()?);
            let (tag, hint) = match LockValue::parse(&value) {
                Some(lock) => (tag_of(&lock.owner.to_hex()), Some(lock.hint(now_ms, left))),
                None if value.is_empty() => (tag_of(&field(6)?.text()?), None),
                None => {
                    let hint = HolderHint { client: None, label: String::new(), held_for: None, left };
                    (tag_of(&value), Some(hint))
                }
            };
            if let Some(hint) = hint {
                // The holder that most nodes name is the one to tell of.
                let before = seen.holders.iter().filter(|(_, known)| known.client == hint.client).count();
                seen.holders.push((before as u64 + 1, hint));
            }
            Ok(Vote::No(tag))
        }
    }
}

/// The record of a contender that waits, and for how long it counts as alive; empty of one that does not.
fn standing(contender: &Contender, ask: Ask) -> (String, Duration) {
    match ask {
        Ask::Try => (String::new(), Duration::ZERO),
        Ask::Wait { far_heartbeat, .. } => (waiter_record(contender, true), far_heartbeat),
    }
}

fn tag_of(holder: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    holder.hash(&mut hasher);
    hasher.finish()
}

fn middle(mut places: Vec<u32>) -> Option<u32> {
    places.sort_unstable();
    places.get(places.len() / 2).copied()
}
