//! The window through its accessibility tree, on real stores: what a person would click, type and read.

#![cfg(unix)]

mod arguments;
mod kept;
mod pilot;
mod places;
mod records;
mod sizes;

use std::sync::Arc;
use std::time::Duration;

use egui_kittest::kittest::Queryable as _;
use polylatch::blocking::Polylatch;
use polylatch_inspector::Args;

use eframe::egui::{Event, Key, Modifiers, Role};
use pilot::{Kept, Locked, Pilot, is_safe_to_show};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::{TempDir, wait_until};

#[test]
fn a_first_start_offers_four_ways_and_the_form_connects() {
    let mut window = Pilot::start(Args::default());
    window.until_label("Which locks do you want to see?");
    for way in ["Add a connection", "Open the default store", "Open a recording", "Start the demo"] {
        window.harness.get_by_role_and_label(Role::Button, way);
    }
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").label("ship").acquire().unwrap();
    window.click("Add a connection");
    // The keys go to the URL at once.
    window.harness.event(Event::Text(window.url.clone()));
    window.steps(2);
    window.click("Connect once");
    window.until_row("orders/17, held");
}

#[test]
fn a_store_without_locks_teaches_how_to_make_one() {
    let mut window = Pilot::connected();
    window.until_label("No locks");
    window.until("the command to make one", |window| window.says("polylatch run hello --url"));
}

#[test]
fn a_store_that_cannot_be_reached_is_told_with_a_way_out() {
    let mut window = Pilot::start(Args { url: vec!["redis://127.0.0.1:1".into()], ..Args::default() });
    window.until("the failure", |window| window.says("cannot be read"));
    window.harness.get_by_role_and_label(Role::Button, "Try again now");
    window.click("Edit the connection");
    window.until("the form", |window| window.says("Edit the connection"));
}

#[test]
fn the_filter_selects_while_one_types_and_a_wrong_one_says_why() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held: Vec<_> = ["cart/1", "cart/2", "mail"].map(|name| client.lock(name).acquire().unwrap()).into();
    window.until_row("mail, held");
    window.key(Key::Slash);
    window.type_into("Filter", "lock:cart");
    window.until("two rows", |window| window.rows().len() == 2);
    assert!(window.says("2 of 3 shown"));
    window.type_into("Filter", " waiters>x");
    window.until("the reason", |window| window.says("is no number"));
    window.click("Clear filter");
    window.until("all rows", |window| window.rows().len() == 3);
    window.type_into("Filter", "nothing-like-this");
    window.until_label("0 of 3 locks match");
    window.click("Clear the filter");
    window.until("all rows", |window| window.rows().len() == 3);
}

#[test]
fn letters_are_keys_only_while_nobody_types() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("bed").acquire().unwrap();
    window.until_row("bed, held");
    window.harness.get_by_label("VIEWS");
    window.key(Key::B);
    assert!(window.harness.query_by_label("VIEWS").is_none(), "B hides the rail");
    window.key(Key::B);
    window.key(Key::Slash);
    window.type_into("Filter", "b");
    window.harness.get_by_label("VIEWS");
    window.key(Key::Escape);
    window.key(Key::F1);
    window.until_label("Marks");
    window.key(Key::Escape);
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
    window.steps(2);
    window.type_into("Command", "clients");
    window.key(Key::Enter);
    window.until("the table of clients", |window| window.says("sort by Waits for"));
}

#[test]
fn details_show_holder_line_and_every_page() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").label("ship order").acquire().unwrap();
    window.wait_in_line("orders/17");
    window.until_row("orders/17, contended");
    window.click_row("orders/17");
    window.until("why", |window| window.says("ship order") && window.says("1 WAITS"));
    let token = _held.fencing_token().to_string();
    assert!(window.says(&token), "the fencing token is shown");
    for (key, part) in [
        (Key::T, "timeline:"),
        (Key::H, "expected every"),
        (Key::G, "wait for"),
        (Key::W, "Copy JSON"),
        (Key::V, "granted"),
        (Key::E, "ship order"),
    ] {
        window.key(key);
        window.until(part, |window| window.says(part));
    }
}

