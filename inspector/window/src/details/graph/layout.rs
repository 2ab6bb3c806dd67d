//! Where the boxes and arrows of the graph are, in points at full size, with the upper left corner at zero.

use std::collections::HashSet;

use eframe::egui::{Pos2, Rect, Vec2, pos2, vec2};

use model::RowKey;
use model::text::{count, short_span};
use model::wait_for::{Blocker, Edge, Graph};

/// A client or a lock: a name, and a line of details below it.
const BOX: Vec2 = vec2(196.0, 38.0);
/// A waiter behind which nothing waits: one line.
const LINE: Vec2 = vec2(330.0, 22.0);
/// Between neighbours; an arrow must fit.
const GAP: Vec2 = vec2(40.0, 26.0);
const BETWEEN_LINES: f32 = 5.0;
const BETWEEN_FIGURES: Vec2 = vec2(36.0, 28.0);
const HEAD: f32 = 28.0;

/// Waiters of one lock that are drawn each; more are counted.
pub(super) const MOST_WAITERS: usize = 20;

/// Boxes of one tree; what is beyond is counted at its lock.
const MOST_BOXES: usize = 400;

/// What a box stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Client,
    Lock,
    Waiter,
    /// Waiters that are only counted.
    More,
}

/// A box. Its texts are sanitized.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub kind: Kind,
    pub rect: Rect,
    pub name: String,
    pub detail: String,
    /// Which lock it is.
    pub lock: Option<RowKey>,
    /// Breaking this lock ends the deadlock at the least cost.
    pub best_break: bool,
}

impl Node {
    pub(super) fn new(kind: Kind, name: String, detail: String) -> Self {
        let size = if matches!(kind, Kind::Waiter | Kind::More) { LINE } else { BOX };
        let rect = Rect::from_min_size(Pos2::ZERO, size);
        Self { kind, rect, name, detail, lock: None, best_break: false }
    }

    fn at(mut self, left_top: Pos2) -> Self {
        self.rect = Rect::from_min_size(left_top, self.rect.size());
        self
    }
}

/// An arrow between two boxes; it begins and ends at their edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arrow {
    pub from: usize,
    pub to: usize,
    pub ends: [Pos2; 2],
    /// From a waiter to a lock, not from a lock to its holder.
    pub waits: bool,
}

/// Something that is read as one: a ring or a tree.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Figure {
    /// Stands above it; empty if there is none.
    pub head: String,
    pub nodes: Vec<Node>,
    pub arrows: Vec<Arrow>,
    pub size: Vec2,
}

impl Figure {
    fn link(&mut self, from: usize, to: usize, waits: bool) {
        let (start, end) = (self.nodes[from].rect, self.nodes[to].rect);
        let ends = if start.min.x >= end.max.x {
            [start.left_center(), end.right_center()]
        } else if start.max.x <= end.min.x {
            [start.right_center(), end.left_center()]
        } else if start.min.y >= end.max.y {
            [start.center_top(), end.center_bottom()]
        } else {
            [start.center_bottom(), end.center_top()]
        };
        self.arrows.push(Arrow { from, to, ends, waits });
    }

    fn moved(mut self, by: Vec2) -> Self {
        for node in &mut self.nodes {
            node.rect = node.rect.translate(by);
        }
        for arrow in &mut self.arrows {
            arrow.ends = arrow.ends.map(|end| end + by);
        }
        self
    }
}

/// A ring: waiter, lock, waiter, lock and so on, each next to the one that follows, for a pane whose width is
/// `aspect` times its height.
pub(super) fn ring(head: String, nodes: Vec<Node>, aspect: f32) -> Figure {
    let count = nodes.len();
    let step = BOX + GAP;
    let size = |cells: &[(usize, usize)]| {
        let [rows, columns] =
            cells.iter().fold([0, 0], |[rows, columns], &(row, column)| [rows.max(row), columns.max(column)]);
        vec2(columns as f32 * step.x + BOX.x, HEAD + rows as f32 * step.y + BOX.y)
    };
    // The largest scale at which it fits.
    let fits = |cells: &Vec<(usize, usize)>| {
        let size = size(cells);
        (aspect / size.x).min(1.0 / size.y)
    };
    let ways = (2..=count).step_by(2).filter_map(|rows| around(count, rows));
    let cells = ways.max_by(|one, other| fits(one).total_cmp(&fits(other))).unwrap_or_default();
    let mut figure = Figure { head, size: size(&cells), ..Figure::default() };
    for (node, (row, column)) in nodes.into_iter().zip(&cells) {
        let place = pos2(*column as f32 * step.x, HEAD + *row as f32 * step.y);
        figure.nodes.push(node.at(place));
    }
    for at in 0..figure.nodes.len() {
        figure.link(at, (at + 1) % count, at % 2 == 0);
    }
    figure
}

