//! The Disruptor's shapes: the crate `disruptor`, and LMAX' own in Java.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use disruptor::{ProcessorSettings, Producer as _, Sequence};
use tapeworks_lab::catalogue::disruptor::{
    BATCH, CAPACITY, DIAMOND, MANY_TO_ONE, ONE_TO_MANY, ONE_TO_ONE, PIPELINE, mix,
};
use tapeworks_lab::measure::{Peers, Reporter, Setup, Variants};
use tapeworks_ring::cpu;

use crate::foreign::Java;

/// The least events of a Java run: its compiler must be warm, and its start is not measured.
const JAVA_EVENTS: u64 = 5_000_000;

const fn peers(experiment: &'static str, add: for<'v> fn(Setup, Variants<'v>) -> Variants<'v>) -> Peers {
    Peers { technique: "disruptor", experiment, add }
}

pub const ONE_TO_ONE_PEERS: Peers = peers(ONE_TO_ONE, |setup, variants| {
    let variants = variants
        .add_reported("disruptor 4.4.0 (crate)", move |reporter| crate_disruptor(setup, 1, reporter))
        .add_reported("disruptor 4.4.0 (crate) in batches", move |reporter| {
            crate_disruptor(setup, BATCH, reporter)
        });
    lmax(
        setup,
        variants,
        &[
            ("unicast", "busy", "LMAX Disruptor 4.0.0"),
            ("batch", "busy", "LMAX Disruptor 4.0.0 in batches"),
            ("one-of-many", "busy", "LMAX Disruptor 4.0.0 for several producers"),
            ("unicast", "yield", "LMAX Disruptor 4.0.0, yielding"),
        ],
    )
});

pub const PIPELINE_PEERS: Peers = peers(PIPELINE, |setup, variants| {
    lmax(setup, variants, &[("pipeline", "yield", "LMAX Disruptor 4.0.0")])
});

pub const ONE_TO_MANY_PEERS: Peers = peers(ONE_TO_MANY, |setup, variants| {
    lmax(setup, variants, &[("one-to-many", "yield", "LMAX Disruptor 4.0.0")])
});

pub const DIAMOND_PEERS: Peers =
    peers(DIAMOND, |setup, variants| lmax(setup, variants, &[("diamond", "yield", "LMAX Disruptor 4.0.0")]));

pub const MANY_TO_ONE_PEERS: Peers = peers(MANY_TO_ONE, |setup, variants| {
    lmax(setup, variants, &[("two-to-one", "yield", "LMAX Disruptor 4.0.0")])
});

static JAVA: LazyLock<Result<Java, String>> = LazyLock::new(Java::build);

/// Shapes of LMAX' Disruptor: shape, way to wait, and the variant's name.
fn lmax<'v>(setup: Setup, mut variants: Variants<'v>, shapes: &[(&str, &str, &str)]) -> Variants<'v> {
    let java = match &*JAVA {
        Ok(java) => java,
        Err(why) => return variants.skip(format!("LMAX: {why}")),
    };
    for (shape, wait, name) in shapes {
        let events = setup.items.max(JAVA_EVENTS).to_string();
        let words = [(*shape).into(), (*wait).into(), events, CAPACITY.to_string(), "1".into()];
        variants = variants.add_foreign(name, move |reporter| reporter.figure(java.run("Shapes", &words)));
    }
    variants
}

/// One to one by the crate, on a thread of its own: the crate pins its consumer to none but the cores of the thread that builds it.
fn crate_disruptor(Setup { items, cores, .. }: Setup, batch: u64, reporter: &mut Reporter) -> u64 {
    let found = Arc::new(AtomicU64::new(0));
    let result = Arc::clone(&found);
    let took = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut answer = 0;
            let pinned = |core| cpu::pin(core).expect("the core is allowed");
            pinned(cores[1]);
            let began = Instant::now();
            let mut producer = disruptor::build_single_producer(CAPACITY, || 0u64, disruptor::BusySpin)
                .pin_at_core(cores[1])
                .handle_events_with(move |event: &u64, sequence: Sequence, _end: bool| {
                    answer = mix(answer, *event);
                    if sequence as u64 == items - 1 {
                        result.store(answer, Ordering::Release);
                    }
                })
                .build();
            pinned(cores[0]);
            let mut next = 0;
            while next < items {
                let count = batch.min(items - next);
                if batch == 1 {
                    producer.publish(|event| *event = next);
                } else {
                    producer.batch_publish(count as usize, |slots| {
                        for (number, event) in (next..).zip(slots) {
                            *event = number;
                        }
                    });
                }
                next += count;
            }
            // Its end is that of the consumer.
            drop(producer);
            began.elapsed()
        });
        thread.join().expect("nobody panics")
    });
    reporter.figure(took.as_nanos() as f64 / items as f64);
    found.load(Ordering::Acquire)
}
