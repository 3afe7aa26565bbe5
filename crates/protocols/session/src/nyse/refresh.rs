//! NYSE's refreshes: the messages of both ends, and how a client assembles them.
//!
//! A client sends requests over the connection of a request server; the answers are packets to a multicast group. They have
//! delivery flags 17 to 20, and each starts with a [`RefreshHeader`]: the packet's number, the packet count, and the number
//! of the last channel message included. The packets name no request, and the group's other clients receive them too.
//!
//! | request | answer |
//! | --- | --- |
//! | symbol index mapping, index 0 | the mappings of all symbols |
//! | refresh, index 0 | for each symbol its mapping, state and orders |
//! | refresh, one index | the same for that symbol |
//!
//! **Each symbol is refreshed at its own time.** A client has a snapshot once it has the directory and every symbol in
//! it. It passes on each symbol after its header, and the lowest next number of all symbols. Apply live messages from
//! that number on, but to a symbol only those after the symbol's own number.
//!
//! **A packet with one mapping may answer another client** that requested only that index. An answer with several
//! indices is therefore the directory. An answer with a single index is the directory only if two requests received the
//! same one, and no packet of the group has another index; the refresh then ends when the group has been quiet after
//! the books. A symbol missing from the directory is awaited as soon as a refresh names it.
//!
//! Assumptions where the field tables are silent, not verified on real packets: index 0 stands for all symbols;
//! mappings come like refreshes, in packets with nothing else; a refresh starts with the symbol's mapping, and its
//! first packet has more than that.
//!
//! Cost: a client keeps each packet's messages once until all have arrived, at most 256 MiB of them.

use std::collections::{BTreeMap, VecDeque};

use tapeworks_wire::nyse::integrated::{
    AddOrder, AddOrderRefresh, AddOrderRefreshFields, HeartbeatResponse, HeartbeatResponseFields,
    RefreshHeader, RefreshHeaderFields, RefreshRequest, RefreshRequestFields, RequestResponse,
    RequestResponseFields, RequestStatus as PillarStatus, SecurityStatus, SourceTimeReference, SymbolClear,
    SymbolIndexMapping, SymbolIndexMappingRequest, SymbolIndexMappingRequestFields,
};
use tapeworks_wire::nyse::packet::{DeliveryFlag, HEADER_BYTES, PillarPacket};
use tapeworks_wire::{Ascii, SecondsSinceEpoch};

use super::packets::{self, CONNECTION, each_message, is_heartbeat, tag};
use super::requests::source;
use crate::dialect::connection::{Malformed, PacketReader, SECOND_NS};
use crate::dialect::requests::{DayTime, RequestLogin};
use crate::dialect::snapshots::{BLOCK_BYTES, Fetched, Flow, Image, SnapshotFailure, SnapshotRules};
use crate::nasdaq::Glimpse;

/// Images are framed like GLIMPSE's until a client requests them.
pub(crate) static SNAPSHOTS: SnapshotRules = SnapshotRules {
    is_on_group: true,
    silence_ns: 125 * SECOND_NS,
    ..SnapshotRules::new(&CONNECTION, Flow::OnRequest, &Glimpse)
};

/// How long a response may take, in ns.
const RESPONSE_NS: u64 = SECOND_NS;

/// The missing part is requested again after this long without progress, in ns.
const QUIET_NS: u64 = SECOND_NS / 2;

/// Up to this many missing symbols are requested one by one. If more are missing, all symbols are.
const MOST_SINGLE: usize = 50;

/// The most requests per fetch. A venue limits the requests per day.
const MOST_REQUESTS: u32 = 500;

/// The most bytes of messages that a client keeps.
const MOST_BYTES: usize = 256 << 20;

/// The most requests of a client waiting for an image.
const MOST_WANTED: usize = 64;

/// The most symbols of a snapshot.
const MOST_SYMBOLS: usize = 1 << 20;

/// The index that stands for all symbols.
const ALL: u32 = 0;

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The mapping of an index.
    Directory(u32),
    /// The refresh of an index.
    Book(u32),
}

impl Wanted {
    /// Returns whether its answer includes the other's answer.
    const fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Directory(index), Self::Directory(of)) | (Self::Book(index), Self::Book(of)) => {
                index == ALL || index == of
            }
            _ => false,
        }
    }
}

