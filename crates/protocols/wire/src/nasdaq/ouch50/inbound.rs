//! Messages from clients. See [`ouch50`](super).
//!
//! A client identifies an order by a user reference number, which only increases within a day.

tapeworks_wire_macros::protocol! {
/// Orders, and what changes them, from a client to Nasdaq.
protocol "nasdaq-ouch-5.0-inbound" {
    title: "Nasdaq OUCH 5.0 inbound",
    version: "5.0",
    endian: big,
    tag: ascii<1> @ 0,
    length: exact,
}

enum Side: ascii<1> {
    Buy = 'B',
    Sell = 'S',
    SellShort = 'T',
    SellShortExempt = 'E',
}

enum TimeInForce: ascii<1> {
    Day = '0',
    ImmediateOrCancel = '3',
    ExtendedHours = '5',
    GoodTillTime = '6',
    AfterHours = 'E',
}

enum Display: ascii<1> {
    Attributable = 'A',
    Visible = 'Y',
    Hidden = 'N',
    PostOnly = 'P',
    ImbalanceOnly = 'I',
    MidPointPeg = 'M',
    MidPointPegPostOnly = 'W',
    PostOnlyAndAttributable = 'L',
    RetailOrderType1 = 'O',
    RetailOrderType2 = 'T',
    RetailPriceImprovementOrder = 'Q',
    Conformant = 'Z',
    MidPointPegAndMidPointTradeNow = 'm',
    NonDisplayAndMidPoint = 'n',
}

enum Capacity: ascii<1> {
    Other = 'O',
    Agency = 'A',
    Principal = 'P',
    Riskless = 'R',
}

enum InterMarketSweepEligibility: ascii<1> {
    Eligible = 'Y',
    NotEligible = 'N',
}

enum CrossType: ascii<1> {
    ContinuousMarket = 'N',
    OpeningCross = 'O',
    Closing = 'C',
    HaltIpo = 'H',
    Supplemental = 'S',
    Retail = 'R',
    Extended = 'E',
    AfterHoursClose = 'A',
}

/// A new order.
message EnterOrder = 'O', 47.. bytes {
    user_ref_num                   @ 1 : u32,
    side                           @ 5 : Side,
    quantity                       @ 6 : u32,
    symbol                         @ 10: ascii<8>,
    price                          @ 18: price<u64, 4>,
    time_in_force                  @ 26: TimeInForce,
    display                        @ 27: Display,
    capacity                       @ 28: Capacity,
    inter_market_sweep_eligibility @ 29: InterMarketSweepEligibility,
    cross_type                     @ 30: CrossType,
    cl_ord_id                      @ 31: ascii<14>,
    appendage_length               @ 45: u16,
    appendage                      @ 47: rest,
}

/// Replaces an order: another quantity, price or kind, and a new user reference number.
message ReplaceOrder = 'U', 40.. bytes {
    orig_user_ref_num              @ 1 : u32,
    user_ref_num                   @ 5 : u32,
    quantity                       @ 9 : u32,
    price                          @ 13: price<u64, 4>,
    time_in_force                  @ 21: TimeInForce,
    display                        @ 22: Display,
    inter_market_sweep_eligibility @ 23: InterMarketSweepEligibility,
    cl_ord_id                      @ 24: ascii<14>,
    appendage_length               @ 38: u16,
    appendage                      @ 40: rest,
}

/// Reduces an order to this quantity; 0 cancels it.
message CancelOrder = 'X', 9 bytes {
    user_ref_num @ 1: u32,
    quantity     @ 5: u32,
}

/// Changes the side (between the kinds of sale) or reduces the quantity, and keeps the priority.
message ModifyOrder = 'M', 10 bytes {
    user_ref_num @ 1: u32,
    side         @ 5: Side,
    quantity     @ 6: u32,
}

/// Requests the next user reference number.
message AccountQuery = 'Q', 1 bytes {}}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nasdaq::ouch50::appendage::{OptionalField, OptionalFields};
    use crate::{Ascii, Decimal};

    /// A real message, from the capture `EnterOrderMessage.pcap`.
    const REAL_ORDER: &[u8] = b"O\x00\x00\x00\x71T\x00\x00\x00\xe1CVLT    \x00\x00\x00\x00\x00\x09\x9d\xb8\
                                0YANNH8FUB8IV      \x00\x06\x05\x02LIME";

    #[test]
    fn a_real_order_has_its_values() {
        let Ok(Message::EnterOrder(order)) = Message::decode(REAL_ORDER) else { panic!("not an order") };
        assert_eq!((order.user_ref_num(), order.side(), order.quantity()), (113, Side::SellShort, 225));
        assert_eq!(
            (order.symbol().as_str(), order.price().to_string()),
            (Some("CVLT"), "63.0200".to_owned())
        );
        assert_eq!((order.time_in_force(), order.display()), (TimeInForce::Day, Display::Visible));
        assert_eq!((order.capacity(), order.cross_type()), (Capacity::Agency, CrossType::ContinuousMarket));
        assert_eq!(order.cl_ord_id().as_str(), Some("H8FUB8IV"));
        let fields: Vec<_> = OptionalFields::new(order.appendage()).collect();
        assert_eq!(fields, [Ok(OptionalField::Firm(Ascii(*b"LIME")))]);
        assert_eq!(usize::from(order.appendage_length()), order.appendage().len());
        let mut again = [0; 64];
        let length = order.to_fields().encode_into(&mut again);
        assert_eq!(length.map(|length| &again[..length]), Ok(REAL_ORDER));
    }

    #[test]
    fn cancels_replaces_and_queries_have_the_bytes_of_the_document() {
        assert_eq!(CancelOrderFields { user_ref_num: 258, quantity: 0 }.encode(), *b"X\0\0\x01\x02\0\0\0\0");
        let modify = ModifyOrderFields { user_ref_num: 1, side: Side::SellShortExempt, quantity: 2 };
        assert_eq!(modify.encode(), *b"M\0\0\0\x01E\0\0\0\x02");
        assert!(matches!(Message::decode(b"Q"), Ok(Message::AccountQuery(_))));
        let replace = ReplaceOrderFields {
            orig_user_ref_num: 1,
            user_ref_num: 2,
            quantity: 300,
            price: Decimal(10_000),
            time_in_force: TimeInForce::ImmediateOrCancel,
            display: Display::Hidden,
            inter_market_sweep_eligibility: InterMarketSweepEligibility::NotEligible,
            cl_ord_id: Ascii(*b"ORDER-2       "),
            appendage_length: 0,
            appendage: &[],
        };
        let mut bytes = [0; 40];
        assert_eq!(replace.encode_into(&mut bytes), Ok(40));
        assert_eq!(&bytes, b"U\0\0\0\x01\0\0\0\x02\0\0\x01\x2c\0\0\0\0\0\0\x27\x103NNORDER-2       \0\0");
    }
}
