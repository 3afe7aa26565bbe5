//! The formulas: their computation, cost, and text.

use std::fmt;

use crate::set::Width;

/// A kind of formula. The order breaks ties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// The distance from the smallest value.
    Direct,
    /// Adjacent bits of the value.
    ShiftMask,
    /// Adjacent bits of the value mixed with its shifted self.
    Mix,
    /// Bits from several places, joined.
    Extract,
    /// The upper bits of a product.
    MultiplyShift,
    /// The remainder of a division.
    XorModulo,
    /// A hash whose lower bits are corrected by a small table.
    Displace,
}

impl Family {
    /// All families, cheapest formula first.
    pub const ALL: [Self; 7] = [
        Self::Direct,
        Self::ShiftMask,
        Self::Mix,
        Self::Extract,
        Self::MultiplyShift,
        Self::XorModulo,
        Self::Displace,
    ];

    /// Returns the name for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::ShiftMask => "shift-mask",
            Self::Mix => "mix",
            Self::Extract => "extract",
            Self::MultiplyShift => "multiply-shift",
            Self::XorModulo => "xor-modulo",
            Self::Displace => "displace",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a value is mixed with its shifted self.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// Exclusive or.
    Xor,
    /// Wrapping addition.
    Add,
    /// Wrapping subtraction.
    Subtract,
}

impl Operator {
    pub(crate) const ALL: [Self; 3] = [Self::Xor, Self::Add, Self::Subtract];
}

/// Adjacent bits of a value: shifted right, then masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// How far to shift right.
    pub shift: u32,
    /// The mask after the shift.
    pub mask: u64,
}

/// A function from values to slots, computed in 32 bits for values of up to 32 bits and in 64 for wider ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Formula {
    /// `value - smallest`, valid below `size`.
    Direct {
        /// The smallest value.
        smallest: u64,
        /// The number of slots.
        size: usize,
    },
    /// `(value >> shift) & (2^bits - 1)`
    ShiftMask {
        /// How far to shift right.
        shift: u32,
        /// Bits of the slot.
        bits: u32,
    },
    /// `((value operator (value >> shift)) >> then) & (2^bits - 1)`
    Mix {
        /// How to mix in the shifted value.
        operator: Operator,
        /// How far to shift the value.
        shift: u32,
        /// How far to shift the mixture.
        then: u32,
        /// Bits of the slot.
        bits: u32,
    },
    /// `((value >> shift) & mask) | ..`
    Extract {
        /// The parts, lowest bits first; their masks do not overlap.
        parts: Vec<Part>,
        /// Bits of the slot.
        bits: u32,
    },
    /// `(value * factor) >> (word - bits)`
    MultiplyShift {
        /// An odd number.
        factor: u64,
        /// Bits of the slot.
        bits: u32,
    },
    /// `(value ^ key) % size`
    XorModulo {
        /// The number to mix in.
        key: u64,
        /// The number of slots.
        size: usize,
    },
    /// `hash = low(value * factor) ^ high(value * factor)`, 64 bits each;
    /// `(hash ^ displacements[hash >> (64 - bucket_bits)]) & (2^bits - 1)`
    Displace {
        /// An odd number.
        factor: u64,
        /// Bits of a bucket's number.
        bucket_bits: u32,
        /// Bits of the slot.
        bits: u32,
        /// One per bucket.
        displacements: Vec<u16>,
    },
}

