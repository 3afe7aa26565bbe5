//! How long messages wait for a handler, against the rate at which they arrive.

use serde_json::Value;
use tapeworks_drawing::{Anchor, Drawing, Range, colour};

use super::{compare_with_book, run, stdout};

/// Time of a message in the handler, in ns.
const SERVICE_NS: u64 = 750;

/// Rates, in hundredths of the generated one.
const RATES: [u64; 9] = [4, 8, 16, 24, 32, 40, 60, 80, 100];

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 56.0;

/// Percentiles of a study's servers, with their names.
const PERCENTILES: [(&str, &str); 4] = [
    ("p50_delay_ns", "p50"),
    ("p99_delay_ns", "p99"),
    ("p999_delay_ns", "p99.9"),
    ("worst_delay_ns", "worst"),
];

/// The study of the close, with a server for each rate.
///
/// A day at 40 % of its rate and a handler of 750 ns have the queue of the day itself and a handler of 300 ns, on a clock that runs 2.5 times as
/// fast.
fn study() -> Value {
    let services = RATES.map(|rate| (SERVICE_NS * rate / 100).to_string()).join(",");
    let arguments = ["study", "--generate", "close", "--no-measure", "--json", "--service-ns", &services];
    serde_json::from_str(&stdout(&run(&arguments))).unwrap()
}

/// Delays in ns by percentile, for each rate.
fn delays(study: &Value) -> Vec<[f64; PERCENTILES.len()]> {
    let servers = study["servers"].as_array().unwrap();
    let of = |(server, rate): (&Value, &u64)| {
        PERCENTILES.map(|(name, _)| server[name].as_f64().unwrap() * 100.0 / *rate as f64)
    };
    servers.iter().zip(&RATES).map(of).collect()
}

fn shown(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => format!("{} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{} ms", ns / 1e6),
        ns => format!("{} s", ns / 1e9),
    }
}

fn draw(delays: &[[f64; PERCENTILES.len()]], peak: f64) -> String {
    let range = Range::of(delays.iter().flatten().copied(), true).with_room();
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - range.place(value));
    let rates = Range::of([0.0, 100.0].into_iter(), false);
    let x = |rate: f64| LEFT + (WIDTH - LEFT - RIGHT) * rates.place(rate);
    let mut drawing = Drawing::new(WIDTH);
    let title = format!("Queueing delay at a handler that takes {SERVICE_NS} ns per message");
    drawing.text("strong", (16.0, 28.0), Anchor::Start, &title);
    for tick in range.ticks() {
        drawing.line("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick)));
        drawing.text("faint", (LEFT - 8.0, y(tick) + 4.0), Anchor::End, &shown(tick));
    }
    for rate in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        let millions = peak * rate / 100.0 / 1e6;
        drawing.text("faint", (x(rate), HEIGHT - BOTTOM + 20.0), Anchor::Middle, &format!("{millions:.1}"));
    }
    let limit = 1e9 / SERVICE_NS as f64;
    let at = x(limit / peak * 100.0);
    drawing.line("axis", (at, TOP), (at, HEIGHT - BOTTOM));
    let text = format!("{:.2}: a message every {SERVICE_NS} ns", limit / 1e6);
    drawing.text("faint", (at + 6.0, HEIGHT - BOTTOM - 60.0), Anchor::Start, &text);
    let label = "peak rate over 1 ms in million messages a second: a generated market close, slowed down";
    drawing.text("ink", (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 14.0), Anchor::Middle, label);
    for (number, (_, name)) in PERCENTILES.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            RATES.iter().zip(delays).map(|(rate, delays)| (x(*rate as f64), y(delays[number]))).collect();
        drawing.path(&points, colour(number), 2.0);
        drawing.dots(&points, colour(number));
        drawing.entry((LEFT + 90.0 * number as f64, 52.0), name, colour(number));
    }
    drawing.finish(&title, HEIGHT)
}

#[test]
fn the_picture_of_delays_shows_the_study_of_a_close() {
    let study = study();
    let peak = study["peaks"][0]["messages_per_second"].as_f64().unwrap();
    compare_with_book("delays", &draw(&delays(&study), peak));
}
