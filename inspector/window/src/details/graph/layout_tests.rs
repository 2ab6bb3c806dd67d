use super::*;
use model::connection::ConnectionId;
use model::wait_for::Party;

const PANES: [Vec2; 3] = [vec2(860.0, 260.0), vec2(1240.0, 420.0), vec2(1880.0, 760.0)];

fn a_ring(clients: usize, pane: Vec2) -> Figure {
    let nodes = (0..clients).flat_map(|at| {
        let client = Node::new(Kind::Client, format!("worker {at}"), "waits 4.0s".into());
        [client, Node::new(Kind::Lock, format!("orders/{at}"), "held 5.0s".into())]
    });
    ring("deadlock".into(), nodes.collect(), pane.x / pane.y)
}

/// One client holds a lock, and these wait for it: each party with the labels of its tasks.
fn a_queue(waiters: &[(usize, &str)]) -> Graph {
    let parties = waiters.iter().map(|(party, _)| party + 1).max().unwrap_or(1);
    let edge = |party, label: &str| Edge {
        party,
        lock: 0,
        mode: "mutex".into(),
        label: label.into(),
        for_ms: Some(1_000),
    };
    let tasks = |party: usize| (0..waiters.len()).filter(|at| waiters[*at].0 == party).collect::<Vec<_>>();
    let behind = (0..parties).map(|party| (party, tasks(party))).filter(|(_, waits)| !waits.is_empty());
    let behind = behind.map(|(party, waits)| Blocker {
        party,
        waits_for: Some(0),
        waits,
        blocked: 0,
        behind: Vec::new(),
    });
    Graph {
        parties: (0..parties)
            .map(|at| Party { who: format!("web-1 pid {at} (worker)"), clients: Vec::new() })
            .collect(),
        locks: vec![RowKey { connection: ConnectionId::new("here"), lock: "orders".into() }],
        holds: vec![edge(0, "import")],
        waits: waiters.iter().map(|(party, label)| edge(*party, label)).collect(),
        rings: Vec::new(),
        trees: vec![Blocker {
            party: 0,
            waits_for: None,
            waits: Vec::new(),
            blocked: parties - 1,
            behind: behind.collect(),
        }],
    }
}

/// No box lies over another, all are inside the pane once fitted, and arrows touch the boxes that they join, and
/// cross no others.
fn is_sound(layout: &Layout, pane: Vec2) {
    let nodes: Vec<&Node> = layout.nodes().collect();
    for (at, node) in nodes.iter().enumerate() {
        for other in &nodes[at + 1..] {
            assert!(!node.rect.shrink(0.1).intersects(other.rect.shrink(0.1)), "{node:?} over {other:?}");
        }
    }
    let scale = layout.fit(pane);
    let shown = Rect::from_min_size(Pos2::ZERO, pane / scale).expand(0.5);
    assert!(nodes.iter().all(|node| shown.contains_rect(node.rect)), "outside at scale {scale}");
    for (_, figure) in &layout.figures {
        for arrow in &figure.arrows {
            for (node, end) in [arrow.from, arrow.to].into_iter().zip(arrow.ends) {
                let rect = figure.nodes[node].rect;
                assert!(rect.expand(0.1).contains(end) && !rect.shrink(0.1).contains(end), "{arrow:?}");
            }
            let [start, end] = arrow.ends;
            assert!(start.distance(end) > 5.0, "no room for an arrow: {arrow:?}");
            for (at, node) in figure.nodes.iter().enumerate() {
                let joined = at == arrow.from || at == arrow.to;
                let crossed = (1..20).any(|part| node.rect.contains(start.lerp(end, part as f32 / 20.0)));
                assert!(joined || !crossed, "{arrow:?} crosses {node:?}");
            }
        }
    }
}

#[test]
fn rings_of_any_size_are_drawn_without_anything_over_anything() {
    for pane in PANES {
        for clients in [2, 3, 4, 5, 7, 12, 25, 60] {
            let figure = a_ring(clients, pane);
            assert_eq!((figure.nodes.len(), figure.arrows.len()), (clients * 2, clients * 2));
            let layout = Layout::of(vec![figure], pane);
            is_sound(&layout, pane);
            // At half the size letters are still read.
            let readable = if clients <= 12 { 0.5 } else { 0.3 };
            assert!(clients > 25 || layout.fit(pane) > readable, "{clients} in {pane}: {}", layout.fit(pane));
        }
    }
}

