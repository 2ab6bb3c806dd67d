//! What a refusal of the agent means, and the way out.

use crate::backend::consul::protocol::keys::is_plain;
use crate::backend::http::Response;
use crate::error::{Effect, Error, ErrorKind};

/// Longest part of a server's text that is repeated.
const MOST_WORDS: usize = 300;

/// What every server accepts in a key.
pub(crate) const PLAIN: &str = "letters, digits and , _ . / - ? & =";

/// The error of an answer that is no success. `what` is the key concerned, or `session`.
pub(crate) fn refusal(response: &Response, what: &str, place: &str) -> Error {
    let words = words(response);
    let said = said(&words);
    let error = |kind, message: String| Error::new(kind, message);
    let rejected = |message: String| error(ErrorKind::BackendRejected, message);
    match response.status {
        401 | 403 => no_permission(&said, what, place),
        // The fixed sentence of the agent itself; the limiters of requests have others.
        429 if said.starts_with("Your IP is issuing too many concurrent connections") => error(
            ErrorKind::BackendUnavailable,
            format!(
                "Consul at {place} takes no more connections from this host; raise limits.http_max_conns_per_client \
                 of the agent"
            ),
        ),
        429 => error(
            ErrorKind::BackendUnavailable,
            format!(
                "Consul at {place} limits the rate of requests ({words}); raise limits.request_limits of the servers \
                 or limits.rpc_rate of the agent"
            ),
        ),
        413 => error(
            ErrorKind::InvalidArgument,
            format!(
                "Consul refused the request as too large ({words}); use a shorter label, or fewer permits"
            ),
        ),
        400 if said.contains("HTTP request to an HTTPS server") => rejected(format!(
            "the port of Consul at {place} is its HTTPS port; write consul+https:// instead of consul://"
        )),
        400 if said.contains("Enterprise") => error(
            ErrorKind::BackendRejected,
            format!("this Consul has no namespaces or partitions ({words}); leave ns= and partition= out"),
        ),
        400 | 500 if refuses_key(response, what) => rejected(format!(
            "Consul at {place} refuses the key {what:?}; it accepts only {PLAIN} in keys, so use a name or prefix of \
             these"
        )),
        400 => rejected(format!("Consul at {place} refused the request: {words}")),
        404 => rejected(format!(
            "Consul at {place} answered \"not found\"; is this the HTTP port of a Consul agent?"
        )),
        500 | 502 | 503 | 504 => server_error(&words, &said, what, place),
        status => error(
            ErrorKind::BackendUnavailable,
            format!("Consul at {place} answered with status {status}: {words}"),
        )
        .with_effect(Effect::Maybe),
    }
}

/// Whether the agent refused this key for its characters, as Consul 1.21.5 does.
pub(crate) fn refuses_key(response: &Response, key: &str) -> bool {
    let named = said(&words(response)).to_ascii_lowercase().starts_with("invalid key name");
    match response.status {
        400 => named || !is_plain(key),
        500 => named,
        _ => false,
    }
}

/// Whether the words say that the token lacks a permission.
pub(crate) fn denies(what: &str) -> bool {
    said(what).starts_with("Permission denied")
}

fn no_permission(said: &str, what: &str, place: &str) -> Error {
    let message = match said.ends_with("ACL not found") {
        true => format!(
            "Consul at {place} knows no such ACL token; check token_env= or token_file= (a token is known by its \
             SecretID, and a new one takes a moment to reach every server)"
        ),
        false => format!(
            "the ACL token of this client may not do this at Consul ({place}); its policy needs {}",
            needed_rule(what)
        ),
    };
    Error::new(ErrorKind::BackendRejected, message)
}

/// A status of 500 and above: the words decide what it is.
fn server_error(words: &str, said: &str, what: &str, place: &str) -> Error {
    let rejected = |message: String| Error::new(ErrorKind::BackendRejected, message);
    if said.starts_with("Permission denied") || said.ends_with("ACL not found") {
        return no_permission(said, what, place);
    }
    if said.starts_with("No path to datacenter") {
        return rejected(format!("Consul at {place} knows no way to this datacenter; check dc="));
    }
    if said.starts_with("Invalid Session TTL") {
        return rejected(format!(
            "Consul at {place} refused the session's TTL ({words}); use a longer lease, or set session_ttl_min of the \
             servers as in the URL"
        ));
    }
    if said.starts_with("Missing check") || said.ends_with("is in critical state") {
        return rejected(format!(
            "Consul at {place} makes no session with the checks of checks=: {words}; name checks of that node that pass"
        ));
    }
    if said.starts_with("No cluster leader") || said.starts_with("No known Consul servers") {
        return no_leader(place);
    }
    // Whatever else went wrong between agent, servers and log: it may have been carried out.
    Error::new(
        ErrorKind::BackendUnavailable,
        format!("Consul at {place} could not finish the request: {words}"),
    )
    .with_effect(Effect::Maybe)
}

