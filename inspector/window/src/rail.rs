//! The rail at the left: connections with their state, and views.

use eframe::egui::{
    self, Align, Button, Color32, Layout, Rect, RichText, ScrollArea, Sense, Stroke, Ui, pos2, vec2,
};

use super::act::Act;
use super::app::{App, Page};
use super::command::Command;
use super::marks;
use super::theme::Palette;
use super::top::{ATTENTION, DEADLOCKS, HELD_LONG, NO_EXPIRY, WAITED, thousands};
use model::text::{clock_time, sanitized, span};
use model::{ConnectionId, Environment, Phase, filter};

/// What is shown of one connection.
struct Entry {
    id: ConnectionId,
    url: String,
    environment: Environment,
    read_only: bool,
    phase: Phase,
    locks: usize,
    hint: String,
}

/// Shows it.
pub fn show(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        heading(ui, "CONNECTIONS", palette);
        let entries = entries(app);
        for entry in &entries {
            connection(app, ui, entry, palette, acts);
        }
        let idle = app
            .saved
            .connections
            .iter()
            .filter(|saved| !entries.iter().any(|entry| entry.id.as_str() == saved.name));
        for saved in idle {
            let text = RichText::new(sanitized(&saved.name)).color(palette.weak);
            let line = ui.add(Button::new(text).frame(false).min_size(vec2(ui.available_width(), 22.0)));
            if line.on_hover_text("Not connected. Click to connect").clicked() {
                acts.push(Act::Connect(saved.name.clone()));
            }
        }
        if app.replaying.is_none() && ui.add(Button::new(RichText::new("+  Connect…").size(12.5))).clicked()
        {
            acts.push(Act::EditConnection(None));
        }
        ui.add_space(12.0);
        heading(ui, "VIEWS", palette);
        let now = app.locks.filter_text().to_owned();
        for (text, filter, command) in [
            ("All locks", "", Command::View(1)),
            ("Need attention", ATTENTION, Command::View(2)),
            ("Deadlocks", DEADLOCKS, Command::View(3)),
            ("No expiry", NO_EXPIRY, Command::View(4)),
            ("Held long", HELD_LONG, Command::View(5)),
            ("Waited for", WAITED, Command::View(6)),
        ] {
            if line(ui, text, app.page == Page::Locks && now == filter).clicked() {
                acts.push(Act::Run(command));
            }
        }
        if line(ui, "Clients", app.page == Page::Clients).clicked() {
            acts.push(Act::Run(Command::Clients));
        }
        let keys = line(ui, "Idempotency keys", app.page == Page::Records);
        if keys.on_hover_text("Read when this is opened, and with R").clicked() {
            acts.push(Act::Run(Command::Records));
        }
        if !app.saved.filters.is_empty() {
            ui.add_space(12.0);
            heading(ui, "SAVED", palette);
            for saved in &app.saved.filters {
                let shown = line(ui, &sanitized(&saved.name), app.page == Page::Locks && now == saved.filter);
                let shown = shown.on_hover_text(sanitized(&saved.filter));
                shown.context_menu(|ui| {
                    if ui.button("Remove").clicked() {
                        acts.push(Act::RemoveView(saved.name.clone()));
                        ui.close();
                    }
                });
                if shown.clicked() {
                    acts.push(Act::SetFilter(saved.filter.clone()));
                }
            }
        }
    });
}

fn entries(app: &App) -> Vec<Entry> {
    let now_ms = app.now_ms();
    app.with_fleet(|fleet| {
        let entry = |store: &model::Store| {
            let connection = store.connection();
            let phase = store.phase(now_ms);
            let mut hint = sanitized(&connection.shown_url);
            if connection.read_only {
                hint += "\nread-only";
            }
            if let Some(ahead) = store.clock_ahead_ms().filter(|ahead| ahead.unsigned_abs() > 250) {
                let way = if ahead > 0 { "ahead of" } else { "behind" };
                hint += &format!("\nits clock is {} {way} ours", span(ahead.unsigned_abs()));
            }
            let cost = store.cost();
            if cost.every_ms > 0 {
                let reading = format!("read every {}, taking {:.1} ms", span(cost.every_ms), cost.reading_ms);
                hint += &format!("\n{reading}, {:.1} requests/s", cost.requests_per_sec);
            }
            if let Phase::Lost { why, .. } | Phase::Unfit { why, .. } = &phase {
                hint += &format!("\n{why}");
            }
            Entry {
                id: connection.id.clone(),
                url: sanitized(&connection.shown_url),
                environment: connection.environment,
                read_only: connection.read_only,
                locks: store.rows().len(),
                phase,
                hint,
            }
        };
        fleet.stores().iter().map(entry).collect()
    })
}

