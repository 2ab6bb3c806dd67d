//! Durations as languages write them: seconds with a fraction, or whole and broken milliseconds.

use std::time::Duration;

use crate::failure::Failure;

/// Longer than any range of the core, and short enough that no arithmetic overflows.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Reads seconds. The core checks the option's own range; this refuses what is no length of time.
///
/// Errors: `invalid_argument` that names the option, for a negative, infinite, undefined or huge number.
pub fn seconds(option: &str, value: f64) -> Result<Duration, Failure> {
    length(value, 1.0).map_err(|rule| refused(option, &format!("{value} seconds"), rule))
}

/// Reads milliseconds; see [`seconds`].
pub fn millis(option: &str, value: f64) -> Result<Duration, Failure> {
    millis_shown(option, value, |value| value.to_string())
}

/// The same for a host that writes numbers by itself: code for that would be a part of what a page loads.
pub fn millis_shown(option: &str, value: f64, shown: fn(f64) -> String) -> Result<Duration, Failure> {
    length(value, 1e-3).map_err(|rule| refused(option, &format!("{} milliseconds", shown(value)), rule))
}

fn refused(option: &str, given: &str, rule: &str) -> Failure {
    Failure::invalid_argument(format!("{option} is {given}; it must be {rule}"))
}

/// Errors: the rule that is broken.
fn length(value: f64, unit_secs: f64) -> Result<Duration, &'static str> {
    if !value.is_finite() {
        return Err("a finite number");
    }
    if value < 0.0 {
        return Err("zero or more");
    }
    match Duration::try_from_secs_f64(value * unit_secs) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err("at most a hundred years"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_units_are_read() {
        assert_eq!(seconds("lease", 1.5), Ok(Duration::from_millis(1_500)));
        assert_eq!(seconds("wait", 0.0), Ok(Duration::ZERO));
        assert_eq!(millis("lease", 1_500.0), Ok(Duration::from_millis(1_500)));
        assert_eq!(millis("lease", 0.5), Ok(Duration::from_micros(500)));
    }

    #[test]
    fn what_is_no_length_of_time_is_refused_by_its_name() {
        for (value, rule) in [
            (-1.0, "lease is -1 seconds; it must be zero or more"),
            (f64::NAN, "lease is NaN seconds; it must be a finite number"),
            (f64::INFINITY, "finite"),
            (f64::NEG_INFINITY, "finite"),
            (1e300, "at most a hundred years"),
        ] {
            let failure = seconds("lease", value).unwrap_err();
            assert_eq!((failure.code, failure.effect), ("invalid_argument", "none"));
            assert!(failure.message.contains(rule), "{}", failure.message);
        }
        assert!(millis("wait", -0.001).unwrap_err().message.contains("wait is -0.001 milliseconds"));
    }
}