/// Returns the symbol index of a message in a refresh.
fn index_of(message: &[u8]) -> Option<u32> {
    let at = match tag(message) {
        SymbolIndexMapping::TAG => 4,
        SymbolClear::TAG | SecurityStatus::TAG | AddOrderRefresh::TAG => 12,
        _ => return None,
    };
    message.get(at..at + 4).and_then(|index| index.try_into().ok()).map(u32::from_le_bytes)
}

/// The packets of one answer.
#[derive(Debug, Clone, Default)]
struct Parts {
    last_sequence: u32,
    last_symbol_sequence: u32,
    total: u16,
    /// The messages after the header, by packet number.
    parts: BTreeMap<u16, Vec<u8>>,
}

impl Parts {
    fn is_whole(&self) -> bool {
        self.total > 0 && self.parts.len() == usize::from(self.total)
    }

    fn bytes(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Adds a packet and returns whether it was missing. A later answer to the same request replaces an incomplete one.
    fn put(&mut self, header: &RefreshHeader<'_>, messages: &[u8]) -> bool {
        let (number, total) = (header.current_refresh_packet(), header.total_refresh_packets());
        if self.is_whole() || !(1..=total).contains(&number) {
            return false;
        }
        let begins = (header.last_sequence(), header.last_symbol_sequence(), total);
        if begins != (self.last_sequence, self.last_symbol_sequence, self.total) {
            if self.total > 0 && begins.0 < self.last_sequence {
                return false;
            }
            (self.last_sequence, self.last_symbol_sequence, self.total) = begins;
            self.parts.clear();
        }
        self.parts.insert(number, messages.to_vec()).is_none()
    }
}

/// Passes on each complete message of a part. A message starts with its length.
fn each_of_part(mut messages: &[u8], mut each: impl FnMut(&[u8])) {
    while let Some(length) =
        messages.first_chunk::<2>().map(|length| usize::from(u16::from_le_bytes(*length)))
        && length >= 4
        && let Some((message, rest)) = messages.split_at_checked(length)
    {
        each(message);
        messages = rest;
    }
}

/// The client's end of one snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefreshClient {
    source: Ascii<10>,
    product: u8,
    channel: u8,
    day_time: DayTime,
    now_ns: u64,
    packets: PacketReader,
    output: Vec<u8>,
    next_number: u32,
    /// The number of the packet awaiting a response, and when it was sent.
    outstanding: Option<(u32, u64)>,
    wanted: VecDeque<Wanted>,
    requests: u32,
    /// The requests that were for the directory.
    directory_requests: u32,
    /// An answer had only one index: the number of directory requests until then.
    single_after: Option<u32>,
    /// The first index seen in a packet of the group.
    first_index: Option<u32>,
    /// A packet of the group had another index.
    has_several: bool,
    /// When a missing packet last arrived, or a request was sent.
    moved_ns: u64,
    directory: Parts,
    /// The symbols by index. Empty until the directory is complete.
    symbols: BTreeMap<u32, Parts>,
    /// Number of incomplete symbols.
    missing: usize,
    kept_bytes: usize,
    /// The messages, once all have arrived.
    whole: Vec<u8>,
    at: usize,
    next: Option<u64>,
    failure: Option<SnapshotFailure>,
    /// Packets that belong to no answer to these requests, and duplicates.
    pub(crate) ignored: u64,
}

impl RefreshClient {
    pub(crate) fn new(login: &RequestLogin, day_time: DayTime, now_ns: u64) -> Self {
        let mut client = Self {
            source: source(login),
            product: login.product,
            channel: login.channel,
            day_time,
            now_ns,
            next_number: 1,
            wanted: VecDeque::from([Wanted::Directory(ALL)]),
            moved_ns: now_ns,
            ..Self::default()
        };
        client.send_next();
        client
    }

    fn put(&mut self, message: &[u8]) -> u32 {
        let number = self.next_number;
        self.output.extend_from_slice(&packets::packet(message, number, self.day_time.at(self.now_ns)));
        self.next_number = number.wrapping_add(1);
        number
    }

