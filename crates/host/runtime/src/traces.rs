//! Samples for traces, passed from recording threads to the exporter.
//!
//! ```text
//! hot thread ─ Recorder ─▶ ring ───────┐
//! any thread ─ Operations ─▶ bounded ──┴▶ Samples: the exporter's end
//! ```
//!
//! A sample has a fixed size and owns no memory. A hot thread copies it into a ring and never waits; a sample without room is
//! counted as dropped. Rare operations (a start, a recovery, a checkpoint) come from any thread, through a lock that is never
//! held for longer than a copy. A recording thread does not wait for that lock either.
//!
//! A sample becomes a span, and each of its parts becomes a child span. Their times are consistent by construction: a part starts
//! and ends within its sample, and nothing ends before it starts, whatever the clocks reported.
//!
//! Cost: recording a sample copies about 1,100 bytes. Skipping an item costs a decrement and a branch ([`Sampler`]).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use tapeworks_ring::spsc;

pub mod setting;

/// The longest text in a sample, in bytes. A longer one is truncated.
pub const TEXT_BYTES: usize = 64;

/// The most parts of a sample. More are dropped.
pub const MOST_PARTS: usize = 10;

/// The most facts of a sample. More are dropped.
pub const MOST_FACTS: usize = 12;

/// The most rare operations that may wait for the exporter.
const MOST_OPERATIONS: usize = 256;

/// A short text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    bytes: [u8; TEXT_BYTES],
    length: u8,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; TEXT_BYTES], length: 0 }
    }
}

impl Text {
    /// Copies the first bytes of `text`.
    pub fn new(text: &[u8]) -> Self {
        let mut copy = Self::default();
        for (to, from) in copy.bytes.iter_mut().zip(text) {
            *to = *from;
            copy.length += 1;
        }
        copy
    }

