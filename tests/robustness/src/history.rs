//! The judge of histories: sections that exclude each other never overlap, permits are never more than
//! there are, tokens only grow, a loss is always told.
//!
//! Every rule is applied to what is certain. A section certainly lasts from its entry to the earliest
//! of: the moment before its guard was asked for the last time, the end of its validity, the moment
//! its loss was told, and the moment before its process was sent the signal that killed it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use polylatch::Mode;

use crate::record::{Record, Verdict};
use crate::resource::Write;
use crate::sharing::{Lasting, Newest};

/// One stay inside a lock, as its worker told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub who: String,
    pub lock: u32,
    pub token: u64,
    pub mode: Mode,
    /// When its acquisition began.
    pub asked: u64,
    pub entered: u64,
    pub valid_at_entry: u64,
    pub left: Option<Leaving>,
    /// When and why `lost()` came.
    pub lost: Option<(u64, String)>,
    pub released: Option<(u64, String)>,
    /// When its worker was about to be killed.
    pub killed: Option<u64>,
}

/// How a section ended by its worker's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    pub before: u64,
    pub after: u64,
    pub verdict: Verdict,
    pub valid_until: u64,
}

impl Section {
    /// Until when it certainly lasted.
    pub fn end(&self) -> u64 {
        let mut end =
            self.left.as_ref().map_or(self.valid_at_entry, |left| left.before.min(left.valid_until));
        if let Some((limit, _)) = &self.lost {
            end = end.min(*limit);
        }
        end.min(self.killed.unwrap_or(u64::MAX))
    }

    fn was_converted(&self) -> bool {
        self.released.as_ref().is_some_and(|(_, result)| result == CONVERTED)
    }

    fn was_ever_valid(&self) -> bool {
        self.entered < self.valid_at_entry
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
        write!(f, "lock {} token {} by {:<8} ", self.lock, self.token, self.who)?;
        match self.mode {
            Mode::Mutex => {}
            Mode::Permits { count, capacity } => write!(f, "{count} of {capacity} permits ")?,
            mode => write!(f, "{} ", mode.code())?,
        }
        write!(f, "entered {} (valid until {})", ms(self.entered), ms(self.valid_at_entry))?;
        match &self.left {
            Some(left) => {
                let (before, verdict, until) = (ms(left.before), &left.verdict, ms(left.valid_until));
                write!(f, ", left {before} {verdict} (valid until {until})")?;
            }
            None => f.write_str(", never left")?,
        }
        if let Some((at, reason)) = &self.lost {
            write!(f, ", told lost {} {reason}", ms(*at))?;
        }
        if let Some((at, result)) = &self.released {
            write!(f, ", released {} {result}", ms(*at))?;
        }
        if let Some(at) = self.killed {
            write!(f, ", killed {}", ms(at))?;
        }
        Ok(())
    }
}

/// The rule that a history breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Two guards that exclude each other were valid by their own account at the same time.
    Overlap,
    /// Guards were valid at the same time that have more permits together than there are.
    TooManyPermits,
    /// One lock was held as two kinds, or with two capacities, at the same time.
    KindsMixed,
    /// Two entries have the same token.
    TokenTwice,
    /// A later entry has a smaller token, of two that exclude each other or of which the later one
    /// began after the first had entered.
    TokenOrder,
    /// A guard said that it was held, or was released with success, after its validity had ended.
    LossNotTold,
    /// A guard said that it had expired while it was still valid.
    LossTooEarly,
    /// The resource accepted a write with a smaller token than one before.
    WriteOrder,
    /// The resource accepted a write under a token with which nobody entered.
    WriteByNobody,
    /// The resource refused a write as stale, and its guard still said that it was held, although nothing had ended it by
    /// force.
    RefusedWhileHeld,
    /// An operation failed in a way that no fault explains.
    Unexplained,
}

/// A broken rule, with what broke it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub lock: u32,
    /// When, to find the neighbours in the history.
    pub at: u64,
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.story)
    }
}

/// Everything that the workers and the resource wrote down.
#[derive(Debug, Default)]
pub struct History {
    pub sections: Vec<Section>,
    pub writes: Vec<Write>,
    /// Who failed, with the record.
    pub failures: Vec<(String, Record)>,
}

