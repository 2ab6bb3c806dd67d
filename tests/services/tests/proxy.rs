//! Every fault of the proxy against the real `redis-server`.
#![cfg(unix)]

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polylatch_test_services::proxy::{Hold, Pattern, Proxy, Side};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::{Client, Reply, wait_until};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(5);

fn pair() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

fn dial(proxy: &Proxy) -> Client {
    Client::tcp(proxy.address()).expect("the proxy accepts")
}

#[track_caller]
fn ask(client: &mut Client, words: &[&str]) -> Reply {
    client.command(words).expect("a reply")
}

#[track_caller]
fn lost(client: &mut Client) {
    let error = client.read().expect_err("the connection is gone");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

#[track_caller]
fn silent(client: &mut Client) {
    client.set_timeout(SHORT).expect("a timeout");
    let error = client.read().expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    client.set_timeout(LONG).expect("a timeout");
}

#[test]
fn without_faults_everything_passes_in_order_and_is_counted() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    let big = "x".repeat(1_000_000);
    assert!(ask(&mut client, &["SET", "big", &big]).is_ok());
    assert_eq!(ask(&mut client, &["get", "big"]).text(), Some(big.as_str()));
    for number in 0..500 {
        client.send(&["ECHO", &number.to_string()]).expect("sent");
    }
    for number in 0..500 {
        assert_eq!(client.read().expect("a reply").text(), Some(&*number.to_string()));
    }
    assert_eq!(proxy.requests_of("echo"), 500);
    assert_eq!(proxy.requests()["GET"], 1);
    assert_eq!((proxy.accepted(), proxy.connections()), (1, 1));
    drop(client);
    wait_until("the connection to end", LONG, || proxy.connections() == 0);
    let clients = server.command(&["INFO", "clients"]);
    // The one that asks.
    assert!(clients.text().expect("text").contains("connected_clients:1\r\n"));
    assert_eq!(proxy.malformed(), Vec::<String>::new());
}

#[test]
fn a_lost_reply_leaves_the_request_done_and_the_connection_reset() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    let fault = proxy.drop_reply("INCR", 2);
    assert_eq!(ask(&mut client, &["INCR", "n"]), Reply::Int(1));
    assert!(!fault.has_fired());
    client.send(&["INCR", "n"]).expect("sent");
    lost(&mut client);
    assert!(fault.has_fired());
    assert_eq!(server.command(&["GET", "n"]).text(), Some("2"));
    assert_eq!(ask(&mut dial(&proxy), &["INCR", "n"]), Reply::Int(3));
}

#[test]
fn replies_before_a_lost_one_still_arrive() {
    let (_server, proxy) = pair();
    let mut client = dial(&proxy);
    proxy.drop_reply(Pattern::argument("third"), 1);
    for word in ["first", "second", "third", "fourth"] {
        client.send(&["ECHO", word]).expect("sent");
    }
    assert_eq!(client.read().expect("a reply").text(), Some("first"));
    assert_eq!(client.read().expect("a reply").text(), Some("second"));
    lost(&mut client);
}

#[test]
fn a_lost_request_never_reaches_the_server_nor_does_what_follows() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    let fault = proxy.drop_request(Pattern::command("SET").and("b"), 1);
    for key in ["a", "b", "c"] {
        client.send(&["SET", key, "1"]).expect("sent");
    }
    assert!(client.read().expect("the first reply").is_ok());
    lost(&mut client);
    assert!(fault.has_fired());
    assert_eq!(server.command(&["EXISTS", "a"]), Reply::Int(1));
    assert_eq!(server.command(&["EXISTS", "b", "c"]), Reply::Int(0));
    // With nothing else under way the end comes at once.
    let mut client = dial(&proxy);
    proxy.drop_request("GET", 1);
    client.send(&["GET", "a"]).expect("sent");
    lost(&mut client);
}

#[test]
fn a_repeated_request_runs_twice_and_is_answered_once() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    let fault = proxy.duplicate_request("INCR", 1);
    assert_eq!(ask(&mut client, &["INCR", "n"]), Reply::Int(1));
    assert_eq!(ask(&mut client, &["GET", "n"]).text(), Some("2"));
    assert!(fault.has_fired());
    assert_eq!(server.command(&["GET", "n"]).text(), Some("2"));
}

