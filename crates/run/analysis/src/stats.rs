//! Statistics of captures: contents, rates and gaps.
//!
//! Messages are counted once, even if several lines carry them; duplicates are counted separately. Rates refer to windows of 1 ms,
//! 100 ms and 1 s that begin at multiples of their length; in a file without packets, they use the messages' own times since
//! midnight at the venue.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use tapeworks_capture::CapturedPacket;
use tapeworks_feed::ChannelIdentity;
use tapeworks_market::{Publisher, Symbol};
use tapeworks_time::Nanos;
use tapeworks_wire::DecodeError;

use crate::analyser::{self, Ended, Header, Item, Message, Order, Place, Progress, Trouble, Visitor};
use crate::fix::{FixMessage, UNDECLARED};
use crate::input::Input;
use crate::sessions::ReadAs;
use crate::subjects::{Subjects, own_time};
use tapeworks_feed::ProblemKind;
use tapeworks_time::clock;

/// Number of problems kept with their locations; all are counted.
pub const KEPT_PROBLEMS: usize = 1_000;

/// Messages of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kind {
    /// Number of messages, without repeated ones.
    pub messages: u64,
    /// Their total bytes, without framing.
    pub bytes: u64,
}

/// The greatest number of messages in a time window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peak {
    /// The window's length in ns.
    pub window_ns: u64,
    /// Number of messages in the fullest window.
    pub messages: u64,
    /// Start of that window.
    pub start: Nanos,
    current: u64,
    current_messages: u64,
}

impl Peak {
    /// Creates a peak for windows of this length in ns.
    #[must_use]
    pub const fn new(window_ns: u64) -> Self {
        Self { window_ns, messages: 0, start: Nanos(0), current: 0, current_messages: 0 }
    }

    /// Counts a message. Times that go backward count in the current window.
    pub fn count(&mut self, time: Nanos) {
        let window = time.0 / self.window_ns;
        if window > self.current {
            self.current = window;
            self.current_messages = 0;
        }
        self.current_messages += 1;
        if self.current_messages > self.messages {
            self.messages = self.current_messages;
            self.start = Nanos(self.current * self.window_ns);
        }
    }

    /// Returns the messages per second in the fullest window.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.messages as f64 * 1e9 / self.window_ns as f64
    }
}

/// Counters of a channel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChannelStats {
    /// The venue, determined for ITCH by the multicast group and for IEX by the transport; `None` if the channel may carry anything.
    pub venue: Option<Publisher>,
    /// The application's protocol, once a message has shown it.
    pub protocol: Option<&'static str>,
    /// Packets by destination: the lines.
    pub lines: BTreeMap<SocketAddr, u64>,
    /// Packets.
    pub packets: u64,
    /// Messages, without repeated ones.
    pub messages: u64,
    /// Messages repeated, or received after they were reported missing.
    pub repeated: u64,
    /// Gaps in the sequence.
    pub gaps: u64,
    /// Messages missing in them.
    pub missing: u64,
    /// [Refused](tapeworks_follow::sequence::Arrival::is_refused) packets. Their messages are not counted.
    pub implausible_packets: u64,
    /// Packets without messages.
    pub heartbeats: u64,
    /// End-of-session messages.
    pub ends_of_session: u64,
    /// First and last sequence number.
    pub sequence: Option<(u64, u64)>,
}

/// A file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStats {
    /// Its name.
    pub name: String,
    /// A description of its contents.
    pub format: &'static str,
    /// Number of packets; in a file without packets, of messages.
    pub packets: u64,
    /// Captured bytes of the packets, or bytes of the messages.
    pub bytes: u64,
}

/// Something that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Its location.
    pub place: Place,
    /// The error.
    pub text: String,
    /// The candidate protocols, if several fit.
    pub protocols: Vec<&'static str>,
}

