//! Samples, and how they are told.

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
}

/// Prints median and quartiles, and the ratio to the floor.
pub fn row(name: &str, unit: &str, samples: &Samples, floors: &[(&str, f64)]) {
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
