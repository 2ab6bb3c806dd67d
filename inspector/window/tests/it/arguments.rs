//! What the window is started with: a lock by its name, a link, a recording and a moment of it.

use clap::Parser as _;
use eframe::egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use polylatch::blocking::Polylatch;
use polylatch_inspector::Args;

use super::pilot::Pilot;

fn args(words: &[&str]) -> Args {
    Args::try_parse_from(std::iter::once("polylatch-inspector").chain(words.iter().copied())).unwrap()
}

#[test]
fn a_lock_that_the_arguments_name_is_selected_as_soon_as_somebody_holds_it() {
    let mut window = Pilot::on_a_store(|url| args(&["--url", url, "--lock", "orders/17"]));
    let client = Polylatch::connect(&window.url).unwrap();
    let _other = client.lock("aaa").acquire().unwrap();
    window.until("that it is not there", |window| window.says("orders/17 is neither held nor waited for"));
    let _held = client.lock("orders/17").label("ship order").acquire().unwrap();
    window.until("its details", |window| window.says("ship order") && window.says("Break the lease…"));
    // What is done with the selected lock is done with this one.
    window.key(Key::Delete);
    window.until_label("Break the lease");
    assert!(window.says("orders/17") && window.is_enabled("Cancel"));
}

#[test]
fn a_store_without_an_option_is_connected_to_and_c_copies_the_command_that_helps() {
    let mut window = Pilot::on_a_store(|url| args(&[url]));
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    window.until_row("orders/17, held");
    window.click_row("orders/17");
    let copied = window.copied(|window| window.harness.key_press(Key::C));
    assert!(copied.ends_with(" show orders/17"), "nothing is wrong, so it is explained: {copied}");
}

#[test]
fn a_filter_and_a_page_of_the_arguments_are_in_force_at_once() {
    let words = ["--filter", "lock:orders", "--lock", "orders/17", "--page", "events"];
    let mut window = Pilot::on_a_store(|url| args(&[&["--url", url], words.as_slice()].concat()));
    let client = Polylatch::connect(&window.url).unwrap();
    let _held: Vec<_> = ["orders/17", "mail"].map(|name| client.lock(name).acquire().unwrap()).into();
    window.until("one row", |window| window.says("1 of 2 shown"));
    assert!(window.rows().iter().all(|row| row.starts_with("orders/17")));
    window.until("its events", |window| window.says("granted"));
}

#[test]
fn a_copied_link_leads_another_window_to_the_same_lock_of_the_saved_connection() {
    let mut window = Pilot::start(Args::default());
    let client = Polylatch::connect(&window.url).unwrap();
    let _held: Vec<_> =
        ["orders/ü 17", "mail"].map(|name| client.lock(name).label(name).acquire().unwrap()).into();
    window.until_label("Which locks do you want to see?");
    window.click("Add a connection");
    window.type_into("URL", &window.url.clone());
    window.replace_text("Name", "shop");
    window.click("Save and connect");
    window.until_row("orders/ü 17, held");
    window.click_row("orders/ü 17");
    let link = window.copied(|window| window.harness.key_press_modifiers(Modifiers::COMMAND, Key::L));
    assert_eq!(link, "polylatch://shop/orders/%C3%BC%2017");

    let mut again = window.restarted_as(args(&[&link]));
    again.until("the details of the lock", |window| {
        window.says("Break the lease…") && window.says("doing") && window.says("2 locks")
    });
    let row = again.copied(|window| window.harness.key_press_modifiers(Modifiers::COMMAND, Key::C));
    assert!(row.starts_with("### Lock `orders/ü 17`"), "{row}");

    let mut whole = again.restarted_as(args(&["polylatch://shop"]));
    whole.until_row("mail, held");
    assert!(whole.harness.query_by_label("Clear filter").is_some(), "only that connection is shown");
}

#[test]
fn a_link_that_cannot_be_followed_says_why() {
    for (link, part) in [
        ("http://shop/orders", "a link is written polylatch://CONNECTION/LOCK"),
        (
            "polylatch://nowhere/orders",
            "The link leads to the connection nowhere, and none of that name is saved",
        ),
        ("polylatch://nowhere/orders?at=1000", "--replay FILE"),
    ] {
        let mut window = Pilot::start(args(&[link]));
        window.until(part, |window| window.says(part));
    }
}

#[test]
fn a_link_into_a_recording_leads_to_its_moment() {
    let mut window = Pilot::connected();
    let file = window.record_a_lock();

    let file = file.to_str().unwrap().to_owned();
    let recording = host::files::open_recording(file.as_ref()).unwrap();
    let (from, to) = recording.span().unwrap();
    let mut replay = Pilot::start(args(&["--replay", &file]));
    replay.until("the band", |window| window.says("REPLAY"));
    // A moment at which it is held has a link of its own.
    replay.slide_until("held", |window| window.rows().iter().any(|row| row.starts_with("orders/17, held")));
    replay.click_row("orders/17");
    let link = replay.copied(|window| window.harness.key_press_modifiers(Modifiers::COMMAND, Key::L));
    let moment: u64 = link.split_once("/orders/17?at=").unwrap().1.parse().unwrap();
    assert!((from..=to).contains(&moment), "{link}");

    let mut there = Pilot::start(args(&["--replay", &file, &link]));
    there.until_row("orders/17, held");
    there.until("its details", |window| window.says("Explain") && window.says("held for"));
    let mut elsewhere = Pilot::start(args(&["--replay", &file, "polylatch://x/y?at=1000"]));
    elsewhere.until("that it is not covered", |window| window.says("which this recording does not cover"));
}
