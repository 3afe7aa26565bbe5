//! Records of a plant's stream, from messages of Protocol Buffers (`clients/proto/tapeworks.proto`; "Encoding" of its document).
//!
//! A message has some 60 bytes and 20 fields and lengths, each a loop of its own: in Python that takes some ten times as long.

use std::fmt;

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The greatest number of a field that is known; those of greater numbers are skipped.
const MOST_FIELDS: usize = 11;
const STATES: [&str; 4] = ["one-sided", "normal", "locked", "crossed"];
const SIDES: [&str; 3] = ["N", "B", "A"];

/// Why bytes are no message.
#[derive(Debug)]
enum Wrong {
    CutOff,
    Long,
    WireType(u64),
    Length { bytes: u64, left: usize },
    Text,
}

impl fmt::Display for Wrong {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutOff => to.write_str("a number that is cut off"),
            Self::Long => to.write_str("a number of more than 64 bits"),
            Self::WireType(kind) => write!(to, "wire type {kind}"),
            Self::Length { bytes, left } => write!(to, "a field of {bytes} bytes where {left} are left"),
            Self::Text => to.write_str("a symbol that is not UTF-8"),
        }
    }
}

impl From<Wrong> for PyErr {
    fn from(wrong: Wrong) -> Self {
        PyValueError::new_err(wrong.to_string())
    }
}

fn number(bytes: &mut &[u8]) -> Result<u64, Wrong> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Wrong::CutOff)?;
        *bytes = rest;
        value |= u64::from(first & 0x7F) << shift;
        if *first < 0x80 {
            return Ok(value);
        }
    }
    Err(Wrong::Long)
}

fn part<'b>(bytes: &mut &'b [u8], length: u64) -> Result<&'b [u8], Wrong> {
    let wrong = Wrong::Length { bytes: length, left: bytes.len() };
    let (part, rest) = usize::try_from(length).ok().and_then(|at| bytes.split_at_checked(at)).ok_or(wrong)?;
    *bytes = rest;
    Ok(part)
}

/// The fields of a message by their numbers. Of one that is there twice the last counts.
#[derive(Default)]
struct Fields<'b> {
    numbers: [Option<u64>; MOST_FIELDS + 1],
    parts: [Option<&'b [u8]>; MOST_FIELDS + 1],
}

impl<'b> Fields<'b> {
    fn read(mut bytes: &'b [u8]) -> Result<Self, Wrong> {
        let mut fields = Self::default();
        while !bytes.is_empty() {
            let tag = number(&mut bytes)?;
            let place = usize::try_from(tag >> 3).unwrap_or(usize::MAX);
            match tag & 7 {
                0 => {
                    let value = number(&mut bytes)?;
                    if let Some(field) = fields.numbers.get_mut(place) {
                        *field = Some(value);
                    }
                }
                2 => {
                    let length = number(&mut bytes)?;
                    let value = part(&mut bytes, length)?;
                    if let Some(field) = fields.parts.get_mut(place) {
                        *field = Some(value);
                    }
                }
                kind @ (1 | 5) => {
                    let _skipped = part(&mut bytes, if kind == 1 { 8 } else { 4 })?;
                }
                other => return Err(Wrong::WireType(other)),
            }
        }
        Ok(fields)
    }

    fn part(&self, field: usize) -> Option<&'b [u8]> {
        self.parts.get(field).copied().flatten()
    }

    /// A `uint64`.
    fn long(&self, field: usize) -> u64 {
        self.numbers.get(field).copied().flatten().unwrap_or(0)
    }

    /// A `uint32`.
    fn short(&self, field: usize) -> u64 {
        self.long(field) & u64::from(u32::MAX)
    }

    /// A `sint64`, if it is there.
    fn optional(&self, field: usize) -> Option<i64> {
        let zigzag = |number: u64| (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        self.numbers.get(field).copied().flatten().map(zigzag)
    }

    fn signed(&self, field: usize) -> i64 {
        self.optional(field).unwrap_or(0)
    }

    /// A value of an enum. One that is newer than this client is its number.
    fn name(&self, field: usize, names: &[&str]) -> String {
        let number = self.long(field);
        let name = usize::try_from(number).ok().and_then(|at| names.get(at));
        name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
    }

    fn symbol(&self) -> Result<&'b str, Wrong> {
        std::str::from_utf8(self.part(1).unwrap_or_default()).map_err(|_| Wrong::Text)
    }
}

/// The number of a record's kind (2: NBBO, 3: trade, 4: gap, 5: lagged) and its values, which begin with the event; `None` if the kind
/// is none that is known here. `ValueError`: the bytes are no record.
#[pyfunction]
pub(crate) fn decode_stream<'py>(
    py: Python<'py>,
    message: &[u8],
) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
    let record = Fields::read(message)?;
    let event = record.long(1);
    let Some((kind, body)) = (2..=5).find_map(|kind| Some((kind, record.part(kind)?))) else {
        return Ok(None);
    };
    let body = Fields::read(body)?;
    let values = match kind {
        2 => (
            event,
            body.symbol()?,
            body.signed(2),
            body.signed(3),
            body.optional(4),
            body.optional(5),
            body.short(6),
            body.short(7),
            body.short(8),
            body.short(9),
            body.short(10),
            body.name(11, &STATES),
        )
            .into_bound_py_any(py),
        3 => (
            event,
            body.symbol()?,
            body.signed(2),
            body.signed(3),
            body.signed(4),
            body.short(5),
            body.short(6),
            body.name(7, &SIDES),
            body.short(8),
        )
            .into_bound_py_any(py),
        4 => {
            let (publisher, channel) = (body.short(1), body.short(2));
            (event, publisher, channel, body.long(3), body.long(4), body.signed(5), body.signed(6))
                .into_bound_py_any(py)
        }
        _ => (event, body.long(1), body.long(2), body.long(3)).into_bound_py_any(py),
    };
    Ok(Some((kind, values?)))
}
