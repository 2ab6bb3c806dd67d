//! The table of idempotent work: which keys are running, stuck or stored, and what the next run of each gets.
//!
//! Read when it is opened and when `R` is pressed: a store may hold millions, and most have to be read one by one.

use eframe::egui::{Color32, FontId, Frame, Margin, Panel, RichText, ScrollArea, Ui};

use super::act::Act;
use super::locks::whole_span;
use super::table::{Cell, Column, Rows, Table, in_the_middle};
use super::theme::{self, Palette};
use model::records::RecordsRead;
use model::text::{clock_time, count, sanitized};
use model::{ConnectionId, Finding, Fleet, Next, Records, Severity};
use polylatch::idempotency::RecordView;

/// Where a record is: the place of its connection among those that were read, and its own there.
type Place = (usize, usize);

/// The table and its lines.
#[derive(Debug)]
pub struct RecordsPage {
    table: Table,
    /// The latest that was read of each connection.
    read: Vec<RecordsRead>,
    /// So many connections were asked and have not answered.
    asked: usize,
    order: Vec<Place>,
    sorted_by: Option<super::table::Sort>,
    selected: Option<(ConnectionId, String, String)>,
}

impl Default for RecordsPage {
    fn default() -> Self {
        let columns = [
            ("State", "What the record says", 96.0),
            ("Scope", "What is done, and for which caller", 190.0),
            ("Key", "What is unique to one request", 230.0),
            ("Client", "Who wrote it last", 170.0),
            ("Runs", "How many runs began since the key was free", 54.0),
            ("Written", "How long ago, by the store's clock", 76.0),
            ("Kept", "For how long it still answers repetitions", 76.0),
            ("Found", "What is not as it should be", 170.0),
        ];
        let column = |(title, hint, width)| Column {
            title,
            hint,
            width,
            grows: title == "Scope" || title == "Key",
            right: title == "Runs",
            shown: true,
            idle: false,
        };
        let table = Table { columns: columns.map(column).to_vec(), sort: None, row_height: 26.0 };
        let (read, order) = (Vec::new(), Vec::new());
        Self { table, read, asked: 0, order, sorted_by: None, selected: None }
    }
}

impl RecordsPage {
    /// Takes note that so many connections are read again.
    pub fn expect(&mut self, connections: usize) {
        self.asked = connections;
    }

    /// Takes what was read of a connection.
    pub fn take(&mut self, read: RecordsRead) {
        self.asked = self.asked.saturating_sub(1);
        self.read.retain(|known| known.connection != read.connection);
        self.read.push(read);
        self.read.sort_by(|a, b| a.connection.as_str().cmp(b.connection.as_str()));
        self.sort();
    }

    /// Shows it.
    pub fn show(&mut self, ui: &mut Ui, fleet: &Fleet, now_ms: u64, palette: &Palette, acts: &mut Vec<Act>) {
        let before = self.read.len();
        self.read.retain(|read| fleet.store(&read.connection).is_some());
        if self.read.len() != before || self.sorted_by != self.table.sort {
            self.sort();
        }
        let bar = |fill: Color32| Frame::new().fill(fill).inner_margin(Margin::symmetric(10, 6));
        Panel::top("records").frame(bar(palette.panel)).show(ui, |ui| self.heading(ui, now_ms, palette));
        if let Some(place) = self.selected_place() {
            Panel::bottom("record")
                .frame(bar(palette.panel))
                .exact_size(190.0)
                .show(ui, |ui| self.details(ui, place, fleet, now_ms, palette, acts));
        }
        let rows = RecordRows { read: &self.read, order: &self.order, now_ms };
        let at = self.selected_place().and_then(|place| self.order.iter().position(|known| *known == place));
        let shown = self.table.show(ui, "keys", &rows, at, None, palette);
        if let Some(row) = shown.clicked {
            let (read, record) = rows.at(row);
            self.selected = Some((read.connection.clone(), record.scope.clone(), record.key.clone()));
        }
        if let Some((row, _, response)) = shown.hovered {
            response.on_hover_text_at_pointer(rows.name(row));
        }
        if self.order.is_empty() && self.asked == 0 {
            in_the_middle(ui, "No key of idempotent work is running or stored.", palette);
        }
    }

