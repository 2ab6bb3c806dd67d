//! Adding and changing a connection.

use eframe::egui::{self, ComboBox, DragValue, Grid, RichText, ScrollArea, TextEdit, Ui};

use super::connection_test::ConnectionTest;
use super::{buttons, modal};
use crate::act::Act;
use crate::app::App;
use crate::connecting::EVERY_MS;
use crate::theme::Palette;
use model::Environment;
use model::saved::{SavedConnection, SecretSource};
use model::text::sanitized;

/// Room for the steps of a test: some six of them, the rest is scrolled to.
const STEPS_HEIGHT: f32 = 150.0;

/// The form.
pub struct ConnectionDialog {
    /// The connection that is changed; none if it is a new one.
    old: Option<String>,
    form: SavedConnection,
    /// With its secret, if one was typed into it; never shown in `Debug`.
    url: String,
    pattern: String,
    read_only: bool,
    wrong: Option<String>,
    test: Option<ConnectionTest>,
    /// It was drawn before.
    begun: bool,
}

impl std::fmt::Debug for ConnectionDialog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionDialog").field("old", &self.old).finish_non_exhaustive()
    }
}

/// What was clicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clicked {
    Nothing,
    Test,
    Connect,
    Save,
    Remove,
    Cancel,
}

impl ConnectionDialog {
    /// An empty form, or that of a connection.
    pub fn new(known: Option<&SavedConnection>) -> Self {
        let form = known.cloned().unwrap_or_else(|| SavedConnection {
            name: String::new(),
            url: String::new(),
            secret: SecretSource::None,
            environment: Environment::Development,
            read_only: None,
            every_ms: EVERY_MS,
            prefix: String::new(),
            foreign: None,
        });
        Self {
            old: known.map(|known| known.name.clone()),
            url: form.url.clone(),
            pattern: form.foreign.clone().unwrap_or_default(),
            read_only: form.is_read_only(),
            form,
            wrong: None,
            test: None,
            begun: false,
        }
    }

    /// Takes what a test has found meanwhile.
    pub fn poll(&mut self) {
        if let Some(test) = &mut self.test {
            test.poll();
        }
    }

    /// Shows it; returns whether it is over.
    pub fn show(
        &mut self,
        ctx: &egui::Context,
        app: &mut App,
        palette: &Palette,
        acts: &mut Vec<Act>,
    ) -> bool {
        let title = if self.old.is_some() { "Edit the connection" } else { "Connect to a store" };
        let (closed, clicked) = modal(ctx, "connection", 620.0, title, |ui| {
            self.others(ui, app, acts);
            self.fields(ui, palette);
            if let Some(test) = &self.test {
                steps(ui, test, palette);
            }
            if let Some(wrong) = &self.wrong {
                ui.label(RichText::new(wrong).color(palette.orphan));
            }
            let ready = !self.url.trim().is_empty();
            buttons(ui, |ui| {
                let mut clicked = Clicked::Nothing;
                let mut offer = |ui: &mut Ui, on: bool, text: &str, means| {
                    if ui.add_enabled(on, egui::Button::new(text)).clicked() {
                        clicked = means;
                    }
                };
                offer(ui, ready, "Save and connect", Clicked::Save);
                offer(ui, ready, "Connect once", Clicked::Connect);
                offer(ui, ready, "Test", Clicked::Test);
                offer(ui, true, "Cancel", Clicked::Cancel);
                if self.old.is_some() {
                    offer(ui, true, "Remove", Clicked::Remove);
                }
                clicked
            })
        });
        let done = match clicked {
            Clicked::Nothing => false,
            Clicked::Cancel => true,
            Clicked::Remove => {
                let name = self.old.clone().unwrap_or_default();
                app.remove_connection(&name);
                true
            }
            Clicked::Test => {
                self.begin_test(ctx, app);
                false
            }
            Clicked::Connect | Clicked::Save => match self.filled_in(app) {
                Err(message) => {
                    self.wrong = Some(sanitized(&message));
                    false
                }
                Ok((connection, secret)) => {
                    app.put_connection(self.old.as_deref(), connection, secret, clicked == Clicked::Save);
                    true
                }
            },
        };
        closed || done
    }

