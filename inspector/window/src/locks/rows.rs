//! The columns, and how one lock is painted as a row.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use eframe::egui::{Color32, FontId, Rect, Stroke, Ui, pos2, vec2};

use crate::act::Act;
use crate::command::Command;
use crate::details::renewals::small_strip;
use crate::fonts;
use crate::marks;
use crate::table::{Cell, Rows, one_name};
use crate::theme;
use model::text::{clock_time, escaped, sanitized, short_span, span};
use model::view::{self, Line};
use model::{Fleet, LockState, Row};

/// How long a row that changed stands out.
const FLASH_MS: u64 = 700;

/// Countdowns go by whole seconds: several frames a second for each held lock cost a tenth of a processor.
const SECOND_MS: u64 = 1_000;

const LEASE_BAR: f32 = 74.0;

const STATE: usize = 0;
pub(super) const LOCK: usize = 1;
pub(super) const CONNECTION: usize = 2;
const BACKEND: usize = 3;
const MODE: usize = 4;
pub(super) const HOLDER: usize = 5;
const LABEL: usize = 6;
const LEASE: usize = 7;
const BEATS: usize = 8;
const WAITERS: usize = 9;
const HELD: usize = 10;
const HAND_OFFS: usize = 11;
const FENCE: usize = 12;
const LANGUAGE: usize = 13;

/// Title, hint, width, whether numbers stand at the right, whether it is shown at first, and what the
/// model calls the order by it.
pub(super) const COLUMNS: [(&str, &str, f32, bool, bool, view::Column); 14] = [
    ("State", "What it is, in one word", 112.0, false, true, view::Column::State),
    ("Lock", "Name of the lock", 150.0, false, true, view::Column::Lock),
    ("Connection", "Through which connection it is seen", 80.0, false, true, view::Column::Connection),
    ("Store", "Kind of store", 64.0, false, false, view::Column::Backend),
    ("Mode", "read, write, or permits taken of all", 50.0, false, true, view::Column::Mode),
    ("Holder", "Program, host and process", 168.0, false, true, view::Column::Holder),
    ("Doing", "What the holder says it is doing", 112.0, false, true, view::Column::Label),
    ("Lease", "What is left of the lease", 126.0, false, true, view::Column::Left),
    ("Renewals", "The latest renewals, newest at the right", 78.0, false, true, view::Column::Missed),
    ("Waiters", "How many wait", 64.0, true, true, view::Column::Waiters),
    ("Held", "For how long it is held", 62.0, true, true, view::Column::Held),
    ("/min", "Hand-offs during the last minute", 44.0, true, true, view::Column::HandOffs),
    ("Fence", "Fencing token of the present grant", 138.0, true, false, view::Column::Fence),
    ("Language", "Language of the holder's binding", 74.0, false, false, view::Column::Language),
];

/// The rows as the table asks for them.
pub(super) struct LockRows<'a> {
    fleet: &'a Fleet,
    lines: &'a [Line],
    now_ms: u64,
    several: bool,
    acts: RefCell<Vec<Act>>,
    moves: RefCell<Option<u64>>,
}

impl<'a> LockRows<'a> {
    pub(super) fn new(fleet: &'a Fleet, lines: &'a [Line], now_ms: u64) -> Self {
        let several = fleet.stores().len() > 1;
        Self { fleet, lines, now_ms, several, acts: RefCell::default(), moves: RefCell::default() }
    }

    /// Hands the wishes over; returns how often something that is visible moves.
    pub(super) fn finish(self, acts: &mut Vec<Act>) -> Option<u64> {
        acts.append(&mut self.acts.into_inner());
        self.moves.into_inner()
    }

    fn row(&self, at: usize) -> Option<&Row> {
        match &self.lines[at] {
            Line::Row(place) => Some(self.fleet.at(*place)),
            Line::Heading { .. } => None,
        }
    }

    fn state(&self, row: &Row) -> LockState {
        self.fleet.state(row, self.now_ms)
    }

    fn moves(&self, every_ms: u64) {
        let mut moves = self.moves.borrow_mut();
        *moves = Some(moves.map_or(every_ms, |known| known.min(every_ms)));
    }

