//! Dispatch of clients' messages on a cut-down machine: by table, by `match`, and by a chain of comparisons.
//!
//! The rows for messages are the translator's `ClientToExchange`; connection events are simplified. Actions only count, so that dispatch
//! dominates. States and messages are random, so that the branch predictor cannot learn them. Blocks of dispatches are timed, and the
//! dispatchers alternate within each round. Afterwards the bench builds both production machines with empty actions, and times the search
//! for their hashes.

use std::hint::black_box;
use std::time::Instant;

use crate::Options;
use crate::dispatch::build::{Folder, measured};

/// Dispatches of a block, the least that a clock can time.
const BLOCK: usize = 64;
/// Blocks of a round.
const BLOCKS: usize = 4_096;

/// What the actions do: as little as differs.
#[derive(Default)]
struct Work {
    counts: [u64; 12],
}

macro_rules! actions {
    ($($name:ident = $place:literal;)*) => {
        impl Work {
            $(#[inline]
            fn $name(&mut self, message: u64) {
                self.counts[$place] = self.counts[$place].wrapping_add(message);
            })*
        }
    };
}

actions! {
    new_order = 0; replace = 1; cancel = 2; mass_cancel = 3; quote = 4; mass_quote = 5; quote_cancel = 6; status = 7;
    refuse_halted = 8; refuse_unavailable = 9; connect = 10; open = 11;
}

/// The machine, with one of the dispatchers. The events without a code are messages here, so that the state changes.
macro_rules! cut_down {
    ($module:ident, $dispatch:tt) => {
        mod $module {
            use super::Work;

            tapeworks_dispatch::machine! {
                pub machine Way { context: Work, message: u64, dispatch: $dispatch }

                states { Away, Recovering, Open, Halted }

                events {
                    NewOrderSingle = 'D' (message: u64),
                    OrderCancelRequest = 'F' (message: u64),
                    OrderCancelReplaceRequest = 'G' (message: u64),
                    OrderMassCancelRequest = 'q' (message: u64),
                    OrderStatusRequest = 'H' (message: u64),
                    Quote = 'S' (message: u64),
                    MassQuote = 'i' (message: u64),
                    QuoteCancel = 'Z' (message: u64),
                    Connected = '1' (message: u64),
                    Recovered = '2' (message: u64),
                    Disconnected = '3' (message: u64),
                    Halt = '4' (message: u64),
                }

                rows {
                    Open + NewOrderSingle => new_order;
                    Open + OrderCancelReplaceRequest => replace;
                    Open | Halted + OrderCancelRequest => cancel;
                    Open | Halted + OrderMassCancelRequest => mass_cancel;
                    Open + Quote => quote;
                    Open + MassQuote => mass_quote;
                    Open | Halted + QuoteCancel => quote_cancel;
                    Halted + NewOrderSingle => refuse_halted;
                    Halted + OrderCancelReplaceRequest => refuse_halted;
                    Halted + Quote => refuse_halted;
                    Halted + MassQuote => refuse_halted;
                    Away | Recovering + NewOrderSingle => refuse_unavailable;
                    Away | Recovering + OrderCancelReplaceRequest => refuse_unavailable;
                    Away | Recovering + OrderCancelRequest => refuse_unavailable;
                    Away | Recovering + OrderMassCancelRequest => refuse_unavailable;
                    Away | Recovering + Quote => refuse_unavailable;
                    Away | Recovering + MassQuote => refuse_unavailable;
                    Away | Recovering + QuoteCancel => refuse_unavailable;
                    _ + OrderStatusRequest => status;
                    _ + Connected => connect -> Recovering;
                    _ + Recovered => open -> Open;
                    _ + Disconnected => connect -> Away;
                    _ + Halt => open -> Halted;
                }
            }

            /// Dispatches a block from a state on. Returns what the actions came to.
            #[inline(never)]
            pub fn run(machine: &mut Way, work: &mut Work, codes: &[u8]) {
                for (number, code) in codes.iter().enumerate() {
                    let known = machine.dispatch(work, u64::from(*code), number as u64);
                    debug_assert!(known.is_ok());
                }
            }

            /// Times blocks, in nanoseconds a dispatch. Returns what the actions came to as well.
            pub fn timed(blocks: &[[u8; super::BLOCK]], times: &mut Vec<f64>) -> u64 {
                let (mut machine, mut work) = (Way::new(), Work::default());
                for block in blocks {
                    let started = std::time::Instant::now();
                    run(&mut machine, &mut work, std::hint::black_box(block));
                    times.push(started.elapsed().as_nanos() as f64 / super::BLOCK as f64);
                }
                work.counts.iter().fold(0, |sum, count| sum.rotate_left(5) ^ count)
            }
        }
    };
}

