//! What a failure means: whether it is over, whether to try again, and what to do about it.

use tokio_postgres::error::SqlState;

use crate::backend::rows::server::failure::Failure;
use crate::error::{Effect, Error, ErrorKind};

/// Reads an error of the client library. `sent`: something that changes rows may have been carried out.
pub(crate) fn failure(error: &tokio_postgres::Error, place: &str, sent: bool) -> Failure {
    let Some(db) = error.as_db_error() else {
        let lost = Error::new(
            ErrorKind::BackendUnavailable,
            format!("the connection to PostgreSQL at {place} ended: {}", with_causes(error)),
        );
        let effect = if sent { Effect::Maybe } else { Effect::None };
        return Failure::Lost { error: lost.with_effect(effect), sent };
    };
    let code = db.code();
    let told = format!("{} (SQLSTATE {})", db.message(), code.code());
    let refused = |kind: ErrorKind, way_out: &str| Failure::Refused {
        code: code.code().to_owned(),
        error: Error::new(kind, format!("PostgreSQL at {place} refuses: {told}; {way_out}")),
    };
    let rejected = |way_out: &str| refused(ErrorKind::BackendRejected, way_out);
    // The server ends the connection, and may have carried out what it was asked for.
    if [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
        || code.code().starts_with("08")
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
    {
        let error = Error::new(
            ErrorKind::BackendUnavailable,
            format!("PostgreSQL at {place} ended the connection: {told}; try again when it runs"),
        );
        return Failure::Lost {
            error: error.with_effect(if sent { Effect::Maybe } else { Effect::None }),
            sent,
        };
    }
    match code.code() {
        "40001" | "40P01" => Failure::Collision(Error::new(
            ErrorKind::BackendUnavailable,
            format!("other transactions at PostgreSQL at {place} were in the way several times: {told}"),
        )),
        _ if is_of_a_plan(error) => Failure::Collision(Error::new(
            ErrorKind::BackendUnavailable,
            format!("a pooler before PostgreSQL at {place} moved this client several times: {told}"),
        )),
        "55P03" | "57014" => refused(
            ErrorKind::BackendUnavailable,
            "another transaction holds the rows for longer than the time limit; end it (pg_stat_activity names \
             it), or raise timeout=",
        ),
        "28P01" | "28000" => rejected(
            "check user and password, pg_hba.conf of the server, and whether it wants TLS (sslmode=require) or a \
             client certificate (cert= and key=)",
        ),
        "3D000" => rejected("name an existing database as postgres://HOST/DATABASE"),
        "42501" => rejected(
            "this user may not do that; grant it the rights of a client, which `polylatch schema postgres` prints, or \
             use a user that has them",
        ),
        "25006" => rejected(
            "the server or the session is read-only (a standby, or default_transaction_read_only); connect to the \
             primary",
        ),
        "53300" | "53400" => refused(
            ErrorKind::BackendUnavailable,
            "it has too many connections; a client uses two, with wake=poll one; raise max_connections, or put \
             a pooler before the server",
        ),
        "53100" | "53200" | "53000" => {
            refused(ErrorKind::BackendUnavailable, "it lacks disk or memory; free some")
        }
        "42P01" | "3F000" => rejected(
            "the tables are missing; connect a client that may create them, or let the owner of the database run what \
             `polylatch schema postgres` prints",
        ),
        "42703" | "42P07" => rejected("the tables are not those of this version of Polylatch"),
        _ => rejected("the server's log may say more"),
    }
}

/// Whether a prepared statement cannot be used: the connection does not know it, or knows another of its name, because a
/// pooler is in between; or the tables were changed meanwhile. Nothing was carried out.
pub(crate) fn is_of_a_plan(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| ["26000", "42P05", "0A000"].contains(&code.code()))
}

/// An error of the client library with its causes, which its own text leaves out.
pub(crate) fn with_causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
