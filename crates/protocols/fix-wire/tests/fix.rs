//! Messages of the order-entry declaration: written, read, and refused for their faults.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tapeworks_fix_wire::order_entry::{
    ExecType, ExecutionReport, ExecutionReportFields, Header, HeaderFields, Heartbeat, Logon, MassQuote,
    MassQuoteFields, Message, NewOrderSingle, NewOrderSingleFields, OrdStatus, OrdType, OrderCapacity,
    PartyFields, PartySubFields, QuoteEntryFields, QuoteSetFields, SCHEMA, Side, TimeInForce,
};
use tapeworks_fix_wire::{
    FieldSet, FixKind, Garbled, LastTimestamp, ReadError, RejectReason, TimePrecision, Writer, checksum,
    field, fix_schema_by_name, fix_schemas,
};
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

/// A message whose fields from 35 on are `body`, with right length and checksum; `|` is SOH.
fn message(body: &str) -> Vec<u8> {
    let body = body.replace('|', "\x01");
    let mut bytes = format!("8=FIX.4.4\x019={}\x01{body}", body.len()).into_bytes();
    let sum = checksum(&bytes);
    bytes.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    bytes
}

const HEADER: &str = "49=A|56=B|34=2|52=20240301-09:30:00|";

/// An order with these fields behind the required ones.
fn order(more: &str) -> Vec<u8> {
    message(&format!("35=D|{HEADER}11=X1|54=1|60=20240301-09:30:00|40=2|{more}"))
}

