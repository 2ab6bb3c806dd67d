//! The errors of acquisitions that ended without the lock.

use std::time::Duration;

use crate::backend::HolderHint;
use crate::clock::seconds;
use crate::error::{Error, ErrorKind};
use crate::mode::{Kind, other_kind};
use crate::options::AcquireOptions;

/// What the latest answer said beyond what decides.
#[derive(Default)]
pub(super) enum Last {
    #[default]
    Nothing,
    Queued {
        holder: Option<HolderHint>,
        position: Option<u32>,
    },
    OtherKind(Kind),
    Failed(Error),
}

impl Last {
    /// The error of an acquisition that ended with this after so long.
    pub(super) fn into_error(self, options: &AcquireOptions, waited: Duration) -> Error {
        let mut message = format!("{} was not free within {}", options.name, seconds(waited));
        match self {
            Self::Failed(error) => return error,
            Self::OtherKind(present) => {
                return other_kind(options.name.as_str(), present, options.mode.kind());
            }
            Self::Nothing => {}
            Self::Queued { holder, position } => {
                if let Some(holder) = holder {
                    message.push_str(&format!(": {holder}"));
                }
                if let Some(position @ 1..) = position {
                    message.push_str(&format!("; {position} waited before this one"));
                }
            }
        }
        Error::new(ErrorKind::WaitTimeout, message)
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Canceled, "this client was closed; connect a new one to acquire locks")
}

pub(super) fn withheld(left: Duration) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "the store restarted, failed over or lost data, so it grants nothing for another {}, until all earlier \
             leases have expired; retry after that",
            seconds(left)
        ),
    )
}

pub(super) fn lock_delay(left: Option<Duration>) -> Error {
    let retry = match left {
        Some(left) => format!("in up to {}", seconds(left)),
        None => "in a while".to_owned(),
    };
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "the lock is free but in lock-delay: the session of the previous holder ended without releasing it, and \
             that holder may not know yet; retry {retry}"
        ),
    )
}

pub(super) fn too_slow(lease: Duration) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!("the store answered later than the lease of {lease:?} lasts; use a longer lease"),
    )
}
