//! The marks of states: painted shapes, the same on every machine and without colour.

use eframe::egui::{Color32, Painter, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};

use super::theme::Palette;
use model::LockState;

/// Paints the mark of a state around a point, in a square of `size`.
pub fn state(painter: &Painter, centre: Pos2, size: f32, state: LockState, palette: &Palette) {
    let colour = palette.state(state);
    let line = Stroke::new(palette.stroke(), colour);
    let r = size * 0.5;
    match state {
        LockState::Held => {
            painter.circle_filled(centre, r * 0.78, colour);
        }
        LockState::Contended => {
            painter.circle_stroke(centre, r * 0.66, Stroke::new(palette.stroke() + 0.8, colour));
        }
        LockState::Endangered => {
            painter.add(Shape::closed_line(triangle(centre, r * 0.86), line));
        }
        LockState::NoRenewal => {
            painter.add(Shape::convex_polygon(triangle(centre, r * 0.95), colour, Stroke::NONE));
        }
        LockState::NoExpiry => {
            painter.rect_filled(Rect::from_center_size(centre, Vec2::splat(r * 1.4)), 1.0, colour);
        }
        LockState::Gone => cross(painter, centre, r * 0.6, Stroke::new(palette.stroke() + 0.6, colour)),
        LockState::Stopped => {
            for side in [-1.0, 1.0] {
                let bar =
                    Rect::from_center_size(centre + vec2(side * r * 0.38, 0.0), vec2(r * 0.42, r * 1.5));
                painter.rect_filled(bar, 1.0, colour);
            }
        }
        LockState::Deadlock => {
            painter.add(Shape::closed_line(
                diamond(centre, r * 0.8),
                Stroke::new(palette.stroke() + 0.9, colour),
            ));
        }
        LockState::MayDeadlock => {
            let mut outline = diamond(centre, r * 0.8);
            outline.push(outline[0]);
            painter.extend(Shape::dashed_line(&outline, line, 2.5, 1.8));
        }
        LockState::Foreign => dashed_circle(painter, centre, r * 0.7, line),
        LockState::Free => {
            painter.rect_filled(Rect::from_center_size(centre, vec2(r * 1.3, r * 0.36)), 1.0, colour);
        }
        LockState::LockDelay => {
            for side in [-1.0, 1.0] {
                let part =
                    Rect::from_center_size(centre + vec2(side * r * 0.45, 0.0), vec2(r * 0.5, r * 0.36));
                painter.rect_filled(part, 1.0, colour);
            }
        }
        LockState::Unknown => unknown(painter, centre, size, palette),
    }
}

/// Paints the mark for what is not known any more: a hatched circle.
fn unknown(painter: &Painter, centre: Pos2, size: f32, palette: &Palette) {
    let colour = palette.free.gamma_multiply(0.8);
    let r = size * 0.38;
    painter.circle_stroke(centre, r, Stroke::new(1.2, colour));
    hatch(&painter.with_clip_rect(Rect::from_center_size(centre, Vec2::splat(r * 1.4))), 3.0, colour);
}

/// Fills the painter's clip rectangle with slanted lines: no data.
pub fn hatch(painter: &Painter, gap: f32, colour: Color32) {
    let rect = painter.clip_rect();
    let mut x = rect.left() - rect.height();
    let line = Stroke::new(1.0, colour);
    while x < rect.right() {
        painter.line_segment([pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())], line);
        x += gap;
    }
}

/// Paints a dashed circle.
fn dashed_circle(painter: &Painter, centre: Pos2, r: f32, line: Stroke) {
    const DASHES: usize = 6;
    for dash in 0..DASHES {
        let from = dash as f32 / DASHES as f32 * std::f32::consts::TAU;
        let arc = (0..=3).map(|step| {
            let angle = from + step as f32 / 3.0 * std::f32::consts::TAU / (DASHES as f32 * 1.8);
            centre + vec2(angle.cos(), angle.sin()) * r
        });
        painter.add(Shape::line(arc.collect(), line));
    }
}

/// Paints a cross.
pub fn cross(painter: &Painter, centre: Pos2, r: f32, line: Stroke) {
    painter.line_segment([centre + vec2(-r, -r), centre + vec2(r, r)], line);
    painter.line_segment([centre + vec2(-r, r), centre + vec2(r, -r)], line);
}

/// Paints a small arrow head that points along `direction`.
pub fn arrow_head(painter: &Painter, tip: Pos2, direction: Vec2, size: f32, colour: Color32) {
    let along = direction.normalized() * size;
    let across = along.rot90() * 0.55;
    let points = vec![tip, tip - along + across, tip - along - across];
    painter.add(Shape::convex_polygon(points, colour, Stroke::NONE));
}

fn triangle(centre: Pos2, r: f32) -> Vec<Pos2> {
    vec![centre + vec2(0.0, -r), centre + vec2(r * 0.94, r * 0.72), centre + vec2(-r * 0.94, r * 0.72)]
}

fn diamond(centre: Pos2, r: f32) -> Vec<Pos2> {
    vec![centre + vec2(0.0, -r), centre + vec2(r, 0.0), centre + vec2(0.0, r), centre + vec2(-r, 0.0)]
}

/// A lease as a bar: a frame, and what is left of it in the state's colour.
pub fn lease_bar(painter: &Painter, rect: Rect, share: f32, colour: Color32, palette: &Palette) {
    painter.rect_filled(rect, 2.0, palette.well);
    if share > 0.0 {
        let width = (rect.width() * share.clamp(0.0, 1.0)).max(2.0);
        painter.rect_filled(Rect::from_min_size(rect.min, vec2(width, rect.height())), 2.0, colour);
    }
    painter.rect_stroke(rect, 2.0, Stroke::new(1.0, palette.line), StrokeKind::Inside);
}
