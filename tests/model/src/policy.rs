//! The shipped policy, included from the core: what is checked here is what runs there.

#[path = "../../../core/src/policy/acquisition.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod acquisition;
#[path = "../../../core/src/policy/admission.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod admission;
#[path = "../../../core/src/policy/backoff.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod backoff;
#[path = "../../../core/src/policy/keeping.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod keeping;
#[path = "../../../core/src/policy/lease.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod lease;
#[path = "../../../core/src/policy/quorum.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod quorum;
#[path = "../../../core/src/policy/waiting.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod waiting;
#[path = "../../../core/src/policy/watchdog.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
pub(crate) mod watchdog;
