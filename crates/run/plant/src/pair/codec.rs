//! The protocol between the two plants of a pair.
//!
//! A frame is its length (u32: of the type and the contents), its type (u8) and its contents, all little-endian. Arbitrary bytes
//! are parsed without a panic: a frame that is too long, of an unknown type or of a wrong length ends the connection.

use tapeworks_journal::MAX_PAYLOAD_BYTES;

/// The first bytes of a [`Hello`]: the protocol and its version.
const MAGIC: [u8; 8] = *b"TWPAIR1\0";

/// Length of a [`Hello`] in bytes.
const HELLO_BYTES: usize = 8 + 4 * 8 + 1 + 1 + 8 + 8 + 4 + 8;

/// Upper bound of a plausible number of takeovers, with room for the next one's number.
const MOST_EPOCH: u64 = 1 << 48;

/// The longest refusal, in bytes.
const MOST_TEXT: usize = 512;

/// The longest frame, in bytes: the longest record of a journal, with its header and the frame's own fields.
pub(super) const MOST_FRAME_BYTES: usize = MAX_PAYLOAD_BYTES + 256;

/// A plant's current role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// It has not agreed with the other plant yet.
    #[default]
    Starting,
    /// It processes its lines, and a standby may follow it.
    Primary,
    /// It follows a primary.
    Standby,
}

impl Role {
    /// Returns the display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Primary => "primary",
            Self::Standby => "standby",
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Starting),
            1 => Some(Self::Primary),
            2 => Some(Self::Standby),
            _ => None,
        }
    }
}

/// What identifies a record among all records with its number: its time, in ns, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tip {
    pub(super) time: u64,
    pub(super) checksum: u32,
}

/// A plant's identity, settings and position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Hello {
    /// Different at each start.
    pub(super) instance: u64,
    /// Fingerprint of the version, venues, rules and symbols.
    pub(super) engine: u64,
    /// Fingerprint of the lines' addresses.
    pub(super) lines: u64,
    /// Number of takeovers, as far as the plant knows.
    pub(super) epoch: u64,
    pub(super) role: Role,
    /// Whether it is to be the primary unless the other plant has more.
    pub(super) wants_primary: bool,
    /// Whether it wants the other plant's records from `next` on; otherwise it only asks.
    pub(super) follows: bool,
    /// Whether it asks if it may follow, without following yet.
    pub(super) only_asks: bool,
    /// The number of its next record.
    pub(super) next: u64,
    /// Its last record.
    pub(super) tip: Tip,
}

/// Why a plant refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The venues, rules or symbols differ.
    Configuration,
    /// The lines differ.
    Lines,
    /// This plant is not the primary now.
    NotPrimary,
    /// The plant connected to itself.
    Itself,
    /// Another standby follows already.
    Taken,
    /// The other plant's journal is not a prefix of this one.
    Diverged,
    /// The journal no longer has the requested records.
    NotKept,
    /// Another reason, given in the text.
    Other,
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::Configuration,
        Self::Lines,
        Self::NotPrimary,
        Self::Itself,
        Self::Taken,
        Self::Diverged,
        Self::NotKept,
        Self::Other,
    ];
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'b> {
    /// The first frame of the connecting side.
    Hello(Hello),
    /// The answer to a hello.
    Welcome(Hello),
    Refused {
        reason: Reason,
        text: &'b str,
    },
    /// The peer may follow: records follow, starting with the `next` of its hello.
    Accepted,
    /// Records of the journal, unchanged.
    Records {
        /// The next record of the primary.
        next: u64,
        records: &'b [u8],
    },
    /// A heartbeat, for lack of records.
    Beat {
        next: u64,
    },
    /// The standby's journal has the records before this one.
    Acknowledged {
        next: u64,
    },
    /// The primary is stopping, and has sent all records.
    Bye,
}

/// The result of parsing the first frame of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parsed<'b> {
    /// A frame, and its length in bytes.
    Frame(Frame<'b>, usize),
    /// More bytes are needed.
    Cut,
    /// Not the pair protocol, and why.
    Bad(&'static str),
}

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    for number in [hello.instance, hello.engine, hello.lines, hello.epoch] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(hello.role as u8);
    out.push(u8::from(hello.wants_primary) | u8::from(hello.follows) << 1 | u8::from(hello.only_asks) << 2);
    for number in [hello.next, hello.tip.time] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&hello.tip.checksum.to_le_bytes());
    // Reserved for later.
    out.extend_from_slice(&[0; 8]);
}