    fn send_next(&mut self) {
        if self.outstanding.is_some() {
            return;
        }
        let Some(wanted) = self.wanted.pop_front() else { return };
        if self.requests >= MOST_REQUESTS {
            self.failure = Some(SnapshotFailure::RefreshIncomplete);
            return;
        }
        self.requests += 1;
        let (source_id, product_id, channel_id) = (self.source, self.product, self.channel);
        let number = match wanted {
            Wanted::Directory(symbol_index) => {
                self.directory_requests += 1;
                let fields = SymbolIndexMappingRequestFields {
                    length: SymbolIndexMappingRequest::LENGTH as u16,
                    symbol_index,
                    source_id,
                    product_id,
                    channel_id,
                    retransmit_method: 0,
                };
                self.put(&fields.encode())
            }
            Wanted::Book(symbol_index) => {
                let length = RefreshRequest::LENGTH as u16;
                let fields = RefreshRequestFields { length, symbol_index, source_id, product_id, channel_id };
                self.put(&fields.encode())
            }
        };
        self.outstanding = Some((number, self.now_ns));
        self.moved_ns = self.now_ns;
    }

    fn response(&mut self, message: &[u8]) {
        let response = RequestResponse::decode(message).ok().filter(|_| tag(message) == RequestResponse::TAG);
        let Some(response) = response else { return };
        let is_it = |(number, _): &mut (u32, u64)| *number == response.request_sequence();
        if self.outstanding.take_if(is_it).is_none() {
            return;
        }
        if response.status() != PillarStatus::Accepted {
            self.failure = Some(SnapshotFailure::RefreshRefused);
        }
        self.send_next();
    }