cut_down!(by_table, table);
cut_down!(by_match, match);
cut_down!(by_chain, chain);

/// A dispatcher: its name, and how its blocks are timed.
type Timed = (&'static str, fn(&[[u8; BLOCK]], &mut Vec<f64>) -> u64);

const DISPATCHERS: [Timed; 3] =
    [("table", by_table::timed), ("match", by_match::timed), ("chain", by_chain::timed)];

/// Codes at random. One message in eight changes the state, so that states are random too.
fn blocks() -> Vec<[u8; BLOCK]> {
    const MESSAGES: &[u8] = b"DFGqHSiZ";
    const STATES: &[u8] = b"1234";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize
    };
    let mut code = || if random() % 8 == 0 { STATES[random() % 4] } else { MESSAGES[random() % 8] };
    (0..BLOCKS).map(|_| std::array::from_fn(|_| code())).collect()
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

pub fn run(options: &Options) {
    println!(
        "a cut-down client-to-exchange machine: 4 states, 12 message types, both at random; blocks of {BLOCK} dispatches, {} a dispatcher",
        BLOCKS * options.rounds
    );
    let blocks = blocks();
    let mut times: [Vec<f64>; 3] = std::array::from_fn(|_| Vec::with_capacity(BLOCKS * options.rounds));
    for _ in 0..options.rounds.max(1) {
        let mut answers = Vec::new();
        for ((_, timed), times) in DISPATCHERS.iter().zip(&mut times) {
            answers.push(black_box(timed(&blocks, times)));
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "all did the same: {answers:?}");
    }
    println!("{:<8} {:>12} {:>8} {:>8} {:>7}", "", "ns/dispatch", "MAD", "p99.9", "ratio");
    let mut reference = None;
    for ((name, _), times) in DISPATCHERS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let middle = median(times);
        let mut off: Vec<f64> = times.iter().map(|time| (time - middle).abs()).collect();
        off.sort_by(f64::total_cmp);
        let slow = times[times.len() * 999 / 1000];
        let of = *reference.get_or_insert(middle);
        println!("{name:<8} {middle:>12.2} {:>8.2} {slow:>8.2} {:>6.2}x", median(&off), middle / of);
    }
    println!();
    build(options);
}

/// The `machine` declarations of the translator, without their actions.
const SOURCES: [(&str, &str); 2] = [
    ("ClientToExchange", include_str!("../../../crates/orders/translate/src/admission.rs")),
    ("ExchangeToClient", include_str!("../../../crates/orders/translate/src/orders.rs")),
];

/// A declaration of the product: what is between the braces of its macro.
struct Declared {
    name: &'static str,
    body: String,
    codes: Vec<u64>,
    /// Actions and guards, with whether their event has a parameter.
    actions: Vec<(String, bool)>,
    guards: Vec<(String, bool)>,
}

impl Declared {
    /// Reads a declaration of the product, and fails if its form has changed.
    fn of(name: &'static str, source: &str) -> Self {
        let start =
            source.find("order_machine! {").expect("the machine is declared") + "order_machine! {".len();
        let mut depth = 1;
        let end = source[start..].find(|character| {
            depth += i32::from(character == '{') - i32::from(character == '}');
            depth == 0
        });
        let body = &source[start..start + end.expect("the braces are closed")];
        let plain: String =
            body.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let part = |name: &str| {
            let (_, after) = plain.split_once(&format!("{name} {{")).expect("the part is there");
            after.split_once('}').expect("the part ends").0.to_owned()
        };
        let mut with_parameter = Vec::new();
        let mut codes = Vec::new();
        let events = part("events");
        for event in events.split(",\n").map(str::trim).filter(|event| !event.is_empty()) {
            let (name, rest) = event.split_once(' ').unwrap_or((event.trim_end_matches(','), ""));
            if rest.contains('(') {
                with_parameter.push(name.to_owned());
            }
            if let Some(code) = rest.strip_prefix("= ") {
                let code = code.split_whitespace().next().unwrap_or("");
                let character = code.trim_matches('\'').bytes().next().map(u64::from);
                let is_character = code.starts_with('\'');
                codes.push(if is_character {
                    character.expect("a character")
                } else {
                    code.parse().expect("a number")
                });
            }
        }
        let (mut actions, mut guards) = (Vec::new(), Vec::new());
        let add = |list: &mut Vec<(String, bool)>, name: &str, event: &str| {
            let entry = (name.trim().to_owned(), with_parameter.iter().any(|one| one == event));
            if name.trim() != "_" && !list.contains(&entry) {
                list.push(entry);
            }
        };
        for row in part("rows").split(';').map(str::trim).filter(|row| !row.is_empty()) {
            let (left, right) = row.split_once("=>").expect("a row has an arrow");
            let (_, event) = left.split_once('+').expect("a row has an event");
            let (event, guard) =
                event.split_once('[').map_or((event, None), |(event, guard)| (event, Some(guard)));
            if let Some(guard) = guard {
                add(&mut guards, guard.trim().trim_end_matches(']'), event.trim());
            }
            add(&mut actions, right.split("->").next().unwrap_or(""), event.trim());
        }
        Self { name, body: body.to_owned(), codes, actions, guards }
    }

