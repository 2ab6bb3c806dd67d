//! Who waits for whom: rings as rings, everything else as trees from the one that all wait for.

use eframe::egui::{
    Align, FontId, Layout, Painter, Pos2, Rect, RichText, Role, ScrollArea, Sense, Shape, Stroke, StrokeKind,
    Ui, Vec2, WidgetInfo, pos2, vec2,
};

use super::Subject;
use crate::model::graph::Cycle;
use crate::model::text::{harmless, short_span};
use crate::model::wait_for::{Blocker, Graph};
use crate::window::act::Act;
use crate::window::marks;
use crate::window::table::one_line;
use crate::window::theme::{self, Palette};

const BOX: Vec2 = vec2(176.0, 30.0);
const COLUMN: f32 = 250.0;
const ROW: f32 = 44.0;

/// Parties that are drawn in trees; more are counted.
const MOST: usize = 400;

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct GraphPage {
    all: bool,
    made_of: Option<u64>,
    graph: Graph,
    text: String,
}

impl GraphPage {
    pub(super) fn show(&mut self, ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
        if self.made_of != Some(subject.fleet.version()) {
            self.graph = subject.fleet.graph();
            self.text = self.graph.text();
            self.made_of = Some(subject.fleet.version());
        }
        let graph = &self.graph;
        let lock = graph.locks.iter().position(|key| key == subject.key);
        let rings: Vec<&Cycle> =
            graph.rings.iter().filter(|ring| self.all || has(ring, &subject.key.lock)).collect();
        let parties: Vec<usize> = lock.map(|lock| around(graph, lock)).unwrap_or_default();
        let trees: Vec<&Blocker> =
            graph.trees.iter().filter(|tree| self.all || reaches(tree, lock, &parties)).collect();
        ui.horizontal(|ui| {
            ui.checkbox(&mut self.all, "all locks");
            if ui.button("Copy as text").clicked() {
                acts.push(Act::Copy { text: self.text.clone(), what: "the graph".into() });
            }
            legend(ui, subject.palette);
        });
        if rings.is_empty() && trees.is_empty() {
            ui.add_space(6.0);
            ui.label(if self.all {
                "Nobody waits for anybody."
            } else {
                "Nobody waits for this lock, and its holder waits for nobody."
            });
            return;
        }
        ScrollArea::both().auto_shrink(false).show(ui, |ui| {
            ui.with_layout(Layout::left_to_right(Align::Min).with_main_wrap(rings.len() > 1), |ui| {
                for ring in &rings {
                    self.ring(ui, ring, subject);
                }
            });
            for tree in trees {
                self.tree(ui, tree, subject);
            }
        });
    }

    fn who(&self, id: &polylatch::ClientId, subject: &Subject<'_>) -> String {
        let party =
            self.graph.parties.iter().find(|party| party.clients.iter().any(|(_, known)| known == id));
        party.map_or_else(|| subject.people.who(Some(id)), |party| party.who.clone())
    }

