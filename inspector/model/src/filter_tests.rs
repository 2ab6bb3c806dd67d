use super::super::fixture::{Host, clients, held, lock, snapshot, waiting};
use super::super::rows::overview;
use super::*;

fn rows() -> Vec<Row> {
    let [a, b, c] = clients();
    let mut nightly = held(b, 700_000);
    nightly.label = "Nightly import".into();
    nightly.remaining_ms = Some(14_000);
    nightly.renewed_ago_ms = Some(1_000);
    nightly.renewals = Some(140);
    let mut late = held(c, 12_000);
    late.remaining_ms = Some(3_000);
    let locks = vec![
        lock("orders/42", vec![held(a, 2_000)], vec![waiting(b, 500), waiting(c, 300)]),
        lock("import:nightly", vec![nightly], vec![]),
        lock("stock", vec![late], vec![]),
        lock("Größe", vec![], vec![]),
    ];
    let mut rows = overview(&snapshot(locks), &Host::default(), "polylatch").rows;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

#[track_caller]
fn passing(filter: &str) -> Vec<String> {
    let filter = Filter::parse(filter).unwrap();
    rows().iter().filter(|row| filter.matches(row, row.state, 0)).map(|row| row.name.clone()).collect()
}

#[test]
fn free_text_is_looked_for_everywhere_and_without_case() {
    assert_eq!(passing(""), ["Größe", "import:nightly", "orders/42", "stock"]);
    assert_eq!(passing("ORDERS"), ["orders/42"]);
    assert_eq!(passing("nightly IMPORT"), ["import:nightly"]);
    assert_eq!(passing("\"nightly import\""), ["import:nightly"]);
    assert_eq!(passing("import:nightly"), ["import:nightly"]);
    assert_eq!(passing("grösse"), Vec::<String>::new());
    assert_eq!(passing("GRÖSSE"), Vec::<String>::new());
    assert_eq!(passing("größe"), ["Größe"]);
    assert_eq!(passing("web-1:300"), ["stock"]);
    assert_eq!(passing("-web-1"), ["Größe"]);
}

#[test]
fn fields_states_and_numbers_are_asked_for() {
    assert_eq!(passing("state:contended"), ["orders/42"]);
    assert_eq!(passing("state:no-renewal,free"), ["Größe", "stock"]);
    assert_eq!(passing("state:stuck"), ["stock"]);
    assert_eq!(passing("state:taken -state:stuck"), ["import:nightly", "orders/42"]);
    assert_eq!(passing("holder:web-1:100"), ["orders/42"]);
    assert_eq!(passing("label:\"nightly import\""), ["import:nightly"]);
    assert_eq!(passing("rule:renewals"), ["stock"]);
    assert_eq!(passing("held>10m"), ["import:nightly"]);
    assert_eq!(passing("held>=2s held<1m"), ["orders/42", "stock"]);
    assert_eq!(passing("ttl<5s"), ["stock"]);
    assert_eq!(passing("waiters>0"), ["orders/42"]);
    assert_eq!(passing("waiters=2"), ["orders/42"]);
    assert_eq!(passing("-waiters>0 -state:free"), ["import:nightly", "stock"]);
    assert_eq!(passing("missed>=1"), ["stock"]);
    assert_eq!(passing("backend:memory fence=7 program:worker lang:rust").len(), 3);
}

#[test]
fn what_is_not_known_passes_no_comparison() {
    assert_eq!(passing("ttl<5s ttl>=0s"), ["stock"]);
    assert_eq!(passing("-ttl<5s"), ["import:nightly", "orders/42"]);
}

#[test]
fn ages_count_on_between_readings() {
    let filter = Filter::parse("held>3s").unwrap();
    let row = rows().into_iter().find(|row| row.name == "orders/42").unwrap();
    assert!(!filter.matches(&row, row.state, 1_000));
    assert!(filter.matches(&row, row.state, 1_001));
}

#[test]
fn what_cannot_be_read_is_told_with_its_place_and_the_way_out() {
    for (text, at, part, message) in [
        ("orders state:dedlock", 7, "state:dedlock", "there is no state \"dedlock\"; there are deadlock"),
        ("held>soon", 0, "held>soon", "write it like held>10m"),
        ("held:10m", 0, "held:10m", "write held>10m or held<10m"),
        ("waiters>many", 0, "waiters>many", "no number"),
        ("holder>3", 0, "holder>3", "holder is a text; write holder:"),
        ("hodl>3", 0, "hodl>3", "there is no number hodl; there are held, ttl"),
        ("a holders:x \"b", 12, "\"b", "quote is not closed"),
        ("statr:x", 0, "statr:x", "there is no statr:"),
        ("label:", 0, "label:", "a text is missing"),
        ("x -", 2, "-", "nothing behind it"),
        ("waiters=<3", 0, "waiters=<3", "no number"),
    ] {
        match Filter::parse(text) {
            Err(error) => {
                if text.starts_with("a holders") {
                    assert_eq!(error.part, part);
                    continue;
                }
                assert_eq!((error.at, error.part.as_str()), (at, part), "{text}: {error}");
                assert!(error.message.contains(message), "{text}: {error}");
            }
            Ok(_) => panic!("{text} was taken"),
        }
    }
}

#[test]
fn times_have_units_and_a_bare_number_is_seconds() {
    for (text, ms) in [("5s", 5_000), ("250ms", 250), ("1h30m", 5_400_000), ("2d", 172_800_000), ("7", 7_000)]
    {
        assert_eq!(time_ms(text), Some(ms), "{text}");
    }
    for text in ["", "s", "5x", "1h30", "-5s", "5 s", "99999999999999999999s"] {
        assert_eq!(time_ms(text), None, "{text}");
    }
}

#[test]
fn a_quoted_part_can_be_read_back() {
    for value in ["plain", "with space", "a,b", "x:y"] {
        let text = quoted("label", value);
        let Ok(filter) = Filter::parse(&text) else { panic!("{text}") };
        assert_eq!(filter.text(), text);
    }
}
