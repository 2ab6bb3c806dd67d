//! Session locks as bells: see `mysql::doorbell`. Their names are of the whole server, so they have the database in them.

use std::time::Duration;

use crate::backend::rows::server::value::Statement;
use crate::token::ClientId;

/// How long a client blocks on a bell before it looks whom to listen for.
pub(crate) const LISTEN_FOR: Duration = Duration::from_secs(5);

macro_rules! name {
    () => {
        "CONCAT('polylatch.', LEFT(SHA2(CONCAT(DATABASE(), '/', ?), 256), 32))"
    };
}

/// Takes the bell of a client: 1, or 0 after this time in whole seconds.
pub(crate) fn hang(client: &ClientId, within: Duration) -> Statement {
    let seconds = i64::try_from(within.as_secs()).unwrap_or(1);
    Statement::new(
        concat!("SELECT CAST(GET_LOCK(", name!(), ", ?) AS SIGNED)"),
        vec![client.as_str().into(), seconds.into()],
    )
}

/// Waits for a ring: 1 if the bell was let go, 0 after [`LISTEN_FOR`], -1 if no client holds it.
pub(crate) fn block_on(client: &ClientId) -> Statement {
    let name = client.as_str();
    let seconds = i64::try_from(LISTEN_FOR.as_secs()).unwrap_or(1);
    Statement::new(
        concat!("SELECT CAST(IF(IS_FREE_LOCK(", name!(), ") = 1, -1, GET_LOCK(", name!(), ", ?)) AS SIGNED)"),
        vec![name.into(), name.into(), seconds.into()],
    )
}

pub(crate) fn let_go(client: &ClientId) -> Statement {
    Statement::new(
        concat!("SELECT CAST(RELEASE_LOCK(", name!(), ") AS SIGNED)"),
        vec![client.as_str().into()],
    )
}

/// Fails if the connection, and with it the bell, is gone.
pub(crate) fn still_here() -> Statement {
    Statement::new("SELECT 1", vec![])
}
