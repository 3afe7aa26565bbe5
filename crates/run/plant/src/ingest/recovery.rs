//! Ingest's requests to servers, and the answers to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapeworks_engine::Engine;
use tapeworks_feed::live::{Input, LiveChannel, Request};
use tapeworks_follow::arbitration::{LineCounters, Usefulness};
use tapeworks_market::Line;
use tapeworks_runtime::world::{DatagramReceiver as _, Receive as _, SendTo as _, World};

use crate::queued::Bytes;
use crate::receive::{LineReceiver, RecoveryServer};
use crate::requests::Outbox;
use crate::snapshots::{Requests, Wanted};
use crate::status::{ChannelStatus, LineStatus, RequesterStatus};

/// Snapshot chunks that may wait for ingest.
const ANSWERS: usize = 64;

/// Requests for missing messages and for snapshots, and their answers.
pub(super) struct Recovery<W: World> {
    /// The server for each channel's requests, and the line whose socket sends them.
    servers: Vec<RecoveryServer>,
    /// Requests to the servers over TCP, if there are any.
    by_tcp: Option<Outbox<W>>,
    /// By channel: answers to requests that contained no missing message.
    discarded_answers: Vec<LineCounters>,
    wanted_snapshots: W::Sender<Wanted>,
    snapshots: W::Receiver<Input<Bytes>>,
    /// By channel: packets of a snapshot's multicast group that belonged to no snapshot.
    snapshot_packets_ignored: Arc<[AtomicU64]>,
}

impl<W: World> Recovery<W> {
    /// Creates ingest's end, and the end of the threads that fetch snapshots.
    pub(super) fn new(servers: Vec<RecoveryServer>, by_tcp: Option<Outbox<W>>) -> (Self, Requests<W>) {
        let (wanted_snapshots, wanted) = W::channel();
        let (answers, snapshots) = W::sync_channel(ANSWERS);
        let ignored: Arc<[AtomicU64]> = servers.iter().map(|_| AtomicU64::new(0)).collect();
        let recovery = Self {
            discarded_answers: vec![LineCounters::default(); servers.len()],
            servers,
            by_tcp,
            wanted_snapshots,
            snapshots,
            snapshot_packets_ignored: Arc::clone(&ignored),
        };
        (recovery, Requests { wanted, answers, ignored })
    }

    /// Sends a request to its server, by the socket of one of the lines or over TCP.
    pub(super) fn send(&self, lines: &[LineReceiver<W>], request: Request) {
        match request {
            // A request that cannot be sent is like one that is lost: it is made again after a while.
            Request::Retransmission { channel, request } => {
                if let Some(requests) = self.by_tcp.as_ref().filter(|requests| requests.serves(channel)) {
                    let _again_if_unsent = requests.send(channel, request);
                } else if let Some((line, to)) = self.servers.get(usize::from(channel)).copied().flatten()
                    && let Some(line) = lines.get(line)
                {
                    let _again_if_unsent = line.receiver.send_to(&request.encode(), to);
                }
            }
            Request::Snapshot { channel, session, attempt } => {
                // If the snapshot thread has ended, no answer comes and the attempt times out.
                let _nobody = self.wanted_snapshots.send(Wanted { channel, session, attempt });
            }
        }
    }

    /// Returns whether answers arrive over TCP.
    pub(super) fn brings_answers(&self) -> bool {
        self.by_tcp.as_ref().is_some_and(Outbox::brings_answers)
    }

    /// Takes the next answer that arrived over TCP, and its channel.
    pub(super) fn take_answer(&self) -> Option<(u16, Vec<u8>)> {
        self.by_tcp.as_ref().and_then(Outbox::take_answer)
    }

    /// Takes the next part of a snapshot.
    pub(super) fn take_snapshot(&self) -> Option<Input<Bytes>> {
        self.snapshots.try_recv().ok()
    }

    /// Returns whether an answer to a request contains no missing message and is to be discarded, so that a server that lies or
    /// repeats itself cannot fill the journal.
    #[cold]
    pub(super) fn discards(&mut self, engine: &Engine, channel: u16, payload: &[u8]) -> bool {
        let usefulness = engine.feed().usefulness_of_answer(channel, payload);
        if let Some(counters) = self.discarded_answers.get_mut(usize::from(channel)) {
            counters.count_discarded(usefulness);
        }
        usefulness != Usefulness::Needed
    }

    /// Returns the status of channel `at`, which is received by `lines`.
    pub(super) fn channel_status<'l>(
        &self,
        at: usize,
        channel: &LiveChannel,
        lines: impl Iterator<Item = &'l mut LineReceiver<W>>,
    ) -> ChannelStatus {
        let requester = self.by_tcp.as_ref().and_then(|requests| requests.status(at));
        let ignored = self.snapshot_packets_ignored.get(at);
        let mut status = ChannelStatus {
            snapshot_packets_ignored: ignored.map_or(0, |ignored| ignored.load(Ordering::Relaxed)),
            ..channel_status(channel, lines, requester)
        };
        let answering = self.by_tcp.as_ref().and_then(|requests| requests.answering(at));
        status.lines.extend(answering.map(|server| line_status(channel, Line::Recovery, server)));
        let answers = status.lines.iter_mut().find(|line| line.line == Line::Recovery);
        if let (Some(line), Some(discarded)) = (answers, self.discarded_answers.get(at)) {
            line.counters.add_discarded(discarded);
        }
        status
    }
}

/// Returns the status of a line, or of the answers to requests, without the socket's counters, which answers over TCP do not have.
fn line_status(channel: &LiveChannel, line: Line, address: SocketAddr) -> LineStatus {
    let arbiter = channel.arbiter();
    LineStatus {
        line,
        address,
        counters: arbiter.lines()[usize::from(line as u8).min(2)],
        is_silent: arbiter.is_line_silent(line),
        kernel_drops: 0,
        too_long: 0,
        buffer_bytes: 0,
        wanted_bytes: 0,
    }
}

fn channel_status<'l, W: World>(
    channel: &LiveChannel,
    lines: impl Iterator<Item = &'l mut LineReceiver<W>>,
    requester: Option<RequesterStatus>,
) -> ChannelStatus {
    let arbiter = channel.arbiter();
    ChannelStatus {
        name: channel.options().name.clone(),
        publisher: channel.options().publisher,
        session: arbiter.session().map(|session| session.to_string()).unwrap_or_default(),
        next: arbiter.next(),
        counters: *arbiter.counters(),
        last_recovery: arbiter.last_recovery().copied(),
        requester,
        snapshots: *channel.snapshots(),
        snapshot_packets_ignored: 0,
        lines: lines
            .map(|line| LineStatus {
                kernel_drops: line.kernel_drops(),
                too_long: line.too_long,
                buffer_bytes: line.buffer_bytes,
                wanted_bytes: line.wanted_bytes,
                ..line_status(channel, line.line, line.address)
            })
            .collect(),
        is_recovering: arbiter.is_recovering(),
        recovering_since: arbiter.recovering_since(),
        is_joining: arbiter.is_joining(),
        is_silent: arbiter.is_silent(),
        is_stale: channel.is_stale(),
    }
}
