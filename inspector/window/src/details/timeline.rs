//! Who held the lock when, who waited, how it changed hands.

use std::collections::HashMap;

use eframe::egui::{Align2, FontId, Rect, Role, ScrollArea, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};

use super::time_axis::{Axis, NOT_OBSERVED, TimeView, grid, not_observed, not_observed_before};
use crate::marks;
use crate::table::one_line;
use crate::theme::{self, Palette};
use model::history::{Gap, Hold, HoldEnd, LockHistory, Waited};
use model::text::{clock_time, sanitized, span};

const NAMES: f32 = 150.0;
const LANE: f32 = 22.0;

/// What the timeline shows.
pub struct Timeline<'a> {
    pub history: &'a LockHistory,
    pub gaps: &'a [Gap],
    /// The present on the store's clock.
    pub now_ms: u64,
    /// What a client is called; sanitized.
    pub who: &'a dyn Fn(Option<&polylatch::ClientId>) -> String,
}

/// What one process did with the lock.
struct Lane<'a> {
    name: String,
    holds: Vec<&'a Hold>,
    waits: Vec<&'a Waited>,
}

impl Timeline<'_> {
    /// Shows it with its buttons.
    pub fn show(&self, ui: &mut Ui, view: &mut TimeView, palette: &Palette) {
        self.buttons(ui, view, palette);
        let lanes = self.lanes(view);
        if lanes.is_empty() {
            ui.weak("It was neither held nor waited for in this time.");
        }
        let height = (lanes.len().max(2) as f32 * LANE + 4.0).min(1_000.0);
        ScrollArea::vertical().id_salt("lanes").auto_shrink([false, true]).show(ui, |ui| {
            let (axis, response) = view.allocate(ui, height, NAMES, self.now_ms);
            grid(ui, &axis, &response, palette);
            not_observed(ui, &axis, self.gaps, palette);
            let pointer = response.hover_pos();
            let mut under = None;
            for (at, lane) in lanes.iter().enumerate() {
                let top = axis.rect.top() + 2.0 + at as f32 * LANE;
                let row = Rect::from_min_max(
                    pos2(axis.rect.left() - NAMES, top),
                    pos2(axis.rect.right(), top + LANE),
                );
                let font = FontId::proportional(theme::SMALL + 0.5);
                let name = one_line(ui.painter(), &lane.name, font, palette.text, NAMES - 12.0);
                ui.painter().galley(
                    pos2(row.left() + 4.0, row.center().y - name.size().y / 2.0),
                    name,
                    palette.text,
                );
                let bars = axis.rect.intersect(row);
                let hovered = pointer.filter(|at| bars.contains(*at)).map(|at| at.x);
                under = self.lane(ui, &axis, bars, lane, hovered, palette).or(under);
            }
            ui.add_space(16.0);
            let text = self.text(&lanes);
            response.widget_info(|| WidgetInfo::labeled(Role::Figure, true, &text));
            if let Some(text) = under {
                response.on_hover_text_at_pointer(text);
            }
        });
    }

    fn buttons(&self, ui: &mut Ui, view: &mut TimeView, palette: &Palette) {
        ui.horizontal(|ui| {
            let first = self.history.holds.front().map(|hold| hold.from_ms);
            let first = first.into_iter().chain(self.history.waits.front().map(|wait| wait.from_ms)).min();
            if ui.small_button("Fit").on_hover_text("Everything that is remembered").clicked()
                && let Some(first) = first
            {
                view.fit(first, self.now_ms);
            }
            if ui.small_button("-").on_hover_text("Show more time").clicked() {
                view.zoom(2.0, view.end_ms.unwrap_or(self.now_ms), self.now_ms);
            }
            if ui.small_button("+").on_hover_text("Show less time").clicked() {
                view.zoom(0.5, view.end_ms.unwrap_or(self.now_ms), self.now_ms);
            }
            let mut live = view.end_ms.is_none();
            if ui.checkbox(&mut live, "follow").changed() {
                view.end_ms = if live { None } else { Some(self.now_ms) };
            }
            ui.separator();
            for (mark, word) in [(0, "holds"), (1, "waits"), (2, "expired"), (3, "broken"), (4, NOT_OBSERVED)]
            {
                let (rect, _) = ui.allocate_exact_size(vec2(20.0, 12.0), eframe::egui::Sense::hover());
                legend(ui, rect, mark, palette);
                ui.weak(word);
            }
        });
    }

    fn lanes(&self, view: &TimeView) -> Vec<Lane<'_>> {
        let to = view.end_ms.unwrap_or(self.now_ms);
        let from = to.saturating_sub(view.span_ms);
        let seen = |a: u64, b: Option<u64>| a <= to && b.unwrap_or(u64::MAX) >= from;
        let mut lanes: Vec<Lane<'_>> = Vec::new();
        let mut places: HashMap<Option<&str>, usize> = HashMap::new();
        let holds = self.history.holds.iter().filter(|hold| seen(hold.from_ms, hold.to_ms));
        let waits = self.history.waits.iter().filter(|wait| seen(wait.from_ms, wait.to_ms));
        for hold in holds {
            let key = hold.by.client.as_ref().map(|id| id.as_str());
            let place = *places.entry(key).or_insert_with(|| {
                lanes.push(Lane { name: (self.who)(hold.by.client.as_ref()), holds: vec![], waits: vec![] });
                lanes.len() - 1
            });
            lanes[place].holds.push(hold);
        }
        for wait in waits {
            let place = *places.entry(Some(wait.client.as_str())).or_insert_with(|| {
                lanes.push(Lane { name: (self.who)(Some(&wait.client)), holds: vec![], waits: vec![] });
                lanes.len() - 1
            });
            lanes[place].waits.push(wait);
        }
        lanes
    }

    /// Paints one lane; returns what is said of the thing under the pointer.
    fn lane(
        &self,
        ui: &Ui,
        axis: &Axis,
        rect: Rect,
        lane: &Lane<'_>,
        pointer: Option<f32>,
        palette: &Palette,
    ) -> Option<String> {
        let painter = ui.painter().with_clip_rect(rect);
        let y = rect.center().y;
        let mut under = None;
        let is_under =
            |left: f32, right: f32| pointer.is_some_and(|x| (left - 2.0..=right + 2.0).contains(&x));
        for wait in &lane.waits {
            let (left, right) = (axis.x(wait.from_ms), axis.x(wait.to_ms.unwrap_or(self.now_ms)));
            let line = Stroke::new(palette.stroke(), palette.contended);
            painter.extend(eframe::egui::Shape::dashed_line(
                &[pos2(left, y), pos2(right, y)],
                line,
                4.0,
                3.0,
            ));
            if wait.to_ms.is_some() && !wait.got_it {
                marks::cross(&painter, pos2(right, y), 3.5, line);
            }
            if is_under(left, right) {
                under = Some(self.told_wait(lane, wait));
            }
        }
        for hold in &lane.holds {
            let (left, right) = (axis.x(hold.from_ms), axis.x(hold.to_ms.unwrap_or(self.now_ms)));
            let bar = Rect::from_min_max(
                pos2(left, rect.top() + 3.0),
                pos2(right.max(left + 2.0), rect.bottom() - 3.0),
            );
            painter.rect_filled(bar, 2.0, palette.held.gamma_multiply(0.45));
            painter.rect_stroke(bar, 2.0, Stroke::new(1.0, palette.held), StrokeKind::Inside);
            end_mark(&painter, bar, hold.end, palette);
            let text =
                hold.fencing_token.map_or_else(|| sanitized(&hold.by.label), |token| format!("{token}"));
            let visible = bar.intersect(rect);
            if visible.width() > 40.0 {
                let font = FontId::monospace(theme::SMALL - 1.5);
                let galley = one_line(&painter, &text, font, palette.strong, visible.width() - 8.0);
                let at = pos2(visible.left() + 4.0, y - galley.size().y / 2.0);
                painter.galley(at, galley, palette.strong);
            }
            if is_under(bar.left(), bar.right()) {
                under = Some(self.told_hold(lane, hold));
            }
        }
        under
    }

    fn told_hold(&self, lane: &Lane<'_>, hold: &Hold) -> String {
        let to = hold.to_ms.unwrap_or(self.now_ms);
        let length = span(to.saturating_sub(hold.from_ms));
        let length = if hold.began_unseen { format!("at least {length}") } else { length };
        let end = match hold.end {
            None => "still held",
            Some(HoldEnd::Released) => "released",
            Some(HoldEnd::Expired) => "expired",
            Some(HoldEnd::Broken) => "broken by an operator",
            Some(HoldEnd::Unseen) => "over after a time that was not observed",
        };
        let label = if hold.by.label.is_empty() {
            String::new()
        } else {
            format!(" \"{}\"", sanitized(&hold.by.label))
        };
        let token = hold.fencing_token.map(|token| format!("\ntoken {token}")).unwrap_or_default();
        let from = clock_time(hold.from_ms, self.now_ms);
        format!("{}{label}\nheld {length} from {from}, {end}{token}", lane.name)
    }

    fn told_wait(&self, lane: &Lane<'_>, wait: &Waited) -> String {
        let length = span(wait.to_ms.unwrap_or(self.now_ms).saturating_sub(wait.from_ms));
        let end = match (wait.to_ms, wait.got_it) {
            (None, _) => "still waits",
            (Some(_), true) => "then got it",
            (Some(_), false) => "then gave up",
        };
        format!("{}\nwaited {length}, {end}", lane.name)
    }

    /// The same in words, for who cannot see it.
    fn text(&self, lanes: &[Lane<'_>]) -> String {
        let holds = lanes.iter().flat_map(|lane| lane.holds.iter().map(move |hold| (lane, hold)));
        let mut parts: Vec<(u64, String)> = holds
            .map(|(lane, hold)| (hold.from_ms, self.told_hold(lane, hold).replace('\n', ", ")))
            .collect();
        parts.sort();
        let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
        format!("timeline: {}{}", parts.join("; "), not_observed_before(self.history, self.now_ms))
    }
}

