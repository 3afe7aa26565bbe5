//! The queueing study: how long would messages wait, if handling one took S nanoseconds?
//!
//! Messages reach a single server at their capture times (a packet's messages together). It takes them in order and needs the
//! same time for each: a G/D/1 queue. For each S the study reports the longest queue and the worst delay, overall and per time
//! window. It shows what a mean rate hides: a feed of 100,000 messages a second arrives in bursts at millions per second, and there
//! a server with S = 1,000 ns falls behind by milliseconds.
//!
//! A message's *delay* is the time from its arrival to its completion, including its own service. The *queue* is the number of
//! messages present, including the one in service, just after an arrival.
//!
//! The recurrence is Lindley's: `done = max(arrival, done of the previous message) + S`. As S is the same for all messages, the
//! queue is `(done - arrival) / S`, rounded up. Cost: a few ns per message and S.

use std::ops::{ControlFlow, Range};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tapeworks_drawing::{Anchor, Drawing, Range as Axis};
use tapeworks_time::Nanos;

use crate::analyser::{self, Ended, Header, Item, Message, Order, Place, Progress, Visitor};
use crate::input::Input;
use crate::sessions::ReadAs;
use crate::stats::Peak;
use crate::subjects::own_time;
use tapeworks_time::clock;

/// Default service times studied, in ns.
pub const SERVICE_NS: [u64; 6] = [250, 500, 750, 1_000, 5_000, 10_000];

/// Maximum number of service times in a study.
pub const MAX_SERVERS: usize = 12;

/// Maximum number of windows kept: beyond it, pairs of windows are merged.
pub const MAX_WINDOWS: usize = 1 << 13;

/// The greatest delay that the histogram records: an hour.
const GREATEST_DELAY_NS: u64 = 3_600_000_000_000;

/// A server with a fixed service time.
#[derive(Clone, Debug)]
pub struct Server {
    /// Service time per message, in ns.
    pub service_ns: u64,
    /// The longest queue, in messages.
    pub longest_queue: u64,
    /// When the queue was longest.
    pub longest_queue_at: Nanos,
    /// The worst delay, in ns.
    pub worst_delay_ns: u64,
    /// When the message with the worst delay arrived.
    pub worst_delay_at: Nanos,
    /// All delays, in ns.
    pub delays: Histogram<u64>,
    done: u64,
}

/// A window of time with at least one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its index in the sequence of windows.
    pub index: u64,
    /// Messages that arrived in it.
    pub messages: u64,
    /// For each server, the longest queue (messages) and the worst delay (ns).
    pub worst: Vec<(u64, u64)>,
}

impl Window {
    fn take_in(&mut self, other: &Self) {
        self.messages += other.messages;
        for (mine, theirs) in self.worst.iter_mut().zip(&other.worst) {
            *mine = (mine.0.max(theirs.0), mine.1.max(theirs.1));
        }
    }
}

/// A study.
#[derive(Debug)]
pub struct Study {
    /// Messages that arrived.
    pub messages: u64,
    /// First and last arrival.
    pub times: Option<(Nanos, Nanos)>,
    /// Whether times count from midnight at the venue rather than from 1970.
    pub is_time_of_day: bool,
    /// The servers.
    pub servers: Vec<Server>,
    /// Length of a window in ns.
    pub window_ns: u64,
    /// The windows with messages, in order.
    pub windows: Vec<Window>,
    /// The fullest windows of 1 ms, 100 ms and 1 s.
    pub peaks: [Peak; 3],
    /// Messages outside the requested times, which are left out.
    pub outside: u64,
    /// Messages without a time, which are left out.
    pub without_time: u64,
    /// Gaps in the sequences of all channels.
    pub gaps: u64,
    /// Messages missing in them.
    pub missing: u64,
    /// Messages and packets that could not be read completely.
    pub problems: u64,
    /// How the walk over the files ended.
    pub ended: Ended,
}

impl Study {
    /// Creates a study of servers with these service times, in ns. Windows have the length `window_ns`, or one that suits the length of
    /// the capture.
    #[must_use]
    pub fn new(service_ns: &[u64], window_ns: Option<u64>) -> Self {
        let server = |service_ns: &u64| {
            // The bounds are constants that the histogram accepts.
            let delays = Histogram::new_with_bounds(1, GREATEST_DELAY_NS, 3).ok()?;
            Some(Server {
                service_ns: (*service_ns).max(1),
                longest_queue: 0,
                longest_queue_at: Nanos(0),
                worst_delay_ns: 0,
                worst_delay_at: Nanos(0),
                delays,
                done: 0,
            })
        };
        Self {
            messages: 0,
            times: None,
            is_time_of_day: false,
            servers: service_ns.iter().take(MAX_SERVERS).filter_map(server).collect(),
            window_ns: window_ns.unwrap_or(1_000).max(1),
            windows: Vec::new(),
            peaks: [1_000_000, 100_000_000, 1_000_000_000].map(Peak::new),
            outside: 0,
            without_time: 0,
            gaps: 0,
            missing: 0,
            problems: 0,
            ended: Ended::default(),
        }
    }

