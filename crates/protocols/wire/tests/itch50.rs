//! Nasdaq TotalView-ITCH 5.0 against bytes written by hand after the document.

#![allow(clippy::unwrap_used)]

use tapeworks_wire::nasdaq::itch50::{
    AddOrder, AddOrderFields, BuySellIndicator, Message, SCHEMA, timestamp,
};
use tapeworks_wire::{Ascii, Decimal, DecodeError, EncodeError, NanosecondsSinceMidnight};

const ADD_ORDER: [u8; 36] = *b"A\x12\x34\x00\x02\x1f\x1a\xce\xd6\xf0\x01\x00\x00\x00\x00\x00\x01\xe2\x40B\x00\x00\x01\x2cAAPL    \x00\x1d\x24\xb4";

#[test]
fn an_add_order_is_read_field_by_field() {
    let Ok(Message::AddOrder(order)) = Message::decode(&ADD_ORDER) else { panic!("not an add order") };
    assert_eq!(order.stock_locate(), 0x1234);
    assert_eq!(order.tracking_number(), 2);
    assert_eq!(order.timestamp(), NanosecondsSinceMidnight(0x1f1a_ced6_f001));
    assert_eq!(order.order_reference_number(), 123_456);
    assert_eq!(order.buy_sell_indicator(), BuySellIndicator::Buy);
    assert_eq!(order.shares(), 300);
    assert_eq!(order.stock().as_str(), Some("AAPL"));
    assert_eq!(order.price().to_string(), "190.9940");
    assert_eq!(order.price().e9(), 190_994_000_000);
    assert_eq!(order.as_bytes(), &ADD_ORDER);
}

#[test]
fn plain_fields_become_the_same_bytes() {
    let fields = AddOrderFields {
        stock_locate: 0x1234,
        tracking_number: 2,
        timestamp: NanosecondsSinceMidnight(0x1f1a_ced6_f001),
        order_reference_number: 123_456,
        buy_sell_indicator: BuySellIndicator::Buy,
        shares: 300,
        stock: Ascii::new("AAPL").unwrap(),
        price: Decimal(1_909_940),
    };
    assert_eq!(fields.encode(), ADD_ORDER);
    let mut buffer = [0; 64];
    assert_eq!(fields.encode_into(&mut buffer), Ok(36));
    assert_eq!(AddOrder::decode(&buffer[..36]).unwrap().to_fields(), fields);
    assert_eq!(
        fields.encode_into(&mut buffer[..35]),
        Err(EncodeError::BufferTooSmall { needed: 36, got: 35 })
    );
}

#[test]
fn a_time_that_needs_more_than_48_bits_is_refused() {
    let mut fields = AddOrder::decode(&ADD_ORDER).unwrap().to_fields();
    fields.timestamp = NanosecondsSinceMidnight(1 << 48);
    assert_eq!(fields.encode_into(&mut [0; 36]), Err(EncodeError::OutOfRange { field: "timestamp" }));
}

#[test]
fn wrong_bytes_get_an_error_with_the_facts() {
    assert_eq!(Message::decode(&[]), Err(DecodeError::Empty));
    let unknown = Message::decode(b"zzz").unwrap_err();
    assert_eq!(unknown, DecodeError::UnknownMessage { tag: u64::from(b'z') });
    assert_eq!(unknown.to_string(), "unknown message type 'z' (0x7a)");
    let short = Message::decode(&ADD_ORDER[..20]).unwrap_err();
    assert_eq!(short, DecodeError::TooShort { message: "AddOrder", needed: 36, got: 20 });
    assert_eq!(short.to_string(), "AddOrder needs 36 bytes, 20 left");
    let mut long = ADD_ORDER.to_vec();
    long.push(0);
    assert_eq!(
        Message::decode(&long),
        Err(DecodeError::TooLong { message: "AddOrder", declared: 36, got: 37 })
    );
}

#[test]
fn a_value_that_the_document_does_not_list_survives() {
    let mut bytes = ADD_ORDER;
    bytes[19] = b'?';
    let order = AddOrder::decode(&bytes).unwrap();
    assert_eq!(order.buy_sell_indicator(), BuySellIndicator::Unknown(b'?'));
    assert_eq!(order.buy_sell_indicator().name(), None);
    assert_eq!(order.to_fields().encode(), bytes);
}

#[test]
fn every_message_has_its_timestamp_where_it_is_looked_for() {
    for message in SCHEMA.messages {
        let field = message.fields.iter().find(|field| field.name == "timestamp").unwrap();
        assert_eq!(field.offset, 5, "{}", message.name);
    }
    let message = [b'?', 0, 0, 0, 0, 1, 2, 3, 4, 5, 6];
    assert_eq!(timestamp(&message).unwrap().nanoseconds(), 0x0102_0304_0506);
    assert_eq!(timestamp(&message[..10]), None);
}
