//! Scenes with real servers and processes: what is told when something is wrong, and what is not told when it only
//! looks like it.

#![cfg(target_os = "linux")]

mod others;
mod queues;
mod records;
mod rings;
mod stage;

use std::time::Duration;

use model::{Phase, Rule};
use polylatch::{Guard, Polylatch};
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::proc;
use polylatch_test_services::redis::RedisServer;
use stage::Stage;

/// What would be judged from silence.
const FROM_SILENCE: [Rule; 6] =
    [Rule::Free, Rule::Legit, Rule::LostWake, Rule::DeadHead, Rule::RenewalsStopped, Rule::LateRenewal];

type Play = fn();

/// What is played, and what must be told or must not.
const SCENES: &[(&str, Play)] = &[
    ("a holder that is stopped", stopped),
    ("a holder that was killed", killed),
    ("a semaphore whose third holder is stopped", semaphore),
    ("a server that became a replica", read_only),
    ("a server whose memory is full", out_of_memory),
    ("a server that misses its replicas", too_few_replicas),
    ("a server that cannot save", cannot_save),
    ("a store without a quorum", quorum_lost),
    ("a store with one node down", node_down),
    ("a store of which one node hangs when it is connected to", node_hangs),
    ("a store that stalls", stalled),
    ("a lock in lock-delay", lock_delay),
    ("five hundred waiters", many_waiters),
    ("a holder on another host that was killed", killed_elsewhere),
    ("a holder whose work hangs while it renews", wedged),
    ("clients that wait for each other", rings::in_one_store),
    ("nested commands that wait for each other", rings::nested),
    ("nested commands that wait for each other in two stores", rings::over_two_stores),
    ("a writer behind readers", rings::a_writer_behind_readers),
    ("another library's lock, with and without an expiry", others::foreign),
    ("a record that cannot be read", others::unreadable),
    ("a server whose clock steps", others::clock_step),
    ("a waiter at the head of the queue that is stopped", queues::stale_head),
    ("a free lock beside a waiter", queues::free_beside_a_waiter),
    ("a waiter that has waited for a minute", queues::long_wait),
    ("a waiter that another library passes over", queues::starved),
    ("a holder whose renewals come late", queues::late_renewals),
    ("a record without an expiry whose holder was killed", records::no_expiry_and_dead),
    ("a store that forgot its tokens while its clock stepped back", records::smaller_token),
    ("votes of different programs without a majority", records::votes_without_a_majority),
    ("a silent node that decides who holds", records::silent_node_decides),
];

#[test]
fn what_is_told_is_so_and_what_only_looks_like_it_is_not_told() {
    // POLYLATCH_SCENES plays only those that have these words.
    let wanted = std::env::var("POLYLATCH_SCENES").unwrap_or_default();
    let scenes: Vec<_> = SCENES.iter().filter(|(what, _)| what.contains(&wanted)).collect();
    assert!(!scenes.is_empty(), "no scene has the words {wanted:?}");
    // Some at a time: they mostly wait.
    let mut failed = Vec::new();
    for scenes in scenes.chunks(6) {
        let playing: Vec<_> = scenes.iter().map(|(what, play)| (what, std::thread::spawn(*play))).collect();
        for (what, played) in playing {
            if played.join().is_err() {
                failed.push(*what);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}; see above");
}

fn client(stage: &Stage) -> Polylatch {
    stage.runtime.block_on(Polylatch::connect(&stage.url)).unwrap()
}

/// Holds `x`, with a lease that outlasts the scene.
fn hold(stage: &Stage, client: &Polylatch) -> Guard {
    let lease = Duration::from_secs(60);
    stage.runtime.block_on(client.lock("x").lease(lease).acquire()).unwrap()
}

fn stopped() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holder = stage.run(&[]);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::Stopped]);
    proc::pause_between_writes(holder.pid());
    stage.shows(Rule::Stopped);
    assert_eq!(stage.helps(), format!("kill -CONT {}", holder.pid()));
    assert!(!stage.tells(Rule::Legit));
}

fn killed() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let mut holder = stage.run(&["--lease", "30s"]);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::HolderGone]);
    holder.kill();
    stage.shows(Rule::HolderGone);
    assert!(stage.helps().contains(" break x --token "), "{}", stage.helps());
    assert!(!stage.tells(Rule::Legit));
}

