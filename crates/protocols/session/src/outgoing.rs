//! Bytes waiting to be sent on a connection.
//!
//! Cost: one copy of the bytes; the space of sent bytes is reused.

/// Sent bytes are removed from the buffer once there are this many and they make up at least half of it.
const COMPACTED_BYTES: usize = 16 << 10;

/// A send buffer. The caller bounds its size with [`Outgoing::unsent_bytes`].
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    /// Creates an empty buffer with this capacity.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), sent: 0 }
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.sent >= COMPACTED_BYTES && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes to send next.
    pub fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Returns the number of bytes to send.
    pub const fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Records that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = self.bytes.len().min(self.sent + bytes);
        if self.sent == self.bytes.len() {
            self.clear();
        }
    }

    /// Discards the unsent bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_in_order_and_the_buffer_stays_small() {
        let mut outgoing = Outgoing::with_capacity(16);
        let (mut put, mut taken) = (0u32, Vec::new());
        for turn in 0..10_000usize {
            outgoing.put(&put.to_be_bytes());
            put += 1;
            let some = outgoing.unsent_bytes().min(turn % 9);
            taken.extend_from_slice(&outgoing.unsent()[..some]);
            outgoing.sent(some);
        }
        assert!(outgoing.bytes.len() < 3 * COMPACTED_BYTES, "{}", outgoing.bytes.len());
        taken.extend_from_slice(outgoing.unsent());
        let expected: Vec<u8> = (0..put).flat_map(u32::to_be_bytes).collect();
        assert_eq!(taken, expected);
        outgoing.sent(usize::MAX >> 1);
        assert_eq!((outgoing.unsent_bytes(), outgoing.unsent()), (0, &[][..]));
    }
}
