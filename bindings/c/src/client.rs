//! One client of one store.

use std::ffi::{CStr, c_char};
use std::ptr;

use polylatch_bridge::{Client, ConnectOptions, Failure, OptionValue};

use crate::border::{self, free, handle, infallible, optional_text, place, text};
use crate::cancel::run;
use crate::error::{PlError, PlStatus};

/// One client of one store: a connection, and a thread that renews leases. One per process is enough.
#[derive(Debug)]
pub struct PlClient(pub(crate) Client);

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
/// `language` names the calling language for people, such as "go 1.22"; NULL means "c".
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
            let url = optional_text("url", url)?.map(str::to_owned);
            let language = optional_text("language", language)?.unwrap_or("c").to_owned();
            let mut connect = ConnectOptions {
                url,
                language: Some((language, env!("CARGO_PKG_VERSION").to_owned())),
                ..ConnectOptions::default()
            };
            read_options(options, &mut connect)?;
            *client = Box::into_raw(Box::new(PlClient(run(Client::connect(connect))?)));
            Ok(PlStatus::PL_OK)
        })
    }
}

/// # Safety
/// `options` is null or a list of texts that ends with null.
unsafe fn read_options(options: *const *const c_char, to: &mut ConnectOptions) -> Result<(), Failure> {
    if options.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise; no entry behind the null at the end is read.
    unsafe {
        let mut at = options;
        while !(*at).is_null() {
            let key = text("an option's key", *at)?;
            if (*at.add(1)).is_null() {
                return Err(Failure::invalid_argument(format!(
                    "the option {key:?} has no value; options are keys and values in turn, with NULL at the end"
                )));
            }
            to.set(key, OptionValue::Text(text(key, *at.add(1))?.to_owned()))?;
            at = at.add(2);
        }
    }
    Ok(())
}

/// Ends waiting, releases what the client holds, and waits at most 5 s until the store knows. Later
/// calls fail with "canceled". Repeatable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_close(client: *const PlClient, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            run(handle("client", client)?.0.close());
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives a client back. Guards that are still around keep their locks; pl_client_close releases them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_client_free(client: *mut PlClient) {
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
