//! Together or one by one, on a real server: the same outcome, and fewer calls.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Runtime;

use crate::backend::redis::backend::RedisBackend;
use crate::backend::redis::config::{Address, Place, RedisConfig};
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::transport::batch::{MOST, WORTH_IT};
use crate::backend::redis::transport::native::NativePort;
use crate::backend::{Answer, Ask, Backend, Contender, OpenContext, Released, Reply};
use crate::error::{ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::Query;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

const WAIT: Ask =
    Ask::Wait { near_heartbeat: Duration::from_secs(20), far_heartbeat: Duration::from_secs(20), left: None };

/// One client on a server of its own.
struct Stage {
    server: RedisServer,
    runtime: Runtime,
    client: ClientId,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let client = ClientId::from_stored("host:1:c0ffee");
        Self { server: RedisServer::start(), runtime: runtime.unwrap(), client }
    }

    fn backend(&self, prefix: &str) -> RedisBackend {
        let timeout = Duration::from_secs(5);
        let config = RedisConfig {
            place: Place::At(Address::Tcp { host: "127.0.0.1".into(), port: self.server.port() }),
            user: None,
            password: None,
            database: 0,
            keys: Keys::new(prefix, None).unwrap(),
            guarantee: Guarantee::BestEffort,
            max_lease: Duration::from_secs(60),
            acknowledge: None,
            timeout,
        };
        let port = NativePort::new(&config, self.runtime.handle().clone()).unwrap();
        let context = OpenContext {
            clock: std::sync::Arc::new(crate::clock::SystemClock),
            wakeups: Arc::<Wakeups>::default(),
            runtime: self.runtime.handle().clone(),
            client: self.client.clone(),
            timeout,
        };
        RedisBackend::new(config, context, Box::new(port))
    }

    fn contender(&self, number: usize, lock: usize) -> Arc<Contender> {
        Arc::new(Contender {
            name: LockName::new(&format!("lock {lock}")).unwrap(),
            owner: OwnerToken::from_hex(&format!("{:032x}", 0xbeef_0000 + number)).unwrap(),
            client: self.client.clone(),
            label: format!("job {number}"),
            lease: Duration::from_secs(60),
            first_lease: Duration::from_secs(30),
            barge: false,
            mode: Mode::Mutex,
        })
    }

    /// As many contenders as there are locks.
    fn contenders(&self, count: usize) -> Vec<Arc<Contender>> {
        (0..count).map(|number| self.contender(number, number)).collect()
    }

    fn script_calls(&self) -> u64 {
        let stats = self.server.command(&["INFO", "commandstats"]);
        let stats = stats.text().expect("a text");
        let calls = |command: &str| -> u64 {
            let line = stats.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(":calls="));
            line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        calls("cmdstat_evalsha") + calls("cmdstat_eval")
    }
}

impl Stage {
    /// Asks all before the first is answered.
    fn together<T>(&self, replies: impl IntoIterator<Item = Reply<T>>) -> Vec<Result<T>> {
        let mut replies: Vec<_> = replies.into_iter().collect();
        self.server.pause();
        for reply in &mut replies {
            assert!(poll_once(reply).is_pending());
        }
        self.server.resume();
        pollster::block_on(join_all(replies))
    }
}

