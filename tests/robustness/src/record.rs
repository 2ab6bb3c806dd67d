//! What a worker writes down: one short line per event, readable by people.
//!
//! Lines are appended whole, so a killed worker leaves at most its last event out. All times are
//! nanoseconds of the boot clock.

use std::fmt;
use std::str::{FromStr, SplitWhitespace};

use polylatch::Mode;

/// What a guard said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Held,
    /// Lost, with the code of the reason.
    Lost(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Lost(reason) => f.write_str(reason),
        }
    }
}

/// One event in the life of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The lock was acquired, in this way and begun at `asked`; `valid_until` was read after `at`.
    Entered { lock: u32, token: u64, at: u64, valid_until: u64, mode: Mode, asked: u64 },
    /// The section ended. The clock was read, then the guard was asked, then the clock was read
    /// again, then `valid_until`.
    Left { lock: u32, token: u64, before: u64, after: u64, verdict: Verdict, valid_until: u64 },
    /// The guard's `lost()` came.
    Lost { lock: u32, token: u64, at: u64, reason: String },
    /// What the release answered: `ok`, or the code of the error or of the reason of the loss.
    Released { lock: u32, token: u64, at: u64, result: String },
    /// An acquisition failed with this code.
    Failed { lock: u32, at: u64, code: String },
    /// The resource answered to a write, and held this as the largest token.
    Wrote { lock: u32, token: u64, at: u64, accepted: bool, largest: u64 },
    /// The label under which a token was acquired.
    Named { lock: u32, token: u64, label: String },
    /// A look at the guard: the very first, or the first after a pause that began after `last`.
    Looked { lock: u32, token: u64, last: u64, at: u64, verdict: Verdict },
}

impl Record {
    pub fn lock(&self) -> u32 {
        match self {
            Self::Entered { lock, .. }
            | Self::Left { lock, .. }
            | Self::Lost { lock, .. }
            | Self::Released { lock, .. }
            | Self::Failed { lock, .. }
            | Self::Wrote { lock, .. }
            | Self::Named { lock, .. }
            | Self::Looked { lock, .. } => *lock,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entered { lock, token, at, valid_until, mode, asked } => {
                write!(f, "entered {lock} {token} {at} {valid_until}")?;
                match mode {
                    Mode::Mutex if asked == at => Ok(()),
                    Mode::Permits { count, capacity } => write!(f, " permits:{count}/{capacity} {asked}"),
                    mode => write!(f, " {} {asked}", mode.code()),
                }
            }
            Self::Left { lock, token, before, after, verdict, valid_until } => {
                write!(f, "left {lock} {token} {before} {after} {verdict} {valid_until}")
            }
            Self::Lost { lock, token, at, reason } => write!(f, "lost {lock} {token} {at} {reason}"),
            Self::Released { lock, token, at, result } => write!(f, "released {lock} {token} {at} {result}"),
            Self::Failed { lock, at, code } => write!(f, "failed {lock} {at} {code}"),
            Self::Wrote { lock, token, at, accepted, largest } => {
                let answer = if *accepted { "accepted" } else { "refused" };
                write!(f, "wrote {lock} {token} {at} {answer} {largest}")
            }
            Self::Named { lock, token, label } => write!(f, "named {lock} {token} {label}"),
            Self::Looked { lock, token, last, at, verdict } => {
                write!(f, "looked {lock} {token} {last} {at} {verdict}")
            }
        }
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        read(&mut words).ok_or_else(|| format!("no record: {line:?}"))
    }
}

fn read(words: &mut SplitWhitespace<'_>) -> Option<Record> {
    fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
        words.next()?.parse().ok()
    }
    fn verdict(words: &mut SplitWhitespace<'_>) -> Option<Verdict> {
        Some(match words.next()? {
            "held" => Verdict::Held,
            reason => Verdict::Lost(reason.to_owned()),
        })
    }
    fn mode(word: &str) -> Option<Mode> {
        Some(match word {
            "mutex" => Mode::Mutex,
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => {
                let (count, capacity) = word.strip_prefix("permits:")?.split_once('/')?;
                Mode::Permits { count: count.parse().ok()?, capacity: capacity.parse().ok()? }
            }
        })
    }
    let kind = words.next()?;
    let lock = number(words)?;
    let record = match kind {
        "entered" => {
            let (token, at, valid_until) = (number(words)?, number(words)?, number(words)?);
            // Without more it is a mutex, begun no earlier than it was entered.
            let (mode, asked) = match words.next() {
                None => (Mode::Mutex, at),
                Some(word) => (mode(word)?, number(words)?),
            };
            Record::Entered { lock, token, at, valid_until, mode, asked }
        }
        "left" => Record::Left {
            lock,
            token: number(words)?,
            before: number(words)?,
            after: number(words)?,
            verdict: verdict(words)?,
            valid_until: number(words)?,
        },
        "lost" => {
            Record::Lost { lock, token: number(words)?, at: number(words)?, reason: words.next()?.to_owned() }
        }
        "released" => Record::Released {
            lock,
            token: number(words)?,
            at: number(words)?,
            result: words.next()?.to_owned(),
        },
        "failed" => Record::Failed { lock, at: number(words)?, code: words.next()?.to_owned() },
        "wrote" => Record::Wrote {
            lock,
            token: number(words)?,
            at: number(words)?,
            accepted: match words.next()? {
                "accepted" => true,
                "refused" => false,
                _ => return None,
            },
            largest: number(words)?,
        },
        "named" => Record::Named { lock, token: number(words)?, label: words.next()?.to_owned() },
        "looked" => Record::Looked {
            lock,
            token: number(words)?,
            last: number(words)?,
            at: number(words)?,
            verdict: verdict(words)?,
        },
        _ => return None,
    };
    words.next().is_none().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_reads_back_as_it_was_written() {
        let lost = Verdict::Lost("expired".into());
        let permits = Mode::Permits { count: 2, capacity: 5 };
        let entered = |mode, asked| Record::Entered { lock: 1, token: 2, at: 3, valid_until: 4, mode, asked };
        for record in [
            entered(Mode::Mutex, 3),
            entered(Mode::Mutex, 1),
            entered(Mode::Read, 1),
            entered(Mode::Write, 3),
            entered(permits, 1),
            Record::Left { lock: 1, token: 2, before: 3, after: 4, verdict: Verdict::Held, valid_until: 5 },
            Record::Left { lock: 1, token: 2, before: 3, after: 4, verdict: lost.clone(), valid_until: 5 },
            Record::Lost { lock: 1, token: 2, at: 3, reason: "superseded".into() },
            Record::Released { lock: 1, token: 2, at: 3, result: "ok".into() },
            Record::Failed { lock: 1, at: 3, code: "backend_unavailable".into() },
            Record::Wrote { lock: 1, token: 2, at: 3, accepted: true, largest: 2 },
            Record::Wrote { lock: 1, token: 2, at: 3, accepted: false, largest: 9 },
            Record::Named { lock: 1, token: 2, label: "p0-1".into() },
            Record::Looked { lock: 1, token: 2, last: 3, at: 4, verdict: lost },
        ] {
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        for bad in ["", "entered", "entered 1 2 3", "entered 1 2 3 4 5", "entered 1 2 x 4", "slept 1"] {
            assert!(bad.parse::<Record>().is_err(), "{bad}");
        }
        for bad in ["entered 1 2 3 4 read", "entered 1 2 3 4 permits:2 1", "entered 1 2 3 4 read 1 2"] {
            assert!(bad.parse::<Record>().is_err(), "{bad}");
        }
    }
}
