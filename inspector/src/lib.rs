//! Who holds, who waits, and why a lock is stuck: one model, shown by a command line and a window.
//!
//! [`model`] turns readings of a store into rows, findings and a wait-for graph. It is pure: no
//! terminal, no clock, no `/proc`; what only the host knows comes through [`model::HostFacts`].
//! [`poll`] reads stores in the background, [`files`] keeps connections and recordings, and [`cli`] is the
//! program `polylatch`.

pub mod cli;
pub mod files;
mod host;
pub mod model;
mod pace;
pub mod poll;
#[cfg(feature = "window")]
pub mod window;

pub use host::ThisHost;
