//! A window without a screen, and hands and eyes for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eframe::egui::{Event, Key, Modifiers, OutputCommand, PointerButton, Pos2, Role, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use polylatch::blocking::Polylatch;
use polylatch_inspector::keyring::Keyring;
use polylatch_inspector::{App, Args, Settings};
use polylatch_test_services::TempDir;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A keyring that keeps in memory.
#[derive(Debug, Default)]
pub struct Kept(pub Mutex<BTreeMap<String, String>>);

impl Keyring for Kept {
    fn get(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.0.lock().unwrap().get(name).cloned())
    }

    fn set(&self, name: &str, secret: &str) -> Result<(), String> {
        self.0.lock().unwrap().insert(name.into(), secret.into());
        Ok(())
    }

    fn forget(&self, name: &str) -> Result<(), String> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }
}

/// A keyring that nobody can open.
#[derive(Debug)]
pub struct Locked;

impl Keyring for Locked {
    fn get(&self, _: &str) -> Result<Option<String>, String> {
        Err("it stays locked".into())
    }

    fn set(&self, _: &str, _: &str) -> Result<(), String> {
        Err("it stays locked".into())
    }

    fn forget(&self, _: &str) -> Result<(), String> {
        Err("it stays locked".into())
    }
}

/// A window, and a folder with its settings and a store.
pub struct Pilot {
    pub harness: Harness<'static, App>,
    pub dir: TempDir,
    /// The store.
    pub url: String,
    clipboard: Arc<Mutex<String>>,
}

impl Pilot {
    /// Starts with these arguments, and settings in a folder of its own.
    pub fn start(args: Args) -> Self {
        Self::start_in(TempDir::new(), args, Arc::new(Kept::default()))
    }

    /// Starts with settings in this folder, and this keyring.
    pub fn start_with(dir: TempDir, keyring: Arc<dyn Keyring>) -> Self {
        Self::start_in(dir, Args::default(), keyring)
    }

    /// Starts connected to the store.
    pub fn connected() -> Self {
        Self::on_a_store(|url| Args { url: vec![url.to_owned()], ..Args::default() })
    }

    /// Starts with the arguments that are made for the URL of the store.
    pub fn on_a_store(args: impl FnOnce(&str) -> Args) -> Self {
        let dir = TempDir::new();
        let url = url_in(&dir);
        Polylatch::connect(&url).unwrap().close();
        Self::start_in(dir, args(&url), Arc::new(Kept::default()))
    }

    fn start_in(dir: TempDir, mut args: Args, keyring: Arc<dyn Keyring>) -> Self {
        args.settings = Some(dir.join("settings"));
        let url = url_in(&dir);
        let settings = Settings::load(&dir.join("settings/window.json"));
        let mut app = App::new(settings, Some(dir.join("settings/window.json")), args).unwrap();
        app.keep_secrets_in(keyring);
        let mut attached = false;
        let clipboard = Arc::<Mutex<String>>::default();
        let copied = Arc::clone(&clipboard);
        let harness = Harness::builder().with_size(vec2(1280.0, 800.0)).build_ui_state(
            move |ui, app: &mut App| {
                if !std::mem::replace(&mut attached, true) {
                    app.attach(ui.ctx());
                }
                app.logic(ui.ctx());
                app.ui(ui);
                ui.ctx().output(|output| {
                    for command in &output.commands {
                        if let OutputCommand::CopyText(text) = command {
                            copied.lock().unwrap().clone_from(text);
                        }
                    }
                });
            },
            app,
        );
        Self { harness, dir, url, clipboard }
    }

    /// Ends this window and starts another one with the same folder.
    pub fn restarted(self) -> Self {
        self.restarted_with(Arc::new(Kept::default()))
    }

    /// The same with a keyring.
    pub fn restarted_with(self, keyring: Arc<dyn Keyring>) -> Self {
        let Self { harness, dir, .. } = self;
        drop(harness);
        Self::start_with(dir, keyring)
    }

    /// Ends this window and starts another one with the same folder and these arguments.
    pub fn restarted_as(self, args: Args) -> Self {
        let Self { harness, dir, .. } = self;
        drop(harness);
        Self::start_in(dir, args, Arc::new(Kept::default()))
    }

    /// Writes a recording from now on.
    pub fn record(&mut self, file: &std::path::Path) {
        self.harness.key_press_modifiers(Modifiers::COMMAND, Key::R);
        self.until_label("Record what is seen");
        self.replace_text("File", file.to_str().unwrap());
        self.click("Record");
        self.until("the recording", |window| window.says("REC "));
    }

    /// Records how `orders/17` is taken and given back, and returns the file.
    pub fn record_a_lock(&mut self) -> PathBuf {
        let client = Polylatch::connect(&self.url).unwrap();
        let file = self.dir.join("night.polylatch");
        self.record(&file);
        let held = client.lock("orders/17").acquire().unwrap();
        self.until_row("orders/17, held");
        held.release().unwrap();
        self.until("the end of the lock", |window| !window.says("orders/17, held"));
        self.stop_recording();
        file
    }

    pub fn stop_recording(&mut self) {
        self.harness.key_press_modifiers(Modifiers::COMMAND, Key::R);
        self.until("the end of the recording", |window| window.says("Recorded "));
    }

