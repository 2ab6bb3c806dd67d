//! F1: keys, the filter language, and what the marks mean.

use eframe::egui::{self, Grid, Id, Modal, RichText, ScrollArea, Sense, Ui, vec2};

use crate::command::{ENTRIES, key_text};
use crate::marks;
use crate::theme::Palette;
use model::{LockState, filter};

/// The states with what they mean, worst first.
pub const STATES: [(LockState, &str); 13] = [
    (LockState::Deadlock, "clients wait for each other in a ring"),
    (LockState::MayDeadlock, "clients may wait for each other in a ring; their tasks are not known"),
    (LockState::Stopped, "the holder's process is stopped and cannot go on"),
    (LockState::NoExpiry, "nothing ends it by itself"),
    (LockState::Gone, "the holder's process is gone; the lease still runs"),
    (LockState::NoRenewal, "renewals have stopped; the lease will end"),
    (LockState::Endangered, "a renewal is late"),
    (LockState::Foreign, "another program's lock"),
    (LockState::Contended, "held, and waited for"),
    (LockState::Held, "held and renewed as it should be"),
    (LockState::LockDelay, "free, but the store refuses new holders for a while"),
    (LockState::Free, "not held"),
    (LockState::Unknown, "the store could not be read lately"),
];

/// How parts of a filter are put together.
const FORMS: [(&str, &str); 4] = [
    ("cart", "any text of the row has this in it"),
    ("a b", "both"),
    ("-a", "not"),
    ("state:free,held", "either"),
];

/// Shows it. Returns whether it is to be closed.
pub fn show(ctx: &egui::Context, palette: &Palette) -> bool {
    let modal = Modal::new(Id::unique("help")).show(ctx, |ui| {
        let screen = ctx.content_rect().size();
        ui.set_width((screen.x - 120.0).clamp(420.0, 900.0));
        ui.horizontal(|ui| {
            ui.heading("Help");
            ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| ui.button("Close").clicked()).inner
        });
        ui.separator();
        ScrollArea::vertical().max_height(screen.y - 160.0).auto_shrink([false, true]).show(ui, |ui| {
            ui.columns(2, |columns| {
                let [left, right] = columns else { return };
                section(left, "Keys");
                Grid::new("keys").num_columns(2).spacing([14.0, 3.0]).show(left, |ui| {
                    for entry in ENTRIES {
                        let Some(key) = entry.key else { continue };
                        ui.label(RichText::new(key_text(key)).monospace().color(palette.accent));
                        ui.label(entry.name);
                        ui.end_row();
                    }
                });
                section(right, "Marks");
                Grid::new("marks").num_columns(3).spacing([10.0, 4.0]).show(right, |ui| {
                    for (state, meaning) in STATES {
                        let (rect, _) = ui.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
                        marks::state(ui.painter(), rect.center(), 13.0, state, palette);
                        ui.label(state.word());
                        ui.label(RichText::new(meaning).color(palette.weak));
                        ui.end_row();
                    }
                });
                right.add_space(10.0);
                section(right, "Filter");
                Grid::new("filters").num_columns(2).spacing([14.0, 3.0]).show(right, |ui| {
                    let fields = filter::FIELDS.iter().map(|(word, meaning)| (format!("{word}:"), *meaning));
                    let numbers = filter::NUMBERS.iter().map(|(word, meaning)| (format!("{word}>"), *meaning));
                    for (text, meaning) in FORMS.iter().map(|(text, meaning)| ((*text).to_owned(), *meaning)).chain(fields).chain(numbers) {
                        ui.label(RichText::new(text).monospace().color(palette.accent));
                        ui.label(meaning);
                        ui.end_row();
                    }
                });
                right.add_space(10.0);
                section(right, "Good to know");
                for line in [
                    "A lease bar counts down between two snapshots; what is not known is hatched.",
                    "Breaking a lease frees the lock at once. The old holder learns of it soon, not at once: what \
                     the lock protects must check fencing tokens.",
                    "Nothing is written to a store by looking at it.",
                ] {
                    right.label(line);
                }
            });
        });
    });
    modal.should_close()
}

fn section(ui: &mut Ui, title: &str) {
    ui.label(RichText::new(title).strong().size(15.0));
    ui.add_space(2.0);
}