pub(crate) const fn mask(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

/// Returns the hash of the two-level formula. Uses both halves of the product, so that every bit of the value affects both ends.
pub(crate) const fn folded(value: u64, factor: u64) -> u64 {
    let product = value as u128 * factor as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Cycles of an x86-64 core from the value's arrival: additions, shifts and logic 1, a multiplication 3, a load 5.
const MULTIPLY: u32 = 3;
const LOAD: u32 = 5;

impl Formula {
    /// Returns the formula's family.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::Direct { .. } => Family::Direct,
            Self::ShiftMask { .. } => Family::ShiftMask,
            Self::Mix { .. } => Family::Mix,
            Self::Extract { .. } => Family::Extract,
            Self::MultiplyShift { .. } => Family::MultiplyShift,
            Self::XorModulo { .. } => Family::XorModulo,
            Self::Displace { .. } => Family::Displace,
        }
    }

    /// Returns how many slots it distinguishes.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::Direct { size, .. } | Self::XorModulo { size, .. } => *size,
            Self::ShiftMask { bits, .. }
            | Self::Mix { bits, .. }
            | Self::Extract { bits, .. }
            | Self::MultiplyShift { bits, .. }
            | Self::Displace { bits, .. } => 1 << *bits,
        }
    }

    /// Returns the slot of `value`, below [`size`](Self::size) except in the direct family, where it may be beyond.
    #[inline]
    pub(crate) fn slot(&self, value: u64, width: Width) -> usize {
        let is_wide = width.word_bits() == 64;
        let slot = match self {
            Self::Direct { smallest, .. } => value.wrapping_sub(*smallest),
            Self::ShiftMask { shift, bits } => (value >> shift) & mask(*bits),
            Self::Mix { operator, shift, then, bits } => {
                let mixed = match operator {
                    Operator::Xor => value ^ (value >> shift),
                    Operator::Add => value.wrapping_add(value >> shift),
                    Operator::Subtract => value.wrapping_sub(value >> shift),
                };
                let mixed = if is_wide { mixed } else { mixed & u64::from(u32::MAX) };
                (mixed >> then) & mask(*bits)
            }
            Self::Extract { parts, .. } => {
                parts.iter().fold(0, |slot, part| slot | ((value >> part.shift) & part.mask))
            }
            Self::MultiplyShift { factor, bits } if is_wide => value.wrapping_mul(*factor) >> (64 - bits),
            Self::MultiplyShift { factor, bits } => {
                u64::from((value as u32).wrapping_mul(*factor as u32) >> (32 - bits))
            }
            Self::XorModulo { key, size } => (value ^ key) % *size as u64,
            Self::Displace { factor, bucket_bits, bits, displacements } => {
                let hash = folded(value, *factor);
                let displacement = displacements[(hash >> (64 - bucket_bits)) as usize];
                (hash ^ u64::from(displacement)) & mask(*bits)
            }
        };
        // A slot beyond the address space is beyond every table.
        usize::try_from(slot).unwrap_or(usize::MAX)
    }

    /// Returns the formula's instructions, and its cycles until the slot is known. Copies between registers are free, a constant
    /// of more than 32 bits is one instruction, and the remainder of a division by a constant is five.
    pub(crate) fn instructions(&self, width: Width) -> (u32, u32) {
        let word_bits = width.word_bits();
        match self {
            // The bound is counted with the comparison of the key.
            Self::Direct { smallest, .. } => {
                let subtract = u32::from(*smallest != 0);
                (subtract, subtract)
            }
            Self::ShiftMask { shift, bits } => {
                let count = u32::from(*shift > 0) + u32::from(shift + bits < word_bits);
                (count, count)
            }
            Self::Mix { then, bits, .. } => {
                let count = 2 + u32::from(*then > 0) + u32::from(then + bits < word_bits);
                (count, count)
            }
            Self::Extract { parts, .. } => {
                let each = parts.iter().map(|part| u32::from(part.shift > 0) + 1).sum::<u32>();
                let joins = parts.len() as u32 - 1;
                (each + joins, 2 + parts.len().next_power_of_two().trailing_zeros())
            }
            Self::MultiplyShift { .. } => (2 + u32::from(word_bits == 64), MULTIPLY + 1),
            Self::XorModulo { key, .. } => {
                let xor = u32::from(*key != 0) + u32::from(*key > 0x7fff_ffff);
                (xor + 5, u32::from(*key != 0) + 2 * MULTIPLY + 2)
            }
            // Constant, product, exclusive or, shift, load, exclusive or, mask.
            Self::Displace { .. } => (7, MULTIPLY + 1 + 1 + LOAD + 1 + 1),
        }
    }

    /// Returns the size of the tables other than the keys, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Displace { displacements, .. } => {
                displacements.len() * Self::displacement_width(displacements).bytes()
            }
            _ => 0,
        }
    }

    pub(crate) fn displacement_width(displacements: &[u16]) -> Width {
        Width::of(displacements.iter().copied().max().map_or(0, u64::from))
    }

    /// Returns the formula as a Rust expression. `value` names a value of the word's type, and `DISPLACEMENTS` is the small
    /// table. In the direct formula, the value and the result have the value's own type.
    pub(crate) fn expression(&self, value: &str, width: Width) -> String {
        match self {
            Self::Direct { smallest: 0, .. } => value.to_owned(),
            Self::Direct { smallest, .. } => format!("{value}.wrapping_sub({smallest:#x})"),
            Self::ShiftMask { shift, bits } => masked(&shifted(value, *shift), *shift + *bits, *bits, width),
            Self::Mix { operator, shift, then, bits } => {
                let other = shifted(value, *shift);
                let mixed = match operator {
                    Operator::Xor => format!("({value} ^ {other})"),
                    Operator::Add => format!("{value}.wrapping_add({value} >> {shift})"),
                    Operator::Subtract => format!("{value}.wrapping_sub({value} >> {shift})"),
                };
                masked(&shifted(&mixed, *then), *then + *bits, *bits, width)
            }
            Self::Extract { parts, .. } => {
                let parts =
                    parts.iter().map(|part| format!("({} & {:#x})", shifted(value, part.shift), part.mask));
                parts.collect::<Vec<_>>().join(" | ")
            }
            Self::MultiplyShift { factor, bits } => {
                format!("{value}.wrapping_mul({factor:#x}) >> {}", width.word_bits() - bits)
            }
            Self::XorModulo { key: 0, size } => format!("{value} % {size}"),
            Self::XorModulo { key, size } => format!("({value} ^ {key:#x}) % {size}"),
            Self::Displace { factor, bucket_bits, bits, .. } => {
                format!(
                    "{{ let product = {value} as u128 * {factor:#x}; \
                     let hash = product as u64 ^ (product >> 64) as u64; \
                     (hash ^ DISPLACEMENTS[(hash >> {}) as usize] as u64) & {:#x} }}",
                    64 - bucket_bits,
                    mask(*bits)
                )
            }
        }
    }
}

