//! What `protocol!` makes of each kind of field, on a protocol made up for the purpose.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tapeworks_wire::framing::{Blocks, LittleEndian};
use tapeworks_wire::schema::{Value, markdown};
use tapeworks_wire::{
    Ascii, AsciiNumber, Decimal, DecodeError, EncodeError, Group, NanosecondsSinceEpoch, SecondsSinceEpoch,
};

tapeworks_wire::protocol! {
    /// Every kind of field.
    protocol "test-everything-1.0" {
        title: "Everything",
        version: "1.0",
        endian: little,
        tag: u16 @ 2,
        length: exact,
    }

    enum Side: ascii<1> { Buy = 'B', Sell = 'S' }
    enum Venue: ascii<3> { Main = "M", Dark = "DRK", Blank = "" }
    enum Phase: u16 { Open = 0x0102, Closed = 3 }
    flags Marks: u16 { First = 0, Last = 15 }

    /// Widths that no machine has, at the start, in the middle and at the end.
    message Widths = 0x0101, 35 bytes {
        length   @ 0 : big u16,
        little48 @ 4 : u48,
        big48    @ 10: big u48,
        little24 @ 16: u24,
        big24    @ 19: big u24,
        signed   @ 22: i16,
        big64    @ 24: big i64,
        last24   @ 32: u24,
    }

    message Values = 0x0102, 47 bytes {
        length   @ 0 : u16,
        side     @ 4 : Side,
        venue    @ 5 : Venue,
        phase    @ 8 : Phase,
        marks    @ 10: Marks,
        name     @ 12: ascii<5>,
        digits   @ 17: ascii_number<6>,
        price    @ 23: price<i64, 6>,
        sent     @ 31: nanoseconds_since_epoch<i64>,
        due      @ 39: seconds_since_epoch<u32>,
        reserved @ 43: bytes<4>,
    }

    message Optionals = 0x0103, 32 bytes {
        length   @ 0 : u16,
        shares   @ 4 : optional<u32, max>,
        bid      @ 8 : optional<price<u32, 4>, 0>,
        ask      @ 12: optional<price<i64, 4>, min>,
        offset   @ 20: optional<i32, -1>,
        released @ 24: optional<nanoseconds_since_epoch<u64>, 0>,
    }

    message Grows = 0x0104, 8..=20 bytes {
        length  @ 0 : u16,
        shares  @ 4 : u32,
        display @ 8  since "1.1": u32,
        price   @ 12 since "1.2": big price<u64, 2>,
    }

    /// A price level.
    group Level = 7 bytes {
        price @ 0: price<u32, 2>,
        size  @ 4: u24,
    }

    message Depth = 0x0105, 13.. bytes {
        length      @ 0 : u16,
        symbol      @ 4 : ascii<8>,
        level_count @ 12: u8,
        levels      @ 13: group<Level, level_count>,
    }

    message Text = 0x0106, 4.. bytes {
        length @ 0: u16,
        text   @ 4: rest,
    }

    /// Fields that may be none, in an entry and of an odd width.
    group Quote = 12 bytes {
        shares @ 0: optional<u32, max>,
        ask    @ 4: optional<price<i64, 4>, min>,
    }

    message Quotes = 0x0202, 10.. bytes {
        length      @ 0: u16,
        odd         @ 4: optional<u24, 7>,
        quote_count @ 7: u24,
        quotes      @ 10: group<Quote, quote_count>,
    }

    message Packet = 0x0203, 6.. bytes {
        length @ 0: u16,
        count  @ 4: u16,
        blocks @ 6: blocks<u16, count>,
    }
}

