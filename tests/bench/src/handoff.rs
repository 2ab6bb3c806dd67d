//! From the call of release to the return of the next acquire in another process.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use polylatch_test_services::redis::RedisServer;

use crate::contender::{Note, PASS_ON, STAND, now};
use crate::cost::{Commands, commands};
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;
use crate::raw::Wire;

/// Processes that contend; waiters are spread over them.
const PROCESSES: usize = 8;
const ROUNDS: usize = 3;
const SECTIONS: usize = 2_000;

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
    heading("hand-off of a contended lock (µs)");
    for waiters in [2, 8, 64, 1000] {
        let parties = waiters.min(PROCESSES);
        let (mut threads, mut processes, mut ours) =
            (Samples::default(), Samples::default(), Samples::default());
        let (mut commands, mut sections) = (Commands::default(), Samples::default());
        for round in 0..ROUNDS {
            threads.extend(between_threads(&server, parties));
            processes.extend(between_processes(&server, parties));
            let outcome = our_round(&server, &format!("handoff-{waiters}-{round}"), waiters);
            commands.add(outcome.commands);
            sections.extend(outcome.latencies.iter().map(|latencies| latencies.len() as f64));
            ours.extend(outcome.latencies.concat());
        }
        row(&format!("floor: bare push, {parties} threads of a process"), "µs", &threads, &[]);
        row(&format!("floor: push hand-off, {parties} processes (M3)"), "µs", &processes, &[]);
        let floors = [("processes", processes.median()), ("threads", threads.median())];
        row(&format!("polylatch, {waiters} waiters in {parties} processes"), "µs", &ours, &floors);
        let each = |sum: u64| sum as f64 / ours.len() as f64;
        println!(
            "    per critical section {:.2} calls of scripts, which run for {:.1} µs, and {:.1} other commands; sections of a \
             contender: at least {}, in the middle {}",
            each(commands.scripts),
            each(commands.script_micros),
            each(commands.others),
            sections.quantile(0.0),
            sections.median(),
        );
    }
}

/// The same contention over blocking sockets, without fences, heartbeats, provisional leases or anything
/// else that makes it safe: a thread for each contender.
fn between_threads(server: &RedisServer, parties: usize) -> Vec<f64> {
    let passed_at = Arc::new(AtomicU64::new(0));
    let left = Arc::new(AtomicUsize::new(SECTIONS));
    let ready = Arc::new(Barrier::new(parties));
    server.command(&["DEL", "raw", "raw-line"]);
    let threads: Vec<_> = (0..parties)
        .map(|party| {
            let (passed_at, left, ready) = (Arc::clone(&passed_at), Arc::clone(&left), Arc::clone(&ready));
            let (mut wire, mut inbox) = (Wire::connect(server.address()), Wire::connect(server.address()));
            thread::spawn(move || {
                let (stand, pass_on) = (wire.load(STAND), wire.load(PASS_ON));
                let me = format!("raw-{party}");
                inbox.send(&["SUBSCRIBE", &me]);
                inbox.message();
                ready.wait();
                let mut latencies = Vec::new();
                while left.load(Ordering::SeqCst) > 0 {
                    let free = wire.ask(&["EVALSHA", &stand, "2", "raw", "raw-line", &me]);
                    if free != ":1" {
                        inbox.message();
                        latencies.push((now() - passed_at.load(Ordering::SeqCst)) as f64 / 1e3);
                    }
                    let _ = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    passed_at.store(now(), Ordering::SeqCst);
                    wire.ask(&["EVALSHA", &pass_on, "2", "raw", "raw-line", &me, "yours"]);
                }
                latencies
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
}

/// The same with a process for each contender, as the library's own figure is taken.
fn between_processes(server: &RedisServer, parties: usize) -> Vec<f64> {
    server.command(&["DEL", "raw", "raw-line"]);
    server.command(&["SET", "raw", "bench"]);
    let address = server.address().to_string();
    let children: Vec<_> =
        (0..parties).map(|party| contender(&["raw", &address, &format!("raw-{party}"), "700"])).collect();
    until(|| server.command(&["LLEN", "raw-line"]).int() == Some(parties as i64));
    let mut wire = Wire::connect(server.address());
    let pass_on = wire.load(PASS_ON);
    wire.ask(&["EVALSHA", &pass_on, "2", "raw", "raw-line", "bench", &now().to_string()]);
    latencies_of(children).concat()
}

struct Outcome {
    /// Of each contender.
    latencies: Vec<Vec<f64>>,
    commands: Commands,
}

fn our_round(server: &RedisServer, name: &str, waiters: usize) -> Outcome {
    let file = std::env::temp_dir().join(format!("polylatch-bench-{}", std::process::id()));
    let path = file.to_str().expect("a UTF-8 path");
    let note = Note::at(path);
    let blocker = polylatch::blocking::Polylatch::connect(&server.url()).expect("it connects");
    let held = blocker.lock(name).acquire().expect("it is free");
    let parties = waiters.min(PROCESSES);
    // Long enough for everybody to have it several times.
    let millis = (700 + 3 * waiters).to_string();
    let children: Vec<_> = (0..parties)
        .map(|party| {
            let mine = waiters / parties + usize::from(party < waiters % parties);
            contender(&["ours", &server.url(), name, &mine.to_string(), &millis, path])
        })
        .collect();
    let query = polylatch::inspect::Query { name: Some(name.to_owned()), ..Default::default() };
    until(|| blocker.list(&query).expect("it answers").locks[0].waiters.len() == waiters);
    let before = commands(server);
    note.write();
    held.release().expect("it is held");
    let latencies = latencies_of(children);
    let commands = commands(server).since(before);
    let _ = std::fs::remove_file(&file);
    Outcome { latencies, commands }
}

fn contender(args: &[&str]) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .arg("--contender")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process starts")
}

/// Of each contender.
fn latencies_of(children: Vec<Child>) -> Vec<Vec<f64>> {
    // All at once: a process whose output nobody reads does not end.
    let readers: Vec<_> = children
        .into_iter()
        .map(|mut child| {
            thread::spawn(move || {
                let mut text = String::new();
                child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("text");
                assert!(child.wait().expect("it ends").success(), "a contender failed");
                text
            })
        })
        .collect();
    let texts: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect();
    texts.iter().flat_map(|text| text.lines()).map(numbers).collect()
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(5));
    }
}
