//! Results as SVG, in the book's colours, dark and light.
//!
//! An experiment along an axis becomes lines with their intervals as bands; an experiment without one becomes bars with whiskers. Single
//! operations become a plot of their percentiles, whose right side is the tail that a bar hides.

use tapeworks_drawing::{Anchor, Drawing, Range, colour};

use crate::results::{Experiment, Scale, Tail};
use crate::statistics::show;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 736.0;
const PLOT_TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 270.0;
const LINE_HEIGHT: f64 = 18.0;
const BAR_HEIGHT: f64 = 16.0;

/// Position of the title.
const TITLE: (f64, f64) = (LEFT, 20.0);

/// Draws the horizontal grid lines with their figures, and the unit above.
fn vertical_axis(drawing: &mut Drawing, range: &Range, unit: &str, y: impl Fn(f64) -> f64) {
    drawing.text("faint", (10.0, PLOT_TOP - 10.0), Anchor::Start, unit);
    for tick in range.ticks() {
        drawing.line("grid", (LEFT, y(tick)), (RIGHT, y(tick)));
        drawing.text("faint", (LEFT - 8.0, y(tick) + 4.0), Anchor::End, &show(tick));
    }
    drawing.line("axis", (LEFT, PLOT_TOP + PLOT_HEIGHT), (RIGHT, PLOT_TOP + PLOT_HEIGHT));
}

/// Returns the names of all variants, in order of first appearance.
fn names(experiment: &Experiment) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for variant in experiment.points.iter().flat_map(|point| &point.variants) {
        if !names.contains(&variant.name.as_str()) {
            names.push(&variant.name);
        }
    }
    names
}

/// Draws the figures of an experiment.
#[must_use]
pub fn figures(experiment: &Experiment) -> String {
    match &experiment.axis {
        Some(axis) if axis.scale != Scale::Names && experiment.points.len() > 1 => {
            lines(experiment, &axis.name, axis.scale)
        }
        _ => bars(experiment),
    }
}

fn lines(experiment: &Experiment, axis: &str, scale: Scale) -> String {
    let mut drawing = Drawing::new(WIDTH);
    drawing.text("strong", TITLE, Anchor::Start, &experiment.title);
    let all = || experiment.points.iter().flat_map(|point| &point.variants);
    let bounds = Range::of(all().flat_map(|variant| [variant.figure.low, variant.figure.high]), false);
    // Figures that span more than a decade are drawn on a logarithmic scale.
    let is_wide = bounds.low > 0.0 && bounds.high / bounds.low > 10.0;
    let range = Range { is_logarithmic: is_wide, ..bounds }.with_room();
    let across = Range::of(experiment.points.iter().map(|point| point.x), scale == Scale::Logarithmic);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * (0.02 + 0.96 * across.place(value));
    let y = |value: f64| PLOT_TOP + PLOT_HEIGHT * (1.0 - range.place(value));
    vertical_axis(&mut drawing, &range, &experiment.unit(), y);
    let mut last = f64::NEG_INFINITY;
    for point in &experiment.points {
        drawing.line(
            "axis",
            (x(point.x), PLOT_TOP + PLOT_HEIGHT),
            (x(point.x), PLOT_TOP + PLOT_HEIGHT + 4.0),
        );
        if x(point.x) - last > 46.0 {
            last = x(point.x);
            drawing.text(
                "faint",
                (last, PLOT_TOP + PLOT_HEIGHT + 18.0),
                Anchor::Middle,
                &place_name(point.x),
            );
        }
    }
    drawing.text("faint", ((LEFT + RIGHT) / 2.0, PLOT_TOP + PLOT_HEIGHT + 36.0), Anchor::Middle, axis);
    let names = names(experiment);
    for (index, name) in names.iter().enumerate() {
        let found: Vec<_> = experiment
            .points
            .iter()
            .filter_map(|point| {
                let variant = point.variants.iter().find(|variant| variant.name == *name)?;
                Some((x(point.x), variant.figure))
            })
            .collect();
        let places = |of: fn(&crate::statistics::Estimate) -> f64| -> Vec<(f64, f64)> {
            found.iter().map(|(x, figure)| (*x, y(of(figure)))).collect()
        };
        drawing.band(&places(|figure| figure.high), &places(|figure| figure.low), colour(index));
        let medians = places(|figure| figure.median);
        drawing.path(&medians, colour(index), 1.8);
        drawing.dots(&medians, colour(index));
    }
    let height = drawing.legend(&names, LEFT, RIGHT, PLOT_TOP + PLOT_HEIGHT + 60.0);
    drawing.finish(&experiment.title, height)
}

/// Returns the name of a position on an axis. Most are whole numbers and are shown as such.
fn place_name(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e4 { format!("{x}") } else { show(x) }
}