    /// Adds the arrival of a message. A time before the previous arrival counts as that arrival's time.
    pub fn arrive(&mut self, time: Nanos) {
        let (first, last) = self.times.unwrap_or((time, time));
        let time = time.max(last);
        self.times = Some((first, time));
        self.messages += 1;
        self.peaks.iter_mut().for_each(|peak| peak.count(time));
        let index = time.since(first) / self.window_ns;
        if self.windows.last().is_none_or(|window| window.index != index) {
            self.windows.push(Window { index, messages: 0, worst: vec![(0, 0); self.servers.len()] });
        }
        let Some(window) = self.windows.last_mut() else { return };
        window.messages += 1;
        for (server, worst) in self.servers.iter_mut().zip(&mut window.worst) {
            server.done = server.done.max(time.0).saturating_add(server.service_ns);
            let delay = server.done - time.0;
            let queue = delay.div_ceil(server.service_ns);
            server.delays.saturating_record(delay);
            if queue > server.longest_queue {
                (server.longest_queue, server.longest_queue_at) = (queue, time);
            }
            if delay > server.worst_delay_ns {
                (server.worst_delay_ns, server.worst_delay_at) = (delay, time);
            }
            *worst = (worst.0.max(queue), worst.1.max(delay));
        }
        if self.windows.len() > MAX_WINDOWS {
            self.widen();
        }
    }

    /// Merges pairs of windows.
    #[cold]
    fn widen(&mut self) {
        self.window_ns = self.window_ns.saturating_mul(2);
        let mut wide: Vec<Window> = Vec::with_capacity(MAX_WINDOWS + 1);
        for mut window in self.windows.drain(..) {
            window.index /= 2;
            match wide.last_mut() {
                Some(last) if last.index == window.index => last.take_in(&window),
                _ => wide.push(window),
            }
        }
        self.windows = wide;
    }

