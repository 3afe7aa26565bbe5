//! Compares the FIX codec with QuickFIX (C++), QuickFIX/J and the maintained crates of the registry, over the same messages.
//!
//! # What is measured
//! 20,000 distinct new orders of about 190 bytes, and as many execution reports of about 270, with varying ids, prices, times and one
//! optional field. Every library gets complete messages from memory and checks BodyLength and CheckSum. Its row says what else it does:
//! ours parses and checks every declared field, required fields, groups, order and duplicates; QuickFIX without a dictionary only splits
//! the fields. The peers validate against their own FIX 4.4 dictionary, which has more fields than our declaration. "to the venue's
//! bytes" is the whole path of an order: the session's checks and sequence numbers, the client's risk limits, and the native message. The
//! peers only read.
//!
//! Programs in other languages read the messages from a file, one per line, before the clock starts. They time themselves and take their
//! turn in each round. Messages are timed in slices of a hundred, and each slice counts with its fastest pass, for every library, because
//! interference only adds time and long runs meet more of it. The table shows the median of the rounds.

#[path = "../../../crates/protocols/fix-wire/benches/orders/mod.rs"]
mod orders;
#[path = "../../../crates/orders/translate/benches/path/mod.rs"]
mod path;

use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hotfix_message::message::Config;
use hotfix_message::parsed_message::ParsedMessage;
use hotfix_message::{MessageBuilder, dict::Dictionary as HotfixDictionary};
use orders::{SYMBOLS, Sender, Values};
use path::{OrderPath, translator};
use rustyfix::Dictionary as RustyDictionary;
use rustyfix::tagvalue::Decoder;
use tapeworks_fix_wire::LastTimestamp;
use tapeworks_fix_wire::order_entry::{ExecutionReport, NewOrderSingle};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{Outputs, Reply, Report};
use tapeworks_wire::schema::SplitMix64;

use crate::foreign::{Cpp, Java};
use crate::rounds::Rounds;

/// Different messages of each type.
const MESSAGES: usize = 20_000;

/// Messages that are timed as one; the programs in other languages have the same number.
const SLICE: usize = 100;

/// Times that a variant reads all of them in one round.
const PASSES: usize = 20;

/// Passes of the peers, which need ten to a hundred times as long.
const PEER_PASSES: usize = 5;

type Write = for<'s> fn(&'s mut Sender, &Values) -> &'s [u8];

/// The messages of one type, concatenated.
struct Messages {
    name: &'static str,
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
    /// The sending times, in UTC nanoseconds.
    times_ns: Vec<u64>,
    /// The same for other programs.
    file: PathBuf,
}

impl Messages {
    fn of(name: &'static str, values: &[Values], write: Write, folder: &Path) -> Self {
        let (mut bytes, mut places, mut lines, mut sender) =
            (Vec::new(), Vec::new(), Vec::new(), Sender::new());
        for each in values {
            let message = write(&mut sender, each);
            places.push((bytes.len(), bytes.len() + message.len()));
            bytes.extend_from_slice(message);
            lines.extend_from_slice(message);
            lines.push(b'\n');
        }
        let file = folder.join(format!("{}.fix", name.replace(' ', "-")));
        std::fs::write(&file, lines).expect("the folder takes a file of some megabytes");
        Self { name, bytes, places, times_ns: values.iter().map(Values::time_ns).collect(), file }
    }

    /// Calls `read` with every message, and again for each pass. Returns nanoseconds per message: see [`fastest`].
    fn each<'m>(&'m self, passes: usize, mut read: impl FnMut(&'m [u8])) -> f64 {
        fastest(
            passes,
            || (),
            |(), slice| {
                for (start, end) in &self.places[slice] {
                    read(black_box(&self.bytes[*start..*end]));
                }
            },
        )
    }

