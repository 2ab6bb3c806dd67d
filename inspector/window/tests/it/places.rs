//! Several stores in one window: all kinds at once, other libraries' locks, one that goes and comes back.

use eframe::egui::Key;
use polylatch::blocking::Polylatch;
use polylatch_inspector::Args;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::redis::{Cluster, RedisServer, Service};

use super::pilot::Pilot;

#[test]
fn stores_of_every_kind_stand_in_one_table_with_what_only_they_can_tell() {
    let redis = RedisServer::start();
    let sentinels = Service::with_replicas(0).start();
    let cluster = Cluster::start();
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let places: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let redlock = format!("redlock://{}", places.join(","));
    let consul = ConsulAgent::start();
    let others = [redis.url(), sentinels.url(), cluster.url(), redlock, consul.url()];
    let mut urls = Vec::new();
    let mut window = Pilot::on_a_store(|file| {
        urls = std::iter::once(file.to_owned()).chain(others).collect();
        Args { url: urls.clone(), ..Args::default() }
    });
    let names = ["in/file", "in/redis", "in/service", "in/cluster", "in/quorum", "in/consul"];
    let clients: Vec<_> = urls.iter().map(|url| Polylatch::connect(url).unwrap()).collect();
    let _held: Vec<_> = clients
        .iter()
        .zip(names)
        .map(|(client, name)| client.lock(name).label(name).acquire().unwrap())
        .collect();
    for name in names {
        window.until_row(&format!("{name}, held"));
    }
    window.until("the count", |window| window.says("6 locks"));

    nodes[2].kill();
    window.click_row("in/quorum");
    window.until("the votes", |window| {
        window.says("VOTES: 2 OF 3 NODES, 2 NEEDED") && window.says("does not answer")
    });
    window.click_row("in/consul");
    for part in ["session TTL", "lock-delay", "consul kv get", "polylatch --url consul://"] {
        window.until(part, |window| window.says(part));
    }
    window.click_row("in/redis");
    window.until("the server's own command", |window| window.says("redis-cli"));
}

#[test]
fn a_server_that_goes_away_greys_its_rows_and_comes_back_by_itself() {
    let redis = RedisServer::start();
    let url = format!("{}?timeout=500ms", redis.url());
    let mut window =
        Pilot::on_a_store(|file| Args { url: vec![url.clone(), file.to_owned()], ..Args::default() });
    let (there, here) = (Polylatch::connect(&url).unwrap(), Polylatch::connect(&window.url).unwrap());
    let _held = (there.lock("far").acquire().unwrap(), here.lock("near").acquire().unwrap());
    window.until_row("far, held");
    window.until_row("near, held");
    redis.kill();
    // Its rows stay, and are not said to be the present.
    window.until_row("far, unknown");
    window.until_row("near, held");
    window.until("the count", |window| window.says("1 not known now") && window.says("at least 2 locks"));
    window.until("when it was seen last", |window| window.says("last seen "));
    redis.start_again();
    let again = Polylatch::connect(&url).unwrap();
    let _held = again.lock("after").acquire().unwrap();
    window.until_row("after, held");
    window.until("that all is known", |window| !window.says("not known now"));
}

#[test]
fn locks_of_other_libraries_are_shown_when_asked_for_and_cannot_be_broken() {
    let redis = RedisServer::start();
    for command in [
        &["SET", "lock:plain", "0123456789abcdef0123456789abcdef", "PX", "600000"][..],
        &["HSET", "lock:redisson", "0b1c9f8e-1111-4222-8333-444455556666:17", "2"],
        &["PEXPIRE", "lock:redisson", "600000"],
    ] {
        assert_eq!(redis.command(command).error(), None, "{command:?}");
    }
    let mut window = Pilot::start(Args::default());
    window.until_label("Which locks do you want to see?");
    window.click("Add a connection");
    window.type_into("URL", &redis.url());
    window.type_into("Foreign locks", "lock:*");
    window.click("Connect once");
    window.until_row("lock:plain, foreign");
    window.until_row("lock:redisson, foreign");
    window.click_row("lock:redisson");
    window.until("whose it is", |window| window.says("Redisson lock") && window.says("thread 17"));
    window.key(Key::Delete);
    window.until("the refusal", |window| window.says("No holder has a lease that could be broken."));
    assert!(window.texts().iter().all(|text| !text.contains("0123456789abcdef")), "the value is the secret");
}