impl History {
    /// Adds what one worker wrote down. `killed` is when it was about to be killed, if it was.
    pub fn add(&mut self, who: &str, text: &str, killed: Option<u64>) -> Result<(), String> {
        let mut open: HashMap<(u32, u64), usize> = HashMap::new();
        // A line without its end was cut off by the death of the worker.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let record: Record = line.parse().map_err(|error| format!("{who}: {error}"))?;
            if let Record::Entered { lock, token, at, valid_until, mode, asked } = record {
                open.insert((lock, token), self.sections.len());
                self.sections.push(Section {
                    who: who.to_owned(),
                    lock,
                    token,
                    mode,
                    asked,
                    entered: at,
                    valid_at_entry: valid_until,
                    left: None,
                    lost: None,
                    released: None,
                    killed,
                });
                continue;
            }
            let place = |lock: u32, token: u64| {
                open.get(&(lock, token)).copied().ok_or_else(|| format!("{who} never entered: {line}"))
            };
            match record {
                Record::Left { lock, token, before, after, verdict, valid_until } => {
                    let left = Leaving { before, after, verdict, valid_until };
                    self.sections[place(lock, token)?].left = Some(left);
                }
                Record::Lost { lock, token, at, reason } => {
                    self.sections[place(lock, token)?].lost = Some((at, reason));
                }
                Record::Released { lock, token, at, result } => {
                    self.sections[place(lock, token)?].released = Some((at, result));
                }
                Record::Failed { .. } => self.failures.push((who.to_owned(), record)),
                Record::Entered { .. }
                | Record::Wrote { .. }
                | Record::Named { .. }
                | Record::Looked { .. } => {}
            }
        }
        Ok(())
    }

    /// Applies all rules; an empty list is a good history.
    pub fn check(&mut self) -> Vec<Violation> {
        self.sections.sort_by_key(|section| (section.entered, section.token));
        let mut found = Vec::new();
        self.check_locks(&mut found);
        self.sections.iter().for_each(|section| check_told(section, &mut found));
        self.check_writes(&mut found);
        for (who, record) in &self.failures {
            if let Record::Failed { lock, at, code } = record
                && !EXPLAINED.contains(&code.as_str())
            {
                let story = format!("{who} could not acquire: {code}");
                found.push(Violation { rule: Rule::Unexplained, lock: *lock, at: *at, story });
            }
        }
        found.sort_by_key(|violation| (violation.at, violation.rule));
        found
    }

    /// For stores that lose data: a holder may be told that the store does not name it any more before its
    /// lease has ended. That is early, and not wrong; the rules take it like the end that it announces.
    /// Returns when these sections ended: the caller bounds them, or a store that loses leases for no reason passes.
    pub fn expect_early_news(&mut self) -> Vec<u64> {
        let mut early = Vec::new();
        for section in &mut self.sections {
            let mut is_early = false;
            if let Some(left) = &mut section.left
                && left.verdict == Verdict::Lost("superseded".into())
            {
                left.verdict = Verdict::Lost("expired".into());
                left.valid_until = left.before;
                is_early = true;
            }
            if let Some((_, result)) = &mut section.released
                && result == "superseded"
            {
                *result = "expired".into();
                is_early = true;
            }
            if is_early {
                early.push(section.end());
            }
        }
        early
    }

    /// The sections that were lost although they had lasted for this long. Where no fault outlasts what is
    /// left of a renewed lease there are none: a store that loses leases early is caught by this, however
    /// truthfully each loss was reported.
    pub fn lost_after(&self, age: Duration) -> Vec<&Section> {
        let age = age.as_nanos() as u64;
        let is_lost = |section: &Section| {
            let said = section.left.as_ref().map(|left| &left.verdict);
            section.lost.is_some() || matches!(said, Some(Verdict::Lost(reason)) if reason != GIVEN_BACK)
        };
        let is_late = |section: &&Section| is_lost(section) && section.end() >= section.entered + age;
        self.sections.iter().filter(is_late).collect()
    }

    /// The sections of a lock around a moment, for display.
    pub fn around(&self, lock: u32, at: u64) -> Vec<&Section> {
        const NEIGHBOURS: usize = 6;
        let of_lock: Vec<_> = self.sections.iter().filter(|section| section.lock == lock).collect();
        let place = of_lock.partition_point(|section| section.entered < at);
        of_lock[place.saturating_sub(NEIGHBOURS)..of_lock.len().min(place + NEIGHBOURS)].to_vec()
    }

    fn check_locks(&self, found: &mut Vec<Violation>) {
        let mut lasting: HashMap<u32, Lasting<'_>> = HashMap::new();
        let mut newest: HashMap<u32, Newest<'_>> = HashMap::new();
        let mut tokens: HashMap<(u32, u64), &Section> = HashMap::new();
        for section in &self.sections {
            let mut broken = |rule, other: &Section| {
                let story = format!("\n    {other}\n    {section}");
                found.push(Violation { rule, lock: section.lock, at: section.entered, story });
            };
            // A step down from writing to reading keeps the token.
            let twin = tokens.insert((section.lock, section.token), section);
            if let Some(first) = twin.filter(|first| !(first.was_converted() && first.who == section.who)) {
                broken(Rule::TokenTwice, first);
            }
            // Dead on arrival: the guard was over before the worker could look at it.
            if !section.was_ever_valid() {
                continue;
            }
            if let Some((rule, before)) = lasting.entry(section.lock).or_default().enter(section) {
                broken(rule, before);
            }
            if let Some(before) = newest.entry(section.lock).or_default().enter(section) {
                broken(Rule::TokenOrder, before);
            }
        }
    }

    fn check_writes(&self, found: &mut Vec<Violation>) {
        let entered: HashMap<_, _> =
            self.sections.iter().map(|section| ((section.lock, section.token), section)).collect();
        // What the resource has accepted under its largest token: of all, and of those that wrote alone.
        let mut largest: HashMap<(u32, bool), &Write> = HashMap::new();
        for write in &self.writes {
            let section = entered.get(&(write.lock, write.token));
            let mut broken =
                |rule, story| found.push(Violation { rule, lock: write.lock, at: write.at, story });
            if !write.accepted {
                // The holder of a lease that was ended by force learns of it later; until then its writes are refused.
                if let Some(section) = section
                    && section.killed.is_none_or(|killed| write.at < killed)
                    && section
                        .left
                        .as_ref()
                        .is_some_and(|left| write.at < left.before && left.verdict == Verdict::Held)
                {
                    broken(Rule::RefusedWhileHeld, format!("{write}\n    {section}"));
                }
                continue;
            }
            if section.is_none() {
                broken(Rule::WriteByNobody, write.to_string());
            }
            // What is shared need only be newer than what was done alone.
            let before = largest.get(&(write.lock, !write.alone));
            if let Some(before) = before.filter(|before| write.token < before.token) {
                broken(Rule::WriteOrder, format!("{before}, then {write}"));
            }
            for only_alone in [false, true] {
                if only_alone && !write.alone {
                    continue;
                }
                let slot = largest.entry((write.lock, only_alone)).or_insert(write);
                if write.token > slot.token {
                    *slot = write;
                }
            }
        }
    }
}