    /// Presses the slider of a recording from left to right until something is true.
    #[track_caller]
    pub fn slide_until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let slider = self.harness.get_by(|node| node.role() == Role::Slider).rect();
        for share in 0..=40 {
            let x = slider.left() + slider.width() * share as f32 / 40.0;
            self.press_at(eframe::egui::pos2(x, slider.center().y));
            if is(self) {
                return;
            }
        }
        panic!("nowhere in the recording: {what}");
    }

    /// Returns what is put into the clipboard by something.
    #[track_caller]
    pub fn copied(&mut self, by: impl FnOnce(&mut Self)) -> String {
        self.clipboard.lock().unwrap().clear();
        by(self);
        self.steps(3);
        let text = self.clipboard.lock().unwrap().clone();
        assert!(!text.is_empty(), "nothing was copied; it says {:#?}", self.texts());
        text
    }

    /// Lets somebody wait for a lock until it is free.
    pub fn wait_in_line(&self, lock: &'static str) {
        let client = Polylatch::connect(&self.url).unwrap();
        std::thread::spawn(move || drop(client.lock(lock).label("next").acquire()));
    }

    pub fn steps(&mut self, number: usize) {
        self.harness.run_steps(number);
    }

    /// Draws frames until something is true.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.harness.step();
            if is(self) {
                return;
            }
            assert!(Instant::now() < end, "waited in vain for {what}; it says {:#?}", self.texts());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub fn until_label(&mut self, label: &str) {
        self.until(label, |window| window.texts().iter().any(|text| text == label));
    }

    #[track_caller]
    pub fn until_row(&mut self, start: &str) {
        self.until(start, |window| window.rows().iter().any(|row| row.starts_with(start)));
    }

    /// Everything that a screen reader could say.
    pub fn texts(&self) -> Vec<String> {
        let nodes = self.harness.query_all_by(|_| true);
        nodes
            .flat_map(|node| [node.accesskit_node().label(), node.accesskit_node().value()])
            .flatten()
            .collect()
    }

    pub fn says(&self, part: &str) -> bool {
        self.texts().iter().any(|text| text.contains(part))
    }

    /// The names of the rows that are visible.
    pub fn rows(&self) -> Vec<String> {
        let rows = self.harness.query_all_by(|node| node.role() == Role::Row);
        rows.filter_map(|row| row.accesskit_node().label()).collect()
    }

    #[track_caller]
    pub fn click(&mut self, button: &str) {
        self.harness.get_by_role_and_label(Role::Button, button).click();
        self.steps(3);
    }

    #[track_caller]
    pub fn click_row(&mut self, start: &str) {
        let is = |label: Option<String>| label.is_some_and(|label| label.starts_with(start));
        // By the row itself: what stands at its place may be another one when the pointer gets there.
        self.harness.get_by(|node| node.role() == Role::Row && is(node.label())).click_accesskit();
        self.steps(3);
    }

    #[track_caller]
    pub fn sort_by(&mut self, column: &str) {
        self.harness.get_by_role_and_label(Role::ColumnHeader, &format!("sort by {column}")).click();
        self.steps(3);
    }

    /// Types a number over the one that is there.
    #[track_caller]
    pub fn set_number(&mut self, field: &str, number: &str) {
        self.harness.get_by_role_and_label(Role::SpinButton, field).click();
        self.steps(3);
        self.harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
        self.steps(2);
        self.harness.event(Event::Text(number.to_owned()));
        self.steps(2);
        self.key(Key::Enter);
    }

    /// Where a button is.
    pub fn place_of(&self, button: &str) -> eframe::egui::Rect {
        self.harness.get_by_role_and_label(Role::Button, button).rect()
    }

    pub fn is_enabled(&self, button: &str) -> bool {
        !self.harness.get_by_role_and_label(Role::Button, button).accesskit_node().is_disabled()
    }

    #[track_caller]
    pub fn type_into(&mut self, field: &str, text: &str) {
        self.type_at(Role::TextInput, field, text);
    }

    #[track_caller]
    pub fn type_secret(&mut self, field: &str, text: &str) {
        self.type_at(Role::PasswordInput, field, text);
    }

    #[track_caller]
    fn type_at(&mut self, role: Role, field: &str, text: &str) {
        self.harness.get_by_role_and_label(role, field).focus();
        self.steps(2);
        self.harness.get_by_role_and_label(role, field).type_text(text);
        self.steps(2);
    }

    #[track_caller]
    pub fn replace_text(&mut self, field: &str, text: &str) {
        self.harness.get_by_role_and_label(Role::TextInput, field).focus();
        self.steps(2);
        self.harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
        self.steps(2);
        self.type_into(field, text);
    }

    pub fn key(&mut self, key: Key) {
        self.harness.key_press(key);
        self.steps(3);
    }

    /// Presses and releases the pointer at a place.
    pub fn press_at(&mut self, pos: Pos2) {
        self.harness.event(Event::PointerMoved(pos));
        for pressed in [true, false] {
            let modifiers = Modifiers::NONE;
            self.harness.event(Event::PointerButton {
                pos,
                button: PointerButton::Primary,
                pressed,
                modifiers,
            });
            self.steps(1);
        }
    }
}

fn url_in(dir: &TempDir) -> String {
    format!("sqlite:{}", dir.join("locks.db").display())
}

/// Says whether no character of a text could hide or reorder others.
pub fn is_safe_to_show(text: &str) -> bool {
    !text.chars().any(|c| c != '\n' && model::text::is_treacherous(c))
}