    /// Sends every order through a session and a translator to the venue's bytes. Each pass uses new ones.
    fn translated(&self) -> f64 {
        let path = || OrderPath::new(translator(&SYMBOLS, MESSAGES), Discarded, self.times_ns[0]);
        fastest(PEER_PASSES, path, |path, slice| {
            for ((start, end), time_ns) in
                self.places[slice.clone()].iter().zip(&self.times_ns[slice.clone()])
            {
                path.receive(black_box(&self.bytes[*start..*end]), *time_ns);
            }
            assert_eq!(path.requests() as usize, slice.end, "every order goes out");
        })
    }
}

/// Discards the venue's bytes.
struct Discarded;

impl Outputs for Discarded {
    fn to_venue(&mut self, message: &[u8]) {
        black_box(message);
    }

    fn to_client(&mut self, _: ClientIndex, reply: &Reply<'_>) {
        panic!("{reply:?}");
    }

    fn unmatched(&mut self, report: &Report) {
        panic!("{report:?}");
    }
}

/// Returns nanoseconds per message: the fastest pass of each slice counts. Each pass starts with new state.
fn fastest<S>(passes: usize, state: impl Fn() -> S, mut of_slice: impl FnMut(&mut S, Range<usize>)) -> f64 {
    let mut times = [u64::MAX; MESSAGES / SLICE];
    for _ in 0..passes {
        let mut state = state();
        for (index, time) in times.iter_mut().enumerate() {
            let started = Instant::now();
            of_slice(&mut state, index * SLICE..(index + 1) * SLICE);
            *time = (*time).min(started.elapsed().as_nanos() as u64);
        }
    }
    times.iter().sum::<u64>() as f64 / MESSAGES as f64
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("tapeworks-codec-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the system's temporary folder takes one of ours");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _the_system_empties_it = std::fs::remove_dir_all(&self.0);
    }
}

/// The programs in other languages, and the dictionary that both use.
struct Programs {
    quickfix: Result<Cpp, String>,
    quickfix_j: Result<Java, String>,
    dictionary: PathBuf,
}

impl Programs {
    fn build(folder: &Path) -> Self {
        let dictionary = folder.join("FIX44.xml");
        let quickfix_j = Java::build();
        if let Ok(java) = &quickfix_j {
            java.run("Fix", &["dictionary".into(), dictionary.display().to_string()]);
        }
        let flags = ["-std=c++14", "-O3", "-march=x86-64-v2", "-w"];
        let quickfix = Cpp::build_with("fix", &flags, &["-lquickfix"], "g++, libquickfix-dev");
        for (name, why) in [("QuickFIX", quickfix.as_ref().err()), ("QuickFIX/J", quickfix_j.as_ref().err())]
        {
            if let Some(why) = why {
                println!("NOT MEASURED: {name}: {why}");
            }
        }
        if quickfix.is_ok() && !dictionary.exists() {
            println!("NOT MEASURED: QuickFIX with a dictionary: QuickFIX/J, which contains it, is missing");
        }
        Self { quickfix, quickfix_j, dictionary }
    }

    fn add_to(&self, rounds: &mut Rounds<'_>, messages: &Messages) {
        let words = |more: &[&str]| {
            let mut words = vec![messages.file.display().to_string(), PEER_PASSES.to_string()];
            words.extend(more.iter().map(ToString::to_string));
            words
        };
        if let Ok(program) = &self.quickfix {
            let (plain, words) = (program.clone(), words(&[]));
            rounds.add_reported("QuickFIX C++, fields split", move || plain.run(&words));
        }
        if let Ok(program) = &self.quickfix
            && self.dictionary.exists()
        {
            let (program, words) = (program.clone(), words(&[&self.dictionary.display().to_string()]));
            rounds.add_reported("QuickFIX C++, validated by FIX44", move || program.run(&words));
        }
        if let Ok(program) = &self.quickfix_j {
            for (name, mode) in
                [("QuickFIX/J, fields split", "plain"), ("QuickFIX/J, validated by FIX44", "validated")]
            {
                let (program, words) = (program.clone(), words(&[mode]));
                rounds.add_reported(name, move || program.run("Fix", &words));
            }
        }
    }
}

