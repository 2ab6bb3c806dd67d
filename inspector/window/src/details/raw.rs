//! What stands in the store, as far as it may be shown.

use eframe::egui::{FontId, Grid, RichText, ScrollArea, TextEdit, Ui};

use super::Subject;
use crate::act::Act;
use crate::theme;
use model::export::sanitized_json;
use model::text::sanitized;

pub(super) fn show(ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let Some(lock) = subject.fleet.lock(subject.key) else {
        ui.weak("It was not in the latest snapshot.");
        return;
    };
    let text = sanitized_json(lock, true).unwrap_or_else(|error| error.to_string());
    ui.horizontal(|ui| {
        ui.label("As it was read, times as of the snapshot; the owner token only as a digest.");
        if ui.button("Copy JSON").clicked() {
            acts.push(Act::Copy { text: text.clone(), what: "the record".into() });
        }
    });
    ScrollArea::both().auto_shrink(false).show(ui, |ui| {
        let holders = lock.holders.iter().flat_map(|holder| &holder.details);
        let details: Vec<_> = lock.details.iter().chain(holders).collect();
        if !details.is_empty() {
            Grid::new("details").num_columns(2).spacing([14.0, 3.0]).show(ui, |ui| {
                for detail in details {
                    ui.label(RichText::new(sanitized(&detail.name)).color(subject.palette.weak));
                    ui.label(RichText::new(sanitized(&detail.value)).font(FontId::monospace(theme::MONO)));
                    ui.end_row();
                }
            });
            ui.separator();
        }
        let mut shown = text.as_str();
        let shown = TextEdit::multiline(&mut shown)
            .font(FontId::monospace(theme::MONO - 0.5))
            .desired_width(f32::INFINITY)
            .frame(eframe::egui::Frame::NONE);
        ui.add(shown).accessible_name("Raw record");
    });
}
