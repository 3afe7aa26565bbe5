//! Results as SVG, in the book's colours, dark and light.
//!
//! An experiment along an axis becomes lines with their intervals as bands; one without becomes bars with whiskers. Single operations
//! become a plot of their percentiles: the tail, which a bar hides, is its right side.

use std::fmt::Write as _;

use crate::results::{Experiment, Scale, Tail};
use crate::statistics::show;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 736.0;
const PLOT_TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 270.0;
const LINE_HEIGHT: f64 = 18.0;
const BAR_HEIGHT: f64 = 16.0;

/// The colours of variants; those of the first eight differ for colour-blind readers too.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7c3aed", "#6b7280"];

/// A colour for the variant of that number.
fn colour(index: usize) -> &'static str {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or("#6b7280")
}

/// Text between tags.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// From values to places: a range, linear or by logarithms.
struct Range {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>, is_logarithmic: bool) -> Self {
        let usable = |value: &f64| value.is_finite() && (!is_logarithmic || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if is_logarithmic && low == high {
            (low, high) = (low / 2.0, high * 2.0);
        } else if low == high {
            high = low + 1.0;
        }
        Self { low, high, is_logarithmic }
    }

    /// The range with some room at its ends; from 0 if it is linear.
    fn with_room(self) -> Self {
        if self.is_logarithmic {
            Self { low: self.low / 1.15, high: self.high * 1.15, ..self }
        } else {
            Self { low: 0.0, high: self.high * 1.08, ..self }
        }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_logarithmic { value.max(1e-12).log10() } else { value };
        let (low, high) = (scaled(self.low), scaled(self.high));
        ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Values for the lines of a grid.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let inner: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            return decades
                .flat_map(|decade| inner.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0) * power;
        let first = (self.low / step).ceil() as i64;
        (first..).map(|number| number as f64 * step).take_while(|tick| *tick <= self.high).collect()
    }
}

/// An SVG under construction.
struct Drawing {
    body: String,
}

impl Drawing {
    fn new() -> Self {
        Self { body: String::new() }
    }

    fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escape(text);
        let _infallible = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _infallible = writeln!(
            self.body,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    fn path(&mut self, points: &[(f64, f64)], colour: &str) {
        let mut places = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _infallible = write!(places, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let _infallible = writeln!(
            self.body,
            r#"<path d="{places}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"/>"#
        );
        for (x, y) in points {
            let _infallible =
                writeln!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.4" fill="{colour}"/>"#);
        }
    }

    fn band(&mut self, upper: &[(f64, f64)], lower: &[(f64, f64)], colour: &str) {
        let places: Vec<String> =
            upper.iter().chain(lower.iter().rev()).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _infallible = writeln!(
            self.body,
            r#"<polygon points="{}" fill="{colour}" fill-opacity="0.16"/>"#,
            places.join(" ")
        );
    }

    /// Names of variants with their colours, from `top` on; returns where they end.
    fn legend(&mut self, names: &[&str], top: f64) -> f64 {
        let (mut x, mut y) = (LEFT, top);
        for (index, name) in names.iter().enumerate() {
            let width = 26.0 + 6.9 * name.chars().count() as f64;
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LINE_HEIGHT);
            }
            let _infallible = writeln!(
                self.body,
                r#"<rect x="{x:.1}" y="{:.1}" width="11" height="11" rx="2" fill="{}"/>"#,
                y - 10.0,
                colour(index)
            );
            self.text("ink", x + 16.0, y, "start", name);
            x += width;
        }
        y + LINE_HEIGHT
    }

