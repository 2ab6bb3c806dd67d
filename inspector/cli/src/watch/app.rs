//! The live view: what is shown, and what each key does. Knows no terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use polylatch::FencingToken;
use polylatch::inspect::BreakOutcome;

use model::text::{count, sanitized};
use model::view::{Column, Group, Line, Lines};
use model::{
    BreakOrder, BreakResult, Connection, ConnectionId, Filter, Fleet, Row, RowKey, RowRef, Update, View,
};

/// Orders that are cycled through, with their words.
const SORTS: [(Column, &str); 7] = [
    (Column::Attention, "attention"),
    (Column::Lock, "name"),
    (Column::Held, "held"),
    (Column::Left, "lease left"),
    (Column::Waiters, "waiting"),
    (Column::Holder, "holder"),
    (Column::HandOffs, "hand-offs"),
];

/// What the keys go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    /// A filter is being typed.
    Filter {
        text: String,
    },
    Break(BreakForm),
    Help,
}

/// A lease that may be broken, and what was typed so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BreakForm {
    pub key: RowKey,
    pub expected: FencingToken,
    /// Sanitized.
    pub holder: String,
    /// Its holder looks alive, so the name must be typed.
    pub alive: bool,
    pub reason: String,
    pub name: String,
    /// The name is being typed, not the reason.
    pub at_name: bool,
}

impl BreakForm {
    /// Says what is missing, if something is.
    pub(super) fn missing(&self) -> Option<&'static str> {
        if self.reason.trim().is_empty() {
            Some("say why")
        } else if self.alive && self.name != *self.key.lock {
            Some("type the lock's name")
        } else {
            None
        }
    }
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    Leave,
    Refresh,
    Break(BreakOrder),
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct App {
    pub id: ConnectionId,
    pub fleet: Fleet,
    /// The snapshot that is frozen, and its time.
    pub frozen: Option<(Fleet, u64)>,
    pub view: View,
    pub mode: Mode,
    pub details: bool,
    pub detail_scroll: u16,
    pub selected: Option<RowKey>,
    pub top: usize,
    pub lines: Lines,
    /// Rows of the table at the last drawing.
    pub page: usize,
    /// What came of the last action; sanitized.
    pub message: Option<String>,
    shown: Option<(u64, Lines)>,
}

impl App {
    pub(super) fn new(connection: Connection) -> Self {
        let mut fleet = Fleet::default();
        let id = connection.id.clone();
        fleet.connect(connection);
        Self {
            id,
            fleet,
            frozen: None,
            view: View::default(),
            mode: Mode::Table,
            details: false,
            detail_scroll: 0,
            selected: None,
            top: 0,
            lines: Lines::default(),
            page: 1,
            message: None,
            shown: None,
        }
    }

    pub(super) fn take(&mut self, update: Update) {
        self.fleet.ingest(update);
    }

    pub(super) fn broken(&mut self, result: &BreakResult) {
        let name = sanitized(&result.order.lock);
        self.message = Some(match &result.outcome {
            Ok(BreakOutcome::Broken { next: Some(next), .. }) => {
                format!("{name}: broken; now held by {}", sanitized(next.as_str()))
            }
            Ok(BreakOutcome::Broken { next: None, .. }) => format!("{name}: broken; it had no waiters"),
            Ok(BreakOutcome::Free) => format!("{name}: nothing broken, it is free"),
            Ok(BreakOutcome::ChangedHands { present }) => {
                format!("{name}: nothing broken, it changed hands (token {present})")
            }
            Ok(_) => format!("{name}: what came of the break is not known here"),
            Err(why) => format!("{name}: nothing broken: {why}"),
        });
    }

    /// The fleet that is shown, and its time.
    pub(super) fn overview(&self, now_ms: u64) -> (&Fleet, u64) {
        self.frozen.as_ref().map_or((&self.fleet, now_ms), |(fleet, at_ms)| (fleet, *at_ms))
    }

