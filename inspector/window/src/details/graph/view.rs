//! The graph on the screen: fitted to its pane, or zoomed and moved by hand.

use eframe::egui::{
    Align2, FontId, Key, Modifiers, Painter, Pos2, Rect, Response, Shape, Stroke, StrokeKind, Ui, Vec2, pos2,
    vec2,
};

use super::layout::{Arrow, Kind, Layout, Node};
use crate::act::Act;
use crate::details::Subject;
use crate::marks;
use crate::table::{one_line, one_name};
use crate::theme::{self, Palette};
use model::LockState;

/// How much a key or a button zooms.
const STEP: f32 = 1.25;
const SMALLEST: f32 = 0.02;
const LARGEST: f32 = 3.0;
/// Around the picture when it is fitted.
const MARGIN: f32 = 10.0;
/// Below this size letters are only a grey line.
const READABLE: f32 = 4.0;

/// What of the picture is shown; at first all of it.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The scale, and what of the picture is in the middle of the pane.
    by_hand: Option<(f32, Pos2)>,
    /// A button was pressed: by how much to zoom.
    wish: Option<f32>,
    /// The scale of the last frame.
    scale: f32,
}

impl View {
    /// Shows the buttons that zoom.
    pub(super) fn buttons(&mut self, ui: &mut Ui) {
        for (sign, name, key, by) in [("−", "Zoom out", "-", 1.0 / STEP), ("+", "Zoom in", "+", STEP)] {
            let hint = format!("{name} ({key}, or the wheel)");
            if ui.small_button(sign).on_hover_text(hint).accessible_name(name).clicked() {
                self.wish = Some(by);
            }
        }
        let fit = ui.small_button("Fit").on_hover_text("All of the graph (0); drag to move it");
        if fit.accessible_name("Fit the graph").clicked() {
            self.by_hand = None;
        }
        ui.weak(format!("{:.0} %", self.scale * 100.0));
    }

    /// Draws the picture into a part of the screen, and takes what is done to it.
    #[expect(clippy::too_many_arguments, reason = "a step of one function, named for reading")]
    pub(super) fn draw(
        &mut self,
        ui: &Ui,
        rect: Rect,
        response: &Response,
        layout: &Layout,
        keys: bool,
        subject: &Subject<'_>,
        acts: &mut Vec<Act>,
    ) {
        let room = rect.size() - Vec2::splat(MARGIN * 2.0);
        let fitted = (layout.fit(room.max(Vec2::splat(1.0))), (layout.size / 2.0).to_pos2());
        self.take(ui, rect, response, keys, fitted);
        let (scale, middle) = self.by_hand.unwrap_or(fitted);
        self.scale = scale;
        let place = Place { scale, origin: rect.center() - middle.to_vec2() * scale };
        let painter = ui.painter_at(rect);
        for (at, figure) in &layout.figures {
            if !figure.head.is_empty() {
                place.head(&painter, *at, &figure.head, subject.palette);
            }
            for arrow in &figure.arrows {
                place.arrow(&painter, arrow, subject.palette);
            }
            for node in figure.nodes.iter().filter(|node| rect.intersects(place.rect(node.rect))) {
                let chosen = node.lock.as_ref() == Some(subject.key);
                place.node(&painter, node, chosen, subject.palette);
            }
        }
        let Some(pointer) = response.hover_pos() else { return };
        let Some(node) = layout.nodes().find(|node| place.rect(node.rect).contains(pointer)) else { return };
        if response.clicked()
            && let Some(key) = &node.lock
        {
            acts.push(Act::Select(key.clone()));
        }
        response.clone().on_hover_text_at_pointer(format!("{}\n{}", node.name, node.detail));
    }

    fn take(&mut self, ui: &Ui, rect: Rect, response: &Response, keys: bool, fitted: (f32, Pos2)) {
        let now = self.by_hand.unwrap_or(fitted);
        let mut zoom = self.wish.take();
        if keys {
            ui.input_mut(|input| {
                for (key, by) in [(Key::Plus, STEP), (Key::Equals, STEP), (Key::Minus, 1.0 / STEP)] {
                    if input.consume_key(Modifiers::NONE, key) || input.consume_key(Modifiers::SHIFT, key) {
                        zoom = Some(by);
                    }
                }
                if input.consume_key(Modifiers::NONE, Key::Num0) {
                    self.by_hand = None;
                }
            });
        }
        let mut around = rect.center();
        if let Some(pointer) = response.hover_pos() {
            let (wheel, pinch) = ui.input(|input| (input.smooth_scroll_delta().y, input.zoom_delta()));
            let by = (wheel / 240.0).exp() * pinch;
            if by != 1.0 {
                (zoom, around) = (Some(by), pointer);
            }
        }
        if let Some(by) = zoom {
            let (scale, middle) = now;
            let next = (scale * by).clamp(SMALLEST, LARGEST);
            // What is under the pointer stays there.
            let away = around - rect.center();
            self.by_hand = Some((next, middle + away / scale - away / next));
        } else if response.dragged() && response.drag_delta() != Vec2::ZERO {
            let (scale, middle) = now;
            self.by_hand = Some((scale, middle - response.drag_delta() / scale));
        }
    }
}