    /// A ring: clients and locks in turn around an ellipse.
    fn ring(&self, ui: &mut Ui, ring: &Cycle, subject: &Subject<'_>) {
        let palette = subject.palette;
        let nodes = ring.waits.len() * 2;
        let radius = vec2((nodes as f32 * 52.0).max(190.0), (nodes as f32 * 19.0).max(74.0));
        let size = radius * 2.0 + BOX + vec2(24.0, 40.0);
        let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
        let painter = ui.painter();
        let head = format!("deadlock, closed for {}", short_span(ring.age_ms()));
        let mark = rect.left_top() + vec2(14.0, 14.0);
        marks::state(painter, mark, 13.0, crate::model::LockState::Deadlock, palette);
        painter.text(
            mark + vec2(12.0, 0.0),
            eframe::egui::Align2::LEFT_CENTER,
            &head,
            FontId::proportional(theme::BODY),
            palette.strong,
        );
        let centre = rect.center() + vec2(0.0, 12.0);
        let place = |at: usize| {
            let angle = at as f32 / nodes as f32 * std::f32::consts::TAU - std::f32::consts::PI;
            centre + vec2(angle.cos() * radius.x, angle.sin() * radius.y)
        };
        let cheapest = ring.cheapest().map(|wait| wait.lock.as_str());
        let mut words = vec![head];
        for (at, wait) in ring.waits.iter().enumerate() {
            let (client, lock, holder) = (place(at * 2), place(at * 2 + 1), place((at * 2 + 2) % nodes));
            let waited = format!("waits {}", short_span(wait.waited_ms));
            let held = wait.held_for_ms.map(|ms| format!("held {}", short_span(ms))).unwrap_or_default();
            arrow(painter, client, lock, true, &waited, palette);
            arrow(painter, lock, holder, false, &held, palette);
        }
        for (at, wait) in ring.waits.iter().enumerate() {
            let who = self.who(&wait.waiter, subject);
            let through = wait
                .through
                .as_ref()
                .map(|id| format!(" (by {})", self.who(id, subject)))
                .unwrap_or_default();
            let name = harmless(&wait.lock);
            node(painter, place(at * 2), &who, true, false, palette);
            node(painter, place(at * 2 + 1), &name, false, wait.lock == *subject.key.lock, palette);
            if cheapest == Some(wait.lock.as_str()) {
                let lock = place(at * 2 + 1);
                let away = if lock.y < centre.y { -1.0 } else { 1.0 };
                let below = lock + vec2(0.0, away * (BOX.y / 2.0 + 9.0));
                let text = "breaking here loses least";
                painter.text(
                    below,
                    eframe::egui::Align2::CENTER_CENTER,
                    text,
                    FontId::proportional(theme::SMALL - 0.5),
                    palette.weak,
                );
            }
            words.push(format!(
                "{who}{through} waits for {name}, held by {}",
                self.who(&wait.holder, subject)
            ));
        }
        response.widget_info(|| WidgetInfo::labeled(Role::Figure, true, words.join("; ")));
    }