fn rejected(bytes: &[u8]) -> (RejectReason, u32) {
    match Message::read(bytes) {
        Err(ReadError::Rejected { reason, tag, offset }) => {
            assert!(offset as usize <= bytes.len());
            (reason, tag)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_are_typed_whatever_their_order() {
    let sorted = order("44=101.25|38=500|59=3|");
    let mixed = message(&format!("35=D|{HEADER}59=3|40=2|60=20240301-09:30:00|44=101.25|54=1|38=500|11=X1|"));
    for bytes in [sorted, mixed] {
        let order = NewOrderSingle::read(&bytes).unwrap();
        assert_eq!(
            (order.cl_ord_id(), order.side(), order.ord_type()),
            (&b"X1"[..], Side::Buy, OrdType::Limit)
        );
        assert_eq!(order.price(), Some(Decimal(10_125_000_000)));
        assert_eq!(order.order_qty(), Some(Decimal(50_000_000_000)));
        assert_eq!(order.time_in_force(), Some(TimeInForce::ImmediateOrCancel));
        assert_eq!(order.transact_time(), NanosecondsSinceEpoch(1_709_285_400_000_000_000));
        assert_eq!((order.msg_seq_num(), order.sender_comp_id()), (2, &b"A"[..]));
        assert_eq!((order.stop_px(), order.symbol(), order.expire_date()), (None, None, None));
        assert_eq!(order.begin_string(), b"FIX.4.4");
        assert_eq!(order.field(59), Some(&b"3"[..]));
        assert_eq!(order.field(99), None);
    }
}

#[test]
fn tags_that_are_not_declared_are_reachable_by_number() {
    let bytes = order("9702=x=y|5000=1|95=3|96=a|b|");
    let order = NewOrderSingle::read(&bytes).unwrap();
    assert_eq!(order.field(9702), Some(&b"x=y"[..]));
    assert_eq!(order.field(96), Some(&b"a\x01b"[..]));
    assert!(format!("{order:?}").contains(" 9702=x=y "));
}

#[test]
fn a_tag_that_begins_as_a_declared_one_is_another() {
    // 432 and 528 are declared, and expected where these come.
    let bytes = order("44=5|4321=x|59=0|5281=y|528=A|");
    let order = NewOrderSingle::read(&bytes).unwrap();
    assert_eq!((order.expire_date(), order.order_capacity()), (None, Some(OrderCapacity::Agency)));
    assert_eq!((order.field(4321), order.field(5281)), (Some(&b"x"[..]), Some(&b"y"[..])));
}

#[test]
fn a_view_knows_whether_it_has_other_fields_than_a_set() {
    const FEW: FieldSet = NewOrderSingle::fields(&[49, 56, 34, 52, 11, 54, 60, 40, 44]);
    let has_only = |more: &str, fields| NewOrderSingle::read(&order(more)).unwrap().has_only(fields);
    assert!(has_only("", FEW) && has_only("44=5|", FEW));
    assert!(!has_only("59=0|", FEW) && !has_only("9999=x|", FEW) && !has_only("453=0|", FEW));
    assert!(has_only("59=0|", NewOrderSingle::fields(&[49, 56, 34, 52, 11, 54, 60, 40, 59])));
    assert!(!has_only("", NewOrderSingle::fields(&[49, 56, 34, 11, 54, 60, 40])), "52");
}

#[test]
fn each_fault_has_its_reason_and_tag() {
    use RejectReason as R;
    for (more, expected) in [
        ("0=1|", (R::InvalidTag, 0)),
        ("x=1|", (R::InvalidTag, 0)),
        ("44|", (R::TagWithoutValue, 44)),
        ("|", (R::InvalidTag, 0)),
        ("44=|", (R::TagWithoutValue, 44)),
        ("58=|", (R::TagWithoutValue, 58)),
        ("59=|", (R::TagWithoutValue, 59)),
        ("5000=|", (R::TagWithoutValue, 5000)),
        ("59=Z|", (R::ValueIncorrect, 59)),
        ("59=00|", (R::IncorrectFormat, 59)),
        ("44=1x|", (R::IncorrectFormat, 44)),
        ("44=1.123456789|", (R::IncorrectFormat, 44)),
        ("44=99999999999999|", (R::ValueIncorrect, 44)),
        ("126=20240301|", (R::IncorrectFormat, 126)),
        ("432=20240230|", (R::IncorrectFormat, 432)),
        ("114=1|", (R::IncorrectFormat, 114)),
        ("11=X2|", (R::TagTwice, 11)),
        ("8=FIX.4.4|", (R::TagTwice, 8)),
        ("10=1|", (R::TagTwice, 10)),
        ("35=D|", (R::TagTwice, 35)),
        ("43=Y|", (R::TagOutOfOrder, 43)),
        ("93=1|89=x|58=t|", (R::TagOutOfOrder, 58)),
        ("354=5|355=a|b|", (R::IncorrectFormat, 354)),
        ("354=3|58=abc|", (R::RequiredTagMissing, 355)),
        ("355=abc|", (R::RequiredTagMissing, 354)),
        ("453=1|447=D|448=P|", (R::GroupOutOfOrder, 447)),
        ("453=2|448=P|447=D|58=x|", (R::WrongGroupCount, 453)),
        ("453=1|448=P|448=Q|", (R::WrongGroupCount, 453)),
        ("453=1|448=P|447=D|447=D|", (R::TagTwice, 447)),
        ("453=99999999999|448=P|", (R::ValueIncorrect, 453)),
        ("453=x|448=P|", (R::IncorrectFormat, 453)),
        ("447=D|", (R::WrongGroupCount, 453)),
    ] {
        assert_eq!(rejected(&order(more)), expected, "{more}");
    }
    assert_eq!(rejected(&message(&format!("35=D|{HEADER}11=X1|54=1|40=2|"))), (R::RequiredTagMissing, 60));
    assert_eq!(rejected(&message("35=0|49=A|56=B|52=20240301-09:30:00|")), (R::RequiredTagMissing, 34));
    assert_eq!(Message::read(&message(&format!("35=ZZ|{HEADER}"))).unwrap_err(), ReadError::OtherType);
    assert_eq!(NewOrderSingle::read(&message(&format!("35=0|{HEADER}"))).unwrap_err(), ReadError::OtherType);
}

#[test]
fn bytes_that_are_not_one_message_are_garbled() {
    let good = message(&format!("35=0|{HEADER}112=x|"));
    assert_eq!(Heartbeat::read(&good).unwrap().test_req_id(), Some(&b"x"[..]));
    for end in 0..good.len() {
        assert!(matches!(Message::read(&good[..end]), Err(ReadError::Garbled(_))), "{end}");
    }
    for place in 0..good.len() {
        let mut damaged = good.clone();
        damaged[place] ^= 0x04;
        assert!(matches!(Message::read(&damaged), Err(ReadError::Garbled(_))), "{place}");
    }
    let mut longer = good.clone();
    longer.push(b'x');
    assert_eq!(Message::read(&longer).unwrap_err(), ReadError::Garbled(Garbled::WrongLength));
}

#[test]
fn groups_in_groups_are_written_and_read() {
    let mut buffer = [0; 1_024];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"i");
    HeaderFields::new(b"A", b"B", 1, NanosecondsSinceEpoch(0)).write(&mut writer);
    let entries = [
        QuoteEntryFields { bid_px: Some(Decimal(1)), ..QuoteEntryFields::new(b"1") },
        QuoteEntryFields { offer_px: Some(Decimal(2)), ..QuoteEntryFields::new(b"2") },
    ];
    let sets = [
        QuoteSetFields { quote_entries: &entries, ..QuoteSetFields::new(b"S1") },
        QuoteSetFields { quote_entries: &entries[..1], ..QuoteSetFields::new(b"S2") },
    ];
    let subs = [
        PartySubFields::new(b"desk"),
        PartySubFields { party_sub_id_type: Some(4), ..PartySubFields::new(b"x") },
    ];
    let parties = [PartyFields { party_subs: &subs, party_role: Some(12), ..PartyFields::new(b"P") }];
    MassQuoteFields { parties: &parties, quote_sets: &sets, ..MassQuoteFields::new(b"Q") }.write(&mut writer);
    let bytes = writer.finish().unwrap();
    let quote = MassQuote::read(bytes).unwrap();
    let read: Vec<_> = quote
        .quote_sets()
        .map(|set| {
            (
                set.quote_set_id(),
                set.quote_entries().map(|entry| (entry.quote_entry_id(), entry.bid_px())).collect::<Vec<_>>(),
            )
        })
        .collect();
    let (one, two) = ((&b"1"[..], Some(Decimal(1))), (&b"2"[..], None));
    assert_eq!(read, [(&b"S1"[..], vec![one, two]), (&b"S2"[..], vec![one])]);
    let party = quote.parties().next().unwrap();
    assert_eq!((party.party_id(), party.party_role()), (&b"P"[..], Some(12)));
    assert_eq!(party.party_subs().map(|sub| sub.party_sub_id_type()).collect::<Vec<_>>(), [None, Some(4)]);
    assert_eq!(quote.parties().count(), 1);
}

#[test]
fn the_header_of_any_message_is_read() {
    let bytes = message(&format!("35=ZZ|{HEADER}43=Y|122=20240301-09:29:59|50=desk|7777=x|"));
    let header = Header::read(&bytes).unwrap();
    assert_eq!((header.message_type(), header.msg_seq_num()), (&b"ZZ"[..], 2));
    assert_eq!((header.poss_dup_flag(), header.poss_resend()), (Some(true), None));
    assert_eq!(header.orig_sending_time(), Some(NanosecondsSinceEpoch(1_709_285_399_000_000_000)));
    assert_eq!(header.sender_sub_id(), Some(&b"desk"[..]));
}

#[test]
fn data_with_soh_in_a_message_of_several_blocks_is_read() {
    let data: Vec<u8> = (0..500u32).map(|index| [1, b'=', b'1', b'0'][index as usize % 4]).collect();
    let mut buffer = [0; 1_024];
    let mut writer = Writer::begin(&mut buffer, b"FIXT.1.1", b"A");
    HeaderFields::new(b"A", b"B", 1, NanosecondsSinceEpoch(0)).write(&mut writer);
    writer.number(98, 0).number(108, 30).data(95, 96, &data).text(1137, b"9");
    let bytes = writer.finish().unwrap();
    let logon = Logon::read(bytes).unwrap();
    assert_eq!(logon.raw_data(), Some(data.as_slice()));
    assert_eq!(logon.default_appl_ver_id(), Some(&b"9"[..]));
    assert_eq!(field(bytes, 1137), Some(&b"9"[..]));
}

#[test]
fn the_schema_has_every_message_and_field() {
    let schema = fix_schema_by_name("FIX").unwrap();
    assert_eq!(schema.name, fix_schemas()[0].name);
    let order = schema.message(b"D").unwrap();
    let price = order.fields.iter().find(|field| field.tag == 44).unwrap();
    assert_eq!((price.name, price.title, price.kind), ("price", "Price", FixKind::Decimal { places: 8 }));
    assert_eq!(schema.field(11).unwrap().title, "ClOrdID");
    assert_eq!(schema.field(453).unwrap().title, "NoPartyIDs");
    let page = schema.markdown();
    let object: serde_json::Value = serde_json::from_str(&schema.json()).unwrap();
    for message in schema.messages {
        assert!(page.contains(&format!("### {}\n", message.name)));
        let listed =
            object["messages"].as_array().unwrap().iter().find(|each| each["name"] == message.name).unwrap();
        assert_eq!(listed["fields"].as_array().unwrap().len(), message.fields.len());
    }
    let mut text = String::new();
    SCHEMA.write_message(&mut text, &self::order("9999=x|")).unwrap();
    assert!(text.contains("MsgType(35)=D NewOrderSingle SenderCompID(49)=A"), "{text}");
    assert!(text.contains("Side(54)=1 Buy") && text.contains(" 9999=x "), "{text}");
}

fn texts() -> impl Strategy<Value = String> {
    "[ -~]{1,30}"
}

proptest! {
    #[test]
    fn an_order_is_read_as_written(
        id in texts(), account in prop::option::of(texts()), price in prop::option::of(any::<i64>()), quantity in prop::option::of(any::<i64>()),
        time_ns in 0..18_000_000_000_000_000_000u64, expire in prop::option::of(0..200_000u32), sequence in any::<u64>(), flag in prop::option::of(any::<bool>()),
        parties in prop::collection::vec((texts(), prop::option::of(any::<i64>())), 0..5), data in prop::option::of(prop::collection::vec(any::<u8>(), 1..100)),
    ) {
        let mut buffer = [0; 2_048];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
        writer.set_precision(TimePrecision::Nanoseconds);
        HeaderFields::new(b"A", b"B", sequence, NanosecondsSinceEpoch(time_ns)).write(&mut writer);
        let parties: Vec<_> = parties.iter().map(|(id, role)| PartyFields { party_role: *role, ..PartyFields::new(id.as_bytes()) }).collect();
        let fields = NewOrderSingleFields {
            account: account.as_deref().map(str::as_bytes),
            price: price.map(Decimal),
            order_qty: quantity.map(Decimal),
            expire_date: expire,
            locate_reqd: flag,
            parties: &parties,
            encoded_text: data.as_deref(),
            ..NewOrderSingleFields::new(id.as_bytes(), Side::SellShort, NanosecondsSinceEpoch(time_ns), OrdType::Stop)
        };
        fields.write(&mut writer);
        let bytes = writer.finish().unwrap();
        // A view of another message.
        let other = order("44=7|38=9|59=3|");
        let mut again = NewOrderSingle::unread();
        let last = &mut LastTimestamp::default();
        again.read_into_behind(&other, last).unwrap();
        again.read_into_behind(bytes, last).unwrap();
        prop_assert_eq!((again.cl_ord_id(), again.transact_time()), (id.as_bytes(), fields.transact_time));
        prop_assert_eq!((again.price(), again.order_qty(), again.encoded_text()), (fields.price, fields.order_qty, fields.encoded_text));
        let Message::NewOrderSingle(read) = Message::read(bytes).unwrap() else { panic!("another type") };
        prop_assert_eq!(read.cl_ord_id(), id.as_bytes());
        prop_assert_eq!(read.msg_seq_num(), sequence);
        prop_assert_eq!((read.account(), read.price(), read.order_qty()), (fields.account, fields.price, fields.order_qty));
        prop_assert_eq!((read.side(), read.ord_type(), read.transact_time()), (fields.side, fields.ord_type, fields.transact_time));
        prop_assert_eq!((read.expire_date(), read.locate_reqd(), read.encoded_text()), (expire, flag, data.as_deref()));
        let read: Vec<_> = read.parties().map(|party| PartyFields { party_role: party.party_role(), ..PartyFields::new(party.party_id()) }).collect();
        prop_assert_eq!(read, parties);
    }

    #[test]
    fn a_report_is_read_as_written(quantities in prop::array::uniform4(any::<i64>()), done in any::<bool>()) {
        let mut buffer = [0; 1_024];
        let mut writer = Writer::begin(&mut buffer, b"FIX.4.2", b"8");
        HeaderFields::new(b"A", b"B", 1, NanosecondsSinceEpoch(0)).write(&mut writer);
        let [leaves, done_quantity, average, last] = quantities;
        let status = if done { OrdStatus::Filled } else { OrdStatus::PartiallyFilled };
        ExecutionReportFields {
            last_px: Some(Decimal(last)),
            ..ExecutionReportFields::new(b"O", b"E", ExecType::Trade, status, Side::Sell, Decimal(leaves), Decimal(done_quantity), Decimal(average))
        }.write(&mut writer);
        let report = ExecutionReport::read(writer.finish().unwrap()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((report.leaves_qty().0, report.cum_qty().0, report.avg_px().0), (leaves, done_quantity, average));
        prop_assert_eq!((report.last_px(), report.ord_status()), (Some(Decimal(last)), status));
    }

    #[test]
    fn no_body_makes_a_reader_panic(
        fields in prop::collection::vec((prop::sample::select(vec!["11", "44", "54", "60", "453", "448", "447", "354", "355", "93", "89", "9999", "x", ""]), "[-.:0-9A-Z|]{0,24}"), 0..30),
        message_type in prop::sample::select(vec!["D", "8", "A", "i", "4"]),
    ) {
        let body: String = fields.iter().map(|(tag, value)| format!("{tag}={value}|")).collect();
        let bytes = message(&format!("35={message_type}|{HEADER}{body}"));
        if let Ok(read) = Message::read(&bytes) {
            let shown = format!("{:?}", read);
            prop_assert!(!shown.is_empty());
        }
        let mut text = String::new();
        SCHEMA.write_message(&mut text, &bytes).unwrap();
        let _header = Header::read(&bytes);
    }
}
