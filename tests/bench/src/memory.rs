//! A pair in memory, the fastest there is, and what reading the numbers of a client costs beside it.

use std::hint::black_box;
use std::time::Instant;

use polylatch::blocking::Polylatch;

use crate::figures::{Samples, heading, row};

const ROUNDS: usize = 40;
const CALLS: u32 = 20_000;

pub fn run() {
    heading("in memory, blocking API (ns a call)");
    let client = Polylatch::connect("memory:").expect("it connects");
    let lock = client.lock("a");
    let (mut pairs, mut readings) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        pairs.add(each(|| lock.acquire().expect("it is free").release().expect("it is held")));
        readings.add(each(|| {
            black_box(client.stats());
        }));
    }
    let pair = pairs.median();
    row("acquire + release", "ns", &pairs, &[]);
    row("reading the numbers of the client", "ns", &readings, &[("pair", pair)]);
}

/// What one of many calls takes.
fn each(call: impl Fn()) -> f64 {
    let started = Instant::now();
    (0..CALLS).for_each(|_| call());
    started.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
