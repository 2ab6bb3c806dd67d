//! `polylatch run`: a command under a lock. It is stopped before it could run without the lock.

#[cfg(unix)]
mod child;
#[cfg(unix)]
mod stop;
#[cfg(unix)]
mod supervise;
pub(super) mod wait_for;
#[cfg(unix)]
mod waiting;

use super::RunArgs;
use super::store::Failure;

#[cfg(unix)]
pub(super) use supervise::run;

/// Stopping a command in time needs process groups and signals.
#[cfg(not(unix))]
pub(super) async fn run(_: Option<&str>, _: RunArgs) -> Result<u8, Failure> {
    Err(Failure::new(
        super::exit::UNAVAILABLE,
        "run needs a Unix system: stopping a command in time takes signals",
    ))
}
