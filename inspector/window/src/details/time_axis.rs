//! The time that timeline and renewals share: which part is shown, and where a moment stands.

use eframe::egui::{self, Align2, FontId, Rect, Response, Sense, Stroke, Ui, pos2, vec2};

use crate::marks;
use crate::theme::{self, Palette};
use model::history::{Gap, LockHistory};
use model::text::clock_time;

/// What is said of times without data.
pub const NOT_OBSERVED: &str = "not observed";

const SHORTEST_MS: u64 = 2_000;
const LONGEST_MS: u64 = 24 * 3_600_000;

/// Which part of time is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeView {
    pub span_ms: u64,
    /// The right edge; `None` follows the present.
    pub end_ms: Option<u64>,
}

impl Default for TimeView {
    fn default() -> Self {
        Self { span_ms: 60_000, end_ms: None }
    }
}

/// A part of time laid over a part of the screen.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    pub rect: Rect,
    pub from_ms: u64,
    pub to_ms: u64,
}

impl Axis {
    /// Returns where a moment stands; it may be outside.
    pub fn x(&self, at_ms: u64) -> f32 {
        let span = (self.to_ms - self.from_ms).max(1) as f64;
        let share = (at_ms as f64 - self.from_ms as f64) / span;
        self.rect.left() + (share * f64::from(self.rect.width())) as f32
    }

    /// Returns the moment at a place.
    pub fn at_ms(&self, x: f32) -> u64 {
        let share = f64::from((x - self.rect.left()) / self.rect.width().max(1.0)).clamp(0.0, 1.0);
        self.from_ms + (share * (self.to_ms - self.from_ms) as f64) as u64
    }

    /// Says whether a span of time can be seen.
    pub fn sees(&self, from_ms: u64, to_ms: u64) -> bool {
        from_ms <= self.to_ms && to_ms >= self.from_ms
    }
}

impl TimeView {
    /// Takes the space, handles wheel (zoom), drag (move) and double click (follow again).
    ///
    /// `now_ms` is the present on the store's clock, `left` the space for names.
    pub fn allocate(&mut self, ui: &mut Ui, height: f32, left: f32, now_ms: u64) -> (Axis, Response) {
        let (all, response) =
            ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click_and_drag());
        let rect = Rect::from_min_max(pos2(all.left() + left, all.top()), all.max);
        let end = self.end_ms.unwrap_or(now_ms).max(self.span_ms);
        let mut axis = Axis { rect, from_ms: end - self.span_ms, to_ms: end };
        if response.double_clicked() {
            self.end_ms = None;
        } else if response.dragged() && response.drag_delta().x != 0.0 {
            let moved = f64::from(response.drag_delta().x / rect.width().max(1.0)) * self.span_ms as f64;
            let end = (end as f64 - moved) as u64;
            // The future has nothing to show; arriving at the present means to follow it.
            self.end_ms = (end < now_ms).then_some(end);
        }
        if let Some(at) = response.hover_pos() {
            let scroll = ui.input(|input| input.smooth_scroll_delta().y + input.zoom_delta().ln() * 200.0);
            if scroll.abs() > 0.5 {
                ui.input_mut(|input| input.smooth_scroll_delta = egui::Vec2::ZERO);
                self.zoom(f64::from((-scroll / 200.0).exp()), axis.at_ms(at.x), now_ms);
            }
        }
        let end = self.end_ms.unwrap_or(now_ms).max(self.span_ms);
        (axis.from_ms, axis.to_ms) = (end - self.span_ms, end);
        (axis, response)
    }

    /// Shows more or less time, keeping a moment where it is.
    pub fn zoom(&mut self, factor: f64, around_ms: u64, now_ms: u64) {
        let end = self.end_ms.unwrap_or(now_ms);
        let span = ((self.span_ms as f64 * factor) as u64).clamp(SHORTEST_MS, LONGEST_MS);
        let right = end.saturating_sub(around_ms) as f64 * span as f64 / self.span_ms as f64;
        self.span_ms = span;
        if self.end_ms.is_some() {
            let end = around_ms + right as u64;
            self.end_ms = (end < now_ms).then_some(end);
        }
    }

    /// Shows everything since a moment, and follows.
    pub fn fit(&mut self, from_ms: u64, now_ms: u64) {
        let span = now_ms.saturating_sub(from_ms);
        *self = Self { span_ms: (span + span / 20).clamp(SHORTEST_MS, LONGEST_MS), end_ms: None };
    }
}

