//! Every target over its seeds and over so many mutations of them, on each core.
//!
//!     cargo run --release --package tapeworks-fuzz-targets --bin mutate -- 40000

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use tapeworks_fuzz_targets::TARGETS;
use tapeworks_fuzz_targets::mutate::{MUTATED, attempt};

fn main() -> ExitCode {
    let mutated = match std::env::args().nth(1).map(|number| number.parse()) {
        None => MUTATED,
        Some(Ok(number)) => number,
        Some(Err(_)) => {
            eprintln!("error: the argument is how many mutations of each target");
            return ExitCode::from(2);
        }
    };
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            match attempt(*target, mutated) {
                Ok(inputs) => {
                    println!("{:20} {inputs} inputs in {:.1} s", target.0, started.elapsed().as_secs_f64());
                }
                Err(failure) => {
                    eprintln!("error: {failure}");
                    has_failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