/// Takes numbers from the front of some bytes; past the end, zeros.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.0 = rest;
                *taken
            }
            None => [0; N],
        }
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

fn hello(contents: &[u8]) -> Result<Hello, &'static str> {
    if !contents.starts_with(&MAGIC) {
        return Err("not a plant of a pair, or one of another version");
    }
    if contents.len() != HELLO_BYTES {
        return Err("a hello of a wrong length");
    }
    let mut fields = Fields(contents);
    let _magic: [u8; 8] = fields.take();
    let (instance, engine, lines, epoch) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());
    if epoch > MOST_EPOCH {
        return Err("a hello of an impossible epoch");
    }
    let [role, flags] = fields.take();
    Ok(Hello {
        instance,
        engine,
        lines,
        epoch,
        role: Role::of(role).ok_or("a hello of an unknown role")?,
        wants_primary: flags & 1 != 0,
        follows: flags & 2 != 0,
        only_asks: flags & 4 != 0,
        next: fields.u64(),
        tip: Tip { time: fields.u64(), checksum: u32::from_le_bytes(fields.take()) },
    })
}

impl<'b> Frame<'b> {
    /// Appends the frame's bytes. Truncates the text of a refusal that is too long.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Self::Hello(hello) => {
                out.push(1);
                put_hello(hello, out);
            }
            Self::Welcome(hello) => {
                out.push(2);
                put_hello(hello, out);
            }
            Self::Refused { reason, text } => {
                let end = (0..=text.len().min(MOST_TEXT)).rev().find(|at| text.is_char_boundary(*at));
                out.extend_from_slice(&[3, *reason as u8]);
                out.extend_from_slice(text.get(..end.unwrap_or(0)).unwrap_or_default().as_bytes());
            }
            Self::Accepted => out.push(4),
            Self::Records { next, records } => {
                out.push(5);
                out.extend_from_slice(&next.to_le_bytes());
                out.extend_from_slice(records);
            }
            Self::Beat { next } => {
                out.push(6);
                out.extend_from_slice(&next.to_le_bytes());
            }
            Self::Acknowledged { next } => {
                out.push(7);
                out.extend_from_slice(&next.to_le_bytes());
            }
            Self::Bye => out.push(8),
        }
        let length = (out.len() - start - 4) as u32;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Parses the frame at the start of `bytes`.
    pub(super) fn parse(bytes: &'b [u8]) -> Parsed<'b> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Parsed::Cut };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > MOST_FRAME_BYTES {
            return Parsed::Bad("a frame of an impossible length");
        }
        let Some(frame) = rest.get(..length) else {
            // A frame of an unknown type is rejected without waiting for the rest.
            let is_known = rest.first().is_none_or(|kind| (1..=8).contains(kind));
            return if is_known { Parsed::Cut } else { Parsed::Bad("a frame of an unknown type") };
        };
        let Some((kind, contents)) = frame.split_first() else { return Parsed::Bad("an empty frame") };
        let next = contents.first_chunk().map(|next| u64::from_le_bytes(*next));
        let is_number = contents.len() == 8;
        let parsed = match (kind, next) {
            (1, _) => hello(contents).map(Self::Hello),
            (2, _) => hello(contents).map(Self::Welcome),
            (3, _) => refused(contents),
            (4, _) if contents.is_empty() => Ok(Self::Accepted),
            (5, Some(next)) => Ok(Self::Records { next, records: contents.get(8..).unwrap_or_default() }),
            (6, Some(next)) if is_number => Ok(Self::Beat { next }),
            (7, Some(next)) if is_number => Ok(Self::Acknowledged { next }),
            (8, _) if contents.is_empty() => Ok(Self::Bye),
            (4..=8, _) => Err("a frame of a wrong length"),
            _ => Err("a frame of an unknown type"),
        };
        match parsed {
            Ok(frame) => Parsed::Frame(frame, 4 + length),
            Err(why) => Parsed::Bad(why),
        }
    }
}