    /// Processes a packet; `None` if it is not part of a refresh, answers none of these requests, or is a duplicate.
    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let packet = PillarPacket::decode(payload).ok()?;
        let is_of_refresh = matches!(
            packet.delivery_flag(),
            DeliveryFlag::OneRefreshPacket
                | DeliveryFlag::RefreshSequenceStart
                | DeliveryFlag::RefreshSequence
                | DeliveryFlag::RefreshSequenceEnd
        );
        if !is_of_refresh || usize::from(packet.length()) != payload.len() {
            return None;
        }
        let (mut header, mut indices, mut are_mappings, mut is_first) = (None, Vec::new(), true, true);
        let is_sound = each_message(payload, &mut |message| {
            if std::mem::take(&mut is_first) {
                header = Some(message.to_vec());
            } else {
                indices.push(index_of(message));
                are_mappings &= tag(message) == SymbolIndexMapping::TAG;
            }
        });
        let header = header.filter(|header| is_sound && tag(header) == RefreshHeader::TAG)?;
        let header = RefreshHeader::decode(&header).ok()?;
        let first = (*indices.first()?)?;
        let messages = payload.get(HEADER_BYTES + RefreshHeader::LENGTH..).unwrap_or_default();
        let is_one_symbol = indices.iter().all(|index| *index == Some(first));
        self.notice(&indices);
        if !self.directory.is_whole() {
            let is_of_directory = are_mappings
                && indices.iter().all(Option::is_some)
                && match (is_one_symbol, header.total_refresh_packets()) {
                    (true, 1) => self.is_confirmed(),
                    // Only the last packet has room left, so only it may have a single mapping.
                    (true, total) => header.current_refresh_packet() == total,
                    (false, _) => true,
                };
            let was_missing = is_of_directory && self.directory.put(&header, messages);
            self.note(was_missing, messages.len())?;
            if self.directory.is_whole() {
                self.begin_books();
            }
            return Some(());
        }
        // Mappings alone are part of a directory. An earlier refresh for another client may predate this snapshot's first live message.
        if !is_one_symbol || are_mappings || header.last_sequence() < self.directory.last_sequence {
            return None;
        }
        if !self.symbols.contains_key(&first) {
            if self.symbols.len() >= MOST_SYMBOLS {
                self.failure = Some(SnapshotFailure::RefreshIncomplete);
                return None;
            }
            self.symbols.insert(first, Parts::default());
            self.missing += 1;
        }
        let symbol = self.symbols.get_mut(&first).filter(|symbol| !symbol.is_whole())?;
        let was_missing = symbol.put(&header, messages);
        self.missing -= usize::from(symbol.is_whole());
        self.note(was_missing, messages.len())?;
        if self.missing == 0 && self.has_several {
            self.finish();
        }
        Some(())
    }

    /// Notes the indices of a packet, whichever client it answers. A directory of one index is discarded if another exists.
    fn notice(&mut self, indices: &[Option<u32>]) {
        let is_certain = self.has_several;
        for index in indices.iter().flatten() {
            self.has_several |= self.first_index.get_or_insert(*index) != index;
        }
        if self.has_several && !is_certain && self.directory.is_whole() {
            self.directory = Parts::default();
            self.symbols.clear();
            (self.missing, self.kept_bytes) = (0, 0);
            self.wanted = VecDeque::from([Wanted::Directory(ALL)]);
            self.send_next();
        }
    }

    /// Returns whether a single-index answer is the directory: a repeated request got it too, and no other index is known.
    fn is_confirmed(&mut self) -> bool {
        if self.has_several {
            return false;
        }
        if let Some(requests) = self.single_after {
            return self.directory_requests > requests;
        }
        self.single_after = Some(self.directory_requests);
        self.wanted.push_back(Wanted::Directory(ALL));
        self.send_next();
        false
    }

    fn note(&mut self, was_missing: bool, bytes: usize) -> Option<()> {
        if !was_missing {
            return None;
        }
        self.moved_ns = self.now_ns;
        self.kept_bytes += bytes;
        if self.kept_bytes > MOST_BYTES {
            self.failure = Some(SnapshotFailure::RefreshIncomplete);
        }
        Some(())
    }

    /// Requests the symbols once the directory is complete.
    fn begin_books(&mut self) {
        for part in self.directory.parts.values() {
            each_of_part(part, |message| {
                if let Some(index) = index_of(message) {
                    self.symbols.entry(index).or_default();
                }
            });
        }
        self.missing = self.symbols.len();
        self.wanted.clear();
        self.wanted.push_back(Wanted::Book(ALL));
        self.send_next();
    }

    /// Joins all messages, each symbol's after its header.
    fn finish(&mut self) {
        let mut next = u64::from(self.directory.last_sequence) + 1;
        for parts in std::mem::take(&mut self.symbols).into_values() {
            next = next.min(u64::from(parts.last_sequence) + 1);
            let header = header_of(1, 1, (parts.last_sequence, parts.last_symbol_sequence));
            self.whole.reserve(parts.bytes() + header.len());
            self.whole.extend_from_slice(&header);
            parts.parts.values().for_each(|part| self.whole.extend_from_slice(part));
        }
        self.next = Some(next);
    }

    /// Takes the bytes to send next.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Processes bytes of the connection.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut packets = std::mem::take(&mut self.packets);
        let read = packets.read(&CONNECTION, bytes, |packet| {
            if is_heartbeat(packet) {
                let length = HeartbeatResponse::LENGTH as u16;
                let answer = HeartbeatResponseFields { length, source_id: self.source };
                self.put(&answer.encode());
            }
            let is_sound = each_message(packet, &mut |message| self.response(message));
            if !is_sound {
                self.failure = Some(SnapshotFailure::Malformed);
            }
            is_sound
        });
        self.packets = packets;
        if read.is_err() {
            self.failure = Some(SnapshotFailure::Malformed);
        }
    }

    /// Processes a packet of the group.
    pub(crate) fn receive_datagram(&mut self, payload: &[u8]) {
        if self.next.is_none() && self.failure.is_none() && self.take(payload).is_none() {
            self.ignored += 1;
        }
    }

    /// Runs the timers: requests missing packets again.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.next.is_some() || self.failure.is_some() {
            return;
        }
        let since = |time_ns: u64| self.now_ns.saturating_sub(time_ns);
        if self.outstanding.is_some_and(|(_, sent_ns)| since(sent_ns) >= RESPONSE_NS) {
            self.outstanding = None;
        }
        if self.outstanding.is_none() && self.wanted.is_empty() && since(self.moved_ns) >= QUIET_NS {
            if !self.directory.is_whole() {
                self.wanted.push_back(Wanted::Directory(ALL));
            } else if self.missing == 0 {
                // A directory of one index that nothing contradicts.
                return self.finish();
            } else if self.missing > MOST_SINGLE {
                self.wanted.push_back(Wanted::Book(ALL));
            } else {
                let missing = self.symbols.iter().filter(|(_, parts)| !parts.is_whole());
                self.wanted.extend(missing.map(|(index, _)| Wanted::Book(*index)));
            }
        }
        self.send_next();
    }

    /// Returns the next part of the snapshot.
    pub(crate) fn fetch(&mut self) -> Result<Option<Fetched<'_>>, SnapshotFailure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let Some(next) = self.next else { return Ok(None) };
        let rest = self.whole.get(self.at..).unwrap_or_default();
        let Some(length) = rest.first_chunk::<2>() else { return Ok(Some(Fetched::End { next })) };
        // The messages of a valid packet have at least four bytes.
        let length = usize::from(u16::from_le_bytes(*length)).max(2);
        self.at += length;
        Ok(Some(Fetched::Message(rest.get(..length).unwrap_or_default())))
    }
}

