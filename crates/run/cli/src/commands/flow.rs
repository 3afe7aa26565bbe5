//! `tapeworks flow`: passes packets through a configured graph of readers, filters, rewriters and writers.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tapeworks_flow::builder::{Flow, OpenError};
use tapeworks_flow::graph::{Edge, EdgeKind, Graph, draw};
use tapeworks_flow::packets::{Note, Reason};
use tapeworks_flow::runner::{NodeCounts, Snapshot};
use tapeworks_runtime::config::ConfigError;
use tapeworks_service::flow::{self, FlowError, Report};
use tapeworks_service::flow_config;

use crate::ending::{Ending, Failure, Result};
use crate::table::{Align, Table, bytes, counted, number, thousands};
use crate::terminal::complain;
use crate::{interrupt, output, terminal};

/// The interval over which live rates are measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The width of a ring's fill gauge, in columns.
const GAUGE: usize = 20;

/// Process packets through a graph of readers, filters, rewriters and writers.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Run),
    Check(Check),
    Graph(Draw),
}

/// Run a flow until its readers end, or until Ctrl-C, and count packets by outcome.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks flow run examples/flow/thesis.toml
  tapeworks flow run examples/flow/one-to-many.toml --json

Exit code 1: an input is not a capture, or an output failed. 3: an input is damaged or truncated; packets before
the damage went through. 78: the configuration is invalid.")]
struct Run {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Print the report as one JSON object.
    #[arg(short = 'J', long)]
    json: bool,
}

/// Validate a configuration, and print the memory that it needs.
///
/// Errors state line, column and expected value.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tapeworks flow check examples/flow/thesis.toml

Exit code 78: the configuration is invalid.")]
struct Check {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
}

/// Draw the graph of a configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tapeworks flow graph examples/flow/thesis.toml > thesis.svg
  tapeworks flow graph examples/flow/thesis.toml --format mermaid")]
struct Draw {
    /// Configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Format of the drawing.
    #[arg(short, long, value_enum, default_value_t = Format::Svg)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Svg,
    Mermaid,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.command {
        Command::Run(arguments) => run_flow(&arguments),
        Command::Check(arguments) => {
            let Flow { graph, packet_bytes, .. } = load(&arguments.config)?;
            let threads = graph.threads().into_iter().max().map_or(0, |last| last as u64 + 1);
            let plan = graph.plan();
            output::print(&format!(
                "{}: sound: {}, {}, {}; {} of memory, with {} of up to {packet_bytes} bytes\n",
                arguments.config.display(),
                counted(graph.nodes.len() as u64, "stage", "stages"),
                counted(graph.edges.len() as u64, "edge", "edges"),
                counted(threads, "thread", "threads"),
                bytes(plan.bytes(packet_bytes) as u64),
                counted(plan.all_buffers() as u64, "packet buffer", "packet buffers"),
            ))?;
            Ok(Ending::Complete)
        }
        Command::Graph(arguments) => {
            let Flow { graph, .. } = flow_config::load_to_draw(&arguments.config).map_err(config_failure)?;
            output::print(&match arguments.format {
                Format::Svg => draw::svg(&graph),
                Format::Mermaid => draw::mermaid(&graph),
            })?;
            Ok(Ending::Complete)
        }
    }
}

fn load(path: &std::path::Path) -> Result<Flow> {
    flow_config::load(path).map_err(config_failure)
}

