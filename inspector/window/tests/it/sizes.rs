//! Small and large windows: nothing runs out of sight, and no room is left empty beside what is cut.

use eframe::egui::{Key, Role, vec2};
use egui_kittest::kittest::Queryable as _;
use polylatch::blocking::Polylatch;

use super::pilot::Pilot;

const SIZES: [[f32; 2]; 3] = [[900.0, 600.0], [1280.0, 800.0], [1920.0, 1080.0]];

fn sized([width, height]: [f32; 2]) -> Pilot {
    let mut window = Pilot::connected();
    window.harness.set_size(vec2(width, height));
    window.steps(2);
    window
}

#[test]
fn details_take_the_room_that_the_table_leaves() {
    for size in SIZES {
        let mut window = sized(size);
        let client = Polylatch::connect(&window.url).unwrap();
        let _held = client.lock("orders/17").acquire().unwrap();
        window.until_row("orders/17, held");
        window.click_row("orders/17");
        let edge = |window: &Pilot| {
            window.harness.get_by_role_and_label(Role::Splitter, "height of the details").rect().center().y
        };
        window.until("the details to grow", |window| edge(window) < 260.0);
        // With as many locks as fit, they are as high as they were set to.
        let others: Vec<_> =
            (0..40).map(|at| client.lock(format!("other/{at}")).acquire().unwrap()).collect();
        window.until("the details to shrink", |window| edge(window) > size[1] * 0.4);
        drop(others);
    }
}

#[test]
fn the_sentence_of_a_waiter_ends_inside_the_window() {
    for size in SIZES {
        let mut window = sized(size);
        let client = Polylatch::connect(&window.url).unwrap();
        let label = "ship the orders of ".repeat(13);
        let _held = client.lock("orders/17").label(&label).acquire().unwrap();
        let (waiter, wanted) = (Polylatch::connect(&window.url).unwrap(), label.clone());
        std::thread::spawn(move || drop(waiter.lock("orders/17").label(wanted).acquire()));
        window.until_row("orders/17, contended");
        window.click_row("orders/17");
        let is = |text: Option<String>| text.is_some_and(|text| text.trim() == label.trim());
        window.until("both labels", |window| {
            window.harness.query_all_by(|node| is(node.label()) || is(node.value())).count() >= 2
        });
        for node in window.harness.query_all_by(|node| is(node.label()) || is(node.value())) {
            assert!(node.rect().right() <= size[0], "{:?} in {size:?}", node.rect());
        }
    }
}

#[test]
fn the_buttons_of_a_break_are_in_sight_whatever_the_name() {
    let longest = "orders/0123456789/".repeat(28);
    for size in SIZES {
        let mut window = sized(size);
        let client = Polylatch::connect(&window.url).unwrap();
        let _held = client.lock(&longest).label("l".repeat(256)).acquire().unwrap();
        window.until_row("orders/");
        window.click_row("orders/");
        window.key(Key::Delete);
        window.until("the dialog", |window| window.says("Reason (other operators will read it)"));
        window.steps(3);
        for button in ["Cancel", "Break the lease"] {
            let rect = window.harness.get_by_role_and_label(Role::Button, button).rect();
            let inside = rect.min.x >= 0.0 && rect.max.x <= size[0] && rect.max.y <= size[1];
            assert!(inside, "{button} at {rect:?} in {size:?}");
        }
    }
}

#[test]
fn the_graph_is_zoomed_by_keys_and_buttons_and_fitted_again() {
    let mut window = Pilot::connected();
    let client = Polylatch::connect(&window.url).unwrap();
    let _held = client.lock("orders/17").acquire().unwrap();
    window.wait_in_line("orders/17");
    window.until_row("orders/17, contended");
    window.click_row("orders/17");
    window.key(Key::G);
    window.until("all of it", |window| window.says("100 %"));
    window.key(Key::Minus);
    window.until("the smaller one", |window| window.says("80 %"));
    window.click("Zoom in");
    window.key(Key::Plus);
    window.until("the larger one", |window| window.says("125 %"));
    window.key(Key::Num0);
    window.until("all of it again", |window| window.says("100 %"));
    window.click("Zoom out");
    window.until("the smaller one", |window| window.says("80 %"));
    window.click("Fit the graph");
    window.until("all of it again", |window| window.says("100 %"));
}
