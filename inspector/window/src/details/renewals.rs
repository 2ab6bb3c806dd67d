//! Is renewal alive? What was left of the lease over time, and a strip with a mark for every beat.

use eframe::egui::{Align2, FontId, Rect, Role, Shape, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};

use super::time_axis::{Axis, TimeView, grid, not_observed, not_observed_before};
use crate::theme::{self, Palette};
use model::history::{Gap, LockHistory, Pulse, PulseKind};
use model::text::{clock_time, span};

const SCALE: f32 = 64.0;
const STRIP: f32 = 34.0;

/// What is shown of a lease's renewals.
#[derive(Debug)]
pub struct Renewals<'a> {
    pub history: &'a LockHistory,
    pub gaps: &'a [Gap],
    /// The present on the store's clock.
    pub now_ms: u64,
    pub lease_ms: Option<u64>,
    pub remaining_ms: Option<u64>,
    /// How often a renewal is expected.
    pub every_ms: Option<u64>,
    pub renewals: Option<u32>,
    pub since_ms: Option<u64>,
    pub missed: u32,
}

impl Renewals<'_> {
    /// Shows it.
    pub fn show(&self, ui: &mut Ui, view: &mut TimeView, palette: &Palette) {
        ui.horizontal_wrapped(|ui| {
            let mut facts = Vec::new();
            facts.extend(self.renewals.map(|times| format!("renewed {times} times")));
            facts.extend(self.since_ms.map(|since| format!("last {} ago", span(since))));
            facts.extend(self.every_ms.map(|every| format!("expected every {}", span(every))));
            if let (Some(every), Some(since)) = (self.every_ms, self.since_ms) {
                let next = match every.checked_sub(since) {
                    Some(left) => format!("next in {}", span(left)),
                    None => format!("due for {}", span(since - every)),
                };
                facts.push(next);
            }
            if self.missed > 0 {
                facts.push(format!("{} missed in a row", self.missed));
            }
            if facts.is_empty() {
                facts.push("This store does not tell renewals.".into());
            }
            ui.label(facts.join("  ·  "));
        });
        ui.add_space(4.0);
        let height = (ui.available_height() - 24.0).clamp(120.0, 420.0);
        let (axis, response) = view.allocate(ui, height, SCALE, self.now_ms);
        grid(ui, &axis, &response, palette);
        not_observed(ui, &axis, self.gaps, palette);
        let split = axis.rect.bottom() - STRIP - 8.0;
        let upper = Axis { rect: axis.rect.with_max_y(split), ..axis };
        let lower = axis.rect.with_min_y(split + 8.0);
        self.left_over_time(ui, &upper, palette);
        self.strip(ui, &axis, lower, palette);
        let font = FontId::proportional(theme::SMALL);
        let names = axis.rect.left() - 6.0;
        let painter = ui.painter();
        painter.text(pos2(names, lower.center().y), Align2::RIGHT_CENTER, "renewals", font, palette.weak);
        let renewals = self.history.pulses.len();
        let missed = self.history.pulses.iter().filter(|pulse| pulse.kind == PulseKind::Missed).count();
        response.widget_info(|| {
            let before = not_observed_before(self.history, self.now_ms);
            let text = format!("renewals: {renewals} renewals remembered, {missed} missed{before}");
            WidgetInfo::labeled(Role::Figure, true, text)
        });
        if let Some(text) = response.hover_pos().and_then(|at| self.told(axis.at_ms(at.x), &axis)) {
            response.on_hover_text_at_pointer(text);
        }
    }

    /// A saw-tooth: full at every beat, falling until the next one, to zero if there is none.
    fn left_over_time(&self, ui: &Ui, axis: &Axis, palette: &Palette) {
        let Some(lease) = self.lease_ms.filter(|lease| *lease > 0) else { return };
        let rect = axis.rect;
        let painter = ui.painter().with_clip_rect(rect.expand(1.0));
        let y = |left_ms: f64| {
            rect.bottom() - (left_ms / lease as f64).clamp(0.0, 1.0) as f32 * (rect.height() - 6.0)
        };
        let font = FontId::monospace(theme::SMALL - 1.5);
        for (part, text) in [(1.0, span(lease)), (0.5, span(lease / 2)), (0.0, "0 s".into())] {
            let at = y(lease as f64 * part);
            ui.painter().text(
                pos2(rect.left() - 6.0, at),
                Align2::RIGHT_CENTER,
                text,
                font.clone(),
                palette.weak,
            );
            painter.hline(rect.x_range(), at, Stroke::new(1.0, palette.line.gamma_multiply(0.7)));
        }
        let pulses: Vec<&Pulse> =
            self.history.pulses.iter().filter(|pulse| pulse.kind != PulseKind::Missed).collect();
        let beats = pulses.iter().enumerate();
        for (at, pulse) in beats.filter(|(_, pulse)| pulse.kind != PulseKind::Ended) {
            let end = pulses.get(at + 1).map_or(self.now_ms, |next| next.at_ms).max(pulse.at_ms);
            if !axis.sees(pulse.at_ms, end) {
                continue;
            }
            if pulse.kind == PulseKind::Granted && at + 1 < pulses.len() {
                // A first lease may have been shorter than the later ones; how long is not remembered.
                let x = axis.x(pulse.at_ms);
                painter.vline(x, rect.y_range(), Stroke::new(1.0, palette.accent.gamma_multiply(0.6)));
                continue;
            }
            // The latest beat is known by what is left now.
            let full = match (pulses.get(at + 1), self.remaining_ms) {
                (None, Some(left)) => (left + (end - pulse.at_ms)).min(lease),
                _ => lease,
            } as f64;
            let rest = full - (end - pulse.at_ms) as f64;
            let top = pos2(axis.x(pulse.at_ms), y(full));
            let low = pos2(axis.x(end), y(rest));
            let zero = rect.bottom();
            let points = vec![top, low, pos2(low.x, zero), pos2(top.x, zero)];
            painter.add(Shape::convex_polygon(points, palette.held.gamma_multiply(0.16), Stroke::NONE));
            let line = Stroke::new(palette.stroke(), palette.held);
            painter.line_segment([top, low], line);
            painter
                .line_segment([pos2(top.x, zero), top], Stroke::new(1.0, palette.held.gamma_multiply(0.5)));
        }
    }

    fn strip(&self, ui: &Ui, axis: &Axis, rect: Rect, palette: &Palette) {
        let painter = ui.painter().with_clip_rect(rect.expand(1.0));
        painter.hline(rect.x_range(), rect.bottom(), Stroke::new(1.0, palette.line));
        for pulse in &self.history.pulses {
            let x = axis.x(pulse.at_ms);
            if x >= rect.left() - 4.0 && x <= rect.right() + 4.0 {
                beat(&painter, rect, x, pulse.kind, self.every_ms, palette);
            }
        }
        // Where the next one is expected.
        if let (Some(every), Some(since)) = (self.every_ms, self.since_ms)
            && since <= every
        {
            let x = axis.x(self.now_ms + every - since);
            let mark = Rect::from_center_size(pos2(x, rect.bottom() - 8.0), vec2(5.0, 14.0));
            painter.rect_stroke(mark, 1.0, Stroke::new(1.0, palette.weak), StrokeKind::Inside);
        }
    }

    fn told(&self, at_ms: u64, axis: &Axis) -> Option<String> {
        let near = (axis.to_ms - axis.from_ms) / 100 + 1;
        let pulse = self.history.pulses.iter().min_by_key(|pulse| pulse.at_ms.abs_diff(at_ms))?;
        (pulse.at_ms.abs_diff(at_ms) <= near).then(|| {
            let what = match pulse.kind {
                PulseKind::Granted => "granted".to_owned(),
                PulseKind::Renewed { after_ms } => {
                    format!("renewed, {} after the one before", span(after_ms))
                }
                PulseKind::Missed => "a renewal was due and did not come".into(),
                PulseKind::Ended => "the lease ended".into(),
            };
            format!("{}  {what}", clock_time(pulse.at_ms, self.now_ms))
        })
    }
}

