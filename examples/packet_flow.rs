//! A packet flow built in code: a capture, a filter and a rewriter on one thread, a writer behind a ring on another.
//!
//! `cargo run -p tapeworks-examples --bin packet_flow OUT.pcap [CAPTURE]`

use std::error::Error;
use std::path::PathBuf;
use std::thread;

use tapeworks_capture::net::rewrite::Rewrite;
use tapeworks_flow::builder::{Builder, Ring};
use tapeworks_flow::packets::expression;
use tapeworks_flow::packets::rewriter::Steps;
use tapeworks_flow::runner;
use tapeworks_flow::stages::{REJECT, Spec};

const CAPTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures/nasdaq-itch50/Multiple.Packets.pcap");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let out = arguments.next().ok_or("the name of the capture to write is missing")?;
    let capture = arguments.next().unwrap_or_else(|| CAPTURE.into());

    let to_loopback = Rewrite::default().with_destination([127, 0, 0, 1].into());
    let steps = Steps { set: to_loopback, ..Steps::default() };
    let mut flow = Builder::new();
    let read = flow.stage("in", Spec::capture_reader(capture));
    let udp = flow.stage("udp", Spec::Filter(expression::parse("udp")?));
    let rewrite = flow.stage("to loopback", Spec::Rewriter(steps));
    let write = flow.stage("out", Spec::capture_writer(&out));
    let rest = flow.stage("rest", Spec::Dropper);
    flow.inline(read, udp).inline(udp, rewrite).inline(udp.port(REJECT), rest);
    flow.ring(rewrite, write, Ring::spsc(1024));
    let flow = flow.finish()?;

    // Files are opened here; a worker is what one thread does.
    let (workers, control) = runner::build(&flow.graph, flow.open()?)?;
    let threads: Vec<_> = workers.into_iter().map(|worker| thread::spawn(move || worker.run())).collect();
    for thread in threads {
        thread.join().map_err(|_| "a stage panicked")?;
    }

    let counts = control.snapshot();
    for (node, counts) in flow.graph.nodes.iter().zip(&counts.nodes) {
        println!("{}: {} packets in, {} dropped", node.name, counts.taken, counts.all_dropped());
    }
    if let Some(failure) = control.failures().into_iter().next() {
        return Err(failure.error.into());
    }
    Ok(())
}
