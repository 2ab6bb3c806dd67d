//! This project beside other libraries, all of them in turn on one server, in one run.
//!
//! `--beside 'NAME=COMMAND'` adds one, a program that keeps to the form that [`crate::peer`] tells; it is called with the
//! server's port and `pairs` or `contend`. `tests/bench/beside` names them all.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use polylatch_test_services::redis::RedisServer;

use crate::cost::Cost;
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 12;
const PAIRS: usize = 150;
/// Processes that contend for one lock.
const CONTENDERS: usize = 8;
const CONTEND_FOR: Duration = Duration::from_secs(4);

/// A library: what it is called, and the words that start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    name: String,
    words: Vec<String>,
}

impl Peer {
    /// Reads `NAME=COMMAND`, a command whose words have no spaces in them.
    pub fn read(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').unwrap_or((text, ""));
        let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || words.is_empty() {
            return Err(format!("--beside is NAME=COMMAND, not {text:?}"));
        }
        Ok(Self { name: name.to_owned(), words })
    }

    fn of_this_program(name: &str, library: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let words = [program.to_str().expect("a UTF-8 path"), "--peer", library].map(str::to_owned);
        Self { name: name.to_owned(), words: words.into() }
    }

    fn start(&self, server: &RedisServer, what: &str) -> Player {
        let mut child = Command::new(&self.words[0])
            .args(&self.words[1..])
            .args([&server.address().port().to_string(), what])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {}: {error}", self.name, self.words[0]));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Player { name: self.name.clone(), child, input, output }
    }
}

/// A library's process.
struct Player {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Player {
    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        line.trim_end().to_owned()
    }

    /// Has it acquire and release a free lock so many times; µs of each, and seconds of a processor for all.
    fn pairs(&mut self, count: usize) -> (Vec<f64>, f64) {
        self.say(&count.to_string());
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {line:?}: {error}", self.name))
    }

