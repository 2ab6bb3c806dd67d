//! Ctrl+K: every command by name.

use eframe::egui::{self, Id, Key, Modal, RichText, ScrollArea, TextEdit};

use crate::command::{Command, ENTRIES, Entry, key_text};
use crate::theme::Palette;

/// What is typed, and which line is chosen.
#[derive(Debug, Default)]
pub struct CommandPalette {
    text: String,
    chosen: usize,
}

/// What became of a dialog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    Nothing,
    Close,
    Run(Command),
}

impl CommandPalette {
    /// Shows it.
    pub fn show(&mut self, ctx: &egui::Context, palette: &Palette) -> Chosen {
        let mut chosen = Chosen::Nothing;
        let (up, down, enter) = ctx.input_mut(|input| {
            let mut key = |key| input.consume_key(egui::Modifiers::NONE, key);
            (key(Key::ArrowUp), key(Key::ArrowDown), key(Key::Enter))
        });
        let modal = Modal::new(Id::unique("command palette")).show(ctx, |ui| {
            ui.set_width(460.0);
            let field =
                TextEdit::singleline(&mut self.text).hint_text("Type a command").desired_width(f32::INFINITY);
            let field = ui.add(field).accessible_name("Command");
            field.request_focus();
            if field.changed() {
                self.chosen = 0;
            }
            let found: Vec<&Entry> = ENTRIES.iter().filter(|entry| matches(entry.name, &self.text)).collect();
            if down {
                self.chosen += 1;
            }
            if up {
                self.chosen = self.chosen.saturating_sub(1);
            }
            self.chosen = self.chosen.min(found.len().saturating_sub(1));
            ui.add_space(4.0);
            ScrollArea::vertical().max_height(320.0).auto_shrink([false, true]).show(ui, |ui| {
                ui.spacing_mut().item_spacing.y = 1.0;
                for (at, entry) in found.iter().enumerate() {
                    let key = entry.key.map(key_text).unwrap_or_default();
                    let key = RichText::new(key).monospace().color(palette.weak);
                    let button = egui::Button::selectable(at == self.chosen, entry.name)
                        .right_text(key)
                        .min_size(egui::vec2(ui.available_width(), 24.0));
                    let line = ui.add(button);
                    if at == self.chosen && (up || down) {
                        line.scroll_to_me(None);
                    }
                    if line.clicked() || (enter && at == self.chosen) {
                        chosen = Chosen::Run(entry.command);
                    }
                }
                if found.is_empty() {
                    ui.weak("No command has these words.");
                }
            });
        });
        if chosen == Chosen::Nothing && modal.should_close() { Chosen::Close } else { chosen }
    }
}

/// Every typed word begins a word of the name, or stands in it.
fn matches(name: &str, typed: &str) -> bool {
    let name = name.to_lowercase();
    typed.to_lowercase().split_whitespace().all(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_match_in_any_order() {
        assert!(matches("Export the view…", "view exp"));
        assert!(matches("Help", ""));
        assert!(!matches("Help", "helpless"));
    }
}
