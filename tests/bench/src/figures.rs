//! Samples, and how they are told.

use std::sync::{Mutex, PoisonError};

use crate::baseline::Ratio;
use crate::layout;

/// The heading that was printed last, and the ratios of this project's own rows.
static PRINTED: Mutex<(String, Vec<Ratio>)> = Mutex::new((String::new(), Vec::new()));

/// Measured values of one kind.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, values: impl IntoIterator<Item = f64>) {
        self.0.extend(values);
    }

    /// Returns the value below which this share of the samples lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            count => sorted[((count - 1) as f64 * share).round() as usize],
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

pub fn heading(text: &str) {
    println!("\n{text}");
    let title = text.split(" (").next().unwrap_or(text);
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).0 = title.to_owned();
}

/// Returns the ratios of this project's own rows that were printed.
pub fn ratios() -> Vec<Ratio> {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
}

/// Prints median and quartiles, and the ratio to the floor, which is kept to be compared with that of another day.
pub fn row(name: &str, unit: &str, samples: &Samples, floors: &[(&str, f64)]) {
    row_beside(name, unit, samples, floors);
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    for (floor, value) in floors {
        let what = format!("{}: {}: {name} / {floor}", layout::chosen().name(), printed.0);
        printed.1.push(Ratio { what, is_rate: unit.ends_with("/s"), value: samples.median() / value });
    }
}

/// The same of a floor or another library: what it does beside the floor is no matter of this project's.
pub fn row_beside(name: &str, unit: &str, samples: &Samples, floors: &[(&str, f64)]) {
    let ratios: Vec<_> =
        floors.iter().map(|(floor, value)| format!("{:.2} × {floor}", samples.median() / value)).collect();
    println!(
        "  {name:<44} {:>9.1} {unit:<8} [{:.1} … {:.1}]  p99 {:.1}   {}",
        samples.median(),
        samples.quantile(0.25),
        samples.quantile(0.75),
        samples.quantile(0.99),
        ratios.join(", "),
    );
}
