//! What went wrong, as a plain object; `errors.ts` makes an error of it.

use napi_derive::napi;
use polylatch_bridge::Failure;

/// The values of a failure.
#[napi(object, object_from_js = false)]
pub struct Fault {
    pub code: &'static str,
    pub retry: &'static str,
    pub effect: &'static str,
    pub reason: Option<&'static str>,
    pub message: String,
    pub hint: &'static str,
    pub backend: Option<&'static str>,
    pub operation: Option<&'static str>,
    pub lock: Option<String>,
    pub attempt: Option<u32>,
    /// Milliseconds.
    pub elapsed: Option<f64>,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let context = &failure.context;
        Self {
            code: failure.code,
            retry: failure.retry,
            effect: failure.effect,
            reason: failure.lost_reason,
            message: failure.message.clone(),
            hint: failure.hint,
            backend: context.backend,
            operation: context.operation,
            lock: context.lock.clone(),
            attempt: context.attempt,
            elapsed: context.elapsed.map(|elapsed| elapsed.as_secs_f64() * 1e3),
        }
    }
}

impl From<polylatch::Error> for Fault {
    fn from(error: polylatch::Error) -> Self {
        Failure::from(error).into()
    }
}