    /// Ends its input, and returns what it prints then.
    fn end(mut self) -> String {
        drop(self.input.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{}: {status}", self.name);
        text
    }
}

pub fn run(beside: &[Peer]) {
    let floor = Peer::of_this_program("floor", "floor");
    let mut all = vec![
        Peer::of_this_program("Polylatch, Rust", "polylatch"),
        Peer::of_this_program("Polylatch, Rust, blocking", "polylatch-blocking"),
    ];
    if cfg!(feature = "peers") {
        all.push(Peer::of_this_program("rslock (Rust)", "rslock"));
    }
    all.extend_from_slice(beside);
    let server = on_processor_of_servers(RedisServer::start);
    pairs(&server, &floor, &all);
    handoff(&server, &floor, &all);
}

fn pairs(server: &RedisServer, floor: &Peer, all: &[Peer]) {
    heading("beside others: pair (µs for acquire and release of a free lock)");
    let mut players: Vec<_> = std::iter::once(floor)
        .chain(all)
        .map(|peer| (peer.start(server, "pairs"), Samples::default(), Cost::default()))
        .collect();
    // What is done once, such as connecting and loading scripts, is no part of a pair.
    for (player, ..) in &mut players {
        player.pairs(20);
    }
    for _ in 0..ROUNDS {
        for (player, samples, cost) in &mut players {
            let took = cost.of_another(server, PAIRS, || player.pairs(PAIRS));
            samples.extend(took);
        }
    }
    let least = players[0].1.median();
    for (at, (player, samples, cost)) in players.into_iter().enumerate() {
        let floors: &[_] = if at == 0 { &[] } else { &[("floor", least)] };
        row(&player.name, "µs", &samples, floors);
        cost.print();
        player.end();
    }
}

fn handoff(server: &RedisServer, floor: &Peer, all: &[Peer]) {
    heading(
        "beside others: hand-off (µs from the first call of release to the entry in another of 8 processes, sections of 1 ms)",
    );
    let mut least = f64::NAN;
    let mut shares = Vec::new();
    for (at, peer) in std::iter::once(floor).chain(all).enumerate() {
        server.command(&["FLUSHALL"]);
        let mut players: Vec<_> = (0..CONTENDERS).map(|_| peer.start(server, "contend")).collect();
        for player in &mut players {
            assert_eq!(player.line(), "ready", "{}", player.name);
        }
        for player in &mut players {
            player.say("go");
        }
        thread::sleep(CONTEND_FOR);
        // All at once: one that still waits for another to pass the lock on ends only after that one.
        let ends: Vec<_> = players.into_iter().map(|player| thread::spawn(move || player.end())).collect();
        let texts: Vec<_> = ends.into_iter().map(|end| end.join().expect("it ended well")).collect();
        let Contended { handed_over, sections } = Contended::read(&texts);
        if at == 0 {
            least = handed_over.median();
        }
        let floors: &[_] = if at == 0 { &[] } else { &[("floor", least)] };
        row(&peer.name, "µs", &handed_over, floors);
        let fewest = *sections.iter().min().expect("there are processes");
        let most = *sections.iter().max().expect("there are processes");
        println!(
            "    {} sections, {} of them handed over; of one process {fewest} to {most}",
            sections.iter().sum::<usize>(),
            handed_over.len(),
        );
        shares.push((&peer.name, fewest, most));
    }
    // Two processes that pass a lock to and fro are fast, and the others starve.
    heading(
        "beside others: fairness (sections of the process with fewest, beside those of the one with most)",
    );
    for (at, (name, fewest, most)) in shares.into_iter().enumerate() {
        let mut samples = Samples::default();
        samples.add(fewest as f64);
        let floors: &[_] = if at == 0 { &[] } else { &[("most", most as f64)] };
        row(name, "sections", &samples, floors);
    }
}

/// What several processes had of one lock.
struct Contended {
    /// From the first call of release in a process to the entry in another, µs.
    handed_over: Samples,
    /// How many sections each process had.
    sections: Vec<usize>,
}

impl Contended {
    /// Reads what they printed: `entered left`, a line for each section.
    fn read(texts: &[String]) -> Self {
        let mut all: Vec<(u64, u64, usize)> = Vec::new();
        let mut sections = Vec::new();
        for (who, text) in texts.iter().enumerate() {
            let before = all.len();
            for line in text.lines().filter(|line| !line.is_empty()) {
                let (entered, left) = line.split_once(' ').expect("two numbers a line");
                let number = |word: &str| word.parse().expect("a number");
                all.push((number(entered), number(left), who));
            }
            sections.push(all.len() - before);
        }
        all.sort_unstable();
        let mut handed_over = Samples::default();
        // When the process that has it released it first: what enters again and again has others wait since then.
        let mut free_since = all.first().map_or(0, |(_, left, _)| *left);
        for pair in all.windows(2) {
            let ((_, before_left, before), (entered, left, after)) = (pair[0], pair[1]);
            assert!(entered >= before_left, "two processes had the lock at once");
            if before != after {
                handed_over.add((entered - free_since) as f64 / 1e3);
                free_since = left;
            }
        }
        Self { handed_over, sections }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_from_the_first_release_to_the_entry_in_another_process() {
        let texts = ["1000 2000\n2500 3000\n", "7000 8000\n", ""].map(str::to_owned);
        let Contended { handed_over, sections } = Contended::read(&texts);
        assert_eq!((handed_over.len(), handed_over.median()), (1, 5.0));
        assert_eq!(sections, [2, 1, 0]);
    }

    #[test]
    fn a_library_is_a_name_and_a_command() {
        let peer = Peer::read("redlock 5 (Node)=node peer.mjs redlock").unwrap();
        assert_eq!((peer.name.as_str(), peer.words.len()), ("redlock 5 (Node)", 3));
        for wrong in ["", "name", "name=", "=node", "name= "] {
            assert!(Peer::read(wrong).unwrap_err().contains("NAME=COMMAND"), "{wrong:?}");
        }
    }
}
