//! A target over its seeds and over mutations of them, with no fuzzer but a seeded generator.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tapeworks_wire::schema::SplitMix64;

use crate::{Target, seeds, seeds_of};

/// Mutated inputs of each target, unless another number is wanted.
pub const MUTATED: u64 = 2_000;
/// The most changes of one mutation.
const CHANGES: u64 = 6;
/// Numbers at the edges of their types.
const EDGES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, b'Z'];

/// What a target did not stand.
#[derive(Debug)]
pub enum Failure {
    /// It has no seeds, or they cannot be read.
    Seeds {
        /// The target.
        target: &'static str,
        /// Why, if they cannot be read.
        error: Option<std::io::Error>,
    },
    /// It panicked; the panic itself has been printed.
    Input {
        /// The target.
        target: &'static str,
        /// Which seed or mutation.
        what: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds { target, error: None } => write!(formatter, "{target} has no seeds"),
            Self::Seeds { target, error: Some(error) } => write!(formatter, "the seeds of {target}: {error}"),
            Self::Input { target, what, bytes } => {
                write!(formatter, "{target} fails with {what}: ")?;
                bytes.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
            }
        }
    }
}

/// Changes `input` a little: bits, edges, cuts, repeats, pieces of another.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut SplitMix64) {
    for _ in 0..=random.below(CHANGES) {
        let at = random.below(input.len() as u64 + 1) as usize;
        match random.below(7) {
            0 | 1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 | 3 if at < input.len() => input[at] = EDGES[random.below(8) as usize],
            4 => input.truncate(at),
            5 => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let length = random.below(65).min((other.len() - from) as u64) as usize;
                input.splice(at..at, other[from..from + length].iter().copied());
            }
            _ => {
                let end = (at + random.below(9) as usize).min(input.len());
                input.drain(at..end);
            }
        }
    }
}

/// Runs a target over its seeds and so many mutations of them; gives how many inputs it stood.
///
/// # Errors
/// The first input that it does not stand, or that it has no seeds.
pub fn attempt((name, target): Target, mutated: u64) -> Result<u64, Failure> {
    let seeds_failed = |error| Failure::Seeds { target: name, error };
    let mut inputs = seeds::made(name).map_err(|error| seeds_failed(Some(error)))?;
    inputs.extend(seeds::kept(seeds_of(name)).map_err(|error| seeds_failed(Some(error)))?);
    if inputs.is_empty() {
        return Err(seeds_failed(None));
    }
    let stands = |input: &[u8], what: &dyn Fn() -> String| {
        catch_unwind(AssertUnwindSafe(|| target(input))).map_err(|_| Failure::Input {
            target: name,
            what: what(),
            bytes: input.to_vec(),
        })
    };
    for (number, input) in inputs.iter().enumerate() {
        stands(input, &|| format!("seed {number}"))?;
    }
    let mut random = SplitMix64::new(0xf0220);
    for number in 0..mutated {
        let pick = |random: &mut SplitMix64| random.below(inputs.len() as u64) as usize;
        let (one, other) = (pick(&mut random), pick(&mut random));
        let mut input = inputs[one].clone();
        mutate(&mut input, &inputs[other], &mut random);
        stands(&input, &|| format!("mutation {number} of seed {one}"))?;
    }
    Ok(inputs.len() as u64 + mutated)
}
