//! Framed files: batches of any size give the same messages; cuts and damage are reported.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{Cursor, Write};

use proptest::prelude::*;
use tapeworks_capture::framed::{BATCH_BYTES, FramedReader, MAX_FRAME_BYTES, write_frame};
use tapeworks_capture::source::ByteSource;

fn file_of(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for message in messages {
        write_frame(&mut file, message).expect("memory takes it");
    }
    file
}

/// Each message and where it lies.
type Messages = Vec<(u64, Vec<u8>)>;

/// All messages with their offsets, the batches they came in, and the error that ended the reading.
fn read_all(mut reader: FramedReader) -> (Messages, usize, Option<String>) {
    let (mut messages, mut batches) = (Vec::new(), 0);
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => {
                batches += 1;
                messages.extend(batch.map(|frame| (frame.offset, frame.bytes.to_vec())));
            }
            Ok(None) => break,
            Err(error) => {
                assert!(reader.next_batch().expect("ended").is_none());
                return (messages, batches, Some(error.to_string()));
            }
        }
    }
    assert_eq!(reader.messages(), messages.len() as u64);
    (messages, batches, None)
}

fn in_memory(file: &[u8]) -> FramedReader {
    FramedReader::new(ByteSource::from_bytes("test", file.to_vec()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn streamed(bytes: Vec<u8>) -> FramedReader {
    FramedReader::new(ByteSource::from_reader("test", Box::new(Cursor::new(bytes)), None).expect("opens"))
}

#[test]
fn a_large_file_comes_in_bounded_batches_that_hold_every_message_once() {
    let messages: Vec<Vec<u8>> =
        (0..60_000_u32).map(|index| vec![index as u8; 12 + index as usize % 40]).collect();
    let file = file_of(&messages);
    let (mapped, batches, error) = read_all(in_memory(&file));
    assert_eq!(error, None);
    assert!(batches >= file.len() / BATCH_BYTES && batches <= 2 * file.len() / BATCH_BYTES, "{batches}");
    for ((offset, message), expected) in mapped.iter().zip(&messages) {
        assert_eq!(message, expected);
        assert_eq!(&file[*offset as usize..][..message.len()], &message[..]);
    }
    assert_eq!(mapped.len(), messages.len());
    assert_eq!(read_all(streamed(gzip(&file))).0, mapped);
    assert_eq!(read_all(streamed(file).with_batch_bytes(1)).0, mapped);
}

#[test]
fn frames_of_a_batch_can_be_held_together_and_the_rest_comes_again() {
    let file = file_of(&[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    let mut reader = in_memory(&file);
    let mut batch = reader.next_batch().expect("reads").expect("has messages");
    let (one, two) = (batch.next().expect("one"), batch.next().expect("two"));
    assert_eq!((one.bytes, two.bytes, two.offset), (&b"one"[..], &b"two"[..], 7));
    assert_eq!((batch.bytes(), batch.offset()), (&b"\0\x05three"[..], 10));
    let batch = reader.next_batch().expect("reads").expect("has messages");
    assert_eq!(batch.map(|frame| frame.bytes.to_vec()).collect::<Vec<_>>(), [b"three"]);
    assert!(reader.next_batch().expect("reads").is_none());
    assert_eq!(reader.messages(), 3);
}

#[test]
fn the_longest_message_fits_a_batch() {
    let longest = vec![7; usize::from(u16::MAX)];
    let file = file_of(&[longest.clone(), longest.clone()]);
    assert_eq!(file.len(), 2 * MAX_FRAME_BYTES);
    let (messages, batches, error) = read_all(in_memory(&file).with_batch_bytes(1));
    assert_eq!((messages.len(), batches, error), (2, 2, None));
    assert!(write_frame(&mut Vec::new(), &vec![0; 65_536]).is_err());
}

#[test]
fn frames_of_length_zero_are_counted_not_delivered() {
    let file = file_of(&[vec![], b"one".to_vec(), vec![], vec![]]);
    let mut reader = in_memory(&file);
    let mut messages = 0;
    while let Some(batch) = reader.next_batch().expect("reads") {
        messages += batch.count();
    }
    assert_eq!((messages, reader.messages(), reader.end_marks()), (1, 1, 3));
}

#[test]
fn a_cut_file_gives_its_whole_messages_and_then_the_place() {
    let file = file_of(&[b"one".to_vec(), b"three".to_vec()]);
    for cut in 0..file.len() {
        let (messages, _, error) = read_all(in_memory(&file[..cut]));
        assert_eq!(messages.len(), usize::from(cut >= 5));
        assert_eq!(error.is_none(), cut == 0 || cut == 5, "cut at {cut}");
    }
    let (_, _, error) = read_all(in_memory(&file[..9]));
    assert_eq!(error.as_deref(), Some("test: message 2 at offset 5: frame needs 7 bytes, 4 left"));
}

#[test]
fn damaged_compression_is_reported_behind_the_messages_before_it() {
    let messages: Vec<Vec<u8>> =
        (0..200_000_u32).map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes().to_vec()).collect();
    let compressed = gzip(&file_of(&messages));
    let (read, _, error) = read_all(streamed(compressed[..compressed.len() / 2].to_vec()));
    assert!(read.len() > 1_000 && read.len() < messages.len(), "{}", read.len());
    assert!(read.iter().map(|(_, message)| message).eq(&messages[..read.len()]));
    assert!(error.expect("an error").starts_with("test: gzip data is damaged or cut after "));
}

proptest! {
    // Messages enough for several batches take a while to make up.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn framed_messages_are_read_back(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..1_500), 0..100),
    ) {
        let file = file_of(&messages);
        let (read, _, error) = read_all(in_memory(&file).with_batch_bytes(1));
        prop_assert_eq!(error, None);
        prop_assert!(read.iter().map(|(_, message)| message).eq(&messages));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_are_all_accounted_for(
        bytes in proptest::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..500),
    ) {
        let (messages, _, error) = read_all(in_memory(&bytes));
        let mut reader = in_memory(&bytes);
        while let Ok(Some(batch)) = reader.next_batch() {
            batch.for_each(drop);
        }
        let taken: usize = messages.iter().map(|(_, message)| message.len() + 2).sum();
        let whole = taken + 2 * reader.end_marks() as usize;
        prop_assert_eq!(whole == bytes.len(), error.is_none());
        prop_assert!(whole <= bytes.len());
    }
}