    /// Returns the number of messages seen, including those left out.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.messages + self.outside + self.without_time
    }

    /// Whether everything was read, nothing was missing and every message had its time.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.problems == 0 && self.missing == 0 && self.without_time == 0 && self.ended.is_clean()
    }

    /// Returns the seconds from the first to the last arrival.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.times.map_or(0.0, |(first, last)| last.since(first) as f64 / 1e9)
    }

    /// Returns the fraction of time that a server is busy; at 1 and above it never catches up. 0 if there is no time between the
    /// first and the last arrival.
    #[must_use]
    pub fn utilisation(&self, server: &Server) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.messages as f64 * server.service_ns as f64 / 1e9 / seconds } else { 0.0 }
    }

    /// Returns the start of a window.
    #[must_use]
    pub fn start_of(&self, window: &Window) -> Nanos {
        let first = self.times.map_or(0, |(first, _)| first.0);
        Nanos(first.saturating_add(window.index.saturating_mul(self.window_ns)))
    }

    /// Formats a time as in the files: ISO 8601, or the time of day at the venue.
    #[must_use]
    pub fn show_time(&self, time: Nanos) -> String {
        if self.is_time_of_day {
            return tapeworks_wire::NanosecondsSinceMidnight(time.0).to_string();
        }
        clock::iso(time)
    }

    /// Converts the study, including its windows, to JSON for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "messages": self.messages,
            "first_time": self.times.map(|(first, _)| self.show_time(first)),
            "last_time": self.times.map(|(_, last)| self.show_time(last)),
            "seconds": self.seconds(),
            "messages_outside": self.outside,
            "messages_without_time": self.without_time,
            "gaps": self.gaps,
            "missing_messages": self.missing,
            "problems": self.problems,
            "damaged_files": self.ended.complaints().collect::<Vec<_>>(),
            "peaks": self.peaks.iter().filter(|peak| peak.messages > 0).map(|peak| json!({
                "window_ns": peak.window_ns,
                "messages": peak.messages,
                "messages_per_second": peak.per_second(),
                "start": self.show_time(peak.start),
            })).collect::<Vec<_>>(),
            "servers": self.servers.iter().map(|server| json!({
                "service_ns": server.service_ns,
                "utilisation": self.utilisation(server),
                "longest_queue": server.longest_queue,
                "longest_queue_at": self.show_time(server.longest_queue_at),
                "worst_delay_ns": server.worst_delay_ns,
                "worst_delay_at": self.show_time(server.worst_delay_at),
                "mean_delay_ns": server.delays.mean(),
                "p50_delay_ns": server.delays.value_at_quantile(0.5),
                "p99_delay_ns": server.delays.value_at_quantile(0.99),
                "p999_delay_ns": server.delays.value_at_quantile(0.999),
            })).collect::<Vec<_>>(),
            "window_ns": self.window_ns,
            "windows": self.windows.iter().map(|window| json!({
                "start": self.show_time(self.start_of(window)),
                "messages": window.messages,
                "longest_queue": window.worst.iter().map(|(queue, _)| *queue).collect::<Vec<_>>(),
                "worst_delay_ns": window.worst.iter().map(|(_, delay)| *delay).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Studies the messages in `inputs` that arrive within `times`, merged by time and without repeated ones. `observe` is called from
/// time to time and may end the study.
pub fn study(
    inputs: &mut [Input],
    read_as: Option<ReadAs>,
    service_ns: &[u64],
    window_ns: Option<u64>,
    times: Range<Nanos>,
    observe: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Study {
    let mut arrivals = Arrivals { study: Study::new(service_ns, window_ns), times, observe };
    let ended = analyser::walk(inputs, Order::ByTime, read_as, &mut arrivals);
    Study { ended, ..arrivals.study }
}

struct Arrivals<'a> {
    study: Study,
    times: Range<Nanos>,
    observe: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Visitor for Arrivals<'_> {
    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Header(header) => self.header(&header),
            Item::Message(message) if message.is_repeated || message.is_refused => {}
            Item::Message(message) => self.message(place, &message),
            // The studied engine does not process order sessions.
            Item::Fix(_) => {}
            Item::Trouble(trouble, _) => self.study.problems += u64::from(trouble.is_problem()),
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.observe)(progress)
    }
}

impl Arrivals<'_> {
    fn header(&mut self, header: &Header<'_>) {
        let study = &mut self.study;
        if let Some(gap) = header.arrival.gap {
            study.gaps += 1;
            study.missing = study.missing.saturating_add(gap.count);
        }
        study.problems += u64::from(header.decoded.error.is_some());
        study.problems += u64::from(header.arrival.is_refused());
    }

    fn message(&mut self, place: &Place, message: &Message<'_>) {
        let study = &mut self.study;
        // The reason for a truncated message follows as its packet's trouble.
        study.problems += u64::from(message.decoded.error.is_some() && !message.is_cut);
        study.is_time_of_day |= study.times.is_none() && place.time.is_none();
        let time = place.time.or_else(|| own_time(&message.decoded));
        match time.filter(|_| place.time.is_none() == study.is_time_of_day) {
            Some(time) if self.times.contains(&time) => study.arrive(time),
            Some(_) => study.outside += 1,
            None => study.without_time += 1,
        }
    }
}

/// Formats nanoseconds in a suitable unit: `250 ns`, `1.5 ms`.
#[must_use]
pub fn show_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let places = match value {
        value if value.fract() == 0.0 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$} {unit}")
}

/// A color for each server, cold to hot, for light and dark pages.
const COLOURS: [&str; MAX_SERVERS] = [
    "#2b6cb0", "#0891b2", "#0d9488", "#65a30d", "#d97706", "#dc2626", "#be185d", "#7c3aed", "#475569",
    "#854d0e", "#166534", "#1e3a8a",
];

/// The plot's dimensions in pixels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 830.0;
const PANEL_HEIGHT: f64 = 210.0;
const FIRST_PANEL: f64 = 92.0;
const SECOND_PANEL: f64 = 366.0;
const HEIGHT: f64 = 636.0;

/// One panel of the plot.
struct Panel<'p> {
    title: &'p str,
    top: f64,
    /// Whole decades.
    values: Axis,
    show: fn(f64) -> String,
}

impl Panel<'_> {
    fn y(&self, value: f64) -> f64 {
        self.top + PANEL_HEIGHT * (1.0 - self.values.place(value))
    }
}

