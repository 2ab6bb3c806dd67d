//! Carrying out what drawing asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eframe::egui::{self, ViewportCommand};

use polylatch::inspect::BreakOutcome;

use super::act::Act;
use super::app::{App, Frozen, Page};
use super::command::Command;
use super::dialogs::Dialog;
use super::dialogs::alerts::AlertsDialog;
use super::dialogs::break_lease::BreakDialog;
use super::dialogs::connection::ConnectionDialog;
use super::dialogs::palette::CommandPalette;
use super::dialogs::path::{PathDialog, Purpose};
use super::replaying::{self, Replaying};
use super::theme::ThemeChoice;
use super::top::{ATTENTION, DEADLOCKS, HELD_LONG, NO_EXPIRY, WAITED};
use host::files;
use model::fleet::RowRef;
use model::history::Limits;
use model::link::Link;
use model::replay::Replay;
use model::text::{sanitized, span};
use model::view::Group;
use model::{Alarms, AlertRule, BreakResult, Fleet, copy, export};

impl App {
    /// Carries out one wish.
    pub(super) fn act(&mut self, ctx: &egui::Context, act: Act) {
        match act {
            Act::Run(command) => self.run(ctx, command),
            Act::Select(key) => self.locks.select(Some(key)),
            Act::Open(key) => {
                self.page = Page::Locks;
                self.locks.select(Some(key));
                self.settings.details_open = true;
            }
            Act::SetFilter(filter) => {
                self.page = Page::Locks;
                self.locks.set_filter(&filter);
            }
            Act::Copy { text, what } => {
                ctx.copy_text(text);
                self.toasts.done(format!("Copied {what}."));
            }
            Act::AskBreak(key, token) => {
                self.locks.select(Some(key.clone()));
                match self.may_not_break(&key) {
                    Some(why) => self.toasts.failed(why),
                    None => self.dialog = Some(Dialog::Break(Box::new(BreakDialog::new(key, token)))),
                }
            }
            Act::Break(order) => {
                if let Some(live) = &self.live {
                    live.break_lease(order);
                }
            }
            Act::Connect(name) => {
                if let Some(saved) = self.saved.connections.iter().find(|saved| saved.name == name).cloned() {
                    self.connect(&saved);
                }
            }
            Act::Disconnect(id) => {
                if let Some(live) = &self.live {
                    live.forget(&id);
                }
            }
            Act::EditConnection(name) => {
                let all = self.saved.connections.iter().chain(&self.transient);
                let known = name.and_then(|name| all.clone().find(|saved| saved.name == name));
                self.dialog = Some(Dialog::Connections(Box::new(ConnectionDialog::new(known))));
            }
            Act::ConnectDefault => self.connect_default(),
            Act::StartDemo => self.start_demo(),
            Act::CloseRecording => self.replaying = None,
            Act::RemoveView(name) => {
                self.saved.filters.retain(|known| known.name != name);
                self.save_saved();
            }
        }
    }