fn end_mark(painter: &eframe::egui::Painter, bar: Rect, end: Option<HoldEnd>, palette: &Palette) {
    match end {
        Some(HoldEnd::Expired) => {
            let rect = Rect::from_min_max(pos2((bar.right() - 6.0).max(bar.left()), bar.top()), bar.max);
            painter.rect_filled(rect, 0.0, palette.expiring);
        }
        Some(HoldEnd::Broken) => {
            let line = Stroke::new(palette.stroke() + 0.6, palette.orphan);
            marks::cross(painter, pos2(bar.right(), bar.center().y), 5.0, line);
        }
        Some(HoldEnd::Unseen) => {
            let rect = Rect::from_min_max(pos2((bar.right() - 10.0).max(bar.left()), bar.top()), bar.max);
            marks::hatch(&painter.with_clip_rect(rect.intersect(painter.clip_rect())), 3.0, palette.weak);
        }
        Some(HoldEnd::Released) | None => {}
    }
}

fn legend(ui: &Ui, rect: Rect, mark: u8, palette: &Palette) {
    let painter = ui.painter().with_clip_rect(rect);
    let bar = rect.shrink2(vec2(0.0, 1.0));
    match mark {
        1 => {
            let line = Stroke::new(palette.stroke(), palette.contended);
            let ends = [rect.left_center(), rect.right_center()];
            painter.extend(eframe::egui::Shape::dashed_line(&ends, line, 4.0, 3.0));
        }
        4 => marks::hatch(&painter, 5.0, palette.weak),
        _ => {
            painter.rect_filled(bar, 2.0, palette.held.gamma_multiply(0.45));
            painter.rect_stroke(bar, 2.0, Stroke::new(1.0, palette.held), StrokeKind::Inside);
            let end = [None, None, Some(HoldEnd::Expired), Some(HoldEnd::Broken)][usize::from(mark)];
            let bar = if mark == 3 { bar.with_max_x(bar.right() - 5.0) } else { bar };
            end_mark(&painter, bar, end, palette);
        }
    }
}

/// Where nothing is remembered yet.
pub fn nothing_yet(ui: &Ui, palette: &Palette) {
    let font = FontId::proportional(theme::BODY);
    let text = "Nothing is remembered of this lock yet.";
    ui.painter().text(ui.max_rect().center(), Align2::CENTER_CENTER, text, font, palette.weak);
}