/// Draws a study as a self-contained SVG: worst delay and longest queue over time, one line per service time, on logarithmic axes.
/// `title` names the input, `note` is the text beside the plot.
#[must_use]
pub fn svg(study: &Study, title: &str, note: &str) -> String {
    let mut drawing = Drawing::new(WIDTH);
    drawing.text("strong", (LEFT, 30.0), Anchor::Start, title);
    drawing.text("faint", (LEFT, 50.0), Anchor::Start, note);
    let Some((first, last)) = study.times else {
        drawing.text("ink", (LEFT, 120.0), Anchor::Start, "no messages");
        return drawing.finish(title, HEIGHT);
    };
    let span_ns = (last.since(first) as f64).max(study.window_ns as f64);
    let x = |time_ns: f64| LEFT + (RIGHT - LEFT) * (time_ns / span_ns).clamp(0.0, 1.0);
    let slowest = study.servers.iter().map(|server| server.worst_delay_ns).max().unwrap_or(1) as f64;
    let fastest = study.servers.iter().map(|server| server.service_ns).min().unwrap_or(1) as f64;
    let longest = study.servers.iter().map(|server| server.longest_queue).max().unwrap_or(1) as f64;
    let panels = [
        Panel {
            title: "Worst delay in the window, service included",
            top: FIRST_PANEL,
            values: Axis::decades(fastest.max(1.0), slowest),
            show: show_ns,
        },
        Panel {
            title: "Longest queue in the window, messages",
            top: SECOND_PANEL,
            values: Axis::decades(1.0, longest),
            show: show_count,
        },
    ];
    for (number, panel) in panels.iter().enumerate() {
        axes(&mut drawing, panel, span_ns, &x);
        for (index, server) in study.servers.iter().enumerate().rev() {
            let values = study.windows.iter().map(|window| {
                let (queue, delay) = window.worst.get(index).copied().unwrap_or_default();
                (window.index, if number == 0 { delay } else { queue } as f64)
            });
            // Between messages the line is at the value of a lone message.
            let floor = if number == 0 { server.service_ns as f64 } else { 1.0 };
            drawing.path(&path(values, study.window_ns as f64, floor, panel, &x), heat(index), 1.3);
        }
    }
    legend(&mut drawing, study);
    let from = study.show_time(first);
    let below = (f64::midpoint(LEFT, RIGHT), SECOND_PANEL + PANEL_HEIGHT + 42.0);
    let windows = format!("time after {from}; windows of {}", show_ns(study.window_ns as f64));
    drawing.text("faint", below, Anchor::Middle, &windows);
    drawing.finish(title, HEIGHT)
}

/// The colour of a server.
fn heat(index: usize) -> &'static str {
    COLOURS.get(index).copied().unwrap_or("#475569")
}

