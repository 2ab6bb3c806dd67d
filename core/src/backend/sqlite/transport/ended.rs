//! Whether the process of a waiter has ended: all of them are on this host, so a queue need not wait until the
//! heartbeats of a killed process have lapsed.

use rusqlite::{OptionalExtension, params};

use crate::backend::sqlite::store::{Sql, Store};
use crate::client_info;
use crate::token::ClientId;

impl Store<'_> {
    /// Says whether the process of this client has certainly ended. A number of another pid namespace means
    /// nothing here, so the process has to have recorded that it is in ours.
    pub(crate) fn has_ended(&self, client: &str) -> Sql<bool> {
        let Some(pid) = ClientId::from_stored(client).pid() else { return Ok(false) };
        if !is_missing(pid) {
            return Ok(false);
        }
        let theirs: Option<Option<String>> = self
            .conn
            .prepare_cached("SELECT pid_namespace FROM client WHERE id = ?1")?
            .query_row(params![client], |row| row.get(0))
            .optional()?;
        let has_namespaces = cfg!(any(target_os = "linux", target_os = "android"));
        Ok(match (theirs, client_info::pid_namespace()) {
            (Some(Some(theirs)), Some(ours)) => theirs == ours,
            (Some(None), None) => !has_namespaces,
            _ => false,
        })
    }
}

/// Says whether there is no process of this number.
fn is_missing(pid: u32) -> bool {
    #[cfg(unix)]
    {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    }
    #[cfg(not(unix))]
    {
        let _ = pid;
        false
    }
}