/// A closed way through `count` cells of a grid with so many rows, from each cell to a neighbour: along the first row,
/// back and forth through the others, and up the first column. Both numbers are even. `None` if there is none.
fn around(count: usize, rows: usize) -> Option<Vec<(usize, usize)>> {
    let columns = count.div_ceil(rows);
    // Each pair of rows is joined at the right, and may be joined a column earlier.
    let early = (rows * columns - count) / 2;
    if columns < 2 || (columns == 2 && early > 0) {
        return None;
    }
    let mut cells = Vec::with_capacity(count);
    let pairs = rows / 2;
    for pair in 0..pairs {
        let last = columns - 1 - usize::from(pair >= pairs - early);
        let first = usize::from(pair > 0);
        cells.extend((first..=last).map(|column| (pair * 2, column)));
        let first = usize::from(pair + 1 < pairs);
        cells.extend((first..=last).rev().map(|column| (pair * 2 + 1, column)));
    }
    cells.extend((1..rows - 1).rev().map(|row| (row, 0)));
    (cells.len() == count).then_some(cells)
}

/// A tree, from left to right: who is waited for, the lock, who waits.
pub(super) fn tree(graph: &Graph, root: &Blocker) -> Figure {
    let mut tree = Tree { graph, figure: Figure::default(), next_y: 0.0, left: MOST_BOXES };
    tree.branch(root, 0.0);
    let mut figure = tree.figure;
    figure.size = figure.nodes.iter().fold(Vec2::ZERO, |size, node| size.max(node.rect.max.to_vec2()));
    figure
}

struct Tree<'a> {
    graph: &'a Graph,
    figure: Figure,
    /// Where the next box without others behind it begins.
    next_y: f32,
    left: usize,
}

impl Tree<'_> {
    fn put(&mut self, node: Node, x: f32, y: f32) -> usize {
        self.left = self.left.saturating_sub(1);
        self.figure.nodes.push(node.at(pos2(x, y)));
        self.figure.nodes.len() - 1
    }

    /// Puts a node below all that are there.
    fn below(&mut self, node: Node, x: f32) -> usize {
        let y = self.next_y;
        self.next_y += node.rect.height() + BETWEEN_LINES;
        self.put(node, x, y)
    }

    fn middle(&self, of: &[usize]) -> f32 {
        let centre = |at: usize| self.figure.nodes[at].rect.center().y;
        match of {
            [first, .., last] => f32::midpoint(centre(*first), centre(*last)),
            [one] => centre(*one),
            [] => self.next_y + BOX.y / 2.0,
        }
    }

    /// Puts a party, what it holds, and all behind it; returns its box.
    fn branch(&mut self, blocker: &Blocker, x: f32) -> usize {
        let who = &self.graph.parties[blocker.party].who;
        let detail = match blocker.waits.as_slice() {
            [] => match blocker.blocked {
                0 => String::new(),
                blocked => format!("holds up {}", count(blocked, "client", "clients")),
            },
            [wait, ..] => wish(&self.graph.waits[*wait]),
        };
        let node = Node::new(Kind::Client, who.clone(), detail);
        if blocker.behind.is_empty() {
            return self.below(node, x);
        }
        let mut locks: Vec<usize> = blocker.behind.iter().filter_map(|next| next.waits_for).collect();
        let mut seen = HashSet::new();
        locks.retain(|lock| seen.insert(*lock));
        let places: Vec<usize> = locks.into_iter().map(|lock| self.queue(blocker, lock, x)).collect();
        let y = self.middle(&places) - BOX.y / 2.0;
        let here = self.put(node, x, y);
        for lock in places {
            self.figure.link(lock, here, false);
        }
        here
    }

    /// Puts a lock that a party holds, and who waits for it; returns the lock's box.
    fn queue(&mut self, blocker: &Blocker, lock: usize, x: f32) -> usize {
        let x_lock = x + BOX.x + GAP.x;
        let x_waiters = x_lock + BOX.x + GAP.x;
        let (branches, leaves): (Vec<&Blocker>, Vec<&Blocker>) = blocker
            .behind
            .iter()
            .filter(|next| next.waits_for == Some(lock))
            .partition(|next| !next.behind.is_empty());
        // Each task has a line; the one whose client has others behind it has a box.
        let mut lines: Vec<usize> = leaves.iter().flat_map(|next| next.waits.iter().copied()).collect();
        lines.extend(branches.iter().flat_map(|next| next.waits.iter().skip(1).copied()));
        lines.sort_unstable();
        let top = self.next_y;
        let (mut waiters, mut more) = (Vec::new(), 0);
        for branch in branches {
            if self.left == 0 {
                more += branch.waits.len().min(1);
                continue;
            }
            let at = self.branch(branch, x_waiters);
            self.next_y += GAP.y / 2.0;
            waiters.push(at);
        }
        let shown = if lines.len() <= MOST_WAITERS { lines.len() } else { MOST_WAITERS }.min(self.left);
        more += lines.len() - shown;
        for wait in &lines[..shown] {
            let edge = &self.graph.waits[*wait];
            let who = self.graph.parties[edge.party].who.clone();
            let node = Node::new(Kind::Waiter, who, wish(edge));
            waiters.push(self.below(node, x_waiters));
        }
        if more > 0 {
            let text = format!("… {more} more {}", if more == 1 { "waiter" } else { "waiters" });
            waiters.push(self.below(Node::new(Kind::More, text, String::new()), x_waiters));
        }
        let hold = self.graph.holds.iter().find(|edge| edge.lock == lock && edge.party == blocker.party);
        let key = self.graph.locks[lock].clone();
        let name = model::text::sanitized(&key.lock);
        let mut node = Node::new(Kind::Lock, name, hold.map(held).unwrap_or_default());
        node.lock = Some(key);
        let y = self.middle(&waiters) - BOX.y / 2.0;
        let here = self.put(node, x_lock, y.max(top));
        self.next_y = self.next_y.max(self.figure.nodes[here].rect.max.y + GAP.y / 2.0);
        for waiter in waiters {
            self.figure.link(waiter, here, true);
        }
        here
    }
}