/// One mark of a strip: higher means later than expected, hollow means missed.
fn beat(
    painter: &eframe::egui::Painter,
    rect: Rect,
    x: f32,
    kind: PulseKind,
    every_ms: Option<u64>,
    palette: &Palette,
) {
    let width = if palette.high_contrast { 4.0 } else { 3.0 };
    let bar = |height: f32| {
        Rect::from_min_max(
            pos2(x - width / 2.0, rect.bottom() - height),
            pos2(x + width / 2.0, rect.bottom()),
        )
    };
    match kind {
        PulseKind::Granted => {
            painter.rect_filled(bar(rect.height()), 1.0, palette.accent);
        }
        PulseKind::Renewed { after_ms } => {
            let late = every_ms.map_or(0.5, |every| after_ms as f32 / (2.0 * every.max(1) as f32));
            painter.rect_filled(bar(rect.height() * late.clamp(0.2, 1.0)), 1.0, palette.held);
        }
        PulseKind::Missed => {
            let r = (rect.height() * 0.22).clamp(3.0, 6.0);
            let centre = pos2(x, rect.center().y);
            let points = vec![centre + vec2(0.0, -r), centre + vec2(r, r * 0.8), centre + vec2(-r, r * 0.8)];
            painter.add(Shape::closed_line(points, Stroke::new(palette.stroke(), palette.expiring)));
        }
        PulseKind::Ended => {
            painter.rect_filled(bar(3.0).translate(vec2(0.0, -rect.height() * 0.4)), 1.0, palette.weak);
        }
    }
}

/// The latest beats in a cell of the table: equally spaced, the newest at the right.
pub fn small_strip(painter: &eframe::egui::Painter, rect: Rect, history: &LockHistory, palette: &Palette) {
    const STEP: f32 = 6.0;
    let rect = rect.shrink2(vec2(0.0, 5.0));
    let fits = (rect.width() / STEP) as usize;
    let mut x = rect.right() - 3.0;
    for pulse in history.pulses.iter().rev().take(fits) {
        beat(painter, rect, x, pulse.kind, None, palette);
        x -= STEP;
    }
}
