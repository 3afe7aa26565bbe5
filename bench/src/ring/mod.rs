//! Queues, waiting and memory, each beside its peers.

mod blog;
mod disruptor;
mod latency;
mod memory;
mod spsc;
mod waiting;

use tapeworks_ring::cpu;

/// The benchmark to run.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Items or events of a round.
    pub items: u64,
    /// Slots of a ring.
    pub capacity: usize,
    /// How often each variant runs.
    pub rounds: usize,
    /// Two cores, one for each side.
    pub cores: [usize; 2],
}

pub fn run(rounds: usize, part: Option<&str>) {
    let cores = cpu::allowed_cores().unwrap_or_default();
    let &[one, two, ..] = cores.as_slice() else {
        println!("SKIPPED: two threads that spin want two cores, and here is {cores:?}");
        return;
    };
    println!("cores {one} and {two}; every thread that spins is pinned; sums are checked in every run\n");
    let shape = Shape { items: 50_000_000, capacity: 131_072, rounds, cores: [one, two] };
    type Part = (&'static str, fn(Shape));
    let parts: [Part; 5] = [
        ("spsc", spsc::run),
        ("latency", latency::run),
        ("disruptor", disruptor::run),
        ("memory", memory::run),
        ("waiting", waiting::run),
    ];
    for (name, run) in parts {
        if part.is_none_or(|part| part == name) {
            run(shape);
        }
    }
}

/// Runs `one` and `two` on a thread each, pinned to its core, and returns what `one` returns. The threads are new ones, so
/// that this one stays free: whatever it starts would inherit its core.
pub fn on_two_cores<R: Send>(
    cores: [usize; 2],
    one: impl FnOnce() -> R + Send,
    two: impl FnOnce() + Send,
) -> R {
    let pinned = |core| cpu::pin(core).expect("the core is allowed");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pinned(cores[1]);
            two();
        });
        let one = scope.spawn(move || {
            pinned(cores[0]);
            one()
        });
        one.join().expect("nobody panics")
    })
}
