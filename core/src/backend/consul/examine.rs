//! Looks at a Consul datacenter as a careful operator would.
//!
//! [`facts`] asks the agent and tries what locks need under throw-away keys; [`judge`] draws the
//! conclusions and does no I/O.

mod facts;
mod judge;
#[cfg(test)]
mod tests;

use crate::backend::consul::Inner;
use crate::error::Result;
use crate::inspect::Examination;

/// Errors: only if the agent cannot be reached; what it refuses is a finding.
pub(super) async fn examine(inner: &Inner) -> Result<Examination> {
    Ok(judge::judge(&facts::gather(inner).await?))
}
