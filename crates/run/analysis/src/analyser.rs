//! Walks captures and message files the way a protocol analyser does: it checks every packet, transport header and message
//! against its protocol's schema, and reports where each one lies.
//!
//! This is the slow, complete path that `dump`, `stats` and `study` share: it shows what the engine only counts. Unreadable
//! parts are [`Item`]s too, and the walk continues after them.
//!
//! Cost per message: a loop over the schema's messages to find the tag, and a call of the visitor.

mod show;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use tapeworks_capture::CaptureError;
use tapeworks_capture::CapturedPacket;
use tapeworks_capture::net;
use tapeworks_feed::ChannelIdentity;
use tapeworks_follow::sequence::Arrival;
use tapeworks_market::Publisher;
use tapeworks_time::Nanos;
use tapeworks_wire::framing::FramingError;
use tapeworks_wire::schema::{Decoded, Schema};

use crate::fix::{self, FixFault, FixMessage, LogReader};
use crate::input::{Input, Recognition, Source, Unrecognised};
use crate::sessions::ReadAs;
use show::Analyser;
pub(crate) use show::{Channel, publisher_of};

pub use tapeworks_feed::Place;

/// Number of packets or messages between two progress reports.
const PROGRESS_STEP: u64 = 1 << 12;

/// A transport's header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The transport.
    pub schema: &'static Schema,
    /// The header's fields.
    pub decoded: Decoded<'a>,
    /// The channel that it belongs to.
    pub channel: ChannelIdentity,
    /// The feed, if the destination or the application determines it.
    pub publisher: Option<Publisher>,
    /// Its sender and its destination.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The packet's VLAN.
    pub vlan: Option<u16>,
    /// Number of the first message in the channel's sequence, if the transport or the login provides it.
    pub first_sequence: Option<u64>,
    /// Number of messages that it announces.
    pub messages: u64,
    /// Whether it ends the session.
    pub is_end_of_session: bool,
    /// Result of the sequence check: the gap before it, the messages that it repeats, and whether its number is plausible.
    pub arrival: Arrival,
}

/// A message of an application.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The application.
    pub schema: &'static Schema,
    /// The message's fields, or why they cannot be read.
    pub decoded: Decoded<'a>,
    /// The channel that carried it.
    pub channel: ChannelIdentity,
    /// Its number in the channel's sequence.
    pub sequence: Option<u64>,
    /// Whether the channel had delivered it, or reported it missing, before.
    pub is_repeated: bool,
    /// Whether its packet is [refused](Arrival::is_refused), so that it does not count.
    pub is_refused: bool,
    /// Whether the packet ends inside it.
    pub is_cut: bool,
}

/// A part that could not be read, or that need not be.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Inconsistent network headers.
    Headers(net::HeaderError),
    /// A sound packet that is neither UDP nor TCP over IP.
    NotOurs(net::HeaderError),
    /// A payload in no known protocol.
    UnknownProtocol {
        /// Its sender.
        source: SocketAddr,
        /// Its destination.
        destination: SocketAddr,
        /// Whether it is TCP rather than UDP.
        is_stream: bool,
        /// Payload length in bytes.
        bytes: usize,
    },
    /// A payload that fits several known protocols, which its bytes do not distinguish.
    InDoubt {
        /// Its sender.
        source: SocketAddr,
        /// Its destination.
        destination: SocketAddr,
        /// Whether it is TCP rather than UDP.
        is_stream: bool,
        /// Payload length in bytes.
        bytes: usize,
        /// The names of the candidate protocols.
        protocols: Vec<&'static str>,
        /// Whether it carries no messages, so that nothing is lost.
        is_heartbeat: bool,
    },
    /// The capture truncated the packet.
    CutPacket {
        /// Bytes kept.
        kept: usize,
        /// The packet's original length.
        original: u32,
        /// The resulting error, if there is one.
        error: Option<FramingError>,
    },
    /// The transport's framing is inconsistent.
    Framing {
        /// What is wrong.
        error: FramingError,
        /// Number of the packet's messages that are lost because of it.
        lost: u64,
    },
    /// A transport header or packet that cannot be decoded.
    Transport(tapeworks_wire::DecodeError),
    /// A message of an unknown application, carried by a known transport.
    UnknownApplication {
        /// Bytes of the message.
        bytes: usize,
    },
    /// Bytes of a stream that are missing from the capture.
    StreamHole {
        /// Number of missing bytes.
        lost: u64,
    },
    /// A part of a FIX stream or log that is not a message.
    Fix(FixFault),
    /// A stream that ends inside a packet.
    StreamCut {
        /// Bytes of that packet.
        bytes: usize,
    },
}

