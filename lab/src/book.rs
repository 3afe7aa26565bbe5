//! Results for a page of the book: plots as files, and a text that the page includes.

use std::fmt::Write as _;

use crate::catalogue;
use crate::plot;
use crate::results::{Run, TAIL_COLUMNS, TechniqueResult};
use crate::statistics::show;

/// Returns the files of a run by name: a text and the plots of each technique.
#[must_use]
pub fn figures(run: &Run) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for technique in &run.techniques {
        let plots = plots(technique);
        files.push((format!("{}.inc", technique.name), text(run, technique, &plots)));
        files.extend(plots.into_iter().map(|plot| (plot.name, plot.svg)));
    }
    files
}

/// A plot of a technique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// The index of its experiment.
    pub experiment: usize,
    /// The file name.
    pub name: String,
    /// Its content.
    pub svg: String,
}

/// Draws the plots of a technique, experiment by experiment.
#[must_use]
pub fn plots(technique: &TechniqueResult) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (number, experiment) in technique.experiments.iter().enumerate() {
        let mut add = |ending: String, svg: String| {
            let name = format!("{}-{}{ending}.svg", technique.name, number + 1);
            plots.push(Plot { experiment: number, name, svg });
        };
        add(String::new(), plot::figures(experiment));
        for (index, point) in experiment.points.iter().enumerate() {
            if let Some(svg) = plot::tails(experiment, point) {
                add(format!("-tail-{}", index + 1), svg);
            }
        }
    }
    plots
}

/// Escapes a Markdown table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn text(run: &Run, technique: &TechniqueResult, plots: &[Plot]) -> String {
    let mut text = format!(
        "<!-- Made by `tapeworks lab figures`: do not edit. -->\n\nMeasured by `tapeworks lab run {}{}` on {}. {}, {} rounds, noise {:.1} %.\n",
        technique.name,
        if run.quick { " --quick" } else { "" },
        run.machine.line(),
        run.began,
        run.rounds,
        run.noise * 100.0
    );
    for why in &technique.skipped {
        let _infallible = write!(text, "\nSkipped: {why}.\n");
    }
    if let Some(why) = &technique.failed {
        let _infallible = write!(text, "\nFailed: {why}.\n");
    }
    for (number, experiment) in technique.experiments.iter().enumerate() {
        for plot in plots.iter().filter(|plot| plot.experiment == number) {
            let _infallible = write!(text, "\n![{}](figures/{})\n", cell(&experiment.title), plot.name);
        }
        let has_tails = experiment.has_tails();
        let (names, lines) = if has_tails {
            (
                TAIL_COLUMNS.map(|(name, _)| format!(" {name} |")).concat(),
                " ---: |".repeat(TAIL_COLUMNS.len()),
            )
        } else {
            (String::new(), String::new())
        };
        let _infallible = write!(
            text,
            "\n| | {} | {} | interval |{names} ratio | |\n| --- | --- | ---: | ---: |{lines} ---: | --- |\n",
            cell(&experiment.title),
            experiment.unit()
        );
        for point in &experiment.points {
            for variant in &point.variants {
                let figure = &variant.figure;
                let ratio = variant.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median));
                let tail = if has_tails {
                    variant.tail_cells().map(|value| format!(" {value} |")).concat()
                } else {
                    String::new()
                };
                let _infallible = writeln!(
                    text,
                    "| {} | {} | {} | {} to {} |{tail} {ratio} | {} |",
                    cell(&point.label),
                    cell(&variant.name),
                    show(figure.median),
                    show(figure.low),
                    show(figure.high),
                    cell(&variant.remarks())
                );
            }
        }
    }
    let published = catalogue::find(&technique.name).map_or(&[][..], |known| known.published);
    if !published.is_empty() {
        text.push_str("\n| published by | |\n| --- | --- |\n");
        for row in published {
            let _infallible = writeln!(text, "| {} | {} |", cell(row.source), cell(row.figure));
        }
    }
    text
}
