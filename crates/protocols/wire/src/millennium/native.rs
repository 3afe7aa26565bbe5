//! Millennium's Native Trading Gateway: order entry and execution reports, over two TCP connections.
//!
//! Source: the public definitions of the London Stock Exchange's *MIT203 Native Trading Gateway* 21.2, real-time and
//! recovery channel; one declaration covers both. Little-endian. A message starts with the byte 2, the length of the
//! bytes that follow the length, and the type. Offsets here count from that start, so the document's offsets are four less. Prices
//! are signed with eight implied decimals. Text is left-justified; the venue chooses the padding
//! ([`TextPadding`](super::variant::TextPadding)).
//!
//! Client messages are not numbered. The venue's reports carry the App ID of the partition that processed the order, and a
//! number per App ID and user, starting at 1 each day: [`report_number`]. [`Messages`](super::stream::Messages) splits a
//! connection's bytes into messages.
//!
//! Not verified on real packets. The layouts are the London Stock Exchange's. For another venue
//! ([`Variant`](super::variant::Variant)), check them against the venue's document.

use crate::SecondsSinceEpoch;

/// The first byte of every message.
pub const START_OF_MESSAGE: u8 = 2;

/// Bytes up to the end of a message's length field, which the length does not count.
pub const UNCOUNTED_BYTES: usize = 3;

/// The longest message in a stream, in bytes: several times the longest declared message.
pub const MAX_MESSAGE_BYTES: usize = 1_024;

/// Returns the value of Message Length for a message of `bytes` bytes in total.
///
/// ```
/// use tapeworks_wire::millennium::native::{Heartbeat, message_length};
/// assert_eq!(message_length(Heartbeat::LENGTH), 1);
/// ```
#[must_use]
pub const fn message_length(bytes: usize) -> u16 {
    // No message is longer than MAX_MESSAGE_BYTES.
    bytes.saturating_sub(UNCOUNTED_BYTES) as u16
}

/// Splits nanoseconds since 1970 UTC into the two fields of Transact Time.
#[must_use]
pub const fn transact_time(time_ns: u64) -> (SecondsSinceEpoch, u32) {
    let seconds = time_ns / 1_000_000_000;
    // The seconds fit 32 bits until 2106.
    let seconds = if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 };
    (SecondsSinceEpoch(seconds), (time_ns % 1_000_000_000) as u32)
}

/// Returns the App ID and the number of a report from the venue; `None` for every other message. Both are at the same offsets
/// in all reports.
#[inline]
#[must_use]
pub fn report_number(message: &[u8]) -> Option<(u8, i32)> {
    let tag = *message.get(3)?;
    let is_report = matches!(
        tag,
        ExecutionReport::TAG
            | OrderCancelReject::TAG
            | OrderMassCancelReport::TAG
            | BusinessReject::TAG
            | QuoteRequest::TAG
            | QuoteRequestReject::TAG
            | QuoteStatusReport::TAG
            | RfqQuote::TAG
            | QuoteAck::TAG
            | QuoteResponse::TAG
            | RfqExecutionReport::TAG
    );
    let numbers = message.get(4..)?.first_chunk::<5>()?;
    let [app_id, number @ ..] = *numbers;
    is_report.then_some((app_id, i32::from_le_bytes(number)))
}

/// Returns the Transact Time of a venue's report about an order, in nanoseconds since 1970 UTC; `None` for every other message.
#[inline]
#[must_use]
pub fn report_time_ns(message: &[u8]) -> Option<u64> {
    let at = match *message.get(3)? {
        ExecutionReport::TAG => 127,
        OrderCancelReject::TAG | BusinessReject::TAG => 45,
        OrderMassCancelReport::TAG => 38,
        RfqExecutionReport::TAG => 65,
        _ => return None,
    };
    let [seconds @ .., a, b, c, d] = *message.get(at..)?.first_chunk::<8>()?;
    let (seconds, nanoseconds) = (u32::from_le_bytes(seconds), u32::from_le_bytes([a, b, c, d]));
    Some(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds))
}

