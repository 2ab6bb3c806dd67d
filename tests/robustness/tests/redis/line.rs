//! Long lines: first come, first served, and no herd.

use std::time::Instant;

use polylatch::blocking::Polylatch;
use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::history::History;
use polylatch_robustness::look::wait_for_crowd;
use polylatch_robustness::process::{SOON, Worker};
use polylatch_robustness::resource::Resource;
use polylatch_robustness::size;
use polylatch_test_services::redis::RedisServer;

use crate::{P, WORKER};

struct Crowd {
    server: RedisServer,
    evidence: Evidence,
    client: Polylatch,
    holder: Worker,
    processes: Vec<Worker>,
}

impl Crowd {
    fn of(processes: usize) -> Self {
        let server = RedisServer::start();
        let evidence = Evidence::new(None);
        let resource = Resource::start(evidence.dir());
        let client = Polylatch::connect(&server.url()).expect("the server runs");
        let worker = |who: &str| Worker::start(WORKER, who, &server.url(), &resource, &evidence);
        let holder = worker("holder");
        let processes = (0..processes).map(|index| worker(&format!("p{index}"))).collect();
        Self { server, evidence, client, holder, processes }
    }

    /// The holder holds, and so many threads of every process stand in line. Returns the labels in
    /// the order of the line.
    #[track_caller]
    fn line_up(&mut self, threads: usize) -> Vec<String> {
        self.holder.order("acquire 0 holder");
        let _ = self.holder.entered(0, SOON);
        for (index, process) in self.processes.iter_mut().enumerate() {
            process.order(&format!("queue 0 {threads} p{index}-"));
        }
        wait_for_crowd(&self.client, 0, self.processes.len() * threads)
    }

    /// The holder leaves, and everybody passes through. Returns the labels in the order of tokens.
    #[track_caller]
    fn pass(&mut self, threads: usize) -> Vec<String> {
        self.holder.order("leave 0");
        assert_eq!(self.holder.released(), "ok");
        let mut named: Vec<_> = Vec::new();
        for process in &mut self.processes {
            named.extend((0..threads).map(|_| process.named()));
        }
        named.sort_unstable();
        named.into_iter().map(|(_, label)| label).collect()
    }

    /// The history of everybody is good; in it, tokens order entries by time.
    #[track_caller]
    fn judge(self) {
        let mut history = History::default();
        self.holder.testify(&mut history);
        self.processes.into_iter().for_each(|process| process.testify(&mut history));
        self.evidence.judge(&mut history);
    }
}

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_line() {
    const THREADS: usize = 10;
    let rounds = size("POLYLATCH_ROBUSTNESS_ROUNDS", 40);
    let mut crowd = Crowd::of(5);
    let started = Instant::now();
    for round in 0..rounds {
        let line = crowd.line_up(THREADS);
        let entered = crowd.pass(THREADS);
        assert_eq!(entered, line, "round {round}: entered in another order than the line was");
    }
    println!("{rounds} rounds of 50 waiters in {:?}, all in order", started.elapsed());
    crowd.judge();
}

#[test]
fn a_hand_over_costs_few_commands_however_many_wait() {
    const THREADS: usize = 50;
    const WAITERS: usize = 4 * THREADS;
    let mut crowd = Crowd::of(4);
    // The first round loads scripts and opens subscriptions.
    let _ = crowd.line_up(THREADS);
    let _ = crowd.pass(THREADS);
    let line = crowd.line_up(THREADS);
    assert!(crowd.server.command(&["CONFIG", "RESETSTAT"]).is_ok());
    let started = Instant::now();
    let entered = crowd.pass(THREADS);
    let took = started.elapsed();
    let calls = calls(&crowd.server);
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
