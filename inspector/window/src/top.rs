//! The bar at the top: what is filtered, whether it is live, and the numbers, each of which is a filter.

use eframe::egui::{
    self, Align, Button, Color32, Key, Layout, Response, RichText, Sense, TextEdit, Ui, vec2,
};

use super::act::Act;
use super::app::App;
use super::command::Command;
use super::marks;
use super::theme::{Palette, ThemeChoice};
use model::text::{clock_time, sanitized, short_span};
use model::{LockState, Phase};

/// Filters behind the numbers and the views of the rail.
pub const ATTENTION: &str = "state:stuck";
pub const DEADLOCKS: &str = "state:deadlock";
pub const NO_EXPIRY: &str = "state:no-expiry";
pub const HELD_LONG: &str = "held>10m";
pub const WAITED: &str = "waiters>0";

/// Shows both lines.
pub fn show(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    ui.horizontal(|ui| {
        wordmark(ui, palette);
        ui.add_space(8.0);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            if ui.button("?").on_hover_text("Help (F1)").accessible_name("Help").clicked() {
                acts.push(Act::Run(Command::Help));
            }
            menu(app, ui, acts);
            liveness(app, ui, palette, acts);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| filter(app, ui, palette, acts));
        });
    });
    ui.add_space(3.0);
    summary(app, ui, palette, acts);
}

fn wordmark(ui: &mut Ui, palette: &Palette) {
    let (rect, _) = ui.allocate_exact_size(vec2(18.0, 18.0), Sense::hover());
    let painter = ui.painter();
    let stroke = egui::Stroke::new(2.2, palette.accent);
    painter.circle_stroke(rect.center() - vec2(3.0, 0.0), 5.2, stroke);
    painter.circle_stroke(rect.center() + vec2(3.0, 0.0), 5.2, egui::Stroke::new(2.2, palette.held));
    ui.label(RichText::new("Polylatch").strong().size(15.5).color(palette.strong));
}

fn filter(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    let mut text = app.locks.filter_text().to_owned();
    let wrong = app.locks.filter_error().map(ToString::to_string);
    let room = (ui.available_width() - 60.0).clamp(120.0, 620.0);
    let mut field = TextEdit::singleline(&mut text)
        .hint_text("Filter:  name   state:stuck   holder:web-1   held>10m   -label:nightly      ( / )")
        .desired_width(room);
    if wrong.is_some() {
        field = field.text_color(palette.orphan);
    }
    let response = ui.add(field).accessible_name("Filter");
    if std::mem::take(&mut app.focus_filter) {
        response.request_focus();
    }
    if response.changed() {
        app.locks.set_filter(&text);
    }
    if response.has_focus() && ui.input(|input| input.key_pressed(Key::ArrowDown)) {
        response.surrender_focus();
    }
    if let Some(wrong) = wrong {
        response.show_tooltip_text(wrong);
    }
    if !text.is_empty() {
        if ui
            .small_button("×")
            .on_hover_text("Clear the filter (Esc)")
            .accessible_name("Clear filter")
            .clicked()
        {
            acts.push(Act::SetFilter(String::new()));
        }
        if ui.small_button("Save…").on_hover_text("Save the filter as a view (Ctrl+S)").clicked() {
            acts.push(Act::Run(Command::SaveView));
        }
    }
}

fn liveness(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    if app.replaying.is_some() {
        ui.label(RichText::new("REPLAY").strong().color(palette.accent));
        return;
    }
    let recording = app.live.as_ref().and_then(|live| {
        let state = live.state();
        let recording = state.recording.as_ref()?;
        Some((live.clock.now_ms().saturating_sub(recording.since_ms), recording.bytes))
    });
    let (text, colour) = match recording {
        Some((for_ms, bytes)) => {
            (format!("REC {} {} KiB", short_span(for_ms / 1_000 * 1_000), bytes / 1024), palette.orphan)
        }
        None => ("Record".into(), palette.weak),
    };
    let button = dotted(ui, &text, colour, recording.is_some());
    if button.on_hover_text("Write everything that is seen to a file (Ctrl+R)").clicked() {
        acts.push(Act::Run(Command::Record));
    }
    let paused = app.frozen.is_some();
    let now_ms = app.now_ms();
    let phases: Vec<Phase> =
        app.with_fleet(|fleet| fleet.stores().iter().map(|store| store.phase(now_ms)).collect());
    let (text, colour) = match word_of(&phases) {
        _ if paused => ("PAUSED".to_owned(), palette.expiring),
        None => ("LIVE".to_owned(), palette.held),
        Some(word) => (word, palette.orphan),
    };
    let hint = if paused { "Go on (Space)" } else { "Freeze the overview (Space)" };
    if dotted(ui, &text, colour, true).on_hover_text(hint).clicked() {
        acts.push(Act::Run(Command::Pause));
    }
}

