//! Work that is done once and answered every time: keys that clients make, and one-time tokens.
//!
//! ```
//! # async fn story() -> Result<(), Box<dyn std::error::Error>> {
//! use polylatch::idempotency::{Outcome, RunOptions};
//!
//! let client = polylatch::Polylatch::connect("memory:").await?;
//! let orders = client.idempotency("orders/customer-7");
//! for _ in 0..2 {
//!     let outcome = orders
//!         .run("9f1c", &RunOptions::new(), |_claim| async { Ok(b"order 42".to_vec()) })
//!         .await?;
//!     assert_eq!(outcome.value(), b"order 42");
//! }
//! assert!(orders.run("9f1c", &RunOptions::new(), |_| async { unreachable!() }).await?.is_replayed());
//! # Ok(())
//! # }
//! # pollster::block_on(story()).unwrap();
//! ```
//!
//! # What is promised
//!
//! - Of all runs with one scope and key, one result is stored, and every later run gets that one until its retention is
//!   over.
//! - The work runs in one process at a time as long as that process obeys [`Claim::lost`].
//! - A client that dies delays the next run by what is left of its lease, whatever the retention is.
//!
//! # What is not promised
//!
//! If a client dies or loses its claim after its work had an effect and before the result is stored, the next run does the
//! work again. Make the effect refuse the second one: by [`Claim::fencing_token`], by a unique key where the effect is, or
//! by storing effect and record in one transaction. `core/docs/idempotency.md` says which one suits what.

mod claim;
mod error;
mod options;
mod records;
mod run;
mod tokens;

pub use crate::policy::idempotency::{
    DEFAULT_RETENTION, MAX_FINGERPRINT_BYTES, MAX_KEY_BYTES, MAX_RESULT_BYTES, MAX_SCOPE_BYTES, Retention,
    fingerprint_of,
};
pub use claim::Claim;
pub use error::{Failure, RunError};
pub use options::{OnFailure, RunOptions};
pub use records::{Forgotten, RecordInspector, RecordState, RecordView};
pub use run::{Begun, BegunRun, Outcome};
pub use tokens::Consumed;

use crate::driver::Handle;

/// The keys and tokens of one scope. Cheap to clone.
///
/// A scope names an operation and the caller it is done for, such as `orders/customer-7`: 1 to 256 bytes without control
/// characters. Take the identity of the caller from its credentials, never from its request: two callers that share a scope
/// get each other's answers for the same key. Nothing is sent and nothing is checked before the first call.
#[derive(Debug, Clone)]
pub struct Idempotency {
    core: Handle,
    scope: String,
}

impl Idempotency {
    pub(crate) fn new(core: Handle, scope: String) -> Self {
        Self { core, scope }
    }

    /// Returns the scope as it was given.
    pub fn scope(&self) -> &str {
        &self.scope
    }
}
