//! A receiver of the plant's multicast: packets in, records out, and requests for lost messages.
//!
//! It follows the sequence as the plant follows a venue's ([`tapeworks_follow::arbitration`]): it waits for a missing message,
//! requests it, and only then gives it up and counts it. If the plant no longer keeps the messages, its answer names the oldest one
//! that it does keep, and earlier ones are given up immediately. The receiver begins with the first packet that it receives or,
//! optionally, with the session's first message; the messages before the first packet are then a gap like any other.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use dbn::decode::dbn::RecordDecoder;
use dbn::{RType, RecordRef};
use mio::{Interest, Token};
use tapeworks_capture::LinkType;
use tapeworks_capture::pool::Pool;
use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, Delivery, Join, RetransmissionOptions};
use tapeworks_market::Line;
use tapeworks_nic::{MAX_BATCH, Received, UdpOptions};
use tapeworks_planted::planted;
use tapeworks_session::TransportKind;
use tapeworks_time::Nanos;
use tapeworks_wire::framing::{BigEndian, Blocks};

use crate::subscriber::{Records, SubscribeError};
use tapeworks_runtime::world::{DatagramReceiver as _, Poll as _, Ready, Source as _, System, World};

/// The transport of a plant's own multicast.
const TRANSPORT: TransportKind = TransportKind::MoldUdp64;

/// Link type of datagrams without headers: one reserved for private use.
const BARE: LinkType = LinkType(147);

/// Receive buffer to request from the kernel, in bytes.
const BUFFER_BYTES: usize = 16 << 20;

/// Number of packet buffers, and the longest packet in bytes.
const BUFFERS: usize = 1_024;
const DATAGRAM_BYTES: usize = 2_048;

const LINES: Token = Token(0);
const ANSWERS: Token = Token(1);

/// The options of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverOptions {
    /// The group and its port, or an address of this machine.
    pub group: SocketAddr,
    /// The address of the interface on which the group is joined; `None` leaves the choice to the kernel.
    pub interface: Option<Ipv4Addr>,
    /// The server that answers retransmission requests.
    pub retransmission: Option<SocketAddr>,
    /// Whether to request the session from its first message. Otherwise the receiver begins with the first packet.
    pub from_beginning: bool,
    /// How long a read may wait; see [`SubscribeError::is_timeout`].
    pub timeout: Duration,
}

/// The counters of a receiver.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReceiverCounters {
    /// The session.
    pub session: String,
    /// The number of the first expected message, in the first session.
    pub first: u64,
    /// The number of the next message.
    pub next: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Sequence gaps.
    pub gaps_opened: u64,
    /// Sequence gaps filled by requests.
    pub filled: u64,
    /// Messages received as answers to requests.
    pub recovered: u64,
    /// Retransmission requests.
    pub requests: u64,
    /// Requests that the system did not accept.
    pub unsent_requests: u64,
    /// Messages given up.
    pub missing: u64,
    /// Messages that are not DBN records.
    pub not_records: u64,
    /// Packets that are damaged or too long.
    pub malformed: u64,
    /// Datagrams that the kernel dropped because they were not read in time.
    pub kernel_drops: u64,
}

/// A queue between an arbiter, which delivers messages, and a reader of records. It has no socket.
#[derive(Debug)]
pub struct RecordQueue {
    decoder: RecordDecoder<VecDeque<u8>>,
    waiting: usize,
    /// The number of the next message to pass on.
    next: u64,
    /// The first message number of the first session.
    first: Option<u64>,
    not_records: u64,
    /// Unreadable messages of the last packet.
    unread: u64,
}

/// Receives a plant's multicast.
#[derive(Debug)]
pub struct Receiver<W: World = System> {
    options: ReceiverOptions,
    lines: W::DatagramReceiver,
    answers: W::DatagramReceiver,
    poll: W::Poll,
    ready: Vec<Ready>,
    /// Whether the sockets may have more datagrams: the poll reports them once.
    may_have_more: bool,
    pool: Pool,
    /// When it was opened, by the time of day and by a clock that cannot be set, so that setting the time of day does not prolong a
    /// gap.
    opened: (Nanos, Instant),
    arbiter: Arbiter,
    queue: RecordQueue,
    too_long: u64,
    unsent_requests: u64,
}