    fn run(&mut self, ctx: &egui::Context, command: Command) {
        let now_ms = self.now_ms();
        match command {
            Command::Help => self.dialog = Some(Dialog::Help),
            Command::Palette => self.dialog = Some(Dialog::Palette(CommandPalette::default())),
            Command::Filter => {
                self.page = Page::Locks;
                self.focus_filter = true;
            }
            Command::Back => self.back(),
            Command::Pause => self.pause(),
            Command::Refresh => {
                if let Some(live) = &self.live {
                    live.refresh();
                }
                if self.page == Page::Records {
                    self.read_records();
                }
            }
            Command::Open => self.settings.details_open = true,
            Command::Show(tab) => {
                self.details.tab = tab;
                self.settings.details_open = true;
            }
            Command::CopyRow => {
                self.copy_selected(ctx, "the row", |fleet, place| export::markdown(fleet, place, now_ms))
            }
            // The step that is shown first; where there is none, the command that explains the lock.
            Command::CopyStep => self.copy_selected(ctx, "the command", |fleet, place| {
                copy::that_helps(fleet, &fleet.at(place).key).unwrap_or_default()
            }),
            Command::CopyLink => {
                // The present is another one when the link is opened; a recording has its moments.
                let at_ms = self.replaying.is_some().then_some(now_ms);
                self.copy_selected(ctx, "a link", |fleet, place| {
                    let key = &fleet.at(place).key;
                    let (connection, lock) = (key.connection.clone(), Some(key.lock.to_string()));
                    Link { connection, lock, at_ms }.to_string()
                });
            }
            Command::Export => self.ask_path(Purpose::Json),
            Command::Record => self.toggle_recording(),
            Command::OpenRecording => self.ask_path(Purpose::Open),
            Command::Break => self.ask_break(ctx),
            Command::Follow => {
                self.locks.follow = !self.locks.follow;
                let word = if self.locks.follow { "stays visible" } else { "may scroll away" };
                self.toasts.done(format!("The selected lock {word}."));
            }
            Command::PreviousFinding => self.locks.go_to_finding(-1),
            Command::NextFinding => self.locks.go_to_finding(1),
            Command::ToggleRail => self.settings.rail_open = !self.settings.rail_open,
            Command::ToggleDetails => self.settings.details_open = !self.settings.details_open,
            Command::View(number) => {
                let filter = match number {
                    2 => ATTENTION,
                    3 => DEADLOCKS,
                    4 => NO_EXPIRY,
                    5 => HELD_LONG,
                    6 => WAITED,
                    _ => "",
                };
                self.act(ctx, Act::SetFilter(filter.to_owned()));
            }
            Command::Clients => self.page = Page::Clients,
            Command::Records => {
                self.page = Page::Records;
                self.read_records();
            }
            Command::GroupByPrefix => {
                let group = if self.locks.group() == Group::Prefix { Group::None } else { Group::Prefix };
                self.locks.set_group(group);
            }
            Command::Connections => self.act(ctx, Act::EditConnection(None)),
            Command::SaveView => {
                if self.locks.filter_text().trim().is_empty() {
                    self.toasts.failed("There is no filter to save; type one first (/).");
                } else {
                    self.dialog = Some(Dialog::SaveView { name: String::new() });
                }
            }
            Command::Alerts => self.dialog = Some(Dialog::Alerts(AlertsDialog::new(&self.saved.alerts))),
            Command::NextTheme => {
                let at =
                    ThemeChoice::ALL.iter().position(|choice| *choice == self.settings.theme).unwrap_or(0);
                self.settings.theme = ThemeChoice::ALL[(at + 1) % ThemeChoice::ALL.len()];
            }
            Command::Contrast => self.settings.high_contrast = !self.settings.high_contrast,
            Command::Density => {
                self.settings.compact = !self.settings.compact;
                self.locks.set_compact(self.settings.compact);
            }
            Command::Larger => self.settings.scale = (self.settings.scale * 1.1).min(3.0),
            Command::Smaller => self.settings.scale = (self.settings.scale / 1.1).max(0.5),
            Command::NormalSize => self.settings.scale = 1.0,
            Command::Quit => ctx.send_viewport_cmd(ViewportCommand::Close),
        }
    }

    /// One step back: a message, the page, the filter, the details.
    fn back(&mut self) {
        if self.toasts.dismiss() {
        } else if self.page != Page::Locks {
            self.page = Page::Locks;
        } else if !self.locks.filter_text().is_empty() {
            self.locks.set_filter("");
        } else {
            self.locks.select(None);
        }
    }

    fn pause(&mut self) {
        if let Some(replaying) = &mut self.replaying {
            replaying::toggle(replaying);
        } else if self.frozen.take().is_none()
            && let Some(live) = &self.live
        {
            let fleet = live.state().fleet.clone();
            self.frozen = Some(Box::new(Frozen { fleet, now_ms: live.clock.now_ms() }));
        }
    }

    fn copy_selected(
        &mut self,
        ctx: &egui::Context,
        what: &str,
        text: impl FnOnce(&Fleet, RowRef) -> String,
    ) {
        let Some(key) = self.locks.selected().cloned() else {
            self.toasts.failed("No lock is selected.");
            return;
        };
        let text = self.with_fleet(|fleet| fleet.find(&key).map(|place| text(fleet, place)));
        match text.filter(|text| !text.is_empty()) {
            Some(text) => self.act(ctx, Act::Copy { text, what: what.to_owned() }),
            None => self.toasts.failed("There is nothing to copy of this lock now."),
        }
    }

    fn ask_break(&mut self, ctx: &egui::Context) {
        let Some(key) = self.locks.selected().cloned() else {
            self.toasts.failed("No lock is selected.");
            return;
        };
        let token = self.with_fleet(|fleet| fleet.lease_to_break(&key));
        match token {
            Some(token) => self.act(ctx, Act::AskBreak(key, token)),
            None => self.toasts.failed("No holder has a lease that could be broken."),
        }
    }

    fn may_not_break(&self, key: &model::RowKey) -> Option<String> {
        if self.replaying.is_some() {
            return Some("This is a recording; nothing in it can be broken.".into());
        }
        let read_only = self.with_fleet(|fleet| {
            fleet.store(&key.connection).is_some_and(|store| store.connection().read_only)
        });
        read_only.then(|| {
            format!(
                "{} is read-only; change that in its connection first.",
                sanitized(key.connection.as_str())
            )
        })
    }