fn bars(experiment: &Experiment) -> String {
    let mut drawing = Drawing::new(WIDTH);
    drawing.text("strong", TITLE, Anchor::Start, &experiment.title);
    drawing.text("faint", (RIGHT, 20.0), Anchor::End, &experiment.unit());
    let names = names(experiment);
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default() as f64;
    let left = (24.0 + 6.6 * longest).clamp(90.0, 300.0);
    let all = || experiment.points.iter().flat_map(|point| &point.variants);
    let bounds = Range::of(all().flat_map(|variant| [variant.figure.low, variant.figure.high]), false);
    let is_wide = bounds.low > 0.0 && bounds.high / bounds.low > 100.0;
    let range = if is_wide {
        Range { low: bounds.low / 4.0, is_logarithmic: true, ..bounds }
    } else {
        Range { low: bounds.low.min(0.0), ..bounds }
    };
    let x = |value: f64| left + (RIGHT - 120.0 - left) * range.place(value);
    let mut y = 40.0;
    for point in &experiment.points {
        if !point.label.is_empty() {
            drawing.text("faint", (12.0, y + 12.0), Anchor::Start, &point.label);
            y += LINE_HEIGHT + 4.0;
        }
        for variant in &point.variants {
            let index = names.iter().position(|name| *name == variant.name).unwrap_or_default();
            let (from, to) =
                (x(range.low.max(if is_wide { range.low } else { 0.0 })), x(variant.figure.median));
            drawing.text("ink", (left - 8.0, y + 12.0), Anchor::End, &variant.name);
            drawing.rectangle((from.min(to), y), ((to - from).abs().max(1.0), BAR_HEIGHT), colour(index));
            let middle = y + BAR_HEIGHT / 2.0;
            drawing.line("axis", (x(variant.figure.low), middle), (x(variant.figure.high), middle));
            for end in [variant.figure.low, variant.figure.high] {
                drawing.line("axis", (x(end), middle - 4.0), (x(end), middle + 4.0));
            }
            let ratio = variant.ratio.map_or_else(String::new, |ratio| format!("  ({:.2}x)", ratio.median));
            let end = x(variant.figure.high).max(to) + 8.0;
            drawing.text(
                "ink",
                (end, y + 12.0),
                Anchor::Start,
                &format!("{}{ratio}", show(variant.figure.median)),
            );
            y += BAR_HEIGHT + 5.0;
        }
        y += 8.0;
    }
    if is_wide {
        drawing.text("faint", (left, y + 8.0), Anchor::Start, "bars by their logarithms");
        y += LINE_HEIGHT;
    }
    drawing.finish(&experiment.title, y + 6.0)
}

