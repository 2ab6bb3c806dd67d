//! Clients that wait for each other, and such that only seem to.

use model::Rule;
use polylatch::blocking::Polylatch;
use polylatch_test_services::redis::RedisServer;

use super::stage::Stage;

/// Two clients; each holds one lock and waits for the other's. Which task does so is not known.
pub fn in_one_store() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let clients = [(); 2].map(|()| Polylatch::connect(&stage.url).unwrap());
    let _held = [clients[0].lock("x").acquire().unwrap(), clients[1].lock("y").acquire().unwrap()];
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::MayDeadlock, Rule::Deadlock]);
    for (client, wanted) in clients.iter().zip(["y", "x"]) {
        let client = client.clone();
        // It waits until the process ends.
        std::thread::spawn(move || drop(client.lock(wanted).acquire()));
    }
    stage.until_held(1, 1);
    stage.shows(Rule::MayDeadlock);
    assert!(!stage.tells(Rule::Deadlock), "it is not proved");
    assert!(stage.helps().ends_with(" show x"), "nothing to break: {}", stage.helps());
}

pub fn nested() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let url = stage.url.clone();
    let _ring =
        [["x", "y"], ["y", "x"]].map(|[outer, inner]| Stage::run_nested([&url, outer], [&url, inner]));
    stage.until_held(1, 1);
    stage.shows(Rule::Deadlock);
    assert!(stage.helps().contains(" break "), "{}", stage.helps());
    assert!(!stage.tells(Rule::Legit));
}

pub fn over_two_stores() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut stage = Stage::new(servers[0].url());
    let (url, other) = (servers[0].url(), servers[1].url());
    stage.watch_also(other.clone());
    let _ring =
        [Stage::run_nested([&url, "x"], [&other, "y"]), Stage::run_nested([&other, "y"], [&url, "x"])];
    stage.until_held(1, 1);
    stage.shows(Rule::Deadlock);
    let told = stage.findings();
    assert!(told.iter().any(|finding| finding.sentence.contains("waits for y in other")), "{told:?}");
    assert!(stage.helps().contains(" break "), "{}", stage.helps());
}

pub fn a_writer_behind_readers() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let mut readers = [(); 2].map(|()| stage.run(&["--shared", "--lease", "30s"]));
    stage.until_held(2, 0);
    let _writer = stage.run(&["--write", "--wait", "10m"]);
    stage.until_held(2, 1);
    // Both readers work; the writer waits as it must.
    stage.never_shows(&[Rule::Free, Rule::LostWake, Rule::DeadHead, Rule::MayDeadlock, Rule::HolderGone]);
    readers[1].kill();
    stage.shows(Rule::HolderGone);
    assert!(!stage.tells(Rule::Legit));
    let lock = stage.fleet.lock(&Stage::key("x")).unwrap();
    let of_it = |id: &polylatch::ClientId| id.pid() == Some(readers[1].pid());
    let gone = lock.holders.iter().find(|holder| holder.client.as_ref().is_some_and(of_it)).unwrap();
    let token = format!("--token {} ", gone.fencing_token.unwrap());
    assert!(stage.helps().contains(&token), "it aims at the reader that is gone: {}", stage.helps());
}