impl Trouble {
    /// Whether market data was lost because of it.
    #[must_use]
    pub const fn is_problem(&self) -> bool {
        !matches!(self, Self::NotOurs(_) | Self::InDoubt { is_heartbeat: true, .. })
    }
}

const fn transport_name(is_stream: bool) -> &'static str {
    if is_stream { "TCP" } else { "UDP" }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Headers(error) => write!(f, "{error}"),
            Self::NotOurs(error) => write!(f, "skipped: {error}"),
            Self::UnknownProtocol { source, destination, is_stream, bytes } => {
                let transport = transport_name(*is_stream);
                write!(f, "no known protocol: {bytes} bytes of {transport} from {source} to {destination}")
            }
            Self::InDoubt { source, destination, protocols, is_heartbeat: true, .. } => {
                let protocols = protocols.join(" or ");
                write!(f, "a heartbeat from {source} to {destination} of {protocols}")
            }
            Self::InDoubt { source, destination, is_stream, bytes, protocols, .. } => write!(
                f,
                "{bytes} bytes of {} from {source} to {destination} may be {}: name the protocol",
                transport_name(*is_stream),
                protocols.join(" or ")
            ),
            Self::CutPacket { kept, original, error } => {
                write!(f, "the capture kept {kept} of the packet's {original} bytes")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Framing { error, lost: 0 | 1 } => write!(f, "{error}"),
            Self::Framing { error, lost } => write!(f, "{error}; {lost} messages are lost"),
            Self::Transport(error) => write!(f, "{error}"),
            Self::UnknownApplication { bytes } => {
                write!(f, "no known protocol in the transport's {bytes} bytes")
            }
            Self::StreamHole { lost } => write!(f, "{lost} bytes of the stream are missing"),
            Self::Fix(fault) => write!(f, "{fault}"),
            Self::StreamCut { bytes } => write!(f, "the stream ends inside a packet, {bytes} bytes are left"),
        }
    }
}

/// An item of the walk.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A transport's header; its messages follow.
    Header(Header<'a>),
    /// A message.
    Message(Message<'a>),
    /// A FIX message.
    Fix(FixMessage<'a>),
    /// A part that could not be read; for a message of an unknown application, with its bytes.
    Trouble(&'a Trouble, &'a [u8]),
}

/// Progress of the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of all files read so far, as stored on disk.
    pub bytes_read: u64,
    /// Bytes of all files; `None` if one is a pipe.
    pub total_bytes: Option<u64>,
}

/// The receiver of the items of the walk.
pub trait Visitor {
    /// Visits an item. Returning `Break` ends the whole walk.
    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()>;

    /// Called for a captured packet, before its items. Returning `Break` ends the whole walk.
    fn packet(&mut self, _file: u16, _packet: &CapturedPacket<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Called from time to time. Returning `Break` ends the whole walk.
    fn progress(&mut self, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Passes each item to a visitor, and counts the recognized items of its capture.
///
/// The visitor is a trait object because the walk is large and is already compiled once per transport. Compiling it once per
/// visitor as well made it a third of this crate's code. The cost is a virtual call per item.
pub(crate) struct Noticing<'v> {
    visitor: &'v mut dyn Visitor,
    /// Counters of the item's capture. `None` for files whose format determines the protocol.
    recognition: Option<&'v mut Recognition>,
}

impl<'v> Noticing<'v> {
    fn in_capture(visitor: &'v mut dyn Visitor, recognition: &'v mut Recognition) -> Self {
        Self { visitor, recognition: Some(recognition) }
    }

    pub(crate) fn known(visitor: &'v mut dyn Visitor) -> Self {
        Self { visitor, recognition: None }
    }

    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()> {
        if let Some(recognition) = &mut self.recognition {
            match &item {
                Item::Header(_) | Item::Message(_) | Item::Fix(_) => recognition.recognised += 1,
                Item::Trouble(Trouble::InDoubt { is_heartbeat: true, .. }, _) => recognition.recognised += 1,
                Item::Trouble(trouble, _) => recognition.reject(|| trouble.to_string()),
            }
        }
        self.visitor.visit(place, item)
    }
}

/// How a walk ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Errors of files that could not be read to the end; items before the error were visited.
    pub damaged: Vec<CaptureError>,
    /// The captures in which no packet was recognized.
    pub unrecognised: Vec<Unrecognised>,
    /// Destinations whose protocol was inferred, because their packets fit no other, with that protocol.
    pub inferred: BTreeMap<SocketAddr, &'static str>,
    /// Whether the visitor ended the walk.
    pub is_stopped: bool,
}

impl Ended {
    /// Whether every file was read to the end, and something was recognized in each.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.unrecognised.is_empty()
    }

    /// Returns one line per file-level error: files that ended early, and captures in which nothing was recognised.
    pub fn complaints(&self) -> impl Iterator<Item = String> {
        let damaged = self.damaged.iter().map(ToString::to_string);
        damaged.chain(self.unrecognised.iter().map(ToString::to_string))
    }

    /// Records a file that ended early.
    fn take(&mut self, error: CaptureError) {
        match error {
            CaptureError::Stopped { .. } => self.is_stopped = true,
            error => self.damaged.push(error),
        }
    }
}

/// The order in which several files are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, independently.
    ByFile,
    /// Captures merged by time into one: lines A and B of a channel may be in two files. Files without packets follow, merged by
    /// the time of day in their messages.
    ByTime,
}

