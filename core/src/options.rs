//! What a caller can ask of an acquisition and of a client: parsed and validated once, then trusted.

use std::time::Duration;

use crate::backend::Capability;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::check_words;
use crate::mode::Mode;
use crate::name::{LockName, check_label};
use crate::policy::lease::LeasePlan;
use crate::policy::waiting::WaitTimes;

/// Shortest lease: a hundred milliseconds leave time for a renewal over a local network.
pub const MIN_LEASE: Duration = Duration::from_millis(100);

/// Longest lease: a day.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of a lock that does not say. Cheap batched renewal lets it be shorter than the usual 30 s.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// Longest wait and longest hold limit: a year.
const MAX_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How long an acquisition waits for a held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

/// What a caller asked for, as it was given.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub name: String,
    pub lease: Option<Duration>,
    pub wait: Wait,
    pub label: String,
    pub owner: Option<String>,
    pub max_hold: Option<Duration>,
    pub beat_every: Option<Duration>,
    /// `None` where nothing was said: in order if the store keeps one.
    pub fifo: Option<bool>,
    pub renew: bool,
    /// Why the leases of the holders are to be ended, if they are.
    pub steal: Option<String>,
    pub mode: Mode,
}

/// What a caller asked for, checked.
#[derive(Debug, Clone)]
pub(crate) struct AcquireOptions {
    pub name: LockName,
    pub wait: Wait,
    pub label: String,
    pub owner: Option<String>,
    pub barge: bool,
    /// Why the leases of the holders are to be ended, if they are.
    pub steal: Option<String>,
    pub mode: Mode,
    pub plan: LeasePlan,
    pub times: WaitTimes,
}

impl AcquireOptions {
    /// Checks what was asked against the rules and against what the store can do.
    pub(crate) fn check(asked: &Asked, settings: &Settings, capability: &Capability) -> Result<Self> {
        let name = LockName::new(&asked.name)?;
        let lock = |error: Error| error.on_lock(name.as_str());
        check_label(&asked.label).map_err(lock)?;
        asked.mode.check().map_err(lock)?;
        check_abilities(asked, capability).map_err(lock)?;
        check_steal(asked).map_err(lock)?;
        let lease = asked.lease.unwrap_or(settings.lease);
        in_range("lease", lease, capability.min_lease, capability.max_lease).map_err(lock)?;
        if let Wait::For(wait) = asked.wait {
            in_range("wait", wait, Duration::ZERO, MAX_WAIT).map_err(lock)?;
        }
        for (option, value) in [("max_hold", asked.max_hold), ("beat_every", asked.beat_every)] {
            if let Some(value) = value {
                in_range(option, value, MIN_LEASE, MAX_WAIT).map_err(lock)?;
                if !asked.renew {
                    return Err(lock(Error::new(
                        ErrorKind::InvalidArgument,
                        format!("{option} limits renewals, but renew is off; leave one of them out"),
                    )));
                }
            }
        }
        if let Some(owner) = &asked.owner
            && (owner.is_empty() || owner.len() > 128)
        {
            return Err(lock(Error::new(
                ErrorKind::InvalidArgument,
                format!("the owner id has {} bytes; 1 to 128 are allowed", owner.len()),
            )));
        }
        let provisional = if asked.renew { settings.provisional.min(lease) } else { lease };
        let first = [asked.max_hold, asked.beat_every].into_iter().flatten().fold(provisional, Duration::min);
        // A grant whose push is lost must be found by a poll before it ends: C ≥ 2P + a round trip.
        let near = settings.poll.min(first / 3).max(Duration::from_millis(10));
        Ok(Self {
            name,
            wait: asked.wait,
            label: asked.label.clone(),
            owner: asked.owner.clone(),
            barge: asked.fifo == Some(false),
            steal: asked.steal.clone(),
            mode: asked.mode,
            plan: LeasePlan {
                lease,
                first,
                renew: asked.renew,
                max_hold: asked.max_hold,
                beat_every: asked.beat_every,
                phase: Duration::ZERO,
            },
            times: WaitTimes::every(near, settings.enter_on_push),
        })
    }
}

