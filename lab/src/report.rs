//! A run as one self-contained HTML page: machine, noise, plots, verdicts, and published figures next to ours.

use std::fmt::Write as _;

use tapeworks_drawing::escape;

use crate::catalogue;
use crate::counters::Events;
use crate::measure::LEAST_NOISE;
use crate::plot;
use crate::results::{Experiment, Run, TAIL_COLUMNS, TechniqueResult};
use crate::statistics::show;

const STYLE: &str = "\
:root { color-scheme: light dark; --page: #fff; --ink: #1f2937; --faint: #6b7280; --line: #e5e7eb; --good: #047857; --bad: #b45309 }
@media (prefers-color-scheme: dark) { :root { --page: #111827; --ink: #e5e7eb; --faint: #9ca3af; --line: #263244; --good: #34d399; --bad: #fbbf24 } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { border-top: 1px solid var(--line); font-size: 1.25rem; margin-top: 2.5rem; padding-top: 1.2rem } h3 { font-size: 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0; width: 100% }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .6rem; text-align: right } th { color: var(--faint); font-weight: 500 }
th:first-child, td:first-child, .text { text-align: left }
svg { height: auto; max-width: 100% } .faint { color: var(--faint) } .helps { color: var(--good) } .hurts { color: var(--bad) }
nav { columns: 3 16rem } a { color: inherit } dt { color: var(--faint) } dl { display: grid; gap: .1rem 1.2rem; grid-template-columns: max-content auto }
dd { margin: 0 }";

/// Returns the page.
#[must_use]
pub fn html(run: &Run) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Tapeworks lab</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>Tapeworks lab</h1>\n"
    );
    machine(&mut page, run);
    page.push_str("<nav><ol>\n");
    for technique in &run.techniques {
        let _infallible = writeln!(
            page,
            "<li><a href=\"#{}\">{}</a></li>",
            escape(&technique.name),
            escape(&technique.title)
        );
    }
    page.push_str("</ol></nav>\n");
    for technique in &run.techniques {
        section(&mut page, technique);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn machine(page: &mut String, run: &Run) {
    let machine = &run.machine;
    let variants = run.techniques.iter().flat_map(|found| &found.experiments).flat_map(|found| &found.points);
    let by_callgrind = variants
        .flat_map(|point| &point.variants)
        .any(|found| found.events.is_some_and(|events| events.by_callgrind));
    let counters = match &machine.counters {
        Ok(()) => "counted by the processor".to_owned(),
        Err(why) if by_callgrind => format!("not counted: {why}; instructions are counted by callgrind"),
        Err(why) => format!("not counted: {why}"),
    };
    let rows = [
        ("measured", format!("{}, {}", run.began, run.program)),
        ("machine", machine.line()),
        ("instruction sets at run time", machine.instruction_sets.join(", ")),
        ("huge pages", machine.huge_pages.clone()),
        ("frequency governor", machine.governor.clone().unwrap_or_else(|| "unknown".into())),
        ("load before the run", show(machine.load_before)),
        ("events of the processor", counters),
        ("rounds", format!("{}{}", run.rounds, if run.quick { ", a quick run" } else { "" })),
        (
            "noise",
            format!(
                "two equal variants differ by up to {:.1} %; a verdict needs {:.1} % at least",
                run.noise * 100.0,
                run.noise.max(LEAST_NOISE) * 100.0
            ),
        ),
    ];
    page.push_str("<dl>\n");
    for (name, value) in rows {
        let _infallible = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    page.push_str("</dl>\n");
}

fn section(page: &mut String, technique: &TechniqueResult) {
    let _infallible =
        writeln!(page, "<h2 id=\"{}\">{}</h2>", escape(&technique.name), escape(&technique.title));
    let known = catalogue::find(&technique.name);
    if let Some(known) = known {
        let _infallible = writeln!(page, "<p>{}</p>", escape(known.question));
    }
    for why in &technique.skipped {
        let _infallible = writeln!(page, "<p class=\"hurts\">Skipped: {}</p>", escape(why));
    }
    if let Some(why) = &technique.failed {
        let _infallible = writeln!(page, "<p class=\"hurts\">Failed: {}</p>", escape(why));
    }
    for experiment in &technique.experiments {
        page.push_str(&plot::figures(experiment));
        for tails in experiment.points.iter().filter_map(|point| plot::tails(experiment, point)) {
            page.push_str(&tails);
        }
        table(page, experiment);
    }
    let published = known.map_or(&[][..], |known| known.published);
    if !published.is_empty() {
        page.push_str("<h3>What others have published</h3>\n<table>\n");
        for row in published {
            let _infallible = writeln!(
                page,
                "<tr><td>{}</td><td class=\"text\">{}</td></tr>",
                escape(row.source),
                escape(row.figure)
            );
        }
        page.push_str("</table>\n");
    }
}

/// Writes the table of an experiment: one row per variant and point.
fn table(page: &mut String, experiment: &Experiment) {
    let has_events =
        experiment.points.iter().flat_map(|point| &point.variants).any(|found| found.events.is_some());
    let has_tails = experiment.has_tails();
    let tails = if has_tails {
        TAIL_COLUMNS.map(|(name, _)| format!("<th>{name}</th>")).concat()
    } else {
        String::new()
    };
    let events = if has_events {
        "<th>cycles</th><th>instructions</th><th>branch misses</th><th>cache misses</th>"
    } else {
        ""
    };
    let _infallible = writeln!(
        page,
        "<table>\n<tr><th></th><th class=\"text\"></th><th>{}</th><th>interval</th><th>MAD</th>{tails}<th>ratio</th>{events}<th class=\"text\">verdict</th></tr>",
        escape(&experiment.unit())
    );
    for point in &experiment.points {
        for variant in &point.variants {
            let class = match variant.verdict {
                Some(crate::statistics::Verdict::Helps) => "helps",
                Some(crate::statistics::Verdict::Hurts) => "hurts",
                _ => "faint",
            };
            let tail = if has_tails {
                variant.tail_cells().map(|value| format!("<td>{value}</td>")).concat()
            } else {
                String::new()
            };
            let events = if has_events { cells(variant.events.unwrap_or_default()) } else { String::new() };
            let _infallible = writeln!(
                page,
                "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{} to {}</td><td>{}</td>{tail}<td>{}</td>{events}<td class=\"text {class}\">{}</td></tr>",
                escape(&point.label),
                escape(&variant.name),
                show(variant.figure.median),
                show(variant.figure.low),
                show(variant.figure.high),
                show(variant.figure.mad),
                variant.ratio.map_or_else(|| "1".into(), |ratio| format!("{:.2}", ratio.median)),
                escape(&variant.remarks()),
            );
        }
    }
    page.push_str("</table>\n");
}

fn cells(events: Events) -> String {
    [events.cycles, events.instructions, events.branch_misses, events.cache_misses]
        .map(|count| format!("<td>{}</td>", count.map_or_else(String::new, show)))
        .concat()
}