    fn heading(&self, ui: &mut Ui, now_ms: u64, palette: &Palette) {
        let weak = |text: String| RichText::new(text).size(12.5).color(palette.weak);
        ui.horizontal_wrapped(|ui| {
            let found = |least: Severity| {
                let worst = |place: &Place| {
                    let (records, record) = records_of(&self.read, *place)?;
                    records.judge(record).map(|(_, severity)| severity)
                };
                self.order.iter().filter_map(worst).filter(|severity| *severity >= least).count()
            };
            ui.label(RichText::new(count(self.order.len(), "key", "keys")).size(12.5).color(palette.strong));
            let attention = found(Severity::Warning);
            if attention > 0 {
                let text = format!("{attention} need attention");
                ui.label(RichText::new(text).size(12.5).color(palette.strong));
            }
            if let Some(oldest) = self.read.iter().map(|read| read.at_ms).min() {
                ui.label(weak(format!("as of {}", clock_time(oldest, now_ms))));
            }
            ui.label(weak(if self.asked > 0 { "reading…".into() } else { "R reads again".into() }));
        });
        for read in &self.read {
            let name = sanitized(read.connection.as_str());
            match &read.outcome {
                Err(why) => _ = ui.label(weak(format!("{name}: {}", sanitized(why)))),
                Ok(records) if records.all().len() >= RecordsRead::MOST => {
                    ui.label(weak(format!("{name}: only the first {} keys are shown", RecordsRead::MOST)));
                }
                Ok(_) => {}
            }
        }
    }

    fn details(
        &self,
        ui: &mut Ui,
        place: Place,
        fleet: &Fleet,
        now_ms: u64,
        palette: &Palette,
        acts: &mut Vec<Act>,
    ) {
        let Some((records, record)) = records_of(&self.read, place) else { return };
        let connection = fleet.store(&self.read[place.0].connection).map(|store| store.connection());
        let command = connection.map_or("polylatch", |connection| connection.command.as_str());
        ScrollArea::vertical().id_salt("record").auto_shrink(false).show(ui, |ui| {
            if let Some(finding) = records.finding(record, command, now_ms) {
                explained(ui, &finding, palette, acts);
            }
            for sentence in records.told(record, now_ms) {
                ui.label(RichText::new(sentence).color(palette.text));
            }
        });
    }

    fn selected_place(&self) -> Option<Place> {
        let (connection, scope, key) = self.selected.as_ref()?;
        let is_it = |place: &&Place| {
            let (at, _) = **place;
            records_of(&self.read, **place).is_some_and(|(_, record)| {
                self.read[at].connection == *connection && record.scope == *scope && record.key == *key
            })
        };
        self.order.iter().find(is_it).copied()
    }

    /// What needs attention first; the rest by scope and key, or as a column's header was clicked.
    fn sort(&mut self) {
        self.sorted_by = self.table.sort;
        let read = &self.read;
        let all = read.iter().enumerate().filter_map(|(at, read)| Some((at, read.outcome.as_ref().ok()?)));
        let places = all.flat_map(|(at, records)| (0..records.all().len()).map(move |record| (at, record)));
        let mut order: Vec<Place> = places.collect();
        let sort = self.table.sort;
        order.sort_by_cached_key(|place| {
            let Some((records, record)) = records_of(read, *place) else { return Default::default() };
            let severity = records.judge(record).map(|(_, severity)| severity);
            let (text, number) = match sort.map(|sort| sort.column) {
                Some(0) => (record.state.code().to_owned(), 0),
                Some(1) => (record.scope.clone(), 0),
                Some(2) => (record.key.clone(), 0),
                Some(3) => (record.client.as_str().to_owned(), 0),
                Some(4) => (String::new(), u64::from(record.runs)),
                Some(5) => (String::new(), u64::MAX - record.written_at_ms),
                Some(6) => (String::new(), record.keep_left_ms.unwrap_or(u64::MAX)),
                _ => (String::new(), severity.map_or(9, |severity| 3 - severity as u64)),
            };
            (text, number, record.scope.clone(), record.key.clone())
        });
        if sort.is_some_and(|sort| sort.descending) {
            order.reverse();
        }
        self.order = order;
    }
}