/// Draws the percentiles of single operations at a point, if its variants measured them.
#[must_use]
pub fn tails(experiment: &Experiment, point: &crate::results::Point) -> Option<String> {
    let found: Vec<(&str, &Tail)> = point
        .variants
        .iter()
        .filter_map(|variant| Some((variant.name.as_str(), variant.tail.as_ref()?)))
        .collect();
    if found.is_empty() {
        return None;
    }
    let mut drawing = Drawing::new(WIDTH);
    let title = if point.label.is_empty() {
        format!("{}: single operations", experiment.title)
    } else {
        format!("{}, {}: single operations", experiment.title, point.label)
    };
    drawing.text("strong", TITLE, Anchor::Start, &title);
    let values = found.iter().flat_map(|(_, tail)| tail.percentiles.iter().map(|(_, value)| value.max(1.0)));
    let range = Range::of(values, true).with_room();
    let y = |value: f64| PLOT_TOP + PLOT_HEIGHT * (1.0 - range.place(value.max(1.0)));
    // A percentile's position is its number of nines.
    let nines = |part: f64, count: u64| -(1.0 - part).max(0.5 / count.max(1) as f64).log10();
    let most = found.iter().map(|(_, tail)| nines(1.0, tail.count)).fold(1.0f64, f64::max);
    let x = |nines: f64| LEFT + (RIGHT - LEFT) * (nines / most).clamp(0.0, 1.0);
    vertical_axis(&mut drawing, &range, "ns", y);
    for (part, name) in [
        (0.0, "0 %"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
        (0.99999, "99.999 %"),
    ] {
        let place = nines(part, u64::MAX);
        if place <= most {
            drawing.line("grid", (x(place), PLOT_TOP), (x(place), PLOT_TOP + PLOT_HEIGHT));
            drawing.text("faint", (x(place), PLOT_TOP + PLOT_HEIGHT + 18.0), Anchor::Middle, name);
        }
    }
    drawing.text(
        "faint",
        ((LEFT + RIGHT) / 2.0, PLOT_TOP + PLOT_HEIGHT + 36.0),
        Anchor::Middle,
        "operations that take at most so long",
    );
    for (index, (_, tail)) in found.iter().enumerate() {
        let places: Vec<(f64, f64)> = tail
            .percentiles
            .iter()
            .filter(|(part, _)| *part >= 1.0 || nines(*part, u64::MAX) <= nines(1.0, tail.count))
            .map(|(part, value)| (x(nines(*part, tail.count)), y(*value)))
            .collect();
        drawing.path(&places, colour(index), 1.8);
        drawing.dots(&places, colour(index));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    let height = drawing.legend(&names, LEFT, RIGHT, PLOT_TOP + PLOT_HEIGHT + 60.0);
    Some(drawing.finish(&title, height))
}

/// Times of one kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct Times<'t> {
    /// The name of the operation.
    pub name: &'t str,
    /// The times in nanoseconds, sorted.
    pub sorted_ns: &'t [u64],
}

/// Draws the distributions of several kinds of times, with both axes logarithmic. Shares go down to 1 in 100,000 to show the tails.
#[must_use]
pub fn histogram(title: &str, kinds: &[Times<'_>]) -> String {
    /// Columns per decade.
    const COLUMNS: f64 = 24.0;
    const LEAST_SHARE: f64 = 1e-5;
    let mut drawing = Drawing::new(WIDTH);
    drawing.text("strong", TITLE, Anchor::Start, title);
    drawing.text("faint", (RIGHT, 20.0), Anchor::End, "share of the times, both axes logarithmic");
    let ends = |last: bool| {
        let of = move |kind: &Times<'_>| {
            if last { kind.sorted_ns.last() } else { kind.sorted_ns.first() }.copied()
        };
        kinds.iter().filter_map(of)
    };
    let (least, most) = (ends(false).min().unwrap_or(1).max(1), ends(true).max().unwrap_or(10));
    let across = Range::decades(least as f64, most as f64);
    let shares = Range { low: LEAST_SHARE, high: 1.0, is_logarithmic: true };
    let x = |ns: f64| LEFT + (RIGHT - LEFT) * across.place(ns);
    let y = |share: f64| PLOT_TOP + PLOT_HEIGHT * (1.0 - shares.place(share));
    for (share, name) in
        [(1.0, "100 %"), (0.1, "10 %"), (1e-2, "1 %"), (1e-3, "0.1 %"), (1e-4, "0.01 %"), (1e-5, "0.001 %")]
    {
        drawing.line("grid", (LEFT, y(share)), (RIGHT, y(share)));
        drawing.text("faint", (LEFT - 8.0, y(share) + 4.0), Anchor::End, name);
    }
    let decades = across.low.log10().round() as i32..=across.high.log10().round() as i32;
    for decade in decades.clone() {
        let place = x(10f64.powi(decade));
        let name = match decade {
            ..3 => format!("{} ns", 10u64.pow(decade.unsigned_abs())),
            3..6 => format!("{} us", 10u64.pow(decade.unsigned_abs() - 3)),
            6..9 => format!("{} ms", 10u64.pow(decade.unsigned_abs() - 6)),
            9.. => format!("{} s", 10u64.saturating_pow(decade.unsigned_abs() - 9)),
        };
        drawing.line("grid", (place, PLOT_TOP), (place, PLOT_TOP + PLOT_HEIGHT));
        drawing.text("faint", (place, PLOT_TOP + PLOT_HEIGHT + 18.0), Anchor::Middle, &name);
    }
    let columns = (decades.count().saturating_sub(1) as f64 * COLUMNS) as usize;
    for (index, kind) in kinds.iter().enumerate() {
        let mut counts = vec![0usize; columns];
        for ns in kind.sorted_ns {
            let column = (across.place(*ns as f64) * columns as f64) as usize;
            if let Some(count) = counts.get_mut(column.min(columns.saturating_sub(1))) {
                *count += 1;
            }
        }
        let edge = |column: usize| LEFT + (RIGHT - LEFT) * column as f64 / columns.max(1) as f64;
        let mut points = Vec::with_capacity(2 * columns);
        for (column, count) in counts.iter().enumerate() {
            let at = y(*count as f64 / kind.sorted_ns.len().max(1) as f64);
            points.extend([(edge(column), at), (edge(column + 1), at)]);
        }
        drawing.path(&points, colour(index), 1.4);
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let height = drawing.legend(&names, LEFT, RIGHT, PLOT_TOP + PLOT_HEIGHT + 44.0);
    drawing.finish(title, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_a_curve_for_each_kind_and_steps_for_its_columns() {
        let one: Vec<u64> = (100..1_000).collect();
        let kinds = [Times { name: "one", sorted_ns: &one }, Times { name: "none", sorted_ns: &[] }];
        let svg = histogram("times", &kinds);
        assert_eq!(svg.matches("<path ").count(), 2);
        assert!(svg.contains("100 ns") && svg.contains("1 us") && !svg.contains("10 us"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        assert!(histogram("nothing", &[]).ends_with("</svg>\n"));
    }
}
