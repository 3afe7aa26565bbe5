//! Prometheus' text format (version 0.0.4).

use std::fmt::Write as _;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Labels: names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Default)]
pub(super) struct Text {
    pub(super) out: String,
}

impl Text {
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        // Into a string nothing fails.
        let _infallible =
            write!(self.out, "# HELP tapeworks_{name} {help}.\n# TYPE tapeworks_{name} {}\n", kind.as_str());
    }

    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl std::fmt::Display) {
        self.out.push_str("tapeworks_");
        self.out.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            self.out.push(if place == 0 { '{' } else { ',' });
            self.out.push_str(label);
            self.out.push_str("=\"");
            for letter in text.chars() {
                match letter {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    letter => self.out.push(letter),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _infallible = writeln!(self.out, " {value}");
    }

    /// A family of one sample without labels.
    pub(super) fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A family with a sample of each of `all`.
    pub(super) fn each<T, const N: usize>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        all: &[T],
        labels: impl for<'t> Fn(&'t T) -> [(&'t str, &'t str); N],
        value: impl Fn(&T) -> f64,
    ) {
        self.family(name, kind, help);
        for item in all {
            self.sample(name, &labels(item), value(item));
        }
    }
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_come_from_outside_stay_within_their_quotes() {
        let mut text = Text { out: String::new() };
        text.sample("x", &[("key", "a\"} 1\nb\\"), ("session", "1")], 2);
        assert_eq!(text.out, "tapeworks_x{key=\"a\\\"} 1\\nb\\\\\",session=\"1\"} 2\n");
    }
}
