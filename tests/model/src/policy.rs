//! The shipped policy, included from the core: what is checked here is what runs there.

#[path = "../../../core/src/policy/admission.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod admission;
#[path = "../../../core/src/policy/quorum.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod quorum;
