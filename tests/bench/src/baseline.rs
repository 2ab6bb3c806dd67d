//! Ratios that were measured before, and whether today's are worse.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A ratio that is worse by more than this fails the check.
const WORSE_BY: f64 = 0.15;

/// A ratio of a run, of this layout, heading, row and floor. Times are better if it is smaller, rates if it is larger.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub what: String,
    pub is_rate: bool,
    pub value: f64,
}

/// Ratios by what they are of.
#[derive(Debug, Default, PartialEq)]
pub struct Baseline(BTreeMap<String, f64>);

impl Baseline {
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|line| {
            format!("{}, line {line}: it has to be a ratio, a tab and what it is of", path.display())
        })
    }

    /// Fails with the number of the line that is wrong.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut all = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let (value, what) = line.split_once('\t').ok_or(at + 1)?;
            all.insert(what.to_owned(), value.parse().map_err(|_| at + 1)?);
        }
        Ok(Self(all))
    }

    /// Takes what was measured, beside what it knows of other layouts and benchmarks.
    pub fn note(&mut self, measured: &[Ratio]) {
        let ratios = measured.iter().map(|ratio| (ratio.what.clone(), ratio.value));
        self.0.extend(ratios);
    }

    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (what, value)| {
            writeln!(text, "{}\t{what}", spelled(*value)).expect("a string takes it");
            text
        })
    }

    /// What is worse than it was, and what there is nothing to compare with, a line each.
    pub fn compare(&self, measured: &[Ratio]) -> (Vec<String>, Vec<String>) {
        let (mut worse, mut unknown) = (Vec::new(), Vec::new());
        for Ratio { what, is_rate, value } in measured {
            match self.0.get(what) {
                None => unknown.push(what.clone()),
                Some(before) => {
                    let grown = if *is_rate { before / value } else { value / before };
                    if grown > 1.0 + WORSE_BY {
                        worse.push(format!("{what}: {}, and it was {}", spelled(*value), spelled(*before)));
                    }
                }
            }
        }
        (worse, unknown)
    }
}

/// A lock that is kept is entered in a thousandth of the floor, which two digits would call nothing.
fn spelled(ratio: f64) -> String {
    let decimals = if ratio < 0.1 { 6 } else { 2 };
    format!("{ratio:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(what: &str, is_rate: bool, value: f64) -> Ratio {
        Ratio { what: what.into(), is_rate, value }
    }

    #[test]
    fn a_time_that_grew_and_a_rate_that_fell_are_worse() {
        let mut before = Baseline::default();
        before.note(&[ratio("pair", false, 1.0), ratio("tasks", true, 1.0), ratio("same", false, 2.0)]);
        let today = [ratio("pair", false, 1.2), ratio("tasks", true, 0.8), ratio("same", false, 2.2)];
        let (worse, unknown) = before.compare(&today);
        assert_eq!(worse, ["pair: 1.20, and it was 1.00", "tasks: 0.80, and it was 1.00"]);
        assert!(unknown.is_empty());
        assert!(before.compare(&[ratio("pair", false, 0.5), ratio("tasks", true, 2.0)]).0.is_empty());
        assert_eq!(before.compare(&[ratio("other", false, 1.0)]).1, ["other"]);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_wrong_names_its_line() {
        let mut all = Baseline::default();
        all.note(&[
            ratio("pair, blocking", false, 1.25),
            ratio("tasks", true, 0.5),
            ratio("kept", false, 0.000_297),
        ]);
        assert_eq!(Baseline::parse(&all.text()), Ok(all));
        assert_eq!(Baseline::parse("1.00\ta\nb\n"), Err(2));
        assert_eq!(Baseline::parse("x\ta\n"), Err(1));
    }
}
