//! Deep links: `polylatch://connection/lock?at=time`.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::connection::ConnectionId;

/// What stays as it is in a link; a lock's name may have slashes.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Longest link that is read; names have 512 bytes.
const MOST_BYTES: usize = 4_096;

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The connection, by its name.
    pub connection: ConnectionId,
    /// The lock; `None` leads to the connection.
    pub lock: Option<String>,
    /// A moment, in milliseconds since the Unix epoch.
    pub at_ms: Option<u64>,
}

impl Link {
    /// Reads a link. Errors: a sentence that names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest =
            text.strip_prefix("polylatch://").filter(|_| text.len() <= MOST_BYTES).ok_or_else(|| {
                "a link is written polylatch://CONNECTION/LOCK, for example polylatch://prod/orders/42"
                    .to_owned()
            })?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (connection, lock) = path.split_once('/').unwrap_or((path, ""));
        let decoded = |what: &str, text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) if !text.chars().any(|c| c == '\0') => Ok(text.into_owned()),
            _ => Err(format!("the {what} of the link is not UTF-8 after percent-decoding")),
        };
        let connection = decoded("connection", connection)?;
        if connection.is_empty() {
            return Err("the link names no connection; write polylatch://CONNECTION/LOCK".into());
        }
        let lock = decoded("lock", lock)?;
        let mut at_ms = None;
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("at", value)) => {
                    let moment = value.parse().map_err(|_| {
                        "at= in the link must be a number of milliseconds since 1970-01-01".to_owned()
                    })?;
                    at_ms = Some(moment);
                }
                _ => return Err("a link knows only the option at=".into()),
            }
        }
        let lock = Some(lock).filter(|lock| !lock.is_empty());
        Ok(Self { connection: ConnectionId::new(&connection), lock, at_ms })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A slash ends the connection.
        let connection = utf8_percent_encode(self.connection.as_str(), PLAIN).to_string().replace('/', "%2F");
        write!(f, "polylatch://{connection}")?;
        if let Some(lock) = &self.lock {
            write!(f, "/{}", utf8_percent_encode(lock, PLAIN))?;
        }
        if let Some(at_ms) = self.at_ms {
            write!(f, "?at={at_ms}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_is_read_back_as_it_was_written() {
        for (connection, lock, at_ms, text) in [
            ("prod", Some("orders/42"), None, "polylatch://prod/orders/42"),
            ("prod", None, None, "polylatch://prod"),
            (
                "a b/c",
                Some("x?y&z=1 %41#ü\n"),
                Some(17),
                "polylatch://a%20b%2Fc/x%3Fy%26z%3D1%20%2541%23%C3%BC%0A?at=17",
            ),
            ("p", Some("/lead//trail/"), None, "polylatch://p//lead//trail/"),
        ] {
            let link =
                Link { connection: ConnectionId::new(connection), lock: lock.map(str::to_owned), at_ms };
            assert_eq!(link.to_string(), text);
            assert_eq!(Link::parse(text).unwrap(), link);
        }
        assert_eq!(Link::parse("polylatch://prod/").unwrap().lock, None);
    }

    #[test]
    fn what_is_no_link_is_told_with_what_is_wrong() {
        for (text, part) in [
            ("http://prod/x", "polylatch://CONNECTION/LOCK"),
            ("", "polylatch://"),
            ("polylatch:///x", "names no connection"),
            ("polylatch://p/x?at=noon", "milliseconds"),
            ("polylatch://p/x?at=1&to=2", "only the option at="),
            ("polylatch://p/%FF", "not UTF-8"),
            ("polylatch://p/a%00", "not UTF-8"),
        ] {
            let error = Link::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Link::parse(&format!("polylatch://p/{}", "x".repeat(5_000))).is_err());
    }
}