/// What an acquisition may answer while its store or its connection is being hurt.
const EXPLAINED: [&str; 4] = ["backend_unavailable", "quorum_unreachable", "wait_timeout", "canceled"];

/// The loss that a fault explains. `superseded` would mean that a store which lost no data gave a
/// lock away while its holder was still valid.
const LOSSES: [&str; 1] = ["expired"];

/// What came of a section that went on in another way, between reading and writing.
pub const CONVERTED: &str = "converted";

/// What a guard says after its client was closed, which gives everything back: not held any more, but
/// not lost either.
const GIVEN_BACK: &str = "invalid_argument";

fn check_told(section: &Section, found: &mut Vec<Violation>) {
    let mut broken = |rule, at, why: &str| {
        found.push(Violation { rule, lock: section.lock, at, story: format!("{why}\n    {section}") });
    };
    if let Some(left) = &section.left {
        match &left.verdict {
            Verdict::Held if left.before >= left.valid_until => {
                broken(Rule::LossNotTold, left.before, "said to be held after its validity");
            }
            Verdict::Lost(reason) if reason == "expired" && left.after < left.valid_until => {
                broken(Rule::LossTooEarly, left.after, "said to be expired while valid");
            }
            Verdict::Lost(reason) if reason != GIVEN_BACK && !LOSSES.contains(&reason.as_str()) => {
                broken(Rule::Unexplained, left.after, "lost for a reason that nobody gave");
            }
            _ => {}
        }
        if let Some((at, result)) = &section.released {
            let was_lost = match &left.verdict {
                Verdict::Lost(reason) => reason != GIVEN_BACK,
                Verdict::Held => left.before >= left.valid_until,
            };
            if was_lost && (result == "ok" || result == CONVERTED) {
                broken(Rule::LossNotTold, *at, "released with success after its loss");
            }
        }
    }
    if let Some((at, result)) = &section.released
        && !(result == "ok"
            || result == CONVERTED
            || LOSSES.contains(&result.as_str())
            || EXPLAINED.contains(&result.as_str()))
    {
        broken(Rule::Unexplained, *at, "its release failed for a reason that nobody gave");
    }
}
