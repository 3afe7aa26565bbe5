//! Messages from Nasdaq. See [`ouch50`](super).

tapeworks_wire_macros::protocol! {
/// What becomes of orders, from Nasdaq to a client.
protocol "nasdaq-ouch-5.0-outbound" {
    title: "Nasdaq OUCH 5.0 outbound",
    version: "5.0",
    endian: big,
    tag: ascii<1> @ 0,
    length: exact,
}

enum EventCode: ascii<1> {
    StartOfDay = 'S',
    EndOfDay = 'E',
}

/// The day starts or ends.
message SystemEvent = 'S', 10 bytes {
    timestamp  @ 1: nanoseconds_since_midnight<u64>,
    event_code @ 9: EventCode,
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

enum OrderState: ascii<1> {
    OrderLive = 'L',
    OrderDead = 'D',
}

/// An order was accepted, with the terms as accepted.
message OrderAccepted = 'A', 64.. bytes {
    timestamp                      @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num                   @ 9 : u32,
    side                           @ 13: Side,
    quantity                       @ 14: u32,
    symbol                         @ 18: ascii<8>,
    price                          @ 26: price<u64, 4>,
    time_in_force                  @ 34: TimeInForce,
    display                        @ 35: Display,
    order_reference_number         @ 36: u64,
    capacity                       @ 44: Capacity,
    inter_market_sweep_eligibility @ 45: InterMarketSweepEligibility,
    cross_type                     @ 46: CrossType,
    order_state                    @ 47: OrderState,
    cl_ord_id                      @ 48: ascii<14>,
    appendage_length               @ 62: u16,
    appendage                      @ 64: rest,
}

/// An order was replaced, with the terms as accepted.
message Replaced = 'U', 68.. bytes {
    timestamp                      @ 1 : nanoseconds_since_midnight<u64>,
    orig_user_ref_num              @ 9 : u32,
    user_ref_num                   @ 13: u32,
    side                           @ 17: Side,
    quantity                       @ 18: u32,
    symbol                         @ 22: ascii<8>,
    price                          @ 30: price<u64, 4>,
    time_in_force                  @ 38: TimeInForce,
    display                        @ 39: Display,
    order_reference_number         @ 40: u64,
    capacity                       @ 48: Capacity,
    inter_market_sweep_eligibility @ 49: InterMarketSweepEligibility,
    cross_type                     @ 50: CrossType,
    order_state                    @ 51: OrderState,
    cl_ord_id                      @ 52: ascii<14>,
    appendage_length               @ 66: u16,
    appendage                      @ 68: rest,
}

enum CancelOrderReason: ascii<1> {
    UserRequestedCancel = 'U',
    ImmediateOrCancelOrder = 'I',
    Timeout = 'T',
    Supervisory = 'S',
    RegulatoryRestriction = 'D',
    SelfMatchPrevention = 'Q',
    SystemCancel = 'Z',
    CrossCanceled = 'C',
    CannotBeExecuted = 'K',
    Halted = 'H',
    OpenProtection = 'X',
    Closed = 'E',
    PostOnlyCancel = 'F',
    PostOnlyCancelContraSideDisplayed = 'G',
}

/// An order was reduced or cancelled.
message Canceled = 'C', 18 bytes {
    timestamp           @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num        @ 9 : u32,
    quantity            @ 13: u32,
    cancel_order_reason @ 17: CancelOrderReason,
}

enum LiquidityFlag: ascii<1> {
    Added = 'A',
    RetailDesignated = 'e',
    HaltIpo = 'H',
    AfterHoursClosing = 'i',
    NondisplayedAdding = 'J',
    RpiProvides = 'j',
    AddedByMidpointOrder = 'k',
    HaltCross = 'K',
    ClosingCross = 'L',
    OpeningCross = 'M',
    RemovedAtMidpoint = 'm',
    PassiveMidpoint = 'N',
    MidpointExtendedLife = 'n',
    Opening = 'O',
    RemovedPriceImprovingNondisplayed = 'p',
    RetailRemovesNonRpiMidpoint = 'q',
    Removed = 'R',
    RetailRemovesRpi = 'r',
    RetailRemovesPriceImprovingNondisplayed = 't',
    Supplemental = '0',
    DisplayedAddingImprovesNbbo = '7',
    DisplayedAddingSetsQbboAndJoinsNbbo = '8',
}

/// An order was reduced by self-match prevention.
message AiqCanceled = 'D', 31 bytes {
    timestamp                       @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num                    @ 9 : u32,
    decrement_shares                @ 13: u32,
    order_cancel_reason             @ 17: ascii<1>,
    quantity_prevented_from_trading @ 18: u32,
    execution_price                 @ 22: price<u64, 4>,
    liquidity_flag                  @ 30: LiquidityFlag,
}

/// An order was executed, in part or whole.
message OrderExecuted = 'E', 36.. bytes {
    timestamp        @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num     @ 9 : u32,
    quantity         @ 13: u32,
    price            @ 17: price<u64, 4>,
    liquidity_flag   @ 25: LiquidityFlag,
    match_number     @ 26: u64,
    appendage_length @ 34: u16,
    appendage        @ 36: rest,
}

enum BrokenTradeReason: ascii<1> {
    Erroneous = 'E',
    Consent = 'C',
    Supervisory = 'S',
    External = 'X',
}

/// An execution was broken.
message BrokenTrade = 'B', 36 bytes {
    timestamp           @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num        @ 9 : u32,
    match_number        @ 13: u64,
    broken_trade_reason @ 21: BrokenTradeReason,
    cl_ord_id           @ 22: ascii<14>,
}

enum TradeCorrectionReason: ascii<1> {
    AdjustedToNav = 'N',
}

/// An execution was corrected.
message TradeCorrection = 'F', 49 bytes {
    timestamp               @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num            @ 9 : u32,
    quantity                @ 13: u32,
    price                   @ 17: price<u64, 4>,
    liquidity_flag          @ 25: LiquidityFlag,
    match_number            @ 26: u64,
    trade_correction_reason @ 34: TradeCorrectionReason,
    cl_ord_id               @ 35: ascii<14>,
}

enum RejectedOrderReason: u16 {
    QuoteUnavailable = 0x0001,
    DestinationClosed = 0x0002,
    InvalidDisplay = 0x0003,
    InvalidMaxFloor = 0x0004,
    InvalidPegType = 0x0005,
    FatFinger = 0x0006,
    Halted = 0x0007,
    IsoNotAllowed = 0x0008,
    InvalidSide = 0x0009,
    ProcessingError = 0x000A,
    CancelPending = 0x000B,
    FirmNotAuthorized = 0x000C,
    InvalidMinQuantity = 0x000D,
    NoClosingReferencePrice = 0x000E,
    Other = 0x000F,
    CancelNotAllowed = 0x0010,
    PeggingNotAllowed = 0x0011,
    CrossedMarket = 0x0012,
    InvalidQuantity = 0x0013,
    InvalidCrossOrder = 0x0014,
    ReplaceNotAllowed = 0x0015,
    RoutingNotAllowed = 0x0016,
    InvalidSymbol = 0x0017,
    Test = 0x0018,
    LateLocTooAggressive = 0x0019,
    RetailNotAllowed = 0x001A,
    InvalidMidpointPostOnlyPrice = 0x001B,
    InvalidDestination = 0x001C,
    InvalidPrice = 0x001D,
    SharesExceedThreshold = 0x001E,
    ExceedsMaximumAllowedNotionalValue = 0x001F,
}

/// An order, or what was to change it, was rejected.
message RejectedOrder = 'J', 29 bytes {
    timestamp             @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num          @ 9 : u32,
    rejected_order_reason @ 13: RejectedOrderReason,
    cl_ord_id             @ 15: ascii<14>,
}

/// A cancel is taken and waits: the order is in a cross.
message CancelPending = 'P', 13 bytes {
    timestamp    @ 1: nanoseconds_since_midnight<u64>,
    user_ref_num @ 9: u32,
}

/// A cancel was rejected.
message CancelReject = 'I', 13 bytes {
    timestamp    @ 1: nanoseconds_since_midnight<u64>,
    user_ref_num @ 9: u32,
}

/// The order has another priority.
message OrderPriorityUpdate = 'T', 30 bytes {
    timestamp              @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num           @ 9 : u32,
    price                  @ 13: price<u64, 4>,
    display                @ 21: Display,
    order_reference_number @ 22: u64,
}

/// An order was modified.
message OrderModified = 'M', 18 bytes {
    timestamp    @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num @ 9 : u32,
    side         @ 13: Side,
    quantity     @ 14: u32,
}

enum OrderRestatedReason: ascii<1> {
    RefreshOfDisplay = 'R',
    UpdateOfDisplayedPrice = 'P',
}

/// The venue changed an order: what is displayed of a reserve or pegged order.
message OrderRestated = 'R', 16.. bytes {
    timestamp             @ 1 : nanoseconds_since_midnight<u64>,
    user_ref_num          @ 9 : u32,
    order_restated_reason @ 13: OrderRestatedReason,
    appendage_length      @ 14: u16,
    appendage             @ 16: rest,
}

/// The next user reference number.
message AccountQueryResponse = 'Q', 13 bytes {
    timestamp         @ 1: nanoseconds_since_midnight<u64>,
    next_user_ref_num @ 9: u32,
}}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ascii;
    use crate::nasdaq::ouch50::appendage::{OptionalField, OptionalFields};

    /// A real message, from the capture `OrderAcceptedMessage.pcap`.
    const REAL_ACCEPTED: &[u8] =
        b"A\x00\x00\x28\x9b\x4d\x64\xaf\x87\x00\x75\x3a\x8dB\x00\x00\x00\x28ADBE    \
        \x00\x00\x00\x00\x00\x48\xe7\x485Y\x00\x00\x00\x00\x0f\x56\xb4\xf5ANNL7682701       \
        \x00\x09\x05\x02MLRO\x02\x120";

    #[test]
    fn a_real_acceptance_has_its_values() {
        let Ok(Message::OrderAccepted(accepted)) = Message::decode(REAL_ACCEPTED) else { panic!() };
        assert_eq!(accepted.timestamp().to_string(), "12:24:07.483486087");
        assert_eq!((accepted.user_ref_num(), accepted.side()), (7_682_701, Side::Buy));
        assert_eq!((accepted.quantity(), accepted.symbol().as_str()), (40, Some("ADBE")));
        assert_eq!(accepted.price().to_string(), "477.7800");
        assert_eq!(accepted.time_in_force(), TimeInForce::ExtendedHours);
        assert_eq!((accepted.display(), accepted.order_state()), (Display::Visible, OrderState::OrderLive));
        assert_eq!(accepted.order_reference_number(), 257_340_661);
        assert_eq!(accepted.cl_ord_id().as_str(), Some("7682701"));
        let fields: Vec<_> = OptionalFields::new(accepted.appendage()).map(Result::unwrap).collect();
        let expected = [OptionalField::Firm(Ascii(*b"MLRO")), OptionalField::BboWeightIndicator(b'0')];
        assert_eq!(fields, expected);
    }

    /// Decodes a real message, from the capture `CanceledMessage.pcap`.
    #[test]
    fn a_real_cancellation_has_its_values() {
        let bytes = b"C\x00\x00\x28\x9b\x4d\x68\x13\x17\x00\x75\x3a\x8d\x00\x00\x00\x28U";
        let Ok(Message::Canceled(canceled)) = Message::decode(bytes) else { panic!("not a cancellation") };
        assert_eq!((canceled.user_ref_num(), canceled.quantity()), (7_682_701, 40));
        assert_eq!(canceled.cancel_order_reason(), CancelOrderReason::UserRequestedCancel);
        assert_eq!(canceled.to_fields().encode(), *bytes);
    }

    #[test]
    fn an_execution_and_a_rejection_have_the_bytes_of_the_document() {
        let mut bytes =
            b"E\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\x27\x10A\0\0\0\0\0\0\0\x09".to_vec();
        bytes.extend_from_slice(b"\0\x0a\x09\x13\0\0\0\0\0\0\x27\x11");
        let Ok(Message::OrderExecuted(executed)) = Message::decode(&bytes) else {
            panic!("not an execution")
        };
        assert_eq!((executed.user_ref_num(), executed.quantity(), executed.match_number()), (2, 3, 9));
        assert_eq!((executed.price().0, executed.liquidity_flag()), (10_000, LiquidityFlag::Added));
        let fields: Vec<_> = OptionalFields::new(executed.appendage()).map(Result::unwrap).collect();
        assert_eq!(fields, [OptionalField::ReferencePrice(crate::Decimal(10_001))]);
        let rejected = RejectedOrderFields {
            timestamp: crate::NanosecondsSinceMidnight(1),
            user_ref_num: 2,
            rejected_order_reason: RejectedOrderReason::InvalidSymbol,
            cl_ord_id: Ascii(*b"ORDER-2       "),
        };
        assert_eq!(rejected.encode(), *b"J\0\0\0\0\0\0\0\x01\0\0\0\x02\0\x17ORDER-2       ");
    }
}
