//! A worker of ours in a fleet that shares one key with other libraries; see `tests/neighbours`.
//!
//! `polylatch-robustness-neighbour URL NAME`. Writes `ready`, begins when it reads a line, goes on until there is
//! nothing more to read, and writes a line for each section: when it asked, entered and left, in nanoseconds.

use std::io::{Write as _, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polylatch_robustness::boot_nanos;

const SECTION: Duration = Duration::from_millis(50);
/// The pause after a section is from 10 to 60 ms.
const LEAST_PAUSE: u64 = 10;
const MORE_PAUSE: u64 = 50;

fn main() -> polylatch::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(name)) = (args.next(), args.next()) else {
        panic!("usage: polylatch-robustness-neighbour URL NAME");
    };
    let client = polylatch::blocking::Polylatch::connect(&url)?;
    let lock = client.lock(name).wait(Duration::from_secs(120));
    println!("ready");
    let mut line = String::new();
    stdin().read_line(&mut line).expect("the order to begin");
    let goes_on = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&goes_on);
    thread::spawn(move || {
        drop(std::io::copy(&mut stdin(), &mut std::io::sink()));
        told.store(false, Ordering::SeqCst);
    });
    while goes_on.load(Ordering::SeqCst) {
        let asked = boot_nanos();
        let guard = lock.acquire()?;
        let entered = boot_nanos();
        thread::sleep(SECTION);
        let left = boot_nanos();
        guard.release()?;
        writeln!(stdout(), "{asked} {entered} {left}").expect("somebody reads");
        thread::sleep(Duration::from_millis(LEAST_PAUSE + left / 1000 % (MORE_PAUSE + 1)));
    }
    Ok(())
}