/// The statistics of one or several files.
#[derive(Debug)]
pub struct Stats {
    /// The files.
    pub files: Vec<FileStats>,
    /// The channels, in the order in which they were first seen.
    pub channels: Vec<(ChannelIdentity, ChannelStats)>,
    /// Messages by protocol and name.
    pub kinds: BTreeMap<(&'static str, &'static str), Kind>,
    /// Messages of unknown types, by protocol and type.
    pub unknown: BTreeMap<(&'static str, u64), u64>,
    /// Messages by symbol.
    pub symbols: HashMap<Symbol, u64>,
    /// Messages without a symbol, or with one that was never named.
    pub without_symbol: u64,
    /// First and last time.
    pub times: Option<(Nanos, Nanos)>,
    /// Whether times count from midnight at the venue rather than from 1970.
    pub is_time_of_day: bool,
    /// The rates.
    pub peaks: [Peak; 3],
    /// Messages of known types with wrong lengths.
    pub bad_messages: u64,
    /// Packets and parts of packets that could not be read, without gaps.
    pub problems: u64,
    /// The first problems and the first gaps.
    pub kept: Vec<Problem>,
    /// Sound packets that are neither UDP nor TCP over IP.
    pub not_ours: u64,
    /// Heartbeats of an unknown protocol.
    pub undecided_heartbeats: u64,
    /// Datagrams in which damage would go unnoticed: see [`Tally::unverified`](tapeworks_capture::Tally::unverified).
    pub unverified: u64,
    /// How the walk ended.
    pub ended: Ended,
}

impl Stats {
    /// Returns the number of all messages, without repeated ones.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.kinds.values().map(|kind| kind.messages).sum::<u64>() + self.unknown.values().sum::<u64>()
    }

    /// Their bytes.
    #[must_use]
    pub fn message_bytes(&self) -> u64 {
        self.kinds.values().map(|kind| kind.bytes).sum()
    }