#[test]
fn odd_widths_and_mixed_byte_orders_are_read_and_written() {
    let mut bytes = [0u8; 35];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = 0xa0 + index as u8;
    }
    bytes[2..4].copy_from_slice(&[0x01, 0x01]);
    let view = Widths::decode(&bytes).unwrap();
    assert_eq!(view.length(), 0xa0a1);
    assert_eq!(view.little48(), 0xa9a8_a7a6_a5a4);
    assert_eq!(view.big48(), 0xaaab_acad_aeaf);
    assert_eq!(view.little24(), 0xb2b1b0);
    assert_eq!(view.big24(), 0xb3b4b5);
    assert_eq!(view.signed(), i16::from_le_bytes([0xb6, 0xb7]));
    assert_eq!(view.big64(), i64::from_be_bytes([0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf]));
    assert_eq!(view.last24(), 0xc2c1c0);
    assert_eq!(view.to_fields().encode(), bytes);
    let mut values = Vec::new();
    SCHEMA.decode(&bytes).for_each_field(|found| values.push(found.value));
    assert_eq!(values[1], Value::Unsigned(0xa9a8_a7a6_a5a4));
    assert_eq!(values[2], Value::Unsigned(0xaaab_acad_aeaf));
    assert_eq!(values[5], Value::Signed(i64::from(view.signed())));
    let mut fields = view.to_fields();
    fields.big24 = 1 << 24;
    assert_eq!(fields.encode_into(&mut [0; 40]), Err(EncodeError::OutOfRange { field: "big24" }));
}

#[test]
fn values_have_types() {
    let fields = ValuesFields {
        length: 47,
        side: Side::Sell,
        venue: Venue::Blank,
        phase: Phase::Open,
        marks: Marks::FIRST.union(Marks::LAST),
        name: Ascii::new("abc").unwrap(),
        digits: AsciiNumber::new(42).unwrap(),
        price: Decimal(-1_500_000),
        sent: NanosecondsSinceEpoch(1),
        due: SecondsSinceEpoch(2),
        reserved: *b"\x01\x02\x03\x04",
    };
    let bytes = fields.encode();
    assert_eq!(&bytes[2..12], b"\x02\x01S   \x02\x01\x01\x80");
    let Ok(Message::Values(view)) = Message::decode(&bytes) else { panic!("not read back") };
    assert_eq!(view.to_fields(), fields);
    assert!(view.marks().first() && view.marks().last() && view.marks().contains(Marks::LAST));
    assert_eq!(format!("{:?}", view.marks()), "First | Last");
    assert_eq!(view.price().to_e9(), Some(-1_500_000_000));
    let mut json = String::new();
    SCHEMA.decode(&bytes).write_json(&mut json);
    assert_eq!(
        json,
        r#"{"length":47,"side":"Sell","venue":"Blank","phase":"Open","marks":["First","Last"],"name":"abc","digits":42,"price":"-1.500000","sent":1,"due":2,"reserved":"01020304"}"#
    );
}

#[test]
fn a_sentinel_reads_as_none() {
    let none =
        OptionalsFields { length: 32, shares: None, bid: None, ask: None, offset: None, released: None };
    let bytes = none.encode();
    assert_eq!(&bytes[4..8], &[0xff; 4]);
    assert_eq!(&bytes[12..20], &i64::MIN.to_le_bytes());
    assert_eq!(Optionals::decode(&bytes).unwrap().to_fields(), none);
    SCHEMA.decode(&bytes).for_each_field(|found| {
        assert_eq!(found.value == Value::Absent, found.field.name != "length", "{}", found.field.name);
    });
    let some = OptionalsFields {
        shares: Some(1),
        bid: Some(Decimal(2)),
        ask: Some(Decimal(-3)),
        offset: Some(0),
        released: Some(NanosecondsSinceEpoch(4)),
        ..none
    };
    assert_eq!(Optionals::decode(&some.encode()).unwrap().to_fields(), some);
}

#[test]
fn a_given_value_that_stands_for_none_is_not_encoded() {
    let none =
        OptionalsFields { length: 32, shares: None, bid: None, ask: None, offset: None, released: None };
    let out_of_range = |field| Err(EncodeError::OutOfRange { field });
    for (fields, field) in [
        (OptionalsFields { shares: Some(u32::MAX), ..none }, "shares"),
        (OptionalsFields { bid: Some(Decimal(0)), ..none }, "bid"),
        (OptionalsFields { ask: Some(Decimal(i64::MIN)), ..none }, "ask"),
        (OptionalsFields { offset: Some(-1), ..none }, "offset"),
        (OptionalsFields { released: Some(NanosecondsSinceEpoch(0)), ..none }, "released"),
    ] {
        assert_eq!(fields.encode_into(&mut [0; 32]), out_of_range(field));
    }
    assert_eq!(none.encode_into(&mut [0; 32]), Ok(32));
    let quote = QuoteFields { shares: Some(u32::MAX), ask: None };
    assert_eq!(quote.encode_into(&mut [0; 12]), out_of_range("shares"));
}

