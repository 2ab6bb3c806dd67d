//! Looks at a Consul datacenter as a careful operator would.
//!
//! [`facts`] asks the agent and tries what locks need under throw-away keys; [`checks`] draws the
//! conclusions and does no I/O.

mod checks;
mod facts;
#[cfg(test)]
mod tests;

use crate::backend::consul::backend::Inner;
use crate::error::Result;
use crate::snapshot::Examination;

/// Errors: only if the agent cannot be reached; what it refuses is a finding.
pub(crate) async fn examine(inner: &Inner) -> Result<Examination> {
    Ok(checks::judge(&facts::gather(inner).await?))
}
