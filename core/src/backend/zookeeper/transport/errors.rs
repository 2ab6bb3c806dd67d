//! What a refusal of a server means, and the way out.

use std::io;

use tokio_rustls::rustls::Error as TlsError;

use crate::error::{Effect, Error, ErrorKind};
use crate::tls;

use super::super::protocol::answers::code;

fn rejected(message: String) -> Error {
    Error::new(ErrorKind::BackendRejected, message)
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::BackendUnavailable, message)
}

/// The error of a refused request that was about this node.
pub(crate) fn refused(code: i32, path: &str) -> Error {
    match code {
        code::NO_AUTH => rejected(format!(
            "the rights (ACL) of ZooKeeper's node {path:?} or of its parent do not let this client do this; run setAcl \
             with cdrwa for its user, or give user= and password_env="
        )),
        code::NEEDS_SASL => rejected(
            "ZooKeeper requires authentication by SASL, which Polylatch does not have; allow the scheme digest \
             (enforce.auth.schemes), and give user= and password_env="
                .into(),
        ),
        code::AUTH_FAILED => log_in_failed(),
        code::INVALID_ACL => rejected(
            "ZooKeeper accepts no rights (ACL) for this user; check that it has the scheme digest".into(),
        ),
        code::NOT_READ_ONLY => unavailable(
            "this ZooKeeper member is read-only, because it reaches no majority; name the other members too".into(),
        ),
        code::QUOTA => rejected(format!("the quota of ZooKeeper's node {path:?} is used up; see listquota")),
        code::THROTTLED => unavailable("ZooKeeper has too many requests to carry out".into()),
        code::SESSION_MOVED => {
            unavailable("the session of this client is at another member now; the request is sent again".into())
        }
        code::SESSION_EXPIRED => expired(),
        code => rejected(format!("ZooKeeper refused a request about the node {path:?} (code {code})")),
    }
}

pub(crate) fn log_in_failed() -> Error {
    rejected("ZooKeeper refuses this user or password; check user= and password_env=".into())
}

/// The session was ended by the servers: it had been silent for too long, or an operator ended it.
pub(crate) fn expired() -> Error {
    unavailable("the ZooKeeper session of this client has ended; a new one is made".into())
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Canceled, "this client is closed")
}

/// An answer that has not the form of one.
pub(crate) fn unreadable(place: &str) -> Error {
    rejected(format!("the server at {place} does not answer as ZooKeeper does")).with_effect(Effect::Maybe)
}

pub(crate) fn cannot_connect(place: &str, error: io::Error) -> Error {
    unavailable(format!("could not connect to ZooKeeper at {place}")).with_source(error)
}

/// The server ended the connection instead of an answer to the first frame.
pub(crate) fn not_serving(place: &str) -> Error {
    unavailable(format!(
        "ZooKeeper at {place} closed the connection at once: it serves no clients at the moment (no majority of its \
         members is up, or it still starts), it has too many connections of this host (maxClientCnxns), or requires TLS \
         (zookeepers://)"
    ))
}

/// The connection failed before the first answer.
pub(crate) fn at_first(place: &str, error: io::Error) -> Error {
    match error.get_ref().map(|inner| inner.is::<TlsError>()) {
        // In TLS 1.3 a client certificate is refused after the handshake.
        Some(true) => tls::refused(error, "ZooKeeper", place, "zookeepers", "zookeeper"),
        _ if matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
        ) =>
        {
            not_serving(place)
        }
        _ => cannot_connect(place, error),
    }
}

pub(crate) fn silent(place: &str) -> Error {
    unavailable(format!("ZooKeeper at {place} did not answer in time"))
}

/// The connection ended while requests were on their way.
pub(crate) fn broken(place: &str) -> Error {
    unavailable(format!("the connection to ZooKeeper at {place} ended before the answer"))
        .with_effect(Effect::Maybe)
}

/// A session of this length is refused.
pub(crate) fn too_long(asked_ms: u128, allowed_ms: i32, most_lease_ms: u128) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this lease needs a ZooKeeper session of {asked_ms} ms, and the servers allow {allowed_ms} ms \
             (maxSessionTimeout, 20 times tickTime unless it is set); use a lease of at most {most_lease_ms} ms, or raise \
             maxSessionTimeout"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_with_the_way_out() {
        use ErrorKind::{BackendRejected, BackendUnavailable};
        for (code, kind, part) in [
            (code::NO_AUTH, BackendRejected, "setAcl with cdrwa"),
            (code::NEEDS_SASL, BackendRejected, "scheme digest"),
            (code::AUTH_FAILED, BackendRejected, "check user="),
            (code::NOT_READ_ONLY, BackendUnavailable, "majority"),
            (code::QUOTA, BackendRejected, "listquota"),
            (-4_711, BackendRejected, "code -4711"),
        ] {
            let error = refused(code, "/l/a");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
