//! Recordings: one line of JSON per snapshot, so that a cut file loses its last line only.
//!
//! The first line says what the file is. A snapshot is written as what has changed since the one before,
//! exactly: reading it back gives equal snapshots, so findings on replay are those that were live. No
//! line has a secret: snapshots have none, URLs are written without theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polylatch::inspect::{Event, Snapshot};
use serde::{Deserialize, Serialize};

use super::connection::{Connection, ConnectionId};
use super::delta::Delta;
use super::local::LocalFacts;
use super::report::{Polled, Report, Update};
use super::text::count;

/// The form of the file that this program writes.
const VERSION: u32 = 1;

/// After this time a snapshot is written whole again, so that damage does not spread.
const WHOLE_EVERY_MS: u64 = 60_000;

#[derive(Serialize, Deserialize)]
struct Head {
    polylatch: String,
    version: u32,
    program: String,
    at_ms: u64,
}

/// A line behind the head. `at` stands first, so that a file can be gone through without reading it all.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection: Option<Connection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<ConnectionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<Snapshot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Delta>,
    /// The round trip in microseconds, which a snapshot keeps in milliseconds only.
    #[serde(default, skip_serializing_if = "is_zero")]
    us: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
    /// What the host knew, if that has changed.
    #[serde(default, rename = "sight", skip_serializing_if = "Option::is_none")]
    local: Option<LocalFacts>,
    #[serde(default, skip_serializing_if = "is_zero")]
    every: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<u64>,
}

impl Line {
    fn at(at: u64) -> Self {
        Self {
            at,
            connection: None,
            of: None,
            whole: None,
            next: None,
            us: 0,
            events: Vec::new(),
            local: None,
            every: 0,
            failed: None,
            retry: None,
        }
    }