/// What stands where LIVE stands when every store is read and works.
fn word_of(phases: &[Phase]) -> Option<String> {
    let live = phases.iter().filter(|phase| **phase == Phase::Live).count();
    match phases {
        _ if live == phases.len() => None,
        [Phase::Connecting] => Some("CONNECTING".into()),
        [Phase::Late { .. }] => Some("LATE".into()),
        [Phase::Lost { .. }] => Some("LOST".into()),
        [Phase::Unfit { word, .. }] => Some((*word).into()),
        several => Some(format!("{live} OF {} LIVE", several.len())),
    }
}

/// A button with a dot of a colour: the words say the same.
fn dotted(ui: &mut Ui, text: &str, colour: Color32, filled: bool) -> Response {
    let button = ui.add(Button::new(RichText::new(format!("    {text}")).size(12.5)));
    let centre = egui::pos2(button.rect.left() + 13.0, button.rect.center().y);
    if filled {
        ui.painter().circle_filled(centre, 4.0, colour);
    } else {
        ui.painter().circle_stroke(centre, 3.5, egui::Stroke::new(1.4, colour));
    }
    button
}

fn menu(app: &mut App, ui: &mut Ui, acts: &mut Vec<Act>) {
    ui.menu_button("Menu", |ui| {
        for (text, command) in [
            ("Connections…", Command::Connections),
            ("Open a recording…", Command::OpenRecording),
            ("Export the view…", Command::Export),
            ("Alert rules…", Command::Alerts),
            ("All commands…", Command::Palette),
        ] {
            if ui.button(text).clicked() {
                acts.push(Act::Run(command));
                ui.close();
            }
        }
        ui.separator();
        ui.horizontal(|ui| {
            for choice in ThemeChoice::ALL {
                ui.selectable_value(&mut app.settings.theme, choice, choice.word());
            }
        });
        ui.checkbox(&mut app.settings.high_contrast, "High contrast");
        if ui.checkbox(&mut app.settings.compact, "Compact rows").changed() {
            app.locks.set_compact(app.settings.compact);
        }
        ui.horizontal(|ui| {
            ui.label("Size");
            for (text, name, command) in [
                ("-", "Smaller", Command::Smaller),
                ("100 %", "Normal size", Command::NormalSize),
                ("+", "Larger", Command::Larger),
            ] {
                if ui.button(text).accessible_name(name).clicked() {
                    acts.push(Act::Run(command));
                }
            }
        });
        ui.menu_button("Columns", |ui| {
            for column in app.locks.columns_mut().iter_mut().filter(|column| !column.grows) {
                ui.checkbox(&mut column.shown, column.title).on_hover_text(column.hint);
            }
        });
        ui.separator();
        if ui.button("Quit").clicked() {
            acts.push(Act::Run(Command::Quit));
        }
    });
}

