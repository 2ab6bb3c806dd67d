//! The table of clients: what does this process hold, and what does it wait for?

use eframe::egui::{Color32, FontId, Ui};

use super::act::Act;
use super::locks::whole_span;
use super::table::{Cell, Column, Rows, Table, in_the_middle};
use super::theme::{self, Palette};
use model::fleet::ClientRow;
use model::text::{APART, sanitized, span};
use model::{Fleet, Process};

/// The table and its lines.
#[derive(Debug)]
pub struct Clients {
    table: Table,
    rows: Vec<ClientRow>,
    version: Option<u64>,
    selected: Option<String>,
}

impl Default for Clients {
    fn default() -> Self {
        let columns = [
            ("Program", "What the program calls itself", 150.0),
            ("Host", "Where it runs", 120.0),
            ("Process", "Its number there", 124.0),
            ("Language", "Of its binding, with the version", 110.0),
            ("Holds", "Locks that it holds, and for how long", 280.0),
            ("Waits for", "Locks that it waits for, and for how long", 260.0),
            ("Seen", "When it last said so", 70.0),
        ];
        let column = |(title, hint, width)| Column {
            title,
            hint,
            width,
            grows: title == "Holds" || title == "Waits for",
            right: false,
            shown: true,
            idle: false,
        };
        Self {
            table: Table { columns: columns.map(column).to_vec(), sort: None, row_height: 26.0 },
            rows: Vec::new(),
            version: None,
            selected: None,
        }
    }
}

impl Clients {
    /// Shows it.
    pub fn show(&mut self, ui: &mut Ui, fleet: &Fleet, palette: &Palette, acts: &mut Vec<Act>) {
        if self.version != Some(fleet.version()) {
            self.rows = fleet.clients();
            self.version = Some(fleet.version());
        }
        let order = self.order();
        let rows = ClientRows { rows: &self.rows, order: &order };
        let at = order.iter().position(|at| Some(self.rows[*at].id.as_str()) == self.selected.as_deref());
        let shown = self.table.show(ui, "clients", &rows, at, None, palette);
        if let Some(row) = shown.clicked {
            self.selected = Some(self.rows[order[row]].id.as_str().to_owned());
        }
        if let Some(row) = shown.double_clicked {
            let client = &self.rows[order[row]];
            let locks =
                client.waits.iter().map(|(key, _)| key).chain(client.holds.iter().map(|(key, _)| key));
            acts.extend(locks.take(1).map(|key| Act::Open(key.clone())));
        }
        if let Some((row, _, response)) = shown.hovered {
            response.on_hover_text_at_pointer(rows.told(row));
        }
        if order.is_empty() {
            in_the_middle(ui, "No client holds a lock or waits for one.", palette);
        }
    }

    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if let Some(sort) = self.table.sort {
            let key = |at: &usize| {
                let row = &self.rows[*at];
                let text = match sort.column {
                    0 => row.program.clone(),
                    1 => row.host.clone(),
                    3 => row.language.clone(),
                    _ => String::new(),
                };
                let number = match sort.column {
                    2 => row.pid.parse().unwrap_or(0),
                    4 => row.holds.len() as u64,
                    5 => row.waits.len() as u64,
                    6 => row.seen_ago_ms.unwrap_or(u64::MAX),
                    _ => 0,
                };
                (text, number)
            };
            order.sort_by_cached_key(key);
            if sort.descending {
                order.reverse();
            }
        }
        order
    }
}

struct ClientRows<'a> {
    rows: &'a [ClientRow],
    order: &'a [usize],
}

impl ClientRows<'_> {
    fn row(&self, at: usize) -> &ClientRow {
        &self.rows[self.order[at]]
    }

    fn told(&self, at: usize) -> String {
        let row = self.row(at);
        let mut lines = vec![format!("{} on {}, process {}", row.program, row.host, row.pid)];
        match row.process {
            Process::Gone => lines.push("the process is gone".into()),
            Process::Present { stopped: true, .. } => lines.push("the process is stopped".into()),
            Process::Present { .. } | Process::Unknown => {}
        }
        if row.apart {
            lines.push(APART.into());
        }
        for (key, held) in row.holds.iter().take(12) {
            let held = held.map(|ms| format!(" for {}", span(ms))).unwrap_or_default();
            lines.push(format!("holds {}{held}", sanitized(&key.lock)));
        }
        for (key, waited) in row.waits.iter().take(12) {
            lines.push(format!("waits for {}, {}", sanitized(&key.lock), span(*waited)));
        }
        lines.join("\n")
    }
}

impl Rows for ClientRows<'_> {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn key(&self, row: usize) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let row = self.row(row);
        (&row.connection, &row.id).hash(&mut hasher);
        hasher.finish()
    }

    fn name(&self, row: usize) -> String {
        self.told(row).replace('\n', ", ")
    }

    fn tint(&self, _: usize) -> Option<Color32> {
        None
    }

    fn is_heading(&self, _: usize) -> bool {
        false
    }

    fn menu(&self, _: usize, ui: &mut Ui) {
        ui.label("Double click shows the lock that it waits for, or holds.");
    }

    fn paint(&self, cell: &Cell<'_>) {
        let palette = cell.palette;
        let row = self.row(cell.row);
        match cell.column {
            0 => cell.body(&row.program, palette.strong),
            1 => cell.body(&row.host, palette.text),
            2 => {
                let (word, colour) = match row.process {
                    Process::Gone => (" gone", palette.orphan),
                    Process::Present { stopped: true, .. } => (" stopped", palette.orphan),
                    _ if row.apart => (" container", palette.weak),
                    _ => ("", palette.text),
                };
                cell.text(&format!("{}{word}", row.pid), FontId::monospace(theme::MONO - 0.5), colour);
            }
            3 => cell.body(&format!("{} {}", row.language, row.version), palette.weak),
            4 => {
                let held = |(key, held): &(model::RowKey, Option<u64>)| match held {
                    Some(ms) => format!("{} {}", sanitized(&key.lock), whole_span(*ms)),
                    None => sanitized(&key.lock),
                };
                let text: Vec<String> = row.holds.iter().take(8).map(held).collect();
                cell.mono(&text.join("  "), palette.text);
            }
            5 => {
                let waits = row.waits.iter().take(8);
                let text: Vec<String> = waits
                    .map(|(key, waited)| format!("{} {}", sanitized(&key.lock), whole_span(*waited)))
                    .collect();
                cell.mono(&text.join("  "), palette.text);
            }
            _ => {
                if let Some(seen) = row.seen_ago_ms {
                    cell.mono(&whole_span(seen), palette.weak);
                }
            }
        }
    }
}