    fn others(&mut self, ui: &mut Ui, app: &App, acts: &mut Vec<Act>) {
        if app.saved.connections.is_empty() {
            return;
        }
        ui.horizontal_wrapped(|ui| {
            ui.weak("Saved:");
            for saved in &app.saved.connections {
                if ui
                    .selectable_label(self.old.as_deref() == Some(&saved.name), sanitized(&saved.name))
                    .clicked()
                {
                    acts.push(Act::EditConnection(Some(saved.name.clone())));
                }
            }
            if self.old.is_some() && ui.selectable_label(false, "new…").clicked() {
                acts.push(Act::EditConnection(None));
            }
        });
        ui.separator();
    }

    fn fields(&mut self, ui: &mut Ui, palette: &Palette) {
        Grid::new("connection form").num_columns(2).spacing([14.0, 7.0]).show(ui, |ui| {
            let label = ui.label("URL");
            let field =
                TextEdit::singleline(&mut self.url).hint_text("redis://cache:6379").desired_width(430.0);
            let field = ui.add(field).labelled_by(label.id);
            // What has to be typed first is where the keys go.
            if !std::mem::replace(&mut self.begun, true) {
                field.request_focus();
            }
            ui.end_row();
            ui.label("");
            ui.label(
                RichText::new(
                    "sqlite:/var/lib/locks.db   redis://host   rediss://…   redis+cluster://a,b   redlock://a,b,c\n\
                     postgres://host/db   mysql://host/db   consul://host   etcd://host   zookeeper://a,b,c",
                )
                .size(11.5)
                .color(palette.weak),
            );
            ui.end_row();
            let label = ui.label("Name");
            let field = TextEdit::singleline(&mut self.form.name)
                .hint_text("taken from the URL")
                .desired_width(220.0);
            ui.add(field).labelled_by(label.id);
            ui.end_row();
            ui.label("Password");
            ui.horizontal(|ui| secret(ui, &mut self.form.secret, palette));
            ui.end_row();
            ui.label("Environment");
            ui.horizontal(|ui| {
                for environment in Environment::ALL {
                    let chosen = self.form.environment == environment;
                    if ui.selectable_label(chosen, environment.word()).clicked() && !chosen {
                        self.form.environment = environment;
                        self.read_only = environment == Environment::Production;
                    }
                }
                ui.add_space(10.0);
                ui.checkbox(&mut self.read_only, "read-only")
                    .on_hover_text("Nothing can be broken through it");
            });
            ui.end_row();
            ui.label("Read every");
            let mut secs = self.form.every_ms as f64 / 1_000.0;
            ui.horizontal(|ui| {
                let value =
                    DragValue::new(&mut secs).range(0.1..=60.0).speed(0.1).suffix(" s").max_decimals(1);
                if ui.add(value).accessible_name("Read every").changed() {
                    self.form.every_ms = (secs * 1_000.0).round() as u64;
                }
                ui.weak("five times as often if that costs next to nothing");
            });
            ui.end_row();
            let label = ui.label("Only names with");
            let field = TextEdit::singleline(&mut self.form.prefix)
                .hint_text("a prefix; every lock")
                .desired_width(220.0);
            ui.add(field).labelled_by(label.id);
            ui.end_row();
            let label = ui.label("Foreign locks");
            let field = TextEdit::singleline(&mut self.pattern)
                .hint_text("keys of other libraries, such as lock:*")
                .desired_width(220.0);
            ui.add(field).labelled_by(label.id);
            ui.end_row();
        });
    }