    /// Brings the lines up to date; before every drawing.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        self.fleet.tick(now_ms);
        let (fleet, at_ms) = self.overview(now_ms);
        let stale = self.shown.as_ref().is_none_or(|(version, _)| *version != fleet.version());
        // A filter may ask for ages, which change without news.
        if stale || !self.view.filter.is_empty() || at_ms % 1_000 < 250 {
            let (version, lines) = (fleet.version(), self.view.lines(fleet, at_ms));
            self.lines = lines.clone();
            self.shown = Some((version, lines));
        }
        if self.selected.as_ref().is_none_or(|key| self.place_of(key, now_ms).is_none()) {
            self.selected = self.first_row().map(|place| self.overview(now_ms).0.at(place).key.clone());
        }
    }

    fn first_row(&self) -> Option<RowRef> {
        self.lines.lines.iter().find_map(|line| match line {
            Line::Row(place) => Some(*place),
            Line::Heading { .. } => None,
        })
    }

    /// Place of a lock's line.
    pub(super) fn place_of(&self, key: &RowKey, now_ms: u64) -> Option<usize> {
        let (fleet, _) = self.overview(now_ms);
        self.lines
            .lines
            .iter()
            .position(|line| matches!(line, Line::Row(place) if fleet.at(*place).key == *key))
    }

    pub(super) fn selected_row(&self, now_ms: u64) -> Option<&Row> {
        let (fleet, _) = self.overview(now_ms);
        fleet.find(self.selected.as_ref()?).map(|place| fleet.at(place))
    }

    pub(super) fn key(&mut self, key: KeyEvent, now_ms: u64) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::Leave;
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.table_key(key, now_ms),
            Mode::Help => Step::Stay,
            Mode::Filter { text } => {
                self.filter_key(key, text, now_ms);
                Step::Stay
            }
            Mode::Break(form) => self.break_key(key, form),
        }
    }

    fn table_key(&mut self, key: KeyEvent, now_ms: u64) -> Step {
        self.message = None;
        match key.code {
            KeyCode::Char('q') => return Step::Leave,
            KeyCode::Esc if self.details => self.details = false,
            KeyCode::Esc if !self.view.filter.is_empty() => self.set_filter(Filter::default()),
            KeyCode::Esc => return Step::Leave,
            KeyCode::Char(' ') => {
                self.frozen = if self.frozen.is_some() { None } else { Some((self.fleet.clone(), now_ms)) };
                self.shown = None;
            }
            KeyCode::Char('r') => return Step::Refresh,
            KeyCode::Char('/' | 'f') => self.mode = Mode::Filter { text: self.view.filter.text().to_owned() },
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('s') => {
                let at = SORTS.iter().position(|(column, _)| *column == self.view.sort.column).unwrap_or(0);
                self.view.sort.column = SORTS[(at + 1) % SORTS.len()].0;
                self.shown = None;
            }
            KeyCode::Char('S') => {
                self.view.sort.reversed = !self.view.sort.reversed;
                self.shown = None;
            }
            KeyCode::Char('g') => {
                let at = Group::ALL.iter().position(|group| *group == self.view.group).unwrap_or(0);
                self.view.group = Group::ALL[(at + 1) % Group::ALL.len()];
                self.shown = None;
            }
            KeyCode::Char('b') | KeyCode::Delete => self.ask_to_break(now_ms),
            KeyCode::Enter => {
                self.details = !self.details;
                self.detail_scroll = 0;
            }
            KeyCode::Char('J') => self.detail_scroll = self.detail_scroll.saturating_add(1),
            KeyCode::Char('K') => self.detail_scroll = self.detail_scroll.saturating_sub(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, now_ms),
            KeyCode::Down | KeyCode::Char('j') => self.step(1, now_ms),
            KeyCode::PageUp => self.step(-(self.page as isize), now_ms),
            KeyCode::PageDown => self.step(self.page as isize, now_ms),
            KeyCode::Home => self.step(isize::MIN / 2, now_ms),
            KeyCode::End => self.step(isize::MAX / 2, now_ms),
            KeyCode::Char(digit @ '1'..='5') => {
                const VIEWS: [&str; 5] =
                    ["", "state:stuck", "state:deadlock", "state:no-expiry,holder-gone", "waiters>0"];
                let text = VIEWS[digit as usize - '1' as usize];
                self.set_filter(Filter::parse(text).unwrap_or_default());
            }
            _ => {}
        }
        Step::Stay
    }

    fn set_filter(&mut self, filter: Filter) {
        self.view.filter = filter;
        self.top = 0;
        self.shown = None;
    }

    fn filter_key(&mut self, key: KeyEvent, mut text: String, now_ms: u64) {
        match key.code {
            KeyCode::Esc => return,
            KeyCode::Enter => {
                match Filter::parse(&text) {
                    Ok(filter) => self.set_filter(filter),
                    // It stays open until it can be read or is given up.
                    Err(_) => self.mode = Mode::Filter { text },
                }
                return;
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        // What can be read already is shown while it is typed.
        if let Ok(filter) = Filter::parse(&text) {
            self.set_filter(filter);
            self.refresh(now_ms);
        }
        self.mode = Mode::Filter { text };
    }

    fn ask_to_break(&mut self, now_ms: u64) {
        if self.frozen.is_some() {
            self.message = Some("paused: go on (space) before you break a lease".into());
            return;
        }
        let Some(row) = self.selected_row(now_ms) else { return };
        let Some(expected) = row.fencing_token.filter(|_| row.gone_at_ms.is_none()) else {
            let why = if row.holders == 0 { "it is not held" } else { "it belongs to another program" };
            self.message = Some(format!("{}: nothing to break, {why}", row.name));
            return;
        };
        if sanitized(&row.key.lock) != *row.key.lock {
            self.message = Some("its name has invisible characters: break it with polylatch break".into());
            return;
        }
        use model::Rule;
        let dead = row.verdicts.iter().any(|verdict| {
            matches!(verdict.rule, Rule::HolderGone | Rule::NoExpiryDead | Rule::RenewalsStopped)
        });
        self.mode = Mode::Break(BreakForm {
            key: row.key.clone(),
            expected: FencingToken::new(expected),
            holder: format!("{} {}", row.place, row.program).trim().to_owned(),
            alive: !dead,
            reason: String::new(),
            name: String::new(),
            at_name: false,
        });
    }

    fn break_key(&mut self, key: KeyEvent, mut form: BreakForm) -> Step {
        let typed = if form.at_name { &mut form.name } else { &mut form.reason };
        match key.code {
            KeyCode::Esc => {
                self.message = Some("nothing broken".into());
                return Step::Stay;
            }
            KeyCode::Tab | KeyCode::Up | KeyCode::Down if form.alive => form.at_name = !form.at_name,
            KeyCode::Backspace => {
                typed.pop();
            }
            // Longest reason that a store keeps.
            KeyCode::Char(c) if typed.len() + c.len_utf8() <= 256 => typed.push(c),
            KeyCode::Enter if form.missing().is_none() => {
                self.message = Some(format!("breaking {} …", sanitized(&form.key.lock)));
                return Step::Break(BreakOrder {
                    connection: form.key.connection.clone(),
                    lock: form.key.lock.as_ref().to_owned(),
                    expected: form.expected,
                    reason: form.reason.trim().to_owned(),
                });
            }
            KeyCode::Enter if form.alive && !form.at_name && !form.reason.trim().is_empty() => {
                form.at_name = true;
            }
            _ => {}
        }
        self.mode = Mode::Break(form);
        Step::Stay
    }

    /// Moves the selection by so many rows.
    fn step(&mut self, by: isize, now_ms: u64) {
        let (fleet, _) = self.overview(now_ms);
        let rows: Vec<RowRef> = self
            .lines
            .lines
            .iter()
            .filter_map(|line| match line {
                Line::Row(place) => Some(*place),
                Line::Heading { .. } => None,
            })
            .collect();
        let now = rows.iter().position(|place| Some(&fleet.at(*place).key) == self.selected.as_ref());
        let last = rows.len().saturating_sub(1);
        let next = now.unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = rows.get(next).map(|place| fleet.at(*place).key.clone());
        self.detail_scroll = 0;
    }

    /// Says in a few words how the table is arranged.
    pub(super) fn arrangement(&self) -> String {
        let word =
            SORTS.iter().find(|(column, _)| *column == self.view.sort.column).map_or("", |(_, word)| word);
        let reversed = if self.view.sort.reversed { ", reversed" } else { "" };
        let group = match self.view.group {
            Group::None => String::new(),
            group => format!(", by {}", group.word()),
        };
        let rows = if self.lines.matching == self.lines.all {
            count(self.lines.all, "lock", "locks")
        } else {
            format!("{} of {}", self.lines.matching, count(self.lines.all, "lock", "locks"))
        };
        format!("{rows}, {word} first{reversed}{group}")
    }
}
