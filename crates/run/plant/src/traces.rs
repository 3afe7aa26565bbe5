//! Traces of packets on their way through ingest, and of recoveries.
//!
//! ```text
//! kernel ─ receive ─▶ ingest ─ decode ─▶ ─ publish ─▶ ring ─ books ─▶ recorded
//! ```
//!
//! The kernel's receive time comes with each packet, and the time after the books is read anyway, for the [delays](crate::Status).
//! A followed packet costs three more clock reads. Without traces, each trace point costs a branch.

use tapeworks_engine::Engine;
use tapeworks_feed::live::{LiveChannel, SnapshotCounters};
use tapeworks_follow::arbitration::ArbiterCounters;
use tapeworks_market::{Event, Line};
use tapeworks_runtime::traces::{Fact, Operations, Recorder, Sample, Sampler, Text, Traces};
use tapeworks_time::Nanos;

/// Maximum number of packets followed at once: those of one turn that wait for the books.
const MOST_UNDER_WAY: usize = 1_024;

/// A followed packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    is_chosen: bool,
    channel: u16,
    line: Line,
    received: Nanos,
    taken: Nanos,
    pub(super) decoded: Nanos,
    published: Nanos,
    sequence: u64,
    events: u64,
    messages: u64,
}

/// A recovery of a channel's messages that has been requested.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    since: Nanos,
    requested: Nanos,
    requests: u64,
    before: ArbiterCounters,
}

/// A snapshot that has been requested.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    requested: Nanos,
    before: SnapshotCounters,
}

/// The operations that a channel waits for.
#[derive(Clone, Copy, Default, Debug)]
struct Awaited {
    recovery: Option<Recovery>,
    snapshot: Option<Fetch>,
}

/// Samples and records packets and rare operations.
#[derive(Debug)]
pub(super) struct Tracer {
    recorder: Recorder,
    operations: Option<Operations>,
    sampler: Sampler,
    /// The venues' names, by channel.
    names: Vec<Text>,
    awaited: Vec<Awaited>,
    /// Number of operations that are awaited.
    awaiting: usize,
    /// Packets whose events the books have not applied yet.
    under_way: Vec<Way>,
}

