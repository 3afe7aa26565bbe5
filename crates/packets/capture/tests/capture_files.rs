//! Capture files made by hand and by the writer: every container, every kind of block, every kind of damage.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use proptest::prelude::*;
use tapeworks_capture::CaptureError;
use tapeworks_capture::new_file::NewFileError;
use tapeworks_capture::source::{ByteSource, Compression, STREAM_BUFFER_BYTES};
use tapeworks_capture::{
    CaptureReader, Format, LinkType, MAX_CAPTURED_BYTES, Resolution, Tally, Writer, WriterOptions,
};
use tempfile::TempDir;

/// A packet, owned: number, offset, time, link type, original length, bytes.
type Owned = (u64, u64, u64, u16, u32, Vec<u8>);

/// All packets of a source, and the error that ended it, in words.
fn read_all(source: ByteSource) -> (Vec<Owned>, Option<String>, Tally) {
    let mut packets = Vec::new();
    let mut reader = match CaptureReader::new(source) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error.to_string()), Tally::default()),
    };
    let error = loop {
        let peeked = reader.next_timestamp_ns();
        match reader.next_packet() {
            Ok(Some(packet)) => {
                assert_eq!(peeked.expect("the packet is there"), Some(packet.timestamp_ns));
                packets.push((
                    packet.number,
                    packet.offset,
                    packet.timestamp_ns,
                    packet.link_type.0,
                    packet.original_length,
                    packet.bytes.to_vec(),
                ));
            }
            // An error found while peeking is returned there, once.
            Ok(None) => break peeked.err().map(|error| error.to_string()),
            Err(error) => panic!("the peek before said nothing of {error}"),
        }
    };
    assert!(reader.next_packet().expect("an ended reader stays ended").is_none());
    (packets, error, reader.tally())
}

fn in_memory(bytes: &[u8]) -> (Vec<Owned>, Option<String>, Tally) {
    read_all(ByteSource::from_bytes("test", bytes.to_vec()))
}

/// A reader that gives its bytes in small pieces, as a pipe may.
struct Dribble(Cursor<Vec<u8>>, usize);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.1.min(buffer.len());
        self.0.read(&mut buffer[..piece])
    }
}

fn streamed(bytes: &[u8], piece: usize) -> Result<ByteSource, CaptureError> {
    ByteSource::from_reader("test", Box::new(Dribble(Cursor::new(bytes.to_vec()), piece)), None)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory takes it")
}

fn write(options: WriterOptions, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).expect("memory takes it");
    for (timestamp_ns, bytes) in packets {
        writer.write_packet(*timestamp_ns, bytes).expect("memory takes it");
    }
    assert_eq!(writer.packets(), packets.len() as u64);
    writer.finish().expect("memory takes it")
}

fn three_packets() -> Vec<(u64, Vec<u8>)> {
    vec![(1_000_000_001, vec![1; 60]), (1_000_000_002, vec![]), (2_000_000_003, vec![3; 1_501])]
}

/// A pcapng block of the given byte order around `body`.
fn block(big_endian: bool, block_type: u32, body: &[u8]) -> Vec<u8> {
    let put = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let padded = body.len().next_multiple_of(4);
    let length = put(12 + padded as u32);
    let mut block = [put(block_type), length].concat();
    block.extend(body);
    block.resize(8 + padded, 0);
    block.extend(length);
    block
}