#[test]
fn scripts_are_found_by_source_name_and_hash() {
    let (_server, proxy) = pair();
    let source = "-- release\nreturn redis.call('INCR', KEYS[1])";
    let mut loader = dial(&proxy);
    let sha = ask(&mut loader, &["SCRIPT", "LOAD", source]);
    let sha = sha.text().expect("a hash").to_owned();
    proxy.name_script("release", source);
    for pattern in [sha.as_str(), "-- release", "release", "EVALSHA"] {
        let mut client = dial(&proxy);
        let fault = proxy.drop_reply(pattern, 1);
        assert!(ask(&mut client, &["PING"]).text().is_some());
        client.send(&["EVALSHA", &sha, "1", "n"]).expect("sent");
        lost(&mut client);
        assert!(fault.has_fired(), "{pattern}");
    }
    assert_eq!(ask(&mut loader, &["GET", "n"]).text(), Some("4"));
}

#[test]
fn latency_delays_a_pipeline_once_and_not_per_request() {
    let (_server, proxy) = pair();
    let mut client = dial(&proxy);
    proxy.set_latency(Duration::from_millis(60), Duration::from_millis(40));
    let start = Instant::now();
    for _ in 0..20 {
        client.send(&["PING"]).expect("sent");
    }
    for _ in 0..20 {
        client.read().expect("a reply");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took < Duration::from_millis(1000), "{took:?}");
}

#[test]
fn a_stalled_request_arrives_late_even_if_its_client_is_gone() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    assert!(ask(&mut client, &["PING"]).text().is_some());
    proxy.set_hold(Hold::Stall);
    client.send(&["SET", "late", "1"]).expect("sent");
    silent(&mut client);
    drop(client);
    assert_eq!(server.command(&["EXISTS", "late"]), Reply::Int(0));
    proxy.set_hold(Hold::Off);
    wait_until("the late request", LONG, || server.command(&["EXISTS", "late"]) == Reply::Int(1));
    wait_until("the connection to end", LONG, || proxy.connections() == 0);
}

#[test]
fn stalled_replies_arrive_after_the_hold() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    proxy.set_hold(Hold::StallReplies);
    client.send(&["INCR", "n"]).expect("sent");
    silent(&mut client);
    assert_eq!(server.command(&["GET", "n"]).text(), Some("1"));
    proxy.heal();
    assert_eq!(client.read().expect("the late reply"), Reply::Int(1));
}

#[test]
fn a_black_hole_accepts_and_swallows_and_resets_what_it_damaged() {
    let (server, proxy) = pair();
    let mut idle = dial(&proxy);
    assert!(ask(&mut idle, &["PING"]).text().is_some());
    proxy.set_hold(Hold::Swallow);
    let mut client = dial(&proxy);
    client.send(&["SET", "gone", "1"]).expect("sent");
    silent(&mut client);
    proxy.set_hold(Hold::Off);
    lost(&mut client);
    assert_eq!(server.command(&["EXISTS", "gone"]), Reply::Int(0));
    assert!(ask(&mut idle, &["PING"]).text().is_some());
}

#[test]
fn a_reset_ends_all_connections_even_held_ones() {
    let (_server, proxy) = pair();
    let mut clients: Vec<Client> = (0..5).map(|_| dial(&proxy)).collect();
    for client in &mut clients {
        assert!(ask(client, &["PING"]).text().is_some());
    }
    proxy.set_hold(Hold::Stall);
    clients[0].send(&["PING"]).expect("sent");
    let start = Instant::now();
    proxy.reset_all();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(proxy.connections(), 0);
    clients.iter_mut().for_each(lost);
    proxy.heal();
    assert!(ask(&mut dial(&proxy), &["PING"]).text().is_some());
}

#[test]
fn refusing_hurts_new_connections_only_and_ends_on_the_same_port() {
    let (_server, proxy) = pair();
    let mut open = dial(&proxy);
    for _ in 0..3 {
        proxy.set_refuse(true);
        let refused = Client::tcp(proxy.address()).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(ask(&mut open, &["PING"]).text().is_some());
        proxy.set_refuse(false);
        assert!(ask(&mut dial(&proxy), &["PING"]).text().is_some());
    }
}

#[test]
fn a_half_closed_client_reads_the_end_and_may_still_send() {
    let (server, proxy) = pair();
    let mut client = dial(&proxy);
    assert!(ask(&mut client, &["PING"]).text().is_some());
    proxy.half_close(Side::Client);
    let error = client.command(&["SET", "k", "v"]).expect_err("no more replies");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    wait_until("the request", LONG, || server.command(&["EXISTS", "k"]) == Reply::Int(1));
}