impl Tracer {
    /// Creates the tracer for these venues; returns `None` if there is one already.
    pub(super) fn new<'n>(traces: &Traces, venues: impl Iterator<Item = &'n str>) -> Option<Self> {
        let names: Vec<Text> = venues.map(|name| Text::new(name.as_bytes())).collect();
        Some(Self {
            recorder: traces.take_recorder()?,
            operations: traces.operations().cloned(),
            sampler: traces.sampling.into(),
            awaited: vec![Awaited::default(); names.len()],
            awaiting: 0,
            names,
            under_way: Vec::with_capacity(MOST_UNDER_WAY),
        })
    }

    /// Decides whether to follow a packet that comes to the engine, and returns it if so.
    #[inline]
    pub(super) fn packet(
        &mut self,
        channel: u16,
        line: Line,
        received: Nanos,
        clock: impl FnOnce() -> Nanos,
    ) -> Option<Way> {
        let is_chosen = self.sampler.is_chosen();
        (is_chosen || self.sampler.follows_all()).then(|| Way {
            is_chosen,
            channel,
            line,
            received,
            taken: clock(),
            decoded: Nanos(0),
            published: Nanos(0),
            sequence: 0,
            events: 0,
            messages: 0,
        })
    }

    /// Records that the events of a followed packet are published. If this thread has the books, [`Tracer::applied`] completes the
    /// packet.
    #[cold]
    pub(super) fn published(
        &mut self,
        way: Way,
        now: Nanos,
        events: &[Event],
        messages: u64,
        has_books: bool,
    ) {
        let sequence = events.iter().map(|event| event.channel_sequence).find(|sequence| *sequence > 0);
        let way = Way {
            published: now,
            sequence: sequence.unwrap_or_default(),
            events: events.len() as u64,
            messages,
            ..way
        };
        if !has_books || events.is_empty() {
            self.record(&way, None);
        } else if self.under_way.len() < MOST_UNDER_WAY {
            self.under_way.push(way);
        } else {
            self.recorder.count_unfollowed();
        }
    }

    /// Returns whether packets wait for the books.
    #[inline]
    pub(super) const fn is_following(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Records that the books have applied the events of all followed packets.
    #[cold]
    pub(super) fn applied(&mut self, now: Nanos) {
        while let Some(way) = self.under_way.pop() {
            self.record(&way, Some(now));
        }
    }

    fn record(&mut self, way: &Way, applied: Option<Nanos>) {
        let end = applied.unwrap_or(way.published);
        if !way.is_chosen && !self.sampler.is_slow(end.since(way.received)) {
            return;
        }
        let mut sample = Sample::new("packet", way.received.0);
        sample.part("receive", way.received.0, way.taken.0);
        sample.part("decode", way.taken.0, way.decoded.0);
        sample.part("publish", way.decoded.0, way.published.0);
        if let Some(applied) = applied {
            sample.part("books", way.published.0, applied.0);
        }
        self.name(&mut sample, way.channel);
        sample.number("channel", u64::from(way.channel));
        sample.fact("line", Fact::Word(line_name(way.line)));
        if way.sequence > 0 {
            sample.number("sequence", way.sequence);
        }
        sample.number("messages", way.messages);
        sample.number("events", way.events);
        sample.fact("chosen", Fact::Flag(way.is_chosen));
        self.recorder.record(&sample);
    }

    fn name(&self, sample: &mut Sample, channel: u16) {
        sample.text("venue", self.names.get(usize::from(channel)).copied().unwrap_or_default());
    }

    // ---- rare operations ----

    /// Records that a channel's messages are requested.
    #[cold]
    pub(super) fn requested(&mut self, at: u16, channel: &LiveChannel, now: Nanos) {
        let Some(awaited) = self.awaited.get_mut(usize::from(at)) else { return };
        if let Some(recovery) = &mut awaited.recovery {
            recovery.requests += 1;
            return;
        }
        let arbiter = channel.arbiter();
        let since = arbiter.recovering_since().unwrap_or(now);
        awaited.recovery = Some(Recovery {
            since: since.min(now),
            requested: now,
            requests: 1,
            before: *arbiter.counters(),
        });
        self.awaiting += 1;
    }

    /// Records that a channel's snapshot is requested.
    #[cold]
    pub(super) fn snapshot_requested(&mut self, at: u16, channel: &LiveChannel, now: Nanos) {
        let Some(awaited) = self.awaited.get_mut(usize::from(at)) else { return };
        // Later attempts belong to the same fetch: they follow a failed one.
        if awaited.snapshot.is_none() {
            awaited.snapshot = Some(Fetch { requested: now, before: *channel.snapshots() });
            self.awaiting += 1;
        }
    }

    /// Returns whether any operation is awaited.
    #[inline]
    pub(super) const fn is_awaiting(&self) -> bool {
        self.awaiting > 0
    }

    /// Records the operations that have finished since the last call.
    #[cold]
    pub(super) fn look(&mut self, engine: &Engine, now: Nanos) {
        for (at, channel) in (0u16..).zip(engine.feed().channels()) {
            let Some(awaited) = self.awaited.get_mut(usize::from(at)) else { return };
            if let Some(recovery) = awaited.recovery.filter(|_| !channel.arbiter().is_recovering()) {
                awaited.recovery = None;
                self.awaiting -= 1;
                self.recovered(at, &recovery, channel.arbiter().counters(), now);
            }
            let Some(awaited) = self.awaited.get_mut(usize::from(at)) else { return };
            if let Some(fetch) = awaited.snapshot.filter(|_| !channel.is_awaiting_snapshot()) {
                awaited.snapshot = None;
                self.awaiting -= 1;
                self.fetched(at, &fetch, channel.snapshots(), now);
            }
        }
    }

    fn recovered(&self, channel: u16, recovery: &Recovery, counters: &ArbiterCounters, now: Nanos) {
        let Some(operations) = &self.operations else { return };
        let Recovery { since, requested, requests, before } = recovery;
        let mut sample = Sample::new("recover messages", since.0);
        sample.part("wait for the other line", since.0, requested.0);
        sample.part("request", requested.0, now.0);
        self.name(&mut sample, channel);
        sample.number("requests", *requests);
        let by_requests = counters.filled_by_retransmission - before.filled_by_retransmission;
        sample.number("filled_by_requests", by_requests);
        sample.number("filled_by_lines", counters.filled_by_lines - before.filled_by_lines);
        let missing = counters.missing - before.missing;
        sample.number("missing", missing);
        sample.failed = (missing > 0).then_some("messages are missing");
        operations.record(&sample);
    }

    fn fetched(&self, channel: u16, fetch: &Fetch, counters: &SnapshotCounters, now: Nanos) {
        let Some(operations) = &self.operations else { return };
        let before = &fetch.before;
        let mut sample = Sample::new("fetch a snapshot", fetch.requested.0);
        sample.lasts_until(now.0);
        self.name(&mut sample, channel);
        // The counters were copied when the first attempt was requested.
        sample.number("failed_attempts", counters.failed - before.failed);
        sample.number("messages", counters.messages - before.messages);
        sample.failed = (counters.applied == before.applied).then_some("no snapshot came");
        operations.record(&sample);
    }
}