    fn finish(self, title: &str, height: f64) -> String {
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" role="img" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12">
<title>{title}</title>
<style>
.page {{ fill: #ffffff }} .ink {{ fill: #1f2937 }} .strong {{ fill: #1f2937; font-size: 15px; font-weight: 600 }} .faint {{ fill: #6b7280 }}
.grid {{ stroke: #e5e7eb }} .axis {{ stroke: #9ca3af }}
@media (prefers-color-scheme: dark) {{
.page {{ fill: #111827 }} .ink, .strong {{ fill: #e5e7eb }} .faint {{ fill: #9ca3af }} .grid {{ stroke: #263244 }} .axis {{ stroke: #6b7280 }}
}}
</style>
<rect class="page" width="100%" height="100%"/>
{}</svg>
"##,
            self.body,
            title = escape(title)
        )
    }
}

/// The horizontal grid with its figures, and the unit above.
fn vertical_axis(drawing: &mut Drawing, range: &Range, unit: &str, y: impl Fn(f64) -> f64) {
    drawing.text("faint", 10.0, PLOT_TOP - 10.0, "start", unit);
    for tick in range.ticks() {
        drawing.line("grid", (LEFT, y(tick)), (RIGHT, y(tick)));
        drawing.text("faint", LEFT - 8.0, y(tick) + 4.0, "end", &show(tick));
    }
    drawing.line("axis", (LEFT, PLOT_TOP + PLOT_HEIGHT), (RIGHT, PLOT_TOP + PLOT_HEIGHT));
}

/// The names of all variants, in the order in which they come first.
fn names(experiment: &Experiment) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for variant in experiment.points.iter().flat_map(|point| &point.variants) {
        if !names.contains(&variant.name.as_str()) {
            names.push(&variant.name);
        }
    }
    names
}

/// The figures of an experiment.
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
    let mut drawing = Drawing::new();
    drawing.text("strong", LEFT, 20.0, "start", &experiment.title);
    let all = || experiment.points.iter().flat_map(|point| &point.variants);
    let bounds = Range::of(all().flat_map(|variant| [variant.figure.low, variant.figure.high]), false);
    // Figures that differ by more than a decade are drawn by their logarithms.
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
            drawing.text("faint", last, PLOT_TOP + PLOT_HEIGHT + 18.0, "middle", &show(point.x));
        }
    }
    drawing.text("faint", (LEFT + RIGHT) / 2.0, PLOT_TOP + PLOT_HEIGHT + 36.0, "middle", axis);
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
        drawing.path(&places(|figure| figure.median), colour(index));
    }
    let height = drawing.legend(&names, PLOT_TOP + PLOT_HEIGHT + 60.0);
    drawing.finish(&experiment.title, height)
}

fn bars(experiment: &Experiment) -> String {
    let mut drawing = Drawing::new();
    drawing.text("strong", LEFT, 20.0, "start", &experiment.title);
    drawing.text("faint", RIGHT, 20.0, "end", &experiment.unit());
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
            drawing.text("faint", 12.0, y + 12.0, "start", &point.label);
            y += LINE_HEIGHT + 4.0;
        }
        for variant in &point.variants {
            let index = names.iter().position(|name| *name == variant.name).unwrap_or_default();
            let (from, to) =
                (x(range.low.max(if is_wide { range.low } else { 0.0 })), x(variant.figure.median));
            drawing.text("ink", left - 8.0, y + 12.0, "end", &variant.name);
            let _infallible = writeln!(
                drawing.body,
                r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{BAR_HEIGHT}" rx="2" fill="{}"/>"#,
                from.min(to),
                (to - from).abs().max(1.0),
                colour(index)
            );
            let middle = y + BAR_HEIGHT / 2.0;
            drawing.line("axis", (x(variant.figure.low), middle), (x(variant.figure.high), middle));
            for end in [variant.figure.low, variant.figure.high] {
                drawing.line("axis", (x(end), middle - 4.0), (x(end), middle + 4.0));
            }
            let ratio = variant.ratio.map_or_else(String::new, |ratio| format!("  ({:.2}x)", ratio.median));
            let end = x(variant.figure.high).max(to) + 8.0;
            drawing.text("ink", end, y + 12.0, "start", &format!("{}{ratio}", show(variant.figure.median)));
            y += BAR_HEIGHT + 5.0;
        }
        y += 8.0;
    }
    if is_wide {
        drawing.text("faint", left, y + 8.0, "start", "bars by their logarithms");
        y += LINE_HEIGHT;
    }
    drawing.finish(&experiment.title, y + 6.0)
}

/// The percentiles of the single operations of a point, where its variants measured them.
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
    let mut drawing = Drawing::new();
    let title = if point.label.is_empty() {
        format!("{}: single operations", experiment.title)
    } else {
        format!("{}, {}: single operations", experiment.title, point.label)
    };
    drawing.text("strong", LEFT, 20.0, "start", &title);
    let values = found.iter().flat_map(|(_, tail)| tail.percentiles.iter().map(|(_, value)| value.max(1.0)));
    let range = Range::of(values, true).with_room();
    let y = |value: f64| PLOT_TOP + PLOT_HEIGHT * (1.0 - range.place(value.max(1.0)));
    // A percentile lies as far right as it has nines.
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
            drawing.text("faint", x(place), PLOT_TOP + PLOT_HEIGHT + 18.0, "middle", name);
        }
    }
    drawing.text(
        "faint",
        (LEFT + RIGHT) / 2.0,
        PLOT_TOP + PLOT_HEIGHT + 36.0,
        "middle",
        "operations that take at most so long",
    );
    for (index, (_, tail)) in found.iter().enumerate() {
        let places: Vec<(f64, f64)> = tail
            .percentiles
            .iter()
            .filter(|(part, _)| *part >= 1.0 || nines(*part, u64::MAX) <= nines(1.0, tail.count))
            .map(|(part, value)| (x(nines(*part, tail.count)), y(*value)))
            .collect();
        drawing.path(&places, colour(index));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    let height = drawing.legend(&names, PLOT_TOP + PLOT_HEIGHT + 60.0);
    Some(drawing.finish(&title, height))
}
