//! The table of locks.

mod rows;

use eframe::egui::{self, Key, Modifiers, Ui};

use self::rows::{COLUMNS, CONNECTION, HOLDER, LOCK, LockRows, hint};
use super::act::Act;
use super::settings::Settings;
use super::table::{Column, Sort, Table};
use super::theme::Palette;
use model::Severity;
use model::fleet::RowRef;
use model::view::{self, Group, Line, Lines, View};
use model::{Filter, FilterError, Fleet, RowKey};

pub use rows::whole_span;

/// Rows for which the table keeps room, though there are fewer.
const MOST_EMPTY_ROWS: usize = 4;

/// The table and what is shown in it.
#[derive(Debug)]
pub struct Locks {
    table: Table,
    filter_text: String,
    filter_error: Option<FilterError>,
    view: View,
    lines: Lines,
    lines_of: Option<LinesKey>,
    selected: Option<RowKey>,
    /// Keeps the selected row in sight while rows move.
    pub follow: bool,
    was_at: Option<usize>,
    scroll: bool,
    moved: Move,
    page: usize,
    moves_every_ms: Option<u64>,
    /// Nobody has selected anything yet: the first lock that needs attention is.
    untouched: bool,
}

/// What the lines were made of.
#[derive(Debug, PartialEq)]
struct LinesKey {
    version: u64,
    live: u8,
    second: u64,
    view: View,
}

/// A step of the selection.
#[derive(Debug, Clone, Copy, Default)]
enum Move {
    #[default]
    Stay,
    Rows(isize),
    Pages(isize),
    First,
    Last,
    Finding(isize),
}

impl Default for Locks {
    fn default() -> Self {
        Self::new(&Settings::default())
    }
}

impl Locks {
    pub fn new(settings: &Settings) -> Self {
        let columns = COLUMNS.iter().enumerate().map(|(at, (title, hint, width, right, shown, _))| {
            let kept = settings.columns.iter().find(|(name, _)| name == title);
            let shown = match kept {
                Some(_) => !settings.hidden_columns.iter().any(|name| name == title),
                None => *shown,
            };
            let width = kept.map_or(*width, |(_, width)| width.clamp(36.0, 900.0));
            Column {
                title,
                hint,
                width,
                grows: at == LOCK || at == HOLDER,
                right: *right,
                shown,
                idle: false,
            }
        });
        Self {
            table: Table { columns: columns.collect(), sort: None, row_height: 26.0 },
            filter_text: String::new(),
            filter_error: None,
            view: View::default(),
            lines: Lines::default(),
            lines_of: None,
            selected: None,
            follow: false,
            was_at: None,
            scroll: false,
            moved: Move::Stay,
            page: 20,
            moves_every_ms: None,
            untouched: true,
        }
    }

    /// Puts what is to be remembered into the settings.
    pub fn remember(&self, settings: &mut Settings) {
        let columns = &self.table.columns;
        settings.columns = columns.iter().map(|column| (column.title.to_owned(), column.width)).collect();
        settings.hidden_columns =
            columns.iter().filter(|column| !column.shown).map(|column| column.title.to_owned()).collect();
    }

    pub fn selected(&self) -> Option<&RowKey> {
        self.selected.as_ref()
    }

    pub fn select(&mut self, key: Option<RowKey>) {
        self.untouched = false;
        self.scroll |= self.selected != key;
        self.selected = key;
    }

    pub fn filter_text(&self) -> &str {
        &self.filter_text
    }

    pub fn filter_error(&self) -> Option<&FilterError> {
        self.filter_error.as_ref()
    }

    /// Takes a filter; one that is none leaves the one before in force.
    pub fn set_filter(&mut self, text: &str) {
        text.clone_into(&mut self.filter_text);
        match Filter::parse(text) {
            Ok(filter) => {
                self.view.filter = filter;
                self.filter_error = None;
            }
            Err(error) => self.filter_error = Some(error),
        }
    }

    pub fn group(&self) -> Group {
        self.view.group
    }

    pub fn set_group(&mut self, group: Group) {
        self.view.group = group;
    }

