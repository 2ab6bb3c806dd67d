//! JavaScript's numbers: all are doubles, and lengths of time are milliseconds.

use std::time::Duration;

use crate::failure::Failure;
use crate::options::{ConnectOptions, OptionValue, Way};
use crate::units;

/// Reads numbers. A host that can write numbers brings its function for it: the code would be a part of what a page loads.
#[derive(Debug, Clone, Copy)]
pub struct Numbers(pub fn(f64) -> String);

impl Numbers {
    /// Reads a length of time; see [`units::millis`].
    pub fn millis(self, option: &str, value: f64) -> Result<Duration, Failure> {
        units::millis_shown(option, value, self.0)
    }

    /// The same of one that may be missing.
    pub fn length(self, option: &str, value: Option<f64>) -> Result<Option<Duration>, Failure> {
        value.map(|value| self.millis(option, value)).transpose()
    }

    /// Reads a count. The core checks its own range; this refuses what is no count.
    ///
    /// Errors: `invalid_argument` that names what it is.
    pub fn count(self, what: &str, value: f64) -> Result<u32, Failure> {
        // Compared as a double, so that NaN and infinities fall out.
        if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
            Ok(value as u32)
        } else {
            let value = (self.0)(value);
            Err(Failure::invalid_argument(format!(
                "{what} is {value}; it must be a whole number, zero or more"
            )))
        }
    }

    /// Reads the mode in which a lock is wanted: one number, and two more for permits; see `lock.ts`.
    pub fn way(self, way: u32, count: f64, capacity: f64) -> Result<Way, Failure> {
        Ok(match way {
            0 => Way::Mutex,
            1 => Way::Read,
            2 => Way::Write,
            _ => Way::Permits {
                count: self.count("count", count)?,
                capacity: self.count("permits", capacity)?,
            },
        })
    }

    /// Reads a client's option that is a number: a length of time, where the option is one.
    ///
    /// Errors: `invalid_config`, as the same mistake in a URL.
    pub fn option(self, key: &str, number: f64) -> Result<OptionValue, Failure> {
        let refused = |text: String| Err(Failure::invalid_config(text));
        if ConnectOptions::is_duration(key) {
            return match self.millis(key, number) {
                Ok(length) => Ok(OptionValue::Duration(length)),
                Err(failure) => refused(failure.message.clone()),
            };
        }
        let shown = (self.0)(number);
        if number.is_finite() {
            return Ok(OptionValue::Text(shown));
        }
        refused(format!("the option {key} is {shown}; it must be a finite number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers(|number| number.to_string());

    #[test]
    fn what_is_no_count_is_refused_by_its_name() {
        assert_eq!(NUMBERS.count("permits", 3.0), Ok(3));
        for value in [-1.0, 0.5, f64::NAN, f64::INFINITY, 4_294_967_296.0] {
            let failure = NUMBERS.count("permits", value).unwrap_err();
            let text = format!("permits is {value}; it must be a whole number");
            assert!(failure.message.starts_with(&text), "{}", failure.message);
        }
        assert_eq!(NUMBERS.way(3, 2.0, 5.0), Ok(Way::Permits { count: 2, capacity: 5 }));
        assert!(NUMBERS.way(3, 1.0, f64::NAN).unwrap_err().message.starts_with("permits is NaN"));
    }

    #[test]
    fn an_option_that_is_a_number_has_the_unit_of_its_name() {
        let second = OptionValue::Duration(Duration::from_secs(1));
        assert_eq!(NUMBERS.option("lease", 1_000.0), Ok(second));
        assert_eq!(NUMBERS.option("db", 3.0), Ok(OptionValue::Text("3".into())));
        for (key, value) in [("lease", -1.0), ("db", f64::INFINITY)] {
            let failure = NUMBERS.option(key, value).unwrap_err();
            assert_eq!(failure.code, "invalid_config");
            assert!(failure.message.contains(key), "{}", failure.message);
        }
    }
}
