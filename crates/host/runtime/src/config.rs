//! Reads TOML files key by key, with positions; unknown keys are errors.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// The file as the user named it.
    pub file: String,
    /// The line, and the column in characters, both from 1; `None` for an error of the whole file.
    pub place: Option<(usize, usize)>,
    /// The error and the expected value.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(formatter, "{}:{line}:{column}: {}", self.file, self.problem),
            None => write!(formatter, "{}: {}", self.file, self.problem),
        }
    }
}

/// The errors so far, and the text that determines their positions.
pub struct Reading<'t> {
    file: &'t str,
    text: &'t str,
    errors: Vec<ConfigError>,
    /// Whether the flow may be run rather than only drawn, in which case its outputs must be startable.
    pub may_run: bool,
}

impl<'t> Reading<'t> {
    /// Starts reading `text` from the file that the user named `file`.
    pub fn new(file: &'t str, text: &'t str, may_run: bool) -> Self {
        Self { file, text, errors: Vec::new(), may_run }
    }

    /// Reports an error at these bytes of the text.
    pub fn wrong(&mut self, span: Range<usize>, problem: String) {
        let place = place_after(&self.text[..self.text.floor_char_boundary(span.start)]);
        self.errors.push(ConfigError { file: self.file.to_owned(), place: Some(place), problem });
    }

    /// Reports that something is missing. The error points at the file's end, where it could be added.
    pub fn wrong_at_end(&mut self, problem: String) {
        self.wrong(self.text.len()..self.text.len(), problem);
    }

    /// Reports that `what` is unknown, with the known names and the most similar one.
    pub fn unknown(&mut self, span: Range<usize>, what: &str, name: &str, known: &[impl AsRef<str>]) {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let nearest = known.iter().map(|candidate| (distance(name, candidate), candidate)).min();
        let hint = match nearest {
            Some((distance, nearest)) if distance < name.len() && distance <= 1 + name.len() / 4 => {
                format!("did you mean '{nearest}'?")
            }
            Some(_) => format!("there are {}", known.join(", ")),
            None => "there are none".to_owned(),
        };
        self.wrong(span, format!("{what} is not known; {hint}"));
    }

    /// Returns whether there are no errors so far.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns all errors, in file order.
    pub fn finish(mut self) -> Vec<ConfigError> {
        self.errors.sort();
        self.errors.dedup();
        self.errors
    }
}

/// Returns the line and column of the character after `before`, both from 1.
fn place_after(before: &str) -> (usize, usize) {
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Returns the edit distance: letters to add, remove or change to turn one into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, candidate) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Returns a value's integer, in whatever base it is written.
pub fn whole(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Parses TOML `text` and reads it by `read`. If there are syntax errors, only those are reported.
pub fn read_text<'t, T>(
    mut reading: Reading<'t>,
    read: impl FnOnce(&mut Reading<'t>, &Spanned<DeTable<'t>>) -> T,
) -> Result<T, Vec<ConfigError>> {
    let (document, syntax) = DeTable::parse_recoverable(reading.text);
    for error in &syntax {
        let problem = format!("not TOML: {}", error.message().replace('\n', "; "));
        reading.wrong(error.span().unwrap_or_default(), problem);
    }
    // After a syntax error, `read` would report keys that the parser did not recover as missing.
    if !syntax.is_empty() {
        return Err(reading.finish());
    }
    let config = read(&mut reading, &document);
    let errors = reading.finish();
    if errors.is_empty() { Ok(config) } else { Err(errors) }
}

/// Reads the file at `path`, which errors call `file`.
pub fn read_file(path: &Path, file: &str) -> Result<String, Vec<ConfigError>> {
    let wrong = |place, problem| vec![ConfigError { file: file.to_owned(), place, problem }];
    let bytes = std::fs::read(path).map_err(|error| {
        let problem = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file".to_owned(),
            std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
            _ => format!("cannot read: {error}"),
        };
        wrong(None, problem)
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let (sound, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let place = place_after(&String::from_utf8_lossy(sound));
        let byte = rest.first().copied().unwrap_or_default();
        wrong(Some(place), format!("not a text file: the byte 0x{byte:02x} here is not UTF-8"))
    })
}