    /// The machine with a context whose actions do nothing.
    fn module(&self) -> String {
        let (context, message) = match self.name {
            "ClientToExchange" => ("Admission", "Incoming<'_>"),
            _ => ("Order", "&Execution"),
        };
        let parameter = |has: &bool| if *has { format!(", _: {message}") } else { String::new() };
        let mut methods = String::new();
        for (name, has) in &self.actions {
            // The row for any state and event gets both.
            let parameters = if name == "unexpected" {
                format!(", _: {0}State, _: {0}EventKind", self.name)
            } else {
                parameter(has)
            };
            let (output, value) =
                if self.body.contains("output: Decided") { (" -> Decided", "Ok(())") } else { ("", "") };
            methods.push_str(&format!("    fn {name}(&mut self{parameters}){output} {{ {value} }}\n"));
        }
        for (name, has) in &self.guards {
            methods.push_str(&format!("    fn {name}(&self{}) -> bool {{ true }}\n", parameter(has)));
        }
        let body = self.body.replacen(" }\n", ", dispatch: table }\n", 1);
        format!(
            "mod {} {{\n#![allow(dead_code)]\n#[derive(Clone, Copy)] pub struct Incoming<'m>(&'m [u8]);\npub struct Execution;\n\
             pub type Decided = Result<(), ()>;\npub struct {context};\ntapeworks_dispatch::machine! {{{body}}}\nimpl {context} {{\n{methods}}}\n}}\n",
            self.name.to_lowercase()
        )
    }
}

/// Seconds and memory of building both machines of the product, and the time to find their hashes.
fn build(options: &Options) {
    let declared = SOURCES.map(|(name, source)| Declared::of(name, source));
    let folder = Folder::new(options, "machines-build");
    let ours = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/base/dispatch");
    folder.write(
        "Cargo.toml",
        format!(
            "[workspace]\n[package]\nname = \"both\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n\
             tapeworks-dispatch = {{ path = {:?} }}\n",
            ours.canonicalize().expect("the crate is there")
        ),
    );
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["build", "--release", "--quiet", "--offline"];
    folder.write("src/lib.rs", "//! Nothing yet: the dependencies are built with it.\n");
    let dependencies = measured(&folder.0, &cargo, &arguments);
    println!("the translator's two machines, cargo build --release, actions that do nothing");
    println!("{:<36} {:>8}  {:>8}", "", "time", "most memory");
    print_build("dependencies, once (syn among them)", dependencies);
    let text: String = declared.iter().map(Declared::module).collect();
    folder.write("src/lib.rs", format!("//! Both machines.\n{text}"));
    print_build("both machines", measured(&folder.0, &cargo, &arguments));
    println!("\nthe search of their hashes (target: 1 ms)");
    for machine in &declared {
        let mut least_ms = f64::INFINITY;
        let mut formula = String::new();
        for _ in 0..5 {
            let started = Instant::now();
            let hash =
                tapeworks_dispatch::search::find(black_box(&machine.codes)).expect("the codes are distinct");
            least_ms = least_ms.min(started.elapsed().as_secs_f64() * 1e3);
            formula = hash.formula().to_string();
        }
        println!(
            "{:<20} {:>3} codes {least_ms:>8.3} ms  slot = {formula}",
            machine.name,
            machine.codes.len()
        );
    }
    println!();
}

fn print_build(name: &str, figures: Option<(f64, f64)>) {
    match figures {
        Some((seconds, megabytes)) => println!("{name:<36} {seconds:>6.2} s  {megabytes:>8.0} MB"),
        None => {
            println!("{name:<36} SKIPPED: it does not build here, or GNU time is not there (Debian: time)")
        }
    }
}