/// The colour of an environment; its word stands in the hint and in dialogs.
pub fn environment_colour(environment: Environment, palette: &Palette) -> Color32 {
    match environment {
        Environment::Development => palette.held,
        Environment::Staging => palette.expiring,
        Environment::Production => palette.orphan,
    }
}

fn connection(app: &App, ui: &mut Ui, entry: &Entry, palette: &Palette, acts: &mut Vec<Act>) {
    let (word, colour) = match &entry.phase {
        Phase::Connecting => ("connecting…".to_owned(), palette.weak),
        Phase::Live => (String::new(), palette.held),
        Phase::Unfit { word, .. } => (word.to_lowercase(), palette.orphan),
        Phase::Late { since_ms } => {
            (format!("late, last {}", clock_time(*since_ms, app.now_ms())), palette.expiring)
        }
        Phase::Lost { since_ms, retry_at_ms, .. } => {
            let last = since_ms.map(|at| format!("last seen {}", clock_time(at, app.now_ms())));
            let retry = retry_at_ms.map(|at| format!("retry in {}", span(at.saturating_sub(app.now_ms()))));
            let parts: Vec<String> = [last, retry].into_iter().flatten().collect();
            (if parts.is_empty() { "not reached".into() } else { parts.join(", ") }, palette.orphan)
        }
    };
    let height = if word.is_empty() { 24.0 } else { 38.0 };
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click());
    let painter = ui.painter_at(rect);
    if response.hovered() {
        painter.rect_filled(rect, 4.0, palette.hover);
    }
    let band = Rect::from_min_size(rect.min + vec2(0.0, 3.0), vec2(3.0, rect.height() - 6.0));
    painter.rect_filled(band, 1.5, environment_colour(entry.environment, palette));
    let dot = pos2(rect.left() + 13.0, rect.top() + 12.0);
    match entry.phase {
        Phase::Lost { .. } | Phase::Unfit { .. } => {
            marks::cross(&painter, dot, 3.6, Stroke::new(1.8, colour))
        }
        Phase::Live => drop(painter.circle_filled(dot, 3.8, colour)),
        _ => drop(painter.circle_stroke(dot, 3.6, Stroke::new(1.6, colour))),
    }
    let name = sanitized(entry.id.as_str());
    let body = egui::FontId::proportional(super::theme::BODY);
    let small = egui::FontId::proportional(super::theme::SMALL - 0.5);
    let locks = thousands(entry.locks);
    let count = painter.layout_no_wrap(locks, small.clone(), palette.weak);
    let read_only = if entry.read_only { "  (read-only)" } else { "" };
    let room = rect.width() - 34.0 - count.size().x;
    let title = super::table::one_line(&painter, &format!("{name}{read_only}"), body, palette.text, room);
    painter.galley(pos2(rect.left() + 22.0, dot.y - title.size().y / 2.0), title, palette.text);
    painter.galley(
        pos2(rect.right() - count.size().x - 4.0, dot.y - count.size().y / 2.0),
        count,
        palette.weak,
    );
    if !word.is_empty() {
        let galley = super::table::one_line(&painter, &word, small, palette.weak, rect.width() - 26.0);
        painter.galley(pos2(rect.left() + 22.0, rect.top() + 20.0), galley, palette.weak);
    }
    let said = format!("connection {name}, {}, {} locks {word}", entry.environment.word(), entry.locks);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &said));
    let response = response.on_hover_text(format!("{}\n{}", entry.environment.word(), entry.hint));
    let filter = filter::of_connection(&entry.id);
    if response.clicked() {
        let again = app.locks.filter_text() == filter;
        acts.push(Act::SetFilter(if again { String::new() } else { filter }));
    }
    if app.replaying.is_none() {
        response.context_menu(|ui| {
            for (text, act) in [
                ("Read again now", Act::Run(Command::Refresh)),
                ("Edit…", Act::EditConnection(Some(entry.id.as_str().to_owned()))),
                (
                    "Copy the URL without its secret",
                    Act::Copy { text: entry.url.clone(), what: "the URL".into() },
                ),
                ("Disconnect", Act::Disconnect(entry.id.clone())),
            ] {
                if ui.button(text).clicked() {
                    acts.push(act);
                    ui.close();
                }
            }
        });
    }
}

fn heading(ui: &mut Ui, text: &str, palette: &Palette) {
    ui.label(RichText::new(text).size(11.0).color(palette.weak));
}

fn line(ui: &mut Ui, text: &str, chosen: bool) -> egui::Response {
    let width = ui.available_width();
    ui.allocate_ui_with_layout(
        vec2(width, 24.0),
        Layout::left_to_right(Align::Center).with_main_justify(true).with_main_align(Align::Min),
        |ui| ui.add(Button::selectable(chosen, text)),
    )
    .inner
}
