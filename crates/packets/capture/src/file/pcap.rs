//! The pcap format: a 24-byte file header, then records of a 16-byte header and the packet.

use super::{ByteOrder, Fault, LinkType, MAX_CAPTURED_BYTES, Record, Step, four};

pub(super) const FILE_HEADER_BYTES: usize = 24;
pub(super) const RECORD_HEADER_BYTES: usize = 16;

pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// The fields of the file header that apply to every record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    order: ByteOrder,
    /// Nanoseconds per unit of a record's fraction of a second.
    fraction_ns: u32,
    link_type: LinkType,
}

impl Header {
    /// Returns the byte order and the nanoseconds per time unit for a magic number.
    pub(super) fn magic(bytes: [u8; 4]) -> Option<(ByteOrder, u32)> {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            match order.u32(bytes) {
                MAGIC_MICROSECONDS => return Some((order, 1_000)),
                MAGIC_NANOSECONDS => return Some((order, 1)),
                _ => {}
            }
        }
        None
    }

    pub(super) fn parse(bytes: &[u8; FILE_HEADER_BYTES]) -> Option<Self> {
        let (order, fraction_ns) = Self::magic(four(bytes, 0))?;
        // The upper half of the last field is flags (length of the frame check sequence), not link type.
        let link_type = LinkType((order.u32(four(bytes, 20)) & 0xffff) as u16);
        Some(Self { order, fraction_ns, link_type })
    }

    #[inline]
    pub(super) fn step(&self, window: &[u8]) -> Result<Step, Fault> {
        let Some(head) = window.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Step::More(RECORD_HEADER_BYTES));
        };
        let seconds = self.order.u32(four(head, 0));
        let fraction = self.order.u32(four(head, 4));
        let captured = self.order.u32(four(head, 8)) as usize;
        let original_length = self.order.u32(four(head, 12));
        if captured > MAX_CAPTURED_BYTES {
            return Err(Fault::AbsurdLength { length: captured as u64 });
        }
        let end = RECORD_HEADER_BYTES + captured;
        if window.len() < end {
            return Ok(Step::More(end));
        }
        // Both factors are 32 bits wide, so neither product nor sum reaches 64.
        let timestamp_ns =
            u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.fraction_ns);
        Ok(Step::Packet(Record {
            start: RECORD_HEADER_BYTES,
            captured,
            end,
            timestamp_ns,
            original_length,
            link_type: self.link_type,
        }))
    }
}
