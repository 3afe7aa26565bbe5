//! Messages in bytes, and an output that writes replies as a session does, without allocation.

#![allow(clippy::unwrap_used, reason = "the texts fit their fields and buffers")]
#![allow(dead_code, reason = "no user needs all of it")]

use tapeworks_fix_wire::order_entry::HeaderFields;
use tapeworks_fix_wire::{LastSecond, PreparedFields, Writer};
use tapeworks_translate::ids::ClientIndex;
use tapeworks_translate::{Outputs, Reply, Report};
use tapeworks_wire::millennium::native::{ExecType, ExecutionReport, message_length};
use tapeworks_wire::{Ascii, NanosecondsSinceEpoch};

const TIME: NanosecondsSinceEpoch = NanosecondsSinceEpoch(1_709_197_200_000_000_000);

/// Writes replies, and counts.
#[derive(Debug)]
pub(crate) struct Bytes {
    buffer: [u8; 1_024],
    pub(crate) to_venue: u64,
    pub(crate) to_clients: u64,
    /// The length of the last message.
    pub(crate) length: usize,
    comp_ids: PreparedFields,
    second: LastSecond,
}

impl Default for Bytes {
    fn default() -> Self {
        let comp_ids = |writer: &mut Writer<'_>| _ = writer.text(49, b"TAPEWORKS").text(56, b"CLIENT01");
        Self {
            buffer: [0; 1_024],
            to_venue: 0,
            to_clients: 0,
            length: 0,
            comp_ids: PreparedFields::new(comp_ids).unwrap(),
            second: LastSecond::NONE,
        }
    }
}

impl Outputs for Bytes {
    fn to_venue(&mut self, message: &[u8]) {
        self.to_venue += 1;
        self.length = message.len();
    }

    fn to_client(&mut self, _: ClientIndex, reply: &Reply<'_>) {
        self.to_clients += 1;
        let mut writer = Writer::begin(&mut self.buffer, b"FIX.4.4", reply.message_type());
        writer.set_second(self.second);
        writer.prepared(&self.comp_ids).number(34, self.to_clients).timestamp(52, TIME.0);
        reply.write(&mut writer);
        self.second = writer.second();
        self.length = writer.finish().unwrap().len();
    }

    fn unmatched(&mut self, report: &Report) {
        panic!("{report:?}");
    }
}

/// Writes a FIX message with a header.
pub(crate) fn written(kind: &[u8], body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    numbered(kind, 2, body)
}

/// Writes a FIX message with this MsgSeqNum in its header.
pub(crate) fn numbered(kind: &[u8], sequence: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = [0; 1_024];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
    HeaderFields::new(b"CLIENT01", b"TAPEWORKS", sequence, TIME).write(&mut writer);
    body(&mut writer);
    writer.finish().unwrap().to_vec()
}

/// A native execution report of instrument 11, in the bytes of the document.
pub(crate) fn execution(
    number: i32,
    kind: ExecType,
    name: &str,
    order: u64,
    price_e8: i64,
    last: i32,
    leaves: i32,
) -> [u8; ExecutionReport::LENGTH] {
    let mut bytes = [0; ExecutionReport::LENGTH];
    bytes[0] = 2;
    bytes[1..3].copy_from_slice(&message_length(ExecutionReport::LENGTH).to_le_bytes());
    (bytes[3], bytes[4]) = (b'8', 1);
    bytes[5..9].copy_from_slice(&number.to_le_bytes());
    bytes[9..21].copy_from_slice(format!("E{number:011}").as_bytes());
    bytes[21..41].copy_from_slice(&Ascii::<20>::new(name).unwrap().0);
    bytes[41..53].copy_from_slice(format!("O{order:011}").as_bytes());
    bytes[53] = kind.raw();
    bytes[71..79].copy_from_slice(&price_e8.to_le_bytes());
    bytes[79..83].copy_from_slice(&last.to_le_bytes());
    bytes[83..87].copy_from_slice(&leaves.to_le_bytes());
    bytes[118] = b'A';
    bytes[119..127].copy_from_slice(&(number as u64).to_le_bytes());
    bytes[127..131].copy_from_slice(&((TIME.0 / 1_000_000_000) as u32).to_le_bytes());
    bytes
}
