//! The application: what is shown, what is selected, and the frame in which all of it is drawn.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eframe::egui::{self, CentralPanel, Frame, Margin, Panel, Ui};

use super::act::Act;
use super::args::Args;
use super::command::{self, Command};
use super::connecting::Secrets;
use super::details::{self, DetailsState};
use super::dialogs::Dialog;
use super::doing::waker;
use super::keyring::{Asking, Keyring, Platform};
use super::live::Live;
use super::locks::Locks;
use super::replaying::Replaying;
use super::settings::Settings;
use super::theme::{self, Palette};
use super::toasts::Toasts;
use super::wanted::Wanted;
use super::{clients, empty, fonts, key_bar, rail, records, replaying, top};
use host::files;
use model::saved::Saved;
use model::{Cost, Fleet, Store};

/// What the middle shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Page {
    #[default]
    Locks,
    Clients,
    Records,
}

/// A picture that stands still while the live one goes on.
#[derive(Debug)]
pub struct Frozen {
    pub fleet: Fleet,
    pub now_ms: u64,
}

/// The window.
#[derive(Debug)]
pub struct App {
    pub(super) args: Args,
    pub(super) settings: Settings,
    settings_path: Option<PathBuf>,
    pub(super) saved: Saved,
    saved_path: Option<PathBuf>,
    pub(super) live: Option<Live>,
    pub(super) frozen: Option<Box<Frozen>>,
    pub(super) replaying: Option<Replaying>,
    pub(super) page: Page,
    pub(super) locks: Locks,
    pub(super) clients: clients::Clients,
    pub(super) records: records::RecordsPage,
    pub(super) details: DetailsState,
    pub(super) dialog: Option<Dialog>,
    pub(super) toasts: Toasts,
    pub(super) focus_filter: bool,
    /// Connections that were made in this run and are not saved.
    pub(super) transient: Vec<model::saved::SavedConnection>,
    pub(super) secrets: Secrets,
    keyring: Arc<dyn Keyring>,
    pub(super) asking: Option<Asking>,
    /// A lock to select as soon as it is seen.
    pub(super) wanted: Option<Wanted>,
    #[cfg(unix)]
    pub(super) demo: Option<super::demo::Demo>,
    /// How long a frame takes, from the toolkit: where drawing is slow, bars move in larger steps.
    frame_secs: f32,
    drawn: (ThemeKey, f32),
}

type ThemeKey = (theme::ThemeChoice, bool);

impl App {
    /// Prepares the window; nothing is connected yet. Errors: what of the arguments cannot be used.
    pub fn new(settings: Settings, settings_path: Option<PathBuf>, args: Args) -> Result<Self, String> {
        let args = args.sorted();
        let folder = args.settings.clone();
        let saved_path = folder.map(|folder| folder.join("inspector.json")).or_else(files::saved_path);
        let mut toasts = Toasts::default();
        let saved = match saved_path.as_deref().map(files::load) {
            None => Saved::default(),
            Some(Ok(saved)) => saved,
            Some(Err(message)) => {
                toasts.failed(format!("{message}. Nothing of it is used, and it is left as it is."));
                Saved::default()
            }
        };
        let mut locks = Locks::new(&settings);
        if let Some(filter) = &args.filter {
            locks.set_filter(filter);
            locks.filter_error().map_or(Ok(()), |error| Err(format!("--filter: {error}")))?;
        }
        let mut app = Self {
            details: DetailsState::on(args.page.unwrap_or(settings.tab)),
            locks,
            settings,
            settings_path,
            saved,
            saved_path,
            live: None,
            frozen: None,
            replaying: None,
            page: Page::Locks,
            clients: clients::Clients::default(),
            records: records::RecordsPage::default(),
            dialog: None,
            toasts,
            focus_filter: false,
            transient: Vec::new(),
            secrets: Secrets::default(),
            keyring: Arc::new(Platform),
            asking: None,
            wanted: None,
            #[cfg(unix)]
            demo: None,
            frame_secs: 0.0,
            drawn: ((theme::ThemeChoice::System, false), 0.0),
            args,
        };
        if let Some(path) = app.args.replay.clone() {
            app.open_recording(&path)?;
        }
        Ok(app)
    }

