//! What somebody takes along or leaves to the window: exports, views, alert rules, sizes.

use std::path::Path;

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::kittest::Queryable as _;
use polylatch::blocking::Polylatch;

use super::pilot::Pilot;

/// Exports what is shown to this file.
fn export(window: &mut Pilot, form: &str, file: &Path) {
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::E);
    window.until_label("Export the view");
    window.harness.get_by_role_and_label(Role::RadioButton, form).click();
    window.steps(2);
    window.replace_text("File", file.to_str().unwrap());
    window.click("Export");
}

#[test]
fn what_is_shown_is_exported_as_it_is_filtered_and_ordered() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let held: Vec<_> = ["cart/2", "cart/1", "mail"]
        .map(|name| client.lock(name).label("=SUM(A1)").acquire().unwrap())
        .into();
    window.until_row("mail, held");
    window.key(Key::Slash);
    window.type_into("Filter", "lock:cart");
    window.until("two rows", |window| window.rows().len() == 2);
    window.key(Key::Enter);
    window.sort_by("Lock");

    let (json, csv) = (window.dir.join("locks.json"), window.dir.join("locks.csv"));
    export(&mut window, "JSON", &json);
    window.until("the export", |window| window.says("Exported to"));
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let names: Vec<_> =
        written.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cart/1", "cart/2"]);
    let token = held[1].fencing_token().get();
    assert_eq!(written[0]["holders"][0]["fencing_token"].as_u64(), Some(token));
    assert_eq!(written[0]["findings"][0]["rule"], "LEGIT");
    assert_eq!(written[0]["state"], "held");

    export(&mut window, "CSV", &csv);
    window.until("the export", |_| csv.exists());
    let text = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("state,lock,connection,backend,"), "{text}");
    assert!(lines[1].starts_with("held,cart/1,") && lines[2].starts_with("held,cart/2,"), "{text}");
    assert!(
        lines.len() == 3 && lines[1].contains("\"'=SUM(A1)\""),
        "no spreadsheet takes it for a formula: {text}"
    );

    // A file that is there is never written over.
    export(&mut window, "JSON", &json);
    window.until("the refusal", |window| window.says("locks.json: File exists"));
    window.click("Cancel");
    assert!(!window.says("Export the view"));
}

#[test]
fn a_saved_view_stands_in_the_rail_from_then_on() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held: Vec<_> = ["cart/1", "mail"].map(|name| client.lock(name).acquire().unwrap()).into();
    window.until_row("mail, held");
    window.key(Key::Slash);
    window.type_into("Filter", "lock:cart");
    window.until("one row", |window| window.rows().len() == 1);
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::S);
    window.until_label("Save the filter as a view");
    window.type_into("Name", "carts");
    window.click("Save");
    window.click("Clear filter");
    window.until("all rows", |window| window.rows().len() == 2);
    window.click("carts");
    window.until("one row", |window| window.rows().len() == 1);

    let url = window.url.clone();
    let mut again = window.restarted_as(polylatch_inspector::Args { url: vec![url], ..Default::default() });
    again.until_row("mail, held");
    again.click("carts");
    again.until("one row", |window| window.rows().len() == 1);
}

#[test]
fn an_alert_rule_is_made_told_and_kept() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    window.until_label("Alert rules");
    window.click("+  Add a rule");
    window.replace_text("Name of the rule", "crowded");
    window.harness.get_by_role_and_label(Role::ComboBox, "When").click();
    window.steps(3);
    window.click("more waiters than");
    for (field, number) in [("Waiters", "0"), ("Seconds: must have lasted", "0")] {
        window.set_number(field, number);
    }
    window.type_into("only if it matches", "waiters>x");
    window.click("Save");
    window.until("what is wrong", |window| window.says("is no number"));
    window.replace_text("only if it matches", "lock:orders");
    window.click("Save");
    assert!(!window.says("Alert rules"));
    window.wait_in_line("orders/17");
    window.until("the alert", |window| window.says("crowded: orders/17"));
    let saved = std::fs::read_to_string(window.dir.join("settings/inspector.json")).unwrap();
    assert!(saved.contains("crowded") && saved.contains("lock:orders"), "{saved}");
}

#[test]
fn sizes_panes_and_colours_come_back() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.key(Key::B);
    window.click_row("orders/17");
    window.key(Key::T);
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::Plus);
    window.steps(3);
    for _ in 0..2 {
        window.harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
        window.until_label("Command");
        window.type_into("Command", "theme");
        window.key(Key::Enter);
    }
    window.harness.state_mut().save_settings();
    let url = window.url.clone();
    let mut again = window.restarted_as(polylatch_inspector::Args { url: vec![url], ..Default::default() });
    again.until_row("orders/17, held");
    assert!(again.harness.query_by_label("VIEWS").is_none(), "the rail is hidden still");
    assert!(!again.harness.ctx.global_style().visuals.dark_mode, "it is light");
    assert!((again.harness.ctx.zoom_factor() - 1.1).abs() < 0.01, "it is larger");
    again.click_row("orders/17");
    again.until("the timeline", |window| window.says("timeline:"));
}

#[test]
fn rows_are_grouped_ordered_and_walked_through_with_keys() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held: Vec<_> =
        ["mail/1", "cart/2", "cart/1"].map(|name| client.lock(name).acquire().unwrap()).into();
    window.until("three rows", |window| window.rows().len() == 3);
    window.sort_by("Lock");
    let names = |window: &Pilot| -> Vec<String> {
        window.rows().iter().map(|row| row.split(',').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&window), ["cart/1", "cart/2", "mail/1"]);
    window.sort_by("Lock");
    assert_eq!(names(&window), ["mail/1", "cart/2", "cart/1"]);
    window.key(Key::P);
    window.until("the headings", |window| window.says("group cart/, 2 locks"));
    window.key(Key::Home);
    for expected in ["mail/1", "cart/2", "cart/1"] {
        let row = window.copied(|window| window.harness.key_press_modifiers(Modifiers::COMMAND, Key::C));
        assert!(row.starts_with(&format!("### Lock `{expected}`")), "{expected}: {row}");
        window.key(Key::ArrowDown);
    }
}
