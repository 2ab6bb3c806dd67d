//! The tables of promises in `tests/README.md` and `tests/seeds.md` name tests that exist.

use std::fs;
use std::path::Path;

/// Where the tests of a layer stand.
fn folder(layer: &str) -> &'static str {
    match layer {
        "policy" => "core/src/policy",
        "driver" => "core/src/driver",
        "model" => "tests/model",
        "contract" => "core/tests/it/contract",
        "it" => "core/tests/it",
        "robustness" => "tests/robustness/tests",
        other => panic!("the layer {other:?} has no folder here"),
    }
}

fn text_below(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text_below(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_table_of_promises_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = fs::read_to_string(root.join("tests/README.md")).unwrap();
    let mut rows = 0;
    for row in readme.lines().filter(|line| line.starts_with("| I")) {
        let named: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        for name in named {
            let (layer, test) = name.split_once("::").unwrap();
            let test = test.rsplit("::").next().unwrap();
            let mut text = String::new();
            text_below(&root.join(folder(layer)), &mut text);
            assert!(text.contains(&format!("fn {test}(")), "{name} does not exist");
        }
        rows += 1;
    }
    assert_eq!(rows, 18);
}

#[test]
fn every_test_that_the_rows_of_what_is_asked_of_a_lock_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("tests/seeds.md")).unwrap();
    let mut text = String::new();
    for folder in [
        "core/src",
        "core/tests/it",
        "tests/model",
        "tests/robustness/tests",
        "inspector/cli/tests",
        "examples/rust/tests",
    ] {
        text_below(&root.join(folder), &mut text);
    }
    let mut number = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        number += 1;
        assert_eq!(cells[1], number.to_string(), "{row}");
        let state = cells[3].split([':', ',', ' ']).next().unwrap();
        assert!(["yes", "part", "open", "no", "superseded"].contains(&state), "{row}");
        let tests: Vec<_> = cells[4].split('`').skip(1).step_by(2).collect();
        // A page is read, not run.
        assert!(
            !tests.is_empty()
                || state == "open"
                || cells[3].contains("a page")
                || cells[3].contains("those packages"),
            "no test is named: {row}"
        );
        for test in tests {
            assert!(text.contains(&format!("fn {test}(")), "{test} does not exist: {row}");
        }
    }
    assert_eq!(number, 51);
}
