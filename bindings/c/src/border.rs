//! Crossing the border: pointers that may be null, text that may not be text, panics that stay here.
//!
//! What no check can find is the caller's promise, as everywhere in C: a pointer that is not null
//! points to what its type says, a handle was not freed before, and text ends with a NUL byte.

use std::ffi::{CStr, CString, c_char};

use polylatch_bridge::{Failure, border};

use crate::error::{PlError, PlStatus};

/// Runs a call that can fail, and stores what went wrong in `error` unless that is null.
///
/// # Safety
/// `error` is null or may be written to.
pub(crate) unsafe fn call(
    error: *mut *mut PlError,
    work: impl FnOnce() -> Result<PlStatus, Failure>,
) -> PlStatus {
    // SAFETY: the caller's promise for a pointer that is not null.
    let place = unsafe { error.as_mut() };
    match border::caught(work).and_then(|result| result) {
        Ok(status) => {
            if let Some(place) = place {
                *place = std::ptr::null_mut();
            }
            status
        }
        Err(failure) => {
            if let Some(place) = place {
                *place = Box::into_raw(Box::new(PlError::new(&failure)));
            }
            PlStatus::PL_ERROR
        }
    }
}

/// Stores what `make` makes, for its `…_free` to free; null if it fails.
///
/// # Safety
/// Each pointer is null or may be written to.
pub(crate) unsafe fn made<T>(
    parameter: &str,
    to: *mut *mut T,
    error: *mut *mut PlError,
    make: impl FnOnce() -> Result<T, Failure>,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        call(error, || {
            let to = place(parameter, to)?;
            *to = std::ptr::null_mut();
            *to = Box::into_raw(Box::new(make()?));
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Runs a call that cannot fail; a panic, which is a bug, becomes `otherwise`.
pub(crate) fn infallible<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    border::caught(work).unwrap_or(otherwise)
}

/// Returns what a handle points to. Errors: `invalid_argument` for null, naming the parameter.
///
/// # Safety
/// The pointer is null or points to a live `T`.
pub(crate) unsafe fn handle<'a, T>(parameter: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise for a pointer that is not null.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(parameter))
}

/// Returns the place for a result. Errors: `invalid_argument` for null, naming the parameter.
///
/// # Safety
/// The pointer is null or may be written to.
pub(crate) unsafe fn place<'a, T>(parameter: &str, pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise for a pointer that is not null.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(parameter))
}

fn null(parameter: &str) -> Failure {
    Failure::invalid_argument(format!("{parameter} is NULL; it must point to something"))
}

/// Reads text. Errors: `invalid_argument` for null and for what is not UTF-8, naming the parameter.
///
/// # Safety
/// The pointer is null or points to a text that ends with a NUL byte.
pub(crate) unsafe fn text<'a>(parameter: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(parameter, pointer) }?.ok_or_else(|| null(parameter))
}

/// Reads text that may be left out with null. Errors: `invalid_argument` for what is not UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(
    parameter: &str,
    pointer: *const c_char,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller's promise.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    match bytes.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(Failure::invalid_argument(format!(
            "{parameter} is not UTF-8: it breaks off after {} bytes",
            error.valid_up_to()
        ))),
    }
}

/// Returns text; free it with `pl_text_free`. A NUL byte inside becomes U+FFFD.
pub(crate) fn owned_text(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| {
        CString::new(text.replace('\0', "\u{fffd}")).expect("every NUL byte was replaced")
    })
}

/// Frees a handle that was made with `Box::into_raw`; null is allowed.
///
/// # Safety
/// The pointer is null or was handed out for this, and is not used again.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: made by `Box::into_raw`, and freed once: the caller's promise.
        let value = unsafe { Box::from_raw(pointer) };
        infallible((), || drop(value));
    }
}