/// Where the picture is on the screen.
struct Place {
    scale: f32,
    origin: Pos2,
}

impl Place {
    fn pos(&self, at: Pos2) -> Pos2 {
        self.origin + at.to_vec2() * self.scale
    }

    fn rect(&self, rect: Rect) -> Rect {
        Rect::from_min_max(self.pos(rect.min), self.pos(rect.max))
    }

    /// Sizes of letters in steps, so that few are kept.
    fn letters(&self, size: f32) -> f32 {
        (size * self.scale * 2.0).round() / 2.0
    }

    fn head(&self, painter: &Painter, at: Pos2, text: &str, palette: &Palette) {
        let mark = self.pos(at + vec2(8.0, 9.0));
        let proved = text.starts_with("deadlock");
        let state = if proved { LockState::Deadlock } else { LockState::MayDeadlock };
        marks::state(painter, mark, 13.0 * self.scale.min(1.0), state, palette);
        let font = FontId::proportional(self.letters(theme::BODY).max(READABLE));
        painter.text(self.pos(at + vec2(20.0, 9.0)), Align2::LEFT_CENTER, text, font, palette.strong);
    }

    /// A client is a rounded box, a lock a plain one.
    fn node(&self, painter: &Painter, node: &Node, chosen: bool, palette: &Palette) {
        let rect = self.rect(node.rect);
        let (round, fill) = match node.kind {
            Kind::Lock => (2.0, palette.ground),
            Kind::Client => (13.0, palette.panel),
            Kind::Waiter | Kind::More => (9.0, palette.panel),
        };
        let line = match () {
            () if chosen => Stroke::new(2.0, palette.accent),
            () if node.best_break => Stroke::new(2.0, palette.deadlock),
            () => Stroke::new(1.2, palette.weak),
        };
        painter.rect(rect, round * self.scale.min(1.0), fill, line, StrokeKind::Inside);
        let size = self.letters(theme::SMALL);
        let inner = rect.shrink2(vec2(8.0, 2.0) * self.scale);
        if size < READABLE {
            let line = Stroke::new(1.0, palette.line);
            painter.line_segment([inner.left_center(), inner.right_center()], line);
            return;
        }
        let detail = FontId::proportional(self.letters(theme::SMALL - 1.0));
        let name = |width: f32| match node.kind {
            Kind::Lock => one_name(painter, &node.name, FontId::monospace(size), palette.strong, width),
            _ => one_line(painter, &node.name, FontId::proportional(size), palette.strong, width),
        };
        if matches!(node.kind, Kind::Waiter | Kind::More) {
            let detail = one_line(painter, &node.detail, detail, palette.weak, inner.width() * 0.6);
            let room = inner.width() - detail.size().x - 6.0 * self.scale;
            let name = name(room);
            let y = |height: f32| rect.center().y - height / 2.0;
            painter.galley(
                pos2(inner.right() - detail.size().x, y(detail.size().y)),
                detail.clone(),
                palette.weak,
            );
            painter.galley(pos2(inner.left(), y(name.size().y)), name, palette.strong);
            return;
        }
        let name = name(inner.width());
        if node.detail.is_empty() {
            painter.galley(rect.center() - name.size() / 2.0, name, palette.strong);
            return;
        }
        let detail = one_line(painter, &node.detail, detail, palette.weak, inner.width());
        let x = |width: f32| rect.center().x - width / 2.0;
        let middle = rect.center().y;
        painter.galley(pos2(x(name.size().x), middle - name.size().y), name, palette.strong);
        painter.galley(pos2(x(detail.size().x), middle), detail, palette.weak);
    }

    /// From a waiting client to a lock dashed, from a lock to its holder solid.
    fn arrow(&self, painter: &Painter, arrow: &Arrow, palette: &Palette) {
        let colour = if arrow.waits { palette.contended } else { palette.held };
        let [start, end] = arrow.ends.map(|end| self.pos(end));
        if !painter.clip_rect().intersects(Rect::from_two_pos(start, end).expand(1.0)) {
            return;
        }
        let line = Stroke::new(palette.stroke(), colour);
        if arrow.waits {
            painter.extend(Shape::dashed_line(&[start, end], line, 6.0, 4.0));
        } else {
            painter.line_segment([start, end], line);
        }
        marks::arrow_head(painter, end, end - start, (9.0 * self.scale).clamp(3.0, 9.0), colour);
    }
}