    /// Keeps passwords elsewhere than in the platform's keyring. Call it before [`App::attach`].
    pub fn keep_secrets_in(&mut self, keyring: Arc<dyn Keyring>) {
        self.keyring = keyring;
    }

    /// Connects everything that the arguments and the saved connections name.
    pub fn attach(&mut self, ctx: &egui::Context) {
        fonts::install(ctx);
        self.asking = Some(Asking::new(Arc::clone(&self.keyring), waker(ctx)));
        let audit = match &self.args.settings {
            Some(folder) => Some(folder.join("audit.jsonl")),
            None => files::audit_path(),
        };
        match Live::start(waker(ctx), host::who_am_i(), audit) {
            Ok(live) => self.live = Some(live),
            Err(error) => self.toasts.failed(format!("no store can be read: {error}")),
        }
        self.connect_at_start();
    }

    /// Returns what is remembered.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Writes what is remembered.
    pub fn save_settings(&mut self) {
        self.settings.tab = self.details.tab;
        self.locks.remember(&mut self.settings);
        if let Some(path) = &self.settings_path {
            // A configuration folder that cannot be written is no reason to hold anybody up.
            let _ = self.settings.save(path);
        }
    }

    /// Writes connections, filters and rules.
    pub(super) fn save_saved(&mut self) {
        if let Some(path) = &self.saved_path
            && let Err(message) = files::save(path, &self.saved)
        {
            self.toasts.failed(message);
        }
    }

    /// Returns the present of what is shown: real, frozen, or that of a recording.
    pub(super) fn now_ms(&self) -> u64 {
        match (&self.replaying, &self.frozen, &self.live) {
            (Some(replaying), ..) => replaying.replay.at_ms(),
            (None, Some(frozen), _) => frozen.now_ms,
            (None, None, Some(live)) => live.clock.now_ms(),
            (None, None, None) => 0,
        }
    }

    /// Calls with the fleet that is shown.
    pub(super) fn with_fleet<T>(&self, then: impl FnOnce(&Fleet) -> T) -> T {
        match (&self.replaying, &self.frozen, &self.live) {
            (Some(replaying), ..) => then(replaying.replay.fleet()),
            (None, Some(frozen), _) => then(&frozen.fleet),
            (None, None, Some(live)) => then(&live.state().fleet),
            (None, None, None) => then(&Fleet::default()),
        }
    }

    /// Sets the filter, as if it were typed.
    pub fn set_filter(&mut self, text: &str) {
        self.locks.set_filter(text);
    }

    /// Returns how many locks are shown, and how many there are.
    pub fn shown(&self) -> (usize, usize) {
        self.locks.counts()
    }

    /// Returns what each connection costs its store.
    pub fn costs(&self) -> Vec<Cost> {
        self.with_fleet(|fleet| fleet.stores().iter().map(Store::cost).collect())
    }

    /// Takes what happened behind the window. Called before every frame, also while nothing is drawn.
    pub fn logic(&mut self, ctx: &egui::Context) {
        let (results, trouble, alerts, records) = match &self.live {
            None => Default::default(),
            Some(live) => {
                let mut state = live.state();
                (
                    std::mem::take(&mut state.results),
                    std::mem::take(&mut state.trouble),
                    std::mem::take(&mut state.alerts),
                    std::mem::take(&mut state.records),
                )
            }
        };
        for result in results {
            self.tell_break(&result);
        }
        records.into_iter().for_each(|read| self.records.take(read));
        for message in trouble {
            self.toasts.failed(message);
        }
        for alert in alerts {
            self.toasts.failed(format!("{}: {}", alert.rule, alert.sentence));
        }
        self.take_keyring_answers();
        if let Some(replaying) = &mut self.replaying {
            replaying.play(ctx);
        }
        if let Some(Dialog::Connections(dialog)) = &mut self.dialog {
            dialog.poll();
        }
    }

