//! A URL taken apart, its options one by one, and durations as text.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::url_check;

/// Takes a URL apart: its scheme, what it leads to, and its options. `None` without a scheme.
///
/// Errors: `invalid_config`. A URL may hold a password, so no message repeats more of it than its scheme.
pub(crate) fn take_apart(url: &str) -> Result<Option<(&str, &str, Params)>> {
    let Some((scheme, rest)) = url_check::split_scheme(url) else { return Ok(None) };
    let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
    if url.chars().any(char::is_control) {
        return Err(invalid(format!("the {scheme}: URL has a control character (a line break?); remove it")));
    }
    url_check::refuse_misplaced_at(scheme, rest).map_err(invalid)?;
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = url::form_urlencoded::parse(query.as_bytes())
        .map(|(key, value)| (key.into_owned(), value.into_owned()));
    Ok(Some((scheme, target, Params::new(scheme, pairs)?)))
}

/// The query parameters of a URL, taken out one by one; what is left over is an error.
#[derive(Debug, Clone)]
pub(crate) struct Params {
    scheme: String,
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
    /// A secret stands among the options: an `&` that is not percent-encoded makes a key of a part of it.
    with_secret: bool,
}

/// Options whose value is a secret, known to a store or not.
const SECRETS: [&str; 5] = ["password", "sentinel_password", "token", "secret", "pass"];

impl Params {
    pub(crate) fn new(scheme: &str, pairs: impl Iterator<Item = (String, String)>) -> Result<Self> {
        let mut params =
            Self { scheme: scheme.to_owned(), given: Vec::new(), known: Vec::new(), with_secret: false };
        for (key, value) in pairs {
            params.with_secret |= SECRETS.contains(&key.as_str());
            if params.at(&key).is_some() {
                let option = params.quoted(&key);
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!("the option{option} is given twice; give it once"),
                ));
            }
            params.given.push((key, value));
        }
        Ok(params)
    }

    /// A key for a message, unless it may be a part of a secret.
    fn quoted(&self, key: &str) -> String {
        if self.with_secret && !SECRETS.contains(&key) { String::new() } else { format!(" {key:?}") }
    }

    fn at(&self, key: &str) -> Option<usize> {
        self.given.iter().position(|(given, _)| given == key)
    }

    /// Whether an option is given and was not read yet.
    #[cfg(any(feature = "http", feature = "zookeeper"))]
    pub(crate) fn has(&self, key: &str) -> bool {
        self.at(key).is_some()
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        self.at(key).map(|at| self.given.swap_remove(at).1)
    }

    /// Looks at an option without taking it.
    #[cfg(feature = "redis")]
    pub(crate) fn peek(&self, key: &str) -> Option<&str> {
        self.at(key).map(|at| self.given[at].1.as_str())
    }

    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        least: Duration,
        most: Duration,
    ) -> Result<Duration> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let value = parse_duration(&text).map_err(|rule| {
            Error::new(
                ErrorKind::InvalidConfig,
                format!("the option {key}={text:?} is not a duration: {rule}"),
            )
        })?;
        if value < least || value > most {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                format!("the option {key}={text} must be between {least:?} and {most:?}"),
            ));
        }
        Ok(value)
    }

    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T> {
        let Some(text) = self.text(key) else { return Ok(default) };
        choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            Error::new(
                ErrorKind::InvalidConfig,
                format!("the option {key}={text:?} must be one of {}", names.join(", ")),
            )
        })
    }

    /// Refuses what was not read.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let Some(key) = self.given.iter().map(|(key, _)| key).min() {
            self.known.sort_unstable();
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                format!(
                    "{}: knows no option{}; its options are {}",
                    self.scheme,
                    match self.quoted(key) {
                        quoted if quoted.is_empty() => " of that name (& in a secret is %26)".into(),
                        quoted => quoted,
                    },
                    self.known.join(", ")
                ),
            ));
        }
        Ok(())
    }
}

/// Reads a duration such as `250ms`, `5s`, `1m30s`, `2h` or `1.5s`.
///
/// Errors: a sentence with the rule. A bare number is refused, because its unit is not known.
pub fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    const RULE: &str = "write a number with a unit, such as 250ms, 5s, 1m30s or 2h";
    if text.is_empty() {
        return Err(format!("it is empty; {RULE}"));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit_nanos = match unit {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            "d" => 86_400 * 1_000_000_000,
            "" if number == rest => return Err(format!("{text:?} has no unit; {RULE}")),
            _ => return Err(RULE.to_owned()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(RULE.to_owned());
        }
        total = nanos_of(whole, fraction, unit_nanos)
            .and_then(|part| total.checked_add(Duration::from_nanos(part)))
            .ok_or_else(|| format!("{text:?} is too large"))?;
        rest = tail;
    }
    Ok(total)
}

/// Returns the nanoseconds of the digits before and after a decimal point; `None` if they are too many (five
/// centuries).
///
/// In whole numbers: the standard library's tables for fractions would be a tenth of what a page loads.
fn nanos_of(whole: &str, fraction: &str, unit_nanos: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (mut place, mut part) = (unit_nanos, 0);
    for digit in fraction.bytes() {
        place /= 10;
        part += u64::from(digit - b'0') * place;
    }
    whole.checked_mul(unit_nanos)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, millis) in
            [("250ms", 250), ("5s", 5_000), ("1m30s", 90_000), ("2h", 7_200_000), ("1.5s", 1_500), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, nanos) in [
            (".5ms", 500_000),
            ("2.s", 2_000_000_000),
            ("0.123456789s", 123_456_789),
            ("0.1234567891s", 123_456_789),
            ("1.25m", 75_000_000_000),
            ("1.0005us", 1_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, part) in [
            ("", "empty"),
            ("5", "no unit"),
            ("5 s", "number with a unit"),
            ("-1s", "number"),
            ("1e3s", "number"),
            ("99999999999999999999d", "too large"),
            ("999999999999d", "too large"),
            ("500000000000m500000000000m", "too large"),
            ("1.2.3s", "number"),
            (".s", "number"),
            ("s", "number"),
        ] {
            assert!(parse_duration(text).unwrap_err().contains(part), "{text}: {:?}", parse_duration(text));
        }
    }
}
