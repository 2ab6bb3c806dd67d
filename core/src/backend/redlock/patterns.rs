//! Every pattern of yes, no and silence on one to nine nodes, through the whole way of an acquisition.
//!
//! The nodes are simulated at the door to the server: they answer at once, or never.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::backend::Inner;
use super::config::RedlockConfig;
use super::transport::node::Node;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::config::{Address, Place};
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::transport::port::{Listener, Port, ServerFacts};
use crate::backend::{Answer, Ask, Contender, OpenContext, Reply};
use crate::error::{ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::admission::{Standing, openable};
use crate::policy::quorum::{MAX_NODES, Quorum};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

/// Up to so many nodes all patterns are played, beyond that this many of them.
const ALL_UP_TO: usize = 6;
const SAMPLE: usize = 300;

const LIMIT: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_millis(40);
/// Far beyond what four rounds take, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(10);

const OTHER: &str = "00000000000000000000000000000bad|pl1|00000000|5|1763680000000|2000|15000|host:1:aa|";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Yes,
    No,
    Silent,
}

/// A node that lets itself be looked at, and then votes in one way. Numbers differ, so that the largest has
/// to be written back.
struct Simulated {
    at: usize,
    nodes: usize,
    way: Way,
    votes: AtomicBool,
    /// What a look says of its counter.
    counter: &'static str,
    /// Which server process it is.
    server: AtomicUsize,
}

fn text(text: &str) -> Data {
    Data::Bytes(text.as_bytes().to_vec())
}

impl Simulated {
    fn answer(&self, call: &Call) -> Data {
        match (call.script.name, self.way) {
            ("look", _) => {
                let epoch = format!("{:x}:b", self.server.load(Ordering::SeqCst));
                let gate = format!("{epoch}|open|{}|0|0|60000|0", self.nodes);
                let nodes = self.nodes.to_string();
                let now_ms = crate::clock::wall_us() / 1000;
                let (counter, now_ms) = (self.counter, now_ms.to_string());
                let fields =
                    [epoch.as_str(), &gate, "open", &nodes, "0", "0", "60000", "0", counter, &now_ms];
                Data::List(fields.map(text).to_vec())
            }
            ("acquire", Way::Yes) => {
                let proposed: u64 = call.args[2].parse().expect("a proposal");
                Data::List(vec![text("yes"), text(&(proposed + self.at as u64 % 2).to_string())])
            }
            ("acquire", _) => {
                let fields = ["no", "5", "0", "2000", OTHER, "1763680000000", ""];
                Data::List(fields.map(text).to_vec())
            }
            _ => Data::Int(1),
        }
    }
}

impl Port for Simulated {
    fn run(&self, calls: Vec<Call>, _: Option<Acknowledge>) -> Reply<Vec<Result<Data>>> {
        if self.way == Way::Silent && self.votes.load(Ordering::SeqCst) {
            return Box::pin(pending());
        }
        Box::pin(ready(Ok(calls.iter().map(|call| Ok(self.answer(call))).collect())))
    }

    fn subscribe(&self, _: String, _: Listener) {}

    fn facts(&self) -> Reply<ServerFacts> {
        Box::pin(ready(Ok(ServerFacts { epoch: Some("a:b".into()), ..ServerFacts::default() })))
    }

    fn latest_connection(&self) -> Option<u64> {
        Some(1)
    }

    fn close(&self) {}
}

fn config(nodes: usize) -> RedlockConfig {
    let keys = Keys::new("polylatch", None).expect("a good prefix");
    let node = |at: usize| RedisConfig {
        // Nobody listens there, for whoever connects anew.
        place: Place::At(Address::Tcp { host: "127.0.0.1".into(), port: at as u16 + 1 }),
        user: None,
        password: None,
        database: 0,
        keys: keys.clone(),
        guarantee: Guarantee::BestEffort,
        max_lease: Duration::from_secs(60),
        acknowledge: None,
        timeout: TIMEOUT,
    };
    RedlockConfig {
        nodes: (0..nodes).map(node).collect(),
        keys: keys.clone().of_a_node(),
        guarantee: Guarantee::BestEffort,
        max_lease: Duration::from_secs(60),
        node_timeout: LIMIT,
        timeout: TIMEOUT,
    }
}

async fn play(pattern: &[Way]) -> (Result<Answer>, Duration) {
    let (inner, simulated) = joined(pattern, "5").await;
    simulated.iter().for_each(|node| node.votes.store(true, Ordering::SeqCst));
    let started = Instant::now();
    let answer = tokio::time::timeout(SOON, Arc::clone(&inner).poll(Arc::new(contender()), Ask::Try)).await;
    let took = started.elapsed();
    inner.closed.store(true, Ordering::SeqCst);
    (answer.unwrap_or_else(|_| panic!("{pattern:?} never ends")), took)
}