fn killed_elsewhere() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let mut holder = stage.run_elsewhere(&["--lease", "12s"]);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::HolderGone, Rule::RenewalsStopped, Rule::LateRenewal]);
    holder.kill();
    stage.shows(Rule::LateRenewal);
    stage.shows(Rule::RenewalsStopped);
    assert!(!stage.tells(Rule::HolderGone), "nothing is known here of a process there");
    assert!(stage.helps().contains(" break x --token "), "{}", stage.helps());
}

fn wedged() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    // What is usual has to be seen first.
    for _ in 0..10 {
        let guard = hold(&stage, &holding);
        stage.until_held(1, 0);
        stage.runtime.block_on(guard.release()).unwrap();
        stage.until("the release", |stage| stage.fleet.lock(&Stage::key("x")).is_none());
    }
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::ZombieRenew]);
    stage.until("half a minute", |stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.held_for_ms > Some(30_000)))
    });
    stage.shows(Rule::ZombieRenew);
    assert!(stage.helps().contains(" break x --token "), "{}", stage.helps());
}

fn semaphore() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let mut holders = Vec::new();
    for held in 1..=3 {
        holders.push(stage.run(&["--permits", "1/3", "--lease", "30s"]));
        stage.until_held(held, 0);
    }
    stage.never_shows(&[Rule::Stopped]);
    proc::pause_between_writes(holders[2].pid());
    stage.shows(Rule::Stopped);
    let key = Stage::key("x");
    let lock = stage.fleet.lock(&key).unwrap();
    let token_of = |running: &stage::Running| {
        let of = |id: &polylatch::ClientId| id.pid() == Some(running.pid());
        lock.holders.iter().find(|holder| holder.client.as_ref().is_some_and(of)).unwrap().fencing_token
    };
    assert_eq!(
        stage.fleet.lease_to_break(&key),
        token_of(&holders[2]),
        "a break aims at the one that is stopped"
    );
    let told = stage.fleet.explain(&key);
    let command = format!("{:?}", told[0].next);
    assert!(command.contains(&token_of(&holders[2]).unwrap().to_string()), "{command}");
}

/// A holder and a waiter, both alive, of a server that then refuses writes.
fn refused(server: &RedisServer, refuse: impl FnOnce(&RedisServer)) {
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    let _waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    stage.never_shows(&[Rule::WritesRefused]);
    assert_eq!(stage.phase(), Some(Phase::Live));
    refuse(server);
    stage.shows(Rule::WritesRefused);
    assert!(matches!(stage.phase(), Some(Phase::Unfit { .. })), "{:?}", stage.phase());
    stage.never_shows(&FROM_SILENCE);
    let silent =
        stage.fleet.lock(&Stage::key("x")).map(|lock| lock.waiters.iter().any(|waiter| waiter.silent));
    assert_ne!(silent, Some(true), "a waiter whose heartbeats are refused has not given up");
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let reply = server.command(&["CONFIG", "SET", name, value]);
    assert!(reply.is_ok(), "{reply:?}");
}

fn read_only() {
    let server = RedisServer::start();
    refused(&server, |server| {
        // Of a primary that is not there: it serves what it has.
        assert!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).is_ok());
    });
}

fn out_of_memory() {
    let server = RedisServer::start();
    set(&server, "maxmemory-policy", "noeviction");
    // Plenty: a limit alone is no trouble.
    set(&server, "maxmemory", "1gb");
    refused(&server, |server| set(server, "maxmemory", "1"));
}

fn too_few_replicas() {
    let server = RedisServer::start();
    refused(&server, |server| set(server, "min-replicas-to-write", "1"));
}

fn cannot_save() {
    let server = RedisServer::start();
    set(&server, "save", "3600 1");
    refused(&server, |server| {
        std::fs::remove_dir_all(server.data_dir()).unwrap();
        // It fails in the background.
        server.command(&["BGSAVE"]);
    });
}

fn redlock() -> (Vec<RedisServer>, Stage) {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let stage = Stage::new(format!("redlock://{}", places.join(",")));
    (servers, stage)
}

fn quorum_lost() {
    let (servers, mut stage) = redlock();
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::NoQuorum, Rule::NodeDown]);
    servers[0].kill();
    servers[1].kill();
    stage.shows(Rule::NoQuorum);
    assert!(matches!(stage.phase(), Some(Phase::Unfit { .. })), "{:?}", stage.phase());
    stage.never_shows(&FROM_SILENCE);
}

