//! One library in a process of its own, to be compared with others: `--peer LIBRARY PORT pairs`, or `contend`.
//!
//! The programs of other languages that [`crate::peers`] starts keep to the same form. With `pairs`, each line of the input is a
//! number, and the answer is a line of JSON: a list of so many microseconds, one for each acquire and release of a free lock, and
//! the seconds of a processor that the process has spent on them, `[[51.2, …], 0.012]`. With `contend`, `ready` is printed, a
//! line of the input begins, and until the input ends a lock that all of these processes contend for is held for a millisecond, again
//! and again. Then a line is printed for each section: when it was entered and when its release was called, in ns by the clock that
//! all processes of a machine share.

use std::io::{BufRead, Read};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use polylatch::{Guard, Lock, Polylatch, blocking};
use tokio::runtime::Builder;

use crate::contender::{PASS_ON, STAND, now};
use crate::cost::client_secs;
use crate::raw::{GIVE, Wire};

/// The lock that all contend for.
const CONTENDED: &str = "contended";

/// How long a section lasts: one that is over at once is over before another process asks, and nobody waits.
const SECTION: Duration = Duration::from_millis(1);

/// Nobody gives up.
const PATIENT: Duration = Duration::from_secs(120);

trait Library {
    type Held;

    async fn acquire(&mut self) -> Self::Held;

    async fn release(&mut self, held: Self::Held);

    /// Spends the time of a section.
    async fn work(&mut self) {
        std::thread::sleep(SECTION);
    }
}

/// Runs as such a process, if the arguments say so.
pub fn run(args: &[String]) -> bool {
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    let ["--peer", library, port, what @ ("pairs" | "contend")] = words.as_slice() else { return false };
    let url = format!("redis://127.0.0.1:{port}");
    let contends = *what == "contend";
    match *library {
        "floor" if contends => at_once(play(Push::new(port), contends)),
        "floor" => at_once(play(Bare::new(port), contends)),
        "polylatch" => on_runtime(async {
            let client = Polylatch::connect(&url).await.expect("it connects");
            play(client.lock(name(contends)).wait(PATIENT), contends).await;
            client.close().await;
        }),
        "polylatch-blocking" => {
            let client = blocking::Polylatch::connect(&url).expect("it connects");
            at_once(play(client.lock(name(contends)).wait(PATIENT), contends));
            client.close();
        }
        #[cfg(feature = "peers")]
        "rslock" => on_runtime(async {
            let manager = rslock::LockManager::new(vec![url]);
            play(Other { manager, name: name(contends) }, contends).await;
        }),
        _ => panic!("there is no {library:?}; rslock needs this program to be built with --features peers"),
    }
    true
}

fn on_runtime(work: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work);
}

/// Runs what never waits for anything but blocking calls.
fn at_once(work: impl Future<Output = ()>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(work).poll(&mut context).is_ready(), "blocking calls leave nothing to wait for");
}

/// A free lock is of this process alone.
fn name(contends: bool) -> String {
    if contends { CONTENDED.to_owned() } else { format!("free-{}", std::process::id()) }
}

async fn play(mut library: impl Library, contends: bool) {
    if contends { contend(&mut library).await } else { pairs(&mut library).await }
}

async fn pairs(library: &mut impl Library) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (mut took, before) = (Vec::new(), client_secs());
        for _ in 0..line.parse().expect("a number") {
            let started = Instant::now();
            let held = library.acquire().await;
            library.release(held).await;
            took.push(started.elapsed().as_nanos() as f64 / 1e3);
        }
        println!("[{took:?}, {}]", client_secs() - before);
    }
}

async fn contend(library: &mut impl Library) {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line begins");
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::SeqCst);
    });
    let mut sections = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let held = library.acquire().await;
        let entered = now();
        library.work().await;
        let left = now();
        library.release(held).await;
        sections.push(format!("{entered} {left}\n"));
    }
    print!("{}", sections.concat());
}

impl Library for Lock {
    type Held = Guard;

    async fn acquire(&mut self) -> Guard {
        Lock::acquire(self).await.expect("everybody gets it in time")
    }

    async fn release(&mut self, guard: Guard) {
        guard.release().await.expect("it is held");
    }

    async fn work(&mut self) {
        tokio::time::sleep(SECTION).await;
    }
}

impl Library for blocking::Lock {
    type Held = blocking::Guard;

    async fn acquire(&mut self) -> blocking::Guard {
        blocking::Lock::acquire(self).expect("everybody gets it in time")
    }

    async fn release(&mut self, guard: blocking::Guard) {
        guard.release().expect("it is held");
    }
}

#[cfg(feature = "peers")]
struct Other {
    manager: rslock::LockManager,
    name: String,
}

#[cfg(feature = "peers")]
impl Library for Other {
    type Held = rslock::Lock;

    async fn acquire(&mut self) -> rslock::Lock {
        self.manager
            .acquire_no_guard(self.name.as_str(), Duration::from_secs(10))
            .await
            .expect("it waits until it has it")
    }

    async fn release(&mut self, lock: rslock::Lock) {
        self.manager.unlock(&lock).await;
    }

    async fn work(&mut self) {
        tokio::time::sleep(SECTION).await;
    }
}

/// Two round trips on a blocking socket: set if there is none, compare and delete.
struct Bare {
    wire: Wire,
    give: String,
}

impl Bare {
    fn new(port: &str) -> Self {
        let mut wire = connect(port);
        let give = wire.load(GIVE);
        Self { wire, give }
    }
}

impl Library for Bare {
    type Held = ();

    async fn acquire(&mut self) {
        self.wire.ask(&["SET", "floor", "token", "NX", "PX", "10000"]);
    }

    async fn release(&mut self, (): ()) {
        self.wire.ask(&["EVALSHA", &self.give, "1", "floor", "token"]);
    }
}

/// A queue, and a message to the next client in it, on blocking sockets, without anything that makes it safe.
struct Push {
    wire: Wire,
    inbox: Wire,
    stand: String,
    pass_on: String,
    me: String,
}

impl Push {
    fn new(port: &str) -> Self {
        let (mut wire, mut inbox) = (connect(port), connect(port));
        let (stand, pass_on) = (wire.load(STAND), wire.load(PASS_ON));
        let me = format!("floor-{}", std::process::id());
        inbox.send(&["SUBSCRIBE", &me]);
        inbox.message();
        Self { wire, inbox, stand, pass_on, me }
    }
}

impl Library for Push {
    type Held = ();

    async fn acquire(&mut self) {
        if self.wire.ask(&["EVALSHA", &self.stand, "2", "raw", "raw-line", &self.me]) != ":1" {
            self.inbox.message();
        }
    }

    async fn release(&mut self, (): ()) {
        self.wire.ask(&["EVALSHA", &self.pass_on, "2", "raw", "raw-line", &self.me, "yours"]);
    }
}

fn connect(port: &str) -> Wire {
    Wire::connect(format!("127.0.0.1:{port}").parse().expect("a port"))
}