/// A table that is being read.
pub struct Section<'a> {
    what: &'static str,
    table: &'a DeTable<'a>,
    /// The table's position in the text.
    pub span: Range<usize>,
    /// Keys that were requested.
    read: Vec<&'static str>,
    /// The positions of renamed keys, which were already reported.
    outdated: Vec<Range<usize>>,
}

impl<'a> Section<'a> {
    /// Starts reading the table `what`, which is at `span`.
    pub fn new(what: &'static str, table: &'a DeTable<'_>, span: Range<usize>) -> Self {
        Self { what, table, span, read: Vec::new(), outdated: Vec::new() }
    }

    /// Returns whether the key is present.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns whether the key is present and its value is a table.
    pub fn is_table(&self, key: &str) -> bool {
        self.find(key).is_some_and(|value| value.get_ref().as_table().is_some())
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.read.push(key);
        self.find(key)
    }

    /// Returns a value's text as written in the file.
    pub fn source(&self, reading: &Reading<'_>, key: &str) -> String {
        let span = self.find(key).map_or(0..0, Spanned::span);
        let text = reading.text.get(span).unwrap_or_default();
        text.trim_matches(|c: char| c == '{' || c == '}' || c.is_whitespace()).replace('\n', " ")
    }

    /// Reports that a key is missing.
    pub fn missing(&self, reading: &mut Reading<'_>, key: &str) {
        reading.wrong(self.span.clone(), format!("{} lacks the key '{key}'", self.what));
    }

    /// Reports an error in a key's value, or in the table if the key is missing.
    pub fn wrong_at(&self, reading: &mut Reading<'_>, key: &str, problem: &str) {
        let span = self.find(key).map_or_else(|| self.span.clone(), Spanned::span);
        reading.wrong(span, problem.to_owned());
    }

    fn wrong_type(reading: &mut Reading<'_>, key: &str, wanted: &dyn Display, value: &Spanned<DeValue<'_>>) {
        let problem = format!("'{key}' must be {wanted}, not {}", article(value.get_ref().type_str()));
        reading.wrong(value.span(), problem);
    }

    /// Returns a key's text and its position.
    pub fn text(&mut self, reading: &mut Reading<'_>, key: &'static str) -> Option<(String, Range<usize>)> {
        let value = self.get(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some((text.to_owned(), value.span())),
            None => {
                Self::wrong_type(reading, key, &"a string", value);
                None
            }
        }
    }

    /// Like [`Section::text`], for a required key.
    pub fn required_text(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
    ) -> Option<(String, Range<usize>)> {
        let text = self.text(reading, key);
        if !self.has(key) {
            self.missing(reading, key);
        }
        text
    }