/// What holds for a whole client; every one is an option of the URL and of the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Lease of a lock that does not say.
    pub lease: Duration,
    /// First lease of a renewed lock: bounds how long an orphan can block.
    pub provisional: Duration,
    /// Poll interval of the first waiters in line.
    pub poll: Duration,
    /// Time limit of one request to the store.
    pub timeout: Duration,
    /// Trust a push under rules R1–R5; otherwise it only triggers a poll.
    pub enter_on_push: bool,
}

impl Settings {
    /// Takes the options that every backend has out of a URL's parameters.
    pub(crate) fn from_params(params: &mut Params) -> Result<Self> {
        let settings = Self {
            lease: params.duration("lease", DEFAULT_LEASE, MIN_LEASE, MAX_LEASE)?,
            provisional: params.duration(
                "provisional",
                Duration::from_secs(3),
                Duration::from_millis(300),
                Duration::from_secs(60),
            )?,
            poll: params.duration(
                "poll",
                Duration::from_secs(1),
                Duration::from_millis(10),
                Duration::from_secs(20),
            )?,
            timeout: params.duration(
                "timeout",
                Duration::from_secs(3),
                Duration::from_millis(50),
                Duration::from_secs(60),
            )?,
            enter_on_push: params.choice("push", &[("enter", true), ("hint", false)], true)?,
        };
        if settings.provisional < settings.poll * 2 + Duration::from_millis(100) {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                format!(
                    "provisional={:?} is too short for poll={:?}: a lost push is found by the next poll, so \
                     provisional must be at least twice poll and 100 ms; raise provisional or lower poll",
                    settings.provisional, settings.poll
                ),
            ));
        }
        Ok(settings)
    }
}

/// Refuses what the store says that it cannot do.
fn check_abilities(asked: &Asked, capability: &Capability) -> Result<()> {
    let store = capability.backend;
    if asked.mode != Mode::Mutex && !capability.sharing {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{store} cannot keep {}: its nodes agree on one holder only; use a plain lock, or another store",
                asked.mode.kind()
            ),
        ));
    }
    if asked.fifo == Some(true) && !capability.fifo {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{store} cannot promise first come, first served: its nodes have no common order; leave fifo out, \
                 or use another store"
            ),
        ));
    }
    Ok(())
}

/// A thief excludes all others, and says why.
fn check_steal(asked: &Asked) -> Result<()> {
    let Some(reason) = &asked.steal else { return Ok(()) };
    let invalid = |message: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message));
    if !matches!(asked.mode, Mode::Mutex | Mode::Write) {
        return invalid(
            "only a lock that excludes all others can be stolen: a plain lock, or one for writing",
        );
    }
    if asked.owner.is_some() {
        return invalid(
            "a lock that is stolen is not entered again by an owner id; leave steal or owner out",
        );
    }
    check_words("reason", reason)
}

pub(crate) fn in_range(option: &str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if value < least || value > most {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{option} is {value:?}; it must be between {least:?} and {most:?}"),
        ));
    }
    Ok(())
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

    /// Whether an option is given and nobody has taken it yet.
    #[cfg(feature = "consul")]
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

    /// Refuses what nobody took.
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
/// Errors: a sentence with the rule. A bare number is refused, because nobody can see its unit.
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

    fn params(query: &str) -> Params {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        });
        Params::new("redis", pairs).unwrap()
    }

    #[test]
    fn unknown_and_out_of_range_options_are_named_with_their_rule() {
        let mut unknown = params("leese=5s");
        Settings::from_params(&mut unknown).unwrap();
        let error = unknown.finish().unwrap_err().to_string();
        assert!(
            error.contains("\"leese\"") && error.contains("lease, poll, provisional, push, timeout"),
            "{error}"
        );
        for (query, part) in [
            ("lease=1ms", "lease=1ms must be between 100ms and 86400s"),
            ("lease=5", "has no unit"),
            ("push=maybe", "must be one of enter, hint"),
            ("poll=10s", "provisional must be at least twice poll"),
        ] {
            let error = Settings::from_params(&mut params(query)).unwrap_err();
            assert_eq!(error.code(), "invalid_config");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
