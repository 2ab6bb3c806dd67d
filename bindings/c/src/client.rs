//! One client of one store.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use polylatch_bridge::{Client, ConnectOptions, Failure, OptionValue};

use crate::border::{self, free, handle, infallible, optional_text, place, text};
use crate::cancel::run;
use crate::error::{PlError, PlStatus};
use crate::events::{Callback, PlDrop, PlOnEvent, Telling};

/// One client of one store: a connection, and a thread that renews leases. One per process is enough.
#[derive(Debug)]
pub struct PlClient(pub(crate) Client, Option<Arc<Telling>>);

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no NUL byte"),
};

/// Returns the version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn pl_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Connects to a store and asks it once.
///
/// `url` is such as "redis://localhost" or "sqlite:locks.db"; NULL means POLYLATCH_URL, or the embedded
/// default. `options` is NULL, or a list of keys and values in turn that ends with NULL:
/// {"lease", "30s", "prefix", "shop", NULL}. They are the options of the URL; an unknown one is an error.
/// `language` names the calling language for display, such as "go 1.22"; NULL means "c".
///
/// Errors: "invalid_argument", "invalid_config", "backend_unavailable" within the time limit,
/// "backend_rejected", "name_conflict".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_connect(
    url: *const c_char,
    options: *const *const c_char,
    language: *const c_char,
    client: *mut *mut PlClient,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let client = place("client", client)?;
            *client = ptr::null_mut();
            let connect = connect_options(url, options, language)?;
            *client = Box::into_raw(Box::new(PlClient(run(Client::connect(connect))?, None)));
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Connects as pl_connect, and has `on_event` called with the events of this client, in their order, beginning with
/// the warnings of connecting: what happens to its locks and to its store.
///
/// The option "level" says from which level on: "error", "warn", "info" (the default) or "debug", which adds what comes
/// with every lock: "released", and "acquired" without a wait. An event below the level costs nothing.
///
/// The events and their fields are those of the Rust module polylatch::observe, in every language: "waiting",
/// "acquired", "released", "renewal_failed", "endangered", "lost", "store_unreachable", "store_reachable",
/// "setup_warning" and others. `on_event` is called on a thread of its own, so it may block and may call this library,
/// and holds up no lock; it must not throw. If it takes too long, events are dropped, and one "events_dropped" says how
/// many.
///
/// pl_client_close waits, at most 5 s, until `on_event` has had all events. After pl_client_free it is neither called
/// nor running, unless pl_client_free was called from there. `drop` is NULL, or is called once with `user` when
/// `on_event` will not be called any more, on any thread; also if connecting fails. In a forked child, `on_event` hears
/// the client that connects again there; the child does not call `drop`.
///
/// Errors: as pl_connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_connect_with_events(
    url: *const c_char,
    options: *const *const c_char,
    language: *const c_char,
    on_event: PlOnEvent,
    user: *mut c_void,
    drop: PlDrop,
    client: *mut *mut PlClient,
    error: *mut *mut PlError,
) -> PlStatus {
    let callback = Callback::new(on_event, user, drop);
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let client = place("client", client)?;
            *client = ptr::null_mut();
            if callback.is_null() {
                return Err(Failure::invalid_argument("on_event is NULL; it must be the function to call"));
            }
            let mut connect = connect_options(url, options, language)?;
            let telling = Telling::new(callback);
            connect.listener = Some(telling.listener());
            let connected = run(Client::connect(connect))?;
            *client = Box::into_raw(Box::new(PlClient(connected, Some(telling))));
            Ok(PlStatus::PL_OK)
        })
    }
}

/// # Safety
/// As for pl_connect.
unsafe fn connect_options(
    url: *const c_char,
    options: *const *const c_char,
    language: *const c_char,
) -> Result<ConnectOptions, Failure> {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        let url = optional_text("url", url)?.map(str::to_owned);
        let language = optional_text("language", language)?.unwrap_or("c").to_owned();
        let mut connect = ConnectOptions {
            url,
            language: Some((language, env!("CARGO_PKG_VERSION").to_owned())),
            ..ConnectOptions::default()
        };
        read_pairs("option", options, |key, value| connect.set(key, OptionValue::Text(value.to_owned())))?;
        Ok(connect)
    }
}

/// Reads keys and values in turn.
///
/// # Safety
/// `pairs` is null or a list of texts that ends with null.
pub(crate) unsafe fn read_pairs(
    what: &str,
    pairs: *const *const c_char,
    mut take: impl FnMut(&str, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if pairs.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise; no entry behind the null at the end is read.
    unsafe {
        let mut at = pairs;
        while !(*at).is_null() {
            let key = text(&format!("the key of the {what}"), *at)?;
            if (*at.add(1)).is_null() {
                return Err(Failure::invalid_argument(format!(
                    "the {what} {key:?} has no value; {what}s are keys and values in turn, with NULL at the end"
                )));
            }
            take(key, text(key, *at.add(1))?)?;
            at = at.add(2);
        }
    }
    Ok(())
}

/// Ends waiting, releases what the client holds, and waits at most 5 s until the store knows, then for the callbacks of
/// pl_connect_with_events. Later calls fail with "canceled". Repeatable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_close(client: *const PlClient, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let client = handle("client", client)?;
            run(client.0.close());
            if let Some(telling) = &client.1 {
                telling.drain();
            }
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives a client back. Guards that are still around keep their locks; pl_client_close releases them.
///
/// Waits for a function of pl_connect_with_events that is running, unless it is called from there: so do not hold what
/// that function waits for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_free(client: *mut PlClient) {
    // SAFETY: the caller's promise.
    if let Some(telling) = unsafe { client.as_ref() }.and_then(|client| client.1.as_ref()) {
        infallible((), || telling.end());
    }
    // SAFETY: the caller's promise.
    unsafe { free(client) };
}

/// Gives a text back that a function handed out as `char *`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: handed out by `CString::into_raw`, and freed once: the caller's promise.
        let text = unsafe { std::ffi::CString::from_raw(text) };
        infallible((), || drop(text));
    }
}
