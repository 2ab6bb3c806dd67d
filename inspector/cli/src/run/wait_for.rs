//! `--wait`: for ever, not at all, or a time.

use std::time::Duration;

use host::duration::parse_duration;

/// How long `run` waits for a held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Forever,
    No,
    AtMost(Duration),
}

/// Reads `forever`, `no` or a duration.
pub(crate) fn parse_wait(text: &str) -> Result<WaitFor, String> {
    match text {
        "forever" => Ok(WaitFor::Forever),
        "no" => Ok(WaitFor::No),
        _ => match parse_duration(text) {
            Ok(Duration::ZERO) => Ok(WaitFor::No),
            Ok(wait) => Ok(WaitFor::AtMost(wait)),
            Err(error) => Err(format!("{error}; or `forever` or `no`")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_may_be_a_word() {
        assert_eq!(parse_wait("forever"), Ok(WaitFor::Forever));
        assert_eq!(parse_wait("no"), Ok(WaitFor::No));
        assert_eq!(parse_wait("0s"), Ok(WaitFor::No));
        assert_eq!(parse_wait("5s"), Ok(WaitFor::AtMost(Duration::from_secs(5))));
        assert!(parse_wait("never").unwrap_err().ends_with("or `forever` or `no`"));
    }
}
