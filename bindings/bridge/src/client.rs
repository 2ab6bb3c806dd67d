//! A client that a forked child may go on to use: it connects anew there.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use polylatch::Polylatch;

use crate::events::Route;
use crate::failure::Failure;
use crate::options::ConnectOptions;
use crate::process::Process;

struct Connection {
    home: Process,
    client: Polylatch,
    route: Option<Route>,
}

/// One client of one store, in whichever process it is used.
pub struct Client {
    options: ConnectOptions,
    connection: AtomicPtr<Connection>,
    closed: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects. Errors: as [`Polylatch::connect`].
    pub async fn connect(options: ConnectOptions) -> Result<Self, Failure> {
        let (client, route) = options.connect().await?;
        let connection = AtomicPtr::new(boxed(client, route));
        Ok(Self { options, connection, closed: AtomicBool::new(false) })
    }

    /// Returns the core's client if it was connected in this process.
    pub fn connected(&self) -> Option<&Polylatch> {
        self.connection().map(|connection| &connection.client)
    }

    fn connection(&self) -> Option<&Connection> {
        // SAFETY: the pointer is never null, and what it points to is freed by `drop` alone: a
        // replaced connection is leaked.
        let connection = unsafe { &*self.connection.load(Ordering::Acquire) };
        connection.home.is_this().then_some(connection)
    }

    /// Returns the core's client; in a forked child, connects anew first.
    ///
    /// Errors: `canceled` if it was closed before the fork; otherwise as [`Client::connect`].
    pub async fn get(&self) -> Result<&Polylatch, Failure> {
        loop {
            if let Some(client) = self.connected() {
                return Ok(client);
            }
            if self.closed.load(Ordering::SeqCst) {
                return Err(Failure::canceled("this client was closed; connect a new one to acquire locks"));
            }
            let (fresh, route) = self.options.connect().await?;
            self.replace_inherited(boxed(fresh, route));
        }
    }

    fn replace_inherited(&self, fresh: *mut Connection) {
        let inherited = self.connection.load(Ordering::Acquire);
        if self.connected().is_some() {
            // SAFETY: made by `boxed` for this call, and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            return;
        }
        let swapped = self.connection.compare_exchange(inherited, fresh, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            // Another thread of this child was faster; its connection is used.
            // SAFETY: it was made above and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }

    /// Closes it; see [`Polylatch::close`]. In a child that has not used it there is nothing to do.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(connection) = self.connection() {
            connection.client.close().await;
            if let Some(route) = &connection.route {
                route.end();
            }
        }
    }

    /// Says whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

fn boxed(client: Polylatch, route: Option<Route>) -> *mut Connection {
    Box::into_raw(Box::new(Connection { home: Process::this(), client, route }))
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.connected().is_some() {
            // SAFETY: made by `boxed`, not null, and nobody else can reach it any more.
            drop(unsafe { Box::from_raw(*self.connection.get_mut()) });
        }
    }
}
