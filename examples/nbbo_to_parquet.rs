//! What `tapeworks replay --schema cmbp-1` does, as a library call: captures in, the synthetic NBBO as Parquet out.
//!
//! `cargo run -p tapeworks-examples --bin nbbo_to_parquet OUT.parquet [CAPTURE]...`

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;

use tapeworks_analysis::replay::{self, Options, Output};
use tapeworks_store::{Options as FileOptions, Schema};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/captures");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let path = arguments.next().ok_or("the name of the Parquet file is missing")?;
    let mut inputs: Vec<PathBuf> = arguments.collect();
    if inputs.is_empty() {
        inputs = ["iex-tops16/QuoteUpdateMessage.pcap", "nasdaq-itch50/Multiple.Packets.pcap"]
            .map(|name| [CAPTURES, name].iter().collect())
            .to_vec();
    }

    // Several inputs are merged by receive time. The file gets its name when it is whole.
    let options = FileOptions { overwrite: true, ..FileOptions::default() };
    let outputs = vec![Output { path, schema: Schema::Cmbp1, options }];
    let replayed = replay::replay(
        &Options { inputs, outputs, ..Options::default() },
        // Called now and then with how far it is; `Break` ends the replay in good order.
        &mut |_progress| ControlFlow::Continue(()),
    )?;

    println!("{} messages of {} instruments", replayed.messages, replayed.symbols.len());
    println!("{} changes of the NBBO", replayed.nbbo.map_or(0, |nbbo| nbbo.changes));
    for file in &replayed.written {
        println!("{} records", file.summary.records);
        // What left no trace in the file, by reason.
        for (reason, count) in file.summary.all_skipped() {
            println!("  {}: {count}", reason.as_str());
        }
    }
    // Gaps, cut packets and unknown messages do not fail a replay; they are reported.
    println!("{} problems, {} messages missing", replayed.problems.total, replayed.missing_messages());
    Ok(())
}