/// Returns whether a message is exactly one record of a kind that plants send. The check is needed because the decoder trusts a
/// record's length.
pub(crate) fn is_record(message: &[u8]) -> bool {
    let Some(&[length, kind]) = message.first_chunk::<2>() else { return false };
    let Ok(kind) = RType::try_from(kind) else { return false };
    let wanted = match kind {
        RType::Mbo => size_of::<dbn::MboMsg>(),
        RType::Mbp0 => size_of::<dbn::TradeMsg>(),
        RType::Mbp1 | RType::Tbbo => size_of::<dbn::Mbp1Msg>(),
        RType::Mbp10 => size_of::<dbn::Mbp10Msg>(),
        RType::Bbo1S | RType::Bbo1M => size_of::<dbn::BboMsg>(),
        RType::Cmbp1 | RType::Tcbbo => size_of::<dbn::Cmbp1Msg>(),
        RType::Cbbo1S | RType::Cbbo1M => size_of::<dbn::CbboMsg>(),
        RType::Status => size_of::<dbn::StatusMsg>(),
        RType::Imbalance => size_of::<dbn::ImbalanceMsg>(),
        RType::Statistics => size_of::<dbn::StatMsg>(),
        RType::InstrumentDef => size_of::<dbn::InstrumentDefMsg>(),
        RType::Ohlcv1S | RType::Ohlcv1M | RType::Ohlcv1H | RType::Ohlcv1D => size_of::<dbn::OhlcvMsg>(),
        RType::SymbolMapping => size_of::<dbn::SymbolMappingMsg>(),
        _ => return false,
    };
    wanted == message.len() && usize::from(length) * 4 == wanted
}

impl Default for RecordQueue {
    fn default() -> Self {
        Self {
            decoder: RecordDecoder::new(VecDeque::new()),
            waiting: 0,
            next: 0,
            first: None,
            not_records: 0,
            unread: 0,
        }
    }
}

impl RecordQueue {
    /// Returns the number of waiting records.
    pub const fn len(&self) -> usize {
        self.waiting
    }

    /// Returns whether no record waits.
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the number of messages that were skipped because they are not DBN records.
    pub const fn not_records(&self) -> u64 {
        self.not_records
    }

    /// Takes the next record, if there is one.
    ///
    /// # Errors
    /// The decoder's error for a record that it cannot read.
    pub fn pop(&mut self) -> Result<Option<RecordRef<'_>>, dbn::Error> {
        if self.waiting == 0 {
            return Ok(None);
        }
        self.waiting -= 1;
        self.decoder.decode_ref()
    }

    /// Returns how many messages at the end of the last packet could not be read, once; the next call returns `None`.
    pub fn take_unread(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.unread)).filter(|unread| *unread > 0)
    }

    /// Processes a delivery of the arbiter.
    pub fn take(&mut self, delivery: Delivery<'_>) {
        match delivery {
            Delivery::Packet { payload, header, .. } => {
                let blocks = Blocks::counted(payload.get(20..).unwrap_or_default(), header.count, BigEndian);
                let numbers = header.numbers();
                self.unread = header.count;
                for (number, message) in numbers.zip(blocks.filter_map(Result::ok)) {
                    self.unread -= 1;
                    if number < self.next {
                        continue;
                    }
                    self.next = number.saturating_add(1);
                    if is_record(message) {
                        self.decoder.get_mut().extend(message);
                        self.waiting += 1;
                    } else {
                        self.not_records += 1;
                    }
                }
            }
            Delivery::Session { first, .. } => {
                self.next = first;
                self.first.get_or_insert(first);
            }
            // Counted by the arbiter. A message that arrives after it was given up counts as missing, and is not passed on.
            Delivery::Gap { missing: (first, count), .. } => {
                self.next = self.next.max(first.saturating_add(count));
            }
            Delivery::Late { .. }
            | Delivery::Joining { .. }
            | Delivery::Silent { .. }
            | Delivery::Heard { .. } => {}
        }
    }
}

impl Receiver {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`SubscribeError::Connection`].
    pub fn open(options: ReceiverOptions) -> Result<Self, SubscribeError> {
        Self::open_in(options)
    }
}

