//! Long lines: first come, first served, and no herd.

use std::time::Instant;

use polylatch_robustness::crowd::{self, Crowd};
use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::scenarios::P;
use polylatch_robustness::stage::Stage;
use polylatch_test_services::redis::RedisServer;

use crate::WORKER;

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue() {
    let server = RedisServer::start();
    let stage = Stage::new(WORKER, &server.url(), Evidence::new(None));
    crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(&stage, 200);
}

#[test]
fn a_hand_over_costs_few_commands_however_many_wait() {
    const THREADS: usize = 50;
    const WAITERS: usize = 4 * THREADS;
    let server = RedisServer::start();
    let stage = Stage::new(WORKER, &server.url(), Evidence::new(None));
    let mut crowd = Crowd::of(&stage, 4);
    // The first round loads scripts and opens subscriptions.
    let _ = crowd.line_up(THREADS);
    let _ = crowd.pass(THREADS);
    let line = crowd.line_up(THREADS);
    assert!(server.command(&["CONFIG", "RESETSTAT"]).is_ok());
    let started = Instant::now();
    let entered = crowd.pass(THREADS);
    let took = started.elapsed();
    let calls = calls(&server);
    assert_eq!(entered, line);

    // Polls are heartbeats here: the nearest four come every P, the others every 3 P, each up to a
    // tenth early, and once more because the intervals of all began before.
    let intervals = took.as_secs_f64() / (0.9 * P.as_secs_f64()) + 1.0;
    let heartbeats = (4.0 * intervals + WAITERS as f64 * (intervals / 3.0 + 1.0)).ceil() as u64;
    let sent: u64 = calls.iter().filter(|(name, _)| name.starts_with("eval")).map(|(_, count)| count).sum();
    println!(
        "{WAITERS} hand-overs in {took:?} ({:.3} ms each): {:.2} commands per hand-over ({sent} script \
         calls, room for {heartbeats} heartbeats); all of {calls:?}",
        took.as_secs_f64() * 1e3 / WAITERS as f64,
        sent as f64 / WAITERS as f64
    );
    assert!(sent <= 3 * WAITERS as u64 + heartbeats, "{sent} script calls: {calls:?}");
    let pushes = calls.iter().find(|(name, _)| name == "publish").map_or(0, |(_, count)| *count);
    assert!(pushes <= WAITERS as u64 + 8, "more than one is woken per hand-over: {pushes}");
    crowd.judge();
}

/// How often each command ran, also inside scripts, since the last reset of the figures.
#[track_caller]
fn calls(server: &RedisServer) -> Vec<(String, u64)> {
    let reply = server.command(&["INFO", "commandstats"]);
    let text = reply.text().expect("INFO answers text").to_owned();
    text.lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .map(|(name, rest)| {
            let count = rest.split(',').next().and_then(|count| count.parse().ok());
            (name.to_owned(), count.expect("a number of calls"))
        })
        .collect()
}
