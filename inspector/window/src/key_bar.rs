//! The line at the bottom: the keys one needs most, which are buttons too.

use eframe::egui::{self, FontId, RichText, Ui};

use super::command::{Command, Tab, key_text, of};
use super::theme::{self, Palette};

const SHOWN: [(Command, &str); 12] = [
    (Command::Help, "Help"),
    (Command::Filter, "Filter"),
    (Command::Pause, "Pause"),
    (Command::Show(Tab::Explain), "Explain"),
    (Command::Show(Tab::Timeline), "Timeline"),
    (Command::Show(Tab::Graph), "Graph"),
    (Command::CopyStep, "Copy"),
    (Command::Break, "Break"),
    (Command::NextFinding, "Next finding"),
    (Command::ToggleRail, "Rail"),
    (Command::ToggleDetails, "Details"),
    (Command::Palette, "All"),
];

/// Shows the bar; returns what was clicked.
pub fn show(ui: &mut Ui, palette: &Palette) -> Option<Command> {
    let mut clicked = None;
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.spacing_mut().icon_spacing = 5.0;
        ui.style_mut().visuals.button_frame = false;
        for (command, word) in SHOWN {
            let Some(key) = of(command).and_then(|entry| entry.key) else { continue };
            ui.add_space(4.0);
            let key = RichText::new(key_text(key))
                .font(FontId::monospace(theme::SMALL - 0.5))
                .color(palette.accent);
            let word = RichText::new(word).size(theme::SMALL).color(palette.weak);
            // What does not fit is still in the palette.
            if ui.available_width() < 96.0 {
                break;
            }
            if ui.add(egui::Button::new((key, word))).clicked() {
                clicked = Some(command);
            }
        }
    });
    clicked
}