    fn lease(&self, cell: &Cell<'_>, row: &Row, state: LockState) {
        let palette = cell.palette;
        let bar = Rect::from_min_size(
            pos2(cell.rect.left(), cell.rect.center().y - 4.5),
            vec2(LEASE_BAR.min(cell.rect.width() * 0.55), 9.0),
        );
        if row.holders == 0 {
            return;
        }
        // What is not known does not run down.
        let left = match state {
            LockState::Unknown => row.remaining_ms,
            _ => row.left_now_ms(self.now_ms),
        };
        let Some(left) = left else {
            let text = if state == LockState::NoExpiry { "never ends" } else { "not told" };
            cell.body(text, palette.weak);
            return;
        };
        if state == LockState::Unknown {
            marks::hatch(
                &cell.painter.with_clip_rect(bar.intersect(cell.painter.clip_rect())),
                5.0,
                palette.weak,
            );
        } else {
            let share = row.left_share(self.now_ms).unwrap_or(0.0);
            let colour = match state {
                LockState::Held | LockState::Contended | LockState::Foreign => palette.held,
                state => palette.state(state),
            };
            marks::lease_bar(cell.painter, bar, share, colour, palette);
            if row.gone_at_ms.is_none() && left > 0 {
                self.moves(SECOND_MS);
            }
        }
        let text = whole_span(left);
        let colour = if state == LockState::Unknown { palette.weak } else { palette.text };
        cell.text_from(bar.width() + 7.0, &text, FontId::monospace(theme::MONO - 0.5), colour);
    }

    fn holder(&self, cell: &Cell<'_>, row: &Row, dim: Color32) {
        if row.holders == 0 {
            return;
        }
        let font = FontId::proportional(theme::BODY);
        let program = if row.program.is_empty() { row.place.as_str() } else { row.program.as_str() };
        let more =
            if row.holders > 1 { format!("{program} +{}", row.holders - 1) } else { program.to_owned() };
        cell.text(&more, font.clone(), dim);
        if !row.program.is_empty() {
            let used = cell.painter.layout_no_wrap(more, font, dim).size().x + 7.0;
            if used + 20.0 < cell.rect.width() {
                let font = FontId::monospace(theme::SMALL - 1.0);
                let room = cell.rect.width() - used;
                // The process stands at its end.
                let place = one_name(cell.painter, &row.place, font, cell.palette.weak, room);
                let at = pos2(cell.rect.left() + used, cell.rect.center().y - place.size().y / 2.0);
                cell.painter.galley(at, place, cell.palette.weak);
            }
        }
    }
}