#[test]
fn the_count_of_blocks_is_compared_with_the_blocks() {
    let mut out = [0; 64];
    let mut encode = |count, blocks: &[u8]| PacketFields { length: 0, count, blocks }.encode_into(&mut out);
    let two = [1, 0, b'a', 0, 0];
    assert_eq!(encode(2, &two), Ok(11));
    for count in [0, 1, 3, u16::MAX] {
        let declared = u64::from(count);
        assert_eq!(
            encode(count, &two),
            Err(EncodeError::CountMismatch { field: "count", declared, entries: 2 })
        );
    }
    // A header that is written before its messages, or one that has none.
    assert_eq!(encode(7, &[]), Ok(6));
    for (blocks, offset) in [(&[1, 0, b'a', 1][..], 3), (&[1, 0, b'a', 2, 0, b'b'], 3), (&[9], 0)] {
        assert_eq!(encode(1, blocks), Err(EncodeError::CutBlock { field: "blocks", offset }));
    }
}

#[test]
fn a_group_has_no_cut_entry() {
    let entries = [0; 24];
    assert_eq!(Group::<Quote<'_>>::new(&entries).map(|group| group.len()), Some(2));
    assert_eq!(Group::<Quote<'_>>::new(&[]).map(|group| group.len()), Some(0));
    for cut in [1, 11, 13, 23] {
        assert_eq!(Group::<Quote<'_>>::new(&entries[..cut]), None);
    }
}

/// Any number, often one at an end of its range or near zero.
macro_rules! often_at_the_ends {
    ($type:ty) => {
        prop_oneof![
            any::<$type>(),
            prop::sample::select(vec![<$type>::MIN, <$type>::MAX, 0, 1, 7, (0 as $type).wrapping_sub(1)])
        ]
    };
}

proptest! {
    /// Whatever fields are given: they are refused, or come back as they were.
    #[test]
    fn an_encoded_message_decodes_to_the_same_fields(
        shares in prop::option::of(often_at_the_ends!(u32)),
        bid in prop::option::of(often_at_the_ends!(u32)),
        ask in prop::option::of(often_at_the_ends!(i64)),
        offset in prop::option::of(often_at_the_ends!(i32)),
        released in prop::option::of(often_at_the_ends!(u64)),
        odd in prop::option::of(prop_oneof![Just(7), Just(0xff_ffff), any::<u32>()]),
        quotes in prop::collection::vec(
            (prop::option::of(often_at_the_ends!(u32)), prop::option::of(often_at_the_ends!(i64))), 0..4),
        declared in 0..4u32,
        count in 0..4u16,
        blocks in prop::collection::vec(0..3u8, 0..12),
        wide in any::<u64>(),
    ) {
        let mut out = [0; 128];
        let fields = OptionalsFields {
            length: 32,
            shares,
            bid: bid.map(Decimal),
            ask: ask.map(Decimal),
            offset,
            released: released.map(NanosecondsSinceEpoch),
        };
        if let Ok(length) = fields.encode_into(&mut out) {
            prop_assert_eq!(Optionals::decode(&out[..length]).unwrap().to_fields(), fields);
        }
        let mut entries = Vec::new();
        for (shares, ask) in quotes {
            let fields = QuoteFields { shares, ask: ask.map(Decimal) };
            if let Ok(length) = fields.encode_into(&mut out) {
                prop_assert_eq!(Quote::decode(&out[..length]).unwrap().to_fields(), fields);
                entries.extend_from_slice(&out[..length]);
            }
        }
        let quotes = Group::new(&entries).unwrap();
        let fields = QuotesFields { length: 0, odd, quote_count: declared, quotes };
        if let Ok(length) = fields.encode_into(&mut out) {
            prop_assert_eq!(Quotes::decode(&out[..length]).unwrap().to_fields(), fields);
        }
        let fields = PacketFields { length: 0, count, blocks: &blocks };
        if let Ok(length) = fields.encode_into(&mut out) {
            prop_assert_eq!(Packet::decode(&out[..length]).unwrap().to_fields(), fields);
            let found = Blocks::new(&blocks, LittleEndian).filter(Result::is_ok).count();
            prop_assert!(blocks.is_empty() || found == usize::from(count));
        }
        let fields = WidthsFields {
            length: 35, little48: wide, big48: wide >> 16, little24: 1, big24: wide as u32, signed: -1,
            big64: wide as i64, last24: wide as u32 >> 8,
        };
        if let Ok(length) = fields.encode_into(&mut out) {
            prop_assert_eq!(Widths::decode(&out[..length]).unwrap().to_fields(), fields);
        }
    }
}

#[test]
fn fields_of_later_versions_are_there_or_not() {
    let mut buffer = [0; 20];
    let mut fields = GrowsFields { length: 8, shares: 100, display: None, price: None };
    for (display, price, length) in
        [(None, None, 8), (Some(50), None, 12), (Some(50), Some(Decimal(1_999)), 20)]
    {
        fields.display = display;
        fields.price = price;
        assert_eq!(fields.encode_into(&mut buffer), Ok(length));
        assert_eq!(Grows::decode(&buffer[..length]).unwrap().to_fields(), fields);
        assert_eq!(
            fields.encode_into(&mut buffer[..length - 1]),
            Err(EncodeError::BufferTooSmall { needed: length, got: length - 1 })
        );
    }
    assert_eq!(buffer[12..], 1_999u64.to_be_bytes());
    fields.display = None;
    assert_eq!(fields.encode_into(&mut buffer), Err(EncodeError::FieldBeforeIsAbsent { field: "price" }));
    let cut = Err(DecodeError::TooShort { message: "Grows", needed: 12, got: 10 });
    assert_eq!(Message::decode(&buffer[..10]), cut);
    let mut long = buffer.to_vec();
    long.push(0);
    assert_eq!(Message::decode(&long), Err(DecodeError::TooLong { message: "Grows", declared: 20, got: 21 }));
}

#[test]
fn a_group_has_as_many_entries_as_its_count_says() {
    let mut levels = Vec::new();
    for (price, size) in [(100, 1), (200, 0xff_ffff)] {
        levels.extend(LevelFields { price: Decimal(price), size }.encode());
    }
    let mut fields = DepthFields {
        length: 27,
        symbol: Ascii::new("AAPL").unwrap(),
        level_count: 2,
        levels: Group::new(&levels).unwrap(),
    };
    let mut bytes = [0; 27];
    assert_eq!(fields.encode_into(&mut bytes), Ok(27));
    let Ok(Message::Depth(view)) = Message::decode(&bytes) else { panic!("not read back") };
    assert_eq!(view.to_fields(), fields);
    assert_eq!(view.levels().len(), 2);
    assert_eq!(
        view.levels().iter().map(|level| (level.price().0, level.size())).collect::<Vec<_>>(),
        [(100, 1), (200, 0xff_ffff)]
    );
    assert_eq!(view.levels().get(1).map(|level| level.size()), Some(0xff_ffff));
    assert!(view.levels().get(2).is_none());
    let mut json = String::new();
    SCHEMA.decode(&bytes).write_json(&mut json);
    assert_eq!(
        json,
        r#"{"length":27,"symbol":"AAPL","level_count":2,"levels":[{"price":"1.00","size":1},{"price":"2.00","size":16777215}]}"#
    );

    let short = Err(DecodeError::TooShort { message: "Depth", needed: 27, got: 26 });
    assert_eq!(Message::decode(&bytes[..26]), short);
    fields.level_count = 3;
    let mismatch = EncodeError::CountMismatch { field: "level_count", declared: 3, entries: 2 };
    assert_eq!(fields.encode_into(&mut bytes), Err(mismatch));
}

#[test]
fn a_message_is_encoded_with_its_entries_and_counts_them() {
    let entries =
        [(100, 1), (200, 0xff_ffff)].map(|(price, size)| LevelFields { price: Decimal(price), size });
    let fields = DepthFields {
        length: 27,
        symbol: Ascii::new("AAPL").unwrap(),
        // Neither is looked at.
        level_count: 9,
        levels: Group::default(),
    };
    let mut bytes = [0xee; 30];
    assert_eq!(fields.encode_with(&entries, &mut bytes), Ok(27));
    assert_eq!(bytes[27..], [0xee; 3]);
    let Ok(Message::Depth(view)) = Message::decode(&bytes[..27]) else { panic!("not read back") };
    assert_eq!((view.level_count(), view.length()), (2, 27));
    assert!(view.levels().iter().map(|level| level.to_fields()).eq(entries));

    let small = Err(EncodeError::BufferTooSmall { needed: 27, got: 26 });
    assert_eq!(fields.encode_with(&entries, &mut [0; 26]), small);
    let wide = [LevelFields { price: Decimal(1), size: 1 << 24 }];
    assert_eq!(fields.encode_with(&wide, &mut [0; 64]), Err(EncodeError::OutOfRange { field: "size" }));
    let many = [entries[0]; 256];
    let uncounted = Err(EncodeError::OutOfRange { field: "level_count" });
    assert_eq!(fields.encode_with(&many, &mut [0; 4096]), uncounted);
}

proptest! {
    /// The typed encoder writes the bytes that entries encoded by hand give, and every entry is read back.
    #[test]
    fn entries_as_values_and_entries_as_bytes_are_the_same_message(
        length in any::<u16>(),
        odd in prop::option::of(8..0xff_ffffu32),
        quotes in prop::collection::vec((prop::option::of(0..u32::MAX), prop::option::of(0..i64::MAX)), 0..40),
        stale_count in 0..0xff_ffffu32,
    ) {
        let entries: Vec<_> =
            quotes.iter().map(|(shares, ask)| QuoteFields { shares: *shares, ask: ask.map(Decimal) }).collect();
        let by_hand: Vec<u8> = entries.iter().flat_map(QuoteFields::encode).collect();
        let quotes = Group::new(&by_hand).unwrap();
        let fields = QuotesFields { length, odd, quote_count: entries.len() as u32, quotes };
        let (mut expected, mut typed) = ([0; 512], [0; 512]);
        let written = fields.encode_into(&mut expected);
        let blank = QuotesFields { quote_count: stale_count, quotes: Group::default(), ..fields };
        prop_assert_eq!(blank.encode_with(&entries, &mut typed), written);
        prop_assert_eq!(expected, typed);
        let view = Quotes::decode(&typed[..written.unwrap()]).unwrap();
        prop_assert!(view.quotes().iter().map(|quote| quote.to_fields()).eq(entries.iter().copied()));
    }
}

#[test]
fn the_rest_takes_the_remaining_bytes() {
    let Ok(Message::Text(view)) = Message::decode(b"\0\0\x06\x01hello") else { panic!("not text") };
    assert_eq!(view.text(), b"hello");
    assert_eq!(view.as_bytes(), b"\0\0\x06\x01hello");
    assert_eq!(Message::decode(b"\0\0\x06"), Err(DecodeError::NoTag { needed: 4, got: 3 }));
    assert_eq!(Message::decode(b"\0\0\x07\x01"), Err(DecodeError::UnknownMessage { tag: 0x107 }));
    assert_eq!(Text::decode(b"\0\0\x05\x01hello"), Err(DecodeError::UnknownMessage { tag: 0x105 }));
}

#[test]
fn the_reference_page_names_everything() {
    let page = markdown(&SCHEMA);
    for text in [
        "`little48`",
        "Type `0x104`, 8 to 20 bytes.",
        "Since 1.1.",
        "`level_count` times [Level](#level)",
        "big-endian",
        "-1: none",
        "| blank | Blank |",
    ] {
        assert!(page.contains(text), "{text} is not in:\n{page}");
    }
}
