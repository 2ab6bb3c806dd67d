//! The other processes of the hand-off benchmark: each contends for one lock until its time is over, and
//! prints how long every hand-over took, in µs, a line for each contender.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use tokio::runtime::Builder;

use crate::raw::Wire;

/// What a push hand-off needs at the least: stand in line (or take a free lock), and pass on.
pub const STAND: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000) return 1 end redis.call('RPUSH', KEYS[2], ARGV[1]) return 0";
/// Makes the next one the owner and tells it, with the instant at which the release was called.
pub const PASS_ON: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('DEL', KEYS[1]) local next = redis.call('LPOP', KEYS[2]) if next then redis.call('SET', KEYS[1], next, 'PX', 10000) redis.call('PUBLISH', next, ARGV[2]) end return 1";

/// The clock that all processes of this machine share, in ns.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where a holder of the library's lock notes when it called release. It holds the lock then, so only
/// one process writes.
pub struct Note(File);

impl Note {
    pub fn at(path: &str) -> Self {
        Self(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .expect("a file"),
        )
    }

    pub fn write(&self) {
        self.0.write_all_at(&now().to_ne_bytes(), 0).expect("it is written");
    }

    fn since(&self) -> f64 {
        let entered = now();
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).expect("somebody released before");
        entered.saturating_sub(u64::from_ne_bytes(bytes)) as f64 / 1e3
    }
}

/// Runs as one of those processes, if the arguments say so.
pub fn run(args: &[String]) -> bool {
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    let of_each = match words.as_slice() {
        ["--contender", "raw", address, me, millis] => vec![raw(address, me, number(millis))],
        ["--contender", "ours", url, name, tasks, millis, note] => {
            ours(url, name, number(tasks), number(millis), note)
        }
        _ => return false,
    };
    let lines = of_each.iter().map(|latencies| {
        let words: Vec<_> = latencies.iter().map(f64::to_string).collect();
        words.join(" ") + "\n"
    });
    print!("{}", lines.collect::<String>());
    true
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn raw(address: &str, me: &str, millis: u64) -> Vec<f64> {
    let address = address.parse().expect("an address");
    let (mut wire, mut inbox) = (Wire::connect(address), Wire::connect(address));
    let (stand, pass_on) = (wire.load(STAND), wire.load(PASS_ON));
    inbox.send(&["SUBSCRIBE", me]);
    inbox.message();
    let (mut latencies, mut end) = (Vec::new(), None);
    // The clock starts with the first hand-over: until then the others come up.
    while end.is_none_or(|end| Instant::now() < end) {
        if wire.ask(&["EVALSHA", &stand, "2", "raw", "raw-line", me]) != ":1" {
            let called = inbox.message();
            latencies.push((now() - number(&called)) as f64 / 1e3);
        }
        end.get_or_insert_with(|| Instant::now() + Duration::from_millis(millis));
        wire.ask(&["EVALSHA", &pass_on, "2", "raw", "raw-line", me, &now().to_string()]);
    }
    latencies
}

fn ours(url: &str, name: &str, tasks: u64, millis: u64, note: &str) -> Vec<Vec<f64>> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Polylatch::connect(url).await.expect("it connects");
        let note = Arc::new(Note::at(note));
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (lock, note) = (client.lock(name).wait(Duration::from_secs(60)), Arc::clone(&note));
                tokio::spawn(async move {
                    let (mut latencies, mut end) = (Vec::new(), None);
                    while end.is_none_or(|end| Instant::now() < end) {
                        let guard = lock.acquire().await.expect("everybody gets it in time");
                        latencies.push(note.since());
                        end.get_or_insert_with(|| Instant::now() + Duration::from_millis(millis));
                        note.write();
                        guard.release().await.expect("it is held");
                    }
                    latencies
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.expect("no panic"));
        }
        client.close().await;
        all
    })
}
