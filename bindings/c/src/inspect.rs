//! What a store can do, who holds, who waits; breaking a lease.

use std::ffi::c_char;
use std::ptr;

use polylatch::FencingToken;
use polylatch::inspect::{BreakRequest, Query};
use polylatch_bridge::{Client, Failure, ops};

use crate::border::{self, handle, optional_text, owned_text, place, text};
use crate::cancel::run;
use crate::client::{PlClient, read_pairs};
use crate::error::{PlError, PlStatus};

/// Tells what the client's store can do, as JSON, such as {"backend":"redis","fifo":true,…}: give the text back
/// with pl_text_free. Costs no request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_capability(
    client: *const PlClient,
    json: *mut *mut c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { answer(client, json, error, |client| run(client.ask(ops::capability_json)).flatten()) }
}

/// Tells what the client has done since it was made, in numbers, as JSON: give the text back with pl_text_free. Costs
/// no request, and no lock is held up.
///
/// {"acquired":2,"refused":0,"timed_out":0,"failed":0,"cancelled":0,"held":1,"waiting":0,"backend":"redis","wait":H,
/// "hold":H,"renewal_lag":H,"losses":{"expired":0,…},"errors":{"wait_timeout":0,…}}, where H is
/// {"bounds":[…],"counts":[…],"sum":0.01,"count":2}: the largest duration of each range in seconds, and how many fell
/// into each; the last count is of those above all bounds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_stats(
    client: *const PlClient,
    json: *mut *mut c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { answer(client, json, error, |client| run(client.ask(ops::stats_json))) }
}

/// Writes the same numbers as text that Prometheus reads; free it with pl_text_free. `labels` is NULL, or a list of
/// names and values in turn that ends with NULL: {"service", "shop", NULL}. The label `backend` is there already.
///
/// Errors: "invalid_argument" for a label that Prometheus does not accept or that is there already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_prometheus(
    client: *const PlClient,
    labels: *const *const c_char,
    text: *mut *mut c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let text = place("text", text)?;
            *text = ptr::null_mut();
            let client = &handle("client", client)?.0;
            let mut pairs = Vec::new();
            read_pairs("label", labels, |name, value| {
                pairs.push((name.to_owned(), value.to_owned()));
                Ok(())
            })?;
            let written = run(client.ask(|client| ops::prometheus(client, &pairs))).flatten()?;
            *text = owned_text(&written).into_raw();
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Reads who holds and who waits, as JSON; give the text back with pl_text_free.
///
/// `prefix` picks the locks whose names start with it; NULL means all. At most `limit` locks, 0 for 10000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_list(
    client: *const PlClient,
    prefix: *const c_char,
    limit: usize,
    json: *mut *mut c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        answer(client, json, error, |client| {
            let query = Query {
                prefix: optional_text("prefix", prefix)?.map(str::to_owned),
                limit: (limit > 0).then_some(limit),
                ..Query::default()
            };
            run(client.list_json(&query))
        })
    }
}

/// Breaks a lease, if it still has this fencing token; the outcome as JSON, such as
/// {"outcome":"broken"}: give the text back with pl_text_free.
///
/// `by` is who does it, `reason` why, at most 256 bytes; both are recorded in the store, for operators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_break_lease(
    client: *const PlClient,
    name: *const c_char,
    fencing_token: u64,
    by: *const c_char,
    reason: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        answer(client, json, error, |client| {
            let request = BreakRequest {
                name: text("name", name)?.to_owned(),
                expected: FencingToken::new(fencing_token),
                by: text("by", by)?.to_owned(),
                reason: text("reason", reason)?.to_owned(),
            };
            run(client.break_lease_json(&request))
        })
    }
}

/// Stores the JSON that `ask` finds out.
///
/// # Safety
/// As for the functions that are called from C: each pointer is null or to what it says.
unsafe fn answer(
    client: *const PlClient,
    json: *mut *mut c_char,
    error: *mut *mut PlError,
    ask: impl FnOnce(&Client) -> Result<String, Failure>,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let json = place("json", json)?;
            *json = ptr::null_mut();
            let found = ask(&handle("client", client)?.0)?;
            *json = owned_text(&found).into_raw();
            Ok(PlStatus::PL_OK)
        })
    }
}
