//! What happened to this lock, or to all of its store.

use eframe::egui::{FontId, RichText, ScrollArea, Ui};

use super::Subject;
use crate::act::Act;
use crate::theme;
use model::event::line as event_line;
use model::history::Logged;

/// How the page stands.
#[derive(Debug, Default)]
pub(super) struct EventsPage {
    all: bool,
    renewals: bool,
}

impl EventsPage {
    pub(super) fn show(&mut self, ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
        let store = subject.fleet.store(&subject.key.connection);
        let events: Vec<&Logged> = if self.all {
            store.map(|store| store.events().iter().collect()).unwrap_or_default()
        } else {
            subject.fleet.events_of(subject.key).collect()
        };
        let is_renewal =
            |logged: &&Logged| matches!(logged.event.kind, polylatch::inspect::EventKind::Renewed { .. });
        let events: Vec<&Logged> =
            events.into_iter().filter(|logged| self.renewals || !is_renewal(logged)).collect();
        let line = |logged: &Logged| {
            event_line(&logged.event, subject.store_now_ms, |id| subject.people.who(Some(id)))
        };
        ui.horizontal(|ui| {
            ui.checkbox(&mut self.all, "all locks of this connection");
            ui.checkbox(&mut self.renewals, "renewals too");
            if ui.button("Copy").clicked() {
                let text: Vec<String> = events.iter().map(|logged| line(logged)).collect();
                acts.push(Act::Copy { text: text.join("\n"), what: "the events".into() });
            }
            ui.weak("Newest first, as seen between two snapshots; times in UTC.");
        });
        if events.is_empty() {
            ui.weak("Nothing was seen to happen yet.");
        }
        let height = ui.text_style_height(&eframe::egui::TextStyle::Monospace);
        ScrollArea::vertical().auto_shrink(false).show_rows(ui, height, events.len(), |ui, rows| {
            for logged in events.iter().rev().skip(rows.start).take(rows.len()) {
                let text = RichText::new(line(logged)).font(FontId::monospace(theme::MONO - 0.5));
                ui.add(eframe::egui::Label::new(text).extend());
            }
        });
    }
}