/// Builds a refresh header: packet number and count, and the last message numbers of the channel and of the symbol.
fn header_of(number: u16, total: u16, (last, last_of_symbol): (u32, u32)) -> [u8; RefreshHeader::LENGTH] {
    let fields = RefreshHeaderFields {
        length: RefreshHeader::LENGTH as u16,
        current_refresh_packet: number,
        total_refresh_packets: total,
        last_sequence: last,
        last_symbol_sequence: last_of_symbol,
    };
    fields.encode()
}

/// The server's end: requests in; responses, and packets for the group, out.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefreshServer {
    packets: PacketReader,
    /// The number of the last packet sent on the connection.
    next_number: u32,
    /// No request includes another: one image answers each symbol once, and the directory once.
    wanted: VecDeque<Wanted>,
    datagrams: VecDeque<Vec<u8>>,
    /// The packets repeat forever.
    is_endless: bool,
    /// The number of the next packet to the group.
    next_datagram: u32,
    /// Messages in all answers.
    pub(crate) messages: u64,
    /// Answers not sent because they need more packets than a header can count.
    pub(crate) unanswered: u64,
}

impl RefreshServer {
    /// Processes a message; `None` if clients may not send it.
    fn message(
        &mut self,
        message: &[u8],
        number: u32,
        source: Option<&str>,
        utc_ns: u64,
        output: &mut Vec<u8>,
    ) -> Option<()> {
        let (wanted, source_id, product_id, channel_id) = match tag(message) {
            HeartbeatResponse::TAG => return HeartbeatResponse::decode(message).ok().map(drop),
            SymbolIndexMappingRequest::TAG => {
                let m = SymbolIndexMappingRequest::decode(message).ok()?;
                (Wanted::Directory(m.symbol_index()), m.source_id(), m.product_id(), m.channel_id())
            }
            RefreshRequest::TAG => {
                let m = RefreshRequest::decode(message).ok()?;
                (Wanted::Book(m.symbol_index()), m.source_id(), m.product_id(), m.channel_id())
            }
            _ => return None,
        };
        let status = match source {
            Some(source) if source_id.trimmed() != source.as_bytes() => PillarStatus::InvalidSource,
            _ if self.wanted.iter().any(|waiting| waiting.covers(wanted)) => PillarStatus::Accepted,
            _ => {
                self.wanted.retain(|waiting| !wanted.covers(*waiting));
                let has_room = self.wanted.len() < MOST_WANTED;
                self.wanted.extend(has_room.then_some(wanted));
                if has_room { PillarStatus::Accepted } else { PillarStatus::TooManyRefreshRequests }
            }
        };
        let response = RequestResponseFields {
            length: RequestResponse::LENGTH as u16,
            request_sequence: number,
            begin_sequence: 0,
            end_sequence: 0,
            source_id,
            product_id,
            channel_id,
            status,
        };
        self.next_number = self.next_number.wrapping_add(1);
        let packet = packets::packet(&response.encode(), self.next_number, utc_ns);
        output.extend_from_slice(&packet);
        Some(())
    }

    /// Builds the packets of one answer.
    fn answer(&mut self, messages: &[&[u8]], last: u32, utc_ns: u64) {
        // For each packet, the number of its messages and their bytes.
        let mut parts: Vec<(u8, usize)> = Vec::new();
        for message in messages {
            match parts.last_mut() {
                // A packet has at most 255 messages, including its header.
                Some((count, bytes)) if *bytes + message.len() <= BLOCK_BYTES && *count < 254 => {
                    *bytes += message.len();
                    *count += 1;
                }
                _ => parts.push((1, message.len())),
            }
        }
        let Ok(total) = u16::try_from(parts.len()) else {
            // A partial answer would look complete.
            self.unanswered += 1;
            return;
        };
        let mut rest = messages.iter();
        for (number, (count, bytes)) in (1..=total).zip(parts) {
            let mut blocks = Vec::with_capacity(RefreshHeader::LENGTH + bytes);
            blocks.extend_from_slice(&header_of(number, total, (last, 0)));
            rest.by_ref().take(usize::from(count)).for_each(|message| blocks.extend_from_slice(message));
            let flag = match number {
                1 if total == 1 => DeliveryFlag::OneRefreshPacket,
                1 => DeliveryFlag::RefreshSequenceStart,
                _ if number == total => DeliveryFlag::RefreshSequenceEnd,
                _ => DeliveryFlag::RefreshSequence,
            };
            let packet = packets::packet_of(flag, count + 1, &blocks, self.next_datagram, utc_ns);
            self.next_datagram = self.next_datagram.wrapping_add(1);
            self.messages += u64::from(count);
            self.datagrams.push_back(packet);
        }
    }

