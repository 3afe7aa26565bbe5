//! What `protocol!` makes of each kind of field, on a protocol made up for the purpose.

#![allow(clippy::unwrap_used)]

use tapeworks_wire::schema::{Value, markdown};
use tapeworks_wire::{
    Ascii, AsciiNumber, Decimal, DecodeError, EncodeError, NanosecondsSinceEpoch, SecondsSinceEpoch,
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
        levels: tapeworks_wire::Group::new(&levels),
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
fn the_rest_takes_what_is_left() {
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
