//! A recording played back: the fleet as it was at any time of it.

use std::collections::HashSet;

use polylatch::inspect::EventKind;

use super::fleet::Fleet;
use super::history::Limits;
use super::recording::{Decoder, Entry, Recording};
use super::report::{Report, Update};
use super::rows::RowKey;
use super::text::sanitized;
use super::verdict::Rule;

/// Places from which going back starts; each is a whole fleet, so there are few.
const CHECKPOINTS: usize = 8;

/// A fleet with more rows than this is kept less often.
const MANY_ROWS: usize = 2_000;

/// Most marks on the time slider.
const MOST_MARKS: usize = 2_000;

/// A recording with a place in it.
#[derive(Debug, Clone)]
pub struct Replay {
    recording: Recording,
    limits: Limits,
    now: Place,
    at_ms: u64,
    checkpoints: Vec<Place>,
    marks: Vec<Mark>,
    unread: usize,
}

/// The state behind a number of lines.
#[derive(Debug, Clone, Default)]
struct Place {
    next: usize,
    fleet: Fleet,
    decoder: Decoder,
}

/// Something worth jumping to on the time slider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When, on the viewer's clock of then.
    pub at_ms: u64,
    /// Where; the lock's name is empty if it is about a connection.
    pub key: RowKey,
    /// What; sanitized.
    pub text: String,
    /// It is a finding that needs attention; otherwise a break, an expiry, or a time without data.
    pub attention: bool,
}

impl Replay {
    /// Opens a recording at its beginning. Goes through it once, for marks and checkpoints.
    pub fn new(recording: Recording, limits: Limits) -> Self {
        let at_ms = recording.span().map_or(0, |(from, _)| from);
        let start = Place { fleet: Fleet::new(limits), ..Place::default() };
        let mut replay = Self {
            recording,
            limits,
            now: start,
            at_ms,
            checkpoints: Vec::new(),
            marks: Vec::new(),
            unread: 0,
        };
        replay.survey();
        replay.seek(at_ms);
        replay
    }

    fn survey(&mut self) {
        let every = (self.recording.len() / CHECKPOINTS).max(64);
        let mut standing: HashSet<(RowKey, Rule)> = HashSet::new();
        while self.now.next < self.recording.len() {
            if self.now.next > 0 && self.now.next.is_multiple_of(every) {
                let rows = self.now.fleet.row_refs().count();
                if rows < MANY_ROWS || self.checkpoints.len() < 2 {
                    self.checkpoints.push(self.now.clone());
                }
            }
            let at_ms = self.recording.at_ms(self.now.next).unwrap_or(0);
            let marks = match self.now.step(&self.recording) {
                Some(Entry::Update(update)) => told(&update),
                Some(Entry::Connection(_)) => Vec::new(),
                None => {
                    self.unread += 1;
                    continue;
                }
            };
            let attention = self.now.fleet.attention(at_ms);
            let here = attention.iter().map(|found| (found.key.clone(), found.finding.rule)).collect();
            for found in attention {
                if self.marks.len() < MOST_MARKS
                    && !standing.contains(&(found.key.clone(), found.finding.rule))
                {
                    let text = found.finding.sentence;
                    self.marks.push(Mark { at_ms, key: found.key, text, attention: true });
                }
            }
            standing = here;
            let room = MOST_MARKS.saturating_sub(self.marks.len());
            self.marks.extend(marks.into_iter().take(room));
        }
    }

    /// Returns the first and the last moment.
    pub fn span(&self) -> (u64, u64) {
        self.recording.span().unwrap_or_default()
    }

    /// Returns the present place; the `now_ms` of everything that is shown.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Goes to a moment; outside of the span to its nearer end. Forward is cheap, back starts from the
    /// last checkpoint before it.
    pub fn seek(&mut self, at_ms: u64) {
        let (from, to) = self.span();
        let at_ms = at_ms.clamp(from, to.max(from));
        let passed = |place: &Place| {
            place.next > 0 && self.recording.at_ms(place.next - 1).is_some_and(|last| last > at_ms)
        };
        if passed(&self.now) {
            let earlier = self.checkpoints.iter().rev().find(|place| !passed(place)).cloned();
            let start = || Place { fleet: Fleet::new(self.limits), ..Place::default() };
            self.now = earlier.unwrap_or_else(start);
        }
        while self.recording.at_ms(self.now.next).is_some_and(|next| next <= at_ms) {
            self.now.step(&self.recording);
        }
        self.now.fleet.tick(at_ms);
        self.at_ms = at_ms;
    }

    /// Returns the fleet as it was then.
    pub fn fleet(&self) -> &Fleet {
        &self.now.fleet
    }

    /// Returns what is worth jumping to, in order of time.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Returns what could not be read of the file; sanitized.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.recording.remarks().to_vec();
        if self.unread > 0 {
            remarks.push(format!("{} snapshots could not be put together", self.unread));
        }
        remarks
    }
}

impl Place {
    fn step(&mut self, recording: &Recording) -> Option<Entry> {
        let line = self.next;
        self.next += 1;
        let entry = recording.read(line, &mut self.decoder)?;
        match entry.clone() {
            Entry::Connection(connection) => self.fleet.connect(connection),
            Entry::Update(update) => self.fleet.ingest(update),
        }
        Some(entry)
    }
}

/// What of an update is worth a mark, besides findings.
fn told(update: &Update) -> Vec<Mark> {
    let Report::Polled(polled) = &update.report else { return Vec::new() };
    let marks = polled.events.iter().filter_map(|event| {
        let text = match &event.kind {
            EventKind::Expired => format!("{}: the lease expired", sanitized(&event.lock)),
            EventKind::Broken { by, reason } => {
                format!("{}: broken by {}: {}", sanitized(&event.lock), sanitized(by), sanitized(reason))
            }
            _ => return None,
        };
        let key = RowKey { connection: update.connection.clone(), lock: event.lock.as_str().into() };
        Some(Mark { at_ms: update.at_ms, key, text, attention: false })
    });
    marks.collect()
}
