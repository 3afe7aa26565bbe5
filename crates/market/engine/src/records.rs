//! Inputs as journal records.

use tapeworks_feed::live::{Input, SnapshotFault};
use tapeworks_journal::Record;
use tapeworks_market::Line;
use tapeworks_time::Nanos;

const PACKET: u8 = 1;
const SNAPSHOT: u8 = 2;
const SNAPSHOT_END: u8 = 3;
const SNAPSHOT_FAILED: u8 = 4;
const TICK: u8 = 5;
const CONTRADICTED: u8 = 6;
const CLOCK_SET: u8 = 7;
const RELAYED: u8 = 8;

const fn line_of(number: u8) -> Line {
    match number {
        0 => Line::A,
        1 => Line::B,
        2 => Line::Recovery,
        _ => Line::Snapshot,
    }
}

/// Encodes an input as a record. `scratch` holds the fields that have no room in the record's header.
pub fn record_of<'r>(input: &Input<&'r [u8]>, scratch: &'r mut [u8; 16]) -> Record<'r> {
    let blank = Record { time: input.time().0, ..Record::default() };
    match *input {
        Input::Packet { channel, line, payload, .. } => {
            Record { kind: PACKET, channel, line: line as u8, payload, ..blank }
        }
        Input::Snapshot { channel, attempt, messages, .. } => {
            Record { kind: SNAPSHOT, channel, extra: u64::from(attempt), payload: messages, ..blank }
        }
        Input::SnapshotEnd { channel, attempt, next, bytes, .. } => {
            *scratch = (u128::from(bytes) << 64 | u128::from(next)).to_le_bytes();
            Record { kind: SNAPSHOT_END, channel, extra: u64::from(attempt), payload: scratch, ..blank }
        }
        Input::SnapshotFailed { channel, attempt, fault, .. } => {
            Record { kind: SNAPSHOT_FAILED, channel, line: fault as u8, extra: u64::from(attempt), ..blank }
        }
        Input::Contradicted { channel, .. } => Record { kind: CONTRADICTED, channel, ..blank },
        Input::Relayed { payload, .. } => Record { kind: RELAYED, payload, ..blank },
        Input::Tick { .. } => Record { kind: TICK, ..blank },
        Input::ClockSet { ahead_ns, .. } => {
            Record { kind: CLOCK_SET, extra: ahead_ns.cast_unsigned(), ..blank }
        }
    }
}

/// Decodes the input of a record; `None` for a record of another kind.
pub fn input_of<'r>(record: &Record<'r>) -> Option<Input<&'r [u8]>> {
    let Record { channel, time, extra, payload, .. } = *record;
    let received = Nanos(time);
    let attempt = u32::try_from(extra).unwrap_or(u32::MAX);
    Some(match record.kind {
        PACKET => Input::Packet { channel, line: line_of(record.line), received, payload },
        SNAPSHOT => Input::Snapshot { channel, attempt, received, messages: payload },
        SNAPSHOT_END => {
            let both = payload.first_chunk().map(|both| u128::from_le_bytes(*both))?;
            Input::SnapshotEnd { channel, attempt, received, next: both as u64, bytes: (both >> 64) as u64 }
        }
        SNAPSHOT_FAILED => {
            let fault = SnapshotFault::from_number(record.line);
            Input::SnapshotFailed { channel, attempt, fault, received }
        }
        CONTRADICTED => Input::Contradicted { channel, received },
        RELAYED => Input::Relayed { received, payload },
        TICK => Input::Tick { now: received },
        CLOCK_SET => Input::ClockSet { now: received, ahead_ns: extra.cast_signed() },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_survive_a_round_trip() {
        let received = Nanos(7);
        let inputs: [Input<&[u8]>; 8] = [
            Input::Packet { channel: 3, line: Line::Recovery, received, payload: b"abc" },
            Input::Snapshot { channel: 1, attempt: 9, received, messages: b"\0\x01x" },
            Input::SnapshotEnd { channel: 1, attempt: 9, received, next: u64::MAX, bytes: 3 },
            Input::SnapshotFailed { channel: 2, attempt: 1, fault: SnapshotFault::Torn, received },
            Input::Contradicted { channel: 4, received },
            Input::Relayed { received, payload: b"piece" },
            Input::Tick { now: received },
            Input::ClockSet { now: received, ahead_ns: -5 },
        ];
        for input in inputs {
            let mut scratch = [0; 16];
            assert_eq!(input_of(&record_of(&input, &mut scratch)), Some(input));
        }
        assert_eq!(input_of(&Record { kind: tapeworks_journal::LOST, ..Record::default() }), None);
        assert_eq!(input_of(&Record { kind: SNAPSHOT_END, ..Record::default() }), None, "too short");
    }
}