    /// Returns the seconds from the first to the last time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.times.map_or(0.0, |(first, last)| last.since(first) as f64 / 1e9)
    }

    /// Returns the messages per second between the first and the last time; `None` if these are equal.
    #[must_use]
    pub fn mean_rate(&self) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| self.messages() as f64 / seconds)
    }

    /// Returns the number of missing messages over all channels, saturating at `u64::MAX`, which damaged sequence numbers can reach.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.channels.iter().map(|(_, channel)| channel.missing).fold(0, u64::saturating_add)
    }

    /// Returns the symbols with the most messages, busiest first.
    #[must_use]
    pub fn busiest(&self, count: usize) -> Vec<(Symbol, u64)> {
        let mut symbols: Vec<_> = self.symbols.iter().map(|(symbol, count)| (*symbol, *count)).collect();
        symbols.sort_unstable_by_key(|(symbol, count)| (std::cmp::Reverse(*count), *symbol));
        symbols.truncate(count);
        symbols
    }

    /// Whether everything was read and nothing was missing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems == 0
            && self.missing() == 0
            && self.bad_messages == 0
            && self.unknown.is_empty()
            && self.ended.is_clean()
    }

    /// Formats a time as in the files: ISO 8601, or the time of day at the venue.
    #[must_use]
    pub fn show_time(&self, time: Nanos) -> String {
        if self.is_time_of_day {
            return tapeworks_wire::NanosecondsSinceMidnight(time.0).to_string();
        }
        clock::iso(time)
    }

    /// Converts the statistics to JSON for programs, with the `top` busiest symbols.
    #[must_use]
    pub fn to_json(&self, top: usize) -> Value {
        let total = self.messages();
        let share = |count: u64| if total == 0 { 0.0 } else { count as f64 / total as f64 };
        json!({
            "files": self.files.iter().map(|file| json!({
                "name": file.name,
                "format": file.format,
                "packets": file.packets,
                "bytes": file.bytes,
            })).collect::<Vec<_>>(),
            "messages": total,
            "message_bytes": self.message_bytes(),
            "first_time": self.times.map(|(first, _)| self.show_time(first)),
            "last_time": self.times.map(|(_, last)| self.show_time(last)),
            "seconds": self.seconds(),
            "mean_messages_per_second": self.mean_rate(),
            "peaks": self.peaks.iter().filter(|peak| peak.messages > 0).map(|peak| json!({
                "window_ns": peak.window_ns,
                "messages": peak.messages,
                "messages_per_second": peak.per_second(),
                "start": self.show_time(peak.start),
            })).collect::<Vec<_>>(),
            "message_types": self.kinds.iter().map(|((protocol, name), kind)| json!({
                "protocol": protocol,
                "message": name,
                "count": kind.messages,
                "share": share(kind.messages),
                "bytes": kind.bytes,
            })).collect::<Vec<_>>(),
            "unknown_types": self.unknown.iter().map(|((protocol, tag), count)| json!({
                "protocol": protocol,
                "type": tag,
                "count": count,
            })).collect::<Vec<_>>(),
            "symbols": self.symbols.len(),
            "messages_without_symbol": self.without_symbol,
            "busiest_symbols": self.busiest(top).iter().map(|(symbol, count)| json!({
                "symbol": symbol.as_str(),
                "messages": count,
            })).collect::<Vec<_>>(),
            "channels": self.channels.iter().map(|(identity, channel)| json!({
                "channel": identity.to_string(),
                "venue": channel.venue.map(|venue| venue.venue_name()),
                "protocol": channel.protocol,
                "packets": channel.packets,
                "lines": channel.lines.iter().map(|(address, packets)| json!({
                    "destination": address.to_string(),
                    "packets": packets,
                })).collect::<Vec<_>>(),
                "messages": channel.messages,
                "repeated_messages": channel.repeated,
                "gaps": channel.gaps,
                "missing_messages": channel.missing,
                "implausible_packets": channel.implausible_packets,
                "heartbeats": channel.heartbeats,
                "ends_of_session": channel.ends_of_session,
                "first_sequence": channel.sequence.map(|(first, _)| first),
                "last_sequence": channel.sequence.map(|(_, last)| last),
            })).collect::<Vec<_>>(),
            "bad_messages": self.bad_messages,
            "problems": self.problems,
            "packets_passed_over": self.not_ours,
            "undecided_heartbeats": self.undecided_heartbeats,
            "unverified_datagrams": self.unverified,
            "inferred_protocols": self.ended.inferred.iter().map(|(destination, protocol)| json!({
                "destination": destination.to_string(),
                "protocol": protocol,
            })).collect::<Vec<_>>(),
            "first_problems": self.kept.iter().map(|problem| json!({
                "file": self.files.get(usize::from(problem.place.file)).map(|file| &file.name),
                "packet": problem.place.number,
                "offset": problem.place.offset,
                "problem": problem.text,
            })).collect::<Vec<_>>(),
            "damaged_files": self.ended.complaints().collect::<Vec<_>>(),
        })
    }
}

/// Counts the contents of `inputs`, merged by time. `observe` is called from time to time and may end the count.
pub fn count(
    inputs: &mut [Input],
    read_as: Option<ReadAs>,
    observe: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Stats {
    let files: Vec<FileStats> = inputs
        .iter()
        .map(|input| FileStats { name: input.name.clone(), format: input.format(), packets: 0, bytes: 0 })
        .collect();
    let mut counter = Counter {
        stats: Stats {
            files,
            channels: Vec::new(),
            kinds: BTreeMap::new(),
            unknown: BTreeMap::new(),
            symbols: HashMap::new(),
            without_symbol: 0,
            times: None,
            is_time_of_day: false,
            peaks: [1_000_000, 100_000_000, 1_000_000_000].map(Peak::new),
            bad_messages: 0,
            problems: 0,
            kept: Vec::new(),
            not_ours: 0,
            undecided_heartbeats: 0,
            unverified: 0,
            ended: Ended::default(),
        },
        by_identity: HashMap::new(),
        last: None,
        subjects: Subjects::default(),
        observe,
    };
    let ended = analyser::walk(inputs, Order::ByTime, read_as, &mut counter);
    let unverified = inputs.iter().map(Input::unverified).sum();
    Stats { ended, unverified, ..counter.stats }
}

struct Counter<'c> {
    stats: Stats,
    by_identity: HashMap<ChannelIdentity, usize>,
    last: Option<(ChannelIdentity, usize)>,
    subjects: Subjects,
    observe: &'c mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Visitor for Counter<'_> {
    fn visit(&mut self, place: &Place, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Header(header) => self.header(place, &header),
            Item::Message(message) => self.message(place, &message),
            Item::Fix(message) => self.fix(place, &message),
            Item::Trouble(trouble, _) if trouble.is_problem() => {
                self.problem(place, trouble.to_string());
                if let (Trouble::InDoubt { protocols, .. }, Some(kept)) =
                    (trouble, self.stats.kept.last_mut())
                    && kept.place == *place
                {
                    kept.protocols.clone_from(protocols);
                }
            }
            Item::Trouble(Trouble::NotOurs(_), _) => self.stats.not_ours += 1,
            Item::Trouble(..) => self.stats.undecided_heartbeats += 1,
        }
        ControlFlow::Continue(())
    }

    fn packet(&mut self, file: u16, packet: &CapturedPacket<'_>) -> ControlFlow<()> {
        if let Some(file) = self.stats.files.get_mut(usize::from(file)) {
            file.packets += 1;
            file.bytes += packet.bytes.len() as u64;
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.observe)(progress)
    }
}