    /// Processes bytes of the client and appends the responses to `output`. If given, only `source` may request.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        source: Option<&str>,
        utc_ns: u64,
        output: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let mut reader = std::mem::take(&mut self.packets);
        let mut is_sound = true;
        let read = reader.read(&CONNECTION, bytes, |packet| {
            let number = packets::number(packet).unwrap_or_default();
            let mut is_known = true;
            is_sound = each_message(packet, &mut |message| {
                is_known &= self.message(message, number, source, utc_ns, output).is_some();
            }) && is_known;
            is_sound
        });
        self.packets = reader;
        if is_sound { read } else { Err(Malformed) }
    }

    /// Returns whether requests are waiting for an image.
    pub(crate) fn wants_image(&self) -> bool {
        !self.wanted.is_empty() && self.datagrams.is_empty()
    }

    /// Builds the packets that answer all waiting requests.
    pub(crate) fn give(&mut self, image: &Image, utc_ns: u64) {
        let symbols = symbols_of(image);
        // NYSE's sequence numbers have 32 bits.
        let last = image.last();
        for wanted in std::mem::take(&mut self.wanted) {
            match wanted {
                Wanted::Directory(index) => {
                    let mappings: Vec<&[u8]> = symbols
                        .iter()
                        .filter(|(of, _)| index == ALL || **of == index)
                        .filter_map(|(_, messages)| messages.first().map(Vec::as_slice))
                        .collect();
                    self.answer(&mappings, last, utc_ns);
                }
                Wanted::Book(index) => {
                    for (_, messages) in symbols.iter().filter(|(of, _)| index == ALL || **of == index) {
                        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
                        self.answer(&messages, last, utc_ns);
                    }
                }
            }
        }
        self.is_endless = image.is_endless;
        if self.is_endless {
            // The last packet is never sent.
            self.datagrams.pop_back();
        }
    }

    /// Takes the next packet for the group.
    pub(crate) fn next_datagram(&mut self) -> Option<Vec<u8>> {
        let datagram = self.datagrams.pop_front()?;
        if self.is_endless {
            self.datagrams.push_back(datagram.clone());
        }
        Some(datagram)
    }

    /// Returns whether there are packets for the group.
    pub(crate) fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }
}

/// Returns each symbol's messages in a refresh, by index: its mapping first, then its state and its orders.
fn symbols_of(image: &Image) -> BTreeMap<u32, Vec<Vec<u8>>> {
    let mut symbols: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    let mut second = SecondsSinceEpoch(0);
    image.each_message(|message| match tag(message) {
        SourceTimeReference::TAG => {
            second = SourceTimeReference::decode(message).map_or(second, |m| m.source_time());
        }
        SymbolIndexMapping::TAG => {
            let index = index_of(message).unwrap_or_default();
            symbols.insert(index, vec![message.to_vec()]);
        }
        SecurityStatus::TAG => {
            if let Some(messages) = index_of(message).and_then(|index| symbols.get_mut(&index)) {
                messages.push(message.to_vec());
            }
        }
        AddOrder::TAG => {
            let Ok(m) = AddOrder::decode(message) else { return };
            let Some(messages) = symbols.get_mut(&m.symbol_index()) else { return };
            let fields = AddOrderRefreshFields {
                length: AddOrderRefresh::LENGTH as u16,
                source_time: second,
                source_time_ns: m.source_time_ns(),
                symbol_index: m.symbol_index(),
                symbol_sequence: m.symbol_sequence(),
                order_id: m.order_id(),
                price: m.price(),
                volume: m.volume(),
                side: m.side(),
                firm_id: m.firm_id(),
                reserved_1: 0,
            };
            messages.push(fields.encode().to_vec());
        }
        _ => {}
    });
    symbols
}

#[cfg(test)]
mod tests;