    /// Returns the text, with invalid UTF-8 replaced.
    pub fn as_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes.get(..usize::from(self.length)).unwrap_or_default())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A fact about a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fact {
    /// A text from outside.
    Text(Text),
    /// A word of our own.
    Word(&'static str),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

/// A part of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// The activity.
    pub name: &'static str,
    /// The start, in UTC nanoseconds.
    pub start_ns: u64,
    /// The end, in UTC nanoseconds.
    pub end_ns: u64,
}

/// Something that happened, with its parts and facts.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What happened.
    pub name: &'static str,
    start_ns: u64,
    end_ns: u64,
    /// The reason for a failure, if it failed.
    pub failed: Option<&'static str>,
    parts: [Part; MOST_PARTS],
    part_count: usize,
    facts: [(&'static str, Fact); MOST_FACTS],
    fact_count: usize,
}

impl Sample {
    /// Creates a sample that starts at `start_ns`, in UTC nanoseconds.
    pub const fn new(name: &'static str, start_ns: u64) -> Self {
        Self {
            name,
            start_ns,
            end_ns: start_ns,
            failed: None,
            parts: [Part { name: "", start_ns: 0, end_ns: 0 }; MOST_PARTS],
            part_count: 0,
            facts: [("", Fact::Flag(false)); MOST_FACTS],
            fact_count: 0,
        }
    }

    /// Extends the sample to `end_ns`, if it ends earlier.
    pub fn lasts_until(&mut self, end_ns: u64) {
        self.end_ns = self.end_ns.max(end_ns);
    }

    /// Adds a part. The part starts no earlier than the sample, and the sample lasts at least as long as the part.
    pub fn part(&mut self, name: &'static str, start_ns: u64, end_ns: u64) {
        let start_ns = start_ns.max(self.start_ns);
        let part = Part { name, start_ns, end_ns: end_ns.max(start_ns) };
        if let Some(place) = self.parts.get_mut(self.part_count) {
            *place = part;
            self.part_count += 1;
        }
        self.lasts_until(part.end_ns);
    }

    /// Adds a fact.
    pub fn fact(&mut self, name: &'static str, fact: Fact) {
        if let Some(place) = self.facts.get_mut(self.fact_count) {
            *place = (name, fact);
            self.fact_count += 1;
        }
    }

    /// Adds a text, unless it is empty.
    pub fn text(&mut self, name: &'static str, text: Text) {
        if text.length > 0 {
            self.fact(name, Fact::Text(text));
        }
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, number: u64) {
        self.fact(name, Fact::Number(number));
    }

    /// Returns the start and the end, in UTC nanoseconds.
    pub const fn times(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    /// Returns the parts in the order they were added.
    pub fn parts(&self) -> &[Part] {
        self.parts.get(..self.part_count).unwrap_or_default()
    }

    /// Returns the facts.
    pub fn facts(&self) -> &[(&'static str, Fact)] {
        self.facts.get(..self.fact_count).unwrap_or_default()
    }
}

/// Which items to sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sampling {
    /// Samples one of this many items; 0 samples none.
    pub every: u64,
    /// Also samples all items that take longer. This follows every item, which costs several clock readings each.
    pub slower_than: Option<Duration>,
}

/// Decides which items to sample.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    every: u64,
    left: u64,
    slower_ns: Option<u64>,
}

impl From<Sampling> for Sampler {
    fn from(sampling: Sampling) -> Self {
        let slower = sampling.slower_than;
        let slower_ns = slower.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // Choose the first item, so that a user soon sees whether traces arrive.
        Self { every: sampling.every, left: 1, slower_ns }
    }
}

impl Sampler {
    /// Returns whether the next item is chosen.
    #[inline]
    pub fn is_chosen(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.left -= 1;
        let is_chosen = self.left == 0;
        if is_chosen {
            self.left = self.every;
        }
        is_chosen
    }

    /// Returns whether items that were not chosen are followed too, because they may prove slow.
    #[inline]
    pub const fn follows_all(&self) -> bool {
        self.slower_ns.is_some()
    }

    /// Returns whether an item that took this long is sampled although it was not chosen.
    #[inline]
    pub fn is_slow(&self, took_ns: u64) -> bool {
        self.slower_ns.is_some_and(|slower_ns| took_ns > slower_ns)
    }
}

#[derive(Default, Debug)]
struct Counts {
    recorded: AtomicU64,
    taken: AtomicU64,
    dropped: AtomicU64,
    unfollowed: AtomicU64,
}

/// The numbers of waiting and dropped samples. Any thread may read them, because the collector may block the exporter.
#[derive(Clone, Debug)]
pub struct SampleCounts(Arc<Counts>);

impl SampleCounts {
    /// Returns the number of waiting samples.
    pub fn waiting(&self) -> u64 {
        let taken = self.0.taken.load(Ordering::Relaxed);
        self.0.recorded.load(Ordering::Relaxed).saturating_sub(taken)
    }

    /// Returns the number of samples dropped so far for lack of room.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of items that were not followed because too many were in progress.
    pub fn unfollowed(&self) -> u64 {
        self.0.unfollowed.load(Ordering::Relaxed)
    }
}

/// A hot thread's end of its ring.
pub struct Recorder {
    ring: spsc::Producer<Sample>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Records a sample, or counts it as dropped if there is no room. Never waits.
    #[cold]
    pub fn record(&mut self, sample: &Sample) {
        let is_taken = self.ring.try_push_with(|| *sample);
        let count = if is_taken { &self.counts.recorded } else { &self.counts.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an item that should be followed but exceeds the number of items that can be.
    #[cold]
    pub fn count_unfollowed(&self) {
        self.counts.unfollowed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records rare operations, from any thread.
#[derive(Clone)]
pub struct Operations {
    waiting: Arc<Mutex<VecDeque<Sample>>>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operations")
    }
}

impl Operations {
    /// Records an operation, or counts it as dropped if there is no room or the lock is taken. Never waits or allocates.
    #[cold]
    pub fn record(&self, sample: &Sample) {
        let mut waiting = match self.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let count = if waiting.len() < MOST_OPERATIONS {
            waiting.push_back(*sample);
            &self.counts.recorded
        } else {
            &self.counts.dropped
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The exporter's end.
pub struct Samples {
    ring: spsc::Consumer<Sample>,
    operations: Operations,
    counts: Arc<Counts>,
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Samples")
    }
}

impl Samples {
    /// Takes up to `most` samples. Returns how many there were.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&Sample)) -> usize {
        let mut taken = 0;
        while taken < most {
            // Hold the lock for one sample at a time, so that recording threads find it free.
            let next = self.operations.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(sample) = next else { break };
            each(&sample);
            taken += 1;
        }
        taken += self.ring.pop_batch(most - taken, |sample| each(&sample));
        self.counts.taken.fetch_add(taken as u64, Ordering::Relaxed);
        taken
    }

    /// Returns the numbers of waiting and dropped samples.
    pub fn counts(&self) -> SampleCounts {
        SampleCounts(Arc::clone(&self.counts))
    }
}

/// Shared trace state of a process with one hot thread. Clones share the state.
#[derive(Clone, Debug)]
pub struct Traces {
    /// Which items to sample.
    pub sampling: Sampling,
    operations: Option<Operations>,
    recorder: Arc<Mutex<Option<Recorder>>>,
}

impl Traces {
    /// Creates a queue of `queue_samples`, and one for rare operations if `has_operations`. Returns both ends.
    pub fn new(sampling: Sampling, queue_samples: usize, has_operations: bool) -> (Self, Samples) {
        let counts = Arc::new(Counts::default());
        let (producer, consumer) = spsc::ring(queue_samples);
        let waiting = Arc::new(Mutex::new(VecDeque::with_capacity(MOST_OPERATIONS)));
        let operations = Operations { waiting, counts: Arc::clone(&counts) };
        let recorder = Recorder { ring: producer, counts: Arc::clone(&counts) };
        let traces = Self {
            sampling,
            operations: has_operations.then(|| operations.clone()),
            recorder: Arc::new(Mutex::new(Some(recorder))),
        };
        (traces, Samples { ring: consumer, operations, counts })
    }

    /// Takes the hot thread's end. Only the first call returns it.
    pub fn take_recorder(&self) -> Option<Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the recorder of rare operations, if they are exported.
    pub const fn operations(&self) -> Option<&Operations> {
        self.operations.as_ref()
    }
}

/// The counters of the export.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceStatus {
    /// Whether the collector accepted the last request.
    pub is_connected: bool,
    /// Traces accepted by the collector.
    pub traces: u64,
    /// Spans accepted by the collector.
    pub spans: u64,
    /// Successful requests.
    pub requests: u64,
    /// Waiting traces.
    pub waiting: u64,
    /// Traces dropped because the queue was full.
    pub dropped: u64,
    /// Orders not followed because too many were in progress.
    pub unfollowed: u64,
    /// Spans rejected by the collector.
    pub refused_spans: u64,
    /// Failed requests. Each is retried, unless the collector rejects it for good.
    pub failures: u64,
    /// Traces still waiting at exit.
    pub lost: u64,
    /// The last error, until the collector accepts a request again.
    pub error: Option<String>,
}

/// Reads the status of a running export.
#[derive(Clone)]
pub struct TraceHandle(Arc<dyn Fn() -> TraceStatus + Send + Sync>);

impl TraceHandle {
    /// Creates a handle that obtains the status by `read`.
    pub fn new(read: impl Fn() -> TraceStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the current status.
    pub fn status(&self) -> TraceStatus {
        (self.0)()
    }
}

impl fmt::Debug for TraceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_chooses_the_first_and_then_one_of_so_many() {
        let mut sampler = Sampler::from(Sampling { every: 3, slower_than: None });
        let chosen: Vec<bool> = (0..7).map(|_| sampler.is_chosen()).collect();
        assert_eq!(chosen, [true, false, false, true, false, false, true]);
        assert!(!sampler.follows_all() && !sampler.is_slow(u64::MAX));
        let mut none = Sampler::from(Sampling { every: 0, slower_than: Some(Duration::from_micros(5)) });
        assert!((0..10).all(|_| !none.is_chosen()) && none.follows_all());
        assert!(none.is_slow(5_001) && !none.is_slow(5_000));
    }

    #[test]
    fn a_queue_that_is_full_counts_what_it_does_not_take() {
        let (traces, mut samples) = Traces::new(Sampling::default(), 4, true);
        let mut recorder = traces.take_recorder().unwrap();
        assert!(traces.clone().take_recorder().is_none(), "there is one hot thread");
        for number in 0..7 {
            recorder.record(&Sample::new("hot", number));
        }
        for number in 0..MOST_OPERATIONS as u64 + 2 {
            traces.operations().unwrap().record(&Sample::new("rare", number));
        }
        recorder.count_unfollowed();
        let counts = samples.counts();
        let all = MOST_OPERATIONS as u64 + 4;
        assert_eq!((counts.waiting(), counts.dropped(), counts.unfollowed()), (all, 5, 1));
        let mut starts = Vec::new();
        let taken = samples.take(MOST_OPERATIONS + 2, |sample| starts.push((sample.name, sample.times().0)));
        assert_eq!(taken, MOST_OPERATIONS + 2);
        assert_eq!(samples.take(100, |sample| starts.push((sample.name, sample.times().0))), 2);
        assert_eq!(starts.iter().filter(|(name, _)| *name == "rare").count(), MOST_OPERATIONS);
        assert!(starts.ends_with(&[("hot", 0), ("hot", 1), ("hot", 2), ("hot", 3)]));
    }

    #[test]
    fn an_operation_does_not_wait_for_another_thread() {
        let (traces, samples) = Traces::new(Sampling::default(), 4, true);
        let operations = traces.operations().unwrap();
        let held = operations.waiting.lock().unwrap();
        operations.record(&Sample::new("rare", 1));
        drop(held);
        assert_eq!((samples.counts().waiting(), samples.counts().dropped()), (0, 1));
    }

    #[test]
    fn a_sample_leaves_out_what_has_no_room_and_lasts_as_long_as_its_parts() {
        let mut sample = Sample::new("full", 10);
        for number in 0..MOST_PARTS as u64 + 1 {
            sample.part("part", number, number + 20);
        }
        for number in 0..MOST_FACTS as u64 + 1 {
            sample.number("number", number);
        }
        sample.text("empty", Text::new(b""));
        assert_eq!((sample.parts().len(), sample.facts().len()), (MOST_PARTS, MOST_FACTS));
        assert_eq!(sample.parts()[0], Part { name: "part", start_ns: 10, end_ns: 20 });
        assert_eq!(sample.times(), (10, 20 + MOST_PARTS as u64));
        assert_eq!(Text::new(&[b'x'; 99]).as_str().len(), TEXT_BYTES);
    }
}
