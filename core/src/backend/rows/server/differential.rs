//! The statements of a server against the specification, in random order, by a clock that the test sets.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::memory::store::{Now as SpecNow, Store as Spec};
use crate::backend::rows::sequences::{Dice, break_of, contenders};
use crate::backend::{Answer, AnswerAll, Ask, Contender, Conversion, Purpose, Released, RenewItem, Renewal};
use crate::clock::BootInstant;
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{Query, Snapshot};
use crate::token::ClientId;
use crate::wakeups::Wakeups;

use super::link::Link;
use super::store::Store;
use super::value::Statement;
use super::{Server, snapshot};

/// Empty tables, and how to set the clock by which their server answers.
pub(crate) struct Tables<S: Server> {
    store: Store<S>,
    runtime: tokio::runtime::Runtime,
    set_clock: fn(i64) -> Statement,
}

impl<S: Server> Tables<S> {
    /// Makes the tables. `set_clock` takes milliseconds since 1970.
    pub(crate) fn new(server: S, set_clock: fn(i64) -> Statement) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let link = Arc::new(Link::new(server, runtime.handle().clone(), Duration::from_secs(20)));
        let store = Store::new(link, ClientId::new("test", 1).unwrap(), Arc::<Wakeups>::default());
        runtime.block_on(S::prepare(&store.link, Purpose::Lock)).unwrap();
        Self { store, runtime, set_clock }
    }

    fn at<T>(&self, now_ms: i64, step: impl Future<Output = crate::error::Result<T>>) -> T {
        self.runtime.block_on(async {
            self.store.ask(&[(self.set_clock)(now_ms)], true).await.unwrap();
            step.await.unwrap()
        })
    }
}

fn spec_now(ms: i64) -> SpecNow {
    SpecNow { boot: BootInstant::from_nanos(ms as u64 * 1_000_000), wall_us: ms as u64 * 1000 }
}

/// The specification has one counter for all names, the tables one for each; and it notifies waiters.
fn without_counter(answer: Answer) -> Answer {
    match answer {
        Answer::Wait { mut answer, holder } => {
            answer.fence = 0;
            answer.poll_within = answer.poll_within.filter(Duration::is_zero);
            Answer::Wait { answer, holder }
        }
        other => other,
    }
}

fn comparable(mut snapshot: Snapshot) -> Snapshot {
    (snapshot.backend, snapshot.requests) = ("".into(), 0);
    snapshot.round_trip = Duration::ZERO;
    // The server makes its digests in another way: what counts is which of them are the same.
    let mut known: Vec<String> = Vec::new();
    let mut number = |digest: &mut String| {
        let at = known.iter().position(|other| other == digest).unwrap_or_else(|| {
            known.push(digest.clone());
            known.len() - 1
        });
        *digest = format!("#{at}");
    };
    for lock in &mut snapshot.locks {
        lock.holders.iter_mut().for_each(|holder| number(&mut holder.owner_digest));
        lock.waiters.iter_mut().for_each(|waiter| number(&mut waiter.owner_digest));
    }
    snapshot
}

/// One random sequence.
pub(crate) fn run<S: Server>(tables: &Tables<S>, seed: u64) {
    let mut dice = Dice::of(seed);
    let store = &tables.store;
    let mut spec = Spec::default();
    let (clients, contenders) = contenders();
    let mut fences = vec![1_u64; contenders.len()];
    let mut now_ms: i64 = 1_700_000_000_000;
    // The mutex, and who got it last: that a holder releases while others wait is rare among so many.
    let mutex: Vec<_> = (0..contenders.len()).filter(|at| contenders[*at].name.as_str() == "a").collect();
    let mut holder = mutex[0];
    for step in 0..150 {
        // More in each step than it gives out numbers.
        now_ms += 1 + dice.below(700) as i64 * i64::from(dice.below(3) > 0);
        let now = spec_now(now_ms);
        let verb = dice.below(17);
        let at = match dice.below(3) {
            0 if matches!(verb, 9 | 10) => holder,
            0 => mutex[dice.below(mutex.len() as u64) as usize],
            _ => dice.below(contenders.len() as u64) as usize,
        };
        let who = &contenders[at];
        let fence = FencingToken::new(fences[at]);
        let told = format!("seed {seed}, step {step}");
        match verb {
            0..=6 => {
                let ask = dice.ask();
                let ours = tables.at(now_ms, store.poll(who, ask));
                let theirs = spec.poll(now, who, ask).0;
                assert_eq!(without_counter(ours.clone()), without_counter(theirs), "{told}: poll {who:?}");
                if let Answer::Held { fence } = ours {
                    fences[at] = fence.get();
                    if mutex.contains(&at) {
                        holder = at;
                    }
                }
            }
            7 | 8 => {
                let item = dice.renewal(who, fence);
                let ours = tables.at(now_ms, store.renew(std::slice::from_ref(&item)));
                assert_eq!(ours, [spec.renew(now, &item)], "{told}: renew");
            }
            9 | 10 => {
                let ours = tables.at(now_ms, store.release(who, fence));
                assert_eq!(ours, spec.release(now, who, fence.get()).0, "{told}: release");
            }
            11 => {
                tables.at(now_ms, store.cancel(who));
                spec.cancel(now, who);
            }
            12 => {
                let request = break_of(who, fence);
                let ours = tables.at(now_ms, store.break_lease(&request));
                assert_eq!(ours, spec.break_lease(now, &request).0, "{told}: break");
            }
            13 if matches!(who.mode, Mode::Mutex | Mode::Write) => {
                let ours = tables.at(now_ms, store.steal(who, "test"));
                assert_eq!(ours, spec.steal(now, who, "test").0, "{told}: steal");
                if let Answer::Held { fence } = ours {
                    fences[at] = fence.get();
                }
            }
            14 => {
                let one = [Arc::clone(who)];
                let ours = tables.at(now_ms, store.take_all(&one));
                assert_eq!(ours, spec.take_all(now, &one).0, "{told}: take all");
                if let AnswerAll::Held { fences: taken } = ours {
                    fences[at] = taken[0].get();
                }
            }
            15 => {
                let to = if dice.below(2) == 0 { Mode::Read } else { Mode::Write };
                let ours = tables.at(now_ms, store.convert(who, fence, to));
                assert_eq!(ours, spec.convert(now, who, fence.get(), to).0, "{told}: convert");
                if let Conversion::Done { fence } = ours {
                    fences[at] = fence.get();
                }
            }
            _ => {
                let client = &clients[dice.below(3) as usize];
                tables.at(now_ms, store.announce(client));
                spec.announce(now, client);
            }
        }
        let query = dice.query();
        let ours = tables.at(now_ms, snapshot::read(store, &query));
        let theirs = spec.snapshot(now, &query);
        assert_eq!(comparable(ours), comparable(theirs), "{told}: {query:?}");
    }
}

