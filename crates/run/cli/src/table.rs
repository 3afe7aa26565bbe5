//! Tables for people: aligned columns, readable numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tapeworks_analysis::paint::Paint;
use tapeworks_time::Nanos;
use tapeworks_time::clock;

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table as text, indented by two. If it is wider than `width`, its widest left-aligned column is cut.
    pub(crate) fn render(&self, width: usize, paint: Paint) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let total = 2 + widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if total > width {
            let widest = self
                .columns
                .iter()
                .zip(widths.iter_mut())
                .filter(|((_, align), _)| *align == Align::Left)
                .map(|(_, width)| width)
                .max();
            if let Some(widest) = widest {
                *widest = widest.saturating_sub(total - width).max(12);
            }
            self.keep_apart(&mut widths);
        }
        let mut out = String::new();
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        self.line(&mut out, &heading, &widths, Some(paint));
        for row in &self.rows {
            self.line(&mut out, row, &widths, None);
        }
        out
    }

    /// Widens columns in which different cells would look alike after the cut.
    fn keep_apart(&self, widths: &mut [usize]) {
        for (column, width) in widths.iter_mut().enumerate() {
            let cells: BTreeSet<&str> =
                self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str).collect();
            let looks = |width| cells.iter().map(|cell| cut(cell, width)).collect::<BTreeSet<_>>().len();
            let longest = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
            while *width < longest && looks(*width) < cells.len() {
                *width += 1;
            }
        }
    }

    fn line(&self, out: &mut String, cells: &[String], widths: &[usize], heading: Option<Paint>) {
        let mut line = String::from("  ");
        for (index, ((cell, width), (_, align))) in cells.iter().zip(widths).zip(&self.columns).enumerate() {
            if index > 0 {
                line.push_str("  ");
            }
            let cell = cut(cell, *width);
            let _infallible = match align {
                Align::Left => write!(line, "{cell:<width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        let line = line.trim_end();
        match heading {
            Some(paint) => out.push_str(&paint.faint(line)),
            None => out.push_str(line),
        }
        out.push('\n');
    }
}

/// Keeps the beginning and the end of a text, because names of channels and files may differ at either.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Formats `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with as many decimals as its size needs: `0.25`, `12.3`, `4,012,345`.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => thousands(value.round() as u64),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a time in UTC, as ISO 8601.
pub(crate) fn time(time: Nanos) -> String {
    clock::iso(time)
}

/// Formats a part of a whole in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "0.0 %".to_owned() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}

/// Formats a number of bytes in a suitable unit.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// Formats a count as `1 gap`, `2 gaps`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(["a".to_owned(), "1,000".to_owned()]);
        table.row(["longer".to_owned(), "2".to_owned()]);
        assert_eq!(table.render(80, Paint::default()), "  name    count\n  a       1,000\n  longer      2\n");
    }

    #[test]
    fn rows_that_differ_look_different_however_narrow_the_terminal() {
        let mut table = Table::new(&[("channel", Align::Left), ("count", Align::Right)]);
        for port in ["26477", "26478"] {
            table.row([format!("MoldUDP64 session TAPEWORKSA port {port}"), "7".to_owned()]);
        }
        let text = table.render(40, Paint::default());
        assert!(text.contains("26477") && text.contains("26478"), "{text}");
    }

    #[test]
    fn a_table_too_wide_is_cut_in_its_widest_text() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(["x".repeat(60), "7".to_owned()]);
        let text = table.render(40, Paint::default());
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("x…"), "{text}");
    }
}
