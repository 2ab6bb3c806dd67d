//! What a failure means: whether it is over, whether to try again, and what to do about it.

use mysql_async::{DriverError, Error as Mysql, IoError, ServerError};

use crate::backend::rows::server::failure::Failure;
use crate::error::{Effect, Error, ErrorKind};

/// Reads an error of the client library. `sent`: something that changes rows may have been carried out.
pub(crate) fn failure(error: Mysql, place: &str, sent: bool) -> Failure {
    match error {
        Mysql::Server(refused) => of_server(&refused, place, sent),
        Mysql::Driver(DriverError::UnknownAuthPlugin { name }) => rejected(
            "auth_plugin",
            format!("MySQL at {place} wants to authenticate by {name}, which is not supported"),
            "use a user with caching_sha2_password or mysql_native_password",
        ),
        Mysql::Driver(DriverError::CleartextPluginDisabled | DriverError::MysqlOldPasswordDisabled) => {
            rejected(
                "auth_plugin",
                format!("MySQL at {place} wants the password in a form that can be read on the way"),
                "use a user with caching_sha2_password or mysql_native_password",
            )
        }
        Mysql::Driver(DriverError::NoClientSslFlagFromServer) => rejected(
            "no_tls",
            format!("MySQL at {place} offers no TLS"),
            "set up TLS there, or write sslmode=disable if the network is trusted",
        ),
        other => lost(format!("the connection to MySQL at {place} ended"), Some(other), sent),
    }
}

fn rejected(code: &str, what: String, way_out: &str) -> Failure {
    Failure::Refused {
        code: code.to_owned(),
        error: Error::new(ErrorKind::BackendRejected, format!("{what}; {way_out}")),
    }
}

fn lost(message: String, cause: Option<Mysql>, sent: bool) -> Failure {
    let effect = if sent { Effect::Maybe } else { Effect::None };
    let error = Error::new(ErrorKind::BackendUnavailable, message).with_effect(effect);
    let error = match cause {
        Some(Mysql::Io(IoError::Io(cause))) => error.with_source(cause),
        Some(cause) => error.with_source(cause),
        None => error,
    };
    Failure::Lost { error, sent }
}

fn of_server(told: &ServerError, place: &str, sent: bool) -> Failure {
    let code = told.code;
    let said = format!("{} (error {code})", told.message);
    let refused = |kind: ErrorKind, way_out: &str| Failure::Refused {
        code: code.to_string(),
        error: Error::new(kind, format!("MySQL at {place} refuses: {said}; {way_out}")),
    };
    let rejected = |way_out: &str| refused(ErrorKind::BackendRejected, way_out);
    let read_only =
        "the server or the session is read-only (a replica, or read_only is set); connect to the primary";
    match code {
        // The server ends the connection, and may have carried out what it was asked for.
        1053 | 1077 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => {
            lost(format!("MySQL at {place} ended the connection: {said}; try again when it runs"), None, sent)
        }
        // A deadlock (also of session locks) or a certification conflict, a row that changed in between, a statement that
        // was ended:
        // nothing of it was done.
        1213 | 1020 | 1317 | 3058 => Failure::Collision(Error::new(
            ErrorKind::BackendUnavailable,
            format!("other transactions at MySQL at {place} were in the way several times: {said}"),
        )),
        1205 | 1969 | 3024 => refused(
            ErrorKind::BackendUnavailable,
            "another transaction holds the rows for longer than the time limit; end it (information_schema.innodb_trx \
             names it), or raise timeout=",
        ),
        1045 | 1698 | 1251 | 1130 | 1129 | 3159 | 1862 | 1820 => rejected(
            "check user, password and the host from which the user may connect, and whether the server wants TLS \
             (sslmode=verify-full) or a client certificate (cert= and key=)",
        ),
        1044 => {
            rejected("this user may not use the database; grant it rights there, or name another database")
        }
        1049 => rejected("create the database, or name an existing one as mysql://HOST/DATABASE"),
        1142 | 1143 | 1227 | 1370 => rejected(
            "this user may not do that; grant it the rights of a client, which `polylatch schema mysql --clients USER` \
             prints, or use a user that has them",
        ),
        1836 | 1792 => rejected(read_only),
        1290 if told.message.contains("read-only") || told.message.contains("read_only") => {
            rejected(read_only)
        }
        1040 | 1203 | 1226 => refused(
            ErrorKind::BackendUnavailable,
            "it has too many connections; a client uses up to two, with wake=poll one; raise max_connections or the limit of the \
             user",
        ),
        1021 | 1114 | 1037 | 1038 | 1041 => {
            refused(ErrorKind::BackendUnavailable, "it lacks disk or memory; free some")
        }
        1047 => refused(ErrorKind::BackendUnavailable, "the node is not ready; try again when it has joined"),
        1146 => rejected(
            "the tables are missing; connect a client that may create them, or let the owner of the database run what \
             `polylatch schema mysql` prints",
        ),
        1054 => rejected("the tables are not those of this version of Polylatch"),
        1665 => rejected(
            "its binary log cannot record READ COMMITTED by statements; set binlog_format to ROW or MIXED",
        ),
        _ => rejected("the server's log may say more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: u16, message: &str) -> Failure {
        let error = ServerError { code, message: message.into(), state: "HY000".into() };
        failure(Mysql::Server(error), "h:1", true)
    }

    #[test]
    fn what_may_be_repeated_and_what_may_have_been_done_is_told_by_the_code() {
        assert!(matches!(told(1213, "Deadlock found"), Failure::Collision(_)));
        assert!(matches!(
            told(3058, "Deadlock found when trying to get user-level lock"),
            Failure::Collision(_)
        ));
        assert!(matches!(told(1927, "Connection was killed"), Failure::Lost { sent: true, .. }));
        for (code, message, part) in [
            (1205, "Lock wait timeout exceeded", "raise timeout="),
            (1290, "running with the --read-only option", "connect to the primary"),
            (1836, "Running in read-only mode", "connect to the primary"),
            (1290, "running with the --secure-file-priv option", "log may say more"),
            (1045, "Access denied", "check user, password"),
            (1049, "Unknown database 'x'", "create the database"),
        ] {
            let Failure::Refused { code: read, error } = told(code, message) else { panic!("{code}") };
            assert_eq!(read, code.to_string());
            assert!(error.to_string().contains(part), "{code}: {error}");
        }
        let ended = failure(Mysql::Driver(DriverError::ConnectionClosed), "h:1", false);
        assert!(matches!(ended, Failure::Lost { sent: false, .. }));
    }
}
