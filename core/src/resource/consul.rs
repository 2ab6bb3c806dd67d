//! A transaction that writes a Consul key only while a lock in the same Consul is still held.
//!
//! Here the store of the data is the store of the lock, so nothing has to be remembered: the lock's
//! key changes its index with every grant, and goes with the session it hangs on. The write and the
//! check are one step of Consul's log.

use serde::Deserialize;

use crate::backend::consul::protocol::keys::Keys;
use crate::backend::consul::write_if_unchanged;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;

/// Returns the key of a mutex below this prefix (`polylatch` unless the URL says otherwise), as
/// `polylatch/orders/42/.lock` for the lock `orders/42`.
///
/// Errors: `invalid_argument` for an impossible name, `invalid_config` for an impossible prefix.
pub fn lock_key(prefix: &str, name: &str) -> Result<String> {
    Ok(Keys::new(prefix, None)?.lock(&LockName::new(name)?))
}

/// Returns the body of `PUT /v1/txn` that writes `value` to `key` if the mutex whose key is
/// `lock_key` is still held under `token`. The answer is read by [`outcome`].
///
/// Guarantees: after the lease has been released, broken, or ended with its session, nothing is
/// written, whenever the request arrives. The key must not be written by any other client, and its value
/// must stay below 512 KiB (Consul's limit). For mutexes only; the token of a reader or of a permit
/// is the index of another key.
///
/// Source: Consul, "Transaction HTTP API", verbs `check-index` and `set`.
pub fn conditional_put(lock_key: &str, token: FencingToken, key: &str, value: &[u8]) -> String {
    write_if_unchanged(lock_key, token.get(), key, value)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    errors: Option<Vec<Cause>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Cause {
    op_index: usize,
    what: String,
}

/// Reads the answer to a [`conditional_put`].
///
/// Errors: `stale_token` if the lock is no longer held under the token, so nothing was written;
/// `backend_rejected` with Consul's words for everything else.
pub fn outcome(status: u16, body: &str) -> Result<()> {
    let causes =
        serde_json::from_str::<Answer>(body).ok().and_then(|answer| answer.errors).unwrap_or_default();
    if status == 200 && causes.is_empty() {
        return Ok(());
    }
    if status == 409 && causes.iter().any(|cause| cause.op_index == 0 && !cause.what.contains("ermission")) {
        return Err(Error::new(
            ErrorKind::StaleToken,
            "the lock is no longer held under this fencing token, so nothing was written; stop the work",
        ));
    }
    let words: String = match causes.first() {
        Some(cause) => cause.what.clone(),
        None => body.chars().filter(|c| !c.is_control()).take(200).collect(),
    };
    Err(Error::new(
        ErrorKind::BackendRejected,
        format!("Consul refused the write (status {status}): {words}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transaction_checks_the_lock_and_then_writes() {
        let key = lock_key("polylatch", "orders/42").unwrap();
        let body = conditional_put(&key, FencingToken::new(35), "stock/9", b"150");
        let wanted = concat!(
            r#"[{"KV":{"Verb":"check-index","Key":"polylatch/orders/42/.lock","Index":35}},"#,
            r#"{"KV":{"Verb":"set","Key":"stock/9","Value":"MTUw","Flags":0}}]"#
        );
        assert_eq!(body, wanted);
        assert_eq!(lock_key("polylatch", "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_lock_that_changed_hands_is_a_stale_token() {
        assert!(outcome(200, r#"{"Results":[],"Errors":null}"#).is_ok());
        let late = r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"failed index check for key"}]}"#;
        assert_eq!(outcome(409, late).unwrap_err().kind(), ErrorKind::StaleToken);
        for (status, body) in [(403, "Permission denied"), (500, "No cluster leader"), (413, "too large")] {
            let error = outcome(status, body).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendRejected);
            assert!(error.to_string().contains(body), "{error}");
        }
    }
}
