use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use polylatch::inspect::LockView;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::app::{App, Mode, Step};
use super::draw::draw;
use crate::paint::Paint;
use model::fixture::{clients, held, lock, snapshot, waiting};
use model::{Connection, ConnectionId, Environment, LocalFacts, Polled, Report, Update};

const PAINT: Paint = Paint { colour: false, unicode: false, columns: None };

fn app(locks: Vec<LockView>) -> App {
    let id = ConnectionId::new("store");
    let mut app = App::new(Connection {
        id: id.clone(),
        shown_url: "redis://cache".into(),
        command: "polylatch".into(),
        environment: Environment::Development,
        read_only: false,
    });
    let snapshot = Arc::new(snapshot(locks));
    for at_ms in [1_000, 2_000] {
        let (snapshot, local) = (Arc::clone(&snapshot), LocalFacts::default());
        let report = Report::Polled(Polled { snapshot, events: vec![], local, every_ms: 1_000 });
        app.take(Update { connection: id.clone(), at_ms, report });
    }
    app.refresh(2_000);
    app
}

fn busy() -> App {
    let [a, b, c] = clients();
    let mut overdue = held(c, 12_000);
    overdue.remaining_ms = Some(3_000);
    app(vec![
        lock("jobs/1", vec![held(a, 2_000)], vec![waiting(b, 500)]),
        lock("jobs/2", vec![held(b, 3_000)], vec![]),
        lock("mail", vec![overdue], vec![]),
    ])
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    app.refresh(2_000);
    terminal.draw(|frame| draw(frame, app, &PAINT, 2_000)).unwrap();
    terminal.backend().to_string()
}

fn press(app: &mut App, code: KeyCode) -> Step {
    app.key(KeyEvent::new(code, KeyModifiers::NONE), 2_000)
}

fn type_in(app: &mut App, text: &str) {
    for c in text.chars() {
        assert_eq!(press(app, KeyCode::Char(c)), Step::Stay);
    }
}

#[test]
fn the_table_shows_problems_first_with_leases_and_who_waits() {
    let screen = screen(&mut busy(), 120, 12);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("3 locks, attention first  1 need attention  1 waiting"), "{screen}");
    assert!(lines[2].contains("! no renewal") && lines[2].contains("mail"), "{screen}");
    assert!(lines[2].contains("[==      ]") && lines[2].contains("0x -1"), "{screen}");
    assert!(lines[3].contains("o contended") && lines[3].contains("web-1:100 worker"), "{screen}");
    assert!(lines.last().unwrap().contains("q leaves"), "{screen}");
}

#[test]
fn on_a_terminal_of_80_columns_names_are_told_apart_by_their_ends() {
    let [a, b] = clients();
    let name = |end: &str| format!("production/orders/2026-11-23/region-eu/{end}");
    let mut app = app(vec![
        lock(&name("17/ship"), vec![held(a, 2_000)], vec![waiting(b, 500)]),
        lock(&name("17/bill"), vec![held(b, 3_000)], vec![]),
        lock(&name("18/ship"), vec![held(b, 3_000)], vec![]),
    ]);
    let shown = screen(&mut app, 80, 12);
    for end in ["/17/ship ", "/17/bill ", "/18/ship "] {
        let line = shown.lines().find(|line| line.contains(end)).unwrap_or_else(|| panic!("{end}: {shown}"));
        assert!(line.contains(" produ") && line.contains("…"), "{shown}");
        assert!(line.contains("web-1:") && line.contains("s "), "who holds it, and how long: {shown}");
    }
    assert!(shown.contains("1 0.5s"), "who waits: {shown}");
}

