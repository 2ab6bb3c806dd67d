//! Whatever both read and write is the same as with serde_json.

use std::borrow::Cow;
use std::collections::BTreeMap;

use polylatch_web_json as small;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Everything {
    text: String,
    whole: u64,
    below_zero: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<u32>,
    empty: Option<String>,
    flags: Vec<bool>,
    by_name: BTreeMap<String, u8>,
    step: Step,
    outcome: Outcome,
    pair: (u8, String),
    id: Id,
    code: Cow<'static, str>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Done,
    Of(u8),
    Granted { name: String, next: Vec<Step> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    Free,
    ChangedHands { present: Id },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Id(u64);

fn everything(step: Step, outcome: Outcome) -> Everything {
    Everything {
        text: "\"quoted\" \\ \u{0}\u{1f}\u{7f}\n\r\t\u{8}\u{c} é 🔒 </script>".into(),
        whole: u64::MAX,
        below_zero: -7,
        missing: None,
        empty: None,
        flags: vec![true, false],
        by_name: [("a/b".into(), 1), ("\"".into(), 255)].into(),
        step,
        outcome,
        pair: (9, String::new()),
        id: Id(0xe0f6_9a2b_aa41_4de0),
        code: "mutex".into(),
    }
}

#[test]
fn types_are_written_and_read_alike() {
    for step in
        [Step::Done, Step::Of(3), Step::Granted { name: "n".into(), next: vec![Step::Done, Step::Of(1)] }]
    {
        for outcome in [Outcome::Free, Outcome::ChangedHands { present: Id(1) }] {
            let all = everything(
                match &step {
                    Step::Granted { .. } => {
                        Step::Granted { name: "n".into(), next: vec![Step::Done, Step::Of(1)] }
                    }
                    Step::Of(number) => Step::Of(*number),
                    Step::Done => Step::Done,
                },
                outcome,
            );
            let text = small::to_string(&all).unwrap();
            assert_eq!(text, serde_json::to_string(&all).unwrap());
            assert_eq!(small::from_str::<Everything>(&text).unwrap(), all);
            let spread = serde_json::to_string_pretty(&all).unwrap();
            assert_eq!(small::from_slice::<Everything>(spread.as_bytes()).unwrap(), all);
        }
    }
}

/// What is no JSON for serde_json is none here, and the other way round.
#[test]
fn the_same_texts_are_json() {
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let (just, too_deep) = (deep(127), deep(129));
    let texts = [
        "",
        " ",
        "null",
        "nul",
        "nullx",
        "true",
        "false ",
        "[",
        "]",
        "[]",
        "[,]",
        "[1,]",
        "[1 2]",
        "{}",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1,\"b\":[{}]}",
        "{\"a\":1 \"b\":2}",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\u12\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\udd12\"",
        "\"\\ud83d\"",
        "\"\\ud83d\\u0041\"",
        "\"\\udd12\"",
        "\"\\x\"",
        "\"\\é\"",
        "\"\u{1}\"",
        "\"\t\"",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1E+5",
        "1e-5",
        "1e",
        "1e+",
        "-1.5e3",
        "1e999",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-9223372036854775809",
        "1 1",
        "\u{feff}1",
        "[1]x",
        "+1",
        "Infinity",
        "NaN",
        "1\u{0}",
        "\u{0}",
        &just,
        &too_deep,
    ];
    for text in texts {
        let ours = small::from_str::<small::Value>(text);
        let theirs = serde_json::from_str::<serde_json::Value>(text);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{text:?}: {ours:?} {theirs:?}");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            let nearly = |ours: f64, theirs: f64| ours == theirs || (ours / theirs - 1.0).abs() < 1e-14;
            assert!(
                ours.as_f64().zip(theirs.as_f64()).is_none_or(|(ours, theirs)| nearly(ours, theirs)),
                "{text}"
            );
            assert_eq!(ours.as_f64().is_some(), theirs.as_f64().is_some(), "{text}");
            assert_eq!(ours.as_str(), theirs.as_str(), "{text}");
            let is_fraction = ours.as_f64().is_some() && theirs.is_f64();
            let texts = (ours.to_string(), theirs.to_string());
            assert!(is_fraction || texts.0 == texts.1, "{texts:?}");
        }
    }
    assert!(small::from_slice::<small::Value>(b"\"\xff\"").is_err());
}

#[test]
fn what_does_not_fit_a_type_is_an_error() {
    for text in [
        "{}",
        "null",
        "[]",
        "[\"a\"]",
        "{\"name\":1}",
        "{\"granted\":{\"name\":\"a\"}}",
        "\"of\"",
        "\"gone\"",
    ] {
        assert_eq!(
            small::from_str::<Step>(text).is_ok(),
            serde_json::from_str::<Step>(text).is_ok(),
            "{text}"
        );
        assert!(small::from_str::<Everything>(text).is_err(), "{text}");
    }
    assert!(small::from_str::<u8>("256").is_err());
    assert!(small::from_str::<(u8, u8)>("[1,2,3]").is_err());
    assert!(small::to_string(&1.5).is_err());
    assert!(small::to_string(&BTreeMap::from([(1, 2)])).is_err(), "a key that is no text");
}

#[test]
fn objects_are_made_and_changed() {
    let (name, checks) = (String::from("a\"b"), vec![String::from("x")]);
    let mut made = small::json!({"Name": &name, "Flags": 7_u64, "Checks": checks});
    made["Node"] = "n1".into();
    made["Flags"] = small::json!({"KV": 8_u64});
    assert_eq!(made.to_string(), r#"{"Name":"a\"b","Flags":{"KV":8},"Checks":["x"],"Node":"n1"}"#);
    assert_eq!((made["Node"].as_str(), made["gone"].as_str()), (Some("n1"), None));
}

#[test]
fn numbers_are_read_as_the_standard_library_does() {
    for text in [
        "0",
        "1",
        "1.5",
        ".5",
        "5.",
        "-2",
        "+3",
        "0.001",
        "86400",
        "1.7e18",
        "1e22",
        "123456789012345",
        "1.25e-3",
        "-inf",
        "Infinity",
        "1e400",
        "1e-400",
        "1e-310",
    ] {
        let (ours, theirs) = (small::float(text), text.parse::<f64>().unwrap());
        let ours = ours.unwrap_or_else(|| panic!("{text} is not read"));
        assert!(ours == theirs || (ours / theirs - 1.0).abs() < 1e-12, "{text}: {ours} {theirs}");
        if text.len() <= 15 && !text.contains("e-") {
            assert_eq!(ours, theirs, "{text}");
        }
    }
    assert!(small::float("nan").unwrap().is_nan());
    for text in ["", ".", "-", "e5", "1e", "1e+", "1.2.3", "0x10", " 1", "1 ", "1,5", "--1", "infinit"] {
        assert_eq!((small::float(text), text.parse::<f64>().ok()), (None, None), "{text}");
    }
}
