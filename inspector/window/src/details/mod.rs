//! The lower part: everything about the selected lock, on pages.

mod events;
mod explain;
mod graph;
mod raw;
pub mod renewals;
mod time_axis;
mod timeline;
mod votes;

use eframe::egui::{Align, Button, Key, Layout, RichText, Sense, Ui, vec2};

use self::renewals::Renewals;
use self::time_axis::TimeView;
use self::timeline::Timeline;
use super::act::Act;
use super::app::App;
use super::command::{Command, Tab};
use super::marks;
use super::people::People;
use super::theme::Palette;
use model::Beat;
use model::history::{Gap, LockHistory};
use model::text::sanitized;
use model::{Fleet, RowKey};

/// How the pages stand between frames.
#[derive(Debug, Default)]
pub struct DetailsState {
    pub tab: Tab,
    time: TimeView,
    graph: graph::GraphPage,
    events: events::EventsPage,
}

impl DetailsState {
    /// Starts on a page.
    pub fn on(tab: Tab) -> Self {
        Self { tab, ..Self::default() }
    }
}

/// What a page is drawn from.
pub(super) struct Subject<'a> {
    pub fleet: &'a Fleet,
    pub key: &'a RowKey,
    pub now_ms: u64,
    /// The present on the store's clock.
    pub store_now_ms: u64,
    /// Nothing may be changed: a recording, or a read-only connection.
    pub read_only: Option<&'static str>,
    pub people: People<'a>,
    pub palette: &'a Palette,
}

/// Shows the details of the selected lock.
pub fn show(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    let Some(key) = app.locks.selected().cloned() else { return };
    // A page with little on it must not make the part smaller than it was dragged to.
    ui.expand_to_include_rect(ui.max_rect());
    let now_ms = app.now_ms();
    let replaying = app.replaying.is_some();
    let mut state = std::mem::take(&mut app.details);
    let free = !ui.ctx().egui_wants_keyboard_input() && app.dialog.is_none();
    if free && ui.input(|input| input.key_pressed(Key::L)) {
        state.time.end_ms = None;
    }
    app.with_fleet(|fleet| {
        let store = fleet.store(&key.connection);
        let read_only = match store {
            _ if replaying => Some("This is a recording."),
            Some(store) if store.connection().read_only => Some("This connection is read-only."),
            _ => None,
        };
        let snapshot = store.and_then(|store| store.snapshot());
        let subject = Subject {
            fleet,
            key: &key,
            now_ms,
            store_now_ms: store.map_or(now_ms, |store| store.store_now_ms(now_ms)),
            read_only,
            people: People::of(snapshot.map(|snapshot| &**snapshot)),
            palette,
        };
        header(ui, &mut state, &subject, acts);
        page(ui, &mut state, &subject, free, acts);
    });
    app.details = state;
}

fn header(ui: &mut Ui, state: &mut DetailsState, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let palette = subject.palette;
    ui.horizontal(|ui| {
        let row = subject.fleet.find(subject.key).map(|place| subject.fleet.at(place));
        let (rect, _) = ui.allocate_exact_size(vec2(16.0, 20.0), Sense::hover());
        if let Some(row) = row {
            let shown = subject.fleet.state(row, subject.now_ms);
            marks::state(ui.painter(), rect.center(), 14.0, shown, palette);
        }
        let name = sanitized(&subject.key.lock);
        let room = (ui.available_width() - 480.0).max(120.0);
        let galley = super::table::one_line(
            ui.painter(),
            &name,
            eframe::egui::FontId::monospace(15.0),
            palette.strong,
            room,
        );
        let title = ui.label(galley);
        title.on_hover_text(format!("{name}\non {}", sanitized(subject.key.connection.as_str())));
        if let Some(row) = row {
            let gone = row.gone_at_ms.is_some();
            let word = if gone { "gone" } else { subject.fleet.state(row, subject.now_ms).word() };
            ui.label(RichText::new(word).color(palette.weak));
        } else {
            ui.label(RichText::new("free, no waiters").color(palette.weak));
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let close =
                ui.small_button("×").on_hover_text("Hide the details (D)").accessible_name("Hide details");
            if close.clicked() {
                acts.push(Act::Run(Command::ToggleDetails));
            }
            for tab in Tab::ALL.into_iter().rev() {
                if ui.add(Button::selectable(state.tab == tab, tab.word())).clicked() {
                    state.tab = tab;
                }
            }
        });
    });
    ui.separator();
}

fn page(ui: &mut Ui, state: &mut DetailsState, subject: &Subject<'_>, free: bool, acts: &mut Vec<Act>) {
    let history = subject.fleet.history(subject.key);
    match state.tab {
        Tab::Explain => explain::show(ui, subject, acts),
        Tab::Timeline => match history {
            None => timeline::nothing_yet(ui, subject.palette),
            Some(history) => {
                let gaps = gaps(subject, history);
                let who = |id: Option<&polylatch::ClientId>| subject.people.who(id);
                let timeline = Timeline { history, gaps: &gaps, now_ms: subject.store_now_ms, who: &who };
                timeline.show(ui, &mut state.time, subject.palette);
            }
        },
        Tab::Renewals => match history {
            None => timeline::nothing_yet(ui, subject.palette),
            Some(history) => {
                let row = subject.fleet.find(subject.key).map(|place| subject.fleet.at(place));
                let held = row.filter(|row| row.holders > 0);
                let lock = subject.fleet.lock(subject.key);
                let beat = lock.and_then(|lock| lock.holders.first()).and_then(Beat::of);
                let store = subject.fleet.store(&subject.key.connection);
                // A countdown of what is not read would be invented.
                let fresh = store.is_some_and(|store| store.is_fresh(subject.now_ms));
                if !fresh || (held.is_some() && beat.is_none()) {
                    ui.label(match fresh {
                        true => "This store does not report renewals: whether they go on is not known.",
                        false => "Not known: the store is not being read.",
                    });
                    return;
                }
                let gaps = gaps(subject, history);
                let page = Renewals {
                    history,
                    gaps: &gaps,
                    now_ms: subject.store_now_ms,
                    lease_ms: held.and_then(|row| row.lease_ms),
                    remaining_ms: held.and_then(|row| row.left_now_ms(subject.now_ms)),
                    every_ms: beat.map(|beat| beat.every_ms),
                    renewals: held.and_then(|row| row.renewals),
                    since_ms: held.and_then(|row| row.since_renewal_now_ms(subject.now_ms)),
                    missed: held.map_or(0, |row| row.missed),
                };
                page.show(ui, &mut state.time, subject.palette);
            }
        },
        Tab::Graph => state.graph.show(ui, subject, free, acts),
        Tab::Raw => raw::show(ui, subject, acts),
        Tab::Events => state.events.show(ui, subject, acts),
    }
}

/// The times in which a lock was not observed, on the store's clock.
fn gaps(subject: &Subject<'_>, history: &LockHistory) -> Vec<Gap> {
    let before = history.observed_from_ms.map(|to_ms| Gap { from_ms: 0, to_ms });
    let store = subject.fleet.store(&subject.key.connection);
    let while_read = store.into_iter().flat_map(|store| store.gaps().iter().copied());
    before.into_iter().chain(while_read).collect()
}
