//! Files of simulated sessions: one thread generates the market's messages, the caller's thread packs them into packets and writes
//! them.
//!
//! Generating a message is mostly waiting for memory; packing it is most of the rest. The two threads share the work about evenly.
//! The output is byte-identical to a single-threaded run.

use std::io::{self, Write};

use tapeworks_feed::calendar;
use tapeworks_generator::{FileForm, Generated, Generator, MAX_MESSAGE_BYTES, Messages, Report, Scenario};
use tapeworks_time::Nanos;

use crate::ahead::{Ahead, End};

/// Messages per block: with their bytes, about what fits in the L2 cache.
const BLOCK_MESSAGES: usize = 4_096;

/// Messages, and their bytes one after the other.
#[derive(Default)]
struct Block {
    messages: Vec<Generated>,
    bytes: Vec<u8>,
}

/// The messages of a generator that runs on a separate thread.
struct MessagesAhead {
    ahead: Ahead<Block>,
    block: Block,
    /// Number of messages of `block` consumed, and of bytes.
    given: (usize, usize),
    /// The error that ended the messages, if one did.
    failed: io::Result<()>,
}

impl MessagesAhead {
    fn start(mut generator: Generator) -> io::Result<Self> {
        let ahead = Ahead::start("generate", move |block| fill(&mut generator, block))?;
        Ok(Self { ahead, block: Block::default(), given: (0, 0), failed: Ok(()) })
    }
}

/// Fills a block; returns how the session ends if it ends in it.
fn fill(generator: &mut Generator, block: &mut Block) -> End {
    block.messages.clear();
    let mut filled = 0;
    while block.messages.len() < BLOCK_MESSAGES {
        let room_to = filled + MAX_MESSAGE_BYTES;
        if block.bytes.len() < room_to {
            block.bytes.resize(room_to.next_power_of_two(), 0);
        }
        let Some(generated) = generator.next_message(&mut block.bytes[filled..]) else {
            return Some(Ok(()));
        };
        filled += generated.length;
        block.messages.push(generated);
    }
    None
}

impl Messages for MessagesAhead {
    #[inline]
    fn next_message(&mut self, out: &mut [u8]) -> Option<Generated> {
        let (mut number, mut at) = self.given;
        while number == self.block.messages.len() {
            let given = std::mem::take(&mut self.block);
            let next = self.ahead.next((number > 0).then_some(given));
            self.block = match next {
                Ok(next) => next?,
                Err(error) => {
                    self.failed = Err(error);
                    return None;
                }
            };
            (number, at) = (0, 0);
        }
        let generated = *self.block.messages.get(number)?;
        let end = at + generated.length;
        let Some((out, message)) = out.get_mut(..generated.length).zip(self.block.bytes.get(at..end)) else {
            self.failed = Err(io::Error::other("a message has no room"));
            return None;
        };
        out.copy_from_slice(message);
        self.given = (number + 1, end);
        Some(generated)
    }
}

/// Adds this many trading days to a scenario after its first one, skipping weekends and holidays.
pub fn add_days(scenario: &mut Scenario, more: u16) {
    let later = calendar::trading_days_after(Nanos(scenario.midnight_ns)).take(more.into());
    scenario.later_midnights_ns = later.map(|midnight| midnight.0).collect();
}

/// Writes a scenario's session in this form. `sink` need not be buffered.
///
/// # Errors
/// Those of [`FileForm::write`]; the system cannot start a thread.
pub fn write(form: FileForm, scenario: &Scenario, sink: impl Write) -> io::Result<Report> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    form.check(scenario).map_err(invalid)?;
    let mut messages = MessagesAhead::start(Generator::new(scenario).map_err(invalid)?)?;
    let written = form.write(scenario, &mut messages, sink)?;
    messages.failed.map(|()| written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_write_the_bytes_of_one() {
        let day = Scenario { messages: 30_000, symbols: 40, ..Scenario::demo() };
        let (mut by_two, mut by_one) = (Vec::new(), Vec::new());
        let report = write(FileForm::Capture, &day, &mut by_two).unwrap();
        assert_eq!(report, tapeworks_generator::write_pcap(&day, &mut by_one).unwrap());
        assert!(report.messages > 7 * BLOCK_MESSAGES as u64, "several blocks");
        assert!(by_two == by_one);
    }

    #[test]
    fn two_threads_write_the_messages_of_one() {
        let day = Scenario::full_session(20_000, 30);
        let (mut by_two, mut by_one) = (Vec::new(), Vec::new());
        let report = write(FileForm::Itch, &day, &mut by_two).unwrap();
        assert_eq!(report, tapeworks_generator::write_itch(&day, &mut by_one).unwrap());
        assert!(by_two == by_one);
    }

    #[test]
    fn a_sink_that_fails_ends_both_threads() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let day = Scenario::full_session(200_000, 30);
        let error = write(FileForm::Itch, &day, Full(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_message_without_room_is_an_error_and_not_the_end() {
        let generator = Generator::new(&Scenario::full_session(20_000, 30)).unwrap();
        let mut messages = MessagesAhead::start(generator).unwrap();
        assert_eq!(messages.next_message(&mut [0; 3]), None);
        assert!(messages.failed.is_err());
    }

    #[test]
    fn a_scenario_that_breaks_a_rule_is_refused_before_a_byte() {
        let none = Scenario { venues: Vec::new(), ..Scenario::demo() };
        let mut bytes = Vec::new();
        let error = write(FileForm::Capture, &none, &mut bytes).unwrap_err();
        assert_eq!((error.kind(), bytes.len()), (io::ErrorKind::InvalidInput, 0));
    }
}