    /// Tells how long the last frame took to draw.
    pub fn took(&mut self, secs: Option<f32>) {
        self.frame_secs = secs.unwrap_or(0.0);
    }

    /// Draws the window.
    pub fn ui(&mut self, ui: &mut Ui) {
        self.dress(ui.ctx());
        let palette = Palette::current(ui);
        let mut acts = self.keys(ui.ctx());
        self.look_for_the_wanted();

        let bar = |side: i8, vertical: i8| {
            Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(side, vertical))
        };
        Panel::top("top").frame(bar(10, 6)).show(ui, |ui| top::show(self, ui, &palette, &mut acts));
        Panel::bottom("keys").frame(bar(6, 2)).show(ui, |ui| {
            acts.extend(key_bar::show(ui, &palette).map(Act::Run));
        });
        if self.replaying.is_some() {
            Panel::top("replay")
                .frame(bar(10, 4))
                .show(ui, |ui| replaying::show(self, ui, &palette, &mut acts));
        }
        if self.settings.rail_open {
            let shown = Panel::left("rail")
                .resizable(true)
                .default_size(self.settings.rail_width)
                .size_range(140.0..=420.0)
                .frame(bar(8, 8))
                .show(ui, |ui| rail::show(self, ui, &palette, &mut acts));
            self.settings.rail_width = shown.response.rect.width();
        }
        if self.settings.details_open && self.page != Page::Records && self.locks.selected().is_some() {
            self.show_details(ui, &palette, &mut acts);
        }
        CentralPanel::no_frame().frame(Frame::new().fill(palette.ground)).show(ui, |ui| {
            if empty::show(self, ui, &palette, &mut acts) {
                self.locks.stand_still();
                return;
            }
            match self.page {
                Page::Locks => self.show_locks(ui, &palette, &mut acts),
                Page::Clients => {
                    self.locks.stand_still();
                    self.show_clients(ui, &palette, &mut acts);
                }
                Page::Records => {
                    self.locks.stand_still();
                    self.show_records(ui, &palette, &mut acts);
                }
            }
        });
        self.show_dialog(ui.ctx(), &palette, &mut acts);
        self.toasts.show(ui.ctx(), &palette);
        for act in acts {
            self.act(ui.ctx(), act);
        }
        self.drop_files(ui.ctx());
        self.tick(ui.ctx());
    }

    /// Shows the details as high as they were dragged, and higher where the table leaves room.
    fn show_details(&mut self, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
        let room = ui.available_height();
        let highest = (room - 120.0).max(160.0);
        let free = if self.page == Page::Locks { room - self.locks.height() } else { 0.0 };
        let height = self.settings.details_height.max(free).clamp(140.0, highest);
        let shown = Panel::bottom("details")
            .resizable(false)
            .exact_size(height)
            .frame(Frame::new().fill(palette.panel).inner_margin(Margin::symmetric(10, 6)))
            .show(ui, |ui| details::show(self, ui, palette, acts));
        let rect = shown.response.rect;
        let edge = egui::Rect::from_center_size(rect.center_top(), egui::vec2(rect.width(), 8.0));
        let drag = ui.interact(edge, egui::Id::unique("height of the details"), egui::Sense::drag());
        drag.widget_info(|| {
            egui::WidgetInfo::labeled(egui::Role::Splitter, true, "height of the details".to_owned())
        });
        if drag.dragged() {
            self.settings.details_height = (height - drag.drag_delta().y).clamp(140.0, highest);
        }
        if drag.hovered() || drag.dragged() {
            ui.painter().hline(rect.x_range(), rect.top(), egui::Stroke::new(2.0, palette.accent));
        }
        drag.on_hover_cursor(egui::CursorIcon::ResizeVertical);
    }

    fn show_locks(&mut self, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
        let now_ms = self.now_ms();
        let kind = self.fleet_kind();
        // Taken out so that the fleet and the table can be used at once.
        let mut locks = std::mem::take(&mut self.locks);
        self.with_fleet(|fleet| locks.show(ui, fleet, now_ms, kind, palette, acts));
        self.locks = locks;
    }

    fn show_clients(&mut self, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
        let mut clients = std::mem::take(&mut self.clients);
        self.with_fleet(|fleet| clients.show(ui, fleet, palette, acts));
        self.clients = clients;
    }

    fn show_records(&mut self, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
        if self.replaying.is_some() {
            super::table::in_the_middle(ui, "A recording has no records of idempotent work.", palette);
            return;
        }
        // What was read is of now, also while the locks are paused.
        let now_ms = self.live.as_ref().map_or(0, |live| live.clock.now_ms());
        let mut records = std::mem::take(&mut self.records);
        self.with_fleet(|fleet| records.show(ui, fleet, now_ms, palette, acts));
        self.records = records;
    }

    /// Reads the records of idempotent work of all connections.
    pub(super) fn read_records(&mut self) {
        let Some(live) = self.live.as_ref().filter(|_| self.replaying.is_none()) else { return };
        let ids: Vec<_> =
            live.state().fleet.stores().iter().map(|store| store.connection().id.clone()).collect();
        live.read_records(&ids);
        self.records.expect(ids.len());
    }

    /// Sets colours and size when they were changed.
    fn dress(&mut self, ctx: &egui::Context) {
        let key = (self.settings.theme, self.settings.high_contrast);
        if self.drawn.0 != key || self.drawn.1 == 0.0 {
            theme::apply(ctx, key.0, key.1);
        }
        if self.drawn.1 != self.settings.scale {
            ctx.set_zoom_factor(self.settings.scale);
        }
        self.drawn = (key, self.settings.scale);
        let size = ctx.content_rect().size() * self.settings.scale;
        self.settings.window = [size.x, size.y];
    }

    fn keys(&mut self, ctx: &egui::Context) -> Vec<Act> {
        let typing = ctx.egui_wants_keyboard_input();
        // A dialog has keys of its own.
        if self.dialog.is_some() {
            return Vec::new();
        }
        let acts: Vec<Act> = command::pressed(ctx, typing).into_iter().map(Act::Run).collect();
        if !typing {
            self.locks.keys(ctx);
        }
        if typing && acts.contains(&Act::Run(Command::Back)) {
            ctx.memory_mut(|memory| memory.focused().map(|id| memory.surrender_focus(id)));
        }
        acts
    }

    /// Asks for the next frame while bars count down, as often as one can see it and drawing is cheap.
    fn tick(&self, ctx: &egui::Context) {
        if self.frozen.is_some() || self.replaying.is_some() || self.live.is_none() {
            return;
        }
        // Without anything that moves: only so that "as of" is about now.
        let step_ms = self.locks.moves_every_ms().unwrap_or(5_000);
        let focused = ctx.input(|input| input.viewport().focused.unwrap_or(true));
        // Where drawing is done by software, a frame costs some 30 ms: then less often, for at most a
        // twentieth of the time.
        let affordable = Duration::from_secs_f32((self.frame_secs * 20.0).clamp(0.1, 1.0));
        let wished = Duration::from_millis(step_ms.max(100));
        let step = if focused { wished.max(affordable) } else { wished.max(Duration::from_secs(1)) };
        ctx.request_repaint_after(step);
    }

    fn drop_files(&mut self, ctx: &egui::Context) {
        let dropped = ctx.input(|input| input.raw.dropped_files.first().map(|file| file.path().to_owned()));
        if let Some(path) = dropped
            && let Err(message) = self.open_recording(&path)
        {
            self.toasts.failed(message);
        }
    }
}