fn poll_once<T>(reply: &mut Reply<T>) -> Poll<Result<T>> {
    reply.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn fence(answer: &Result<Answer>) -> FencingToken {
    match answer {
        Ok(Answer::Held { fence }) => *fence,
        other => panic!("not held: {other:?}"),
    }
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn many_share_few_calls_and_each_gets_its_lock() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    let contenders = stage.contenders(3 + 4 * MOST);
    for round in 0..3 {
        // As a server clock that has stepped back leaves it.
        let ahead = FencingToken::new(4_000_000_000_000_000 + round);
        stage.server.command(&["SET", "pl:fence", &ahead.get().to_string()]);
        let before = stage.script_calls();
        let held = stage.together(contenders.iter().map(|contender| backend.poll(contender, Ask::Try)));
        let mut fences: Vec<_> = held.iter().map(fence).collect();
        let asked = fences.clone();
        fences.sort_unstable();
        fences.dedup();
        assert_eq!(fences.len(), contenders.len(), "every grant has a token of its own");
        assert!(fences[0] > ahead, "and a larger one than any before");
        let released = stage.together(
            contenders.iter().zip(asked).map(|(contender, fence)| backend.release(contender, fence)),
        );
        assert!(released.iter().all(|answer| matches!(answer, Ok(Released::Released))), "{released:?}");
        // Those before there is company are on their own, and once there is the text of each script.
        let calls = stage.script_calls() - before;
        assert!(round == 0 || calls == 2 * (3 + 4), "{calls} calls for {} pairs", contenders.len());
    }
    let left = stage.server.command(&["KEYS", "pl:{*"]);
    assert!(left.texts().is_empty(), "{left:?}");
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn a_release_in_turn_has_left_before_the_next_request_of_its_runtime() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    // As many as do not go together with others.
    let contenders = stage.contenders(WORTH_IT - 1);
    let asked = |contender: &Arc<Contender>| pollster::block_on(backend.poll(contender, Ask::Try));
    assert!(backend.release_in_turn(&contenders[0], FencingToken::new(1)).is_none(), "not connected here");
    let first = fence(&asked(&contenders[0]));
    assert!(backend.release_in_turn(&contenders[0], first).is_none(), "the server does not know the script");
    pollster::block_on(backend.release(&contenders[0], first)).unwrap();
    let mut fences: Vec<_> = contenders.iter().map(|contender| fence(&asked(contender))).collect();
    for round in 0..50 {
        // Nobody polls what they return, and none is answered meanwhile.
        stage.server.pause();
        let releases: Vec<_> = contenders
            .iter()
            .zip(&fences)
            .map(|(contender, fence)| backend.release_in_turn(contender, *fence).expect("it is connected"))
            .collect();
        assert!(backend.release_in_turn(&contenders[0], fences[0]).is_none(), "more go in one call");
        stage.server.resume();
        let others: Vec<_> = (0..contenders.len()).map(|lock| stage.contender(1_000 + round, lock)).collect();
        let polls = others.iter().map(|contender| backend.poll(contender, Ask::Try));
        fences = pollster::block_on(join_all(polls)).iter().map(fence).collect();
        let back = others.iter().zip(&fences).map(|(contender, fence)| backend.release(contender, *fence));
        let answers = pollster::block_on(join_all(releases.into_iter().chain(back)));
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Released::Released))), "{answers:?}");
        fences = contenders.iter().map(|contender| fence(&asked(contender))).collect();
    }
}

/// What a step asks.
#[derive(Debug, Clone, Copy)]
enum Step {
    Poll(usize),
    Release(usize),
}

/// An outcome without what time makes different.
fn told(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Held { .. }) => "held".into(),
        Ok(Answer::Wait { answer, .. }) => format!("waits at {:?}", answer.position),
        other => format!("{other:?}"),
    }
}

