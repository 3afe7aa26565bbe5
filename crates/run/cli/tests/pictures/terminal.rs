//! Output of the program in a window of a terminal.

use std::fmt::Write as _;

use tapeworks_drawing::escape;

/// Width of a character and height of a line, in pixels, of the font below.
const CHARACTER: f64 = 7.83;
const LINE: f64 = 18.0;

/// Margin around the text, and height of the window's title bar, in pixels.
const MARGIN: f64 = 16.0;
const TITLE_BAR: f64 = 34.0;

/// The class of text after an escape sequence of [`tapeworks_analysis::paint::Paint`].
fn class(code: &str) -> Option<&'static str> {
    match code {
        "0" => None,
        "1" => Some("strong"),
        "2" => Some("faint"),
        "31" => Some("bad"),
        "32" => Some("good"),
        "36" => Some("header"),
        other => panic!("no colour for code {other}"),
    }
}

/// A line of terminal output as SVG spans, and its width in characters.
fn spans(line: &str) -> (String, usize) {
    let (mut spans, mut width) = (String::new(), 0);
    let mut parts = line.split("\x1b[");
    let mut add = |text: &str, class: Option<&str>| {
        width += text.chars().count();
        let text = escape(text);
        let _infallible = match class {
            Some(class) => write!(spans, "<tspan class=\"{class}\">{text}</tspan>"),
            None => write!(spans, "{text}"),
        };
    };
    add(parts.next().unwrap_or_default(), None);
    for part in parts {
        let (code, text) = part.split_once('m').unwrap();
        add(text, class(code));
    }
    (spans, width)
}

/// A terminal window with this title and these lines.
pub(crate) fn terminal(title: &str, lines: &[&str]) -> String {
    let spans: Vec<(String, usize)> = lines.iter().map(|line| spans(line)).collect();
    let columns = spans.iter().map(|(_, width)| *width).max().unwrap_or_default();
    let width = 2.0 * MARGIN + columns as f64 * CHARACTER;
    let height = TITLE_BAR + 2.0 * MARGIN + lines.len() as f64 * LINE;
    let mut text = String::new();
    for (number, (spans, _)) in spans.iter().enumerate() {
        let y = TITLE_BAR + MARGIN + (number as f64 + 0.75) * LINE;
        let _infallible = writeln!(text, "<text x=\"{MARGIN}\" y=\"{y:.1}\">{spans}</text>");
    }
    let dots: String = (0..3)
        .map(|dot| format!("<circle class=\"dot\" cx=\"{}\" cy=\"17\" r=\"5\"/>", 20 + 18 * dot))
        .collect();
    let title = escape(title);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{title}">
<title>{title}</title>
<style>
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2937; white-space: pre }}
.window {{ fill: #ffffff; stroke: #d1d5db }} .bar {{ stroke: #d1d5db }} .dot {{ fill: #d1d5db }} .title, .faint {{ fill: #6b7280 }}
.strong {{ font-weight: 700 }} .header {{ fill: #0e7490 }} .good {{ fill: #15803d }} .bad {{ fill: #b91c1c }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e5e7eb }} .window {{ fill: #111827; stroke: #374151 }} .bar {{ stroke: #374151 }} .dot {{ fill: #374151 }} .title, .faint {{ fill: #9ca3af }}
.header {{ fill: #67e8f9 }} .good {{ fill: #4ade80 }} .bad {{ fill: #f87171 }}
}}
</style>
<rect class="window" x="0.5" y="0.5" width="{inner_width:.0}" height="{inner_height:.0}" rx="8"/>
<path class="bar" d="M0.5 {TITLE_BAR}.5H{inner_width:.0}"/>
{dots}
<text class="title" x="{middle:.0}" y="21" text-anchor="middle">{title}</text>
{text}</svg>
"##,
        inner_width = width.round() - 1.0,
        inner_height = height.round() - 1.0,
        middle = width / 2.0,
    )
}
