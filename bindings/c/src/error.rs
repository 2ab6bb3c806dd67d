//! What went wrong, as a handle with text.

use std::ffi::{CString, c_char};
use std::ptr;

use polylatch_bridge::Failure;

use crate::border::{free, owned_text};

/// How a call ended.
#[allow(non_camel_case_types, reason = "the names of the header")]
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlStatus {
    /// Done.
    PL_OK = 0,
    /// Another client holds the lock or is queued before. Only from the calls that do not wait.
    PL_BUSY = 1,
    /// It failed; `error` says why.
    PL_ERROR = 2,
    /// The time given was over first. Only from pl_guard_wait_ended.
    PL_TIMED_OUT = 3,
}

/// What went wrong.
#[derive(Debug)]
pub struct PlError {
    code: CString,
    retry: CString,
    effect: CString,
    lost_reason: Option<CString>,
    message: CString,
    hint: CString,
}

impl PlError {
    pub(crate) fn new(failure: &Failure) -> Self {
        Self {
            code: owned_text(failure.code),
            retry: owned_text(failure.retry),
            effect: owned_text(failure.effect),
            lost_reason: failure.lost_reason.map(owned_text),
            message: owned_text(&failure.message),
            hint: owned_text(failure.hint),
        }
    }
}

/// Reads one text of an error; null for a null error.
///
/// # Safety
/// The pointer is null or points to a live error.
unsafe fn part(error: *const PlError, of: impl FnOnce(&PlError) -> Option<&CString>) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.and_then(of).map_or(ptr::null(), |text| text.as_ptr())
}

/// Returns the stable code, such as "lease_lost" or "wait_timeout". It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_code(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| Some(&error.code)) }
}

/// Returns the whole message: it names the input, the rule and the way out, and holds no secret.
/// It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_message(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| Some(&error.message)) }
}

/// Returns what to do about errors of this code, in one sentence. It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_hint(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| Some(&error.hint)) }
}

/// Returns whether trying again may help: "never", "caller_decides", "after_backoff" or
/// "acquire_anew". It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_retry(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| Some(&error.retry)) }
}

/// Returns whether anything may have happened at the store: "none" or "maybe". It lives as long as
/// the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_effect(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| Some(&error.effect)) }
}

/// Returns why a lease was lost, such as "expired" or "broken"; NULL for other errors. It lives as
/// long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_lost_reason(error: *const PlError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { part(error, |error| error.lost_reason.as_ref()) }
}

/// Gives an error back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_error_free(error: *mut PlError) {
    // SAFETY: the caller's promise.
    unsafe { free(error) };
}
