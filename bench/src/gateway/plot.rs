//! Histograms of times as a self-contained SVG, in the style of `tapeworks study --svg`.

use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 930.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 400.0;

/// Columns of a decade.
const COLUMNS: f64 = 24.0;

const COLOURS: [&str; 6] = ["#6b7280", "#2563eb", "#059669", "#dc2626", "#a8a29e", "#d97706"];

/// The times of one kind, in nanoseconds.
pub struct Curve<'a> {
    pub name: &'a str,
    pub sorted: &'a [u64],
}

/// The share of the times in each column from `low` on, a power of ten.
fn shares(sorted: &[u64], low: f64, columns: usize) -> Vec<f64> {
    let mut counts = vec![0usize; columns];
    for time in sorted {
        let at = ((*time as f64).max(1.0).log10() - low) * COLUMNS;
        counts[(at.max(0.0) as usize).min(columns - 1)] += 1;
    }
    counts.iter().map(|count| *count as f64 / sorted.len().max(1) as f64).collect()
}

/// The shares of the times on a logarithmic scale: each up from 1 in 100,000, so that tails are seen.
pub fn svg(title: &str, curves: &[Curve<'_>]) -> String {
    let ends = |curve: &Curve<'_>| Some((*curve.sorted.first()?, *curve.sorted.last()?));
    let least = curves.iter().filter_map(ends).map(|(least, _)| least).min().unwrap_or(1);
    let most = curves.iter().filter_map(ends).map(|(_, most)| most).max().unwrap_or(10);
    let low = (least.max(1) as f64).log10().floor();
    let high = (most.max(10) as f64).log10().ceil().max(low + 1.0);
    let columns = ((high - low) * COLUMNS) as usize;
    let x = |log: f64| LEFT + (RIGHT - LEFT) * (log - low) / (high - low);
    let y = |share: f64| BOTTOM - (BOTTOM - TOP) * ((share.max(1e-5).log10() + 5.0) / 5.0);
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12">
<style>
.page {{ fill: #ffffff }} .ink {{ fill: #1f2937 }} .faint {{ fill: #6b7280 }}
.grid {{ stroke: #e5e7eb }} .axis {{ stroke: #9ca3af }}
@media (prefers-color-scheme: dark) {{
.page {{ fill: #111827 }} .ink {{ fill: #e5e7eb }} .faint {{ fill: #9ca3af }} .grid {{ stroke: #263244 }} .axis {{ stroke: #6b7280 }}
}}
</style>
<rect class="page" width="100%" height="100%"/>
<text class="ink" x="{LEFT}" y="30" font-size="17" font-weight="600">{title}</text>
<text class="faint" x="{LEFT}" y="50">share of the round trips by time; both axes are logarithmic</text>
"##
    );
    for decade in 0..=5 {
        let at = y(10f64.powi(-decade));
        let name = ["100 %", "10 %", "1 %", "0.1 %", "0.01 %", "0.001 %"][decade as usize];
        let _infallible = writeln!(
            out,
            r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1}" y2="{at:.1}"/><text class="faint" x="{}" y="{:.1}" text-anchor="end">{name}</text>"#,
            LEFT - 8.0,
            at + 4.0
        );
    }
    for decade in low as i32..=high as i32 {
        let at = x(f64::from(decade));
        let name = ["1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];
        let name = name.get(decade as usize).copied().unwrap_or_default();
        let _infallible = writeln!(
            out,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{BOTTOM}"/><text class="faint" x="{at:.1}" y="{}" text-anchor="middle">{name}</text>"#,
            BOTTOM + 18.0
        );
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (column, share) in shares(curve.sorted, low, columns).iter().enumerate() {
            let (from, to) = (low + column as f64 / COLUMNS, low + (column + 1) as f64 / COLUMNS);
            let command = if column == 0 { 'M' } else { 'L' };
            let at = y(*share);
            let _infallible = write!(path, "{command}{:.1} {at:.1}L{:.1} {at:.1}", x(from), x(to));
        }
        let _infallible = writeln!(
            out,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-linejoin="round"/>"#
        );
        let (column, row) = ((index % 3) as f64, (index / 3) as f64);
        let (left, top) = (LEFT + 285.0 * column, BOTTOM + 44.0 + 20.0 * row);
        let _infallible = writeln!(
            out,
            r#"<line x1="{left}" x2="{}" y1="{}" y2="{}" stroke="{colour}" stroke-width="3"/><text class="ink" x="{}" y="{top}">{}</text>"#,
            left + 18.0,
            top - 4.0,
            top - 4.0,
            left + 25.0,
            curve.name
        );
    }
    out.push_str("</svg>\n");
    out
}
