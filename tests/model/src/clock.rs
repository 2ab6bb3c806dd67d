//! The instant that the included policy counts with, from the core as well.

#[path = "../../../core/src/clock/instant.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod instant;

pub(crate) use instant::BootInstant;
