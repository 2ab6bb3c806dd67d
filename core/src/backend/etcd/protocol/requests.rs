//! Requests of the JSON gateway (etcd, "gRPC gateway"): keys and values in base64, 64-bit numbers as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::keys::range_end;

/// How many operations a transaction has at most (etcd, `--max-txn-ops`: 128).
pub(crate) const MOST_OPERATIONS: usize = 100;

/// How many keys before its own a waiter is told of: enough to see whether it is near.
pub(crate) const SEEN_AHEAD: u64 = 5;

fn bytes(text: &[u8]) -> String {
    STANDARD.encode(text)
}

fn id(number: impl std::fmt::Display) -> String {
    number.to_string()
}

/// One key is as it was created at `revision`; 0: there is none.
fn created(key: &str, revision: u64) -> Value {
    json!({"key": bytes(key.as_bytes()), "target": "CREATE", "result": "EQUAL", "create_revision": id(revision)})
}

fn put(key: &str, value: &[u8], lease: i64) -> Value {
    json!({"request_put": {"key": bytes(key.as_bytes()), "value": bytes(value), "lease": id(lease)}})
}

fn get(key: &str) -> Value {
    json!({"request_range": {"key": bytes(key.as_bytes()), "keys_only": true}})
}

fn delete(key: &str) -> Value {
    json!({"request_delete_range": {"key": bytes(key.as_bytes())}})
}

/// The oldest key of a folder, with its value.
fn oldest(folder: &str) -> Value {
    json!({"request_range": {
        "key": bytes(folder.as_bytes()), "range_end": bytes(&range_end(folder)),
        "sort_target": "CREATE", "sort_order": "ASCEND", "limit": "1",
    }})
}

/// The youngest keys of a folder that are no younger than `newest`, the youngest first; 0: of all.
fn youngest(folder: &str, newest: u64) -> Value {
    json!({"request_range": {
        "key": bytes(folder.as_bytes()), "range_end": bytes(&range_end(folder)),
        "sort_target": "CREATE", "sort_order": "DESCEND", "limit": id(SEEN_AHEAD), "keys_only": true,
        "max_create_revision": id(newest),
    }})
}

fn transaction(compare: Value, success: Value, failure: Value) -> Value {
    json!({"compare": compare, "success": success, "failure": failure})
}

/// Creates the key of a contender if the folder is empty. Otherwise, if `queued` is given, creates it behind the others
/// unless it is there, and answers with the oldest and the youngest keys.
pub(crate) fn enter(folder: &str, key: &str, lease: i64, granted: &[u8], queued: Option<&[u8]>) -> Value {
    let mut is_empty = created(folder, 0);
    is_empty["range_end"] = bytes(&range_end(folder)).into();
    let otherwise = match queued {
        None => json!([oldest(folder)]),
        Some(value) => {
            let queue =
                transaction(json!([created(key, 0)]), json!([put(key, value, lease)]), json!([get(key)]));
            json!([{"request_txn": queue}, oldest(folder), youngest(folder, 0)])
        }
    };
    transaction(json!([is_empty]), json!([put(key, granted, lease)]), otherwise)
}

/// Where a contender stands: the oldest key, and those up to its own.
pub(crate) fn stand(folder: &str, fence: u64) -> Value {
    transaction(json!([]), json!([oldest(folder), youngest(folder, fence)]), json!([]))
}

/// Which of these keys there are.
pub(crate) fn look<'a>(keys: impl Iterator<Item = &'a str>) -> Value {
    transaction(json!([]), keys.map(get).collect(), json!([]))
}

/// Deletes a key that is still as it was created.
pub(crate) fn leave(key: &str, fence: u64) -> Value {
    transaction(json!([created(key, fence)]), json!([delete(key)]), json!([]))
}

/// The same, and leaves a record.
pub(crate) fn end(key: &str, fence: u64, record: (&str, &[u8])) -> Value {
    let done = json!([delete(key), put(record.0, record.1, 0)]);
    transaction(json!([created(key, fence)]), done, json!([]))
}

/// Writes a key.
pub(crate) fn write(key: &str, value: &[u8], lease: i64) -> Value {
    transaction(json!([]), json!([put(key, value, lease)]), json!([]))
}

/// Deletes all keys from `start` up to `end`, without `end`.
pub(crate) fn clear(start: &str, end: &str) -> Value {
    json!({"key": bytes(start.as_bytes()), "range_end": bytes(end.as_bytes())})
}

/// A page of the keys that begin so, from `from` on, as of `revision`; 0: as of now.
pub(crate) fn page(from: &[u8], start: &str, limit: usize, revision: u64) -> Value {
    json!({"key": bytes(from), "range_end": bytes(&range_end(start)), "limit": id(limit), "revision": id(revision)})
}

/// The oldest keys of a folder: who holds, and who is next.
pub(crate) fn front(folder: &str) -> Value {
    let mut request = oldest(folder)["request_range"].take();
    request["limit"] = "2".into();
    request
}

/// Creates a lease of at least these whole seconds.
pub(crate) fn grant(lease: i64, seconds: u64) -> Value {
    json!({"ID": id(lease), "TTL": id(seconds)})
}

pub(crate) fn revoke(lease: i64) -> Value {
    json!({"ID": id(lease)})
}

/// Renews leases, each by a message of its own in one stream. Answered in their order.
pub(crate) fn keep_alive(leases: impl Iterator<Item = i64>) -> Vec<u8> {
    leases.map(|lease| format!("{{\"ID\":\"{lease}\"}}\n")).collect::<String>().into_bytes()
}

/// Waits until a key is deleted, from `revision` on.
pub(crate) fn watch_end(key: &str, revision: u64) -> Value {
    json!({"create_request": {
        "key": bytes(key.as_bytes()), "start_revision": id(revision), "filters": ["NOPUT"],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_enters_an_empty_folder_or_queues_once() {
        let request = enter("p/a/", "p/a/1f", 0x1f, b"g", Some(b"q"));
        let empty = &request["compare"][0];
        assert_eq!((&empty["key"], &empty["range_end"]), (&json!("cC9hLw=="), &json!("cC9hMA==")));
        assert_eq!(empty["create_revision"], "0");
        assert_eq!(request["success"][0]["request_put"]["lease"], "31");
        let queue = &request["failure"][0]["request_txn"];
        assert_eq!(queue["compare"][0]["key"], "cC9hLzFm");
        assert_eq!(queue["success"][0]["request_put"]["value"], "cQ==");
        let tried = enter("p/a/", "p/a/1f", 0x1f, b"g", None);
        assert!(!tried["failure"].to_string().contains("put"), "one that does not wait leaves nothing");
    }

    #[test]
    fn renewals_share_one_stream() {
        assert_eq!(keep_alive([1, 31].into_iter()), b"{\"ID\":\"1\"}\n{\"ID\":\"31\"}\n");
    }
}