fn refused(contents: &[u8]) -> Result<Frame<'_>, &'static str> {
    let (reason, text) = contents.split_first().ok_or("a refusal without a reason")?;
    let reason = Reason::ALL.get(usize::from(*reason)).ok_or("a refusal of an unknown reason")?;
    let text = std::str::from_utf8(text).map_err(|_| "a refusal that is not text")?;
    if text.len() > MOST_TEXT {
        return Err("a refusal that is too long");
    }
    Ok(Frame::Refused { reason: *reason, text })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_hello(numbers: [u64; 6], role: u8, flags: [bool; 3], checksum: u32) -> Hello {
        let [instance, engine, lines, epoch, next, time] = numbers;
        Hello {
            instance,
            engine,
            lines,
            epoch: epoch % (MOST_EPOCH + 1),
            role: Role::of(role % 3).unwrap(),
            wants_primary: flags[0],
            follows: flags[1],
            only_asks: flags[2],
            next,
            tip: Tip { time, checksum },
        }
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written_and_not_before_it_is_whole(
            numbers: [u64; 6], role: u8, flags: [bool; 3], checksum: u32, kind in 0usize..8, reason in 0usize..8,
            text in ".{0,80}", records: Vec<u8>,
        ) {
            let hello = some_hello(numbers, role, flags, checksum);
            let next = numbers[0];
            let frame = [
                Frame::Hello(hello),
                Frame::Welcome(hello),
                Frame::Refused { reason: Reason::ALL[reason], text: &text },
                Frame::Accepted,
                Frame::Records { next, records: &records },
                Frame::Beat { next },
                Frame::Acknowledged { next },
                Frame::Bye,
            ][kind];
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            let length = bytes.len();
            for end in 0..length {
                prop_assert_eq!(Frame::parse(&bytes[..end]), Parsed::Cut);
            }
            bytes.extend_from_slice(&[9; 5]);
            prop_assert_eq!(Frame::parse(&bytes), Parsed::Frame(frame, length));
        }

        #[test]
        fn a_reader_of_any_bytes_takes_no_more_than_there_are(bytes: Vec<u8>, kind in 0u8..10, length in 0u32..100) {
            for bytes in [bytes.clone(), [&length.to_le_bytes()[..], &[kind], &bytes].concat()] {
                if let Parsed::Frame(frame, taken) = Frame::parse(&bytes) {
                    prop_assert!(taken <= bytes.len());
                    let mut again = Vec::new();
                    frame.encode(&mut again);
                    prop_assert_eq!(again.len(), taken);
                }
            }
        }
    }

    #[test]
    fn a_stranger_is_refused_at_its_first_bytes() {
        assert!(matches!(Frame::parse(b"GET / HTTP/1.1\r\n"), Parsed::Bad(_)));
        assert!(matches!(Frame::parse(b"\x10\0\0\0\x16\x03\x01"), Parsed::Bad(_)));
        let mut hello = Vec::new();
        Frame::Hello(Hello::default()).encode(&mut hello);
        hello[10] = b'2';
        assert!(matches!(Frame::parse(&hello), Parsed::Bad(why) if why.contains("another version")));
    }

    #[test]
    fn a_plant_of_an_impossible_epoch_deposes_nobody() {
        for (epoch, is_taken) in [(MOST_EPOCH, true), (MOST_EPOCH + 1, false), (u64::MAX, false)] {
            let mut bytes = Vec::new();
            Frame::Hello(Hello { epoch, ..Hello::default() }).encode(&mut bytes);
            assert_eq!(matches!(Frame::parse(&bytes), Parsed::Frame(..)), is_taken, "{epoch}");
        }
    }

    #[test]
    fn a_refusal_that_is_too_long_is_cut_between_letters() {
        let (text, mut bytes) = ("ä".repeat(400), Vec::new());
        Frame::Refused { reason: Reason::Other, text: &text }.encode(&mut bytes);
        let Parsed::Frame(Frame::Refused { text, .. }, _) = Frame::parse(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(text.len(), MOST_TEXT);
    }
}