    /// How many rows pass the filter, and how many there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.lines.matching, self.lines.all)
    }

    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.table.columns
    }

    pub fn set_compact(&mut self, compact: bool) {
        self.table.row_height = if compact { 20.0 } else { 26.0 };
    }

    /// Nothing of the table is visible now.
    pub fn stand_still(&mut self) {
        self.moves_every_ms = None;
    }

    /// How often something that is visible moves by itself; `None` if nothing does.
    pub fn moves_every_ms(&self) -> Option<u64> {
        self.moves_every_ms
    }

    /// The height at which all rows are seen, as of the last frame.
    pub fn height(&self) -> f32 {
        self.table.height(self.lines.lines.len().max(MOST_EMPTY_ROWS))
    }

    /// The rows in the order in which they are shown.
    pub fn rows(&self) -> Vec<RowRef> {
        let rows = self.lines.lines.iter();
        rows.filter_map(|line| if let Line::Row(place) = line { Some(*place) } else { None }).collect()
    }

    /// Goes to the next or previous row that needs attention.
    pub fn go_to_finding(&mut self, step: isize) {
        self.moved = Move::Finding(step);
    }

    /// Takes the keys that move the selection. Not while somebody types.
    pub fn keys(&mut self, ctx: &egui::Context) {
        ctx.input_mut(|input| {
            let mut pressed = |key| input.consume_key(Modifiers::NONE, key);
            for (key, step) in [
                (Key::ArrowUp, Move::Rows(-1)),
                (Key::ArrowDown, Move::Rows(1)),
                (Key::PageUp, Move::Pages(-1)),
                (Key::PageDown, Move::Pages(1)),
                (Key::Home, Move::First),
                (Key::End, Move::Last),
            ] {
                if pressed(key) {
                    self.moved = step;
                }
            }
        });
    }

    /// Makes the lines anew if something that they are made of changed.
    pub fn refresh(&mut self, fleet: &Fleet, now_ms: u64, live: u8) {
        let sort = match self.table.sort {
            None => view::Sort::default(),
            Some(Sort { column, descending }) => {
                view::Sort { column: COLUMNS[column].5, reversed: !descending }
            }
        };
        self.view.sort = sort;
        // Filters and orders by age change with time alone.
        let second = if live == 0 { now_ms / 1_000 } else { now_ms };
        let fits = self.lines_of.as_ref().is_some_and(|of| {
            (of.version, of.live, of.second) == (fleet.version(), live, second) && of.view == self.view
        });
        if !fits {
            self.lines = self.view.lines(fleet, now_ms);
            self.lines_of =
                Some(LinesKey { version: fleet.version(), live, second, view: self.view.clone() });
        }
    }

    /// Shows the table. `live` tells apart fleets whose versions mean different things.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        fleet: &Fleet,
        now_ms: u64,
        live: u8,
        palette: &Palette,
        acts: &mut Vec<Act>,
    ) {
        self.refresh(fleet, now_ms, live);
        let place = |selected: &RowKey| {
            let is = |line: &Line| matches!(line, Line::Row(place) if fleet.at(*place).key == *selected);
            self.lines.lines.iter().position(is)
        };
        let mut at = self.selected.as_ref().and_then(place);
        if let Some(moved) = self.stepped(fleet, at) {
            at = Some(moved);
            if let Line::Row(place) = self.lines.lines[moved] {
                self.selected = Some(fleet.at(place).key.clone());
                self.scroll = true;
            }
        }
        if self.untouched
            && let Some(Line::Row(place)) = self.lines.lines.first()
            && fleet.at(*place).severity() >= Severity::Problem
        {
            self.selected = Some(fleet.at(*place).key.clone());
            (self.untouched, at) = (false, Some(0));
        }
        let moved = self.follow && at != self.was_at;
        self.was_at = at;
        let scroll_to = if self.scroll || moved { at } else { None };
        self.scroll = false;
        self.table.columns[CONNECTION].idle = fleet.stores().len() < 2;
        let rows = LockRows::new(fleet, &self.lines.lines, now_ms);
        let shown = self.table.show(ui, "locks", &rows, at, scroll_to, palette);
        self.page = shown.page;
        self.moves_every_ms = rows.finish(acts);
        let key = |row: usize| match &self.lines.lines[row] {
            Line::Row(place) => Some(fleet.at(*place).key.clone()),
            Line::Heading { .. } => None,
        };
        if let Some(key) = shown.double_clicked.and_then(key) {
            acts.push(Act::Open(key));
        } else if let Some(key) = shown.clicked.and_then(key) {
            acts.push(Act::Select(key));
        }
        if let Some((row, column, response)) = shown.hovered
            && let Line::Row(place) = self.lines.lines[row]
            && let Some(text) = hint(ui, fleet, fleet.at(place), column, now_ms)
        {
            response.on_hover_text_at_pointer(text);
        }
    }

    /// Where the selection goes, if it was moved.
    fn stepped(&mut self, fleet: &Fleet, at: Option<usize>) -> Option<usize> {
        let lines = &self.lines.lines;
        let is_row = |at: usize| matches!(lines[at], Line::Row(_));
        let (start, step) = match std::mem::take(&mut self.moved) {
            Move::Stay => return None,
            Move::Finding(step) => {
                let needs = |row: &usize| matches!(&lines[*row], Line::Row(place) if fleet.at(*place).severity() >= Severity::Warning);
                return if step > 0 {
                    (at.map_or(0, |at| at + 1)..lines.len()).find(needs)
                } else {
                    (0..at.unwrap_or(0)).rev().find(needs)
                };
            }
            Move::First => (0, 1),
            Move::Last => (lines.len() as isize - 1, -1),
            Move::Rows(step) => (at.map_or(0, |at| at as isize + step), step),
            Move::Pages(step) => {
                let page = self.page as isize - 1;
                (at.map_or(0, |at| (at as isize + step * page).clamp(0, lines.len() as isize - 1)), step)
            }
        };
        let mut at = start;
        while (0..lines.len() as isize).contains(&at) {
            if is_row(at as usize) {
                return Some(at as usize);
            }
            at += step.signum();
        }
        None
    }
}