/// Paints grid lines with times below, and the hair line at the pointer.
pub fn grid(ui: &Ui, axis: &Axis, response: &Response, palette: &Palette) {
    let painter = ui.painter_at(axis.rect.expand2(vec2(30.0, 16.0)));
    let step = step_ms(axis.to_ms - axis.from_ms, axis.rect.width());
    let mut at = axis.from_ms.div_ceil(step) * step;
    let font = FontId::monospace(theme::SMALL - 1.5);
    while at <= axis.to_ms {
        let x = axis.x(at);
        painter.vline(x, axis.rect.y_range(), Stroke::new(1.0, palette.line.gamma_multiply(0.6)));
        let text = clock_time(at, axis.to_ms);
        painter.text(pos2(x, axis.rect.bottom() + 1.0), Align2::CENTER_TOP, text, font.clone(), palette.weak);
        at += step;
    }
    if let Some(at) = response.hover_pos().filter(|at| axis.rect.contains(*at)) {
        painter.vline(at.x, axis.rect.y_range(), Stroke::new(1.0, palette.accent.gamma_multiply(0.7)));
    }
}

/// Hatches the times without data: those in which the store was not read, and all before the first snapshot.
pub fn not_observed(ui: &Ui, axis: &Axis, gaps: &[Gap], palette: &Palette) {
    for gap in gaps.iter().filter(|gap| axis.sees(gap.from_ms, gap.to_ms)) {
        let mut rect = axis.rect;
        rect.set_left(axis.x(gap.from_ms).max(axis.rect.left()));
        rect.set_right(axis.x(gap.to_ms).min(axis.rect.right()));
        if rect.width() <= 1.0 {
            continue;
        }
        let painter = ui.painter().with_clip_rect(rect);
        marks::hatch(&painter, 6.0, palette.weak.gamma_multiply(0.5));
        let font = FontId::proportional(theme::SMALL - 0.5);
        let word = painter.layout_no_wrap(NOT_OBSERVED.to_owned(), font, palette.text);
        if word.size().x + 12.0 < rect.width() {
            let at = pos2(rect.center().x - word.size().x / 2.0, rect.top() + 2.0);
            let behind = Rect::from_min_size(at, word.size()).expand(2.0);
            painter.rect_filled(behind, 2.0, palette.panel);
            painter.galley(at, word, palette.text);
        }
    }
}

/// Until when a history is not observed, in words; empty if all of it is.
pub fn not_observed_before(history: &LockHistory, now_ms: u64) -> String {
    let from = history.observed_from_ms.map(|at| clock_time(at, now_ms));
    from.map(|at| format!("; {NOT_OBSERVED} before {at}")).unwrap_or_default()
}

/// A round step of time that gives labels enough space.
fn step_ms(span_ms: u64, width: f32) -> u64 {
    const STEPS: [u64; 14] = [
        1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000,
        7_200_000, 21_600_000,
    ];
    let labels = (width / 96.0).max(1.0);
    let least = (span_ms as f64 / f64::from(labels)) as u64;
    STEPS.into_iter().find(|step| *step >= least).unwrap_or(43_200_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_the_moment_under_the_pointer_and_the_future_is_followed() {
        let mut view = TimeView { span_ms: 100_000, end_ms: Some(1_000_000) };
        view.zoom(0.5, 950_000, 2_000_000);
        assert_eq!(view, TimeView { span_ms: 50_000, end_ms: Some(975_000) });
        view.zoom(1e9, 975_000, 976_000);
        assert_eq!(view.span_ms, LONGEST_MS);
        let mut live = TimeView::default();
        live.zoom(0.5, 0, 1_000_000);
        assert_eq!(live, TimeView { span_ms: 30_000, end_ms: None });
        live.fit(900_000, 1_000_000);
        assert_eq!(live, TimeView { span_ms: 105_000, end_ms: None });
    }

    #[test]
    fn steps_are_round_and_leave_space() {
        assert_eq!(step_ms(60_000, 960.0), 10_000);
        assert_eq!(step_ms(120_000, 960.0), 15_000);
        assert_eq!(step_ms(24 * 3_600_000, 480.0), 21_600_000);
    }
}
