//! A step-by-step replay: its books and NBBO can be read between packets.

use tapeworks_capture::CaptureError;
use tapeworks_capture::LinkType;
use tapeworks_capture::net::{Datagram, HeaderError, Origin, Receiver};
use tapeworks_feed::{Packet, ProblemKind, VenueConflict};
use tapeworks_market::{BookStage, Instruments, NbboStage};
use tapeworks_stage::{Sink as _, Stage as _};
use tapeworks_time::Nanos;

use super::{
    Ended, Options, ReplayError, Run, Summary, capacity, input, needs_all, next_input, step, without_day,
};
use crate::input::Input;
use crate::replay::summary::summarise;

/// Books and the synthetic NBBO while packets arrive: from files, merged by time, or from the caller.
///
/// The fields of [`Options`] about outputs and pace have no effect here.
pub struct Walk {
    options: Options,
    inputs: Vec<Input>,
    run: Run,
    without_day: Vec<String>,
    file_errors: Vec<CaptureError>,
    ended: Ended,
    /// Finds the datagrams in the caller's frames.
    receiver: Receiver,
    is_interrupted: bool,
    /// Number of the caller's packets.
    packets: u64,
}

/// How far [`Walk::advance`] got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advanced {
    /// It processed the maximum number of packets; there may be more.
    Most,
    /// The next packet is not before the given time.
    Until,
    /// The files have ended.
    Ended,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({} messages)", self.run.messages)
    }
}

impl Walk {
    /// Opens the files of `options`, if any.
    ///
    /// # Errors
    /// [`ReplayError`] if an input cannot be opened.
    pub fn open(options: Options) -> Result<Self, ReplayError> {
        let inputs = input::open_all(&options.inputs, options.application)?;
        let without_day = without_day(&inputs, &options)?;
        let run = Run::new(&options, capacity(&inputs), Vec::new(), (needs_all(&options), true));
        Ok(Self {
            options,
            inputs,
            run,
            without_day,
            file_errors: Vec::new(),
            ended: Ended::default(),
            receiver: Receiver::default(),
            is_interrupted: false,
            packets: 0,
        })
    }

    /// Processes the packets (or messages, in a file without packets) received before `until`, at most `most` of them. A truncated or
    /// damaged file ends there: see [`Summary::file_errors`].
    pub fn advance(&mut self, until: Nanos, most: u64) -> Advanced {
        let advanced = self.advance_unflushed(until, most);
        self.run.flush();
        advanced
    }

    fn advance_unflushed(&mut self, until: Nanos, most: u64) -> Advanced {
        for _ in 0..most {
            let next = match next_input(&mut self.inputs, &self.options, true, &mut self.ended) {
                Ok(Some(next)) => next,
                Ok(None) => return Advanced::Ended,
                Err((index, error)) => {
                    self.end(index, Err(error));
                    continue;
                }
            };
            if next.time.is_some_and(|time| time >= until) {
                return Advanced::Until;
            }
            let Some(input) = self.inputs.get_mut(next.index) else { return Advanced::Ended };
            let stepped = step(input, &mut self.run, false, &self.options);
            if !matches!(stepped, Ok(true)) {
                self.end(next.index, stepped);
            }
        }
        Advanced::Most
    }

    fn end(&mut self, index: usize, ended: Result<bool, CaptureError>) {
        self.ended.add(&self.inputs.remove(index));
        match ended {
            Err(CaptureError::Stopped { .. }) => {
                self.is_interrupted = true;
                self.inputs.clear();
            }
            Err(error) => self.file_errors.push(error),
            Ok(_) => {}
        }
    }

    /// Processes a packet from the caller.
    pub fn packet(&mut self, received: Nanos, datagram: Datagram<'_>) {
        self.packets += 1;
        self.take(self.packets, received, datagram);
    }

    fn take(&mut self, number: u64, received: Nanos, datagram: Datagram<'_>) {
        self.run.saw(received);
        let packet = Packet { file: 0, number, offset: 0, received, datagram };
        self.run.with_feed(|feed, sink| {
            feed.process(&[packet], sink);
            sink.end_of_batch();
        });
        self.run.messages = self.run.feed.messages();
    }

    /// Processes a captured frame from the caller, or keeps it as a fragment. Frames with damaged headers or checksums are counted;
    /// sound frames that are not UDP or TCP over IP are skipped.
    pub fn frame(&mut self, link_type: LinkType, bytes: &[u8], received: Nanos) {
        let mut receiver = std::mem::take(&mut self.receiver);
        while receiver.is_pending()
            && let Some((origin, error)) = receiver.take_report(Some(received.0))
        {
            self.note(origin, error);
        }
        self.packets += 1;
        let origin = Origin { number: self.packets, offset: 0, timestamp_ns: received.0 };
        match receiver.receive(link_type, bytes, origin) {
            Ok((datagram, origin)) => self.take(origin.number, Nanos(origin.timestamp_ns), datagram),
            Err(error) if error.is_malformed() => self.note(origin, error),
            Err(_) => {}
        }
        self.receiver = receiver;
    }

    /// Counts a damaged frame from the caller.
    fn note(&mut self, origin: Origin, error: HeaderError) {
        let kind = ProblemKind::Header(error);
        self.run.feed.note(tapeworks_feed::Problem { file: 0, packet: origin.number, offset: 0, kind });
    }

    /// Returns the first multicast group that contradicts [`Options::publisher`]; its packets are not read.
    pub const fn venue_conflict(&self) -> Option<VenueConflict> {
        self.run.feed.venue_conflict()
    }

    /// Returns the books.
    pub fn books(&self) -> &BookStage {
        &self.run.market.first
    }

    /// Returns the synthetic NBBO, unless it [is left out](Options::skips_unused).
    pub const fn nbbo(&self) -> Option<&NbboStage> {
        self.run.market.second.as_ref()
    }

    /// Returns the instruments seen so far.
    pub fn instruments(&self) -> &Instruments {
        &self.run.outlet.instruments
    }

    /// Returns the number of messages processed.
    pub fn messages(&self) -> u64 {
        self.run.messages
    }

    /// Returns the receive time of the last packet.
    pub fn time(&self) -> Option<Nanos> {
        self.run.times.map(|(_, last)| last)
    }

    /// Ends the replay and returns its summary.
    pub fn finish(mut self) -> Summary {
        while let Some((origin, error)) = self.receiver.take_report(None) {
            self.note(origin, error);
        }
        self.run.finish();
        self.inputs.iter().for_each(|input| self.ended.leave(input));
        self.ended.counters.unverified += self.receiver.unverified();
        Summary {
            file_counters: self.ended.counters,
            unrecognised: self.ended.unrecognised,
            without_day: self.without_day,
            file_errors: self.file_errors,
            is_interrupted: self.is_interrupted,
            ..summarise(self.run, &self.options)
        }
    }
}