impl<W: World> Receiver<W> {
    /// Opens the sockets like [`Receiver::open`], in any world.
    ///
    /// # Errors
    /// [`SubscribeError::Connection`].
    pub fn open_in(options: ReceiverOptions) -> Result<Self, SubscribeError> {
        let failed = |address| move |source| SubscribeError::Connection { address, source };
        let poll = W::Poll::new(2).map_err(failed(options.group))?;
        let open = |listen: SocketAddr, token| {
            let udp = UdpOptions {
                listen,
                interface: options.interface,
                receive_buffer_bytes: Some(BUFFER_BYTES),
                with_headers: false,
                busy_poll_us: 0,
            };
            let mut receiver = W::DatagramReceiver::open(udp, BARE).map_err(failed(listen))?;
            receiver.register(&poll, token, Interest::READABLE).map_err(failed(listen))?;
            Ok::<_, SubscribeError>(receiver)
        };
        let any: SocketAddr =
            if options.group.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let arbiter = ArbiterOptions {
            retransmission: options.retransmission.map(|_| RetransmissionOptions {
                timeout_ns: 50_000_000,
                answers_name_oldest: true,
                ..RetransmissionOptions::default()
            }),
            join: if options.from_beginning { Join::Beginning } else { Join::FirstHeard },
            restarts_rename: true,
            ..ArbiterOptions::default()
        };
        Ok(Self {
            options,
            lines: open(options.group, LINES)?,
            answers: open(any, ANSWERS)?,
            poll,
            ready: Vec::new(),
            may_have_more: true,
            pool: Pool::new(BUFFERS, DATAGRAM_BYTES),
            opened: (W::time_of_day(), W::instant()),
            arbiter: Arbiter::new(TRANSPORT, arbiter),
            queue: RecordQueue::default(),
            too_long: 0,
            unsent_requests: 0,
        })
    }

    /// Returns the address it listens on; for port 0, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.lines.local_address()
    }

    /// Returns the counters.
    pub fn counters(&mut self) -> ReceiverCounters {
        let counters = self.arbiter.counters();
        ReceiverCounters {
            session: self.arbiter.session().map(|session| session.to_string()).unwrap_or_default(),
            first: self.queue.first.unwrap_or_default(),
            next: self.arbiter.next().unwrap_or_default(),
            messages: counters.messages,
            gaps_opened: counters.gaps_opened,
            filled: counters.filled_by_retransmission,
            recovered: counters.recovered,
            requests: counters.requests,
            unsent_requests: self.unsent_requests,
            missing: if counters.missing > 0 && planted!("receiver-gives-up-silently") {
                0
            } else {
                counters.missing
            },
            not_records: self.queue.not_records(),
            malformed: self.too_long + self.arbiter.lines().iter().map(|line| line.malformed).sum::<u64>(),
            kernel_drops: self.lines.query_drops(),
        }
    }

    /// Returns whether the session has ended and nothing more is expected.
    fn is_over(&self) -> bool {
        self.arbiter.counters().ends_of_session > 0 && !self.arbiter.is_recovering()
    }

    /// Returns the time by the arbiter's clock.
    fn now(&self) -> Nanos {
        let (time_of_day, at) = self.opened;
        let since_ns = u64::try_from(W::since(at).as_nanos()).unwrap_or(u64::MAX);
        Nanos(time_of_day.0.saturating_add(since_ns))
    }

    /// Reads the sockets, and does due tasks.
    fn turn(&mut self) -> Result<(), SubscribeError> {
        let now = self.now();
        let Self {
            options,
            lines,
            answers,
            pool,
            arbiter,
            queue,
            too_long,
            unsent_requests,
            may_have_more,
            ..
        } = self;
        *may_have_more = false;
        for (receiver, line) in [(&mut *lines, Line::A), (&mut *answers, Line::Recovery)] {
            let received = receiver.receive(pool, MAX_BATCH, 0, |received| match received {
                Received::Packet(packet) => {
                    // The arbiter counts headers that cannot be read.
                    let _malformed = arbiter.packet(line, now, packet.bytes(), &mut |one| queue.take(one));
                    if let Some(unread) = queue.take_unread() {
                        arbiter.cannot_read(line, unread);
                    }
                }
                Received::TooLong => *too_long += 1,
            });
            match received {
                Ok(count) => *may_have_more |= count > 0,
                // No server listens there: the request stays unanswered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => *may_have_more = true,
                Err(source) => {
                    return Err(SubscribeError::Connection { address: options.group, source });
                }
            }
        }
        if arbiter.deadline().is_some_and(|deadline| deadline <= now) {
            arbiter.advance(now, &mut |one| queue.take(one));
        }
        while let (Some(request), Some(server)) = (arbiter.take_request(), options.retransmission) {
            *unsent_requests += u64::from(answers.send_to(&request.encode(), server).is_err());
        }
        Ok(())
    }

    /// Waits until a socket has data or something is due, at most for `longest`.
    fn rest(&mut self, longest: Duration) -> Result<(), SubscribeError> {
        if self.may_have_more {
            return Ok(());
        }
        let due = self.arbiter.deadline().map(|deadline| Duration::from_nanos(deadline.since(self.now())));
        let longest = due.map_or(longest, |due| due.min(longest));
        let waited = self.poll.wait(&mut self.ready, Some(longest));
        waited.map_err(|source| SubscribeError::Connection { address: self.options.group, source })
    }
}

