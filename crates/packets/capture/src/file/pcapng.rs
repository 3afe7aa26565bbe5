//! The pcapng format, a sequence of blocks. Enhanced, simple and obsolete packet blocks hold packets, the section header sets
//! the byte order, and interface descriptions set the link type and time unit. Other blocks are skipped.

use super::{ByteOrder, Fault, LinkType, MAX_BLOCK_BYTES, MAX_CAPTURED_BYTES, Record, Step, four};

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

pub(super) const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// Every block has a type, the total length, and the length again at the end.
pub(super) const BLOCK_FRAME_BYTES: usize = 12;

/// State from the sections and interfaces read so far that later packets need.
#[derive(Debug)]
pub(super) struct Sections {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    /// Time of the last packet that had one; simple packet blocks, which carry no time, inherit it.
    last_timestamp_ns: u64,
    /// Simple packet blocks seen: packets without a timestamp.
    pub(super) without_time: u64,
    /// Times that do not fit in 64 bits of nanoseconds since 1970 and were clamped to the nearest that does.
    pub(super) time_out_of_range: u64,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: LinkType,
    /// Maximum bytes kept of a packet; 0 for no limit.
    snap_length: u32,
    unit: TimeUnit,
    offset_seconds: i64,
}

/// How to convert an interface's ticks to nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeUnit {
    Multiply(u64),
    /// Ticks finer than a nanosecond: the remainder is dropped.
    Divide(u64),
    /// A tick is 2 to the minus n seconds.
    Binary(u8),
}

impl TimeUnit {
    const MICROSECOND: Self = Self::Multiply(1_000);

    /// Parses option if_tsresol: a negative power of ten, or of two if the top bit is set.
    fn from_option(value: u8) -> Self {
        let power = u32::from(value & 0x7f);
        match value {
            0x80.. => Self::Binary(value & 0x7f),
            0..=9 => Self::Multiply(10_u64.pow(9 - power)),
            // 10^19 is the largest power of ten in 64 bits; finer ticks never add up to a nanosecond.
            _ => Self::Divide(10_u64.checked_pow(power - 9).unwrap_or(u64::MAX)),
        }
    }

    #[inline]
    fn to_ns(self, ticks: u64) -> u128 {
        match self {
            Self::Multiply(factor) => u128::from(ticks) * u128::from(factor),
            Self::Divide(divisor) => u128::from(ticks / divisor),
            Self::Binary(power) => (u128::from(ticks) * 1_000_000_000) >> power,
        }
    }
}

impl Sections {
    pub(super) fn new() -> Self {
        Self {
            order: ByteOrder::Little,
            interfaces: Vec::new(),
            last_timestamp_ns: 0,
            without_time: 0,
            time_out_of_range: 0,
        }
    }

    #[inline]
    pub(super) fn step(&mut self, window: &[u8]) -> Result<Step, Fault> {
        let Some(head) = window.first_chunk::<BLOCK_FRAME_BYTES>() else {
            return Ok(Step::More(BLOCK_FRAME_BYTES));
        };
        // The section header's type is the same in both byte orders; the bytes after it give the order.
        if four(head, 0) == SECTION_HEADER.to_be_bytes() {
            self.order = match u32::from_le_bytes(four(head, 8)) {
                BYTE_ORDER_MAGIC => ByteOrder::Little,
                magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => ByteOrder::Big,
                _ => {
                    let length = u32::from_le_bytes(four(head, 4));
                    return Err(Fault::BadBlock {
                        length,
                        problem: "no byte-order magic in the section header",
                    });
                }
            };
        }
        let order = self.order;
        let block_type = order.u32(four(head, 0));
        let length = order.u32(four(head, 4));
        let bad = |problem| Err(Fault::BadBlock { length, problem });
        if (length as usize) < BLOCK_FRAME_BYTES || !length.is_multiple_of(4) {
            return bad("a block's length is a multiple of 4 and at least 12");
        }
        let known = matches!(
            block_type,
            SECTION_HEADER | INTERFACE_DESCRIPTION | OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET
        );
        if !known {
            return Ok(Step::Skip(u64::from(length)));
        }
        let end = length as usize;
        if end > MAX_BLOCK_BYTES {
            return bad("longer than the limit of 16 MiB");
        }
        let Some(block) = window.get(..end) else {
            return Ok(Step::More(end));
        };
        if block.last_chunk().map(|trailer| order.u32(*trailer)) != Some(length) {
            return bad("the length at the block's end differs");
        }
        let body = &block[8..end - 4];
        match block_type {
            ENHANCED_PACKET => self.enhanced(body, end),
            SIMPLE_PACKET => self.simple(body, end),
            OBSOLETE_PACKET => self.obsolete(body, end),
            INTERFACE_DESCRIPTION => self.describe(body, length),
            _ => self.begin_section(body, length),
        }
    }

