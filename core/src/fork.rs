//! What a program that forks while it has clients calls around the fork.
//!
//! Most stores need nothing: a forked child holds nothing that its parent holds, and connects clients of its own.
//! SQLite is the exception: no open file of it may cross a fork (SQLite: "How To Corrupt An SQLite Database File",
//! section 2.6). So [`before`] closes the files of all clients of this process that hold nothing and wait for nothing;
//! each is opened again when its client is next used. The bindings for Python and Ruby call this automatically.

use std::time::Duration;

/// Closes the files of the clients of `sqlite:` stores in this process that neither hold nor wait for a lock, and keeps
/// them closed until [`after_in_parent`] is called, or for 2 s. Returns as soon as every client has answered; after
/// `limit` it waits no longer.
///
/// A client that holds or waits keeps its file open and goes on as if nothing had happened. Connecting to a `sqlite:`
/// store in the forked child then fails with `unsupported`, and the message says so. The same happens where a client
/// did not answer in time, or where the program does not call this function before it forks.
///
/// In a process without such clients it returns at once. May be called by several threads at the same time, each of
/// which calls [`after_in_parent`].
pub fn before(limit: Duration) {
    #[cfg(feature = "sqlite")]
    crate::backend::sqlite::transport::forked::before(limit);
    #[cfg(not(feature = "sqlite"))]
    let _ = limit;
}

/// Ends what [`before`] began, in the process that has forked; also if the fork failed. The child calls nothing.
pub fn after_in_parent() {
    #[cfg(feature = "sqlite")]
    crate::backend::sqlite::transport::forked::after_in_parent();
}
