//! A reply has what the FIX version of its client has, and no more: clients validate by dictionary.

#![allow(clippy::unwrap_used, missing_docs)]

use tapeworks_fix_wire::order_entry::{
    CxlRejResponseTo, ExecTransType, ExecType, ExecutionReportFields, MassCancelRequestType,
    MassCancelResponse, MassQuoteAcknowledgementFields, OrdStatus, OrderCancelRejectFields, OrderCapacity,
    OrderMassCancelReportFields, QuoteStatusReportFields, Side,
};
use tapeworks_fix_wire::{Fields, Writer};
use tapeworks_translate::{Body, FixVersion, Reply};
use tapeworks_wire::Decimal;

const ALL: [FixVersion; 3] = [FixVersion::Fix42, FixVersion::Fix44, FixVersion::Fix50Sp2];

fn fields_of(message: &[u8]) -> String {
    let of_header = [8, 9, 10, 34, 35, 49, 52, 56];
    let fields = Fields::new(message).map(Result::unwrap).filter(|field| !of_header.contains(&field.tag));
    let texts = fields.map(|field| format!("{}={}", field.tag, String::from_utf8_lossy(field.value)));
    texts.collect::<Vec<_>>().join("|")
}

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = vec![0; 4_096];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"8");
    writer.number(34, 2).text(49, b"A").timestamp(52, 1_795_426_200_000_000_000).text(56, b"B");
    write(&mut writer);
    writer.finish().unwrap().to_vec()
}

fn sent(reply: &Reply<'_>, version: FixVersion) -> String {
    fields_of(&written(|writer| reply.write_as(version, writer)))
}

fn fill() -> ExecutionReportFields<'static> {
    ExecutionReportFields {
        ord_status_req_id: Some(b"s"),
        order_capacity: Some(OrderCapacity::Agency),
        last_qty: Some(Decimal(100_000_000)),
        trd_match_id: Some(b"m"),
        last_liquidity_ind: Some(1),
        ..ExecutionReportFields::new(
            b"o",
            b"e",
            ExecType::Trade,
            OrdStatus::PartiallyFilled,
            Side::Buy,
            Decimal(0),
            Decimal(0),
            Decimal(0),
        )
    }
}

#[test]
fn a_fill_has_the_fields_of_each_version() {
    let report = fill();
    let sent: Vec<String> =
        ALL.iter().map(|version| sent(&Reply::from(Body::Execution(&report)), *version)).collect();
    assert_eq!(sent[0], "37=o|17=e|20=0|150=1|39=1|54=1|32=1|151=0|14=0|6=0");
    assert_eq!(sent[1], "37=o|790=s|17=e|150=F|39=1|54=1|528=A|32=1|151=0|14=0|6=0|851=1");
    assert_eq!(sent[2], "37=o|790=s|17=e|150=F|39=1|54=1|528=A|32=1|151=0|14=0|6=0|880=m|851=1");
}

#[test]
fn reasons_are_those_that_the_version_lists() {
    for (reason, expected) in [(5, ["5", "5", "5"]), (13, ["0", "13", "13"]), (18, ["0", "99", "18"])] {
        let report = ExecutionReportFields { ord_rej_reason: Some(reason), ..fill() };
        for (version, expected) in ALL.iter().zip(expected) {
            let sent = sent(&Reply::from(Body::Execution(&report)), *version);
            assert!(sent.contains(&format!("|103={expected}|")), "{version:?} {reason}: {sent}");
        }
    }
    for (reason, expected) in [(1, ["1", "1", "1"]), (99, ["2", "99", "99"]), (8, ["2", "99", "8"])] {
        let reject = OrderCancelRejectFields {
            cxl_rej_reason: Some(reason),
            ..OrderCancelRejectFields::new(
                b"o",
                b"c",
                b"b",
                OrdStatus::New,
                CxlRejResponseTo::OrderCancelRequest,
            )
        };
        for (version, expected) in ALL.iter().zip(expected) {
            let sent = sent(&Reply::from(Body::CancelReject(&reject)), *version);
            assert!(sent.contains(&format!("102={expected}")), "{version:?} {reason}: {sent}");
        }
    }
}

#[test]
fn a_trade_of_an_auction_has_its_liquidity_where_the_version_lists_it() {
    let report = ExecutionReportFields { last_liquidity_ind: Some(4), ..fill() };
    let has = |version| sent(&Reply::from(Body::Execution(&report)), version).contains("|851=4");
    assert_eq!(ALL.map(has), [false, false, true]);
}

#[test]
fn a_mass_cancel_report_has_the_id_that_the_version_requires() {
    for response in [MassCancelResponse::Security, MassCancelResponse::Rejected] {
        let report = OrderMassCancelReportFields {
            cl_ord_id: Some(b"c"),
            ..OrderMassCancelReportFields::new(MassCancelRequestType::Security, response)
        };
        let reply = Reply::from(Body::MassCancel(&report));
        assert!(sent(&reply, FixVersion::Fix44).contains("|37=c|"), "{}", sent(&reply, FixVersion::Fix44));
        assert!(sent(&reply, FixVersion::Fix50Sp2).contains("|1369=c|"));
    }
}

#[test]
fn a_quotes_status_is_one_that_the_version_lists() {
    let report = QuoteStatusReportFields {
        quote_status: Some(17),
        quote_reject_reason: Some(99),
        ..QuoteStatusReportFields::new(b"q")
    };
    let reply = Reply::from(Body::QuoteStatus(&report));
    assert_eq!(sent(&reply, FixVersion::Fix44), "117=q|55=[N/A]|297=1");
    assert_eq!(sent(&reply, FixVersion::Fix50Sp2), "117=q|297=17|300=99");
    let answer = MassQuoteAcknowledgementFields {
        quote_id: Some(b"q"),
        quote_reject_reason: Some(99),
        ..MassQuoteAcknowledgementFields::new(5)
    };
    let reply = Reply::from(Body::MassQuoteAcknowledgement(&answer));
    let all = ALL.map(|version| sent(&reply, version));
    assert_eq!(all, ["117=q|297=5", "117=q|297=5|300=99", "117=q|297=5|300=99"]);
}

#[test]
fn a_copy_is_as_the_version_of_its_client_has_it() {
    for version in ALL {
        let fill = fill();
        let reply = Reply::from(Body::Execution(&fill));
        let copy = fields_of(&written(|writer| reply.write_copy_as(version, b"B", writer)));
        assert_eq!(copy, format!("115=B|{}", sent(&reply, version)), "{version:?}");
    }
    for (kind, of_42, since) in [
        (ExecTransType::Cancel, ExecType::New, "150=H"),
        (ExecTransType::Correct, ExecType::PartialFill, "150=G"),
        (ExecTransType::Status, ExecType::New, "150=I"),
        (ExecTransType::New, ExecType::Fill, "150=F"),
        (ExecTransType::New, ExecType::Canceled, "150=4"),
    ] {
        let report = ExecutionReportFields { exec_type: of_42, exec_trans_type: Some(kind), ..fill() };
        let sent = sent(&Reply::from(Body::Execution(&report)), FixVersion::Fix44);
        assert!(sent.contains(since) && !sent.contains("|20="), "{sent}");
    }
}
