//! What both ends of a connection have: bytes in both directions, and the times at which they moved.

use super::DayTime;
use crate::dialect::connection::{Connection, PacketReader};
use crate::outgoing::Outgoing;

/// One end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    connection: &'static Connection,
    pub(super) packets: PacketReader,
    pub(super) output: Outgoing,
    /// The number of the next packet with a message, where the header has one.
    next_number: u32,
    pub(super) day_time: DayTime,
    /// When the connection was established.
    pub(super) since_ns: u64,
    /// When bytes were last received.
    pub(super) heard_ns: u64,
    /// When bytes were last sent, or last queued while nothing was waiting.
    pub(super) moved_ns: u64,
    /// When a packet was last queued.
    pub(super) put_ns: u64,
}

impl Link {
    /// Creates a link established at `now_ns`.
    pub(super) fn new(connection: &'static Connection, day_time: DayTime, now_ns: u64) -> Self {
        Self {
            connection,
            packets: PacketReader::default(),
            output: Outgoing::default(),
            next_number: 1,
            day_time,
            since_ns: now_ns,
            heard_ns: now_ns,
            moved_ns: now_ns,
            put_ns: now_ns,
        }
    }

    /// Discards all bytes: the connection is established again.
    pub(super) fn reset(&mut self, now_ns: u64) {
        *self = Self::new(self.connection, self.day_time, now_ns);
    }

    /// Queues a packet with this message, or a heartbeat if it is empty.
    pub(super) fn send(&mut self, message: &[u8], now_ns: u64) {
        let packet = (self.connection.packet)(message, self.next_number, self.day_time.at(now_ns));
        self.next_number = self.next_number.wrapping_add(u32::from(!message.is_empty()));
        self.put(&packet, now_ns);
    }

    /// Queues packets.
    pub(super) fn put(&mut self, packets: &[u8], now_ns: u64) {
        if self.output.unsent_bytes() == 0 {
            self.moved_ns = now_ns;
        }
        self.output.put(packets);
        self.put_ns = now_ns;
    }

    /// Records that this many bytes were sent.
    pub(super) fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes > 0 {
            self.output.sent(bytes);
            self.moved_ns = now_ns;
        }
    }
}