fn report_progress(inputs: &[Input], total_bytes: Option<u64>, visitor: &mut dyn Visitor) -> ControlFlow<()> {
    let bytes_read = inputs.iter().map(|input| input.bytes().bytes_read()).sum();
    visitor.progress(Progress { bytes_read, total_bytes })
}

/// Walks the files merged by time: first the captures, then the files without packets, whose message times count from midnight,
/// whatever the day.
fn merge(
    inputs: &mut [Input],
    analyser: &mut Analyser,
    ended: &mut Ended,
    total_bytes: Option<u64>,
    visitor: &mut dyn Visitor,
) -> ControlFlow<()> {
    let mut steps = 0u64;
    loop {
        // Among equal times the first input wins, so that the walk is deterministic.
        let mut next: Option<((bool, Nanos), usize)> = None;
        for (index, input) in inputs.iter_mut().enumerate() {
            let is_framed = !matches!(input.source, Source::Capture(_));
            match input.next_time(Some(Nanos(0))) {
                Ok(Some(time)) if next.is_none_or(|(first, _)| (is_framed, time) < first) => {
                    next = Some(((is_framed, time), index));
                }
                Ok(_) => {}
                Err(error) => ended.take(error),
            }
        }
        let Some((_, index)) = next else { return ControlFlow::Continue(()) };
        // Reading its time has already found the packet, so neither an end nor an error is possible here.
        let Some(Input { file, source, recognition, .. }) = inputs.get_mut(index) else { continue };
        match source {
            Source::Capture(reader) => {
                if let Ok(Some(packet)) = reader.next_datagram() {
                    analyser.packet(*file, packet, &mut Noticing::in_capture(visitor, recognition))?;
                }
            }
            Source::Framed { reader, format, .. } => {
                if let Ok(Some(frame)) =
                    reader.next_batch().map(|batch| batch.and_then(|mut batch| batch.next()))
                {
                    analyser.frame(
                        *file,
                        *format,
                        frame.offset,
                        frame.bytes,
                        &mut Noticing::known(visitor),
                    )?;
                }
            }
            Source::FixLog(reader) => {
                log_line(*file, reader, &mut Noticing::known(visitor))?;
            }
        }
        steps += 1;
        if steps.is_multiple_of(PROGRESS_STEP) {
            report_progress(inputs, total_bytes, visitor)?;
        }
    }
}

