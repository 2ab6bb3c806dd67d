//! What a refusal of the agent means, and the way out.

use crate::backend::consul::port::Response;
use crate::error::{Effect, Error, ErrorKind};

/// Longest part of a server's text that is repeated.
const MOST_WORDS: usize = 300;

/// The error of an answer that is no success. `what` is the key concerned, or `session`.
pub(crate) fn refusal(response: &Response, what: &str, place: &str) -> Error {
    let words = words(response);
    let error = |kind, message: String| Error::new(kind, message);
    let rejected = |message: String| error(ErrorKind::BackendRejected, message);
    match response.status {
        403 if words.contains("ACL not found") => rejected(format!(
            "Consul at {place} knows no such ACL token; check token_env= or token_file= (a token is known by its \
             SecretID, and a new one takes a moment to reach every server)"
        )),
        403 if words.contains("limit") => error(
            ErrorKind::BackendUnavailable,
            format!("Consul at {place} takes no more connections: {words}"),
        ),
        401 | 403 => rejected(format!(
            "the ACL token of this client may not do this at Consul ({place}); its policy needs {}",
            needed_rule(what)
        )),
        429 => error(
            ErrorKind::BackendUnavailable,
            format!(
                "Consul at {place} takes no more connections from this host; raise limits.http_max_conns_per_client \
                 of the agent"
            ),
        ),
        413 => error(
            ErrorKind::InvalidArgument,
            format!(
                "Consul refused the request as too large ({words}); use a shorter label, or fewer permits"
            ),
        ),
        400 if words.contains("HTTP request to an HTTPS server") => rejected(format!(
            "the port of Consul at {place} is its HTTPS port; write consul+https:// instead of consul://"
        )),
        400 if words.contains("Enterprise") => error(
            ErrorKind::BackendRejected,
            format!("this Consul has no namespaces or partitions ({words}); leave ns= and partition= out"),
        ),
        400 => rejected(format!("Consul at {place} refused the request: {words}")),
        404 => rejected(format!(
            "Consul at {place} answered \"not found\"; is this the HTTP port of a Consul agent?"
        )),
        500 | 502 | 503 | 504 => server_error(&words, place),
        status => error(
            ErrorKind::BackendUnavailable,
            format!("Consul at {place} answered with status {status}: {words}"),
        )
        .with_effect(Effect::Maybe),
    }
}

/// A status of 500 and above: the words decide what it is.
fn server_error(words: &str, place: &str) -> Error {
    let rejected = |message: String| Error::new(ErrorKind::BackendRejected, message);
    let unavailable = |message: String| Error::new(ErrorKind::BackendUnavailable, message);
    if words.contains("ermission denied") {
        return refusal(&Response { status: 403, index: None, body: words.as_bytes().to_vec() }, "", place);
    }
    if words.contains("ACL not found") {
        return refusal(&Response { status: 403, index: None, body: words.as_bytes().to_vec() }, "", place);
    }
    if words.contains("No path to datacenter") {
        return rejected(format!("Consul at {place} knows no way to this datacenter; check dc="));
    }
    if words.contains("Invalid Session TTL") {
        return rejected(format!(
            "Consul at {place} refused the session's TTL ({words}); use a longer lease, or set session_ttl_min of the \
             servers as in the URL"
        ));
    }
    if words.contains("Missing node registration") {
        return rejected(format!(
            "Consul at {place} knows no such node; check node=, or leave it out to use the agent's own"
        ));
    }
    if words.contains("Missing check") || words.contains("is in critical state") {
        return rejected(format!(
            "Consul at {place} makes no session with the checks of checks=: {words}; name checks of that node that pass"
        ));
    }
    if words.contains("No cluster leader") || words.contains("No known Consul servers") {
        return unavailable(format!(
            "Consul at {place} has no leader at the moment, so nothing can be locked; it elects one while a majority \
             of its servers is up"
        ));
    }
    // Whatever else went wrong between agent, servers and log: it may have been carried out.
    unavailable(format!("Consul at {place} could not finish the request: {words}")).with_effect(Effect::Maybe)
}

/// The error of an answer that is none of Consul's.
pub(crate) fn unreadable(response: &Response, place: &str) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!("what answers at {place} is no Consul agent: {:?}", words(response)),
    )
    .with_effect(Effect::Maybe)
}

/// The rule that a policy lacks.
fn needed_rule(what: &str) -> String {
    match what {
        "" => "key_prefix with policy \"write\" for the prefix of the locks, and session with policy \"write\" for the \
               agent's node"
            .into(),
        "session" => "session \"NODE\" { policy = \"write\" } with the name of the agent's node".into(),
        key => {
            let folder = key.trim_start_matches("/v1/kv/").split('/').next().unwrap_or_default();
            format!("key_prefix \"{folder}/\" {{ policy = \"write\" }}")
        }
    }
}

/// The server's own words, bounded and in one line.
fn words(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST_WORDS)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Retry;

    #[test]
    fn refusals_are_told_with_the_way_out() {
        use ErrorKind::{BackendRejected, BackendUnavailable, InvalidArgument};
        let cases = [
            (403, "ACL not found", BackendRejected, Effect::None, "SecretID"),
            (
                403,
                "Permission denied",
                BackendRejected,
                Effect::None,
                "key_prefix \"locks/\" { policy = \"write\" }",
            ),
            (500, "rpc error making call: Permission denied", BackendRejected, Effect::None, "policy needs"),
            (
                429,
                "Your IP is issuing too many concurrent connections",
                BackendUnavailable,
                Effect::None,
                "http_max",
            ),
            (
                400,
                "Client sent an HTTP request to an HTTPS server.\n",
                BackendRejected,
                Effect::None,
                "consul+https",
            ),
            (413, "too large, max size: 524288 bytes", InvalidArgument, Effect::None, "shorter label"),
            (500, "No cluster leader", BackendUnavailable, Effect::None, "no leader"),
            (500, "rpc error: EOF", BackendUnavailable, Effect::Maybe, "EOF"),
            (500, "Missing node registration", BackendRejected, Effect::None, "node="),
            (500, "Missing check 'x' registration", BackendRejected, Effect::None, "checks="),
            (500, "No path to datacenter", BackendRejected, Effect::None, "dc="),
            (
                500,
                "Invalid Session TTL '5000000', must be between [10s=24h0m0s]",
                BackendRejected,
                Effect::None,
                "lease",
            ),
            (418, "teapot", BackendUnavailable, Effect::Maybe, "418"),
        ];
        for (status, body, kind, effect, part) in cases {
            let response = Response { status, index: None, body: body.as_bytes().to_vec() };
            let error = refusal(&response, "locks/a/.lock", "h:1");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{body}: {error}");
            assert!(error.to_string().contains(part), "{body}: {error}");
            assert_eq!(error.retry() == Retry::AfterBackoff, kind == BackendUnavailable);
        }
    }
}