impl Counter<'_> {
    fn channel(&mut self, identity: ChannelIdentity) -> Option<&mut ChannelStats> {
        let index = match self.last {
            Some((last, index)) if last == identity => index,
            _ => {
                let channels = &mut self.stats.channels;
                *self.by_identity.entry(identity).or_insert_with(|| {
                    channels.push((identity, ChannelStats::default()));
                    channels.len() - 1
                })
            }
        };
        self.last = Some((identity, index));
        self.stats.channels.get_mut(index).map(|(_, channel)| channel)
    }

    #[cold]
    fn problem(&mut self, place: &Place, text: String) {
        self.stats.problems += 1;
        self.keep(place, text);
    }

    #[cold]
    fn keep(&mut self, place: &Place, text: String) {
        if self.stats.kept.len() < KEPT_PROBLEMS {
            self.stats.kept.push(Problem { place: *place, text, protocols: Vec::new() });
        }
    }

    fn header(&mut self, place: &Place, header: &Header<'_>) {
        let Some(channel) = self.channel(header.channel) else { return };
        channel.packets += 1;
        if let Some((_, destination)) = header.addresses {
            channel.venue = header.publisher.or(channel.venue);
            *channel.lines.entry(destination).or_default() += 1;
        }
        if let (Some(refusal), Some(first)) = (header.arrival.refusal, header.first_sequence) {
            channel.implausible_packets += 1;
            self.problem(place, ProblemKind::Refused { first, refusal }.to_string());
            return;
        }
        channel.ends_of_session += u64::from(header.is_end_of_session);
        channel.heartbeats += u64::from(header.messages == 0 && !header.is_end_of_session);
        if let Some(gap) = header.arrival.gap {
            channel.gaps += 1;
            channel.missing = channel.missing.saturating_add(gap.count);
            let last = gap.first.saturating_add(gap.count - 1);
            let text = if gap.count == 1 {
                format!("message {} of {} is missing", gap.first, header.channel)
            } else {
                format!("messages {} to {last} of {} are missing", gap.first, header.channel)
            };
            self.keep(place, text);
        }
        if let Some(error) = header.decoded.error {
            self.problem(place, error.to_string());
        }
    }

    /// Counts a FIX message. Its number belongs to its direction, so a log, which holds both directions, has no sequence.
    fn fix(&mut self, place: &Place, message: &FixMessage<'_>) {
        let protocol = FixMessage::schema().name;
        let Some(channel) = self.channel(message.channel) else { return };
        channel.messages += 1;
        channel.protocol = Some(protocol);
        if let Some((_, destination)) = message.addresses {
            channel.packets += 1;
            *channel.lines.entry(destination).or_default() += 1;
            if let Some(sequence) = message.sequence() {
                let (first, last) = channel.sequence.unwrap_or((sequence, sequence));
                channel.sequence = Some((first.min(sequence), last.max(sequence)));
            }
        }
        let bytes = message.bytes.len() as u64;
        let stats = &mut self.stats;
        if let (ChannelIdentity::File { .. }, Some(file)) =
            (message.channel, stats.files.get_mut(usize::from(place.file)))
        {
            file.packets += 1;
            file.bytes += bytes;
        }
        let kind = stats.kinds.entry((protocol, message.name().unwrap_or(UNDECLARED))).or_default();
        kind.messages += 1;
        kind.bytes += bytes;
        match message.symbol() {
            Some(symbol) => *stats.symbols.entry(symbol).or_default() += 1,
            None => stats.without_symbol += 1,
        }
        if let Some(time) = place.time.or_else(|| message.sending_time()).filter(|_| !stats.is_time_of_day) {
            let (first, last) = stats.times.unwrap_or((time, time));
            stats.times = Some((first.min(time), last.max(time)));
            stats.peaks.iter_mut().for_each(|peak| peak.count(time));
        }
    }

    fn message(&mut self, place: &Place, message: &Message<'_>) {
        let Some(channel) = self.channel(message.channel) else { return };
        if message.is_cut || message.is_refused {
            // Its packet is reported as a problem.
            return;
        }
        if message.is_repeated {
            channel.repeated += 1;
            return;
        }
        channel.messages += 1;
        channel.protocol = Some(message.schema.name);
        if let Some(sequence) = message.sequence {
            let (first, last) = channel.sequence.unwrap_or((sequence, sequence));
            channel.sequence = Some((first.min(sequence), last.max(sequence)));
        }
        let bytes = message.decoded.bytes.len() as u64;
        let stats = &mut self.stats;
        if let (ChannelIdentity::File { .. }, Some(file)) =
            (message.channel, stats.files.get_mut(usize::from(place.file)))
        {
            file.packets += 1;
            file.bytes += bytes;
        }
        match (message.decoded.error, message.decoded.structure) {
            (Some(DecodeError::UnknownMessage { tag }), _) => {
                let seen = stats.unknown.entry((message.schema.name, tag)).or_default();
                *seen += 1;
                if *seen == 1 {
                    self.keep(place, DecodeError::UnknownMessage { tag }.to_string());
                }
            }
            (error, structure) => {
                let name = structure.map_or("(none)", |structure| structure.name);
                let kind = stats.kinds.entry((message.schema.name, name)).or_default();
                kind.messages += 1;
                kind.bytes += bytes;
                if let Some(error) = error {
                    stats.bad_messages += 1;
                    self.keep(place, error.to_string());
                }
            }
        }
        match self.subjects.symbol(message) {
            Some(symbol) => *self.stats.symbols.entry(symbol).or_default() += 1,
            None => self.stats.without_symbol += 1,
        }
        let stats = &mut self.stats;
        let time = match place.time {
            Some(time) => Some(time),
            None => {
                stats.is_time_of_day |= stats.times.is_none();
                own_time(&message.decoded)
            }
        };
        // Times of day and times since 1970 cannot be mixed: the kind seen first is shown.
        if let Some(time) = time.filter(|_| place.time.is_none() == stats.is_time_of_day) {
            let (first, last) = stats.times.unwrap_or((time, time));
            stats.times = Some((first.min(time), last.max(time)));
            stats.peaks.iter_mut().for_each(|peak| peak.count(time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_window_is_found_with_its_start() {
        let mut peak = Peak::new(1_000);
        for time in [10, 20, 1_001, 1_002, 1_003, 5_000] {
            peak.count(Nanos(time));
        }
        assert_eq!((peak.messages, peak.start), (3, Nanos(1_000)));
        assert!((peak.per_second() - 3e6).abs() < 1e-6);
    }

    #[test]
    fn a_time_that_goes_back_counts_in_the_open_window() {
        let mut peak = Peak::new(1_000);
        for time in [5_000, 4_000, 5_001] {
            peak.count(Nanos(time));
        }
        assert_eq!((peak.messages, peak.start), (3, Nanos(5_000)));
    }
}
