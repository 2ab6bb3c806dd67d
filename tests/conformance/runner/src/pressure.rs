//! For how long this machine kept processes waiting: what tells a fault from a machine that stood still.

use std::fmt;
use std::time::{Duration, Instant};

/// Kept by Linux since 4.20 unless it was built without: <https://docs.kernel.org/accounting/psi.html>.
const RESOURCES: [(&str, &str); 3] = [("cpu", "the processor"), ("io", "the disk"), ("memory", "memory")];

/// Taken when something begins.
#[derive(Debug)]
pub struct Pressure {
    since: Instant,
    before: [Option<Duration>; 3],
}

impl Pressure {
    pub fn now() -> Self {
        Self { since: Instant::now(), before: read() }
    }
}

/// What was waited for since.
impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in these {:.1?} some process waited", self.since.elapsed())?;
        for ((_, name), (before, after)) in RESOURCES.iter().zip(self.before.iter().zip(read())) {
            match (before, after) {
                (Some(before), Some(after)) => {
                    write!(f, " {:.1?} for {name},", after.saturating_sub(*before))?
                }
                _ => write!(f, " nobody knows how long for {name},")?,
            }
        }
        f.write_str(" whoever that was")
    }
}

fn read() -> [Option<Duration>; 3] {
    RESOURCES.map(|(file, _)| {
        let text = std::fs::read_to_string(format!("/proc/pressure/{file}")).ok()?;
        some_total(&text).map(Duration::from_micros)
    })
}

/// The last field of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, in microseconds.
fn some_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_those_that_wait_is_read() {
        let text = "some avg10=6.14 avg60=32.86 avg300=53.91 total=994725982\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(some_total(text), Some(994_725_982));
        assert_eq!(some_total("full avg10=0.00 total=7\n"), None);
    }
}