fn node_down() {
    let (servers, mut stage) = redlock();
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    servers[0].kill();
    stage.shows(Rule::NodeDown);
    let named = servers[0].address().to_string();
    assert!(
        stage.findings().iter().any(|finding| finding.sentence.contains(&named)),
        "{:?}",
        stage.findings()
    );
    stage.never_shows(&[Rule::NoQuorum, Rule::Free]);
    assert_eq!(stage.phase(), Some(Phase::Live), "a majority works");
}

fn node_hangs() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let url = format!("redlock://{}", places.join(","));
    let holding = polylatch::blocking::Polylatch::connect(&url).unwrap();
    let _guard = holding.lock("x").lease(Duration::from_secs(60)).acquire().unwrap();
    servers[2].pause();
    let mut stage = Stage::new(url);
    stage.until("the lock", |stage| stage.fleet.lock(&Stage::key("x")).is_some());
    // Before it is a finding that a node is down, nothing is said of what it may know.
    let begun = stage.now_ms();
    stage.until("the finding about the node", |stage| {
        for finding in stage.findings() {
            assert!(
                !finding.sentence.contains("Nothing wrong was found"),
                "{} ms {finding:?}",
                stage.now_ms() - begun
            );
        }
        stage.tells(Rule::NodeDown)
    });
    servers[2].resume();
    stage.until("the answer of every node", |stage| {
        stage.findings().iter().any(|finding| finding.sentence.contains("Nothing wrong was found"))
    });
}

fn stalled() {
    let server = RedisServer::start();
    let mut stage = Stage::new(format!("{}?timeout=20s", server.url()));
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    assert_eq!(stage.phase(), Some(Phase::Live));
    server.pause();
    // Nothing of it is told as the present while it is not read.
    stage.shows(Rule::Backend);
    assert_ne!(stage.phase(), Some(Phase::Live));
    let before = stage.snapshots;
    // As long as the stall makes its own snapshot slow: the next ones must not wait for a multiple of that.
    std::thread::sleep(Duration::from_secs(4));
    server.resume();
    let resumed = std::time::Instant::now();
    stage.until("the store to be read again", |stage| stage.snapshots >= before + 4);
    assert!(resumed.elapsed() < Duration::from_secs(8), "read again only after {:?}", resumed.elapsed());
    assert_eq!(stage.phase(), Some(Phase::Live));
}

fn lock_delay() {
    let agent = ConsulAgent::start();
    let mut stage = Stage::new(agent.url());
    let holding = client(&stage);
    let guard = hold(&stage, &holding);
    let waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    // One that is released goes to the waiter without a delay.
    stage.runtime.block_on(guard.release()).unwrap();
    stage.until("the hand-off", |stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        let holder = lock.and_then(|lock| lock.holders.first()?.client.clone());
        holder.is_some_and(|id| id.pid() == Some(waiter.pid()))
    });
    stage.never_shows(&[Rule::LockDelay]);
    let _next = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    let session = stage.fleet.lock(&Stage::key("x")).and_then(|lock| {
        let details = &lock.holders[0].details;
        details.iter().find(|detail| detail.name == "session").map(|detail| detail.value.clone())
    });
    // As the servers do when the time to live of a holder's session is over.
    proc::pause_between_writes(waiter.pid());
    let ended = agent.ask("PUT", &format!("/v1/session/destroy/{}", session.unwrap()), "");
    assert!(ended.is_ok());
    stage.shows(Rule::LockDelay);
    stage.never_shows(&[Rule::LostWake, Rule::DeadHead, Rule::Legit]);
}

fn many_waiters() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    let (more, asked) = std::sync::mpsc::channel::<usize>();
    let url = stage.url.clone();
    // They go on waiting while the store is looked at.
    let waiting = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(Polylatch::connect(&url)).unwrap();
        runtime.block_on(async {
            loop {
                match asked.try_recv() {
                    Ok(many) => {
                        for _ in 0..many {
                            let lock = client.lock("x");
                            tokio::spawn(async move { lock.acquire().await });
                        }
                    }
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                    Err(std::sync::mpsc::TryRecvError::Empty) => {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    });
    more.send(5).unwrap();
    stage.until_held(1, 5);
    stage.never_shows(&[Rule::ManyWaiters]);
    more.send(495).unwrap();
    stage.until_held(1, 500);
    stage.shows(Rule::ManyWaiters);
    drop(more);
    waiting.join().unwrap();
}
