//! Permits as people type them: `2/5`, two of five.

use polylatch::{MAX_PERMITS, Mode};

/// Reads how many permits of how many there are.
pub(crate) fn parse_permits(text: &str) -> Result<Mode, String> {
    const EXAMPLE: &str = "write it like 2/5, for 2 of 5 permits";
    let (count, capacity) = text.split_once('/').ok_or_else(|| format!("no \"/\" in {text:?}; {EXAMPLE}"))?;
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        // More digits than fit are too many as well.
        if plain {
            Ok(digits.parse().unwrap_or(u32::MAX))
        } else {
            Err(format!("{digits:?} is no number; {EXAMPLE}"))
        }
    };
    let (count, capacity) = (number(count)?, number(capacity)?);
    if capacity == 0 || capacity > MAX_PERMITS {
        return Err(format!("there may be 1 to {MAX_PERMITS} permits"));
    }
    if count == 0 || count > capacity {
        return Err(format!("the semaphore has {capacity} permits; request 1 to {capacity}"));
    }
    Ok(Mode::Permits { count, capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_read_and_wrong_ones_explained() {
        assert_eq!(parse_permits("2/5"), Ok(Mode::Permits { count: 2, capacity: 5 }));
        assert_eq!(parse_permits("1000/1000"), Ok(Mode::Permits { count: 1000, capacity: 1000 }));
        for (text, part) in [
            ("2", "write it like 2/5"),
            ("", "write it like 2/5"),
            ("/5", "\"\" is no number"),
            ("2/", "\"\" is no number"),
            ("2/5/6", "\"5/6\" is no number"),
            ("+2/5", "\"+2\" is no number"),
            ("two/5", "\"two\" is no number"),
            ("1.5/5", "\"1.5\" is no number"),
            ("1/0", "1 to 1000 permits"),
            ("1/1001", "1 to 1000 permits"),
            ("1/99999999999999", "1 to 1000 permits"),
            ("0/5", "has 5 permits; request 1 to 5"),
            ("6/5", "has 5 permits; request 1 to 5"),
            ("99999999999999/5", "has 5 permits; request 1 to 5"),
        ] {
            let error = parse_permits(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