const fn line_name(line: Line) -> &'static str {
    match line {
        Line::A => "A",
        Line::B => "B",
        Line::Recovery => "recovery",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tapeworks_market::{EventKind, InstrumentId, Publisher};
    use tapeworks_runtime::traces::{Samples, Sampling};

    use super::*;

    fn tracer(every: u64, slower_than: Option<Duration>) -> (Tracer, Samples) {
        let (traces, samples) = Traces::new(Sampling { every, slower_than }, 64, true);
        (Tracer::new(&traces, ["Nasdaq", "IEX"].into_iter()).unwrap(), samples)
    }

    fn taken(samples: &mut Samples) -> Vec<Sample> {
        let mut all = Vec::new();
        samples.take(usize::MAX, |sample| all.push(*sample));
        all
    }

    /// Passes a packet with these events, received 100 ns before ingest takes it.
    fn passes(tracer: &mut Tracer, received: u64, events: &[Event], has_books: bool) {
        let way = tracer.packet(1, Line::B, Nanos(received), || Nanos(received + 100));
        if let Some(mut way) = way {
            way.decoded = Nanos(received + 150);
            tracer.published(way, Nanos(received + 170), events, events.len() as u64, has_books);
        }
    }

    fn events(sequence: u64) -> [Event; 2] {
        [0, sequence].map(|channel_sequence| Event {
            channel_sequence,
            ..Event::new(EventKind::Other, Publisher(1), InstrumentId(0))
        })
    }

    #[test]
    fn a_packet_has_a_part_for_each_stage_and_waits_for_the_books() {
        let (mut tracer, mut samples) = tracer(3, None);
        for number in 0..4 {
            passes(&mut tracer, 1_000 * (number + 1), &events(77), true);
        }
        assert!(tracer.is_following());
        assert_eq!(samples.counts().waiting(), 0, "the books do not have it");
        tracer.applied(Nanos(9_000));
        let all = taken(&mut samples);
        assert_eq!((all.len(), tracer.is_following()), (2, false));
        let first = all.iter().find(|sample| sample.times().0 == 1_000).unwrap();
        let parts: Vec<_> =
            first.parts().iter().map(|part| (part.name, part.start_ns, part.end_ns)).collect();
        let wanted = [
            ("receive", 1_000, 1_100),
            ("decode", 1_100, 1_150),
            ("publish", 1_150, 1_170),
            ("books", 1_170, 9_000),
        ];
        assert_eq!((first.name, parts), ("packet", wanted.to_vec()));
        let facts = first.facts();
        for fact in [
            ("venue", Fact::Text(Text::new(b"IEX"))),
            ("line", Fact::Word("B")),
            ("sequence", Fact::Number(77)),
            ("messages", Fact::Number(2)),
            ("chosen", Fact::Flag(true)),
        ] {
            assert!(facts.contains(&fact), "{fact:?}: {facts:?}");
        }
    }

    #[test]
    fn a_packet_without_events_or_of_a_plant_whose_books_are_elsewhere_ends_where_it_is_published() {
        let (mut tracer, mut samples) = tracer(1, None);
        passes(&mut tracer, 1_000, &[], true);
        passes(&mut tracer, 2_000, &events(1), false);
        let all = taken(&mut samples);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|sample| sample.parts().len() == 3 && sample.times().1 % 1_000 == 170));
    }

    #[test]
    fn a_slow_packet_is_recorded_though_it_was_not_chosen_and_a_fast_one_is_not() {
        let (mut tracer, mut samples) = tracer(0, Some(Duration::from_nanos(500)));
        passes(&mut tracer, 1_000, &events(1), true);
        tracer.applied(Nanos(1_400));
        passes(&mut tracer, 2_000, &events(2), true);
        tracer.applied(Nanos(2_600));
        let all = taken(&mut samples);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].times(), (2_000, 2_600));
    }

    #[test]
    fn a_clock_that_was_set_back_shortens_a_stage_to_nothing() {
        let (mut tracer, mut samples) = tracer(1, None);
        let mut way = tracer.packet(0, Line::A, Nanos(5_000), || Nanos(1_000)).unwrap();
        way.decoded = Nanos(1_100);
        tracer.published(way, Nanos(1_200), &events(1), 2, true);
        tracer.applied(Nanos(1_300));
        let all = taken(&mut samples);
        assert_eq!(all[0].times(), (5_000, 5_000));
        assert!(all[0].parts().iter().all(|part| (part.start_ns, part.end_ns) == (5_000, 5_000)));
    }
}