impl Rows for LockRows<'_> {
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn key(&self, row: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.lines[row] {
            Line::Row(place) => self.fleet.at(*place).key.hash(&mut hasher),
            Line::Heading { title, .. } => ("heading", title).hash(&mut hasher),
        }
        hasher.finish()
    }

    fn name(&self, at: usize) -> String {
        let Some(row) = self.row(at) else {
            let Line::Heading { title, rows, attention } = &self.lines[at] else { return String::new() };
            return format!("group {title}, {rows} locks, {attention} need attention");
        };
        let mut name = format!("{}, {}", row.name, self.state(row).word());
        if row.holders > 0 {
            name += &format!(", held by {} {}", row.program, row.place);
        }
        if row.waiters > 0 {
            name += &format!(", {} waiting", row.waiters);
        }
        if row.gone_at_ms.is_some() {
            name += ", gone";
        }
        name
    }

    fn tint(&self, at: usize) -> Option<Color32> {
        let row = self.row(at)?;
        let age = self.now_ms.saturating_sub(row.changed_at_ms);
        (row.changed_at_ms > 0 && age < FLASH_MS).then(|| {
            self.moves(FLASH_MS - age);
            Color32::from_rgba_unmultiplied(127, 178, 255, 22)
        })
    }

    fn is_heading(&self, row: usize) -> bool {
        matches!(self.lines[row], Line::Heading { .. })
    }

    fn paint(&self, cell: &Cell<'_>) {
        let palette = cell.palette;
        let Some(row) = self.row(cell.row) else {
            let Line::Heading { title, rows, attention } = &self.lines[cell.row] else { return };
            let attention =
                if *attention > 0 { format!(", {attention} need attention") } else { String::new() };
            let text = format!("{title}   {rows} locks{attention}");
            cell.text(&text, FontId::proportional(theme::BODY), palette.strong);
            return;
        };
        let state = self.state(row);
        let gone = row.gone_at_ms.is_some();
        let text = if gone || state == LockState::Unknown { palette.weak } else { palette.text };
        match cell.column {
            STATE => {
                let centre = pos2(cell.rect.left() + 8.0, cell.rect.center().y);
                marks::state(cell.painter, centre, 13.0, if gone { LockState::Free } else { state }, palette);
                cell.text_from(
                    21.0,
                    if gone { "gone" } else { state.word() },
                    FontId::proportional(theme::BODY),
                    text,
                );
            }
            LOCK => {
                let colour = if gone { palette.weak } else { palette.strong };
                let font = FontId::monospace(theme::MONO - 0.5);
                let name = one_name(cell.painter, &row.name, font, colour, cell.rect.width());
                let (left, width, y) = (cell.rect.left(), name.size().x, cell.rect.center().y);
                cell.painter.galley(pos2(left, y - name.size().y / 2.0), name, colour);
                if gone {
                    cell.painter.hline(left..=left + width, y, Stroke::new(1.0, palette.weak));
                }
            }
            CONNECTION => cell.body(
                &sanitized(row.key.connection.as_str()),
                if self.several { text } else { palette.weak },
            ),
            BACKEND => cell.body(&row.backend, text),
            MODE => cell.body(&row.mode, text),
            HOLDER => self.holder(cell, row, text),
            LABEL => cell.body(&row.label, palette.weak),
            LEASE => self.lease(cell, row, if gone { LockState::Unknown } else { state }),
            BEATS => {
                if let Some(history) = self.fleet.history(&row.key)
                    && row.holders > 0
                {
                    small_strip(cell.painter, cell.rect, history, palette);
                }
            }
            WAITERS if row.waiters > 0 || row.silent > 0 => {
                let silent = if row.silent > 0 { format!(" +{}?", row.silent) } else { String::new() };
                cell.mono(&format!("{}{silent}", row.waiters), text);
            }
            HELD => {
                let known = gone || state != LockState::Unknown;
                let held = if known { row.held_now_ms(self.now_ms) } else { row.held_for_ms };
                if let Some(held) = held {
                    if !gone && state != LockState::Unknown {
                        self.moves(SECOND_MS);
                    }
                    cell.mono(&whole_span(held), text);
                }
            }
            HAND_OFFS if row.hand_offs > 0 => cell.mono(&row.hand_offs.to_string(), text),
            FENCE => {
                if let Some(token) = row.fencing_token {
                    cell.mono(&token.to_string(), palette.weak);
                }
            }
            LANGUAGE => cell.body(&row.language, palette.weak),
            _ => {}
        }
    }

    fn menu(&self, at: usize, ui: &mut Ui) {
        let Some(row) = self.row(at) else { return };
        let mut acts = self.acts.borrow_mut();
        let mut offer = |ui: &mut Ui, text: &str, act: Act| {
            if ui.button(text).clicked() {
                acts.push(act);
                ui.close();
            }
        };
        let key = || row.key.clone();
        offer(ui, "Show details", Act::Open(key()));
        offer(ui, "Copy the row as Markdown", Act::Run(Command::CopyRow));
        offer(ui, "Copy the command that helps", Act::Run(Command::CopyStep));
        offer(ui, "Copy a link", Act::Run(Command::CopyLink));
        let name = Act::Copy { text: row.name.clone(), what: "the name".into() };
        offer(ui, "Copy the name", name);
        if !row.name.is_ascii() {
            let name = Act::Copy { text: escaped(&row.name), what: "the name".into() };
            offer(ui, "Copy the name, escaped", name);
        }
        if let Some(token) = row.fencing_token {
            ui.separator();
            offer(ui, "Break the lease…", Act::AskBreak(key(), polylatch::FencingToken::new(token)));
        }
    }
}

/// An age in whole units, so that it changes once a second: `12s`, `4m02s`.
pub fn whole_span(ms: u64) -> String {
    if ms < 60_000 { format!("{}s", ms / 1_000) } else { short_span(ms) }
}

/// What a cell says when the pointer rests on it.
pub(super) fn hint(ui: &Ui, fleet: &Fleet, row: &Row, column: usize, now_ms: u64) -> Option<String> {
    match column {
        STATE => fleet.explain_now(&row.key, now_ms).first().map(|finding| finding.sentence.clone()),
        LOCK if fonts::can_show(ui, &row.name) => Some(row.name.clone()),
        LOCK => Some(format!("{}\n{}", row.name, escaped(&row.name))),
        HOLDER if row.holders > 0 => {
            let language =
                if row.language.is_empty() { String::new() } else { format!("\n{}", row.language) };
            Some(format!("{}\n{}{language}", row.program, row.place))
        }
        LABEL if !row.label.is_empty() => Some(row.label.clone()),
        LEASE => {
            let left = row.left_now_ms(now_ms)?;
            let lease = row.lease_ms.map(|lease| format!(" of {}", span(lease))).unwrap_or_default();
            Some(format!(
                "{}{lease} left; ends at {} UTC unless renewed",
                span(left),
                clock_time(now_ms + left, now_ms)
            ))
        }
        BEATS => {
            let since = row.since_renewal_now_ms(now_ms)?;
            let times = row.renewals.map(|times| format!("renewed {times} times, ")).unwrap_or_default();
            Some(format!("{times}last {} ago, {} missed", span(since), row.missed))
        }
        WAITERS => row.waited_now_ms(now_ms).map(|waited| format!("the first waits for {}", span(waited))),
        _ => None,
    }
}
