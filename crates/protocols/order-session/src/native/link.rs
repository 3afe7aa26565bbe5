//! One connection of a native session: splits bytes into messages, buffers output, and detects silence.

use tapeworks_planted::planted;
use tapeworks_wire::millennium::native::{Heartbeat, HeartbeatFields, START_OF_MESSAGE, message_length};
use tapeworks_wire::millennium::stream::{Messages, StreamError};
use tapeworks_wire::millennium::variant::Variant;

use tapeworks_session::outgoing::Outgoing;

/// Initial capacity of a connection's output buffer, in bytes.
const OUTPUT_CAPACITY_BYTES: usize = 64 << 10;

/// Builds a heartbeat.
pub(super) fn heartbeat() -> [u8; Heartbeat::LENGTH] {
    HeartbeatFields { start_of_message: START_OF_MESSAGE, message_length: message_length(Heartbeat::LENGTH) }
        .encode()
}

/// When a side sends heartbeats, and when it gives the other side up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    heartbeat_ns: u64,
    dead_ns: u64,
}

impl Timing {
    pub(super) fn of(variant: &Variant) -> Self {
        let heartbeat_ns = variant.heartbeat_interval_ns.max(1);
        Self { heartbeat_ns, dead_ns: heartbeat_ns.saturating_mul(variant.missed_heartbeats.max(1).into()) }
    }

    /// Returns the silence after which the other side is considered dead, in nanoseconds.
    pub(super) const fn dead_ns(&self) -> u64 {
        self.dead_ns
    }
}

/// Splits the bytes of one connection into messages. Keeps the start of an incomplete message.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageReader {
    start: Vec<u8>,
}

impl MessageReader {
    /// Reads bytes and passes each complete message to `each` until it returns `false`.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), StreamError> {
        let is_joined = !self.start.is_empty();
        if is_joined {
            self.start.extend_from_slice(bytes);
        }
        let joined = std::mem::take(&mut self.start);
        let mut messages = Messages::new(if is_joined { &joined } else { bytes });
        let ended = loop {
            match messages.next() {
                Some(Ok(message)) => {
                    if !each(message) {
                        break Ok(());
                    }
                }
                Some(Err(error)) if !error.is_cut() => break Err(error),
                Some(Err(_)) | None => break Ok(()),
            }
        };
        let used = messages.offset();
        if is_joined {
            self.start = joined;
            self.start.drain(..used);
        } else {
            self.start = joined;
            self.start.extend_from_slice(bytes.get(used..).unwrap_or_default());
        }
        ended
    }

    /// Returns the number of buffered bytes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.start.len()
    }
}

/// One connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) reader: MessageReader,
    output: Outgoing,
    /// When the connection was opened.
    since_ns: u64,
    /// When bytes were last received.
    heard_ns: u64,
    /// When bytes were last sent, or last queued while nothing was waiting.
    moved_ns: u64,
    /// When a message was last queued.
    put_ns: u64,
}

impl Link {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            reader: MessageReader::default(),
            output: Outgoing::with_capacity(OUTPUT_CAPACITY_BYTES),
            since_ns: now_ns,
            heard_ns: now_ns,
            moved_ns: now_ns,
            put_ns: now_ns,
        }
    }

    /// Resets for a new connection and keeps the buffers.
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.reader.start.clear();
        self.output.clear();
        (self.since_ns, self.heard_ns, self.moved_ns, self.put_ns) = (now_ns, now_ns, now_ns, now_ns);
    }

    /// Queues a message.
    pub(super) fn put(&mut self, message: &[u8], now_ns: u64) {
        if self.output.unsent_bytes() == 0 {
            self.moved_ns = now_ns;
        }
        self.output.put(message);
        self.put_ns = now_ns;
    }

    pub(super) fn output(&self) -> &[u8] {
        self.output.unsent()
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.output.unsent_bytes()
    }

    pub(super) fn sent(&mut self, bytes: usize, now_ns: u64) {
        if bytes > 0 {
            self.output.sent(bytes);
            self.moved_ns = now_ns;
        }
    }

    pub(super) const fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// Returns the time since the connection was opened.
    pub(super) const fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// Returns the time since a message was last queued.
    pub(super) const fn idle_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.put_ns)
    }

    /// Returns whether the other side has sent nothing, or read nothing, for too long.
    pub(super) const fn is_dead(&self, timing: &Timing, now_ns: u64) -> bool {
        let is_silent = now_ns.saturating_sub(self.heard_ns) >= timing.dead_ns;
        let is_stalled =
            self.output.unsent_bytes() > 0 && now_ns.saturating_sub(self.moved_ns) >= timing.dead_ns;
        is_silent || is_stalled
    }

    /// Queues a heartbeat if nothing was queued for the interval.
    pub(super) fn keep_alive(&mut self, timing: &Timing, now_ns: u64) {
        if self.idle_ns(now_ns) >= timing.heartbeat_ns && !planted!("heartbeat-not-sent") {
            self.put(&heartbeat(), now_ns);
        }
    }

    /// Returns when [`Link::keep_alive`] or the silence check of [`Link::is_dead`] is due next.
    pub(super) const fn due_ns(&self, timing: &Timing) -> u64 {
        let (beat_ns, dead_ns) =
            (self.put_ns.saturating_add(timing.heartbeat_ns), self.heard_ns.saturating_add(timing.dead_ns));
        if beat_ns < dead_ns { beat_ns } else { dead_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_the_bytes_are_cut() {
        let stream = b"\x02\x01\x000\x02\x02\x00N\x03\x02\x03\x00n\x01\x02";
        for cut in 1..=stream.len() {
            let (mut reader, mut messages) = (MessageReader::default(), Vec::new());
            for part in stream.chunks(cut) {
                let read = reader.read(part, |message| {
                    messages.push(message.to_vec());
                    true
                });
                assert_eq!(read, Ok(()));
            }
            assert_eq!(
                messages,
                [&b"\x02\x01\x000"[..], b"\x02\x02\x00N\x03", b"\x02\x03\x00n\x01\x02"],
                "{cut}"
            );
            assert_eq!(reader.kept(), 0);
        }
        let wrong = MessageReader::default().read(b"\x02\x01\x000\x07", |_| true);
        assert_eq!(wrong, Err(StreamError::WrongStart { offset: 4, found: 7 }));
    }
}