    /// Returns a key's boolean.
    pub fn boolean(&mut self, reading: &mut Reading<'_>, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            Self::wrong_type(reading, key, &"true or false", value);
        }
        boolean
    }

    /// Returns a key's integer, which must be within `range`, and its position.
    pub fn integer(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        range: RangeInclusive<usize>,
    ) -> Option<(usize, Range<usize>)> {
        let value = self.get(key)?;
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        if !value.get_ref().is_integer() {
            Self::wrong_type(reading, key, &wanted, value);
            return None;
        }
        match whole(value.get_ref()).and_then(|number| usize::try_from(number).ok()) {
            Some(number) if range.contains(&number) => Some((number, value.span())),
            _ => {
                reading.wrong(value.span(), format!("'{key}' must be {wanted}"));
                None
            }
        }
    }

    /// Returns a key's number, which must be within `range`, and its position.
    pub fn number(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Option<(f64, Range<usize>)> {
        let value = self.get(key)?;
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(_) => whole(value.get_ref()).map(|number| number as f64),
            _ => {
                Self::wrong_type(reading, key, &wanted, value);
                return None;
            }
        };
        match number {
            Some(number) if range.contains(&number) => Some((number, value.span())),
            _ => {
                reading.wrong(value.span(), format!("'{key}' must be {wanted}"));
                None
            }
        }
    }

    /// Returns one of `all`, by name.
    pub fn choice<T: Copy>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Option<T> {
        let (text, span) = self.text(reading, key)?;
        let found = all.iter().copied().find(|choice| name(*choice) == text);
        if found.is_none() {
            let known: Vec<&str> = all.iter().map(|choice| name(*choice)).collect();
            reading.unknown(span, &format!("'{text}' for '{key}'"), &text, &known);
        }
        found
    }

    /// Returns a string parsed as `wanted`.
    pub fn parsed<T>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let (text, span) = self.text(reading, key)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            reading.wrong(span, format!("'{key}' must be {wanted}"));
        }
        parsed
    }

    /// Returns a time with a unit, such as `"250ms"` or `"1.5s"`, within `range`. Rejects a key that ends in a unit
    /// (`silence_s = 5`) and reports the new spelling.
    pub fn time(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        for (unit, _) in TIME_UNITS {
            let old = format!("{key}_{unit}");
            let Some((name, value)) = self.table.iter().find(|(name, _)| *name.get_ref() == old) else {
                continue;
            };
            let number = match value.get_ref() {
                DeValue::Float(float) => float.as_str().to_owned(),
                value => whole(value).map_or_else(|| "5".to_owned(), |number| number.to_string()),
            };
            self.outdated.push(name.span());
            reading.wrong(name.span(), format!("'{old}' is '{key}' now: {key} = \"{number}{unit}\""));
        }
        let (text, span) = self.text(reading, key)?;
        let time = time(&text);
        if time.is_some_and(|time| range.contains(&time)) {
            return time;
        }
        let wanted =
            format!("a time with its unit from {:?} to {:?}, such as \"250ms\"", range.start(), range.end());
        reading.wrong(span, format!("'{key}' must be {wanted}"));
        None
    }

    /// Returns whether a [`Section::time`] is present, or its rejected old spelling.
    pub fn has_time(&self, key: &str) -> bool {
        self.has(key) || TIME_UNITS.iter().any(|(unit, _)| self.has(&format!("{key}_{unit}")))
    }

    /// Rejects a key that was renamed.
    pub fn renamed(&mut self, reading: &mut Reading<'_>, old: &str, new: &str) {
        if let Some((name, _)) = self.table.iter().find(|(name, _)| name.get_ref() == old) {
            self.outdated.push(name.span());
            reading.wrong(name.span(), format!("'{old}' is '{new}' now"));
        }
    }

    /// Parses a word or a list of words. Returns `None` if the key is missing. Invalid words are reported and skipped.
    pub fn each_checked<T>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let value = self.get(key)?;
        let values = match value.get_ref().as_array() {
            Some(values) => values.iter().collect(),
            None => vec![value],
        };
        if values.is_empty() {
            reading.wrong(value.span(), format!("'{key}' is an empty list, which nothing matches"));
        }
        let mut all = Vec::new();
        for value in values {
            let Some(word) = word(value.get_ref()) else {
                Self::wrong_type(reading, key, &"a string, a number or a list of them", value);
                continue;
            };
            match parse(&word) {
                Ok(parsed) => all.push(parsed),
                Err(problem) => reading.wrong(value.span(), format!("'{key}': {problem}")),
            }
        }
        Some(all)
    }

    /// Like [`Section::each_checked`], for values described by `wanted`.
    pub fn each<T>(
        &mut self,
        reading: &mut Reading<'_>,
        key: &'static str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.each_checked(reading, key, |text| parse(text).ok_or_else(|| format!("'{text}' is not {wanted}")))
    }

    /// Returns a name or a list of names. The key is required.
    pub fn names(&mut self, reading: &mut Reading<'_>, key: &'static str) -> Vec<(String, Range<usize>)> {
        let Some(value) = self.get(key) else {
            self.missing(reading, key);
            return Vec::new();
        };
        let values = match value.get_ref().as_array() {
            Some(values) => values.iter().collect(),
            None => vec![value],
        };
        let mut names = Vec::new();
        for value in values {
            match value.get_ref().as_str() {
                Some(name) => names.push((name.to_owned(), value.span())),
                None => Self::wrong_type(reading, key, &"a name or a list of names", value),
            }
        }
        if names.is_empty() && reading.is_clean() {
            reading.wrong(value.span(), format!("'{key}' names no stage"));
        }
        names
    }

    /// Returns a key's table.
    pub fn table(&mut self, reading: &mut Reading<'_>, key: &'static str) -> Option<Section<'a>> {
        let value = self.get(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Section::new(key, table, value.span())),
            None => {
                Self::wrong_type(reading, key, &"a table", value);
                None
            }
        }
    }

    /// Returns the tables of a list, or none if the key is missing.
    pub fn tables(&mut self, reading: &mut Reading<'_>, key: &'static str) -> Vec<Section<'a>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(values) = value.get_ref().as_array() else {
            let wanted = format!("a list of tables: write [[{key}]]");
            Self::wrong_type(reading, key, &wanted, value);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for value in values {
            match value.get_ref().as_table() {
                Some(table) => tables.push(Section::new(key, table, value.span())),
                None => Self::wrong_type(reading, key, &"a list of tables", value),
            }
        }
        tables
    }

    /// Reports every key that was not requested.
    pub fn refuse_the_rest(&self, reading: &mut Reading<'_>) {
        for (name, _) in self.table {
            if !self.read.contains(&name.get_ref().as_ref()) && !self.outdated.contains(&name.span()) {
                reading.unknown(
                    name.span(),
                    &format!("the key '{}'", name.get_ref()),
                    name.get_ref(),
                    &self.read,
                );
            }
        }
    }
}

