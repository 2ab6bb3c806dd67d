//! Seconds with a fraction, without the algorithms that the standard library has for writing any fraction: in a
//! browser every kilobyte is loaded.

use std::fmt;
use std::time::Duration;

/// Writes seconds with one digit behind the point.
pub(crate) fn tenths(length: Duration) -> impl fmt::Display {
    let length = length.saturating_add(Duration::from_millis(50));
    Decimal { whole: length.as_secs(), fraction: length.subsec_millis() / 100, digits: 1 }
}

/// Writes seconds with all the digits that they have.
pub(crate) fn seconds(length: Duration) -> impl fmt::Display {
    let (mut fraction, mut digits) = (length.subsec_nanos(), 9);
    while digits > 0 && fraction % 10 == 0 {
        fraction /= 10;
        digits -= 1;
    }
    Decimal { whole: length.as_secs(), fraction, digits }
}

struct Decimal {
    whole: u64,
    fraction: u32,
    digits: usize,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.digits {
            0 => write!(f, "{}", self.whole),
            digits => write!(f, "{}.{:0digits$}", self.whole, self.fraction),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_read_like_numbers() {
        for (millis, rounded, exact) in
            [(0, "0.0", "0"), (40, "0.0", "0.04"), (15_000, "15.0", "15"), (1_960, "2.0", "1.96")]
        {
            let length = Duration::from_millis(millis);
            assert_eq!(
                (tenths(length).to_string(), seconds(length).to_string()),
                (rounded.into(), exact.into())
            );
        }
        assert_eq!(seconds(Duration::from_nanos(1_000_000_001)).to_string(), "1.000000001");
        assert_eq!(tenths(Duration::MAX).to_string(), format!("{}.9", u64::MAX));
    }
}
