//! Text for people: times, and colours where a terminal shows them.

use std::fmt::Write as _;

use jiff::Timestamp;
use tapeworks_market::Nanos;

/// Appends the time in UTC as ISO 8601, always with nine places: `2025-11-14T14:30:00.000000001Z`.
pub fn iso_time(out: &mut String, time: Nanos) {
    let written = match Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(timestamp) => write!(out, "{timestamp:.9}"),
        // Beyond the year 9999, which 64 bits of nanoseconds do not reach.
        Err(_) => write!(out, "{} ns", time.0),
    };
    debug_assert!(written.is_ok(), "writing to a string");
}

/// Paints words for a terminal, or leaves them as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paint {
    /// Whether to paint.
    pub is_coloured: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// What the eye should find.
    #[must_use]
    pub fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// What it may pass over.
    #[must_use]
    pub fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// What holds others.
    #[must_use]
    pub fn header(self, text: &str) -> String {
        self.wrap("36", text)
    }

    /// What is wrong.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// What is well.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_always_nine_places() {
        let mut text = String::new();
        iso_time(&mut text, Nanos(1_763_130_600_000_000_000));
        assert_eq!(text, "2025-11-14T14:30:00.000000000Z");
    }

    #[test]
    fn words_are_painted_only_when_asked() {
        assert_eq!(Paint::default().bad("no"), "no");
        assert_eq!(Paint { is_coloured: true }.bad("no"), "\x1b[31mno\x1b[0m");
    }
}
