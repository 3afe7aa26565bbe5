//! Plots as SVG, in one style, for the lab, the queueing study and the benchmarks.
//!
//! A [`Drawing`] is a page under construction, in pixels from the upper left corner. CSS classes adapt its colours to the reader's theme:
//! `ink` and `strong` for text, `faint` for secondary text, `grid` and `axis` for lines. A [`Range`] places values on an axis. This crate
//! reads nothing and writes only text.

use std::fmt::Write as _;

/// The colours of curves. The first eight are also distinguishable for colour-blind readers.
const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7c3aed", "#6b7280", "#be185d",
    "#854d0e", "#166534", "#1e3a8a",
];

/// Returns the colour of the curve with this index.
#[must_use]
pub fn colour(index: usize) -> &'static str {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or("#6b7280")
}

/// Escapes text between tags.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A range of values on an axis, linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
    /// Whether the axis is logarithmic.
    pub is_logarithmic: bool,
}

impl Range {
    /// Returns the range of these values, ignoring NaNs and values without a logarithm. It is never empty.
    pub fn of(values: impl Iterator<Item = f64>, is_logarithmic: bool) -> Self {
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

    /// Returns the whole decades around two values, at least one.
    #[must_use]
    pub fn decades(low: f64, high: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE).log10().floor();
        let high = high.max(f64::MIN_POSITIVE).log10().ceil().max(low + 1.0);
        Self { low: 10f64.powf(low), high: 10f64.powf(high), is_logarithmic: true }
    }

    /// Adds some room: at both ends of a logarithmic range, above a linear one, which is also extended to include 0.
    #[must_use]
    pub fn with_room(self) -> Self {
        if self.is_logarithmic {
            Self { low: self.low / 1.15, high: self.high * 1.15, ..self }
        } else {
            Self { low: self.low.min(0.0), high: (self.high * 1.08).max(0.0), ..self }
        }
    }

    /// Returns the position of a value, clamped to 0 to 1; 0 if it is undefined because the range or the value is too large.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_logarithmic { value.max(1e-12).log10() } else { value };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let place = (scaled(value) - low) / (high - low);
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Returns round values for grid lines.
    #[must_use]
    pub fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let inner: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            return decades
                .flat_map(|decade| inner.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect();
        }
        let rough = (self.high - self.low) / 6.0;
        if !(rough.is_finite() && rough > 0.0) {
            return vec![self.low];
        }
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0) * power;
        let first = (self.low / step).ceil() as i64;
        (first..).map(|number| number as f64 * step).take_while(|tick| *tick <= self.high).collect()
    }
}

/// The part of a text that is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The start.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

/// An SVG under construction.
#[derive(Clone, Debug)]
pub struct Drawing {
    width: f64,
    body: String,
}

impl Drawing {
    /// Creates an empty page.
    #[must_use]
    pub const fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    /// Draws a text with a class.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let text = escape(text);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _infallible = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// Draws a line with a class.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _infallible = writeln!(
            self.body,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    /// Draws a line through these points.
    pub fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let mut places = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _infallible = write!(places, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let _infallible = writeln!(
            self.body,
            r#"<path d="{places}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>"#
        );
    }

    /// Draws a line through these points, with an arrowhead at the last.
    pub fn arrow(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        self.path(points, colour, width);
        let [.., from, to] = points else { return };
        let (x, y) = (to.0 - from.0, to.1 - from.1);
        let length = x.hypot(y).max(1.0);
        let (x, y) = (x / length * 9.0, y / length * 9.0);
        let side = |turn: f64| (to.0 - x + turn * y * 0.5, to.1 - y - turn * x * 0.5);
        self.path(&[side(1.0), *to, side(-1.0)], colour, width);
    }

    /// Draws a box with its upper left corner at a position: a title, and centred lines of text below it.
    pub fn card(
        &mut self,
        (left, top): (f64, f64),
        (width, height): (f64, f64),
        colour: &str,
        title: &str,
        lines: &[&str],
    ) {
        let edge = |y: f64| [(left, y), (left + width, y)];
        self.band(&edge(top), &edge(top + height), colour);
        let middle = left + width / 2.0;
        let text_height = 15.0 * lines.len() as f64;
        let first = top + (height - text_height) / 2.0 + 5.0;
        self.text("strong", (middle, first), Anchor::Middle, title);
        for (number, line) in lines.iter().enumerate() {
            self.text("ink", (middle, first + 17.0 + 15.0 * number as f64), Anchor::Middle, line);
        }
    }

    /// Draws a dot at each of these points.
    pub fn dots(&mut self, points: &[(f64, f64)], colour: &str) {
        for (x, y) in points {
            let _infallible =
                writeln!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.4" fill="{colour}"/>"#);
        }
    }