#[test]
fn a_lease_is_broken_only_after_name_token_and_reason_are_typed() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let held = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.click_row("orders/17");
    window.key(Key::Delete);
    window.until_label("Break the lease");
    assert!(!window.is_enabled("Break the lease"));
    assert!(window.says("it looks ALIVE"));
    let token = held.fencing_token().to_string();
    window.type_into("Reason (other operators will read it)", "stuck since noon");
    window.type_into("Type the lock's name and the last digits of its token:", "orders/17");
    assert!(!window.is_enabled("Break the lease"), "the name alone is not enough");
    let rest = format!(" {}", &token[token.len() - 4..]);
    window.type_into("Type the lock's name and the last digits of its token:", &rest);
    window.click("Break the lease");
    window.until("the outcome", |window| window.says("Broken."));
    assert!(
        held.check().is_err()
            || !client.list(&Default::default()).unwrap().locks.iter().any(|lock| !lock.holders.is_empty())
    );
    let audit = &client.list(&Default::default()).unwrap().audit[0];
    assert_eq!((audit.name.as_str(), audit.reason.as_str()), ("orders/17", "stuck since noon"));
    let noted = std::fs::read_to_string(window.dir.join("settings/audit.jsonl")).unwrap();
    assert!(noted.contains("stuck since noon"), "{noted}");
}

#[test]
fn a_lock_that_changed_hands_meanwhile_is_left_alone() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let first = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.click_row("orders/17");
    window.key(Key::Delete);
    window.until_label("Break the lease");
    first.release().unwrap();
    let second = client.lock("orders/17").acquire().unwrap();
    window.until("the warning", |window| window.says("This lease is over"));
    assert!(!window.is_enabled("Break the lease"));
    assert!(second.is_held());
}

#[test]
fn what_was_recorded_is_replayed_and_cannot_be_broken() {
    let mut window = Pilot::connected();
    let file = window.record_a_lock();

    let mut again = Pilot::start(Args { replay: Some(file), ..Args::default() });
    again.until("the band", |window| window.says("REPLAY  night.polylatch"));
    again.slide_until("held", |window| window.rows().iter().any(|row| row.starts_with("orders/17, held")));
    again.click_row("orders/17");
    again.key(Key::Delete);
    again.until("the refusal", |window| window.says("This is a recording"));
}

#[test]
fn hostile_names_and_labels_are_shown_as_inert_text() {
    // Our own library refuses such text; others may write what they like. Before the window looks: what a client is
    // called does not change.
    let hostile = "pay\u{202e}gpj.exe \u{1b}[2J\u{200b}";
    let mut held = None;
    let mut window = Pilot::on_a_store(|url| {
        held = Some(Polylatch::connect(url).unwrap().lock("x\u{2066}y").acquire().unwrap());
        let store = rusqlite::Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap();
        store.execute("UPDATE lease SET label = ?1", [hostile]).unwrap();
        let say = "UPDATE client SET program = ?1, language = ?1 WHERE id = (SELECT client FROM lease)";
        let told = || store.execute(say, [hostile]).unwrap() > 0;
        wait_until("the client has said who it is", Duration::from_secs(20), told);
        Args { url: vec![url.to_owned()], ..Args::default() }
    });
    window.until("the row", |window| window.says(r"x\u{2066}y"));
    window.until("the program", |window| window.says(r"pay\u{202e}gpj.exe"));
    let row = window.rows()[0].split(',').next().unwrap().to_owned();
    window.click_row(&row);
    for key in [Key::E, Key::T, Key::H, Key::G, Key::W, Key::V] {
        window.key(key);
        window.steps(2);
        for text in window.texts() {
            assert!(is_safe_to_show(&text), "{text:?}");
        }
    }
}

#[test]
fn a_paused_picture_stands_still_and_goes_on() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let held = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.key(Key::Space);
    window.until("the pause", |window| window.says("PAUSED"));
    held.release().unwrap();
    let _other = client.lock("later").acquire().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    window.steps(3);
    assert!(window.rows()[0].starts_with("orders/17, held"), "{:?}", window.rows());
    window.key(Key::Space);
    window.until_row("later, held");
}