/// Units of time and their lengths in ns.
const TIME_UNITS: [(&str, f64); 6] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3_600e9)];

/// Parses a time such as `250ms`, `1.5s`, `50us` or `2min`.
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?);
    let (_, length) = TIME_UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    let nanoseconds = number.parse::<f64>().ok()? * length;
    // A larger float cannot represent single nanoseconds. No setting is that long.
    (nanoseconds < 9e15).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

/// Splits a server's name or address from its port, such as `db.example.net:9000`. An IPv6 address keeps its brackets, as in a
/// URL.
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_address = text.parse::<SocketAddr>().is_ok();
    let is_name = !host.is_empty()
        && host.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_'));
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (is_address || is_name).then(|| (host.to_owned(), port))
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Returns the value as a word, if it is a string or an integer; an integer becomes decimal.
fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(_) => whole(value).map(|number| number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{distance, read_file};

    #[test]
    fn a_file_that_is_not_utf_8_is_refused_with_the_place_of_the_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, b"interface = \"127.0.0.1\"\n# caf\xe9\n").unwrap();
        let errors = read_file(&path, "p.toml").unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["p.toml:2:6: not a text file: the byte 0xe9 here is not UTF-8"]);
        let missing = read_file(&folder.path().join("q.toml"), "q.toml").unwrap_err();
        assert_eq!(missing[0].to_string(), "q.toml: no such file");
    }

    #[test]
    fn distances_count_letters_added_removed_and_changed() {
        for (one, other, letters) in
            [("", "", 0), ("file", "fiel", 2), ("tp", "tcp", 1), ("abc", "", 3), ("a", "b", 1)]
        {
            assert_eq!(distance(one, other), letters, "{one} {other}");
            assert_eq!(distance(other, one), letters, "{other} {one}");
        }
    }
}