pub(crate) fn no_leader(place: &str) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "Consul at {place} has no leader at the moment, so nothing can be locked; it elects one while a majority \
             of its servers is up"
        ),
    )
}

/// Whether a session was refused because the servers do not know its node.
pub(crate) fn misses_node(response: &Response) -> bool {
    response.status == 500 && said(&words(response)).starts_with("Missing node registration")
}

/// The servers do not know the node of a session.
pub(crate) fn unknown_node(place: &str, node: Option<&str>, datacenter: Option<&str>) -> Error {
    let rejected = |message: String| Error::new(ErrorKind::BackendRejected, message);
    match (node, datacenter) {
        (Some(node), None) => rejected(format!(
            "Consul at {place} knows no node {node:?}; check node=, or leave it out to use the agent's own"
        )),
        (Some(node), Some(datacenter)) => rejected(format!(
            "datacenter {datacenter:?} knows no node {node:?}; check node= (consul catalog nodes \
             -datacenter={datacenter})"
        )),
        (None, Some(datacenter)) => rejected(format!(
            "a session in datacenter {datacenter:?} needs a node of it, and the agent at {place} belongs to another; \
             add node= with one of its nodes (consul catalog nodes -datacenter={datacenter}), or connect to an agent \
             of that datacenter"
        )),
        // It registers itself after its start, and again after it was deregistered.
        (None, None) => Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "the servers do not know the node of the agent at {place} yet; it registers itself within a minute, if \
                 its token allows node \"NODE\" {{ policy = \"write\" }}"
            ),
        ),
    }
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

/// What the server itself says: without the names that it quotes, which anybody may have chosen, and
/// without who passed it on.
pub(crate) fn said(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    let (mut quoted, mut escaped) = (false, false);
    for character in words.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            other => out.push(other),
        }
    }
    let mut said = out.trim();
    while let Some(inner) =
        ["rpc error making call: ", "rpc error: "].iter().find_map(|passed| said.strip_prefix(passed))
    {
        said = inner.trim_start();
    }
    said.to_owned()
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
            (429, "rate limit exceeded, try again later", BackendUnavailable, Effect::None, "request_limits"),
            (
                403,
                "Permission denied: token with AccessorID 'x' lacks permission 'key:write' on \"locks/rate-limit\"",
                BackendRejected,
                Effect::None,
                "policy needs",
            ),
            (
                500,
                "rpc error making call: Permission denied: token lacks permission 'key:read' on \"No cluster leader\"",
                BackendRejected,
                Effect::None,
                "policy needs",
            ),
            (
                500,
                "rpc error making call: failed to do this to \"a Permission denied\\\" No path to datacenter\"",
                BackendUnavailable,
                Effect::Maybe,
                "could not finish",
            ),
            (403, "token does not exist: ACL not found", BackendRejected, Effect::None, "SecretID"),
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

    #[test]
    fn keys_are_refused_for_their_characters_alone() {
        let response = |status, body: &str| Response { status, index: None, body: body.into() };
        let words = r#"invalid key name, keys should respect the "^[a-z]+$" format"#;
        assert!(refuses_key(&response(400, words), "a/b"));
        assert!(refuses_key(&response(500, words), "a:b"));
        assert!(refuses_key(&response(400, "no such thing"), "a:b"));
        assert!(!refuses_key(&response(400, "no such thing"), "a/b"));
        assert!(!refuses_key(&response(403, words), "a:b"));
        let error = refusal(&response(400, words), "a:b/.audit", "h:1");
        assert!(error.to_string().contains("a:b/.audit") && error.to_string().contains(PLAIN), "{error}");
    }

    #[test]
    fn a_missing_node_is_told_with_the_option_that_is_missing() {
        let missing = Response { status: 500, index: None, body: "Missing node registration".into() };
        assert!(misses_node(&missing));
        let told = |node, datacenter| unknown_node("h:1", node, datacenter).to_string();
        assert!(told(None, Some("east")).contains("add node=") && told(None, Some("east")).contains("east"));
        assert!(told(Some("n"), Some("east")).contains("-datacenter=east"));
        assert!(told(Some("n"), None).contains("leave it out"));
        assert_eq!(unknown_node("h:1", None, None).retry(), Retry::AfterBackoff);
    }
}
