//! What the command line and the window need of the machine they run on.
//!
//! [`poll`] follows stores in the background, [`files`] keeps connections and recordings, [`ThisHost`] looks processes
//! up. It stands between the model, which has no I/O, and the two programs, which do not know each other.

#![deny(missing_docs)]

#[cfg(unix)]
pub mod child;
#[cfg(unix)]
pub mod demo_place;
pub mod duration;
pub mod exit;
pub mod files;
pub mod pace;
pub mod poll;
mod this_host;

pub use this_host::{ThisHost, who_am_i};