impl<W: World> Records for Receiver<W> {
    fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, SubscribeError> {
        let address = self.options.group;
        let began = W::instant();
        while self.queue.is_empty() {
            self.turn()?;
            if !self.queue.is_empty() {
                break;
            }
            if self.is_over() {
                return Ok(None);
            }
            let left = self.options.timeout.saturating_sub(W::since(began));
            if left.is_zero() {
                let source = io::ErrorKind::TimedOut.into();
                return Err(SubscribeError::Connection { address, source });
            }
            self.rest(left)?;
        }
        self.queue.pop().map_err(|source| SubscribeError::Decode { address, source })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use dbn::encode::EncodeRecordTextExt as _;
    use dbn::encode::json::Encoder;
    use proptest::prelude::*;
    use tapeworks_wire::Ascii;
    use tapeworks_wire::nasdaq::moldudp64::DownstreamPacketFields;

    use super::*;
    use crate::clock_tests::Clocked;

    fn packet(first: u64, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut blocks = Vec::new();
        for message in messages {
            blocks.extend_from_slice(&(message.len() as u16).to_be_bytes());
            blocks.extend_from_slice(message);
        }
        let fields = DownstreamPacketFields {
            session: Ascii(*b"2511140000"),
            sequence_number: first,
            message_count: messages.len() as u16,
            messages: &blocks,
        };
        let mut bytes = vec![0; 20 + blocks.len()];
        fields.encode_into(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn messages_that_cannot_be_read_are_reported_once() {
        let messages = [vec![1; 40], vec![2; 40], vec![3; 40]];
        let payload = packet(1, &messages);
        let header = TRANSPORT.header(&payload).unwrap();
        let mut queue = RecordQueue::default();
        for (end, unread) in
            [(20, Some(3)), (20 + 42 + 41, Some(2)), (20 + 2 * 42, Some(1)), (20 + 3 * 42, None)]
        {
            let payload = &payload[..end];
            queue.take(Delivery::Packet { line: Line::A, received: Nanos(0), payload, header });
            assert_eq!((queue.take_unread(), queue.take_unread()), (unread, None), "{end}");
        }
        // Each message was passed on once, and is not a record.
        assert_eq!(queue.not_records(), 3);
    }

    proptest! {
        /// Messages with a matching kind and length and random contents, and invalid messages.
        #[test]
        fn no_message_makes_it_panic(
            messages in prop::collection::vec(
                (
                    prop::sample::select(vec![0xA0u8, 0, 1, 10, 0x12, 0x13, 0x14, 0x16, 0x20, 0x21, 0xB1, 0xC0, 0xC2, 0xC4, 7]),
                    prop::sample::select(vec![14u8, 12, 20, 92, 130, 44, 28, 10, 11, 18, 22, 25, 1, 0]),
                    prop::collection::vec(any::<u8>(), 0..600),
                ),
                1..20,
            ),
        ) {
            let messages: Vec<Vec<u8>> = messages
                .into_iter()
                .map(|(kind, words, mut bytes)| {
                    bytes.resize(usize::from(words) * 4, 0);
                    for (place, value) in bytes.iter_mut().zip([words, kind]) {
                        *place = value;
                    }
                    bytes
                })
                .collect();
            let mut arbiter = Arbiter::new(TRANSPORT, ArbiterOptions::default());
            let mut queue = RecordQueue::default();
            arbiter.packet(Line::A, Nanos(1), &packet(1, &messages), &mut |one| queue.take(one)).unwrap();
            let records = messages.iter().filter(|message| is_record(message)).count();
            prop_assert_eq!(queue.len(), records);
            prop_assert_eq!(queue.not_records() as usize, messages.len() - records);
            let mut received = 0;
            while let Ok(Some(record)) = queue.pop() {
                received += 1;
                let _time = dbn::Record::raw_index_ts(&record);
                // Invalid field values are an error, not a panic.
                let _text = Encoder::new(Vec::new(), false, true, true).encode_ref_with_sym(record, None);
            }
            prop_assert_eq!(received, records);
        }
    }

    fn trade() -> Vec<u8> {
        let mut message = vec![0u8; size_of::<dbn::TradeMsg>()];
        message[0] = (message.len() / 4) as u8;
        message
    }

    /// Returns a receiver on this machine, and a function that sends to it.
    fn opened<W: World>() -> (Receiver<W>, impl Fn(&[u8])) {
        let receiver = Receiver::open_in(ReceiverOptions {
            group: (Ipv4Addr::LOCALHOST, 0).into(),
            interface: None,
            retransmission: None,
            from_beginning: false,
            timeout: Duration::from_secs(5),
        })
        .unwrap();
        let (to, socket) = (receiver.address(), UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        (receiver, move |bytes: &[u8]| assert_eq!(socket.send_to(bytes, to).unwrap(), bytes.len()))
    }

    /// The poll reports a socket once, and a turn takes a bounded number of datagrams.
    #[test]
    fn a_record_behind_more_datagrams_than_a_turn_takes_comes_without_further_ones() {
        let (mut receiver, send) = opened::<System>();
        (0..3 * MAX_BATCH).for_each(|_| send(b"no packet"));
        send(&packet(1, &[trade()]));
        assert!(receiver.next_record().unwrap().is_some());
        assert_eq!(receiver.counters().malformed, 3 * MAX_BATCH as u64);
    }

    /// Regression: the receiver waited for a missing message until the time of day had caught up.
    #[test]
    fn a_missing_message_is_given_up_though_the_clock_is_set_back() {
        let (mut receiver, send) = opened::<Clocked>();
        send(&packet(1, &[trade()]));
        assert!(receiver.next_record().unwrap().is_some());
        Clocked::set_back(Duration::from_secs(3_600));
        send(&packet(3, &[trade()]));
        assert!(receiver.next_record().unwrap().is_some());
        assert_eq!(receiver.counters().missing, 1);
    }

    #[test]
    fn a_message_that_was_given_up_is_not_passed_on_with_those_behind_it() {
        let message = trade();
        let mut arbiter = Arbiter::new(TRANSPORT, ArbiterOptions::default());
        let mut queue = RecordQueue::default();
        // Message 2 is missing, and is given up.
        for (at, first) in [(1, 1), (2, 3)] {
            let bytes = packet(first, std::slice::from_ref(&message));
            arbiter.packet(Line::A, Nanos(at), &bytes, &mut |one| queue.take(one)).unwrap();
        }
        arbiter.advance(Nanos(1_000_000), &mut |one| queue.take(one));
        // It comes too late, with the next ones.
        let bytes = packet(2, &vec![message; 4]);
        arbiter.packet(Line::A, Nanos(1_000_001), &bytes, &mut |one| queue.take(one)).unwrap();
        assert_eq!((queue.len(), queue.next), (4, 6));
        assert_eq!((arbiter.counters().messages, arbiter.counters().missing), (4, 1));
        // Also in a packet that begins before the given-up messages and ends after them.
        let bytes = packet(8, &[trade()]);
        arbiter.packet(Line::A, Nanos(1_000_002), &bytes, &mut |one| queue.take(one)).unwrap();
        arbiter.advance(Nanos(2_000_000), &mut |one| queue.take(one));
        let bytes = packet(6, &vec![trade(); 5]);
        arbiter.packet(Line::A, Nanos(2_000_001), &bytes, &mut |one| queue.take(one)).unwrap();
        let counters = arbiter.counters();
        assert_eq!((counters.messages, counters.missing, queue.len()), (7, 3, 7));
    }

    #[test]
    fn a_repeated_record_is_passed_on_once() {
        let message = trade();
        let mut arbiter = Arbiter::new(TRANSPORT, ArbiterOptions::default());
        let mut queue = RecordQueue::default();
        let mut take = |first, count, queue: &mut RecordQueue| {
            let bytes = packet(first, &vec![message.clone(); count]);
            arbiter.packet(Line::A, Nanos(first), &bytes, &mut |one| queue.take(one)).unwrap();
        };
        take(1, 3, &mut queue);
        take(2, 4, &mut queue);
        take(1, 3, &mut queue);
        assert_eq!((queue.len(), queue.next), (5, 6));
    }
}