    /// Starts a section: interface numbers restart at 0.
    #[cold]
    fn begin_section(&mut self, body: &[u8], length: u32) -> Result<Step, Fault> {
        let Some(fixed) = body.first_chunk::<16>() else {
            return Err(Fault::BadBlock { length, problem: "a section header has at least 28 bytes" });
        };
        if self.order.u16([fixed[4], fixed[5]]) != 1 {
            return Err(Fault::BadBlock { length, problem: "not version 1 of pcapng" });
        }
        self.interfaces.clear();
        Ok(Step::Skip(u64::from(length)))
    }

    #[cold]
    fn describe(&mut self, body: &[u8], length: u32) -> Result<Step, Fault> {
        let Some((fixed, mut options)) = body.split_first_chunk::<8>() else {
            return Err(Fault::BadBlock {
                length,
                problem: "an interface description has at least 20 bytes",
            });
        };
        let mut interface = Interface {
            link_type: LinkType(self.order.u16([fixed[0], fixed[1]])),
            snap_length: self.order.u32(four(fixed, 4)),
            unit: TimeUnit::MICROSECOND,
            offset_seconds: 0,
        };
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let code = self.order.u16([head[0], head[1]]);
            let value_length = usize::from(self.order.u16([head[2], head[3]]));
            if code == 0 {
                break;
            }
            let Some(value) = rest.get(..value_length) else {
                return Err(Fault::BadBlock { length, problem: "an option is longer than its block" });
            };
            match (code, value) {
                (OPTION_TIME_RESOLUTION, &[resolution]) => interface.unit = TimeUnit::from_option(resolution),
                (OPTION_TIME_OFFSET, &[a, b, c, d, e, f, g, h]) => {
                    let bytes = [a, b, c, d, e, f, g, h];
                    interface.offset_seconds = match self.order {
                        ByteOrder::Little => i64::from_le_bytes(bytes),
                        ByteOrder::Big => i64::from_be_bytes(bytes),
                    };
                }
                (OPTION_TIME_RESOLUTION | OPTION_TIME_OFFSET, _) => {
                    return Err(Fault::BadBlock { length, problem: "a time option has the wrong length" });
                }
                _ => {}
            }
            options = rest.get(value_length.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(Step::Skip(u64::from(length)))
    }

    /// Parses an enhanced packet: interface, time (high, low), captured length, original length, then the packet.
    #[inline]
    fn enhanced(&mut self, body: &[u8], end: usize) -> Result<Step, Fault> {
        let Some(fixed) = body.first_chunk::<20>() else {
            return Err(Fault::BadBlock {
                length: end as u32,
                problem: "an enhanced packet has at least 32 bytes",
            });
        };
        let interface = self.order.u32(four(fixed, 0));
        self.timed_packet(interface, fixed, body.len() - 20, end)
    }

    /// Parses an obsolete packet: 16 bits each of interface and drop count instead of the interface; the rest is the same.
    #[cold]
    fn obsolete(&mut self, body: &[u8], end: usize) -> Result<Step, Fault> {
        let Some(fixed) = body.first_chunk::<20>() else {
            return Err(Fault::BadBlock {
                length: end as u32,
                problem: "an obsolete packet has at least 32 bytes",
            });
        };
        let interface = u32::from(self.order.u16([fixed[0], fixed[1]]));
        self.timed_packet(interface, fixed, body.len() - 20, end)
    }

    #[inline]
    fn timed_packet(
        &mut self,
        number: u32,
        fixed: &[u8; 20],
        room: usize,
        end: usize,
    ) -> Result<Step, Fault> {
        let Some(interface) = self.interfaces.get(number as usize) else {
            return Err(Fault::UnknownInterface { interface: number, described: self.interfaces.len() });
        };
        let link_type = interface.link_type;
        let ticks =
            u64::from(self.order.u32(four(fixed, 4))) << 32 | u64::from(self.order.u32(four(fixed, 8)));
        let captured = self.order.u32(four(fixed, 12)) as usize;
        let original_length = self.order.u32(four(fixed, 16));
        if captured > MAX_CAPTURED_BYTES {
            return Err(Fault::AbsurdLength { length: captured as u64 });
        }
        if captured > room {
            return Err(Fault::BadBlock {
                length: end as u32,
                problem: "the packet is longer than its block",
            });
        }
        // At most 2^64 * 10^9 and 2^63 * 10^9: far inside 127 bits.
        let exact_ns =
            interface.unit.to_ns(ticks) as i128 + i128::from(interface.offset_seconds) * 1_000_000_000;
        let timestamp_ns = u64::try_from(exact_ns).unwrap_or_else(|_| {
            self.time_out_of_range += 1;
            if exact_ns < 0 { 0 } else { u64::MAX }
        });
        self.last_timestamp_ns = timestamp_ns;
        Ok(Step::Packet(Record { start: 28, captured, end, timestamp_ns, original_length, link_type }))
    }

    /// Parses a simple packet: the original length, then the packet, cut to the first interface's snap length.
    #[cold]
    fn simple(&mut self, body: &[u8], end: usize) -> Result<Step, Fault> {
        let length = end as u32;
        let Some(interface) = self.interfaces.first() else {
            return Err(Fault::UnknownInterface { interface: 0, described: 0 });
        };
        let Some((fixed, packet)) = body.split_first_chunk::<4>() else {
            return Err(Fault::BadBlock { length, problem: "a simple packet has at least 16 bytes" });
        };
        let original_length = self.order.u32(*fixed);
        let captured = match interface.snap_length {
            0 => original_length,
            limit => original_length.min(limit),
        } as usize;
        if captured > MAX_CAPTURED_BYTES {
            return Err(Fault::AbsurdLength { length: captured as u64 });
        }
        if captured > packet.len() {
            return Err(Fault::BadBlock { length, problem: "the packet is longer than its block" });
        }
        self.without_time += 1;
        Ok(Step::Packet(Record {
            start: 12,
            captured,
            end,
            timestamp_ns: self.last_timestamp_ns,
            original_length,
            link_type: interface.link_type,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_unit_becomes_nanoseconds() {
        assert_eq!(TimeUnit::from_option(6), TimeUnit::MICROSECOND);
        assert_eq!(TimeUnit::from_option(0).to_ns(7), 7_000_000_000);
        assert_eq!(TimeUnit::from_option(9).to_ns(7), 7);
        assert_eq!(TimeUnit::from_option(12).to_ns(7_999), 7);
        assert_eq!(TimeUnit::from_option(127).to_ns(u64::MAX - 1), 0);
        assert_eq!(TimeUnit::from_option(0x80 | 10).to_ns(512), 500_000_000);
        assert_eq!(TimeUnit::from_option(0xff).to_ns(u64::MAX), 0);
    }
}