#[test]
fn clients_that_wait_for_each_other_are_a_possible_deadlock() {
    let mut window = Pilot::connected();
    let clients = [(); 2].map(|()| Polylatch::connect(&window.url).unwrap());
    let _held = [clients[0].lock("orders").acquire().unwrap(), clients[1].lock("stock").acquire().unwrap()];
    for (client, wanted) in [(&clients[0], "stock"), (&clients[1], "orders")] {
        let client = client.clone();
        std::thread::spawn(move || drop(client.lock(wanted).acquire()));
    }
    window.until_row("orders, deadlock?");
    window.until_row("stock, deadlock?");
    window.until("the count", |window| window.says("2 in a possible deadlock"));
    window.click_row("orders");
    window.until("why", |window| window.says("May be a deadlock, unchanged for "));
    window.key(Key::G);
    window.until("the ring as text", |window| window.says("waits for orders, held by"));
    window.key(Key::Num3);
    window.until("both, and no others", |window| window.rows().len() == 2);
}

#[test]
fn a_connection_is_tried_before_it_is_saved_and_production_is_read_only() {
    let redis = RedisServer::start();
    let client = Polylatch::connect(&redis.url()).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    let mut window = Pilot::start(Args::default());
    window.until_label("Which locks do you want to see?");
    window.click("Add a connection");
    window.type_into("URL", "redis://127.0.0.1:1");
    window.click("Test");
    window.until("what is wrong", |window| window.says("cannot be reached") || window.says("refused"));
    window.replace_text("URL", &redis.url());
    window.click("Test");
    window.until("every step", |window| {
        window.says("reached and logged in to ")
            && window.says("may list: 1 lock")
            && window.says("its clock differs")
    });
    window.replace_text("Name", "shop");
    window.click("production");
    window.click("Save and connect");
    window.until_row("orders/17, held");
    assert!(window.says("connection shop, production"), "{:?}", window.texts());
    window.click_row("orders/17");
    window.key(Key::Delete);
    window.until("the refusal", |window| {
        window.says("shop is read-only; change that in its connection first.")
    });
    assert!(!window.says("Reason (other operators will read it)"));
}

#[test]
fn the_buttons_stay_where_they_are_while_a_connection_is_tested() {
    let redis = RedisServer::start();
    for (url, last) in [("redis://127.0.0.1:1".to_owned(), "127.0.0.1"), (redis.url(), "its clock differs")] {
        let mut window = Pilot::start(Args::default());
        window.until_label("Which locks do you want to see?");
        window.click("Add a connection");
        window.type_into("URL", &url);
        window.click("Test");
        let place = window.place_of("Save and connect");
        window.until("the end of the test", |window| {
            assert_eq!(window.place_of("Save and connect"), place, "{:?}", window.texts());
            !window.says("testing…")
        });
        assert!(window.says(last), "{:?}", window.texts());
    }
}

/// Holds a lock until its input ends.
#[test]
#[ignore = "is started by another test, in another PID namespace"]
fn a_holder_in_a_container() {
    let client = Polylatch::connect(&std::env::var("POLYLATCH_TEST_URL").unwrap()).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_number_of_a_container_is_marked_as_one() {
    use std::process::{Command, Stdio};
    let mut window = Pilot::connected();
    let mut container = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "places::a_holder_in_a_container"])
        .env("POLYLATCH_TEST_URL", &window.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    window.until_row("orders/17, held");
    window.click_row("orders/17");
    // The client says a moment later who it is.
    window.until("the mark", |window| window.says("in another PID namespace (a container)"));
    assert!(!window.says("its process is gone"), "nothing is known of it here: {:?}", window.texts());
    drop(container.stdin.take());
    container.wait().unwrap();
}

#[test]
fn two_databases_of_one_server_are_told_apart() {
    let redis = RedisServer::start();
    let urls = vec![redis.url(), format!("{}/1", redis.url().trim_end_matches('/'))];
    let mut window = Pilot::start(Args { url: urls.clone(), ..Args::default() });
    let clients: Vec<_> = urls.iter().map(|url| Polylatch::connect(url).unwrap()).collect();
    let _held: Vec<_> = clients.iter().map(|client| client.lock("same").acquire().unwrap()).collect();
    let address = redis.address().to_string();
    for name in [format!("connection {address}, "), format!("connection {address} db 1, ")] {
        window.until(&name, |window| window.says(&name) && window.rows().len() == 2);
    }
}

#[test]
fn what_was_before_the_window_is_not_observed_and_not_missed() {
    let mut window = Pilot::on_a_store(|_| Args::default());
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    let url = window.url.clone();
    window.click("Add a connection");
    window.type_into("URL", &url);
    window.click("Connect once");
    window.until_row("orders/17, held");
    window.click_row("orders/17");
    for key in [Key::T, Key::H] {
        window.key(key);
        window.until("that it is not known", |window| window.says("; not observed before "));
    }
    assert!(window.says(" 0 missed"), "{:?}", window.texts());
    // What is taken later was observed from its begin.
    let _later = client.lock("orders/18").acquire().unwrap();
    window.until_row("orders/18, held");
    window.click_row("orders/18");
    // A slow picture may come after the second one.
    window.until("its renewals", |window| {
        (1..10).any(|beats| window.says(&format!("renewals: {beats} renewals")))
    });
    assert!(!window.says("not observed before"));
}