fn show_count(count: f64) -> String {
    match count {
        count if count < 1e3 => format!("{count:.0}"),
        count if count < 1e6 => format!("{:.0} k", count / 1e3),
        count => format!("{:.0} M", count / 1e6),
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten, so that about eight fit into `span`.
fn step(span: f64) -> f64 {
    let rough = span / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

fn axes(drawing: &mut Drawing, panel: &Panel<'_>, span_ns: f64, x: &impl Fn(f64) -> f64) {
    let bottom = panel.top + PANEL_HEIGHT;
    drawing.text("strong", (LEFT, panel.top - 12.0), Anchor::Start, panel.title);
    let Axis { low, high, .. } = panel.values;
    for decade in low.log10().round() as i32..=high.log10().round() as i32 {
        let value = 10f64.powi(decade);
        let y = panel.y(value);
        drawing.line("grid", (LEFT, y), (RIGHT, y));
        drawing.text("faint", (LEFT - 8.0, y + 4.0), Anchor::End, &(panel.show)(value));
    }
    let step = step(span_ns);
    let (unit, divisor, places) = match step {
        step if step >= 1e9 => ("s", 1e9, 0),
        step if step >= 1e8 => ("s", 1e9, 1),
        step if step >= 1e6 => ("ms", 1e6, 0),
        step if step >= 1e3 => ("µs", 1e3, 0),
        _ => ("ns", 1.0, 0),
    };
    let mut at = 0.0;
    while at <= span_ns * 1.0001 {
        let place = x(at);
        drawing.line("axis", (place, bottom), (place, bottom + 5.0));
        let time = format!("{:.places$} {unit}", at / divisor);
        drawing.text("faint", (place, bottom + 20.0), Anchor::Middle, &time);
        at += step;
    }
    drawing.line("axis", (LEFT, bottom), (RIGHT, bottom));
}

/// Returns one server's line: the worst value of each pixel's windows.
fn path(
    windows: impl Iterator<Item = (u64, f64)>,
    window_ns: f64,
    floor: f64,
    panel: &Panel<'_>,
    x: &impl Fn(f64) -> f64,
) -> Vec<(f64, f64)> {
    let columns = (RIGHT - LEFT) as usize + 1;
    let mut worst = vec![floor; columns];
    for (index, value) in windows {
        let from = (x(index as f64 * window_ns) - LEFT) as usize;
        // A window wider than a pixel fills all of its pixels.
        let to = ((x((index + 1) as f64 * window_ns) - LEFT) as usize).max(from + 1);
        for column in worst.iter_mut().take(to).skip(from) {
            *column = column.max(value);
        }
    }
    let mut path = Vec::new();
    let mut last = None;
    for (column, value) in worst.iter().enumerate() {
        let y = (panel.y(*value) * 10.0).round() / 10.0;
        let next_y = worst.get(column + 1).map(|next| (panel.y(*next) * 10.0).round() / 10.0);
        // Points inside a level stretch are omitted.
        if last == Some(y) && next_y == Some(y) {
            continue;
        }
        path.push((LEFT + column as f64, y));
        last = Some(y);
    }
    path
}

fn legend(drawing: &mut Drawing, study: &Study) {
    let x = RIGHT + 16.0;
    drawing.text("strong", (x, FIRST_PANEL), Anchor::Start, "per message");
    for (index, server) in study.servers.iter().enumerate() {
        let y = FIRST_PANEL + 20.0 + 19.0 * index as f64;
        drawing.entry((x, y), &show_ns(server.service_ns as f64), heat(index));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_slower_than_the_server_never_wait() {
        let mut study = Study::new(&[100], None);
        for number in 0..50 {
            study.arrive(Nanos(1_000 + number * 100));
        }
        let server = &study.servers[0];
        assert_eq!((server.longest_queue, server.worst_delay_ns), (1, 100));
    }

    #[test]
    fn a_packet_of_ten_queues_its_ten() {
        let mut study = Study::new(&[100, 1_000], Some(1_000));
        for _ in 0..10 {
            study.arrive(Nanos(5_000));
        }
        study.arrive(Nanos(6_000));
        let [fast, slow] = &study.servers[..] else { panic!("two servers") };
        assert_eq!((fast.longest_queue, fast.worst_delay_ns), (10, 1_000));
        assert_eq!((slow.longest_queue, slow.worst_delay_ns), (10, 10_000));
        assert_eq!(study.windows.len(), 2);
        assert_eq!(
            study.windows[1].worst,
            [(1, 100), (10, 10_000)],
            "the slow one has nine left and one new"
        );
    }

    #[test]
    fn durations_are_printed_in_their_unit() {
        assert_eq!(show_ns(250.0), "250 ns");
        assert_eq!(show_ns(1_500.0), "1.50 µs");
        assert_eq!(show_ns(12_340_000.0), "12.3 ms");
        assert_eq!(show_ns(2e9), "2 s");
    }

    #[test]
    fn a_plot_of_nothing_is_a_plot() {
        assert!(svg(&Study::new(&SERVICE_NS, None), "none", "").ends_with("</svg>\n"));
    }

    proptest! {
        #[test]
        fn the_queue_is_that_of_a_simulated_server(gaps in prop::collection::vec(0u64..400, 1..200), service in 1u64..500) {
            let mut study = Study::new(&[service], Some(64));
            let (mut time, mut waiting, mut longest) = (0u64, std::collections::VecDeque::new(), 0);
            let mut free_at = 0u64;
            for gap in gaps {
                time += gap;
                study.arrive(Nanos(time));
                // Each message leaves when the server has finished it; a message that leaves now counts as gone.
                while waiting.front().is_some_and(|done| *done <= time) {
                    waiting.pop_front();
                }
                free_at = free_at.max(time) + service;
                waiting.push_back(free_at);
                longest = longest.max(waiting.len() as u64);
            }
            prop_assert_eq!(study.servers[0].longest_queue, longest);
            let worst = study.windows.iter().map(|window| window.worst[0].1).max();
            prop_assert_eq!(worst, Some(study.servers[0].worst_delay_ns));
        }

        #[test]
        fn wider_windows_keep_the_worst_and_every_message(gaps in prop::collection::vec(1u64..5_000, 9_000..12_000)) {
            let mut study = Study::new(&[700], Some(1_000));
            let mut time = 0;
            for gap in &gaps {
                time += gap;
                study.arrive(Nanos(time));
            }
            prop_assert!(study.windows.len() <= MAX_WINDOWS);
            prop_assert_eq!(study.windows.iter().map(|window| window.messages).sum::<u64>(), gaps.len() as u64);
            prop_assert_eq!(study.windows.iter().map(|window| window.worst[0].0).max(), Some(study.servers[0].longest_queue));
        }
    }
}
