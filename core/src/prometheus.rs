//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crate::error::{Error, ErrorKind, Result};

/// The kind of a metric in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricType {
    /// Only grows until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Samples counted by size; see [`PrometheusText::histogram`].
    Histogram,
}

impl MetricType {
    fn code(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Writes metrics as text that Prometheus reads. Names of metrics are the caller's constants; label values may be
/// any text.
///
/// ```
/// use polylatch::observe::{MetricType, PrometheusText};
///
/// let mut text = PrometheusText::default();
/// text.family("queue_length", MetricType::Gauge, "Jobs that wait.");
/// text.sample("queue_length", &[("queue", "night \"shift\"")], 3.0);
/// assert!(text.as_str().ends_with("queue_length{queue=\"night \\\"shift\\\"\"} 3\n"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// Begins a metric. All of its samples follow before the next one begins, and each name begins once.
    pub fn family(&mut self, name: &str, kind: MetricType, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.code());
    }

    /// Adds one value of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.series(name, labels, None);
        let _ = writeln!(self.0, " {}", shown(value));
    }

    /// Adds one histogram of the metric that was begun last. `buckets` has the upper bound and the count of each
    /// bucket, not cumulative, in ascending order; the last bound is infinite. `sum` is the sum of the samples.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let mut count = 0;
        for (bound, here) in buckets {
            count += here;
            self.series(&format!("{name}_bucket"), labels, Some(bound));
            let _ = writeln!(self.0, " {count}");
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.series(&format!("{name}_count"), labels, None);
        let _ = writeln!(self.0, " {count}");
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)], le: Option<f64>) {
        self.0.push_str(name);
        let le = le.map(|bound| if bound.is_finite() { shown(bound) } else { "+Inf".to_owned() });
        let labels = labels.iter().copied().chain(le.as_deref().map(|le| ("le", le)));
        let mut between = '{';
        for (label, value) in labels {
            let _ = write!(self.0, "{between}{label}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
            between = ',';
        }
        if between == ',' {
            self.0.push('}');
        }
    }

    /// Returns the text so far. It ends with a line feed.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// Writes a number so that it reads back as the same one.
#[cfg(not(target_family = "wasm"))]
fn shown(number: f64) -> String {
    number.to_string()
}

// Rust's own way is several kilobytes, which every page would load.
#[cfg(target_family = "wasm")]
#[wasm_bindgen::prelude::wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = String)]
    fn shown(number: f64) -> String;
}

/// Refuses names of labels that Prometheus would refuse, repeated ones, and those in `taken`.
pub(crate) fn check_labels(labels: &[(&str, &str)], taken: &[&str]) -> Result<()> {
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    for (index, (label, _)) in labels.iter().enumerate() {
        let begins = |first: char| first.is_ascii_alphabetic() || first == '_';
        let goes_on = label.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
        if !label.starts_with(begins) || !goes_on || label.starts_with("__") {
            return refused(format!(
                "the label {label:?} is no name for Prometheus: use letters, digits and single underscores at the \
                 start, not a digit first"
            ));
        }
        if taken.contains(label) {
            return refused(format!("the label {label:?} is set by Polylatch; use another name"));
        }
        if labels[..index].iter().any(|(earlier, _)| earlier == label) {
            return refused(format!("the label {label:?} was given twice; give it once"));
        }
    }
    Ok(())
}