tapeworks_wire_macros::protocol! {
    /// Orders in, execution reports out: the London Stock Exchange's native gateway, both channels.
    protocol "lse-native-21.2" {
        title: "Millennium Native Trading Gateway 21.2",
        version: "21.2",
        endian: little,
        tag: ascii<1> @ 3,
        constant: u8 @ 0 = 2,
        length: exact,
    }

    /// What every message begins with.
    header MessageHeader = 4 bytes {
        start_of_message @ 0: u8,
        /// Bytes that follow this field: the type and the body.
        message_length   @ 1: u16,
        message_type     @ 3: ascii<1>,
    }

    /// Client, both channels: the first message of a connection.
    message Logon = 'A', 80 bytes {
        start_of_message @ 0 : u8,
        message_length   @ 1 : u16,
        user_name        @ 4 : ascii<25>,
        password         @ 29: ascii<25>,
        new_password     @ 54: ascii<25>,
        message_version  @ 79: u8,
    }

    /// Venue: the answer to a logon. Reject code 0 is success.
    message LogonReply = 'B', 38 bytes {
        start_of_message          @ 0: u8,
        message_length            @ 1: u16,
        reject_code               @ 4: i32,
        password_expiry_day_count @ 8: ascii<30>,
    }

    /// Either side: ends the session. The other side answers with its own, then TCP is closed.
    message Logout = '5', 24 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
        reason           @ 4: ascii<20>,
    }

    /// Either side: sent when nothing else was for the interval.
    message Heartbeat = '0', 4 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
    }

    /// Venue: a malformed message, one that does not belong here, or one over the throttle rate.
    message Reject = '3', 59 bytes {
        start_of_message      @ 0 : u8,
        message_length        @ 1 : u16,
        reject_code           @ 4 : i32,
        reject_reason         @ 8 : ascii<30>,
        rejected_message_type @ 38: ascii<1>,
        client_order_id       @ 39: ascii<20>,
    }

    /// The partition that processed the order. Venues may have more than the four that are listed.
    enum AppId: u8 {
        /// System suspended, or an unknown instrument.
        System = 0,
        Partition1 = 1,
        Partition2 = 2,
        Partition3 = 3,
        Partition4 = 4,
    }

    enum AppStatus: u8 {
        RecoveryServiceResumed = 1,
        RecoveryServiceNotAvailable = 2,
        /// Real-time channel: the order cache of a partition is out.
        PartitionNotAvailable = 3,
    }

    /// Venue: whether the recovery service of a partition, or the partition itself, is there.
    message SystemStatus = 'n', 6 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
        app_id           @ 4: AppId,
        app_status       @ 5: AppStatus,
    }

    /// Client, recovery channel: requests the reports of a partition after a sequence number.
    message MissedMessageRequest = 'M', 9 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
        app_id           @ 4: AppId,
        last_msg_seq_num @ 5: i32,
    }

    enum MissedMessageAckType: u8 {
        Successful = 0,
        RecoveryRequestLimitReached = 1,
        InvalidAppId = 2,
        ServiceUnavailable = 3,
    }

    /// Venue, recovery channel: whether the request is accepted. The missed messages follow.
    message MissedMessageRequestAck = 'N', 5 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
        response_type    @ 4: MissedMessageAckType,
    }

    enum MissedMessageReportType: u8 {
        DownloadComplete = 0,
        /// More is missed: request again.
        MessageLimitReached = 1,
        ServiceUnavailable = 3,
    }

    /// Venue, recovery channel: the end of the missed messages of one request.
    message MissedMessageReport = 'P', 5 bytes {
        start_of_message @ 0: u8,
        message_length   @ 1: u16,
        response_type    @ 4: MissedMessageReportType,
    }

    enum ClearingAccount: u8 {
        Client = 1,
        House = 3,
    }

    /// MiFID flags, from the lowest bit.
    flags MifidFlags: u8 {
        DirectElectronicAccess = 0,
        LiquidityProvision = 1,
        Algorithmic = 2,
    }

    enum OrderType: u8 {
        Market = 1,
        Limit = 2,
        Stop = 3,
        StopLimit = 4,
    }

    enum Tif: u8 {
        Day = 0,
        ImmediateOrCancel = 3,
        FillOrKill = 4,
        AtTheOpening = 5,
        GoodTillDate = 6,
        GoodTillTime = 8,
        AtTheClose = 10,
        ClosingPriceCross = 12,
        GoodForAuction = 50,
        GoodForIntradayAuction = 51,
        GoodForScheduledAuction = 52,
        AuctionVolumeDiscovery = 54,
        AuctionVolumeClose = 55,
    }

    enum Side: u8 {
        None = 0,
        Buy = 1,
        Sell = 2,
    }

    enum Capacity: u8 {
        MatchedPrincipal = 1,
        DealingOnOwnAccount = 2,
        AnyOther = 3,
    }

    enum AutoCancel: u8 {
        DoNotCancel = 0,
        ConformToUserConfiguration = 1,
    }

    enum OrderSubType: u8 {
        Order = 0,
        Pegged = 5,
        RandomPeakSize = 51,
        Offset = 55,
    }

    enum Anonymity: u8 {
        Anonymous = 0,
        Named = 1,
    }

    enum PassiveOnlyOrder: u8 {
        NoConstraint = 0,
        /// Only if it sets a new best price or joins the best price; else it expires.
        NewBboOrJoin = 1,
        /// Only at the best price or within one visible price point; else it expires.
        WithinOneVisiblePricePoint = 2,
        /// Only at the best price or within two visible price points; else it expires.
        WithinTwoVisiblePricePoints = 3,
        /// Only if it does not match a visible order; else it expires.
        NoMatchWithVisible = 99,
        /// Only if it sets a new visible best price; else it expires.
        NewVisibleBbo = 100,
    }

    /// A short code, or one of these.
    enum ClientId: u32 {
        None = 0,
        Aggregated = 1,
        PendingAllocation = 2,
    }

    /// A short code, or this.
    enum InvestmentDecisionMaker: u32 {
        None = 0,
    }

    /// A short code, or this.
    enum ExecutingTrader: u32 {
        Client = 3,
    }

    enum PeggedExecInst: u8 {
        Default = 0,
        PermittedAgainstMidpointPegged = 1,
        NotPermittedAgainstMidpointPegged = 2,
    }

    enum OwnerType: u8 {
        Default = 0,
        RetailInvestor = 1,
        RetailLiquidityProvider = 2,
    }

    /// Client: a new order.
    message NewOrder = 'D', 125 bytes {
        start_of_message          @ 0  : u8,
        message_length            @ 1  : u16,
        client_order_id           @ 4  : ascii<20>,
        trader_id                 @ 24 : ascii<11>,
        account                   @ 35 : ascii<10>,
        clearing_account          @ 45 : ClearingAccount,
        instrument_id             @ 46 : i32,
        mifid_flags               @ 50 : MifidFlags,
        /// Two bits each, from the lowest: client, investment decision maker, executing trader.
        party_role_qualifiers     @ 51 : u8,
        order_type                @ 52 : OrderType,
        tif                       @ 53 : Tif,
        expire_date_time          @ 54 : u32,
        side                      @ 58 : Side,
        order_qty                 @ 59 : i32,
        display_qty               @ 63 : i32,
        limit_price               @ 67 : price<i64, 8>,
        capacity                  @ 75 : Capacity,
        auto_cancel               @ 76 : AutoCancel,
        order_sub_type            @ 77 : OrderSubType,
        anonymity                 @ 78 : Anonymity,
        stop_price                @ 79 : price<i64, 8>,
        passive_only_order        @ 87 : PassiveOnlyOrder,
        client_id                 @ 88 : ClientId,
        investment_decision_maker @ 92 : InvestmentDecisionMaker,
        group_id                  @ 96 : u8,
        minimum_quantity          @ 97 : i32,
        executing_trader          @ 101: ExecutingTrader,
        offset                    @ 105: i32,
        pegged_exec_inst          @ 109: PeggedExecInst,
        owner_type                @ 110: OwnerType,
        reserved_14               @ 111: bytes<14>,
    }

    /// Client: a new quote, or a new pair of prices of the quote that stands.
    message NewQuote = 'S', 81 bytes {
        start_of_message          @ 0 : u8,
        message_length            @ 1 : u16,
        client_order_id           @ 4 : ascii<20>,
        trader_id                 @ 24: ascii<11>,
        clearing_account          @ 35: ClearingAccount,
        instrument_id             @ 36: i32,
        bid_price                 @ 40: price<i64, 8>,
        bid_size                  @ 48: i32,
        ask_price                 @ 52: price<i64, 8>,
        ask_size                  @ 60: i32,
        capacity                  @ 64: Capacity,
        auto_cancel               @ 65: AutoCancel,
        client_id                 @ 66: ClientId,
        investment_decision_maker @ 70: InvestmentDecisionMaker,
        executing_trader          @ 74: ExecutingTrader,
        mifid_flags               @ 78: MifidFlags,
        /// Two bits each, from the lowest: client, investment decision maker, executing trader.
        party_role_qualifiers     @ 79: u8,
        pegged_exec_inst          @ 80: PeggedExecInst,
    }

    /// Client: amends an order, which it names by Original Client Order ID or by Order ID.
    message OrderCancelReplaceRequest = 'G', 116 bytes {
        start_of_message         @ 0  : u8,
        message_length           @ 1  : u16,
        client_order_id          @ 4  : ascii<20>,
        original_client_order_id @ 24 : ascii<20>,
        order_id                 @ 44 : ascii<12>,
        instrument_id            @ 56 : i32,
        group_id                 @ 60 : u8,
        reserved_1               @ 61 : bytes<1>,
        expire_date_time         @ 62 : u32,
        order_qty                @ 66 : i32,
        display_qty              @ 70 : i32,
        limit_price              @ 74 : price<i64, 8>,
        account                  @ 82 : ascii<10>,
        second_reserved_1        @ 92 : bytes<1>,
        side                     @ 93 : Side,
        stop_price               @ 94 : price<i64, 8>,
        passive_only_order       @ 102: PassiveOnlyOrder,
        offset                   @ 103: i32,
        reserved_5               @ 107: bytes<5>,
        minimum_quantity         @ 112: i32,
    }

    /// Client: cancels an order, which it names by Original Client Order ID or by Order ID.
    message OrderCancelRequest = 'F', 73 bytes {
        start_of_message         @ 0 : u8,
        message_length           @ 1 : u16,
        client_order_id          @ 4 : ascii<20>,
        original_client_order_id @ 24: ascii<20>,
        order_id                 @ 44: ascii<12>,
        instrument_id            @ 56: i32,
        reserved_1               @ 60: bytes<1>,
        second_reserved_1        @ 61: bytes<1>,
        side                     @ 62: Side,
        rfq_id                   @ 63: ascii<10>,
    }

    enum MassCancelRequestType: u8 {
        /// All orders of the firm in an instrument.
        FirmOrdersOfInstrument = 3,
    }

    enum MassCancelOrderSubType: u8 {
        Order = 0,
        Quote = 3,
    }

    /// Client: cancels many orders.
    message OrderMassCancelRequest = 'q', 46 bytes {
        start_of_message         @ 0 : u8,
        message_length           @ 1 : u16,
        client_order_id          @ 4 : ascii<20>,
        mass_cancel_request_type @ 24: MassCancelRequestType,
        instrument_id            @ 25: i32,
        reserved_1               @ 29: bytes<1>,
        group_id                 @ 30: u8,
        segment                  @ 31: ascii<4>,
        order_sub_type           @ 35: MassCancelOrderSubType,
        reserved_10              @ 36: bytes<10>,
    }

    enum ExecType: ascii<1> {
        New = '0',
        Cancelled = '4',
        Replaced = '5',
        Rejected = '8',
        Suspended = '9',
        Expired = 'C',
        Restated = 'D',
        Trade = 'F',
        TradeCancel = 'H',
    }

    enum OrderStatus: u8 {
        New = 0,
        PartiallyFilled = 1,
        Filled = 2,
        Cancelled = 4,
        Expired = 6,
        Rejected = 8,
        Suspended = 9,
    }

    enum ReportedPeggedExecInst: u8 {
        PermissionedAgainstMidpointPegged = 1,
        NotPermissionedAgainstMidpointPegged = 2,
    }

    enum TradeLiquidityIndicator: ascii<1> {
        AddedLiquidity = 'A',
        RemovedLiquidity = 'R',
        Auction = 'C',
    }

    enum LastMarket: u8 {
        /// London Stock Exchange, regulated market.
        Xlon = 21,
        /// Multilateral trading facility outside AIM.
        Xlom = 22,
        /// AIM.
        Aimx = 23,
    }

    enum TypeOfTrade: u8 {
        Visible = 0,
        Hidden = 1,
        /// Of the aggressive side, and of auction and RFQ trades.
        NotSpecified = 2,
    }

    /// Venue: an order was accepted, rejected, executed, amended, cancelled, ..
    message ExecutionReport = '8', 155 bytes {
        start_of_message            @ 0  : u8,
        message_length              @ 1  : u16,
        app_id                      @ 4  : AppId,
        sequence_no                 @ 5  : i32,
        execution_id                @ 9  : ascii<12>,
        client_order_id             @ 21 : ascii<20>,
        order_id                    @ 41 : ascii<12>,
        exec_type                   @ 53 : ExecType,
        execution_report_ref_id     @ 54 : ascii<12>,
        order_status                @ 66 : OrderStatus,
        order_reject_code           @ 67 : i32,
        executed_price              @ 71 : price<i64, 8>,
        executed_qty                @ 79 : i32,
        leaves_qty                  @ 83 : i32,
        waiver_and_post_trade_flags @ 87 : u8,
        display_qty                 @ 88 : i32,
        instrument_id               @ 92 : i32,
        restatement_reason          @ 96 : u8,
        pegged_exec_inst            @ 97 : ReportedPeggedExecInst,
        side                        @ 98 : Side,
        owner_type                  @ 99 : OwnerType,
        reserved_7                  @ 100: bytes<7>,
        counterparty                @ 107: ascii<11>,
        trade_liquidity_indicator   @ 118: TradeLiquidityIndicator,
        trade_match_id              @ 119: u64,
        transact_time_seconds       @ 127: seconds_since_epoch<u32>,
        transact_time_nanoseconds   @ 131: u32,
        last_market                 @ 135: LastMarket,
        type_of_trade               @ 136: TypeOfTrade,
        capacity                    @ 137: Capacity,
        reserved_1                  @ 138: bytes<1>,
        public_order_id             @ 139: ascii<12>,
        minimum_quantity            @ 151: i32,
    }

    /// Venue: a cancel or an amendment was rejected.
    message OrderCancelReject = '9', 63 bytes {
        start_of_message          @ 0 : u8,
        message_length            @ 1 : u16,
        app_id                    @ 4 : AppId,
        sequence_no               @ 5 : i32,
        client_order_id           @ 9 : ascii<20>,
        order_id                  @ 29: ascii<12>,
        cancel_reject_reason      @ 41: i32,
        transact_time_seconds     @ 45: seconds_since_epoch<u32>,
        transact_time_nanoseconds @ 49: u32,
        rfq_id                    @ 53: ascii<10>,
    }

    enum MassCancelResponse: u8 {
        Rejected = 0,
        Accepted = 7,
    }

    /// Venue: the answer to a mass cancel. The cancelled orders are reported by execution reports.
    message OrderMassCancelReport = 'r', 56 bytes {
        start_of_message          @ 0 : u8,
        message_length            @ 1 : u16,
        app_id                    @ 4 : AppId,
        sequence_no               @ 5 : i32,
        client_order_id           @ 9 : ascii<20>,
        mass_cancel_response      @ 29: MassCancelResponse,
        mass_cancel_reject_reason @ 30: i32,
        reserved_4                @ 34: bytes<4>,
        transact_time_seconds     @ 38: seconds_since_epoch<u32>,
        transact_time_nanoseconds @ 42: u32,
        reserved_10               @ 46: bytes<10>,
    }

    /// Venue: a well-formed message that the matching side cannot take.
    message BusinessReject = 'j', 63 bytes {
        start_of_message          @ 0 : u8,
        message_length            @ 1 : u16,
        app_id                    @ 4 : AppId,
        sequence_no               @ 5 : i32,
        reject_code               @ 9 : i32,
        client_order_id           @ 13: ascii<20>,
        order_id                  @ 33: ascii<12>,
        transact_time_seconds     @ 45: seconds_since_epoch<u32>,
        transact_time_nanoseconds @ 49: u32,
        reserved_10               @ 53: bytes<10>,
    }

    enum OrderBook: u8 {
        RfqTrades = 11,
    }

    enum PrivateQuote: u8 {
        PrivateQuote = 2,
    }

    enum QuoteRequestType: u8 {
        /// Named if market makers are given, else anonymous.
        Manual = 0,
        /// Named if market makers are given, else anonymous.
        Automatic = 1,
        ManualNamed = 2,
        ManualAnonymous = 3,
        AutomaticNamed = 4,
        AutomaticAnonymous = 5,
    }

    enum AccountType: u8 {
        Client = 1,
    }

    enum OrderCapacity: u8 {
        MatchedPrincipal = 1,
        DealingOnOwnAccount = 2,
        AnyOther = 3,
    }

    enum RfqDiscloseSide: u8 {
        DoNotDisclose = 0,
        Disclose = 1,
    }

    enum AutoRfqExecStrategy: u8 {
        /// Auction below large-in-scale size.
        SubLisAuction = 1,
        /// Large in scale: the winner takes all.
        LisWinnerTakesAll = 4,
    }

    /// Either side: a request for quotes (RFQ).
    message QuoteRequest = 'a', 161 bytes {
        start_of_message          @ 0  : u8,
        message_length            @ 1  : u16,
        partition_id              @ 4  : u8,
        sequence_number           @ 5  : i32,
        quote_req_id              @ 9  : ascii<10>,
        order_book                @ 19 : OrderBook,
        private_quote             @ 20 : PrivateQuote,
        instrument_id             @ 21 : i32,
        side                      @ 25 : Side,
        order_quantity            @ 26 : i32,
        expire_time               @ 30 : u32,
        market_makers             @ 34 : ascii<60>,
        contra_trader             @ 94 : ascii<11>,
        contra_firm               @ 105: ascii<11>,
        rfq_id                    @ 116: ascii<10>,
        client_id                 @ 126: ClientId,
        investment_decision_maker @ 130: InvestmentDecisionMaker,
        executing_trader          @ 134: ExecutingTrader,
        mifid_flags               @ 138: MifidFlags,
        /// Two bits each, from the lowest: client, investment decision maker, executing trader.
        party_role_qualifiers     @ 139: u8,
        quote_request_type        @ 140: QuoteRequestType,
        price                     @ 141: price<i64, 8>,
        rfq_execution_delay       @ 149: u8,
        rfq_min_quotes            @ 150: u8,
        account_type              @ 151: AccountType,
        order_capacity            @ 152: OrderCapacity,
        rfq_disclose_side         @ 153: RfqDiscloseSide,
        expire_time_milliseconds  @ 154: u32,
        auto_rfq_exec_strategy    @ 158: AutoRfqExecStrategy,
        num_of_competitors        @ 159: u8,
        market_maker_rank         @ 160: u8,
    }

    /// Venue: a request for quotes was rejected.
    message QuoteRequestReject = 'b', 114 bytes {
        start_of_message @ 0  : u8,
        message_length   @ 1  : u16,
        partition_id     @ 4  : u8,
        sequence_number  @ 5  : i32,
        quote_req_id     @ 9  : ascii<10>,
        reject_code      @ 19 : i32,
        order_book       @ 23 : OrderBook,
        instrument_id    @ 24 : i32,
        side             @ 28 : Side,
        order_quantity   @ 29 : i32,
        market_makers    @ 33 : ascii<60>,
        contra_trader    @ 93 : ascii<11>,
        rfq_id           @ 104: ascii<10>,
    }

    enum QuoteStatus: u8 {
        Accepted = 1,
        Rejected = 2,
    }

    /// Venue: what became of a quote.
    message QuoteStatusReport = 'c', 147 bytes {
        start_of_message         @ 0  : u8,
        message_length           @ 1  : u16,
        partition_id             @ 4  : u8,
        sequence_number          @ 5  : i32,
        quote_msg_id             @ 9  : ascii<20>,
        quote_req_id             @ 29 : ascii<10>,
        quote_status             @ 39 : QuoteStatus,
        reject_code              @ 40 : i32,
        order_book               @ 44 : OrderBook,
        market_makers            @ 45 : ascii<60>,
        rfq_id                   @ 105: ascii<10>,
        expire_time              @ 115: u32,
        bid_id                   @ 119: ascii<12>,
        offer_id                 @ 131: ascii<12>,
        expire_time_milliseconds @ 143: u32,
    }

    /// Either side: a quote in answer to a request.
    message RfqQuote = 'd', 130 bytes {
        start_of_message          @ 0  : u8,
        message_length            @ 1  : u16,
        partition_id              @ 4  : u8,
        sequence_number           @ 5  : i32,
        quote_msg_id              @ 9  : ascii<20>,
        rfq_id                    @ 29 : ascii<10>,
        instrument_id             @ 39 : i32,
        bid_price                 @ 43 : price<i64, 8>,
        bid_quantity              @ 51 : i32,
        offer_price               @ 55 : price<i64, 8>,
        offer_quantity            @ 63 : i32,
        auto_cancel               @ 67 : AutoCancel,
        market_maker              @ 68 : ascii<11>,
        market_maker_firm         @ 79 : ascii<11>,
        bid_id                    @ 90 : ascii<12>,
        offer_id                  @ 102: ascii<12>,
        capacity                  @ 114: Capacity,
        clearing_account          @ 115: ClearingAccount,
        client_id                 @ 116: ClientId,
        investment_decision_maker @ 120: InvestmentDecisionMaker,
        executing_trader          @ 124: ExecutingTrader,
        mifid_flags               @ 128: MifidFlags,
        /// Two bits each, from the lowest: client, investment decision maker, executing trader.
        party_role_qualifiers     @ 129: u8,
    }

    enum QuoteAckStatus: u8 {
        Accepted = 1,
        Rejected = 2,
    }

    /// Venue: the answer to a quote.
    message QuoteAck = 'e', 69 bytes {
        start_of_message @ 0 : u8,
        message_length   @ 1 : u16,
        partition_id     @ 4 : u8,
        sequence_number  @ 5 : i32,
        quote_msg_id     @ 9 : ascii<20>,
        rfq_id           @ 29: ascii<10>,
        bid_id           @ 39: ascii<12>,
        offer_id         @ 51: ascii<12>,
        quote_ack_status @ 63: QuoteAckStatus,
        reject_code      @ 64: i32,
        order_book       @ 68: OrderBook,
    }

    enum QuoteRespType: u8 {
        HitLift = 1,
        Expired = 3,
        EndTrade = 7,
        TimedOut = 8,
        Cancelled = 11,
        Replace = 100,
        Executable = 101,
        MakeQuotesPublic = 102,
    }

    /// Either side: the requester takes a quote, or the request ends.
    message QuoteResponse = 'f', 92 bytes {
        start_of_message @ 0 : u8,
        message_length   @ 1 : u16,
        partition_id     @ 4 : u8,
        sequence_number  @ 5 : i32,
        quote_msg_id     @ 9 : ascii<20>,
        rfq_id           @ 29: ascii<10>,
        quote_resp_type  @ 39: QuoteRespType,
        instrument_id    @ 40: i32,
        side             @ 44: Side,
        order_quantity   @ 45: i32,
        limit_price      @ 49: price<i64, 8>,
        order_book       @ 57: OrderBook,
        bid_id           @ 58: ascii<12>,
        offer_id         @ 70: ascii<12>,
        capacity         @ 82: Capacity,
        clearing_account @ 83: ClearingAccount,
        reserved_8       @ 84: bytes<8>,
    }

    enum RfqExecType: ascii<1> {
        Cancelled = '4',
        Expired = 'C',
        Restated = 'D',
        Trade = 'F',
        TradeCancel = 'H',
    }

    enum RfqOrderStatus: u8 {
        PartiallyFilled = 1,
        Filled = 2,
        Cancelled = 4,
        Expired = 6,
    }

    enum ContraOrderBook: u8 {
        Regular = 1,
    }

    /// Venue: an execution of a request for quotes.
    message RfqExecutionReport = 'g', 157 bytes {
        start_of_message          @ 0  : u8,
        message_length            @ 1  : u16,
        partition_id              @ 4  : u8,
        sequence_number           @ 5  : i32,
        execution_id              @ 9  : ascii<12>,
        rfq_id                    @ 21 : ascii<10>,
        order_id                  @ 31 : ascii<12>,
        execution_type            @ 43 : RfqExecType,
        trade_match_id            @ 44 : u64,
        side                      @ 52 : Side,
        executed_quantity         @ 53 : i32,
        executed_price            @ 57 : price<i64, 8>,
        transact_time_seconds     @ 65 : seconds_since_epoch<u32>,
        transact_time_nanoseconds @ 69 : u32,
        reserved_8                @ 73 : bytes<8>,
        second_reserved_8         @ 81 : bytes<8>,
        order_status              @ 89 : RfqOrderStatus,
        leaves_quantity           @ 90 : i32,
        instrument_id             @ 94 : i32,
        third_reserved_8          @ 98 : bytes<8>,
        fourth_reserved_8         @ 106: bytes<8>,
        contra_firm               @ 114: ascii<11>,
        capacity                  @ 125: Capacity,
        clearing_account          @ 126: ClearingAccount,
        waiver_flags              @ 127: u8,
        execution_report_ref_id   @ 128: ascii<12>,
        contra_order_book         @ 140: ContraOrderBook,
        avg_px                    @ 141: price<i64, 8>,
        last_market               @ 149: LastMarket,
        reserved_7                @ 150: bytes<7>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ascii, Decimal};

    #[test]
    fn the_time_of_a_report_is_its_transact_time() {
        let reports = [(b'8', 155), (b'9', 63), (b'r', 56), (b'j', 63), (b'g', 157)];
        for (tag, length) in reports {
            let mut bytes = vec![0; length];
            let [low, high] = message_length(length).to_le_bytes();
            bytes[..4].copy_from_slice(&[START_OF_MESSAGE, low, high, tag]);
            for (place, byte) in bytes.iter_mut().enumerate().skip(4) {
                *byte = place as u8 & 0x3F;
            }
            let (seconds, nanoseconds) = match Message::decode(&bytes).unwrap() {
                Message::ExecutionReport(report) => {
                    (report.transact_time_seconds(), report.transact_time_nanoseconds())
                }
                Message::OrderCancelReject(report) => {
                    (report.transact_time_seconds(), report.transact_time_nanoseconds())
                }
                Message::OrderMassCancelReport(report) => {
                    (report.transact_time_seconds(), report.transact_time_nanoseconds())
                }
                Message::BusinessReject(report) => {
                    (report.transact_time_seconds(), report.transact_time_nanoseconds())
                }
                Message::RfqExecutionReport(report) => {
                    (report.transact_time_seconds(), report.transact_time_nanoseconds())
                }
                other => panic!("{other:?}"),
            };
            let expected = u64::from(seconds.0) * 1_000_000_000 + u64::from(nanoseconds);
            assert_eq!(report_time_ns(&bytes), Some(expected), "{}", char::from(tag));
            assert_eq!(report_time_ns(&bytes[..30]), None);
        }
        assert_eq!(report_time_ns(b"\x02\x01\x000"), None);
    }

    /// Checks a new order byte by byte against the tables of the document.
    #[test]
    fn a_new_order_has_the_bytes_of_the_document() {
        let fields = NewOrderFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(NewOrder::LENGTH),
            client_order_id: Ascii(*b"ORDER-1\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            trader_id: Ascii(*b"TRADER1\0\0\0\0"),
            account: Ascii(*b"ACCOUNT\0\0\0"),
            clearing_account: ClearingAccount::Client,
            instrument_id: 0x0102_0304,
            mifid_flags: MifidFlags(MifidFlags::ALGORITHMIC.0),
            party_role_qualifiers: 0x15,
            order_type: OrderType::Limit,
            tif: Tif::GoodTillDate,
            expire_date_time: 0x6553_F100,
            side: Side::Sell,
            order_qty: 1_000,
            display_qty: 100,
            limit_price: Decimal(12_345_000_000),
            capacity: Capacity::DealingOnOwnAccount,
            auto_cancel: AutoCancel::ConformToUserConfiguration,
            order_sub_type: OrderSubType::Order,
            anonymity: Anonymity::Anonymous,
            stop_price: Decimal(-1),
            passive_only_order: PassiveOnlyOrder::NoMatchWithVisible,
            client_id: ClientId::Aggregated,
            investment_decision_maker: InvestmentDecisionMaker::Unknown(77),
            group_id: 9,
            minimum_quantity: 50,
            executing_trader: ExecutingTrader::Client,
            offset: -2,
            pegged_exec_inst: PeggedExecInst::Default,
            owner_type: OwnerType::RetailInvestor,
            reserved_14: [0; 14],
        };
        let mut expected = Vec::new();
        expected.extend_from_slice(&[0x02, 122, 0, b'D']);
        expected.extend_from_slice(b"ORDER-1\0\0\0\0\0\0\0\0\0\0\0\0\0TRADER1\0\0\0\0ACCOUNT\0\0\0");
        expected.extend_from_slice(&[1, 0x04, 0x03, 0x02, 0x01, 0b100, 0x15, 2, 6]);
        expected.extend_from_slice(&[0x00, 0xF1, 0x53, 0x65, 2, 0xE8, 0x03, 0, 0, 100, 0, 0, 0]);
        expected.extend_from_slice(&[0x40, 0xC0, 0xD1, 0xDF, 0x02, 0, 0, 0, 2, 1, 0, 0]);
        expected.extend_from_slice(&[0xFF; 8]);
        expected.extend_from_slice(&[99, 1, 0, 0, 0, 77, 0, 0, 0, 9, 50, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend_from_slice(&[0xFE, 0xFF, 0xFF, 0xFF, 0, 1]);
        expected.extend_from_slice(&[0; 14]);
        assert_eq!(expected.len(), 125);
        assert_eq!(fields.encode()[..], expected[..]);
        let Ok(Message::NewOrder(view)) = Message::decode(&expected) else { panic!("not a new order") };
        assert_eq!(view.to_fields(), fields);
        assert_eq!(view.limit_price().to_string(), "123.45000000");
        assert_eq!(report_number(&expected), None);
    }

    #[test]
    fn an_execution_report_has_the_bytes_of_the_document() {
        let mut bytes = vec![0x02, 152, 0, b'8', 3, 0x39, 0x30, 0, 0];
        bytes.extend_from_slice(b"E00000000001ORDER-1             O00000000001F            ");
        bytes.push(1);
        bytes.extend_from_slice(&[0, 0, 0, 0]);
        bytes.extend_from_slice(&12_345_000_000i64.to_le_bytes());
        for quantity in [300, 700] {
            bytes.extend_from_slice(&i32::to_le_bytes(quantity));
        }
        bytes.push(0);
        for number in [100, 0x0102_0304] {
            bytes.extend_from_slice(&i32::to_le_bytes(number));
        }
        bytes.extend_from_slice(&[0, 1, 2, 0]);
        bytes.extend_from_slice(&[0; 7]);
        bytes.extend_from_slice(b"FIRM       A");
        bytes.extend_from_slice(&81_985_529_216_486_895u64.to_le_bytes());
        bytes.extend_from_slice(&1_700_000_000u32.to_le_bytes());
        bytes.extend_from_slice(&123_456_789u32.to_le_bytes());
        bytes.extend_from_slice(&[21, 0, 2, 0]);
        bytes.extend_from_slice(b"P00000000001");
        bytes.extend_from_slice(&[0; 4]);
        assert_eq!(bytes.len(), ExecutionReport::LENGTH);
        let Ok(Message::ExecutionReport(report)) = Message::decode(&bytes) else { panic!("not a report") };
        assert_eq!((report.app_id(), report.sequence_no()), (AppId::Partition3, 12_345));
        assert_eq!(
            (report.exec_type(), report.order_status()),
            (ExecType::Trade, OrderStatus::PartiallyFilled)
        );
        assert_eq!((report.executed_qty(), report.leaves_qty(), report.display_qty()), (300, 700, 100));
        assert_eq!(report.executed_price(), Decimal(12_345_000_000));
        assert_eq!(report.trade_match_id(), 81_985_529_216_486_895);
        assert_eq!(report.trade_liquidity_indicator(), TradeLiquidityIndicator::AddedLiquidity);
        assert_eq!(
            (report.transact_time_seconds(), report.transact_time_nanoseconds()),
            transact_time(1_700_000_000_123_456_789)
        );
        assert_eq!((report.last_market(), report.counterparty().as_str()), (LastMarket::Xlon, Some("FIRM")));
        assert_eq!(report.public_order_id().as_str(), Some("P00000000001"));
        assert_eq!(report_number(&bytes), Some((3, 12_345)));
        assert_eq!(report.to_fields().encode()[..], bytes[..]);
    }

    #[test]
    fn a_logon_and_its_reply_have_the_bytes_of_the_document() {
        let mut bytes = vec![0x02, 77, 0, b'A'];
        for (text, length) in [("USER", 25), ("OLD", 25), ("NEW", 25)] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(bytes.len() + length - text.len(), 0);
        }
        bytes.push(1);
        let Ok(Message::Logon(logon)) = Message::decode(&bytes) else { panic!("not a logon") };
        assert_eq!((logon.user_name().as_str(), logon.password().as_str()), (Some("USER"), Some("OLD")));
        assert_eq!((logon.new_password().as_str(), logon.message_version()), (Some("NEW"), 1));

        let mut bytes = vec![0x02, 35, 0, b'B', 0xE7, 0x03, 0, 0];
        bytes.extend_from_slice(b"30                            ");
        let Ok(Message::LogonReply(reply)) = Message::decode(&bytes) else { panic!("not a reply") };
        assert_eq!((reply.reject_code(), reply.password_expiry_day_count().as_str()), (999, Some("30")));
    }

    #[test]
    fn recovery_messages_have_the_bytes_of_the_document() {
        let fields = MissedMessageRequestFields {
            start_of_message: 2,
            message_length: message_length(MissedMessageRequest::LENGTH),
            app_id: AppId::Partition2,
            last_msg_seq_num: 258,
        };
        assert_eq!(fields.encode(), [0x02, 6, 0, b'M', 2, 2, 1, 0, 0]);
        let Ok(Message::MissedMessageRequestAck(ack)) = Message::decode(&[2, 2, 0, b'N', 3]) else {
            panic!()
        };
        assert_eq!(ack.response_type(), MissedMessageAckType::ServiceUnavailable);
        let Ok(Message::MissedMessageReport(end)) = Message::decode(&[2, 2, 0, b'P', 1]) else { panic!() };
        assert_eq!(end.response_type(), MissedMessageReportType::MessageLimitReached);
        let Ok(Message::SystemStatus(status)) = Message::decode(&[2, 3, 0, b'n', 4, 1]) else { panic!() };
        assert_eq!(
            (status.app_id(), status.app_status()),
            (AppId::Partition4, AppStatus::RecoveryServiceResumed)
        );
        assert!(Message::decode(&[3, 1, 0, b'0']).is_err(), "another start byte");
        assert!(matches!(Message::decode(&[2, 1, 0, b'0']), Ok(Message::Heartbeat(_))));
    }

    #[test]
    fn every_message_has_its_documented_length() {
        let lengths: Vec<(char, usize)> = SCHEMA
            .messages
            .iter()
            .map(|message| (char::from(message.tag.unwrap() as u8), message.minimum_length - 4))
            .collect();
        let expected = [
            ('A', 76),
            ('B', 34),
            ('5', 20),
            ('0', 0),
            ('3', 55),
            ('n', 2),
            ('M', 5),
            ('N', 1),
            ('P', 1),
            ('D', 121),
            ('S', 77),
            ('G', 112),
            ('F', 69),
            ('q', 42),
            ('8', 151),
            ('9', 59),
            ('r', 52),
            ('j', 59),
            ('a', 157),
            ('b', 110),
            ('c', 143),
            ('d', 126),
            ('e', 65),
            ('f', 88),
            ('g', 153),
        ];
        assert_eq!(lengths, expected);
        assert!(SCHEMA.messages.iter().all(|message| message.minimum_length < MAX_MESSAGE_BYTES));
    }
}
