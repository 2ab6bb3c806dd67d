//! The flash sale: few items, many buyers who press twice, workers that are killed. See README.md.
//!
//! `flash_sale URL [--buyers N] [--items N] [--killed-every MS] [--without-idempotency] --worker JSON...`, where JSON is a
//! list of the words that start a worker. Exit status 1 if a promise is broken.

mod shop;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use shop::Shop;

/// How long a request rests before it is repeated.
const PAUSE: Duration = Duration::from_millis(5);

struct Asked {
    url: String,
    buyers: usize,
    items: usize,
    killed_every: Duration,
    without: bool,
    workers: Vec<Vec<String>>,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut asked = Self {
            url: words.next().ok_or("a URL is missing")?,
            buyers: 2_000,
            items: 100,
            killed_every: Duration::from_millis(200),
            without: false,
            workers: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--buyers" => asked.buyers = value()?.parse()?,
                "--items" => asked.items = value()?.parse()?,
                "--killed-every" => asked.killed_every = Duration::from_millis(value()?.parse()?),
                "--without-idempotency" => asked.without = true,
                "--worker" => asked.workers.push(serde_json::from_str(&value()?)?),
                other => return Err(format!("there is no option {other}").into()),
            }
        }
        if asked.workers.is_empty() {
            return Err("no --worker is given".into());
        }
        Ok(asked)
    }
}

/// A running worker.
struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(asked: &Asked, place: SocketAddr, words: &[String]) -> std::io::Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(&asked.url).arg(place.to_string());
        if asked.without {
            command.arg("--without-idempotency");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (requests, answers) =
            (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    /// `None` if it died meanwhile.
    fn ask(&mut self, buyer: &str) -> Option<String> {
        writeln!(self.requests, "{buyer}").ok()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).ok()?;
        answer.ends_with('\n').then(|| answer.trim_end().to_owned())
    }
}

/// What all threads share.
struct Sale<'a> {
    asked: &'a Asked,
    place: SocketAddr,
    /// Requests that have no answer yet.
    queue: Mutex<VecDeque<String>>,
    /// Requests that are queued or at a worker.
    open: AtomicU32,
    answers: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Process ids of the workers, by place.
    running: Mutex<Vec<Option<u32>>>,
    retried: AtomicU32,
    is_over: AtomicBool,
}

impl Sale<'_> {
    /// Hands requests to one worker after the other, each until it is killed. A request without an answer is repeated by
    /// the next worker.
    fn serve(&self, at: usize, words: &[String]) -> Result<(), String> {
        let mut deaths = 0;
        while self.open.load(Ordering::SeqCst) > 0 {
            let started = Worker::start(self.asked, self.place, words);
            let mut worker = started.map_err(|error| format!("{words:?} does not start: {error}"))?;
            unpoisoned(&self.running)[at] = Some(worker.child.id());
            let mut answered = 0;
            while let Some(buyer) = self.next() {
                let answer = worker.ask(&buyer);
                match answer {
                    Some(answer) if answer != "busy" => {
                        unpoisoned(&self.answers).entry(buyer).or_default().insert(answer);
                        self.open.fetch_sub(1, Ordering::SeqCst);
                        answered += 1;
                    }
                    answer => {
                        self.retried.fetch_add(1, Ordering::SeqCst);
                        // A buyer takes a while to press again.
                        thread::sleep(PAUSE);
                        unpoisoned(&self.queue).push_back(buyer);
                        if answer.is_none() {
                            break;
                        }
                    }
                }
            }
            unpoisoned(&self.running)[at] = None;
            drop(worker.requests);
            let _ = worker.child.wait();
            // One that dies by itself would be started for ever.
            deaths = if answered > 0 { 0 } else { deaths + 1 };
            if deaths > 200 {
                return Err(format!("{words:?} answers nothing"));
            }
        }
        Ok(())
    }

    /// Waits for a request; `None` when all are answered.
    fn next(&self) -> Option<String> {
        while self.open.load(Ordering::SeqCst) > 0 {
            if let Some(buyer) = unpoisoned(&self.queue).pop_front() {
                return Some(buyer);
            }
            // Others may put theirs back.
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Kills one worker after the other.
    fn kill(&self) -> u32 {
        let mut kills = 0;
        let mut at = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            thread::sleep(self.asked.killed_every);
            let running = unpoisoned(&self.running);
            at = (at + 1) % running.len();
            // Under the lock: one that was waited for is not in the list any more, so its number is no other process's.
            if let Some(pid) = running[at]
                && !self.is_over.load(Ordering::SeqCst)
            {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
                kills += 1;
            }
        }
        kills
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let asked = Asked::read(std::env::args().skip(1))?;
    let (shop, place) = Shop::open(asked.items)?;
    let started = Instant::now();
    // Each buyer presses twice at once.
    let queue: VecDeque<_> = (0..asked.buyers).flat_map(|buyer| vec![format!("buyer-{buyer}"); 2]).collect();
    let sale = Sale {
        asked: &asked,
        place,
        open: AtomicU32::new(u32::try_from(queue.len())?),
        queue: Mutex::new(queue),
        answers: Mutex::default(),
        running: Mutex::new(vec![None; asked.workers.len()]),
        retried: AtomicU32::new(0),
        is_over: AtomicBool::new(false),
    };
    let (served, kills) = thread::scope(|scope| {
        let killer = scope.spawn(|| sale.kill());
        let sale = &sale;
        let serving: Vec<_> = asked
            .workers
            .iter()
            .enumerate()
            .map(|(at, words)| scope.spawn(move || sale.serve(at, words)))
            .collect();
        let served: Vec<_> = serving.into_iter().map(thread::ScopedJoinHandle::join).collect();
        sale.is_over.store(true, Ordering::SeqCst);
        (served, killer.join())
    });
    for served in served {
        served.map_err(|_| "a thread panicked")??;
    }
    let answers = unpoisoned(&sale.answers);
    let sold = shop.sold();
    let orders: usize = sold.values().map(Vec::len).sum();
    let twice = sold.values().filter(|orders| orders.len() > 1).count();
    let differing = answers.values().filter(|answers| answers.len() > 1).count();
    let untrue = answers.iter().filter(|(buyer, answers)| match sold.get(*buyer) {
        Some(orders) => !orders.iter().any(|order| answers.contains(order)),
        None => !answers.contains("sold out"),
    });
    let untrue = untrue.count();
    println!(
        "{} buyers pressed twice, {} requests repeated, {} workers killed, {:.1} s: {orders} orders of {} items, {twice} \
         buyers with two orders, {differing} with differing answers, {untrue} with an untrue one",
        answers.len(),
        sale.retried.load(Ordering::SeqCst),
        kills.map_err(|_| "a thread panicked")?,
        started.elapsed().as_secs_f64(),
        asked.items,
    );
    let is_kept = orders == asked.items.min(asked.buyers) && twice + differing + untrue == 0;
    Ok(if is_kept && answers.len() == asked.buyers { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
