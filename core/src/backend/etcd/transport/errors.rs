//! What a refusal of a member means, and the way out.

use crate::backend::http::Response;
use crate::error::{Effect, Error, ErrorKind};

use super::super::protocol::answers::refusal;

/// Longest part of a server's text that is repeated.
const MOST_WORDS: usize = 300;

/// What a refusal asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The lease is unknown: revoked or expired.
    NoLease,
    /// The authentication token is no longer accepted.
    StaleToken,
    Other,
}

/// The lease was revoked or has expired before it was used.
const LEASE_GONE: &str = "the lease of this acquisition was revoked or has expired; a new one is made";

/// Whether a request was not carried out because its lease is unknown.
pub(crate) fn is_lease_gone(error: &Error) -> bool {
    error.message() == LEASE_GONE
}

/// Sorts out what the caller can go on with.
pub(crate) fn refused(response: &Response) -> Refused {
    let words = words(&response.body);
    match () {
        () if words.contains("requested lease not found") => Refused::NoLease,
        () if words.contains("invalid auth token") || words.contains("revision of auth store is old") => {
            Refused::StaleToken
        }
        () => Refused::Other,
    }
}

/// The error of an answer that is no success. `prefix` is the folder of the locks.
pub(crate) fn error(response: &Response, prefix: &str, place: &str) -> Error {
    let (words, status) = (words(&response.body), response.status);
    let has = |part: &str| words.contains(part);
    let rejected = |message: String| Error::new(ErrorKind::BackendRejected, message);
    let unavailable = |message: String| Error::new(ErrorKind::BackendUnavailable, message);
    if refused(response) == Refused::NoLease {
        return unavailable(LEASE_GONE.to_owned());
    }
    if has("HTTP request to an HTTPS server") {
        return rejected(format!("etcd at {place} speaks TLS; write etcd+https:// instead of etcd://"));
    }
    if has("user name is empty") {
        // A JavaScript host has no files, and not everywhere an environment.
        let way = match cfg!(target_family = "wasm") {
            true => "etcd://USER:PASSWORD@HOST",
            false => "etcd://USER@HOST?password_env=VARIABLE, or user= and password_file=",
        };
        return rejected(format!("etcd at {place} requires a user; write {way}"));
    }
    if has("authentication failed") {
        return rejected(format!(
            "etcd at {place} refuses this user or password; check user= and password_env=, or those of the URL"
        ));
    }
    if has("authentication is not enabled") {
        return rejected(format!(
            "etcd at {place} has no authentication; leave user and password out, or run etcdctl auth enable"
        ));
    }
    if has("permission denied") {
        return rejected(format!(
            "the user of this client may not do this at etcd ({place}); run etcdctl role grant-permission ROLE readwrite \
             --prefix=true {prefix}"
        ));
    }
    if has("database space exceeded") {
        return unavailable(format!(
            "the database of etcd at {place} is full, so nothing can be locked; compact and defragment it, then run \
             etcdctl alarm disarm"
        ));
    }
    if has("no leader") {
        return unavailable(format!(
            "etcd at {place} has no leader at the moment, so nothing can be locked; it elects one while a majority of its \
             members is up"
        ));
    }
    if has("not supported for learner") {
        return unavailable(format!(
            "etcd at {place} is a learner, which grants nothing; name the members that vote, or run etcdctl member promote"
        ));
    }
    if has("too many requests") {
        return unavailable(format!("etcd at {place} has too many requests to carry out ({words})"));
    }
    if status == 404 && refusal(&response.body).is_none() {
        return rejected(format!(
            "etcd at {place} answered \"not found\"; Polylatch needs the JSON gateway of etcd 3.4 or later \
             (--enable-grpc-gateway) on the port of clients"
        ));
    }
    if status >= 500 || has("timed out") || has("leader changed") {
        // It may have been carried out.
        return unavailable(format!("etcd at {place} could not finish the request: {words}"))
            .with_effect(Effect::Maybe);
    }
    rejected(format!("etcd at {place} refused the request (status {status}): {words}"))
}

/// The error of an answer that is none of etcd's.
pub(crate) fn unreadable(body: &[u8], place: &str) -> Error {
    let message = format!("the server at {place} is no etcd member: it answered {:?}", words(body));
    Error::new(ErrorKind::BackendRejected, message).with_effect(Effect::Maybe)
}

/// The server's own words, bounded and in one line.
fn words(body: &[u8]) -> String {
    let text = refusal(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_WORDS).collect();
    text.trim().trim_start_matches("etcdserver: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str) -> Response {
        Response { status, index: None, body: body.into() }
    }

    #[test]
    fn refusals_are_told_with_the_way_out() {
        use ErrorKind::{BackendRejected, BackendUnavailable};
        for (status, words, kind, effect, part) in [
            (400, "etcdserver: user name is empty", BackendRejected, Effect::None, "password_env="),
            (
                400,
                "etcdserver: authentication failed, invalid user ID or password",
                BackendRejected,
                Effect::None,
                "check user=",
            ),
            (400, "etcdserver: authentication is not enabled", BackendRejected, Effect::None, "auth enable"),
            (
                403,
                "etcdserver: permission denied",
                BackendRejected,
                Effect::None,
                "readwrite --prefix=true locks/",
            ),
            (
                429,
                "etcdserver: mvcc: database space exceeded",
                BackendUnavailable,
                Effect::None,
                "alarm disarm",
            ),
            (503, "etcdserver: no leader", BackendUnavailable, Effect::None, "majority"),
            (
                503,
                "etcdserver: rpc not supported for learner",
                BackendUnavailable,
                Effect::None,
                "member promote",
            ),
            (503, "etcdserver: request timed out", BackendUnavailable, Effect::Maybe, "timed out"),
            (400, "etcdserver: invalid range", BackendRejected, Effect::None, "invalid range"),
        ] {
            let body = format!(r#"{{"error":"{words}","code":1}}"#);
            let told = error(&response(status, &body), "locks/", "h:1");
            assert_eq!((told.kind(), told.effect()), (kind, effect), "{words}: {told}");
            assert!(told.to_string().contains(part), "{words}: {told}");
        }
        let told = error(&response(404, "404 page not found"), "locks/", "h:1");
        assert!(told.to_string().contains("--enable-grpc-gateway"), "{told}");
        let told =
            error(&response(400, "Client sent an HTTP request to an HTTPS server.\n"), "locks/", "h:1");
        assert!(told.to_string().contains("etcd+https://"), "{told}");
    }

    #[test]
    fn what_can_be_gone_on_with_is_told_apart() {
        let of = |words: &str| refused(&response(400, &format!(r#"{{"error":"etcdserver: {words}"}}"#)));
        assert_eq!(of("requested lease not found"), Refused::NoLease);
        assert_eq!(of("invalid auth token"), Refused::StaleToken);
        assert_eq!(of("no leader"), Refused::Other);
    }
}