fn config_failure(errors: Vec<ConfigError>) -> Failure {
    Failure::Config(errors.iter().map(ToString::to_string).collect())
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        match error {
            FlowError::Open(OpenError::Stopped) => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

fn run_flow(arguments: &Run) -> Result {
    let config = load(&arguments.config)?;
    let mut live = Live::new();
    let report = flow::run(&config, |counts, elapsed| {
        live.show(&config.graph, counts, elapsed);
        if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    live.clear();
    let text = if arguments.json {
        format!("{:#}\n", to_json(&config.graph, &report))
    } else {
        tables(&config.graph, &report)
    };
    output::print(&text)?;
    ending(&config.graph, &report)
}

/// Prints the failures and returns how the run ended.
fn ending(graph: &Graph, report: &Report) -> Result {
    let line = |failure: &tapeworks_flow::runner::Failure| {
        format!("{}: {}", graph.nodes[failure.node].name, failure.error)
    };
    let (damaged, mut fatal): (Vec<_>, Vec<_>) =
        report.failures.iter().partition(|failure| failure.error.is_damage);
    damaged.iter().for_each(|failure| complain(&line(failure)));
    let imbalance = report.counts.imbalances(graph).into_iter().next();
    let imbalance = imbalance.map(|imbalance| format!("the counts do not add up: {imbalance}"));
    if let Some(last) = fatal.pop() {
        fatal.iter().for_each(|failure| complain(&line(failure)));
        imbalance.iter().for_each(|imbalance| complain(imbalance));
        return Err(Failure::Failed(line(last)));
    }
    if let Some(imbalance) = imbalance {
        return Err(Failure::Failed(imbalance));
    }
    if report.is_interrupted {
        complain("stopped before the end of the input; the output is complete up to there");
        return Ok(Ending::Interrupted);
    }
    Ok(if damaged.is_empty() { Ending::Complete } else { Ending::WithProblems })
}

/// The live display: a line for each stage and each ring, on a terminal only.
///
/// The cursor stays on the line below the display, where the terminal's echo of ^C does no harm. If a library padded the last
/// line to the terminal's width, the echo would wrap that line and leave a stray copy of it.
struct Live {
    is_terminal: bool,
    /// Lines on the screen.
    shown: usize,
    rates: Rates,
}

impl Live {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal() && !terminal::is_dumb();
        Self { is_terminal, shown: 0, rates: Rates::default() }
    }

    fn show(&mut self, graph: &Graph, counts: &Snapshot, elapsed: Duration) {
        if !self.is_terminal || elapsed < terminal::QUIET_TIME {
            return;
        }
        self.rates.look(counts, elapsed);
        let (columns, rows) = terminal::stderr_size();
        let mut lines = live_lines(graph, counts, &self.rates.per_second);
        // Lines that have scrolled off the screen cannot be replaced.
        lines.truncate(rows.saturating_sub(1));
        let mut text = self.back();
        for line in &lines {
            text.extend(line.chars().filter(|letter| !letter.is_control()).take(columns.saturating_sub(1)));
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        self.shown = lines.len();
        draw_live(&text);
    }

    /// Returns the sequence that moves the cursor to the first line.
    fn back(&self) -> String {
        match self.shown {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r"),
        }
    }

    /// Removes the lines from the screen.
    fn clear(&mut self) {
        if self.shown > 0 {
            draw_live(&format!("{}\x1b[J", self.back()));
            self.shown = 0;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

fn draw_live(text: &str) {
    let mut screen = std::io::stderr().lock();
    let _nothing_is_shown_at_worst = screen.write_all(text.as_bytes()).and_then(|()| screen.flush());
}

/// Packets per second into each stage, over the last interval.
#[derive(Default)]
struct Rates {
    looked: Duration,
    taken: Vec<u64>,
    per_second: Vec<f64>,
}

impl Rates {
    fn look(&mut self, counts: &Snapshot, elapsed: Duration) {
        let interval = elapsed.saturating_sub(self.looked);
        if interval < RATE_INTERVAL {
            return;
        }
        let seconds = interval.as_secs_f64();
        self.taken.resize(counts.nodes.len(), 0);
        let nodes = counts.nodes.iter().zip(&self.taken);
        self.per_second =
            nodes.map(|(counts, before)| counts.taken.saturating_sub(*before) as f64 / seconds).collect();
        self.taken = counts.nodes.iter().map(|counts| counts.taken).collect();
        self.looked = elapsed;
    }
}

fn rate(per_second: f64) -> String {
    if per_second < 1e4 { format!("{per_second:.0} /s") } else { format!("{:.2} M/s", per_second / 1e6) }
}

fn edge_name(graph: &Graph, edge: &Edge) -> String {
    format!("{} > {}", graph.port_name(edge.from, edge.port), graph.nodes[edge.to].name)
}

fn live_lines(graph: &Graph, counts: &Snapshot, per_second: &[f64]) -> Vec<String> {
    let rings: Vec<_> = graph
        .edges
        .iter()
        .zip(&counts.edges)
        .filter(|(edge, _)| edge.kind != EdgeKind::Inline)
        .map(|(edge, counts)| {
            (edge_name(graph, edge), counts.held().min(edge.room() as u64), edge.room() as u64)
        })
        .collect();
    let widest_of = |names: &mut dyn Iterator<Item = &String>| {
        names.map(|name| name.chars().count()).max().unwrap_or_default()
    };
    let widest = widest_of(&mut graph.nodes.iter().map(|node| &node.name));
    let widest_ring = widest_of(&mut rings.iter().map(|(name, ..)| name));
    let mut lines = vec![format!(
        "{:<widest$}  {:>13}  {:>13}  {:>11}  {:>10}  {:>9}  {:>9}",
        "", "in", "out", "dropped", "rate", "p50 us", "p99 us"
    )];
    for ((node, counts), per_second) in graph.nodes.iter().zip(&counts.nodes).zip(per_second) {
        let us = |ns: u64| if ns == 0 { String::new() } else { number(ns as f64 / 1e3) };
        let line = format!(
            "{:<widest$}  {:>13}  {:>13}  {:>11}  {:>10}  {:>9}  {:>9}",
            node.name,
            thousands(counts.taken),
            thousands(counts.all_out()),
            thousands(counts.all_dropped()),
            rate(*per_second),
            us(counts.latency_ns[0]),
            us(counts.latency_ns[1]),
        );
        lines.push(line.trim_end().to_owned());
    }
    for (name, held, room) in rings {
        let filled = (held * GAUGE as u64).div_ceil(room) as usize;
        let gauge = format!("{}{}", "#".repeat(filled), ".".repeat(GAUGE - filled));
        lines.push(format!(
            "{name:<widest_ring$}  {:>9} of {:<9}  {gauge}",
            thousands(held),
            thousands(room)
        ));
    }
    lines
}

/// Describes the reasons and notes that were counted.
fn words(counts: &NodeCounts) -> String {
    let mut words = String::new();
    let reasons = Reason::ALL.iter().map(|reason| reason.name()).zip(counts.dropped);
    let notes = Note::ALL.iter().map(|note| note.name()).zip(counts.notes);
    for (name, count) in reasons.chain(notes).filter(|(_, count)| *count > 0) {
        let _infallible =
            write!(words, "{}{name} {}", if words.is_empty() { "" } else { ", " }, thousands(count));
    }
    words
}

/// Formats the packets of a stage's outputs. A writer's port shows the packets that it wrote.
fn outputs(graph: &Graph, node: usize, counts: &NodeCounts) -> String {
    let ports = graph.nodes[node].ports;
    match ports {
        [] => thousands(counts.consumed),
        [_] => thousands(counts.ports[0]),
        ports => {
            let counts = ports.iter().zip(counts.ports);
            counts
                .map(|(port, count)| format!("{} {}", port.name, thousands(count)))
                .collect::<Vec<_>>()
                .join(", ")
        }
    }
}

fn tables(graph: &Graph, report: &Report) -> String {
    let (width, paint) = (terminal::width(), terminal::paint());
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    let mut stages = Table::new(&[
        ("stage", Align::Left),
        ("type", Align::Left),
        ("in", Align::Right),
        ("out", Align::Right),
        ("dropped", Align::Right),
        ("M/s", Align::Right),
        ("reasons and notes", Align::Left),
    ]);
    for (index, (node, counts)) in graph.nodes.iter().zip(&report.counts.nodes).enumerate() {
        stages.row([
            node.name.clone(),
            node.kind.to_owned(),
            thousands(counts.taken),
            outputs(graph, index, counts),
            thousands(counts.all_dropped()),
            number(counts.taken as f64 / seconds / 1e6),
            words(counts),
        ]);
    }
    let mut edges = Table::new(&[
        ("edge", Align::Left),
        ("kind", Align::Left),
        ("capacity", Align::Right),
        ("in", Align::Right),
        ("out", Align::Right),
        ("full", Align::Right),
        ("abandoned", Align::Right),
        ("fill mean", Align::Right),
        ("most", Align::Right),
    ]);
    for (edge, counts) in graph.edges.iter().zip(&report.counts.edges) {
        let is_inline = edge.kind == EdgeKind::Inline;
        let ring = |text: String| if is_inline { "-".to_owned() } else { text };
        edges.row([
            edge_name(graph, edge),
            edge.kind.name().to_owned(),
            ring(thousands(edge.room() as u64)),
            thousands(counts.offered),
            thousands(counts.delivered),
            ring(thousands(counts.full)),
            ring(thousands(counts.abandoned)),
            ring(number(counts.mean)),
            ring(thousands(counts.most)),
        ]);
    }
    let mut latencies = Table::new(&[
        ("from reader to", Align::Left),
        ("p50 us", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
    ]);
    for (node, histogram) in &report.latencies_ns {
        if !histogram.is_empty() {
            let us = |quantile| number(histogram.value_at_quantile(quantile) as f64 / 1e3);
            latencies.row([graph.nodes[*node].name.clone(), us(0.5), us(0.99), us(0.999), us(1.0)]);
        }
    }
    let read: u64 = graph
        .nodes
        .iter()
        .zip(&report.counts.nodes)
        .filter(|(node, _)| node.is_reader())
        .map(|(_, counts)| counts.taken)
        .sum();
    let mut text = format!(
        "{} in {:.3} s, {} million a second\n\n",
        counted(read, "packet", "packets"),
        report.elapsed.as_secs_f64(),
        number(read as f64 / seconds / 1e6)
    );
    for table in [&stages, &edges, &latencies] {
        if !table.is_empty() {
            text.push_str(&table.render(width, paint));
            text.push('\n');
        }
    }
    text
}

fn to_json(graph: &Graph, report: &Report) -> Value {
    let seconds = report.elapsed.as_secs_f64();
    let counted_by = |names: &mut dyn Iterator<Item = (&'static str, u64)>| -> Value {
        names
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), Value::from(count)))
            .collect()
    };
    let stages = graph.nodes.iter().zip(&report.counts.nodes).enumerate().map(|(index, (node, counts))| {
        let ports = node
            .ports
            .iter()
            .zip(counts.ports)
            .map(|(port, count)| (port.name.to_owned(), Value::from(count)));
        let latency =
            report.latencies_ns.iter().find(|(of, histogram)| *of == index && !histogram.is_empty());
        json!({
            "name": node.name,
            "type": node.kind,
            "in": counts.taken,
            "bytes": counts.bytes,
            "ports": ports.collect::<Value>(),
            "consumed": counts.consumed,
            "dropped": counted_by(&mut Reason::ALL.iter().map(|reason| reason.name()).zip(counts.dropped)),
            "notes": counted_by(&mut Note::ALL.iter().map(|note| note.name()).zip(counts.notes)),
            "packets_per_second": counts.taken as f64 / seconds.max(1e-9),
            "latency_ns": latency.map(|(_, histogram)| json!({
                "p50": histogram.value_at_quantile(0.5),
                "p99": histogram.value_at_quantile(0.99),
                "p999": histogram.value_at_quantile(0.999),
                "max": histogram.max(),
            })),
        })
    });
    let edges = graph.edges.iter().zip(&report.counts.edges).map(|(edge, counts)| {
        let is_inline = edge.kind == EdgeKind::Inline;
        json!({
            "from": graph.port_name(edge.from, edge.port),
            "to": graph.nodes[edge.to].name,
            "kind": edge.kind.name(),
            "capacity": (!is_inline).then(|| edge.room()),
            "in": counts.offered,
            "out": counts.delivered,
            "dropped": counts.full + counts.abandoned,
            "abandoned": counts.abandoned,
            "fill_mean": (!is_inline).then_some(counts.mean),
            "fill_most": (!is_inline).then_some(counts.most),
        })
    });
    let failures = report
        .failures
        .iter()
        .map(|failure| json!({ "stage": graph.nodes[failure.node].name, "problem": failure.error.text }));
    json!({
        "seconds": seconds,
        "interrupted": report.is_interrupted,
        "stages": stages.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tapeworks_flow::runner::EdgeCounts;

    use super::*;

    const FLOW: &str = "\
[[stage]]
name = \"in\"
type = \"udp_reader\"
listen = \"127.0.0.1:5000\"
[[stage]]
name = \"end\"
type = \"dropper\"
[[edge]]
from = \"in\"
to = \"end\"
kind = \"disruptor\"
capacity = 1000
";

    fn counts(taken: u64) -> Snapshot {
        let node = NodeCounts { taken, latency_ns: [1_500, 250_000], ..NodeCounts::default() };
        let edge = EdgeCounts { offered: taken, delivered: taken - 512, ..EdgeCounts::default() };
        Snapshot { nodes: vec![NodeCounts { latency_ns: [0; 2], ..node }, node], edges: vec![edge] }
    }

    #[test]
    fn the_live_lines_show_stages_and_rings() {
        let config = flow_config::parse("flow.toml", FLOW).unwrap();
        let shown = live_lines(&config.graph, &counts(30_000_000), &[0.4, 2.5e6]);
        let lines: Vec<Vec<&str>> = shown.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["in", "30,000,000", "0", "0", "0", "/s"]);
        assert_eq!(lines[2], ["end", "30,000,000", "0", "0", "2.50", "M/s", "1.50", "250"]);
        // A Disruptor rounds its capacity up.
        assert_eq!(lines[3], ["in", ">", "end", "512", "of", "1,024", "##########.........."]);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_rate_is_that_of_the_last_interval() {
        let mut rates = Rates::default();
        rates.look(&counts(1_000), Duration::from_secs(1));
        assert_eq!(rates.per_second, [1_000.0; 2]);
        rates.look(&counts(2_000), Duration::from_millis(1_500));
        assert_eq!(rates.per_second, [1_000.0; 2], "too soon");
        rates.look(&counts(2_000), Duration::from_secs(3));
        assert_eq!(rates.per_second, [500.0; 2]);
        assert_eq!([rate(500.0), rate(9_999.0), rate(1e4)], ["500 /s", "9999 /s", "0.01 M/s"]);
    }
}