/// The numbers, each in as many bytes as its second part says, in the given byte order.
fn fields(big_endian: bool, numbers: &[(u64, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (value, width) in numbers {
        let wide = value.to_be_bytes();
        let mut narrow = wide[8 - width..].to_vec();
        if !big_endian {
            narrow.reverse();
        }
        bytes.extend(narrow);
    }
    bytes
}

fn section(big_endian: bool) -> Vec<u8> {
    block(big_endian, 0x0a0d_0d0a, &fields(big_endian, &[(0x1a2b_3c4d, 4), (1, 2), (0, 2), (u64::MAX, 8)]))
}

fn interface(big_endian: bool, link_type: u64, snap_length: u64, options: &[u8]) -> Vec<u8> {
    let fixed = fields(big_endian, &[(link_type, 2), (0, 2), (snap_length, 4)]);
    block(big_endian, 1, &[&fixed, options].concat())
}

fn enhanced(big_endian: bool, interface: u64, ticks: u64, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u64;
    let numbers = [(interface, 4), (ticks >> 32, 4), (ticks & 0xffff_ffff, 4), (length, 4), (length, 4)];
    block(big_endian, 6, &[&fields(big_endian, &numbers), packet].concat())
}

#[test]
fn sections_interfaces_and_every_kind_of_packet_block_are_read() {
    let nanoseconds = fields(false, &[(2, 2), (3, 2), (0x0030_7465, 4), (9, 2), (1, 2), (9, 4), (0, 4)]);
    let shifted = fields(true, &[(14, 2), (8, 2), (1_000, 8), (9, 2), (1, 2), (0x8a00_0000, 4)]);
    let file = [
        section(false),
        interface(false, 1, 0, &[]),            // microseconds
        interface(false, 101, 0, &nanoseconds), // after an option of another kind
        block(false, 5, &[0; 20]),              // interface statistics: skipped
        enhanced(false, 1, 7, b"nano"),
        enhanced(false, 0, 8, b"micro"),
        block(false, 0x0bad, b"unheard of"),
        block(false, 3, &[&fields(false, &[(6, 4)])[..], b"simple"].concat()),
        block(
            false,
            2,
            &[&fields(false, &[(1, 2), (9, 2), (0, 4), (9, 4), (3, 4), (30, 4)])[..], b"old"].concat(),
        ),
        section(true), // the other byte order; interfaces are numbered anew
        interface(true, 113, 4, &shifted),
        enhanced(true, 0, 512, b"half"),
        block(true, 3, &[&fields(true, &[(6, 4)])[..], b"simp"].concat()), // cut to the snap length
    ]
    .concat();
    let (packets, error, tally) = in_memory(&file);
    assert_eq!(error, None);
    let seen: Vec<_> = packets
        .iter()
        .map(|(_, _, time, link, original, bytes)| {
            (*time, *link, *original, std::str::from_utf8(bytes).expect("text"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            (7, 101, 4, "nano"),
            (8_000, 1, 5, "micro"),
            (8_000, 1, 6, "simple"),
            (9, 101, 30, "old"),
            (1_000_500_000_000, 113, 4, "half"),
            (1_000_500_000_000, 113, 6, "simp"),
        ]
    );
    assert_eq!((tally.packets, tally.cut, tally.without_time, tally.time_out_of_range), (6, 2, 2, 0));
    for (_, offset, _, _, _, bytes) in &packets {
        assert_eq!(&file[*offset as usize..][..bytes.len()], &bytes[..]);
    }
}

#[test]
fn a_time_outside_of_64_bits_is_moved_and_counted() {
    let early = fields(false, &[(14, 2), (8, 2), (-1_i64 as u64, 8)]);
    let file = [
        section(false),
        interface(false, 1, 0, &early),
        enhanced(false, 0, 1, b"a"),
        enhanced(false, 0, u64::MAX, b"b"),
    ]
    .concat();
    let (packets, error, tally) = in_memory(&file);
    assert_eq!(error, None);
    assert_eq!(packets.iter().map(|packet| packet.2).collect::<Vec<_>>(), [0, u64::MAX]);
    assert_eq!(tally.time_out_of_range, 2);
}

#[test]
fn a_block_longer_than_the_buffer_is_passed_over_in_a_stream() {
    let file = [
        section(false),
        interface(false, 1, 0, &[]),
        block(false, 10, &vec![0x55; 3 * STREAM_BUFFER_BYTES]),
        enhanced(false, 0, 1, b"after"),
    ]
    .concat();
    let expected = in_memory(&file);
    assert_eq!(expected.0.len(), 1);
    assert_eq!(read_all(streamed(&gzip(&file), 5_000).expect("opens")), expected);
}

#[test]
fn damaged_blocks_are_named() {
    let head = [section(false), interface(false, 1, 0, &[])].concat();
    let with = |block: &[u8]| in_memory(&[&head[..], block].concat()).1.expect("an error");
    let mut trailer_differs = enhanced(false, 0, 1, b"four");
    let last = trailer_differs.len() - 1;
    trailer_differs[last] = 1;
    assert_eq!(
        with(&trailer_differs),
        "test: block at offset 48 (before or at packet 1), length 36: the length at the block's end differs"
    );
    assert_eq!(
        with(&[6, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0]),
        "test: block at offset 48 (before or at packet 1), length 13: a block's length is a multiple of 4 and at least 12"
    );
    assert_eq!(
        with(&enhanced(false, 7, 1, b"")),
        "test: packet 1 at offset 48: interface 7, but the section describes 1"
    );
    let mut too_long = enhanced(false, 0, 1, b"four");
    too_long[20] = 5;
    assert_eq!(
        with(&too_long),
        "test: block at offset 48 (before or at packet 1), length 36: the packet is longer than its block"
    );
    too_long[20..24].copy_from_slice(&(MAX_CAPTURED_BYTES as u32 + 1).to_le_bytes());
    assert_eq!(
        with(&too_long),
        "test: packet 1 at offset 48: captured length 262145 is over the limit of 262144"
    );
    for short in [0x0a0d_0d0a, 1, 2, 3, 6] {
        assert!(with(&block(false, short, &[])).starts_with("test: block at offset 48"), "{short:#x}");
    }
}

#[test]
fn the_packets_before_a_cut_are_delivered_and_then_the_error_once() {
    for format in [Format::Pcap, Format::PcapNg] {
        let file = write(WriterOptions { format, ..WriterOptions::default() }, &three_packets());
        let whole = in_memory(&file).0;
        assert_eq!(whole.len(), 3);
        for cut in 0..file.len() {
            let (packets, error, _) = in_memory(&file[..cut]);
            assert_eq!(packets, whole[..packets.len()]);
            // Where a record ends, a shorter file is a sound one.
            let ends = match format {
                Format::Pcap => [24, 100, 116],
                Format::PcapNg => [28, 60, 152],
            };
            let sound = ends.contains(&cut) || (format == Format::PcapNg && cut == 184);
            assert_eq!(error.is_none(), sound, "{format:?} cut at {cut}: {error:?}");
        }
    }
    let file = write(WriterOptions::default(), &three_packets());
    let (packets, error, _) = in_memory(&file[..file.len() - 1]);
    assert_eq!(packets.len(), 2);
    assert_eq!(error.as_deref(), Some("test: packet 3 at offset 116: record needs 1517 bytes, 1516 left"));
}

#[test]
fn an_absurd_length_is_refused() {
    let mut file = write(WriterOptions::default(), &three_packets());
    file[100 + 8..100 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let (packets, error, _) = in_memory(&file);
    assert_eq!(packets.len(), 1);
    assert_eq!(
        error.as_deref(),
        Some("test: packet 2 at offset 100: captured length 4294967295 is over the limit of 262144")
    );
}

#[test]
fn several_gzip_members_and_zstd_frames_are_read_to_the_end() {
    let file = write(WriterOptions::default(), &three_packets());
    let expected = in_memory(&file);
    let (front, back) = file.split_at(77);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 9, 9, 9, 9][..], &zstd(&file)].concat();
    for compressed in [
        gzip(&file),
        [gzip(front), gzip(back)].concat(),
        zstd(&file),
        [zstd(front), zstd(back)].concat(),
        skippable,
    ] {
        let source = streamed(&compressed, 11).expect("opens");
        assert_eq!(read_all(source), expected);
    }
}

#[test]
fn damaged_compression_ends_after_the_packets_before_it() {
    let packets: Vec<_> =
        (0..2_000).map(|index| (index, vec![index as u8; 500 + index as usize % 900])).collect();
    let file = write(WriterOptions::default(), &packets);
    for (compressed, name) in [(gzip(&file), "gzip"), (zstd(&file), "zstd")] {
        let cut = &compressed[..compressed.len() - 9];
        let (packets, error, _) = read_all(streamed(cut, 4_096).expect("opens"));
        let error = error.expect("an error");
        assert!(error.starts_with(&format!("test: {name} data is damaged or cut after ")), "{error}");
        assert!(packets.len() > 1, "{name}: {} packets", packets.len());
        assert_eq!(packets, in_memory(&file).0[..packets.len()]);
    }
}

#[test]
fn an_empty_compressed_file_is_empty() {
    for compressed in [gzip(b""), zstd(b"")] {
        assert_eq!(read_all(streamed(&compressed, 99).expect("opens")).1.as_deref(), Some("test: is empty"));
    }
}

/// A file of these bytes in a test's folder.
fn file(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("a temporary file");
    path
}

#[test]
fn a_file_is_read_again_from_its_first_packet() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let packets: Vec<_> = (0..100).map(|index| (index, vec![index as u8; 60])).collect();
    for format in [Format::Pcap, Format::PcapNg] {
        let bytes = write(WriterOptions { format, ..WriterOptions::default() }, &packets);
        let path = file(&folder, "plain", &bytes);
        for mut reader in [
            CaptureReader::open(&path).expect("opens"),
            CaptureReader::new(ByteSource::from_bytes("memory", bytes.clone())).expect("opens"),
        ] {
            for wanted in [100, 3, 100, 0, 100] {
                for (timestamp_ns, bytes) in &packets[..wanted] {
                    let packet = reader.next_packet().expect("is whole").expect("is there");
                    assert_eq!((packet.timestamp_ns, packet.bytes), (*timestamp_ns, &bytes[..]));
                }
                assert_eq!(reader.tally().packets, wanted as u64);
                if wanted == 100 {
                    assert_eq!(reader.next_packet().expect("is whole"), None);
                }
                assert!(reader.rewind());
            }
        }
        let mut streamed = CaptureReader::open(&file(&folder, "gzip", &gzip(&bytes))).expect("opens");
        streamed.next_packet().expect("is whole");
        assert!(!streamed.rewind(), "a stream does not go back");
        assert_eq!(streamed.next_packet().expect("is whole").map(|packet| packet.timestamp_ns), Some(1));
    }

    // What was cut since is reported, not read.
    let path = file(&folder, "cut", &write(WriterOptions::default(), &packets));
    let mut reader = CaptureReader::open(&path).expect("opens");
    fs::File::options().write(true).open(&path).and_then(|file| file.set_len(10)).expect("is cut");
    assert!(reader.rewind());
    let error = reader.next_packet().expect_err("is cut");
    assert!(error.to_string().contains("the file is shorter than when it was opened"), "{error}");
}

#[test]
fn files_that_cannot_be_read_say_why_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let open = |path: &Path| CaptureReader::open(path).expect_err("cannot be read");
    let line = |error: &CaptureError| error.to_string();

    let missing = open(&folder.path().join("missing.pcap"));
    assert!(matches!(missing, CaptureError::Missing { .. }), "{missing:?}");
    assert!(line(&missing).ends_with("missing.pcap: no such file"));

    let directory = open(folder.path());
    assert!(matches!(directory, CaptureError::Directory { .. }), "{directory:?}");

    let empty = open(&file(&folder, "empty.pcap", b""));
    assert!(matches!(empty, CaptureError::Empty { .. }), "{empty:?}");

    let text = open(&file(&folder, "text.pcap", b"hello, world"));
    assert!(line(&text).ends_with("neither pcap nor pcapng: starts with 68 65 6c 6c 6f 2c 20 77"), "{text}");

    let tiny = open(&file(&folder, "tiny.pcap", &[0xd4]));
    assert!(line(&tiny).ends_with("starts with d4"), "{tiny}");

    let header = open(&file(&folder, "header.pcap", &write(WriterOptions::default(), &[])[..20]));
    assert!(line(&header).ends_with("the file header needs 24 bytes, the file has 20"), "{header}");
}

#[test]
fn a_mapped_file_and_its_compressed_forms_give_the_same() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let plain = write(WriterOptions::default(), &three_packets());
    let expected = in_memory(&plain).0;
    // Names are no guide: the bytes are.
    for (name, bytes) in [("a.gz", plain.clone()), ("b.pcap", gzip(&plain)), ("c", zstd(&plain))] {
        let source = ByteSource::open(&file(&folder, name, &bytes)).expect("opens");
        assert_eq!(source.total_len(), Some(bytes.len() as u64));
        assert_eq!(read_all(source).0, expected, "{name}");
    }
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_gives_an_error() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let packets: Vec<_> = (0..5_000).map(|index| (index, vec![0; 1_000])).collect();
    let path = file(&folder, "shrinking.pcap", &write(WriterOptions::default(), &packets));
    let mut reader = CaptureReader::open(&path).expect("opens");
    reader.next_packet().expect("reads").expect("has packets");
    // To what has been brought in already, so that no page in use vanishes.
    fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(4 << 20)).expect("shrinks");
    let error = loop {
        match reader.next_packet() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end came without an error"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        error.ends_with("cannot read at offset 4194304: the file is shorter than when it was opened"),
        "{error}"
    );
    assert!(reader.tally().packets > 4_000);
}

