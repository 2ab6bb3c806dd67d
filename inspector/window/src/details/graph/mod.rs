//! Who waits for whom: rings as rings, everything else as trees from the one that all wait for.

mod layout;
mod view;

use std::collections::HashMap;

use eframe::egui::{Role, Sense, Shape, Stroke, Ui, Vec2, WidgetInfo, vec2};

use self::layout::{Figure, Kind, Layout, Node};
use self::view::View;
use super::Subject;
use crate::act::Act;
use crate::marks;
use crate::theme::Palette;
use model::RowKey;
use model::graph::Cycle;
use model::text::{sanitized, short_span};
use model::wait_for::{Blocker, Graph};

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct GraphPage {
    all: bool,
    made_of: Option<MadeOf>,
    graph: Graph,
    text: String,
    layout: Layout,
    /// What a screen reader says of it.
    words: String,
    view: View,
}

/// What the picture was made from.
#[derive(Debug, PartialEq)]
struct MadeOf {
    version: u64,
    all: bool,
    key: RowKey,
    pane: Vec2,
}

impl GraphPage {
    /// Shows it. `keys`: the keys that zoom are free.
    pub(super) fn show(&mut self, ui: &mut Ui, subject: &Subject<'_>, keys: bool, acts: &mut Vec<Act>) {
        ui.horizontal(|ui| {
            ui.checkbox(&mut self.all, "all locks");
            if ui.button("Copy as text").clicked() {
                acts.push(Act::Copy { text: self.text.clone(), what: "the graph".into() });
            }
            self.view.buttons(ui);
            legend(ui, subject.palette);
        });
        let pane = ui.available_size().max(vec2(40.0, 40.0));
        self.make(subject, pane);
        if self.layout.figures.is_empty() {
            ui.add_space(6.0);
            ui.label(if self.all {
                "No client waits."
            } else {
                "No client waits for this lock, and its holder waits for no other client."
            });
            return;
        }
        let (rect, response) = ui.allocate_exact_size(pane, Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Figure, true, &self.words));
        let keys = keys && !ui.ctx().egui_wants_keyboard_input();
        self.view.draw(ui, rect, &response, &self.layout, keys, subject, acts);
    }

    fn make(&mut self, subject: &Subject<'_>, pane: Vec2) {
        let version = subject.fleet.version();
        let fresh = MadeOf { version, all: self.all, key: subject.key.clone(), pane };
        if self.made_of.as_ref() == Some(&fresh) {
            return;
        }
        match &self.made_of {
            Some(made) if made.version == version => {}
            _ => {
                self.graph = subject.fleet.graph();
                self.text = self.graph.text();
            }
        }
        if self.made_of.as_ref().is_some_and(|made| made.key != fresh.key || made.all != fresh.all) {
            self.view = View::default();
        }
        let aspect = pane.x / pane.y;
        let names = Names::of(&self.graph, subject);
        let lock = self.graph.locks.iter().position(|key| key == subject.key);
        let rings = self.graph.rings.iter().filter(|ring| self.all || has(ring, &subject.key.lock));
        let mut words = Vec::new();
        let mut figures: Vec<Figure> = rings.map(|ring| names.ring(ring, aspect, &mut words)).collect();
        let parties: Vec<usize> = lock.map(|lock| around(&self.graph, lock)).unwrap_or_default();
        for tree in self.graph.trees.iter().filter(|tree| self.all || reaches(tree, lock, &parties)) {
            figures.push(layout::tree(&self.graph, tree));
            describe(&self.graph, tree, &mut words);
        }
        self.words = words.join("; ");
        self.layout = Layout::of(figures, pane);
        self.made_of = Some(fresh);
    }
}

/// What parties are called.
struct Names<'a> {
    by_id: HashMap<&'a polylatch::ClientId, &'a str>,
    subject: &'a Subject<'a>,
}

impl<'a> Names<'a> {
    fn of(graph: &'a Graph, subject: &'a Subject<'a>) -> Self {
        let ids = graph
            .parties
            .iter()
            .flat_map(|party| party.clients.iter().map(|(_, id)| (id, party.who.as_str())));
        Self { by_id: ids.collect(), subject }
    }

    fn who(&self, id: &polylatch::ClientId) -> String {
        let known = self.by_id.get(id).map(|who| (*who).to_owned());
        known.unwrap_or_else(|| self.subject.people.who(Some(id)))
    }

    /// A ring: clients and locks in turn.
    fn ring(&self, ring: &Cycle, aspect: f32, words: &mut Vec<String>) -> Figure {
        let age = short_span(ring.age_ms());
        let proved = ring.is_proved();
        let head = match proved {
            true => format!("deadlock, closed for {age}"),
            false => format!("possible deadlock, unchanged for {age}"),
        };
        words.push(head.clone());
        let cheapest = ring.cheapest().filter(|_| proved);
        let mut nodes = Vec::with_capacity(ring.waits.len() * 2);
        for wait in &ring.waits {
            let who = self.who(&wait.waiter);
            let through =
                wait.through.as_ref().map(|id| format!(" (by {})", self.who(id))).unwrap_or_default();
            let wish = layout::task(&sanitized(&wait.label), "waits", Some(wait.waited_ms));
            let name = sanitized(&wait.lock);
            let mut held = layout::task(&sanitized(&wait.holder_label), "held", wait.held_for_ms);
            let best_break = cheapest.is_some_and(|cheapest| std::ptr::eq(cheapest, wait));
            if best_break {
                held = format!("break here; {held}");
            }
            let holder = self.who(&wait.holder);
            words.push(format!("{who}{through} waits for {name}, held by {holder}"));
            nodes.push(Node::new(Kind::Client, format!("{who}{through}"), wish));
            let key = RowKey { connection: wait.connection.clone(), lock: wait.lock.as_str().into() };
            nodes.push(Node { lock: Some(key), best_break, ..Node::new(Kind::Lock, name, held) });
        }
        layout::ring(head, nodes, aspect)
    }
}

/// Says what a tree shows, as far as it is drawn.
fn describe(graph: &Graph, tree: &Blocker, words: &mut Vec<String>) {
    let who = |party: usize| &graph.parties[party].who;
    words.push(format!("{} wait for {}", tree.blocked, who(tree.party)));
    let mut open = vec![tree];
    while let Some(holder) = open.pop() {
        for next in holder.behind.iter().take(layout::MOST_WAITERS) {
            let Some(lock) = next.waits_for.map(|at| sanitized(&graph.locks[at].lock)) else { continue };
            words.push(format!("{} waits for {lock}, held by {}", who(next.party), who(holder.party)));
            open.push(next);
        }
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