/// What the random sequences cannot ask for, because the specification counts for all names together: a clock that stands or
/// steps back. And waiters that fell silent, before and
/// behind one that is alive.
pub(crate) fn run_by_hand<S: Server>(tables: &Tables<S>) {
    let store = &tables.store;
    let (_, contenders) = contenders();
    let line: Vec<_> = contenders.iter().filter(|who| who.name.as_str() == "a").collect();
    let wait = Ask::Wait {
        near_heartbeat: Duration::from_millis(900),
        far_heartbeat: Duration::from_millis(900),
        left: None,
    };
    let poll = |now_ms, who: &Arc<Contender>| tables.at(now_ms, store.poll(who, wait));
    let token = |now_ms: i64, who| match poll(now_ms, who) {
        Answer::Held { fence } => fence.get(),
        other => panic!("at {now_ms}: {other:?}"),
    };
    let free = |now_ms, who: &Arc<Contender>, token| {
        let released = tables.at(now_ms, store.release(who, FencingToken::new(token)));
        assert_eq!(released, Released::Released);
    };

    let t = 1_700_000_000_000;
    let mut last = token(t, line[0]);
    assert_eq!(last, t as u64 * 1000, "a first number is the server's time in µs");
    free(t, line[0], last);
    for now_ms in [t, t, t - 60_000, t - 1] {
        let next = token(now_ms, line[1]);
        assert_eq!(next, last + 1, "{} ms after the first", now_ms - t);
        free(now_ms, line[1], next);
        last = next;
    }
    assert_eq!(token(t + 1, line[0]), (t as u64 + 1) * 1000, "the clock is ahead of the counter again");
    last = (t as u64 + 1) * 1000;
    // The same where a release hands over.
    let holder = |now_ms| {
        let seen = tables.at(now_ms, snapshot::read(store, &Query::default()));
        let holder = &seen.locks[0].holders[0];
        (holder.label.clone(), holder.fencing_token.unwrap().get())
    };
    // Places in the queue are numbers of the same counter.
    for who in &line[1..3] {
        assert!(matches!(poll(t + 1, who), Answer::Wait { .. }));
        last += 1;
    }
    free(t + 1, line[0], (t as u64 + 1) * 1000);
    assert_eq!(holder(t + 1), (line[1].label.clone(), last + 1));
    free(t, line[1], last + 1);
    assert_eq!(holder(t), (line[2].label.clone(), last + 2), "the clock has stepped back");
    free(t, line[2], last + 2);
    last = token(t + 2, line[0]);

    // Behind the holder stand some, of which one stays alive: the third, then the first.
    let mut now_ms = t + 2;
    let mut holder = line[0];
    for (waiters, live) in [(&line[1..5], line[3]), (&line[0..3], line[0])] {
        for who in waiters {
            assert!(matches!(poll(now_ms, who), Answer::Wait { .. }));
        }
        let (fence, lease) = (FencingToken::new(last), holder.lease);
        let item = RenewItem { contender: Arc::clone(holder), fence, lease, length: lease, renewals: 1 };
        assert_eq!(tables.at(now_ms, store.renew(&[item])), [Renewal::Extended]);
        assert!(matches!(poll(now_ms + 899, live), Answer::Wait { .. }));
        now_ms += 901;
        free(now_ms, holder, last);
        let seen = tables.at(now_ms, snapshot::read(store, &Query::default()));
        let lock = &seen.locks[0];
        assert_eq!(lock.holders[0].label, live.label, "the only one that is alive");
        assert!(
            lock.waiters.is_empty(),
            "the silent ones behind it are dropped with the same step: {lock:?}"
        );
        (holder, last) = (live, lock.holders[0].fencing_token.unwrap().get());
    }
}

/// The first seed and how many sequences there are, as the environment says.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let from_env = |key| std::env::var(key).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = from_env("POLYLATCH_DIFFERENTIAL_SEED").unwrap_or(1);
    let sequences = from_env("POLYLATCH_DIFFERENTIAL_SEQUENCES").unwrap_or(usual);
    first..first + sequences.min(2_000)
}
