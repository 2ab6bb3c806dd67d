//! Stores whose records say what must not be: no expiry, smaller tokens, votes without a majority.

use model::Rule;
use polylatch::blocking;
use polylatch_test_services::clock::MovableClock;
use polylatch_test_services::proc;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::resp::Reply;

use super::stage::Stage;
use super::{client, hold};

pub fn no_expiry_and_dead() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let mut holder = stage.run(&["--lease", "30s"]);
    stage.until_held(1, 0);
    let key = stage.fleet.lock(&Stage::key("x")).and_then(|lock| {
        lock.details.iter().find(|detail| detail.name == "key").map(|detail| detail.value.clone())
    });
    holder.kill();
    // With an expiry the lock comes back by itself.
    stage.never_shows(&[Rule::NoExpiryDead]);
    assert_eq!(server.command(&["PERSIST", &key.unwrap()]).error(), None);
    stage.shows(Rule::NoExpiryDead);
    assert!(stage.helps().contains(" break x --token "), "{}", stage.helps());
}

pub fn smaller_token() {
    let clock = MovableClock::new();
    let server = RedisServer::builder().clock(&clock).start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let hold_again = |stage: &mut Stage| {
        let guard = hold(stage, &holding);
        let token = guard.fencing_token().get();
        stage.until("the grant", |stage| {
            let lock = stage.fleet.lock(&Stage::key("x"));
            lock.is_some_and(|lock| {
                lock.holders.iter().any(|holder| holder.fencing_token == Some(guard.fencing_token()))
            })
        });
        (guard, token)
    };
    let forget = |stage: &mut Stage| {
        assert_eq!(server.command(&["FLUSHALL"]).error(), None);
        stage.until("nothing", |stage| stage.fleet.lock(&Stage::key("x")).is_none());
    };
    let (_first, before) = hold_again(&mut stage);
    // Data that is lost alone: time goes on, and tokens with it.
    forget(&mut stage);
    let (_second, token) = hold_again(&mut stage);
    assert!(token > before);
    stage.never_shows(&[Rule::TokenFellBack]);
    forget(&mut stage);
    clock.set_offset_ms(-600_000);
    let seen = stage.snapshots;
    stage.until("snapshots by the other clock", |stage| stage.snapshots >= seen + 2);
    let (_third, fallen) = hold_again(&mut stage);
    assert!(fallen < token);
    stage.shows(Rule::TokenFellBack);
    assert!(!stage.tells(Rule::Legit));
}

fn redlock_of(servers: &[&RedisServer]) -> String {
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{}", places.join(","))
}

/// Programs whose URLs name different nodes, so that a majority of each is none of the others'.
pub fn votes_without_a_majority() {
    let servers: Vec<_> = (0..7).map(|_| RedisServer::start()).collect();
    let [a, b, c, d, e, f, g] = [0, 1, 2, 3, 4, 5, 6].map(|at| &servers[at]);
    let mut stage = Stage::new(redlock_of(&[a, b, c]));
    let right = client(&stage);
    let guard = hold(&stage, &right);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::Quorum, Rule::SplitVote]);
    stage.runtime.block_on(guard.release()).unwrap();
    let take = |url: &str| {
        let client = blocking::Polylatch::connect(url).unwrap();
        client.lock("x").lease(std::time::Duration::from_secs(60)).acquire().unwrap()
    };
    let _one = take(&redlock_of(&[a, d, e]));
    stage.shows(Rule::Quorum);
    assert!(!stage.tells(Rule::SplitVote));
    let _other = take(&redlock_of(&[b, f, g]));
    stage.shows(Rule::SplitVote);
    assert!(!stage.tells(Rule::Free) && !stage.tells(Rule::Legit), "{:?}", stage.findings());
}

/// One node has the lease, one has lost it, and one does not answer.
pub fn silent_node_decides() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let mut stage = Stage::new(redlock_of(&[&servers[0], &servers[1], &servers[2]]));
    let holder = stage.run(&["--lease", "60s"]);
    stage.until("a renewal for the whole lease", |stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.remaining_ms > Some(40_000)))
    });
    // Two that answer decide, whatever the third would say.
    servers[0].pause();
    stage.shows(Rule::NodeDown);
    stage.never_shows(&[Rule::Undecided]);
    // So that it does not give the node the lease again.
    proc::pause_between_writes(holder.pid());
    let Reply::Array(keys) = servers[1].command(&["KEYS", "*{x}*"]) else { panic!("no list of keys") };
    assert!(!keys.is_empty());
    for key in &keys {
        assert_eq!(servers[1].command(&[&b"DEL"[..], key.bytes().unwrap()]).int(), Some(1));
    }
    stage.shows(Rule::Undecided);
    assert!(!stage.tells(Rule::Free) && !stage.tells(Rule::Legit), "{:?}", stage.findings());
}