#[test]
fn an_arrow_leads_from_each_waiter_to_its_lock_and_from_there_to_the_holder() {
    let figure = a_ring(12, PANES[1]);
    for (at, arrow) in figure.arrows.iter().enumerate() {
        assert_eq!((arrow.from, arrow.to), (at, (at + 1) % 24));
        assert_eq!(arrow.waits, figure.nodes[arrow.from].kind == Kind::Client);
    }
}

#[test]
fn of_a_long_queue_the_first_are_drawn_and_the_others_counted() {
    let waiters: Vec<(usize, &str)> = (1..=500).map(|party| (party, "job")).collect();
    let graph = a_queue(&waiters);
    let figure = tree(&graph, &graph.trees[0]);
    let lines: Vec<&Node> = figure.nodes.iter().filter(|node| node.kind == Kind::Waiter).collect();
    assert_eq!(lines.len(), MOST_WAITERS);
    assert_eq!(lines[0].name, "web-1 pid 1 (worker)");
    let more = figure.nodes.iter().find(|node| node.kind == Kind::More).unwrap();
    assert_eq!(more.name, "… 480 more waiters");
    for pane in PANES {
        let layout = Layout::of(vec![figure.clone()], pane);
        is_sound(&layout, pane);
    }
    assert!(Layout::of(vec![figure], PANES[2]).fit(PANES[2]) > 0.9);
}

#[test]
fn tasks_of_one_client_have_a_line_each_with_what_they_do() {
    let graph = a_queue(&[(0, "report"), (1, "invoice"), (1, "refund")]);
    let figure = tree(&graph, &graph.trees[0]);
    let line = |node: &Node| (node.name.clone(), node.detail.clone());
    let lines: Vec<_> = figure.nodes.iter().filter(|node| node.kind == Kind::Waiter).map(line).collect();
    assert_eq!(
        lines,
        [
            ("web-1 pid 0 (worker)".into(), "waits 1.0s, \"report\"".into()),
            ("web-1 pid 1 (worker)".into(), "waits 1.0s, \"invoice\"".into()),
            ("web-1 pid 1 (worker)".into(), "waits 1.0s, \"refund\"".into()),
        ]
    );
    let lock = figure.nodes.iter().find(|node| node.kind == Kind::Lock).unwrap();
    assert_eq!(lock.detail, "held 1.0s, \"import\"");
    is_sound(&Layout::of(vec![figure], PANES[0]), PANES[0]);
}

#[test]
fn many_figures_are_put_beside_each_other_where_the_pane_is_wide() {
    let pane = PANES[2];
    let figures: Vec<Figure> = (0..6).map(|_| a_ring(3, pane)).collect();
    let layout = Layout::of(figures, pane);
    is_sound(&layout, pane);
    assert!(layout.fit(pane) > 0.8, "{}", layout.fit(pane));
}

#[test]
fn a_tree_with_branches_keeps_them_apart() {
    let mut graph = a_queue(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    graph.locks.push(RowKey { connection: ConnectionId::new("here"), lock: "stock".into() });
    graph.holds.push(Edge { party: 2, lock: 1, ..graph.holds[0].clone() });
    for party in [3, 4] {
        graph.waits.push(Edge { party, lock: 1, ..graph.waits[0].clone() });
    }
    let root = &mut graph.trees[0];
    root.behind.truncate(2);
    let leaf = |party, wait| Blocker {
        party,
        waits_for: Some(1),
        waits: vec![wait],
        blocked: 0,
        behind: Vec::new(),
    };
    root.behind[1].behind = vec![leaf(3, 4), leaf(4, 5)];
    let figure = tree(&graph, &graph.trees[0]);
    assert_eq!(figure.nodes.len(), 2 + 1 + 2 + 2);
    assert_eq!(figure.arrows.len(), 2 + 1 + 2 + 1);
    is_sound(&Layout::of(vec![figure], PANES[1]), PANES[1]);
}
