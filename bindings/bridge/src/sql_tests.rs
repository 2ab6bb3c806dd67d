//! The golden file that the tests of every language read: `tests/conformance/sql.json`.

use std::fmt::Debug;

use polylatch::resource::Placeholders;
use serde_json::{Value, json};

use super::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/sql.json");

/// What every language is asked for, in the words that each passes on. `expect` is added by [`answered`].
fn questions() -> Vec<Value> {
    let mut all = Vec::new();
    for dialect in Placeholders::ALL {
        let dialect = dialect.to_string();
        let keyed = |make: &str, column: &str, sets: &[&str]| {
            json!({"make": make, "dialect": dialect, "table": "app.stock", "column": column, "set": sets,
                "keys": ["shop", "id"]})
        };
        all.push(keyed("fenced_update", "fence", &["amount"]));
        all.push(keyed("fenced_update", "fence", &[]));
        all.push(keyed("fenced_upsert", "fence", &["amount", "note"]));
        all.push(keyed("versioned_update", "version", &["amount"]));
        all.push(json!({"make": "conditional_update", "dialect": dialect, "table": "stock",
            "changes": [["amount", "-"], ["sold", "+"], ["note", "="]],
            "conditions": [["amount", ">="], ["state", "<>"]], "keys": ["id"]}));
        let place = |schema: Option<&str>| json!({"make": "transaction_lock", "dialect": dialect, "name": "orders/42", "schema": schema});
        all.push(place(None));
        all.push(place(Some("locks")));
    }
    let bad = |changed: Value| {
        let mut whole = json!({"make": "fenced_update", "dialect": "sqlite ?", "table": "stock", "column": "fence",
            "set": ["amount"], "keys": ["id"]});
        whole.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        whole
    };
    all.push(bad(json!({"dialect": "oracle :1"})));
    all.push(bad(json!({"table": "stock; --"})));
    all.push(bad(json!({"column": "fence\" = 1"})));
    all.push(bad(json!({"set": ["Fence"]})));
    all.push(bad(json!({"make": "fenced_upsert", "keys": []})));
    all.push(bad(json!({"make": "versioned_update", "keys": ["größe"]})));
    let bad = |changes: Value, conditions: Value| {
        json!({"make": "conditional_update", "dialect": "mysql ?", "table": "stock", "changes": changes,
            "conditions": conditions, "keys": ["id"]})
    };
    all.push(bad(json!([["amount", "*"]]), json!([["amount", ">="]])));
    all.push(bad(json!([["amount", "-"]]), json!([["amount", "like"]])));
    all.push(bad(json!([]), json!([["amount", ">="]])));
    all.push(bad(json!([["amount", "-"]]), json!([])));
    all.push(json!({"make": "transaction_lock", "dialect": "postgres $1", "name": "", "schema": null}));
    all.push(json!({"make": "transaction_lock", "dialect": "postgres $1", "name": "a", "schema": "a b"}));
    all
}

fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    serde_json::from_value(value.clone()).unwrap()
}

fn in_json(statement: &BoundStatement) -> Value {
    json!({"sql": statement.sql, "values": statement.values})
}

fn written(made: &Write) -> Value {
    json!({"sql": made.write.sql, "parameters": made.write.parameters, "probe_sql": made.probe.sql,
        "probe_parameters": made.probe.parameters, "rows_tell": made.rows_tell})
}

fn locked(made: &LockStatements) -> Value {
    json!({"prepare": made.prepare.as_ref().map(in_json), "take": in_json(&made.take),
        "fence": made.fence.as_ref().map(in_json)})
}

/// The question with its answer.
fn answered(mut asked: Value) -> Value {
    let text = |key: &str| asked[key].as_str().unwrap();
    let fenced = |if_missing| {
        let (sets, keys) = (texts(&asked["set"]), texts(&asked["keys"]));
        fenced(if_missing, text("dialect"), text("table"), text("column"), &sets, &keys)
            .as_ref()
            .map(written)
            .map_err(Failure::clone)
    };
    let made = match text("make") {
        "fenced_update" => fenced(IfMissing::Nothing),
        "fenced_upsert" => fenced(IfMissing::Insert),
        "versioned_update" => {
            let (sets, keys) = (texts(&asked["set"]), texts(&asked["keys"]));
            versioned(text("dialect"), text("table"), text("column"), &sets, &keys).map(|made| written(&made))
        }
        "conditional_update" => {
            let (changes, conditions) = (pairs(&asked["changes"]), pairs(&asked["conditions"]));
            conditional(text("dialect"), text("table"), &changes, &conditions, &texts(&asked["keys"]))
                .map(|made| written(&made))
        }
        "transaction_lock" => transaction_lock(text("dialect"), text("name"), asked["schema"].as_str())
            .map(|made| locked(&made)),
        other => panic!("{other}"),
    };
    asked["expect"] =
        made.unwrap_or_else(|failure| json!({"error": failure.code, "message": failure.message}));
    asked
}

/// `POLYLATCH_WRITE_SQL=1` writes the file again.
#[test]
fn the_golden_file_of_all_languages_is_what_the_core_says() {
    let answers: Vec<Value> = questions().into_iter().map(answered).collect();
    let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    if std::env::var_os("POLYLATCH_WRITE_SQL").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let kept = std::fs::read_to_string(GOLDEN).unwrap();
    let kept: Vec<Value> = serde_json::from_str(&kept).unwrap();
    let rule =
        "POLYLATCH_WRITE_SQL=1 cargo test -p polylatch-bridge sql:: writes tests/conformance/sql.json again";
    assert_eq!(kept.len(), answers.len(), "{rule}");
    for (kept, answer) in kept.iter().zip(&answers) {
        assert_eq!(kept, answer, "{rule}");
    }
}

fn refused<T: Debug>(made: Result<T, Failure>, part: &str) {
    let failure = made.unwrap_err();
    assert!(failure.message.contains(part), "{failure:?}");
    assert_eq!(failure.code, "invalid_argument");
}

#[test]
fn what_a_database_has_not_is_refused_with_the_way_out() {
    refused(transaction_lock("sqlite ?", "a", None), "BEGIN IMMEDIATE");
    refused(transaction_lock("mysql %s", "a", Some("locks")), "database of the store");
    refused(row_number("the token", "9223372036854775808"), "the token of the row");
    assert_eq!(row_number("the token", "-1").unwrap(), -1);
}

#[test]
fn an_unchanged_row_is_explained() {
    let token = FencingToken::new(33);
    assert_eq!(fenced_unchanged(token, Some(Some(34))).unwrap_err().code, "stale_token");
    assert_eq!(fenced_unchanged(token, Some(None)).unwrap(), "changed_meanwhile");
    assert_eq!(fenced_unchanged(token, None).unwrap(), "missing");
    assert_eq!(fenced_accepted(token, Some(Some(34))).unwrap_err().code, "stale_token");
    assert!(fenced_accepted(token, Some(Some(33))).is_ok() && fenced_accepted(token, None).is_ok());
    assert_eq!((versioned_unchanged(None), versioned_unchanged(Some(Some(1)))), ("missing", "changed"));
}
