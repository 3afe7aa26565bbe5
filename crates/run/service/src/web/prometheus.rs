//! Prometheus' text format (version 0.0.4).

use std::fmt::Write as _;

use tapeworks_runtime::traces::TraceStatus;

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
        // Writing to a string cannot fail.
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

    /// Writes a family with one sample and no labels.
    pub(super) fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Writes a family with a sample for each element of `all`.
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

/// Writes the counters of the export of traces, for a plant or a gateway.
pub(super) fn traces(text: &mut Text, status: &TraceStatus) {
    let counters: [(&str, &str, u64); 7] = [
        ("traces", "Traces that the collector has taken", status.traces),
        ("spans", "Spans that the collector has taken", status.spans),
        ("requests", "Requests that the collector has answered well", status.requests),
        ("dropped_traces", "Traces that found no room in the queue", status.dropped),
        (
            "unfollowed",
            "Orders and packets that were not followed, as too many were on their way",
            status.unfollowed,
        ),
        ("refused_spans", "Spans that the collector has refused", status.refused_spans),
        ("failures", "Requests to the collector that failed", status.failures),
    ];
    for (name, help, count) in counters {
        text.one(&format!("otel_{name}_total"), Kind::Counter, help, count);
    }
    let connected = "1 while the collector takes what it gets";
    text.one("otel_connected", Kind::Gauge, connected, u64::from(status.is_connected));
    text.one("otel_waiting_traces", Kind::Gauge, "Traces that wait for the collector", status.waiting);
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
