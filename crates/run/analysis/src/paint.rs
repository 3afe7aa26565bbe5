//! Terminal colors.

/// Colors words for a terminal, or leaves them unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paint {
    /// Whether to use colors.
    pub is_coloured: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Important text.
    #[must_use]
    pub fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Unimportant text.
    #[must_use]
    pub fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Frames and headings.
    #[must_use]
    pub fn header(self, text: &str) -> String {
        self.wrap("36", text)
    }

    /// Errors.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// Success.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_painted_only_on_request() {
        assert_eq!(Paint::default().bad("no"), "no");
        assert_eq!(Paint { is_coloured: true }.bad("no"), "\x1b[31mno\x1b[0m");
    }
}