/// A client that has looked at nodes with this counter.
async fn joined(pattern: &[Way], counter: &'static str) -> (Arc<Inner>, Vec<Arc<Simulated>>) {
    let context = OpenContext {
        clock: std::sync::Arc::new(crate::clock::SystemClock),
        wakeups: Arc::<Wakeups>::default(),
        runtime: tokio::runtime::Handle::current(),
        client: client(),
        timeout: TIMEOUT,
    };
    let mut inner = Inner::new(&config(pattern.len()), &context).expect("a good configuration");
    let mut simulated = Vec::new();
    for (at, way) in pattern.iter().enumerate() {
        let (votes, server) = (AtomicBool::new(false), AtomicUsize::new(at + 1));
        let node = Arc::new(Simulated { at, nodes: pattern.len(), way: *way, votes, counter, server });
        simulated.push(Arc::clone(&node));
        inner.nodes[at] = Arc::new(Node::simulated(&config(pattern.len()).nodes[at], node));
    }
    let inner = Arc::new(inner);
    inner.shape.joined.store(true, Ordering::SeqCst);
    inner.look_at_all().await;
    (inner, simulated)
}

fn client() -> ClientId {
    ClientId::from_stored("host:1:c0ffee")
}

fn contender() -> Contender {
    Contender {
        name: LockName::new("a").expect("a good name"),
        owner: OwnerToken::from_hex(&format!("{:032x}", 0xbeef)).expect("a token"),
        client: client(),
        label: String::new(),
        lease: Duration::from_secs(15),
        first_lease: Duration::from_secs(2),
        barge: false,
        mode: Mode::Mutex,
    }
}

fn judge(pattern: &[Way], answer: &Result<Answer>) {
    let needed = Quorum::of(pattern.len()).needed();
    let count = |way| pattern.iter().filter(|cast| **cast == way).count();
    let (yes, no, silent) = (count(Way::Yes), count(Way::No), count(Way::Silent));
    let is_won = matches!(answer, Ok(Answer::Held { .. }));
    let is_waited_for = matches!(answer, Ok(Answer::Wait { .. }));
    let is_unreachable = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::QuorumUnreachable);
    let told = answer.as_ref().err();
    if yes >= needed {
        assert!(is_won, "{pattern:?}: {told:?}");
    } else if yes + no >= needed {
        assert!(is_waited_for, "{pattern:?}: {told:?}");
    } else if yes + silent >= needed {
        assert!(is_unreachable, "{pattern:?}");
    } else {
        // The silent ones could not have changed it, and may have been found out meanwhile or not.
        assert!(is_waited_for || is_unreachable, "{pattern:?}: {told:?}");
    }
}

#[test]
fn every_pattern_of_votes_ends_with_the_right_answer_in_bounded_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut longest = Duration::ZERO;
    for nodes in 1..=MAX_NODES {
        let all = 3usize.pow(nodes as u32);
        // 7919 is prime to every power of three, so the sample has no pattern twice.
        let codes = (0..all.min(if nodes <= ALL_UP_TO { all } else { SAMPLE })).map(|at| at * 7919 % all);
        let patterns: Vec<Vec<Way>> = codes
            .map(|code| {
                let digit = |at: usize| code / 3usize.pow(at as u32) % 3;
                (0..nodes).map(|at| [Way::Yes, Way::No, Way::Silent][digit(at)]).collect()
            })
            .collect();
        runtime.block_on(async {
            for some in patterns.chunks(100) {
                for (pattern, (answer, took)) in
                    some.iter().zip(join_all(some.iter().map(|one| play(one))).await)
                {
                    judge(pattern, &answer);
                    longest = longest.max(took);
                }
            }
        });
    }
    println!("the longest took {longest:?}");
}

/// Looks at a new store see no counter. A vote that follows tells of a lease, and before the next look every
/// node may restart without its data.
#[tokio::test]
async fn a_client_whose_request_was_answered_does_not_take_an_emptied_store_for_a_new_one() {
    for way in [Way::Yes, Way::No] {
        let (inner, _) = joined(&[way; 3], "0").await;
        let emptied = [Standing::Closed { left: Duration::from_secs(60), counter: 0, fresh: true }; 3];
        let opens = || openable(inner.quorum, &emptied, inner.shape.terms()).is_some();
        assert!(opens(), "nothing was ever seen of this store");
        let answer = Arc::clone(&inner).poll(Arc::new(contender()), Ask::Try).await;
        assert!(answer.is_ok(), "{way:?}");
        assert!(!opens(), "{way:?}: a lease from before may be alive");
        inner.closed.store(true, Ordering::SeqCst);
    }
}

/// An address that moved to the server of another node would count that server's vote twice.
#[tokio::test]
async fn an_address_that_leads_to_the_server_of_another_node_has_no_vote() {
    let (inner, simulated) = joined(&[Way::Yes; 3], "5").await;
    assert_eq!(inner.voting(), 3);
    simulated[2].server.store(simulated[1].server.load(Ordering::SeqCst), Ordering::SeqCst);
    // As after a vote that came on another connection.
    let look = inner.nodes[2].look(&inner.shape, "").await;
    assert_eq!(look.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(inner.voting(), 2);
    let failure = inner.nodes[2].failure().unwrap_or_default();
    assert!(failure.contains("are the same server"), "{failure}");
    // Both addresses moved: the one that came first is no longer there.
    simulated[1].server.store(7, Ordering::SeqCst);
    inner.nodes[1].look(&inner.shape, "").await.unwrap();
    inner.nodes[2].look(&inner.shape, "").await.unwrap();
    assert_eq!(inner.voting(), 3);
    inner.closed.store(true, Ordering::SeqCst);
}
