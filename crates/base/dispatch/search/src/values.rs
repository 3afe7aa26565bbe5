//! Values as people write them, and files of values.
//!
//! A value is a number or a text: `68`, `0x44`, `0b100_0100`, `'D'`, `"AE"`. Text is read like a message type on the wire: the
//! first character is the highest byte, and up to eight fit. A file has one value per line; the rest of a line after `#` is a
//! comment.

use std::fmt;

use crate::set::SearchError;

/// The most characters of a text: the bytes of a `u64`.
const MOST_CHARACTERS: usize = 8;

/// The reason why a word is not a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// The word is empty.
    Empty,
    /// Neither a number nor a text.
    NotAValue(
        /// The word.
        String,
    ),
    /// A number with a sign.
    Negative(
        /// The word.
        String,
    ),
    /// A number of more than 64 bits.
    TooLarge(
        /// The word.
        String,
    ),
    /// A text that is unterminated, empty, too long, or not printable ASCII.
    BadText(
        /// The word.
        String,
    ),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a value is missing"),
            Self::NotAValue(word) => {
                write!(f, "{word:?} is no value; write 68, 0x44, 0b1000100, 'D' or \"AE\"")
            }
            Self::Negative(word) => {
                write!(
                    f,
                    "{word:?} is no value: a value has no sign; write 68, 0x44, 0b1000100, 'D' or \"AE\""
                )
            }
            Self::TooLarge(word) => write!(f, "{word} is more than 64 bits hold"),
            Self::BadText(word) => {
                write!(
                    f,
                    "{word:?} is no text of 1 to {MOST_CHARACTERS} printable ASCII characters in quotes"
                )
            }
        }
    }
}

impl std::error::Error for ValueError {}

/// Converts a text to a number, with the first character highest: `code("AE")` is `0x4145`. Returns `None` if the text is empty,
/// longer than eight bytes, or not printable ASCII.
#[must_use]
pub const fn code(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > MOST_CHARACTERS {
        return None;
    }
    let (mut number, mut at) = (0, 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_graphic() && bytes[at] != b' ' {
            return None;
        }
        number = number << 8 | bytes[at] as u64;
        at += 1;
    }
    Some(number)
}

/// Parses one value. A single non-digit character needs no quotes, because shells remove them.
///
/// # Errors
/// If the word is not a value.
pub fn parse(word: &str) -> Result<u64, ValueError> {
    let word = word.trim();
    let first = word.chars().next().ok_or(ValueError::Empty)?;
    if word.len() > 1 && (first == '\'' || first == '"') {
        let bad = || ValueError::BadText(word.to_owned());
        let text = word[1..].strip_suffix(first).ok_or_else(bad)?;
        return code(text).ok_or_else(bad);
    }
    if first == '-' && word[1..].starts_with(|second: char| second.is_ascii_digit()) {
        return Err(ValueError::Negative(word.to_owned()));
    }
    if !first.is_ascii_digit() {
        return code(word).filter(|_| word.len() == 1).ok_or_else(|| ValueError::NotAValue(word.to_owned()));
    }
    let (radix, digits) = match word.get(..2) {
        Some("0x" | "0X") => (16, &word[2..]),
        Some("0b" | "0B") => (2, &word[2..]),
        _ => (10, word),
    };
    let digits: String = digits.chars().filter(|character| *character != '_').collect();
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(ValueError::NotAValue(word.to_owned()));
    }
    u64::from_str_radix(&digits, radix).map_err(|_| ValueError::TooLarge(word.to_owned()))
}

/// An invalid line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineError {
    /// The line number, from 1.
    pub line: usize,
    /// The column where the word starts, in characters, from 1.
    pub column: usize,
    /// The error.
    pub error: ValueError,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.error)
    }
}

impl std::error::Error for LineError {}

/// The values of a file, and their lines.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    values: Vec<u64>,
    lines: Vec<usize>,
}

impl Listing {
    /// Parses a file's text.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let mut listing = Self::default();
        for (index, line) in text.lines().enumerate() {
            let word = without_comment(line).trim();
            if word.is_empty() {
                continue;
            }
            let value = parse(word).map_err(|error| {
                let indent = line.chars().take_while(|character| character.is_whitespace()).count();
                LineError { line: index + 1, column: indent + 1, error }
            })?;
            listing.values.push(value);
            listing.lines.push(index + 1);
        }
        Ok(listing)
    }

    /// Returns the values, in the file's order.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the line of the value at `place`, from 1.
    #[must_use]
    pub fn line(&self, place: usize) -> Option<usize> {
        self.lines.get(place).copied()
    }

    /// Explains by lines why these values have no hash: `types.txt:7: 0x44 is in line 3 already`.
    #[must_use]
    pub fn fault(&self, file: &str, error: &SearchError) -> String {
        let line = |place: usize| self.line(place).unwrap_or_default();
        match error {
            SearchError::Duplicate { value, first, place } => {
                format!("{file}:{}: {value:#x} is in line {} already", line(*place), line(*first))
            }
            SearchError::TooWide { value, place, width } => {
                format!("{file}:{}: {value:#x} does not fit into {width}", line(*place))
            }
            SearchError::TooMany { .. } => {
                format!("{file}:{}: {error}", error.place().map_or(0, line))
            }
            SearchError::Empty => format!("{file}: {error}"),
        }
    }
}

/// Returns the line up to a `#` that is not in quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match quote {
            None if character == '#' => return &line[..at],
            None if character == '\'' || character == '"' => quote = Some(character),
            Some(open) if character == open => quote = None,
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_in_every_form() {
        let forms = ["68", "0x44", "0X44", "0b1000100", "0b0100_0100", "'D'", "\"D\"", "D", " 0x44 "];
        for form in forms {
            assert_eq!(parse(form), Ok(0x44), "{form}");
        }
        assert_eq!(parse("\"AE\""), Ok(0x4145));
        assert_eq!(parse("'#'"), Ok(0x23));
        assert_eq!(parse("'"), Ok(0x27));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn a_word_that_is_no_value_is_named() {
        for word in ["AE", "0x", "0xG", "12a", "-A", "--1", "1.5", "0b2", "é"] {
            assert_eq!(parse(word), Err(ValueError::NotAValue(word.to_owned())));
        }
        for word in ["-1", "-0x44", "-1.5"] {
            assert_eq!(parse(word), Err(ValueError::Negative(word.to_owned())));
        }
        for word in ["''", "'A", "\"123456789\"", "'é'"] {
            assert_eq!(parse(word), Err(ValueError::BadText(word.to_owned())));
        }
        assert_eq!(
            parse("18446744073709551616").unwrap_err().to_string(),
            "18446744073709551616 is more than 64 bits hold"
        );
        assert_eq!(parse("  "), Err(ValueError::Empty));
    }

    #[test]
    fn a_file_has_a_value_a_line_and_comments() {
        let listing = Listing::parse("# types\n'A' # logon\n\n  '#' # a hash # of course\n0x30\r\n").unwrap();
        assert_eq!(listing.values(), [0x41, 0x23, 0x30]);
        assert_eq!(listing.line(1), Some(4));
    }

    #[test]
    fn an_error_names_the_faulty_line() {
        let error = Listing::parse("1\n\n  two # no\n").unwrap_err();
        assert_eq!(error.to_string(), "3:3: \"two\" is no value; write 68, 0x44, 0b1000100, 'D' or \"AE\"");
        let listing = Listing::parse("1\n# one\n0x1\n").unwrap();
        let error = crate::find(listing.values()).unwrap_err();
        assert_eq!(listing.fault("types.txt", &error), "types.txt:3: 0x1 is in line 1 already");
    }
}
