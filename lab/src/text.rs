//! Results for a terminal.

use std::fmt::Write as _;

use crate::results::{Experiment, Run, TAIL_COLUMNS};
use crate::statistics::show;

/// The figures of an experiment as table rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Names of the columns, and whether they contain numbers.
    pub columns: Vec<(String, bool)>,
    /// One row per variant and point, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// Returns the header: the machine, and how the run was measured.
#[must_use]
pub fn head(run: &Run) -> String {
    let mut text = format!("{}\n", run.machine.line());
    if let Err(why) = &run.machine.counters {
        let hint = if run.quick { "; --count counts instructions under callgrind" } else { "" };
        let _infallible = writeln!(text, "the processor's events are not counted: {why}{hint}");
    }
    let _infallible = writeln!(
        text,
        "{} rounds of each variant; two equal variants differ by up to {:.1} %",
        run.rounds,
        run.noise * 100.0
    );
    text
}

/// Returns the figures of an experiment.
#[must_use]
pub fn rows(experiment: &Experiment) -> Rows {
    let all = || experiment.points.iter().flat_map(|point| &point.variants);
    let has_instructions =
        all().any(|variant| variant.events.is_some_and(|events| events.instructions.is_some()));
    let has_tails = experiment.has_tails();
    let by_callgrind = all().any(|variant| variant.events.is_some_and(|events| events.by_callgrind));
    let mut columns = vec![
        (String::new(), false),
        ("variant".into(), false),
        (experiment.unit(), true),
        ("MAD".into(), true),
    ];
    if has_tails {
        columns.extend(TAIL_COLUMNS.map(|(name, _)| (name.into(), true)));
    }
    if has_instructions {
        let name = if by_callgrind { "instructions (callgrind)" } else { "instructions" };
        columns.push((name.into(), true));
    }
    columns.extend([("ratio".into(), true), ("verdict".into(), false)]);
    let mut rows = Vec::new();
    for point in &experiment.points {
        for (index, variant) in point.variants.iter().enumerate() {
            let label = if index == 0 { point.label.clone() } else { String::new() };
            let mut cells =
                vec![label, variant.name.clone(), show(variant.figure.median), show(variant.figure.mad)];
            if has_tails {
                cells.extend(variant.tail_cells());
            }
            if has_instructions {
                let count = variant.events.and_then(|events| events.instructions);
                cells.push(count.map_or_else(String::new, show));
            }
            cells.push(variant.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)));
            cells.push(variant.remarks());
            rows.push(cells);
        }
    }
    Rows { columns, rows }
}

/// Formats a run as text as wide as its longest line, for programs without a terminal's colours and width.
#[must_use]
pub fn plain(run: &Run) -> String {
    let mut text = head(run);
    for technique in &run.techniques {
        let _infallible = writeln!(text, "\n{}", technique.title);
        for experiment in &technique.experiments {
            let _infallible = writeln!(text, "  {}", experiment.title);
            aligned(&mut text, &rows(experiment));
        }
        for why in &technique.skipped {
            let _infallible = writeln!(text, "  SKIPPED: {why}");
        }
        if let Some(why) = &technique.failed {
            let _infallible = writeln!(text, "  FAILED: {why}");
        }
    }
    text
}

/// Formats the figures of an experiment as text as wide as its longest line.
#[must_use]
pub fn table(experiment: &Experiment) -> String {
    let mut text = String::new();
    aligned(&mut text, &rows(experiment));
    text
}

fn aligned(text: &mut String, Rows { columns, rows }: &Rows) {
    let heading: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let lines = || std::iter::once(&heading).chain(rows);
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| lines().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    for cells in lines() {
        let mut line = String::from("  ");
        for ((cell, width), (_, is_number)) in cells.iter().zip(&widths).zip(columns) {
            let _infallible =
                if *is_number { write!(line, "  {cell:>width$}") } else { write!(line, "  {cell:<width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Lab, Peers, Settings, Variants, busy};

    const SETTINGS: Settings = Settings { rounds: 3, ..Settings::QUICK };

    #[test]
    fn variants_of_other_programs_are_rows_like_all() {
        let mut quiet = |_: &str| {};
        let mut lab = Lab::new(SETTINGS, &[3, 5], 0.0, &mut quiet, &|| false);
        lab.add_peers([
            Peers {
                technique: "any",
                experiment: "a test",
                add: |setup, variants| {
                    assert_eq!((setup.items, setup.x, setup.cores), (100, 7.0, [3, 5]));
                    variants
                        .add("a peer", || busy(100))
                        .add_foreign("a program", |reporter| reporter.figure(12.5))
                        .skip("another peer: it is not installed")
                },
            },
            Peers {
                technique: "any",
                experiment: "another test",
                add: |_, variants| variants.add("no", || 1),
            },
        ]);
        lab.experiment("a test", "turn");
        for label in ["one", "two"] {
            lab.point(7.0, label, Variants::of(100).add("ours", || busy(100))).unwrap();
        }
        let (experiments, skipped) = lab.into_results();
        assert_eq!(skipped, ["another peer: it is not installed"], "each reason once");
        let found = rows(&experiments[0]);
        let names: Vec<&str> = found.rows.iter().map(|cells| cells[1].as_str()).collect();
        assert_eq!(names, ["ours", "a peer", "a program", "ours", "a peer", "a program"]);
        assert_eq!((found.rows[2][2].as_str(), found.columns[2].0.as_str()), ("12.5", "ns a turn"));
        let mut text = String::new();
        aligned(&mut text, &found);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("    one  ours "), "{text}");
        assert!(lines[3].starts_with("         a program "), "{text}");
    }

    #[test]
    fn a_peer_with_another_answer_is_refused() {
        let mut quiet = |_: &str| {};
        let mut lab = Lab::new(SETTINGS, &[], 0.0, &mut quiet, &|| false);
        lab.add_peers([Peers {
            technique: "any",
            experiment: "a test",
            add: |_, variants| variants.add("wrong", || busy(100) ^ 1),
        }]);
        lab.experiment("a test", "turn");
        let error = lab.point(0.0, "", Variants::of(100).add("ours", || busy(100))).unwrap_err();
        assert!(error.to_string().contains("`wrong` answers"), "{error}");
    }
}