    fn text(&self) -> String {
        // Nothing in it can fail to become JSON: no maps with other keys than texts and numbers.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Writes a recording, line by line; where to is the caller's business.
#[derive(Debug, Default)]
pub struct Encoder {
    written: HashMap<ConnectionId, Written>,
}

/// What a reader of the file so far knows of a connection.
#[derive(Debug)]
struct Written {
    snapshot: Arc<Snapshot>,
    local: LocalFacts,
    whole_at_ms: u64,
}

impl Encoder {
    /// Begins a recording: returns the first lines. `now_ms` is the viewer's time.
    pub fn begin(connections: &[Connection], now_ms: u64) -> (Self, String) {
        let head = Head {
            polylatch: "recording".into(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            at_ms: now_ms,
        };
        let mut text = serde_json::to_string(&head).unwrap_or_default() + "\n";
        let mut encoder = Self::default();
        for connection in connections {
            text += &encoder.connection(connection, now_ms);
        }
        (encoder, text)
    }

    /// Returns the text line of a connection; for those that come later, too.
    pub fn connection(&mut self, connection: &Connection, now_ms: u64) -> String {
        self.written.remove(&connection.id);
        Line { connection: Some(connection.clone()), ..Line::at(now_ms) }.text()
    }

    /// Returns the text line of an update, with its end of line.
    pub fn update(&mut self, update: &Update) -> String {
        let of = Some(update.connection.clone());
        let polled = match &update.report {
            Report::Failed { message, retry_in_ms } => {
                let (failed, retry) = (Some(message.clone()), *retry_in_ms);
                return Line { of, failed, retry, ..Line::at(update.at_ms) }.text();
            }
            Report::Polled(polled) => polled,
        };
        let known = self.written.remove(&update.connection);
        let due = |known: &&Written| update.at_ms.saturating_sub(known.whole_at_ms) < WHOLE_EVERY_MS;
        // What cannot be put back together exactly is written whole.
        let next =
            known.as_ref().filter(due).and_then(|known| Delta::between(&known.snapshot, &polled.snapshot));
        let whole = next.is_none().then(|| (*polled.snapshot).clone());
        let whole_at_ms = match &known {
            Some(known) if next.is_some() => known.whole_at_ms,
            _ => update.at_ms,
        };
        let same_local = known.is_some_and(|known| known.local == polled.local) && whole.is_none();
        let line = Line {
            of,
            whole,
            next,
            us: u64::try_from(polled.snapshot.round_trip.as_micros()).unwrap_or(0),
            events: polled.events.clone(),
            local: (!same_local).then(|| polled.local.clone()),
            every: polled.every_ms,
            ..Line::at(update.at_ms)
        };
        let (snapshot, local) = (Arc::clone(&polled.snapshot), polled.local.clone());
        self.written.insert(update.connection.clone(), Written { snapshot, local, whole_at_ms });
        line.text()
    }
}

/// A recording that was opened. Its snapshots are put together when they are asked for.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    text: Arc<str>,
    /// Where each line behind the head is, and its time.
    lines: Vec<(u64, std::ops::Range<usize>)>,
    remarks: Vec<String>,
}

impl Recording {
    /// Opens a recording.
    ///
    /// Errors: a sentence, if it is no recording, or one of a newer version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, _) = text.split_once('\n').unwrap_or((text, ""));
        let head_bytes = head.len() + 1;
        let head: Head = serde_json::from_str(head)
            .map_err(|_| "it is no recording of the inspector: its first line does not say so".to_owned())?;
        if head.polylatch != "recording" || head.version == 0 {
            return Err("it is no recording of the inspector: its first line does not say so".into());
        }
        if head.version > VERSION {
            return Err(format!(
                "it is a recording of version {}, and this program knows only up to {VERSION}; update this program",
                head.version
            ));
        }
        let mut recording = Self { text: text.into(), ..Self::default() };
        let (mut at, mut damaged) = (head_bytes.min(text.len()), 0);
        while at < text.len() {
            let Some(end) = text[at..].find('\n').map(|end| at + end) else {
                recording.remarks.push("the last line is cut off; what stands before it is complete".into());
                break;
            };
            match time_of(&text[at..end]) {
                Some(time) => recording.lines.push((time, at..end)),
                None => damaged += 1,
            }
            at = end + 1;
        }
        if damaged > 0 {
            let damaged = count(damaged, "line is", "lines are");
            recording.remarks.push(format!("{damaged} damaged; snapshots are missing there"));
        }
        Ok(recording)
    }

    /// Returns the time from the first line to the last, on the viewer's clock of then.
    pub fn span(&self) -> Option<(u64, u64)> {
        let from = self.lines.iter().map(|(at, _)| *at).min()?;
        Some((from, self.lines.iter().map(|(at, _)| *at).max()?))
    }

    /// Returns how many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Says whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns what could not be used: a cut end, damaged lines. Sanitized.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the time of a line.
    pub(super) fn at_ms(&self, line: usize) -> Option<u64> {
        self.lines.get(line).map(|(at, _)| *at)
    }

    /// Reads a line; the lines before it must have been read with the same decoder, in order.
    pub(super) fn read(&self, line: usize, decoder: &mut Decoder) -> Option<Entry> {
        let (_, range) = self.lines.get(line)?;
        decoder.read(&self.text[range.clone()])
    }
}

/// Reads the time at the beginning of a line.
fn time_of(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("{\"at\":").filter(|_| line.ends_with('}'))?;
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry {
    Connection(Connection),
    Update(Update),
}

/// Puts snapshots back together.
#[derive(Debug, Clone, Default)]
pub(super) struct Decoder {
    known: HashMap<ConnectionId, (Arc<Snapshot>, LocalFacts)>,
}

impl Decoder {
    /// Returns `None` for a line that is damaged, or that builds upon one that is.
    fn read(&mut self, text: &str) -> Option<Entry> {
        let line: Line = serde_json::from_str(text).ok()?;
        if let Some(connection) = line.connection {
            self.known.remove(&connection.id);
            return Some(Entry::Connection(connection.read_from_file()));
        }
        let connection = line.of?;
        if let Some(message) = line.failed {
            let report = Report::Failed { message, retry_in_ms: line.retry };
            return Some(Entry::Update(Update { connection, at_ms: line.at, report }));
        }
        let known = self.known.remove(&connection);
        let mut snapshot = match (line.whole, line.next, &known) {
            (Some(whole), _, _) => whole,
            (None, Some(next), Some((known, _))) => next.apply(known)?,
            _ => return None,
        };
        snapshot.round_trip = Duration::from_micros(line.us);
        let snapshot = Arc::new(snapshot);
        let local = line.local.or_else(|| known.map(|(_, local)| local)).unwrap_or_default();
        self.known.insert(connection.clone(), (Arc::clone(&snapshot), local.clone()));
        let polled = Polled { snapshot, events: line.events, local, every_ms: line.every };
        Some(Entry::Update(Update { connection, at_ms: line.at, report: Report::Polled(polled) }))
    }
}