    /// Fills the area between two lines.
    pub fn band(&mut self, upper: &[(f64, f64)], lower: &[(f64, f64)], colour: &str) {
        let places: Vec<String> =
            upper.iter().chain(lower.iter().rev()).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _infallible = writeln!(
            self.body,
            r#"<polygon points="{}" fill="{colour}" fill-opacity="0.16"/>"#,
            places.join(" ")
        );
    }

    /// Fills a rectangle with its upper left corner at a position.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        let _infallible = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2" fill="{colour}"/>"#
        );
    }

    /// Draws names of curves with their colours, in lines from `left` to `right`, starting at `top`; returns where they end.
    pub fn legend(&mut self, names: &[&str], left: f64, right: f64, top: f64) -> f64 {
        const LINE_HEIGHT: f64 = 18.0;
        let (mut x, mut y) = (left, top);
        for (index, name) in names.iter().enumerate() {
            let width = 26.0 + 6.9 * name.chars().count() as f64;
            if x + width > right && x > left {
                (x, y) = (left, y + LINE_HEIGHT);
            }
            self.entry((x, y), name, colour(index));
            x += width;
        }
        y + LINE_HEIGHT
    }

    /// Draws one name with its colour.
    pub fn entry(&mut self, (x, y): (f64, f64), name: &str, colour: &str) {
        self.rectangle((x, y - 10.0), (11.0, 11.0), colour);
        self.text("ink", (x + 16.0, y), Anchor::Start, name);
    }

    /// Returns the whole SVG.
    #[must_use]
    pub fn finish(self, title: &str, height: f64) -> String {
        let Self { width, body } = self;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0}" width="{width}" height="{height:.0}" role="img" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12">
<title>{title}</title>
<style>
.page {{ fill: #ffffff }} .ink {{ fill: #1f2937 }} .strong {{ fill: #1f2937; font-size: 15px; font-weight: 600 }} .faint {{ fill: #6b7280 }} .label {{ fill: #ffffff }}
.grid {{ stroke: #e5e7eb }} .axis {{ stroke: #9ca3af }}
@media (prefers-color-scheme: dark) {{
.page {{ fill: #111827 }} .ink, .strong {{ fill: #e5e7eb }} .faint {{ fill: #9ca3af }} .grid {{ stroke: #263244 }} .axis {{ stroke: #6b7280 }}
}}
</style>
<rect class="page" width="100%" height="100%"/>
{body}</svg>
"##,
            title = escape(title)
        )
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_place_is_drawn_at_the_beginning() {
        let endless = Range::of([-1e308, 1e308].into_iter(), false).with_room();
        assert_eq!(endless.place(1e308), 0.0);
        assert_eq!(endless.place(f64::NAN), 0.0);
    }

    #[test]
    fn places_go_from_end_to_end_and_stay_inside() {
        for is_logarithmic in [false, true] {
            let range = Range::of([1.0, f64::NAN, 100.0, f64::INFINITY].into_iter(), is_logarithmic);
            assert_eq!((range.low, range.high), (1.0, 100.0));
            let middle = if is_logarithmic { 10.0 } else { 50.5 };
            for (value, place) in [(1.0, 0.0), (middle, 0.5), (100.0, 1.0), (-5.0, 0.0), (1e9, 1.0)] {
                assert!((range.place(value) - place).abs() < 1e-12, "{value}");
            }
        }
    }

    #[test]
    fn a_range_is_never_empty() {
        for values in [vec![], vec![0.0], vec![-1.0, 0.0], vec![f64::NAN], vec![7.0, 7.0]] {
            for is_logarithmic in [false, true] {
                let range = Range::of(values.iter().copied(), is_logarithmic);
                assert!(range.low < range.high, "{values:?}");
                assert!(!range.with_room().ticks().is_empty(), "{values:?}");
            }
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Range { low: 0.0, high: 8.7, is_logarithmic: false };
        assert_eq!(linear.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        let decades = Range::decades(30.0, 1e7);
        assert_eq!((decades.low, decades.high), (10.0, 1e7));
        assert_eq!(decades.ticks().len(), 7);
        assert_eq!(Range::decades(5.0, 5.0).ticks(), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn text_is_escaped_and_a_legend_breaks_its_lines() {
        let mut drawing = Drawing::new(200.0);
        let end = drawing.legend(&["one", "a & b", "\"three\" <"], 10.0, 120.0, 20.0);
        assert_eq!(end, 20.0 + 2.0 * 18.0);
        let svg = drawing.finish("a < b", 50.0);
        assert!(svg.contains("<title>a &lt; b</title>") && svg.contains("a &amp; b"), "{svg}");
        assert!(svg.contains("&quot;three&quot; &lt;") && svg.ends_with("</svg>\n"));
    }
}