#[test]
fn settings_and_saved_connections_come_back_without_secrets() {
    let mut window = Pilot::start(Args::default());
    window.until_label("Which locks do you want to see?");
    window.click("Add a connection");
    window.type_into("URL", "redis://:pa55word@127.0.0.1:1");
    window.type_into("Name", "cache");
    window.click("Save and connect");
    window.until("the connection", |window| window.says("connection cache"));
    window.harness.state_mut().save_settings();
    let folder = window.dir.join("settings");
    let saved = std::fs::read_to_string(folder.join("inspector.json")).unwrap();
    assert!(saved.contains("cache") && !saved.contains("pa55word"), "{saved}");
    assert!(window.texts().iter().all(|text| !text.contains("pa55word")));
    let mut again = window.restarted();
    // Its secret is not kept, so it is asked for when somebody wants it.
    again.until("the saved connection", |window| window.says("cache"));
}

/// Fills in the connection `cache` with its password, to be kept in the keyring, and presses a button.
fn with_a_password_in(keyring: &Arc<Kept>, server: &RedisServer, button: &str) -> Pilot {
    let mut window = Pilot::start_with(TempDir::new(), Arc::clone(keyring) as _);
    window.until_label("Which locks do you want to see?");
    window.click("Add a connection");
    window.type_into("URL", &format!("redis://:pa55word@{}", server.address()));
    window.type_into("Name", "cache");
    window.harness.get_by_role_and_label(Role::ComboBox, "Password").click();
    window.steps(2);
    window.click("in the platform's keyring");
    window.click(button);
    window
}

#[test]
fn a_password_is_kept_in_the_keyring_and_nowhere_else() {
    let server = RedisServer::builder().password("pa55word").start();
    let keyring = Arc::<Kept>::default();
    let mut window = with_a_password_in(&keyring, &server, "Save and connect");
    window.until("the connection", |window| window.says("No locks"));
    window.until("the keyring", |_| keyring.0.lock().unwrap().values().any(|kept| kept == "pa55word"));
    let written = || {
        let files = std::fs::read_dir(window_dir(&window)).unwrap();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<String>()
    };
    assert!(written().contains("keyring") && !written().contains("pa55word"), "{}", written());

    // The next start connects without a question.
    let mut again = window.restarted_with(Arc::clone(&keyring) as _);
    again.until("the connection", |window| window.says("No locks"));
    assert!(!again.says("Password for"));

    // Where the keyring cannot be opened, it says so and asks.
    let mut locked = again.restarted_with(Arc::new(Locked));
    locked.until("the question", |window| window.says("Password for cache"));
    assert!(locked.says("it stays locked"));
    locked.type_secret("Password (it is kept in the keyring)", "pa55word");
    locked.click("Connect");
    locked.until("the connection", |window| window.says("No locks"));
    locked.until("that it is not kept", |window| window.says("the keyring did not take the change"));
    assert!(locked.texts().iter().all(|text| !text.contains("pa55word")));
}

#[test]
fn a_password_does_not_go_to_another_place() {
    let server = RedisServer::builder().password("pa55word").start();
    let elsewhere = RedisServer::builder().password("pa55word").start();
    let keyring = Arc::<Kept>::default();
    let mut window = with_a_password_in(&keyring, &server, "Save and connect");
    window.until("the keyring", |_| keyring.0.lock().unwrap().len() == 1);
    window.click("+  Connect…");
    window.click("cache");
    window.replace_text("URL", &format!("redis://{}", elsewhere.address()));
    window.click("Save and connect");
    window.until("the question", |window| window.says("Password for cache"));
    window.until("that it is forgotten", |_| keyring.0.lock().unwrap().is_empty());
}

#[test]
fn whoever_removes_a_connection_that_was_not_saved_removes_its_password_too() {
    let server = RedisServer::builder().password("pa55word").start();
    let keyring = Arc::<Kept>::default();
    let mut window = with_a_password_in(&keyring, &server, "Connect once");
    window.until("the keyring", |_| keyring.0.lock().unwrap().len() == 1);
    window.until("the connection", |window| window.says("No locks"));
    let entry =
        window.harness.get_by(|node| node.label().is_some_and(|label| label.starts_with("connection cache")));
    entry.click_secondary();
    window.steps(3);
    window.click("Edit…");
    window.click("Remove");
    window.until("that it is forgotten", |_| keyring.0.lock().unwrap().is_empty());
}

fn window_dir(window: &Pilot) -> std::path::PathBuf {
    window.dir.join("settings")
}