#[test]
fn a_half_closed_server_hangs_up() {
    let (_server, proxy) = pair();
    let mut client = dial(&proxy);
    assert!(ask(&mut client, &["PING"]).text().is_some());
    proxy.half_close(Side::Server);
    let error = client.read().expect_err("the server saw the end");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn slices_arrive_byte_by_byte_and_whole() {
    let (_server, proxy) = pair();
    proxy.set_slices(Some(1));
    let mut client = dial(&proxy);
    assert_eq!(ask(&mut client, &["ECHO", "a\r\nb"]).text(), Some("a\r\nb"));
    assert!(ask(&mut client, &["GET", "none"]).is_nil());
}

#[test]
fn lost_messages_are_lost_and_replies_are_not() {
    for protocol in ["2", "3"] {
        let (server, proxy) = pair();
        let mut client = dial(&proxy);
        ask(&mut client, &["HELLO", protocol]);
        let confirmed = ask(&mut client, &["SUBSCRIBE", "a", "b"]);
        assert_eq!(confirmed.items()[0].text(), Some("subscribe"));
        assert_eq!(client.read().expect("the second one").items()[2], Reply::Int(2));
        proxy.drop_pushes(1.0);
        server.command(&["PUBLISH", "a", "lost"]);
        wait_until("the loss", LONG, || proxy.pushes_dropped() == 1);
        proxy.drop_pushes(0.0);
        server.command(&["PUBLISH", "b", "heard"]);
        assert_eq!(client.read().expect("a message").texts(), ["message", "b", "heard"]);
        // The pairing survived: all confirmations belong to one request, the next reply to PING.
        client.send(&["UNSUBSCRIBE"]).expect("sent");
        client.send(&["PING"]).expect("sent");
        let fault = proxy.drop_reply("ECHO", 1);
        client.send(&["ECHO", "x"]).expect("sent");
        for _ in 0..2 {
            let confirmed = client.read().expect("a confirmation");
            assert_eq!(confirmed.items()[0].text(), Some("unsubscribe"));
        }
        assert_eq!(client.read().expect("a reply").text(), Some("PONG"), "RESP{protocol}");
        lost(&mut client);
        assert!(fault.has_fired());
    }
}

#[test]
fn push_loss_follows_its_probability_and_repeats() {
    let losses = || {
        let (server, proxy) = pair();
        let mut client = dial(&proxy);
        ask(&mut client, &["SUBSCRIBE", "c"]);
        proxy.drop_pushes(0.2);
        let mut publisher = server.connect().expect("a connection");
        for number in 0..500 {
            publisher.command(&["PUBLISH", "c", &number.to_string()]).expect("a reply");
        }
        // Not all of twenty are lost; and the loss stays on, so nothing hangs on when it ends.
        for _ in 0..20 {
            publisher.command(&["PUBLISH", "c", "end"]).expect("a reply");
        }
        let mut heard = Vec::new();
        loop {
            let message = client.read().expect("a message");
            match message.texts()[2] {
                "end" => return heard,
                number => heard.push(number.to_owned()),
            }
        }
    };
    let heard = losses();
    assert_eq!(heard, losses());
    assert!((340..460).contains(&heard.len()), "{} of 500 heard", heard.len());
}

#[test]
fn a_dead_target_looks_like_a_reset_and_a_new_target_takes_over() {
    let (server, proxy) = pair();
    server.kill();
    let mut stream = TcpStream::connect(proxy.address()).expect("the proxy accepts");
    let error = stream.read(&mut [0]).expect_err("nobody behind it");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let other = RedisServer::start();
    proxy.set_target(other.address());
    assert!(ask(&mut dial(&proxy), &["SET", "k", "v"]).is_ok());
    assert_eq!(other.command(&["GET", "k"]).text(), Some("v"));
}

#[test]
fn a_server_with_a_password_is_reached_through_the_proxy_by_its_own_url() {
    let server = RedisServer::builder().password("secret").start();
    let proxy = Proxy::start(server.address());
    let url = server.url_through(proxy.address());
    assert_eq!(url, format!("redis://:secret@127.0.0.1:{}", proxy.port()));
    let mut client = dial(&proxy);
    assert!(ask(&mut client, &["AUTH", "secret"]).is_ok());
    assert!(ask(&mut client, &["SET", "k", "v"]).is_ok());
}

#[test]
fn what_is_not_resp_is_reported_and_costs_its_connection() {
    let (_server, proxy) = pair();
    let mut stream = TcpStream::connect(proxy.address()).expect("the proxy accepts");
    std::io::Write::write_all(&mut stream, b"*1\r\n:1\r\n").expect("sent");
    stream.read(&mut [0]).expect_err("the connection is gone");
    wait_until("the report", LONG, || proxy.malformed().len() == 1);
}

#[test]
fn a_raw_proxy_passes_what_it_does_not_understand() {
    let server = RedisServer::start();
    let proxy = Proxy::start_raw(server.address());
    let mut client = dial(&proxy);
    proxy.drop_reply(Pattern::Any, 1);
    assert!(ask(&mut client, &["SET", "k", "v"]).is_ok());
    assert!(proxy.requests().is_empty());
    proxy.reset_all();
    lost(&mut client);
}