/// Reads all messages into one reused view, with the last timestamp of the previous message.
macro_rules! read_in_place {
    ($view:ident) => {
        |messages: &Messages| {
            let (mut view, mut last) = ($view::unread(), LastTimestamp::NONE);
            messages.each(PASSES, |message| match view.read_into_behind(message, &mut last) {
                Ok(()) => _ = black_box(&view),
                Err(error) => panic!("{error}"),
            })
        }
    };
}

pub fn run(rounds: usize) {
    let folder = Folder::new();
    let mut random = SplitMix64::new(0xf1c5);
    let values: Vec<Values> =
        (2..2 + MESSAGES as u64).map(|sequence| Values::random(&mut random, sequence)).collect();
    let programs = Programs::build(&folder.0);
    let orders = Messages::of("new order", &values, Sender::order, &folder.0);
    let reports = Messages::of("execution report", &values, Sender::report, &folder.0);
    let translated: Option<fn(&Messages) -> f64> = Some(Messages::translated);
    read(&orders, rounds, &programs, translated, read_in_place!(NewOrderSingle), |message| {
        match NewOrderSingle::read(message) {
            Ok(view) => _ = black_box(&view),
            Err(error) => panic!("{error}"),
        }
    });
    read(&reports, rounds, &programs, None, read_in_place!(ExecutionReport), |message| {
        match ExecutionReport::read(message) {
            Ok(view) => _ = black_box(&view),
            Err(error) => panic!("{error}"),
        }
    });
    build(&values, rounds);
}

/// Reads all messages with every library.
fn read(
    messages: &Messages,
    rounds: usize,
    programs: &Programs,
    translated: Option<fn(&Messages) -> f64>,
    in_place: impl Fn(&Messages) -> f64,
    by_value: impl FnMut(&[u8]) + Clone,
) {
    let bytes = messages.bytes.len() as f64 / MESSAGES as f64;
    let config = Config::default();
    let builder =
        MessageBuilder::new(HotfixDictionary::fix44(), config).expect("its own dictionary is sound");
    let mut table = Rounds::new(MESSAGES as u64);
    table.add_reported("tapeworks-fix-wire, all fields, in place", || in_place(messages));
    table
        .add_reported("tapeworks-fix-wire, all fields, returned", || messages.each(PASSES, by_value.clone()));
    if let Some(translated) = translated {
        table.add_reported("tapeworks-order-session and -translate, to the venue's bytes", move || {
            translated(messages)
        });
    }
    table.add_reported("hotfix-message 0.4.0, validated by FIX44", || {
        messages.each(PEER_PASSES, |message| match builder.build(message) {
            ParsedMessage::Valid(message) => _ = black_box(&message),
            _ => panic!("hotfix-message refuses a message"),
        })
    });
    let mut decoder = Decoder::new(RustyDictionary::fix44().expect("its own dictionary is sound"));
    table.add_reported("rustyfix 0.7.4, fields split", move || {
        messages.each(PEER_PASSES, |message| match decoder.decode(message) {
            Ok(message) => _ = black_box(&message),
            Err(error) => panic!("rustyfix: {error}"),
        })
    });
    programs.add_to(&mut table, messages);
    table.run(&format!("read: {}, {bytes:.0} bytes on average", messages.name), rounds);
}

/// Builds all messages.
fn build(values: &[Values], rounds: usize) {
    let built = |write: Write| {
        fastest(PASSES, Sender::new, |sender, slice| {
            for each in &values[slice] {
                black_box(write(sender, black_box(each)));
            }
        })
    };
    let mut table = Rounds::new(MESSAGES as u64);
    table.add_reported("tapeworks-fix-wire, new order", || built(Sender::order));
    table.add_reported("tapeworks-fix-wire, execution report", || built(Sender::report));
    table.run("build", rounds);
}