#[test]
fn every_size_of_a_terminal_can_be_drawn() {
    for (width, height) in [(1, 1), (10, 3), (20, 5), (80, 24), (300, 90)] {
        for keys in ["", "\n", "?", "b", "/"] {
            let mut app = busy();
            for c in keys.chars() {
                press(&mut app, if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
            }
            screen(&mut app, width, height);
        }
    }
}

#[test]
fn a_filter_is_typed_with_its_errors_shown_and_given_up() {
    let mut app = busy();
    press(&mut app, KeyCode::Char('/'));
    type_in(&mut app, "state:x");
    assert!(screen(&mut app, 160, 12).contains("there is no state"));
    press(&mut app, KeyCode::Enter);
    assert!(matches!(app.mode, Mode::Filter { .. }), "it stays open");
    press(&mut app, KeyCode::Backspace);
    type_in(&mut app, "stuck");
    press(&mut app, KeyCode::Enter);
    let shown = screen(&mut app, 120, 12);
    assert!(shown.contains("1 of 3 locks") && shown.contains("mail") && !shown.contains("jobs/1"), "{shown}");
    press(&mut app, KeyCode::Esc);
    assert!(screen(&mut app, 120, 12).contains("3 locks"));
}

#[test]
fn details_explain_and_follow_the_selection() {
    let mut app = busy();
    press(&mut app, KeyCode::Enter);
    let first = screen(&mut app, 120, 40);
    assert!(first.contains("has not renewed for 12.0 s") && first.contains("HOLDERS"), "{first}");
    assert!(first.contains("polylatch break mail --token 7"), "{first}");
    press(&mut app, KeyCode::Down);
    let second = screen(&mut app, 120, 40);
    assert!(second.contains("1. web-1 pid 200") && second.contains("QUEUE"), "{second}");
    press(&mut app, KeyCode::Esc);
    assert!(!app.details);
}

#[test]
fn a_lease_is_broken_only_with_a_reason_and_for_a_live_holder_with_its_name() {
    let mut app = busy();
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Char('b'));
    assert!(screen(&mut app, 120, 24).contains("It looks ALIVE"));
    assert_eq!(press(&mut app, KeyCode::Enter), Step::Stay);
    type_in(&mut app, "stuck, ticket 7");
    assert_eq!(press(&mut app, KeyCode::Enter), Step::Stay, "the name is still missing");
    type_in(&mut app, "jobs/2");
    assert_eq!(press(&mut app, KeyCode::Enter), Step::Stay, "it is another lock's");
    press(&mut app, KeyCode::Backspace);
    type_in(&mut app, "1");
    let Step::Break(order) = press(&mut app, KeyCode::Enter) else { panic!("{:?}", app.mode) };
    assert_eq!((order.lock.as_str(), order.reason.as_str()), ("jobs/1", "stuck, ticket 7"));
    assert_eq!(order.expected.get(), 7);

    press(&mut app, KeyCode::Home);
    press(&mut app, KeyCode::Char('b'));
    type_in(&mut app, "gone");
    assert!(matches!(press(&mut app, KeyCode::Enter), Step::Break(order) if order.lock == "mail"));

    press(&mut app, KeyCode::Char('b'));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.message.as_deref(), Some("nothing broken"));
}

#[test]
fn a_paused_picture_stands_still_and_breaks_nothing() {
    let [a] = clients();
    let mut app = busy();
    press(&mut app, KeyCode::Char(' '));
    let snapshot = Arc::new(snapshot(vec![lock("other", vec![held(a, 1)], vec![])]));
    let report =
        Report::Polled(Polled { snapshot, events: vec![], local: LocalFacts::default(), every_ms: 1_000 });
    app.take(Update { connection: app.id.clone(), at_ms: 2_000, report });
    let shown = screen(&mut app, 120, 12);
    assert!(shown.contains("PAUSED") && shown.contains("mail") && !shown.contains("other"), "{shown}");
    press(&mut app, KeyCode::Char('b'));
    assert_eq!(app.mode, Mode::Table);
    press(&mut app, KeyCode::Char(' '));
    assert!(screen(&mut app, 120, 12).contains("other"));
}

#[test]
fn hostile_text_is_inert() {
    let [a] = clients();
    let mut holder = held(a, 10);
    holder.label = "\u{1b}]0;owned\u{7}".into();
    let mut app = app(vec![lock("x\u{202e}y\u{9b}2J", vec![holder], vec![])]);
    press(&mut app, KeyCode::Enter);
    let shown = screen(&mut app, 140, 40);
    assert!(!shown.chars().any(|c| c != '\n' && model::text::is_treacherous(c)), "{shown:?}");
    press(&mut app, KeyCode::Char('b'));
    assert_eq!(app.mode, Mode::Table, "what is typed would not be what is seen");
}
