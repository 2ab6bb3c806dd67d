//! Asking for a connection's password. It is kept in memory, or in the keyring, never in a file of ours.

use eframe::egui::{self, RichText, TextEdit};

use super::{buttons, modal};
use crate::app::App;
use crate::theme::Palette;
use model::saved::{SavedConnection, SecretSource};
use model::text::sanitized;

/// What it is asked for, and what was typed.
pub struct SecretDialog {
    connection: SavedConnection,
    /// Why it is asked for, if that needs a word.
    note: String,
    typed: String,
}

impl std::fmt::Debug for SecretDialog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretDialog").field("connection", &self.connection.name).finish_non_exhaustive()
    }
}

impl SecretDialog {
    pub fn new(connection: SavedConnection, note: String) -> Self {
        Self { connection, note, typed: String::new() }
    }

    /// Shows it; returns whether it is over.
    pub fn show(&mut self, ctx: &egui::Context, app: &mut App, palette: &Palette) -> bool {
        let title = format!("Password for {}", sanitized(&self.connection.name));
        let (closed, (connect, cancel)) = modal(ctx, "secret", 420.0, &title, |ui| {
            ui.label(RichText::new(sanitized(&self.connection.url)).color(palette.weak));
            if !self.note.is_empty() {
                ui.label(&self.note);
            }
            let label = ui.label(match self.connection.secret {
                SecretSource::Keyring => "Password (it is kept in the keyring)",
                _ => "Password (it is not kept)",
            });
            let field = TextEdit::singleline(&mut self.typed).password(true).desired_width(f32::INFINITY);
            let field = ui.add(field).labelled_by(label.id);
            let enter = field.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
            if ui.memory(|memory| memory.focused().is_none()) && !enter {
                field.request_focus();
            }
            buttons(ui, |ui| (ui.button("Connect").clicked() || enter, ui.button("Cancel").clicked()))
        });
        if connect {
            app.connect_with_typed(&self.connection, &self.typed);
        }
        closed || connect || cancel
    }
}