/// What a task waits to do, and for how long.
fn wish(edge: &Edge) -> String {
    task(&edge.label, "waits", edge.for_ms)
}

fn held(edge: &Edge) -> String {
    task(&edge.label, "held", edge.for_ms)
}

/// What a task does and for how long: `held 3.0s, "ship order 17"`.
pub(super) fn task(label: &str, word: &str, for_ms: Option<u64>) -> String {
    let label = if label.is_empty() { String::new() } else { format!("\"{label}\"") };
    let time = for_ms.map(|ms| format!("{word} {}", short_span(ms))).unwrap_or_default();
    let both = if label.is_empty() || time.is_empty() { "" } else { ", " };
    format!("{time}{both}{label}")
}

/// All figures in one picture.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Layout {
    /// Each with the place of its upper left corner.
    pub figures: Vec<(Pos2, Figure)>,
    pub size: Vec2,
}

impl Layout {
    /// Puts figures beside and below each other, for a pane of this size.
    pub(super) fn of(figures: Vec<Figure>, pane: Vec2) -> Self {
        let widest = figures.iter().map(|figure| figure.size.x).fold(0.0, f32::max);
        let best = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0]
            .into_iter()
            .map(|times| {
                let (places, size) = shelves(&figures, widest * times);
                ((pane.x / size.x.max(1.0)).min(pane.y / size.y.max(1.0)), places, size)
            })
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, places, size)) = best else { return Self::default() };
        let figures = places.into_iter().zip(figures);
        Self { figures: figures.map(|(at, figure)| (at, figure.moved(at.to_vec2()))).collect(), size }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.figures.iter().flat_map(|(_, figure)| &figure.nodes)
    }

    /// The scale at which all of it is inside a pane; never more than full size.
    pub(super) fn fit(&self, pane: Vec2) -> f32 {
        (pane.x / self.size.x.max(1.0)).min(pane.y / self.size.y.max(1.0)).clamp(0.01, 1.0)
    }
}

fn shelves(figures: &[Figure], width: f32) -> (Vec<Pos2>, Vec2) {
    let (mut at, mut height, mut size) = (Pos2::ZERO, 0.0_f32, Vec2::ZERO);
    let mut places = Vec::with_capacity(figures.len());
    for figure in figures {
        if at.x > 0.0 && at.x + figure.size.x > width + 0.5 {
            at = pos2(0.0, at.y + height + BETWEEN_FIGURES.y);
            height = 0.0;
        }
        places.push(at);
        size = size.max(at.to_vec2() + figure.size);
        height = height.max(figure.size.y);
        at.x += figure.size.x + BETWEEN_FIGURES.x;
    }
    (places, size)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