/// Walks `inputs` and passes the items to `visitor`. `read_as` is the protocol, if the user sets one.
pub fn walk(inputs: &mut [Input], order: Order, read_as: Option<ReadAs>, visitor: &mut dyn Visitor) -> Ended {
    let mut ended = Ended::default();
    let mut steps = 0u64;
    let mut analyser = Analyser::new(read_as);
    let total_bytes = inputs.iter().map(|input| input.bytes().total_len()).sum::<Option<u64>>();
    if order == Order::ByTime
        && inputs.len() > 1
        && merge(inputs, &mut analyser, &mut ended, total_bytes, visitor).is_break()
    {
        ended.is_stopped = true;
        return ended;
    }
    // The merged inputs have ended.
    for index in 0..inputs.len() {
        if order == Order::ByFile {
            ended.inferred.extend(analyser.inferred());
            analyser = Analyser::new(read_as);
        }
        while let Some(Input { file, source, recognition, .. }) = inputs.get_mut(index) {
            let flow = match source {
                Source::Capture(reader) => match reader.next_datagram() {
                    Ok(Some(packet)) => {
                        steps += 1;
                        analyser.packet(*file, packet, &mut Noticing::in_capture(visitor, recognition))
                    }
                    Ok(None) => break,
                    Err(error) => {
                        ended.take(error);
                        break;
                    }
                },
                Source::FixLog(reader) => match log_line(*file, reader, &mut Noticing::known(visitor)) {
                    ControlFlow::Continue(true) => {
                        steps += 1;
                        ControlFlow::Continue(())
                    }
                    ControlFlow::Continue(false) => {
                        if let Some(error) = reader.source_mut().take_failure() {
                            ended.take(error);
                        }
                        break;
                    }
                    ControlFlow::Break(()) => ControlFlow::Break(()),
                },
                Source::Framed { reader, format, .. } => match reader.next_batch() {
                    Ok(Some(batch)) => {
                        let before = steps;
                        let mut flow = ControlFlow::Continue(());
                        for frame in batch {
                            steps += 1;
                            flow = analyser.frame(
                                *file,
                                *format,
                                frame.offset,
                                frame.bytes,
                                &mut Noticing::known(visitor),
                            );
                            if flow.is_break() {
                                break;
                            }
                        }
                        // A batch is long: report progress after each.
                        steps = steps.max((before / PROGRESS_STEP + 1) * PROGRESS_STEP);
                        flow
                    }
                    Ok(None) => break,
                    Err(error) => {
                        ended.take(error);
                        break;
                    }
                },
            };
            let is_time = steps.is_multiple_of(PROGRESS_STEP);
            if flow.is_break() || is_time && report_progress(inputs, total_bytes, visitor).is_break() {
                ended.is_stopped = true;
                return ended;
            }
        }
        if analyser.end(&mut Noticing::known(visitor)).is_break() {
            ended.is_stopped = true;
            return ended;
        }
    }
    let _the_last_one = report_progress(inputs, total_bytes, visitor);
    ended.inferred.extend(analyser.inferred());
    ended.unrecognised = inputs.iter().filter_map(Input::unrecognised).collect();
    ended
}

/// Visits the messages in a log's next line; returns `false` at its end.
fn log_line(file: u16, reader: &mut LogReader, visitor: &mut Noticing<'_>) -> ControlFlow<(), bool> {
    let channel = ChannelIdentity::File { file };
    let (mut shown, mut number) = (ControlFlow::Continue(()), reader.number);
    let is_line = reader.next_line(|offset, bytes, fault| {
        if shown.is_break() {
            return;
        }
        number += 1;
        let place = Place { file, number, offset, time: None };
        shown = match fault {
            None => {
                visitor.visit(&place, Item::Fix(FixMessage { bytes, channel, addresses: None, vlan: None }))
            }
            Some(fault) => {
                let bytes = fix::without_secrets(bytes);
                visitor.visit(&place, Item::Trouble(&Trouble::Fix(fault), bytes))
            }
        };
    });
    reader.number = number;
    match shown {
        ControlFlow::Continue(()) => ControlFlow::Continue(is_line),
        ControlFlow::Break(()) => ControlFlow::Break(()),
    }
}

#[cfg(test)]
mod tests;