fn summary(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    let now_ms = app.now_ms();
    let (summary, (as_of, of_oldest), cost, lost) = app.with_fleet(|fleet| {
        let summary = fleet.summary(now_ms);
        let stores = fleet.stores().iter();
        let as_of = as_of(stores.clone().map(|store| {
            let id = store.connection().id.as_str();
            (id, seen_at(&store.phase(now_ms), store.sampled_at_ms(), now_ms))
        }));
        let cost: f64 = stores.clone().map(|store| store.cost().requests_per_sec).sum();
        let lost = stores.filter(|store| matches!(store.phase(now_ms), Phase::Lost { .. })).count();
        (summary, as_of, cost, lost)
    });
    let at_least = if lost > 0 { "at least " } else { "" };
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let now = app.locks.filter_text().to_owned();
        let mut number = |ui: &mut Ui, state: Option<LockState>, text: String, filter: &str| {
            let chosen = now == filter;
            let space = if state.is_some() { "     " } else { "" };
            let button =
                ui.add(Button::selectable(chosen, RichText::new(format!("{space}{text}")).size(12.5)));
            if let Some(state) = state {
                let centre = egui::pos2(button.rect.left() + 15.0, button.rect.center().y);
                marks::state(ui.painter(), centre, 11.0, state, palette);
            }
            if button.on_hover_text("Show only these").clicked() {
                acts.push(Act::SetFilter(if chosen { String::new() } else { filter.to_owned() }));
            }
        };
        let word = if summary.locks == 1 { "lock" } else { "locks" };
        number(ui, None, format!("{at_least}{} {word}", thousands(summary.locks)), "");
        if summary.attention > 0 {
            number(
                ui,
                Some(LockState::NoRenewal),
                format!("{} need attention", thousands(summary.attention)),
                ATTENTION,
            );
        }
        if summary.waiting > 0 {
            number(ui, Some(LockState::Contended), format!("{} waiting", thousands(summary.waiting)), WAITED);
        }
        if summary.no_expiry > 0 {
            number(
                ui,
                Some(LockState::NoExpiry),
                format!("{} no expiry", thousands(summary.no_expiry)),
                NO_EXPIRY,
            );
        }
        if summary.deadlocked > 0 {
            let text = format!("{} in a deadlock", thousands(summary.deadlocked));
            number(ui, Some(LockState::Deadlock), text, DEADLOCKS);
        }
        if summary.may_deadlock > 0 {
            let text = format!("{} in a possible deadlock", thousands(summary.may_deadlock));
            number(ui, Some(LockState::MayDeadlock), text, DEADLOCKS);
        }
        if summary.unknown > 0 {
            number(
                ui,
                Some(LockState::Unknown),
                format!("{} not known now", thousands(summary.unknown)),
                "state:unknown",
            );
        }
        let (matching, all) = app.locks.counts();
        if matching != all {
            ui.label(
                RichText::new(format!("{} of {} shown", thousands(matching), thousands(all)))
                    .color(palette.accent),
            );
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 16.0;
            if cost > 0.0 && app.replaying.is_none() {
                let text =
                    RichText::new(format!("inspector: {cost:.1} requests/s")).size(12.0).color(palette.weak);
                let most = thousands(host::pace::MOST_REQUESTS as usize);
                let hint = format!("What looking costs the stores; no store gets more than {most} a second");
                ui.label(text).on_hover_text(hint);
            }
            if let Some(as_of) = as_of {
                let text = format!("as of {} UTC", clock_time(as_of, now_ms));
                ui.label(RichText::new(text).size(12.0).color(palette.weak)).on_hover_text(of_oldest);
            }
        });
    });
}

/// When the oldest of the latest snapshots was taken, and when each was, oldest first: what is shown of all stores is
/// no newer than that.
fn as_of<'a>(seen: impl Iterator<Item = (&'a str, Option<u64>)>) -> (Option<u64>, String) {
    let mut seen: Vec<_> = seen.filter_map(|(id, at)| Some((at?, id))).collect();
    seen.sort_unstable();
    let line = |(at, id): &(u64, &str)| format!("{}  {} UTC", sanitized(id), clock_time(*at, *at));
    (seen.first().map(|(at, _)| *at), seen.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn seen_at(phase: &Phase, sampled_ms: Option<u64>, now_ms: u64) -> Option<u64> {
    match phase {
        Phase::Connecting => None,
        Phase::Late { since_ms } => Some(*since_ms),
        Phase::Lost { since_ms, .. } => *since_ms,
        Phase::Live | Phase::Unfit { .. } => Some(sampled_ms.unwrap_or(now_ms)),
    }
}

/// A number with its thousands apart: `9,842`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_reading_says_how_old_the_whole_is() {
        let seen = [("new", Some(9_000)), ("never", None), ("old", Some(1_000))];
        let (oldest, each) = as_of(seen.into_iter());
        assert_eq!(oldest, Some(1_000));
        assert!(each.starts_with("old  ") && each.contains("\nnew  ") && !each.contains("never"), "{each}");
    }

    #[test]
    fn live_is_only_what_is_read_and_works() {
        let lost = Phase::Lost { since_ms: None, failing_since_ms: 0, why: String::new(), retry_at_ms: None };
        let unfit = Phase::Unfit { word: "READ-ONLY", why: String::new() };
        assert_eq!(word_of(&[Phase::Live, Phase::Live]), None);
        assert_eq!(word_of(std::slice::from_ref(&unfit)).as_deref(), Some("READ-ONLY"));
        assert_eq!(word_of(&[Phase::Late { since_ms: 0 }]).as_deref(), Some("LATE"));
        assert_eq!(word_of(&[Phase::Live, lost, unfit]).as_deref(), Some("1 OF 3 LIVE"));
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (9_842, "9,842"), (1_234_567, "1,234,567")]
        {
            assert_eq!(thousands(number), text);
        }
    }
}
