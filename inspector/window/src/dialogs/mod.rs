//! What stands over the window until it is answered.

pub mod alerts;
pub mod break_lease;
pub mod connection;
pub mod connection_test;
pub mod help;
pub mod palette;
pub mod path;
pub mod secret;

use eframe::egui::{self, Align, Id, Layout, Modal, RichText, TextEdit, Ui};

use super::act::Act;
use super::app::App;
use super::theme::Palette;
use alerts::AlertsDialog;
use break_lease::BreakDialog;
use connection::ConnectionDialog;
use palette::{Chosen, CommandPalette};
use path::PathDialog;
use secret::SecretDialog;

/// The dialog that is open.
#[derive(Debug)]
pub enum Dialog {
    Help,
    Palette(CommandPalette),
    Break(Box<BreakDialog>),
    Connections(Box<ConnectionDialog>),
    Secret(SecretDialog),
    Alerts(AlertsDialog),
    Path(PathDialog),
    SaveView { name: String },
}

/// What a dialog asks for when it was answered.
#[derive(Debug, Default)]
pub struct Answer {
    pub close: bool,
    pub acts: Vec<Act>,
}

impl App {
    pub(super) fn show_dialog(&mut self, ctx: &egui::Context, palette: &Palette, acts: &mut Vec<Act>) {
        let Some(mut dialog) = self.dialog.take() else { return };
        let close = match &mut dialog {
            Dialog::Help => help::show(ctx, palette),
            Dialog::Palette(list) => match list.show(ctx, palette) {
                Chosen::Nothing => false,
                Chosen::Close => true,
                Chosen::Run(command) => {
                    acts.push(Act::Run(command));
                    true
                }
            },
            Dialog::Break(dialog) => {
                let now_ms = self.now_ms();
                let answer = self.with_fleet(|fleet| dialog.show(ctx, fleet, now_ms, palette));
                acts.extend(answer.acts);
                answer.close
            }
            Dialog::Connections(dialog) => dialog.show(ctx, self, palette, acts),
            Dialog::Secret(dialog) => dialog.show(ctx, self, palette),
            Dialog::Alerts(dialog) => dialog.show(ctx, self, palette),
            Dialog::Path(dialog) => dialog.show(ctx, self, palette),
            Dialog::SaveView { name } => save_view(ctx, self, name),
        };
        // An action may have opened another one meanwhile.
        if !close && self.dialog.is_none() {
            self.dialog = Some(dialog);
        }
    }
}

/// A frame for dialogs: title, content, buttons at the lower right.
pub(super) fn modal<T>(
    ctx: &egui::Context,
    id: &str,
    width: f32,
    title: &str,
    content: impl FnOnce(&mut Ui) -> T,
) -> (bool, T) {
    let shown = Modal::new(Id::unique(id)).show(ctx, |ui| {
        ui.set_width(width.min(ctx.content_rect().width() - 40.0));
        ui.label(RichText::new(title).heading());
        ui.add_space(6.0);
        content(ui)
    });
    (shown.should_close(), shown.inner)
}

/// The buttons of a dialog, the last one at the right edge.
pub(super) fn buttons<T>(ui: &mut Ui, add: impl FnOnce(&mut Ui) -> T) -> T {
    ui.add_space(10.0);
    let width = ui.available_width();
    ui.allocate_ui_with_layout(egui::vec2(width, 28.0), Layout::right_to_left(Align::Center), add).inner
}

fn save_view(ctx: &egui::Context, app: &mut App, name: &mut String) -> bool {
    let filter = app.locks.filter_text().trim().to_owned();
    let (closed, save) = modal(ctx, "save view", 380.0, "Save the filter as a view", |ui| {
        ui.label(RichText::new(&filter).monospace());
        ui.add_space(4.0);
        let label = ui.label("Name");
        let field = ui.add(TextEdit::singleline(name).desired_width(f32::INFINITY)).labelled_by(label.id);
        let enter = field.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
        if ui.memory(|memory| memory.focused().is_none()) {
            field.request_focus();
        }
        buttons(ui, |ui| {
            let good = !name.trim().is_empty();
            let save = ui.add_enabled(good, egui::Button::new("Save")).clicked() || (enter && good);
            (save, ui.button("Cancel").clicked())
        })
    });
    if save.0 {
        let name = name.trim().to_owned();
        app.saved.filters.retain(|known| known.name != name);
        app.saved.filters.push(model::saved::SavedFilter { name, filter });
        app.save_saved();
    }
    closed || save.0 || save.1
}