fn shifted(value: &str, shift: u32) -> String {
    if shift == 0 { value.to_owned() } else { format!("({value} >> {shift})") }
}

/// Returns `shifted & mask`, or no mask if the shift leaves nothing above it.
fn masked(shifted: &str, top: u32, bits: u32, width: Width) -> String {
    if top >= width.word_bits() { shifted.to_owned() } else { format!("{shifted} & {:#x}", mask(bits)) }
}

/// Formats for people: Rust's operators with wrapping arithmetic.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Direct { smallest: 0, .. } => "value".to_owned(),
            Self::Direct { smallest, .. } => format!("value - {smallest:#x}"),
            Self::Mix { operator, shift, then, bits } => {
                let sign = match operator {
                    Operator::Xor => '^',
                    Operator::Add => '+',
                    Operator::Subtract => '-',
                };
                let mixed = shifted(&format!("(value {sign} (value >> {shift}))"), *then);
                format!("{mixed} & {:#x}", mask(*bits))
            }
            Self::ShiftMask { shift, bits } => format!("{} & {:#x}", shifted("value", *shift), mask(*bits)),
            Self::MultiplyShift { factor, bits } => {
                let word = if *factor > u64::from(u32::MAX) { 64 } else { 32 };
                format!("(value * {factor:#x}) >> {}", word - bits)
            }
            Self::Displace { factor, bucket_bits, bits, displacements } => format!(
                "(h ^ d[h >> {}]) & {:#x}, h = low ^ high of value * {factor:#x}, {} displacements",
                64 - bucket_bits,
                mask(*bits),
                displacements.len()
            ),
            Self::Extract { .. } | Self::XorModulo { .. } => self.expression("value", Width::U32),
        };
        f.pad(&text)
    }
}
