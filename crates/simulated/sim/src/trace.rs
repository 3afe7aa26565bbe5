//! The trace of a run: lines for people, and a hash.

use std::fmt;

/// A line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Time of the note, in ns since the start.
    pub at_ns: u64,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:09} {}", self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000, self.text)
    }
}

/// The trace of a simulation.
#[derive(Default, Debug)]
pub(crate) struct Trace {
    /// Whether to keep the lines.
    pub(crate) is_kept: bool,
    lines: Vec<Note>,
    hash: u64,
}

impl Trace {
    /// Adds numbers to the hash.
    pub(crate) const fn mix(&mut self, now_ns: u64, what: u64) {
        // SplitMix64's finalizer, applied to the previous hash and the new numbers.
        let mut mixed = self.hash.rotate_left(5) ^ now_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ what;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.hash = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    }

    pub(crate) fn line(&mut self, now_ns: u64, text: impl FnOnce() -> String) {
        if self.is_kept {
            self.lines.push(Note { at_ns: now_ns, text: text() });
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<Note> {
        self.lines
    }
}