    /// A tree, from left to right: who is waited for, the lock, who waits.
    fn tree(&self, ui: &mut Ui, tree: &Blocker, subject: &Subject<'_>) {
        let mut drawn = 0;
        let rows = leaves(tree, &mut drawn);
        let size = vec2((depth(tree) as f32 * 2.0 + 1.0) * COLUMN * 0.5 + BOX.x, rows as f32 * ROW + 16.0);
        let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
        let painter = ui.painter();
        let mut words = vec![format!("{} wait for {}", tree.blocked, self.graph.parties[tree.party].who)];
        let mut next = rect.top() + 8.0 + ROW / 2.0;
        let mut left = MOST;
        self.branch(
            painter,
            tree,
            rect.left() + 8.0 + BOX.x / 2.0,
            &mut next,
            &mut left,
            subject,
            &mut words,
        );
        response.widget_info(|| WidgetInfo::labeled(Role::Figure, true, words.join("; ")));
        if drawn > MOST {
            ui.label(RichText::new(format!("and {} more", drawn - MOST)).color(subject.palette.weak));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of a recursion")]
    fn branch(
        &self,
        painter: &Painter,
        tree: &Blocker,
        x: f32,
        next: &mut f32,
        left: &mut usize,
        subject: &Subject<'_>,
        words: &mut Vec<String>,
    ) -> Pos2 {
        *left = left.saturating_sub(1);
        let mut children: Vec<(Option<usize>, Pos2)> = Vec::new();
        for child in &tree.behind {
            if *left == 0 {
                break;
            }
            let at = self.branch(painter, child, x + COLUMN * 2.0 - BOX.x * 0.2, next, left, subject, words);
            children.push((child.waits_for, at));
        }
        let y = match (children.first(), children.last()) {
            (Some((_, first)), Some((_, last))) => (first.y + last.y) / 2.0,
            _ => {
                let y = *next;
                *next += ROW;
                y
            }
        };
        let here = pos2(x, y);
        // Children that wait for the same lock share its box.
        let mut locks: Vec<(usize, Vec<Pos2>)> = Vec::new();
        for (lock, at) in children.iter().filter_map(|(lock, at)| Some((lock.as_ref()?, at))) {
            match locks.iter_mut().find(|(known, _)| known == lock) {
                Some((_, places)) => places.push(*at),
                None => locks.push((*lock, vec![*at])),
            }
        }
        for (lock, places) in &locks {
            let Some(key) = self.graph.locks.get(*lock) else { continue };
            let middle = places.iter().map(|at| at.y).sum::<f32>() / places.len() as f32;
            let place = pos2(x + COLUMN - BOX.x * 0.1, middle);
            let held = self.graph.holds.iter().find(|edge| edge.lock == *lock && edge.party == tree.party);
            let held = held.and_then(|edge| edge.for_ms).map(|ms| format!("held {}", short_span(ms)));
            arrow(painter, place, here, false, &held.unwrap_or_default(), subject.palette);
            for at in places {
                arrow(painter, *at, place, true, "", subject.palette);
            }
            let name = harmless(&key.lock);
            node(painter, place, &name, false, key == subject.key, subject.palette);
            words.push(format!("{name} is held by {}", self.graph.parties[tree.party].who));
        }
        node(painter, here, &self.graph.parties[tree.party].who, true, false, subject.palette);
        here
    }
}

fn has(ring: &Cycle, lock: &str) -> bool {
    ring.waits.iter().any(|wait| wait.lock == lock)
}

/// The parties that hold this lock or wait for it.
fn around(graph: &Graph, lock: usize) -> Vec<usize> {
    graph.holds.iter().chain(&graph.waits).filter(|edge| edge.lock == lock).map(|edge| edge.party).collect()
}

fn reaches(tree: &Blocker, lock: Option<usize>, parties: &[usize]) -> bool {
    (lock.is_some() && tree.waits_for == lock)
        || parties.contains(&tree.party)
        || tree.behind.iter().any(|child| reaches(child, lock, parties))
}

fn leaves(tree: &Blocker, drawn: &mut usize) -> usize {
    *drawn += 1;
    if *drawn > MOST {
        return 0;
    }
    tree.behind.iter().map(|child| leaves(child, drawn)).sum::<usize>().max(1)
}

fn depth(tree: &Blocker) -> usize {
    tree.behind.iter().map(|child| depth(child) + 1).max().unwrap_or(0)
}

/// A client is a rounded box, a lock a plain one.
fn node(painter: &Painter, centre: Pos2, text: &str, client: bool, chosen: bool, palette: &Palette) {
    let rect = Rect::from_center_size(centre, BOX);
    let (round, fill) = if client { (13.0, palette.panel) } else { (2.0, palette.ground) };
    let line = if chosen { Stroke::new(2.0, palette.accent) } else { Stroke::new(1.2, palette.weak) };
    painter.rect(rect, round, fill, line, StrokeKind::Inside);
    let font =
        if client { FontId::proportional(theme::SMALL + 0.5) } else { FontId::monospace(theme::SMALL) };
    let galley = one_line(painter, text, font, palette.strong, BOX.x - 16.0);
    painter.galley(centre - galley.size() / 2.0, galley, palette.strong);
}

/// From a waiting client to a lock dashed, from a lock to its holder solid.
fn arrow(painter: &Painter, from: Pos2, to: Pos2, waits: bool, text: &str, palette: &Palette) {
    let colour = if waits { palette.contended } else { palette.held };
    let (start, end) = (edge(from, to), edge(to, from));
    let line = Stroke::new(palette.stroke(), colour);
    if waits {
        painter.extend(Shape::dashed_line(&[start, end], line, 6.0, 4.0));
    } else {
        painter.line_segment([start, end], line);
    }
    if start != end {
        marks::arrow_head(painter, end, end - start, 9.0, colour);
    }
    if !text.is_empty() {
        let middle = start + (end - start) * 0.5;
        let font = FontId::proportional(theme::SMALL - 0.5);
        let galley = painter.layout_no_wrap(text.to_owned(), font, palette.text);
        let rect = Rect::from_center_size(middle, galley.size() + vec2(6.0, 2.0));
        painter.rect_filled(rect, 3.0, palette.panel);
        painter.galley(rect.min + vec2(3.0, 1.0), galley, palette.text);
    }
}

/// Where the line between two boxes leaves the first.
fn edge(from: Pos2, to: Pos2) -> Pos2 {
    let way = to - from;
    let half = BOX / 2.0;
    let share = (half.x / way.x.abs().max(0.01)).min(half.y / way.y.abs().max(0.01)).min(1.0);
    from + way * share
}

fn legend(ui: &mut Ui, palette: &Palette) {
    for (waits, word) in [(false, "is held by"), (true, "waits for")] {
        let (rect, _) = ui.allocate_exact_size(vec2(26.0, 12.0), Sense::hover());
        let colour = if waits { palette.contended } else { palette.held };
        let line = Stroke::new(palette.stroke(), colour);
        let ends = [rect.left_center(), rect.right_center()];
        if waits {
            ui.painter().extend(Shape::dashed_line(&ends, line, 4.0, 3.0));
        } else {
            ui.painter().line_segment(ends, line);
        }
        marks::arrow_head(ui.painter(), ends[1], vec2(1.0, 0.0), 7.0, colour);
        ui.weak(word);
    }
}
