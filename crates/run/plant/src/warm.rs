//! Keeps rarely taken paths warm.
//!
//! The code that handles a gap may not run for minutes: when the plant is busy and needs it, its instructions, branch predictions
//! and pages are not in the caches. A [`Warmer`] has a small private feed, books and NBBO, and sends them sequence gaps and late
//! packets while the plant is idle. It shares code with the live feed, but no data.
//!
//! Cost: about 2 us per turn, at most once every 500 us, and a few hundred kilobytes of memory. `cargo xtask bench plant --part
//! warm` measures the effect.

use tapeworks_feed::Application;
use tapeworks_feed::live::{Input, LiveChannelOptions};
use tapeworks_follow::arbitration::ArbiterOptions;
use tapeworks_market::book::BATCH;
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{BookStage, Capacity, Event, Line, NbboStage, NbboUpdate};
use tapeworks_session::{Content, Outgoing, SessionId, Transport as _, for_transport};
use tapeworks_stage::{Inline, Sink, Through};
use tapeworks_time::Nanos;
use tapeworks_wire::framing::write_block;

use tapeworks_engine::{Engine, EngineOptions};
use tapeworks_runtime::rhythm::Rhythm;
use tapeworks_runtime::world::{System, World};

/// Runs the gap-handling code on private data.
pub struct Warmer<W: World = System> {
    engine: Engine,
    market: Through<BookStage, NbboStage>,
    buffer: Vec<Event>,
    events: Vec<Event>,
    packet: Vec<u8>,
    session: SessionId,
    /// A message that changes no book.
    message: Vec<u8>,
    sequence: u64,
    now: u64,
    rhythm: Rhythm<W>,
}

impl<W: World> std::fmt::Debug for Warmer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Warmer({} turns)", self.sequence)
    }
}

struct Nothing;

impl Sink<NbboUpdate<'_>> for Nothing {
    fn put(&mut self, _update: NbboUpdate<'_>) {}
}

impl<W: World> Default for Warmer<W> {
    fn default() -> Self {
        let feed = Application::OF_STREAMS.spec();
        let publisher = feed.publisher(None, None);
        let capacity = Capacity { instruments: 4, orders: 64, levels: 64 };
        let channel = LiveChannelOptions {
            name: String::new(),
            application: feed.application,
            publisher,
            arbiter: ArbiterOptions::default(),
            snapshot: None,
        };
        Self {
            engine: Engine::new(&EngineOptions { channels: vec![channel], ..EngineOptions::default() }),
            market: Through::new(
                BookStage::new([(publisher, capacity)]),
                NbboStage::new(NbboRules::default(), [publisher], capacity.instruments),
            ),
            buffer: Vec::with_capacity(BATCH),
            events: Vec::with_capacity(64),
            packet: vec![0; 128],
            session: SessionId::MoldUdp64(*b"WARMING UP"),
            message: feed.harmless.to_vec(),
            sequence: 1,
            now: 1_763_130_600_000_000_000,
            rhythm: Rhythm::default(),
        }
    }
}

impl<W: World> Warmer<W> {
    /// Runs the code, if the last run was a while ago.
    pub fn turn(&mut self) {
        if self.rhythm.is_due() {
            self.go();
        }
    }

    /// Runs the code once: an in-order packet, a sequence gap, the missing packet on the other line, and a gap that is given up.
    pub fn go(&mut self) {
        let first = self.sequence;
        for (line, sequence, later) in
            [(Line::A, first, 0), (Line::A, first + 2, 0), (Line::B, first + 1, 0), (Line::A, first + 4, 0)]
        {
            self.packet(line, sequence, later);
        }
        // Past the reorder window.
        self.packet(Line::B, first + 5, 1_000_000);
        self.sequence = first + 6;
    }

    fn packet(&mut self, line: Line, sequence: u64, later: u64) {
        self.now += later + 1_000;
        // A different order each time, so that another slot of the order table is touched.
        if let Some(last) = self.message.last_mut() {
            *last = sequence as u8;
        }
        let length = for_transport!(self.session.transport(), T => {
            let blocks = self.packet.get_mut(T::HEADER_BYTES..).unwrap_or_default();
            let Some(payload_bytes) = write_block(T::prefix(), blocks, &self.message) else { return };
            let header = Outgoing {
                session: self.session,
                sequence,
                messages: 1,
                content: Content::Messages,
                stream_offset: 0,
                payload_bytes,
                send_time_ns: self.now,
            };
            T::write_header(&header, &mut self.packet) + payload_bytes
        });
        let input = Input::Packet {
            channel: 0,
            line,
            received: Nanos(self.now),
            payload: self.packet.get(..length).unwrap_or_default(),
        };
        self.engine.input(&input, &mut self.events);
        let mut nothing = Nothing;
        let mut edge = Inline::new(&mut self.market, &mut self.buffer, &mut nothing);
        self.events.drain(..).for_each(|event| edge.put(event));
        edge.end_of_batch();
        while self.engine.take_request().is_some() {}
    }

    /// Returns the number of gaps it has given up.
    pub fn gaps(&self) -> u64 {
        self.engine.feed().channels().iter().map(|channel| channel.arbiter().counters().gaps).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_a_filled_gap_and_an_unfilled_one() {
        let mut warmer = <Warmer>::default();
        for turn in 1..=100 {
            warmer.go();
            assert_eq!(warmer.gaps(), turn);
        }
        let counters = warmer.engine.feed().channels()[0].arbiter().counters();
        assert_eq!(counters.filled_by_lines, 100);
        assert_eq!(warmer.market.first.feeds()[0].counters().gaps, 100);
    }
}
