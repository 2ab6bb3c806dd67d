//! What stands in the middle when there is no table: what is missing, and how to get it.

use eframe::egui::{Align, Button, FontId, Layout, RichText, Ui, vec2};

use super::act::Act;
use super::app::{App, Page};
use super::command::Command;
use super::theme::{self, Palette};
use model::Phase;
use model::text::{sanitized, span};

/// Shows it if there is nothing else to show; says whether it did.
pub fn show(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) -> bool {
    let now_ms = app.now_ms();
    let (stores, locks, trouble, reading, urls) = app.with_fleet(|fleet| {
        let stores = fleet.stores();
        let trouble: Vec<(String, String, Option<u64>)> = stores
            .iter()
            .filter_map(|store| match store.phase(now_ms) {
                Phase::Lost { why, retry_at_ms, .. } => {
                    let name = sanitized(store.connection().id.as_str());
                    Some((name, why, retry_at_ms.map(|at| at.saturating_sub(now_ms))))
                }
                _ => None,
            })
            .collect();
        let locks: usize = fleet.row_refs().count();
        let reading = stores.iter().any(|store| store.phase(now_ms) == Phase::Connecting);
        let urls: Vec<String> = stores.iter().map(|store| sanitized(&store.connection().shown_url)).collect();
        (stores.len(), locks, trouble, reading, urls)
    });
    if stores == 0 {
        no_connection(ui, palette, acts);
        return true;
    }
    if app.page != Page::Locks {
        return false;
    }
    if locks == 0 {
        if let Some((name, why, retry)) = trouble.first() {
            lost(ui, name, why, *retry, palette, acts);
        } else if reading {
            say(ui, palette, "Connecting…", &[&urls.join(", ")], |_| {});
        } else {
            no_locks(ui, &urls, palette, acts);
        }
        return true;
    }
    let (matching, _) = app.locks.counts();
    if matching == 0 && !app.locks.filter_text().is_empty() {
        // The lines are made when the table is drawn; without this it would never be again.
        let live = app.fleet_kind();
        let mut lines = std::mem::take(&mut app.locks);
        app.with_fleet(|fleet| lines.refresh(fleet, now_ms, live));
        app.locks = lines;
        if app.locks.counts().0 > 0 {
            return false;
        }
        let text = format!("0 of {} locks match", super::top::thousands(locks));
        let filter = app.locks.filter_text().to_owned();
        say(ui, palette, &text, &[&filter], |ui| {
            if ui.button("Clear the filter").clicked() {
                acts.push(Act::SetFilter(String::new()));
            }
        });
        return true;
    }
    false
}

fn no_connection(ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    let lines = [
        "Connect to where your programs keep their locks: a Redis server, an SQLite file, …",
        "Looking changes nothing in a store.",
    ];
    say(ui, palette, "Which locks do you want to see?", &lines, |ui| {
        if ui.add(Button::new("Add a connection").min_size(vec2(150.0, 30.0))).clicked() {
            acts.push(Act::EditConnection(None));
        }
        let default = ui.add(Button::new("Open the default store").min_size(vec2(150.0, 30.0)));
        if default.on_hover_text("Where programs and `polylatch` keep locks if no URL is given").clicked() {
            acts.push(Act::ConnectDefault);
        }
        if ui.add(Button::new("Open a recording").min_size(vec2(150.0, 30.0))).clicked() {
            acts.push(Act::Run(Command::OpenRecording));
        }
        let demo = ui.add_enabled(cfg!(unix), Button::new("Start the demo").min_size(vec2(150.0, 30.0)));
        if demo.on_hover_text("Programs that contend, on a throw-away store").clicked() {
            acts.push(Act::StartDemo);
        }
    });
}

fn no_locks(ui: &mut Ui, urls: &[String], palette: &Palette, acts: &mut Vec<Act>) {
    let where_from = format!("No lock is held or waited for in {}.", urls.join(", "));
    let url = urls.first().map(String::as_str).unwrap_or_default();
    let command = format!("polylatch run hello --url {} -- sleep 30", model::text::shell_word(url));
    let lines = [where_from.as_str(), "", "Make one, to see it here:", command.as_str()];
    say(ui, palette, "No locks", &lines, |ui| {
        if ui.button("Copy the command").clicked() {
            acts.push(Act::Copy { text: command.clone(), what: "the command".into() });
        }
        if ui.button("Edit the connection").clicked() {
            acts.push(Act::Run(Command::Connections));
        }
    });
}

fn lost(ui: &mut Ui, name: &str, why: &str, retry_ms: Option<u64>, palette: &Palette, acts: &mut Vec<Act>) {
    let retry = retry_ms.map(|ms| format!("It is tried again in {}.", span(ms))).unwrap_or_default();
    let lines = [why, retry.as_str(), "Is the server up, the address right, the password the present one?"];
    say(ui, palette, &format!("{name} cannot be read"), &lines, |ui| {
        if ui.button("Try again now").clicked() {
            acts.push(Act::Run(Command::Refresh));
        }
        if ui.button("Edit the connection").clicked() {
            acts.push(Act::EditConnection(Some(name.to_owned())));
        }
    });
}

fn say(ui: &mut Ui, palette: &Palette, title: &str, lines: &[&str], buttons: impl FnOnce(&mut Ui)) {
    ui.with_layout(Layout::top_down(Align::Center), |ui| {
        ui.add_space((ui.available_height() * 0.28).max(20.0));
        ui.label(RichText::new(title).size(20.0).color(palette.strong));
        ui.add_space(6.0);
        for line in lines {
            let text = RichText::new(*line).color(palette.weak);
            let command = line.starts_with("polylatch ");
            ui.label(if command {
                text.font(FontId::monospace(theme::MONO)).color(palette.text)
            } else {
                text
            });
        }
        ui.add_space(12.0);
        // Buttons side by side, in the middle: as wide as they were in the frame before.
        let id = ui.unique_id().with("buttons");
        let width: f32 = ui.data(|data| data.get_temp(id)).unwrap_or(320.0);
        ui.allocate_ui_with_layout(vec2(width, 34.0), Layout::left_to_right(Align::Center), |ui| {
            buttons(ui);
            let used = ui.min_rect().width();
            if used != width {
                ui.data_mut(|data| data.insert_temp(id, used));
                ui.ctx().request_discard("the buttons' width");
            }
        });
    });
}