fn records_of(read: &[RecordsRead], (at, record): Place) -> Option<(&Records, &RecordView)> {
    let records = read.get(at)?.outcome.as_ref().ok()?;
    Some((records, records.all().get(record)?))
}

fn explained(ui: &mut Ui, finding: &Finding, palette: &Palette, acts: &mut Vec<Act>) {
    ui.label(RichText::new(&finding.sentence).size(14.5).color(palette.strong));
    for next in &finding.next {
        match next {
            Next::Do(advice) => _ = ui.label(RichText::new(format!("→ {advice}")).color(palette.text)),
            Next::Run(command) => {
                ui.horizontal(|ui| {
                    let name = format!("Copy {command}");
                    if ui.small_button("Copy").accessible_name(&name).clicked() {
                        acts.push(Act::Copy { text: command.clone(), what: "the command".into() });
                    }
                    ui.label(RichText::new(command).font(FontId::monospace(theme::MONO - 1.0)));
                });
            }
        }
    }
    ui.label(RichText::new(finding.rule.code()).size(10.5).color(palette.weak));
    ui.add_space(4.0);
}

struct RecordRows<'a> {
    read: &'a [RecordsRead],
    order: &'a [Place],
    now_ms: u64,
}

impl RecordRows<'_> {
    fn at(&self, row: usize) -> (&RecordsRead, &RecordView) {
        let place = self.order[row];
        let (_, record) = records_of(self.read, place).expect("the order names records that are there");
        (&self.read[place.0], record)
    }

    fn judged(&self, row: usize) -> Option<(model::Rule, Severity)> {
        let (records, record) = records_of(self.read, self.order[row])?;
        records.judge(record)
    }
}

impl Rows for RecordRows<'_> {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn key(&self, row: usize) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let (read, record) = self.at(row);
        (read.connection.as_str(), &record.scope, &record.key, record.is_token).hash(&mut hasher);
        hasher.finish()
    }

    fn name(&self, row: usize) -> String {
        let (read, record) = self.at(row);
        let found = self.judged(row).map(|(rule, _)| format!(", {}", rule.code())).unwrap_or_default();
        let (scope, key) = (sanitized(&record.scope), sanitized(&record.key));
        let connection = sanitized(read.connection.as_str());
        format!("{key} in {scope}, {}{found}, {connection}", record.state.code())
    }

    fn tint(&self, _: usize) -> Option<Color32> {
        None
    }

    fn is_heading(&self, _: usize) -> bool {
        false
    }

    fn menu(&self, _: usize, ui: &mut Ui) {
        ui.label("A click explains the key.");
    }

    fn paint(&self, cell: &Cell<'_>) {
        let palette = cell.palette;
        let (_, record) = self.at(cell.row);
        match cell.column {
            0 => cell.body(record.state.code(), palette.strong),
            1 => cell.mono(&sanitized(&record.scope), palette.text),
            2 => cell.mono(&sanitized(&record.key), palette.text),
            3 => {
                let pid = record.client.pid().unwrap_or_default();
                cell.mono(&sanitized(&format!("{} {pid}", record.client.host())), palette.weak);
            }
            4 => cell.mono(&record.runs.to_string(), palette.text),
            5 => cell.mono(&whole_span(self.now_ms.saturating_sub(record.written_at_ms)), palette.weak),
            6 => {
                let kept = record.keep_left_ms.map_or_else(|| "for ever".to_owned(), whole_span);
                cell.mono(&kept, palette.weak);
            }
            _ => {
                if let Some((rule, severity)) = self.judged(cell.row) {
                    let is_alarm = severity >= Severity::Warning;
                    cell.body(rule.code(), if is_alarm { palette.orphan } else { palette.weak });
                }
            }
        }
    }
}