    fn begin_test(&mut self, ctx: &egui::Context, app: &mut App) {
        match self.filled_in(app) {
            Err(message) => self.wrong = Some(sanitized(&message)),
            Ok((connection, secret)) => {
                self.wrong = None;
                let secret = secret.or_else(|| app.known_secret(&connection));
                let url = connection.url_with(secret.as_deref());
                let again = ctx.clone();
                self.test =
                    Some(ConnectionTest::start(url, connection.prefix, move || again.request_repaint()));
            }
        }
    }

    /// The connection as the form says it, and the secret that was in the URL.
    fn filled_in(&self, app: &App) -> Result<(SavedConnection, Option<String>), String> {
        let url = self.url.trim();
        let name = self.form.name.trim();
        let name = if name.is_empty() { app.free_name(url) } else { name.to_owned() };
        let (parsed, secret) = SavedConnection::from_url(&name, url)?;
        let mut connection = SavedConnection { url: parsed.url, ..self.form.clone() };
        connection.name = parsed.name;
        connection.read_only = Some(self.read_only);
        connection.foreign = Some(self.pattern.trim().to_owned()).filter(|pattern| !pattern.is_empty());
        if secret.is_some() && connection.secret == SecretSource::None {
            // It is not written anywhere, so it has to be asked for the next time.
            connection.secret = SecretSource::Prompt;
        }
        let taken = app.saved.connections.iter().any(|known| known.name == connection.name);
        if taken && self.old.as_deref() != Some(&connection.name) {
            return Err(format!("there is a connection called {} already", connection.name));
        }
        Ok((connection, secret))
    }
}

fn secret(ui: &mut Ui, source: &mut SecretSource, palette: &Palette) {
    let word = |source: &SecretSource| match source {
        SecretSource::None => "none, or as typed in the URL",
        SecretSource::Env { .. } => "in an environment variable",
        SecretSource::Keyring => "in the platform's keyring",
        SecretSource::Prompt => "asked for each time",
    };
    let variable = String::new();
    let kinds =
        [SecretSource::None, SecretSource::Keyring, SecretSource::Prompt, SecretSource::Env { variable }];
    let shown = ComboBox::from_id_salt("secret").width(210.0).selected_text(word(source)).show_ui(ui, |ui| {
        for kind in kinds {
            let chosen = std::mem::discriminant(&kind) == std::mem::discriminant(source);
            if ui.selectable_label(chosen, word(&kind)).clicked() && !chosen {
                *source = kind;
            }
        }
    });
    shown.response.accessible_name("Password");
    if let SecretSource::Env { variable } = source {
        let field = TextEdit::singleline(variable).hint_text("REDIS_PASSWORD").desired_width(170.0);
        ui.add(field).accessible_name("Environment variable");
    }
    let note = match source {
        SecretSource::None => "never written to a file",
        SecretSource::Keyring => "taken from the URL, or asked for once",
        SecretSource::Prompt | SecretSource::Env { .. } => "",
    };
    ui.label(RichText::new(note).size(11.5).color(palette.weak));
}

/// What a test has found so far, in a part of the form that is as high from its begin to its end: a button that moves
/// while a step is added would be missed by a click.
fn steps(ui: &mut Ui, test: &ConnectionTest, palette: &Palette) {
    ui.add_space(4.0);
    let room = ScrollArea::vertical().id_salt("steps").auto_shrink(false);
    room.max_height(STEPS_HEIGHT).min_scrolled_height(STEPS_HEIGHT).show(ui, |ui| made(ui, test, palette));
}

fn made(ui: &mut Ui, test: &ConnectionTest, palette: &Palette) {
    for step in &test.done {
        ui.horizontal(|ui| {
            let (rect, _) = ui.allocate_exact_size(egui::vec2(14.0, 16.0), egui::Sense::hover());
            let state = if step.good { model::LockState::Held } else { model::LockState::NoRenewal };
            crate::marks::state(ui.painter(), rect.center(), 11.0, state, palette);
            ui.add(egui::Label::new(&step.text).wrap());
        });
    }
    if !test.over {
        ui.weak("testing…");
    }
}
