//! What the benchmarks of the language bindings take their measure from, in the same run: they start
//! this program and ask it for floors, in alternation with their own rounds.
//!
//! `polylatch-bench companion redis://HOST:PORT`; each line of the input is a word of [`WORDS`] and a
//! number, each line of the output a JSON list: microseconds a pair, or pairs a second.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Instant;

use polylatch::blocking;

use crate::raw::{GIVE, Wire};

/// `pair`: two round trips on a blocking socket, one after the other. `pipeline`: 64 pairs at a time on
/// one connection. `rust`: acquire and release by the blocking API. `memory`: the same on `memory:`,
/// which is what the calls cost without any network.
const WORDS: &str = "pair, pipeline, rust, memory";

/// How many commands a pipeline has under way.
const DEPTH: usize = 64;

pub fn run(url: &str) -> ExitCode {
    let Some(address) = url.strip_prefix("redis://").and_then(|rest| rest.parse().ok()) else {
        eprintln!("{url:?} is no redis://ADDRESS:PORT");
        return ExitCode::from(2);
    };
    let mut wire = Wire::connect(address);
    let give = wire.load(GIVE);
    let connect = |url| blocking::Polylatch::connect(url).expect("it connects");
    let (redis, memory) = (connect(url).lock("companion"), connect("memory:").lock("companion"));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (word, count) = line.split_once(' ').unwrap_or((&line, ""));
        let Ok(count) = count.parse::<usize>() else {
            eprintln!("{line:?} is no word and number");
            return ExitCode::from(2);
        };
        let figures = match word {
            "pair" => timed(count, || {
                wire.ask(&["SET", "floor", "token", "NX", "PX", "10000"]);
                wire.ask(&["EVALSHA", &give, "1", "floor", "token"]);
            }),
            "pipeline" => pipelined(&mut wire, &give, count),
            "rust" => timed(count, || redis.acquire().and_then(|guard| guard.release()).expect("it is free")),
            "memory" => {
                timed(count, || memory.acquire().and_then(|guard| guard.release()).expect("it is free"))
            }
            _ => {
                eprintln!("there is no {word:?}; there are {WORDS}");
                return ExitCode::from(2);
            }
        };
        println!("{figures:?}");
    }
    ExitCode::SUCCESS
}

fn timed(count: usize, mut pair: impl FnMut()) -> Vec<f64> {
    (0..count)
        .map(|_| {
            let started = Instant::now();
            pair();
            started.elapsed().as_nanos() as f64 / 1e3
        })
        .collect()
}

/// Pairs a second, for each of `count` rounds.
fn pipelined(wire: &mut Wire, give: &str, count: usize) -> Vec<f64> {
    let keys: Vec<_> = (0..DEPTH).map(|key| format!("floor-{key}")).collect();
    let takes: String =
        keys.iter().map(|key| Wire::text(&["SET", key, "token", "NX", "PX", "10000"])).collect();
    let gives: String = keys.iter().map(|key| Wire::text(&["EVALSHA", give, "1", key, "token"])).collect();
    let mut round = || {
        for commands in [&takes, &gives] {
            wire.send_text(commands);
            for _ in 0..DEPTH {
                wire.line();
            }
        }
    };
    (0..count)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..10 {
                round();
            }
            (10 * DEPTH) as f64 / started.elapsed().as_secs_f64()
        })
        .collect()
}