/// Holders and lines of a store, as contenders' labels.
fn state(backend: &RedisBackend) -> Vec<String> {
    let query = Query { prefix: None, ..Query::default() };
    let snapshot = pollster::block_on(backend.snapshot(&query)).unwrap();
    let mut locks: Vec<_> = snapshot
        .locks
        .iter()
        .map(|lock| {
            let holders: Vec<_> = lock.holders.iter().map(|holder| holder.label.clone()).collect();
            let waiters: Vec<_> = lock.waiters.iter().map(|waiter| waiter.label.clone()).collect();
            format!("{} held by {holders:?}, awaited by {waiters:?}", lock.name)
        })
        .collect();
    locks.sort();
    locks
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn together_or_one_by_one_the_outcome_is_the_same() {
    const LOCKS: usize = 4;
    const CONTENDERS: usize = 12;
    let stage = Stage::new();
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut below = move |n: usize| {
        // xorshift64: enough to mix steps.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 33) as usize % n
    };
    for round in 0..150 {
        let (one_by_one, at_once) =
            (stage.backend(&format!("one{round}")), stage.backend(&format!("many{round}")));
        let contenders: Vec<_> =
            (0..CONTENDERS).map(|number| stage.contender(number, number % LOCKS)).collect();
        // Beside them, so that there is company from the start, and the same before each.
        let company: Vec<_> = (0..3).map(|at| stage.contender(100 + at, 100 + at)).collect();
        for backend in [&one_by_one, &at_once] {
            // The first that waits is held up until its client hears pushes.
            fence(&pollster::block_on(backend.poll(&stage.contender(99, 99), WAIT)));
        }
        if round % 5 == 0 {
            let reader = Arc::new(Contender { mode: Mode::Read, ..(*stage.contender(50, 3)).clone() });
            for backend in [&one_by_one, &at_once] {
                fence(&pollster::block_on(backend.poll(&reader, Ask::Try)));
            }
        }
        let mut held = [vec![None; CONTENDERS], vec![None; CONTENDERS]];
        for _ in 0..6 {
            if below(3) == 0 {
                // As if the lease of a dead holder had ended.
                let lock = below(LOCKS);
                for prefix in ["one", "many"] {
                    stage.server.command(&["DEL", &format!("{prefix}{round}:{{lock {lock}}}:lock")]);
                }
            }
            let mut steps: Vec<_> = (0..CONTENDERS)
                .filter_map(|who| match below(3) {
                    0 => Some(Step::Poll(who)),
                    1 if held[0][who].is_some() => Some(Step::Release(who)),
                    _ => None,
                })
                .take(MOST)
                .collect();
            // Releases come first where they go together.
            steps.sort_by_key(|step| matches!(step, Step::Poll(_)));
            let ask = |backend: &RedisBackend, step: Step, held: &[Option<FencingToken>]| -> Reply<String> {
                match step {
                    Step::Poll(who) => {
                        let reply = backend.poll(&contenders[who], WAIT);
                        Box::pin(async move {
                            let answer = reply.await;
                            let fence = match &answer {
                                Ok(Answer::Held { fence }) => format!(" {}", fence.get()),
                                _ => String::new(),
                            };
                            Ok(told(&answer) + &fence)
                        })
                    }
                    Step::Release(who) => {
                        let reply = backend.release(&contenders[who], held[who].expect("it holds"));
                        Box::pin(async move { Ok(format!("{:?}", reply.await)) })
                    }
                }
            };
            let of_one: Vec<_> = steps
                .iter()
                .map(|step| pollster::block_on(ask(&one_by_one, *step, &held[0])).unwrap())
                .collect();
            let company = company.iter().map(|contender| {
                let reply = at_once.poll(contender, Ask::Try);
                Box::pin(async move { reply.await.map(|_| String::new()) }) as Reply<String>
            });
            let of_many: Vec<_> = stage
                .together(company.chain(steps.iter().map(|step| ask(&at_once, *step, &held[1]))))
                .into_iter()
                .skip(3)
                .map(|answer| answer.unwrap())
                .collect();
            for (answers, held) in [&of_one, &of_many].into_iter().zip(&mut held) {
                for (step, answer) in steps.iter().zip(answers) {
                    match (step, answer.strip_prefix("held ")) {
                        (Step::Poll(who), Some(fence)) => {
                            held[*who] = Some(FencingToken::new(fence.parse().unwrap()));
                        }
                        (Step::Poll(_), None) => {}
                        (Step::Release(who), _) => held[*who] = None,
                    }
                }
            }
            let without_fences = |answers: &[String]| -> Vec<String> {
                let is_held = |answer: &String| answer.starts_with("held ");
                answers.iter().map(|a| if is_held(a) { "held".into() } else { a.clone() }).collect()
            };
            assert_eq!(without_fences(&of_one), without_fences(&of_many), "round {round}: {steps:?}");
            let of_locks = |backend| -> Vec<_> {
                state(backend).into_iter().filter(|lock| !lock.starts_with("lock 10")).collect()
            };
            assert_eq!(of_locks(&one_by_one), of_locks(&at_once), "round {round}: {steps:?}");
        }
    }
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn one_that_meets_an_error_harms_no_other() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    let contenders = stage.contenders(3 + MOST);
    stage.server.command(&["HSET", "pl:{lock 5}:lock", "somebody's", "data"]);
    let answers = stage.together(contenders.iter().map(|contender| backend.poll(contender, Ask::Try)));
    for (at, answer) in answers.iter().enumerate() {
        match answer {
            Err(error) if at == 5 => assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}"),
            answer => drop(fence(answer)),
        }
    }
    // Without its scripts the server is told them again.
    stage.server.command(&["SCRIPT", "FLUSH"]);
    let others = contenders.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let released =
        stage.together(others.map(|(contender, answer)| backend.release(contender, fence(answer))));
    assert!(released.iter().all(|answer| matches!(answer, Ok(Released::Released))), "{released:?}");
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn when_the_connection_breaks_everyone_is_told() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    let contenders = stage.contenders(3 + MOST);
    drop(pollster::block_on(backend.poll(&contenders[0], Ask::Try)));
    stage.server.kill();
    let asked = contenders.iter().map(|contender| backend.poll(contender, Ask::Try));
    for answer in pollster::block_on(join_all(asked)) {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::BackendUnavailable);
    }
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn what_is_dropped_before_it_left_takes_nothing_and_who_drives_can_go() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    let contenders = stage.contenders(3 + MOST - 1);
    // Connected, so that the next poll of a request sends it.
    drop(pollster::block_on(backend.poll(&contenders[0], Ask::Try)));
    let mut replies: Vec<_> =
        contenders.iter().map(|contender| Some(backend.poll(contender, Ask::Try))).collect();
    stage.server.pause();
    for reply in replies.iter_mut().flatten() {
        assert!(poll_once(reply).is_pending());
    }
    // Withdrawn: all others are on their way or gather.
    replies[4] = None;
    // The next one has given way once, so this sends; then it is gone, too.
    assert!(poll_once(replies[5].as_mut().unwrap()).is_pending());
    replies[5] = None;
    stage.server.resume();
    let left: Vec<_> = replies.into_iter().flatten().collect();
    let answers = pollster::block_on(join_all(left));
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Held { .. }))), "{answers:?}");
    let held =
        |at: usize| stage.server.command(&["EXISTS", &format!("pl:{{lock {at}}}:lock")]).int() == Some(1);
    assert!(!held(4), "it was withdrawn");
    assert!(held(5), "it had left");
}

#[test]
#[ignore = "starts a Redis server; run with --ignored"]
fn a_member_that_is_not_looked_at_holds_up_nobody() {
    let stage = Stage::new();
    let backend = stage.backend("pl");
    let contenders = stage.contenders(3 + MOST - 1);
    let mut replies: Vec<_> = contenders.iter().map(|contender| backend.poll(contender, Ask::Try)).collect();
    drop(pollster::block_on(backend.poll(&contenders[0], Ask::Try)));
    stage.server.pause();
    for reply in &mut replies {
        assert!(poll_once(reply).is_pending());
    }
    // The first of those that gather is not looked at again until the others are done.
    let idle = replies.remove(3);
    stage.server.resume();
    let answers = pollster::block_on(join_all(replies));
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Held { .. }))), "{answers:?}");
    fence(&pollster::block_on(idle));
}