#[test]
fn readers_can_be_handed_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<CaptureReader>();
}

#[test]
fn the_writer_refuses_values_that_the_format_cannot_hold() {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).expect("memory takes it");
    assert!(writer.write_packet(u64::MAX, b"late").is_err());
    assert!(writer.write_packet(0, &vec![0; MAX_CAPTURED_BYTES + 1]).is_err());
    writer.write_cut_packet(0, b"cut", 1_000).expect("a sound packet");
    let (packets, error, tally) = in_memory(&writer.finish().expect("memory takes it"));
    assert_eq!((packets.len(), packets[0].4, error, tally.cut), (1, 1_000, None, 1));
}

fn options() -> impl Strategy<Value = WriterOptions> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<u16>()).prop_map(
        |(ng, microseconds, big_endian, link)| WriterOptions {
            format: if ng { Format::PcapNg } else { Format::Pcap },
            resolution: if microseconds { Resolution::Microseconds } else { Resolution::Nanoseconds },
            link_type: LinkType(link),
            big_endian,
        },
    )
}

proptest! {
    #[test]
    fn packets_read_equal_packets_written(
        options in options(),
        packets in proptest::collection::vec(
            (0..u64::from(u32::MAX) * 1_000_000_000, proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
    ) {
        let file = write(options, &packets);
        let (read, error, tally) = in_memory(&file);
        prop_assert_eq!(error, None);
        prop_assert_eq!(tally.bytes, packets.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        prop_assert_eq!(read.len(), packets.len());
        for ((number, offset, time, link, original, bytes), (index, (sent_time, sent_bytes))) in
            read.into_iter().zip(packets.into_iter().enumerate())
        {
            let expected_time = match options.resolution {
                Resolution::Nanoseconds => sent_time,
                Resolution::Microseconds => sent_time / 1_000 * 1_000,
            };
            prop_assert_eq!((number, time, link), (index as u64 + 1, expected_time, options.link_type.0));
            prop_assert_eq!(original as usize, sent_bytes.len());
            prop_assert_eq!(&file[offset as usize..offset as usize + bytes.len()], &sent_bytes[..]);
            prop_assert_eq!(bytes, sent_bytes);
        }
    }

    #[test]
    fn damaged_files_never_panic_and_streams_give_the_packets_of_memory(
        options in options(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in 1_usize..100,
        keep in any::<prop::sample::Index>(),
    ) {
        let mut file = write(options, &three_packets());
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(keep.index(file.len()) + 1);
        if let Ok(source) = streamed(&file, piece)
            && source.compression() == tapeworks_capture::source::Compression::None
        {
            prop_assert_eq!(read_all(source), in_memory(&file));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        magic in prop::sample::select(vec![
            &[0xd4, 0xc3, 0xb2, 0xa1][..], &[0xa1, 0xb2, 0x3c, 0x4d], &[0x1f, 0x8b, 0x08], &[0x28, 0xb5, 0x2f, 0xfd],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0], &[],
        ]),
        bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0_u8..8, any::<u8>()], 1..300),
    ) {
        let file = [magic, &bytes].concat();
        let _ = in_memory(&file);
        let _ = streamed(&file, 64).map(read_all);
    }
}

#[test]
fn a_capture_is_written_in_the_format_and_compression_of_its_name() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    for (name, format, compression) in [
        ("a.pcap", Format::Pcap, Compression::None),
        ("a.pcapng", Format::PcapNg, Compression::None),
        ("a.pcap.gz", Format::Pcap, Compression::Gzip),
        ("a.pcapng.zst", Format::PcapNg, Compression::Zstd),
        ("without-ending", Format::Pcap, Compression::None),
    ] {
        let path = folder.path().join(name);
        let mut writer = Writer::create(&path).expect("begins");
        for time in 0..1_000u64 {
            writer.write_packet(time, &time.to_le_bytes()).expect("is written");
        }
        assert!(!path.exists(), "{name} has its name only when it is whole");
        assert_eq!(writer.close().expect("ends"), 1_000);
        let source = ByteSource::open(&path).expect("opens");
        assert_eq!(source.compression(), compression, "{name}");
        let file = fs::read(&path).expect("is there");
        let mut plain = Vec::new();
        match compression {
            Compression::None => plain = file,
            Compression::Gzip => {
                let read = flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut plain);
                read.expect("is whole");
            }
            Compression::Zstd => plain = zstd::decode_all(&file[..]).expect("is whole"),
        }
        let packets: Vec<_> = (0..1_000u64).map(|time| (time, time.to_le_bytes().to_vec())).collect();
        assert!(plain == write(WriterOptions { format, ..WriterOptions::default() }, &packets), "{name}");
        assert!(matches!(Writer::create(&path), Err(NewFileError::Exists { .. })));
    }
    drop(Writer::create(&folder.path().join("dropped.pcap")).expect("begins"));
    assert_eq!(fs::read_dir(folder.path()).expect("is there").count(), 5, "a dropped writer leaves nothing");
}