    /// Tells what came of a break.
    pub(super) fn tell_break(&mut self, result: &BreakResult) {
        let name = sanitized(&result.order.lock);
        match &result.outcome {
            Ok(BreakOutcome::Broken { next: Some(next), .. }) => {
                self.toasts.done(format!("Broken. {name} is now held by {}.", sanitized(next.as_str())));
            }
            Ok(BreakOutcome::Broken { next: None, .. }) => {
                self.toasts.done(format!("Broken. {name} had no waiters."));
            }
            Ok(BreakOutcome::Free) => self.toasts.failed(format!("Nothing broken: {name} was free already.")),
            Ok(BreakOutcome::ChangedHands { .. }) => {
                self.toasts.failed(format!("Nothing broken: {name} changed hands meanwhile."));
            }
            Ok(_) => self.toasts.failed(format!("{name}: what came of the break is not known here.")),
            Err(message) => self.toasts.failed(format!("Nothing broken: {message}")),
        }
    }

    fn ask_path(&mut self, purpose: Purpose) {
        let now_ms = self.live.as_ref().map_or(0, |live| live.clock.now_ms());
        self.dialog = Some(Dialog::Path(PathDialog::new(purpose, now_ms)));
    }

    /// Opens a recording. Errors: a sentence with the path.
    pub(super) fn open_recording(&mut self, path: &Path) -> Result<(), String> {
        let recording = files::open_recording(path)?;
        let title = path.file_name().map(|name| sanitized(&name.to_string_lossy())).unwrap_or_default();
        self.replaying = Some(Replaying::new(Replay::new(recording, Limits::default()), title));
        self.frozen = None;
        self.page = Page::Locks;
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.settings.remember_recording(&path);
        Ok(())
    }

    fn toggle_recording(&mut self) {
        let stopped = self.live.as_ref().and_then(|live| {
            let recording = live.stop_recording()?;
            Some((recording.path.clone(), live.clock.now_ms().saturating_sub(recording.since_ms)))
        });
        match stopped {
            Some((path, ms)) => {
                self.toasts.done(format!("Recorded {} to {}.", span(ms), sanitized(&path.to_string_lossy())));
                self.settings.remember_recording(&path);
            }
            None => self.ask_path(Purpose::Record),
        }
    }

    pub(super) fn start_recording(&mut self, path: &Path) -> Result<(), String> {
        let live = self.live.as_ref().ok_or("nothing is connected")?;
        live.record(path)?;
        self.toasts.done(format!("Recording to {}.", sanitized(&path.to_string_lossy())));
        Ok(())
    }

    /// Writes the rows that are shown to a new file.
    pub(super) fn export(
        &mut self,
        path: &Path,
        form: fn(&Fleet, &[RowRef], u64) -> String,
    ) -> Result<(), String> {
        let now_ms = self.now_ms();
        let live = self.fleet_kind();
        let mut locks = std::mem::take(&mut self.locks);
        let text = self.with_fleet(|fleet| {
            locks.refresh(fleet, now_ms, live);
            form(fleet, &locks.rows(), now_ms)
        });
        self.locks = locks;
        let write = || {
            let mut file = std::fs::File::create_new(path)?;
            std::io::Write::write_all(&mut file, text.as_bytes())
        };
        write().map_err(|error| format!("{}: {error}", path.display()))?;
        self.toasts.done(format!("Exported to {}.", sanitized(&path.to_string_lossy())));
        Ok(())
    }

    /// Puts alert rules in force and saves them. Errors: which rule cannot be used.
    pub(super) fn set_alerts(&mut self, rules: Vec<AlertRule>) -> Result<(), String> {
        let alarms = Alarms::new(rules.clone())?;
        if let Some(live) = &self.live {
            live.set_alarms(alarms);
        }
        self.saved.alerts = rules;
        self.save_saved();
        Ok(())
    }

    fn start_demo(&mut self) {
        #[cfg(unix)]
        match super::demo::Demo::start() {
            Ok(demo) => {
                let url = demo.url().to_owned();
                self.demo = Some(demo);
                if let Ok((mut saved, secret)) = model::saved::SavedConnection::from_url("demo", &url) {
                    saved.every_ms = 500;
                    self.transient.push(saved.clone());
                    self.connect_with(&saved, secret.as_deref());
                }
            }
            Err(error) => self.toasts.failed(format!("no demo: {error}")),
        }
        #[cfg(not(unix))]
        self.toasts.failed("The demo needs a Unix system: stopping a process takes signals.");
    }

    /// Starts the demo if the arguments ask for it.
    pub(super) fn start_demo_if_asked(&mut self) {
        if self.args.demo {
            self.start_demo();
        }
    }

    /// Tells apart fleets whose versions mean different things.
    pub(super) fn fleet_kind(&self) -> u8 {
        u8::from(self.frozen.is_some()) + 2 * u8::from(self.replaying.is_some())
    }
}

/// How often a connection is read.
pub(super) fn every(ms: u64) -> Duration {
    Duration::from_millis(ms.clamp(100, 60_000))
}

/// What wakes the window from another thread.
pub(super) fn waker(ctx: &egui::Context) -> Arc<dyn Fn() + Send + Sync> {
    let ctx = ctx.clone();
    Arc::new(move || ctx.request_repaint())
}
