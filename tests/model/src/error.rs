//! The reasons for a loss, from the core as well.

#[path = "../../../core/src/error/lost_reason.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod lost_reason;

pub(crate) use lost_reason::LostReason;
