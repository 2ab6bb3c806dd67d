//! Durations as people type them: `5s`, `250ms`, `1m30s`, `2h`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const EXAMPLES: &str = "write it like 250ms, 5s, 1m30s or 2h";

/// Reads a duration: numbers with the units ms, s, m, h, d, larger units first.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err(format!("the duration is empty; {EXAMPLES}"));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut larger = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        if number.is_empty() {
            let what =
                if rest.starts_with('.') { "fractions are not allowed" } else { "a number is missing" };
            return Err(format!("{what} at {rest:?}; {EXAMPLES}"));
        }
        let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        if unit.is_empty() {
            let hint =
                if tail.starts_with('.') { "fractions are not allowed" } else { "the unit is missing" };
            return Err(format!("{hint} after {number:?}; {EXAMPLES}"));
        }
        let Some(&(_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("{unit:?} is not a unit; the units are ms, s, m, h and d"));
        };
        if millis >= larger {
            return Err(format!("{unit:?} does not go behind a smaller or equal unit; {EXAMPLES}"));
        }
        larger = millis;
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(millis))
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| format!("{text:?} is too long"))?;
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, millis) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            ("90s", 90_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn bad_durations_are_told_with_the_way_out() {
        for (text, part) in [
            ("", "empty; write it like"),
            ("5", "the unit is missing after \"5\""),
            ("s", "a number is missing at \"s\""),
            ("1.5s", "fractions are not allowed"),
            (".5s", "fractions are not allowed"),
            ("-5s", "a number is missing at \"-5s\""),
            ("5 s", "the unit is missing"),
            ("5sec", "\"sec\" is not a unit; the units are"),
            ("5S", "\"S\" is not a unit"),
            ("5µs", "\"µs\" is not a unit"),
            ("30s1m", "\"m\" does not go behind"),
            ("1s1s", "\"s\" does not go behind"),
            ("99999999999999999999s", "too long"),
            ("999999999999999999d", "too long"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
