//! A recording that is looked at: the band with the time, play and pause.

use std::time::{Duration, Instant};

use eframe::egui::{self, Key, Modifiers, Rect, RichText, Role, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

use super::act::Act;
use super::app::App;
use super::theme::Palette;
use model::replay::Replay;
use model::text::{clock_time, sanitized, span};

const SPEEDS: [f32; 5] = [0.5, 1.0, 2.0, 5.0, 20.0];

/// The recording and how it plays.
#[derive(Debug)]
pub struct Replaying {
    pub replay: Replay,
    pub title: String,
    pub playing: bool,
    speed: f32,
    /// When the place was last moved by playing.
    moved: Option<Instant>,
}

impl Replaying {
    pub fn new(replay: Replay, title: String) -> Self {
        Self { replay, title, playing: false, speed: 1.0, moved: None }
    }

    /// Moves on, if it plays.
    pub fn play(&mut self, ctx: &egui::Context) {
        if !self.playing {
            self.moved = None;
            return;
        }
        let now = Instant::now();
        let passed = self.moved.map_or(Duration::ZERO, |moved| now - moved);
        self.moved = Some(now);
        let (_, end) = self.replay.span();
        let to = self.replay.at_ms() + (passed.as_secs_f32() * 1_000.0 * self.speed) as u64;
        self.replay.seek(to);
        if to >= end {
            self.playing = false;
        } else {
            ctx.request_repaint_after(Duration::from_millis(100));
        }
    }

    fn jump(&mut self, forward: bool) {
        let at = self.replay.at_ms();
        let mut marks = self.replay.marks().iter().map(|mark| mark.at_ms);
        let to = if forward { marks.find(|mark| *mark > at) } else { marks.rfind(|mark| *mark < at) };
        if let Some(to) = to {
            self.replay.seek(to);
        }
    }

    fn step(&mut self, by_ms: i64) {
        self.replay.seek(self.replay.at_ms().saturating_add_signed(by_ms));
    }
}

/// Shows the band.
pub fn show(app: &mut App, ui: &mut Ui, palette: &Palette, acts: &mut Vec<Act>) {
    let Some(replaying) = &mut app.replaying else { return };
    let (from, to) = replaying.replay.span();
    if !ui.ctx().egui_wants_keyboard_input() && app.dialog.is_none() {
        let step = ui.input_mut(|input| {
            let mut key = |key| input.consume_key(Modifiers::NONE, key);
            i64::from(key(Key::ArrowRight)) - i64::from(key(Key::ArrowLeft))
        });
        if step != 0 {
            replaying.step(step * 1_000);
        }
    }
    ui.horizontal(|ui| {
        let text = format!("REPLAY  {}", replaying.title);
        ui.label(RichText::new(text).strong().color(palette.accent));
        let times = format!(
            "{} to {} UTC, {}",
            clock_time(from, to),
            clock_time(to, to),
            span(to.saturating_sub(from))
        );
        ui.label(RichText::new(times).color(palette.weak));
        let remarks = replaying.replay.remarks();
        if !remarks.is_empty() {
            let text: Vec<String> = remarks.iter().map(|remark| sanitized(remark)).collect();
            let shown = ui.label(RichText::new("not all of the file could be read").color(palette.orphan));
            shown.on_hover_text(text.join("\n"));
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            if ui.button("Close the recording").clicked() {
                acts.push(Act::CloseRecording);
            }
        });
    });
    ui.horizontal(|ui| {
        if ui.button("|<").on_hover_text("To the mark before").accessible_name("Previous mark").clicked() {
            replaying.jump(false);
        }
        let word = if replaying.playing { "Pause" } else { "Play" };
        if ui.add(egui::Button::new(word).min_size(vec2(58.0, 22.0))).on_hover_text("Space").clicked() {
            toggle(replaying);
        }
        if ui.button(">|").on_hover_text("To the next mark").accessible_name("Next mark").clicked() {
            replaying.jump(true);
        }
        let speeds =
            egui::ComboBox::from_id_salt("speed").width(58.0).selected_text(format!("{}x", replaying.speed));
        let shown = speeds.show_ui(ui, |ui| {
            for speed in SPEEDS {
                ui.selectable_value(&mut replaying.speed, speed, format!("{speed}x"));
            }
        });
        shown.response.accessible_name("Speed");
        let at = replaying.replay.at_ms();
        ui.label(RichText::new(clock_time(at, at)).monospace().strong());
        slider(replaying, ui, palette);
    });
}

/// Plays or pauses; at the end, from the beginning again.
pub fn toggle(replaying: &mut Replaying) {
    let (from, to) = replaying.replay.span();
    if !replaying.playing && replaying.replay.at_ms() >= to {
        replaying.replay.seek(from);
    }
    replaying.playing = !replaying.playing;
}

/// The time slider, with the marks of what is worth seeing.
fn slider(replaying: &mut Replaying, ui: &mut Ui, palette: &Palette) {
    let (from, to) = replaying.replay.span();
    let (rect, response) =
        ui.allocate_exact_size(vec2((ui.available_width() - 6.0).max(80.0), 24.0), Sense::click_and_drag());
    let length = to.saturating_sub(from).max(1) as f64;
    let x = |at: u64| rect.left() + (at.saturating_sub(from) as f64 / length) as f32 * rect.width();
    if let Some(pointer) = response.interact_pointer_pos() {
        let share = f64::from((pointer.x - rect.left()) / rect.width()).clamp(0.0, 1.0);
        replaying.replay.seek(from + (share * length) as u64);
    }
    let painter = ui.painter();
    let rail = Rect::from_center_size(rect.center(), vec2(rect.width(), 5.0));
    painter.rect_filled(rail, 2.5, palette.well);
    let at = replaying.replay.at_ms();
    painter.rect_filled(rail.with_max_x(x(at)), 2.5, palette.accent.gamma_multiply(0.55));
    for mark in replaying.replay.marks() {
        let (colour, height) = if mark.attention { (palette.orphan, 16.0) } else { (palette.weak, 9.0) };
        let centre = pos2(x(mark.at_ms), rect.center().y);
        painter.vline(centre.x, egui::Rangef::point(centre.y).expand(height / 2.0), Stroke::new(2.0, colour));
    }
    painter.circle(pos2(x(at), rect.center().y), 6.5, palette.accent, Stroke::new(1.5, palette.panel));
    let said = clock_time(at, at);
    response.widget_info(|| {
        let mut info =
            WidgetInfo::slider(true, (at - from) as f64 / 1_000.0, format!("time in the recording: {said}"));
        info.role = Role::Slider;
        info
    });
    if let Some(pointer) = response.hover_pos() {
        let near =
            replaying.replay.marks().iter().min_by_key(|mark| (x(mark.at_ms) - pointer.x).abs() as u32);
        if let Some(mark) = near.filter(|mark| (x(mark.at_ms) - pointer.x).abs() < 6.0) {
            response.on_hover_text_at_pointer(format!("{}  {}", clock_time(mark.at_ms, at), mark.text));
        }
    }
}
