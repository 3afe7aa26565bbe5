//! The benchmarks: ours beside peers, in one process and one run.
//!
//! ```text
//! cargo xtask bench itch              decode, books, NBBO over 20 M messages of 8,000 random symbols; the service times
//! cargo xtask bench feeds             the same minute of a market in each protocol: packets to events, and to books; MEMX's decode beside sbe_gen
//! cargo xtask bench resting           a message's cost with 1 and 10 M orders at rest; with --messages 100_000_000, 100 M too
//! cargo xtask bench ring [--part P]    the lab's spsc-queue, disruptor, allocators and waiting, with peers; or one of them
//! cargo xtask bench parquet           the whole replay of the same file into Parquet, and into the other formats
//! cargo xtask bench dispatch          state machines by table, match and if-else, by the lab; search and build times
//! cargo xtask bench plant [--part P]  the live plant: engine, rates, burst, clients, outage; soak only on request
//! cargo xtask bench gateway [--part P] the order gateway: round-trip, load, minute (of the load), idle, codec, machines
//! cargo xtask bench flow              pipeline, one to many, many to one: 100 to 1,000,000 packets over each kind of edge
//! ```
//! Absolute figures drift between machines and hours; the ratios of one run count. Each variant runs once per round,
//! the variants take turns, and the median of the rounds is shown.

mod dispatch;
mod feeds;
mod flow;
mod foreign;
mod gateway;
mod itch;
mod lab;
mod memoir;
mod naive;
mod parquet;
mod peers;
mod plant;
mod resting;
mod ring;
mod rounds;

use std::path::PathBuf;
use std::process::ExitCode;

use tapeworks_lab::machine::Machine;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, words)) = words.split_first()
        && first == "alone"
    {
        // How it runs itself under callgrind.
        return if lab::alone(words).is_some() { ExitCode::SUCCESS } else { usage() };
    }
    let mut arguments = words.into_iter();
    let name = arguments.next().unwrap_or_else(|| "itch".into());
    let mut options = Options::default();
    while let Some(flag) = arguments.next() {
        let Some(value) = arguments.next() else { return usage() };
        let number = value.replace('_', "").parse::<u64>().ok();
        match (flag.as_str(), number) {
            ("--folder", _) => options.folder = value.into(),
            ("--part", _) => options.part = Some(value),
            ("--out", _) => options.out = Some(value.into()),
            ("--messages", Some(messages)) => options.messages = messages,
            ("--symbols", Some(symbols)) => options.symbols = symbols as u32,
            ("--rounds", Some(rounds)) => options.rounds = rounds as usize,
            _ => return usage(),
        }
    }
    if name == "ring" {
        let part = options.part.clone();
        let is_wanted = |name: &&str| part.as_deref().is_none_or(|part| part == *name);
        let wanted: Vec<_> = ring::TECHNIQUES.into_iter().filter(is_wanted).filter_map(lab::find).collect();
        if wanted.is_empty() {
            eprintln!("the parts of ring are {}", ring::TECHNIQUES.join(", "));
            return ExitCode::from(2);
        }
        lab::measure(&wanted, &options);
        return ExitCode::SUCCESS;
    }
    if name == "dispatch" {
        dispatch::run(&options);
        return ExitCode::SUCCESS;
    }
    let machine = Machine::this();
    println!(
        "{}\nhuge pages: {}; load before: {}\n",
        machine.line(),
        machine.huge_pages,
        machine.load_before
    );
    match name.as_str() {
        "itch" => itch::run(&options),
        "feeds" => feeds::run(&options),
        "resting" => resting::run(&options),
        "parquet" => parquet::run(&options),
        "flow" => flow::run(&options),
        "plant" => plant::run(&options),
        "gateway" => {
            if !gateway::run(&options) {
                return ExitCode::FAILURE;
            }
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: bench [itch | feeds | resting | parquet | ring | dispatch | flow | plant | gateway] [--part PART] [--messages 20_000_000] [--symbols 8_000] [--rounds 5] [--folder DIR] [--out DIR]"
    );
    ExitCode::from(2)
}

/// The benchmark to run.
pub struct Options {
    /// Messages in the file.
    pub messages: u64,
    /// Symbols in the file.
    pub symbols: u32,
    /// How often each variant runs.
    pub rounds: usize,
    /// The folder of files to read and write.
    pub folder: PathBuf,
    /// Which part of a benchmark, when not all.
    pub part: Option<String>,
    /// Where the results of the lab's techniques go, with their page.
    pub out: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        // A folder in memory where there is one: the benchmark measures the program, not the disk.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Self { messages: 20_000_000, symbols: 8_000, rounds: 5, folder, part: None, out: None }
    }
}
