//! Asking for a file: to open a recording, to write one, to export.

use std::path::{Path, PathBuf};

use eframe::egui::{self, RichText, TextEdit};

use super::{buttons, modal};
use crate::app::App;
use crate::theme::Palette;
use model::text::sanitized;

/// What the file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Open,
    Record,
    Json,
    Csv,
}

/// What was typed, and what was wrong with it.
#[derive(Debug)]
pub struct PathDialog {
    purpose: Purpose,
    typed: String,
    wrong: Option<String>,
}

impl PathDialog {
    /// Prepares it; a new file gets a name in the home folder.
    pub fn new(purpose: Purpose, now_ms: u64) -> Self {
        let typed = match purpose {
            Purpose::Open => String::new(),
            Purpose::Record => fresh("polylatch", now_ms, "polylatch"),
            Purpose::Json => fresh("locks", now_ms, "json"),
            Purpose::Csv => fresh("locks", now_ms, "csv"),
        };
        Self { purpose, typed, wrong: None }
    }

    /// Shows it; returns whether it is over.
    pub fn show(&mut self, ctx: &egui::Context, app: &mut App, palette: &Palette) -> bool {
        let (title, button) = match self.purpose {
            Purpose::Open => ("Open a recording", "Open"),
            Purpose::Record => ("Record what is seen", "Record"),
            Purpose::Json | Purpose::Csv => ("Export the view", "Export"),
        };
        let (closed, (go, cancel)) = modal(ctx, "path", 560.0, title, |ui| {
            match self.purpose {
                Purpose::Open => drop(ui.weak("Or drop the file onto the window.")),
                Purpose::Record => {
                    drop(ui.weak("Everything that is read goes into it, line by line. No secret does."))
                }
                Purpose::Json | Purpose::Csv => {
                    let (rows, _) = app.locks.counts();
                    ui.label(format!("{rows} locks, as they are filtered and ordered now"));
                    ui.horizontal(|ui| {
                        for (purpose, word, end) in
                            [(Purpose::Json, "JSON", "json"), (Purpose::Csv, "CSV", "csv")]
                        {
                            if ui.radio(self.purpose == purpose, word).clicked() {
                                self.purpose = purpose;
                                let path = Path::new(&self.typed).with_extension(end);
                                self.typed = path.to_string_lossy().into_owned();
                            }
                        }
                    });
                }
            }
            let label = ui.label("File");
            let field = ui
                .add(TextEdit::singleline(&mut self.typed).desired_width(f32::INFINITY))
                .labelled_by(label.id);
            let mut go = field.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
            if ui.memory(|memory| memory.focused().is_none()) && !go {
                field.request_focus();
            }
            if self.purpose == Purpose::Open {
                for path in app.settings().recordings.clone() {
                    if ui.link(sanitized(&path.to_string_lossy())).clicked() {
                        self.typed = path.to_string_lossy().into_owned();
                        go = true;
                    }
                }
            }
            if let Some(wrong) = &self.wrong {
                ui.label(RichText::new(wrong).color(palette.orphan));
            }
            buttons(ui, |ui| {
                let good = !self.typed.trim().is_empty();
                let clicked = ui.add_enabled(good, egui::Button::new(button)).clicked();
                ((clicked || go) && good, ui.button("Cancel").clicked())
            })
        });
        if go {
            let path = PathBuf::from(self.typed.trim());
            match self.answer(app, &path) {
                Ok(()) => return true,
                Err(message) => self.wrong = Some(sanitized(&message)),
            }
        }
        closed || cancel
    }

    fn answer(&self, app: &mut App, path: &Path) -> Result<(), String> {
        match self.purpose {
            Purpose::Open => app.open_recording(path),
            Purpose::Record => app.start_recording(path),
            Purpose::Json => app.export(path, model::export::json),
            Purpose::Csv => app.export(path, model::export::csv),
        }
    }
}

/// A path in the home folder that names the moment.
fn fresh(name: &str, now_ms: u64, end: &str) -> String {
    // A time of another day comes with its date.
    let time = model::text::clock_time(now_ms, 0).replace([' ', ':'], "-");
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE")).map(PathBuf::from);
    let file = format!("{name}-{time}.{end}");
    home.unwrap_or_default().join(file).to_string_lossy().into_owned()
}
