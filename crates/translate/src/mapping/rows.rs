//! The rows. Where a venue's column has no field, the conversion says what becomes of the tag there.

use super::{Counterpart, Row};

/// A row: tag, then field and conversion of Millennium and of OUCH.
const fn row(tag: u32, millennium: (&'static str, &'static str), ouch: (&'static str, &'static str)) -> Row {
    Row {
        tag,
        millennium: Counterpart { fields: millennium.0, conversion: millennium.1 },
        ouch: Counterpart { fields: ouch.0, conversion: ouch.1 },
    }
}

const OWN_TIME: (&str, &str) = ("", "not sent: the venue has its own time");
const NAMED: (&str, &str) = ("", "not needed: OrigClOrdID names the order");
const NONE: (&str, &str) = ("", "refused: no counterpart");
const COUNT: (&str, &str) = ("", "the entries are below");
const ALREADY: (&str, &str) = ("", "must be that of the order");
const NOT_NEEDED: (&str, &str) = ("", "not needed: the instrument is known by SecurityID or Symbol");
const AUTOMATED: (&str, &str) = ("", "1 and 2; 3 (manual) is refused");

/// NewOrderSingle (D) to New Order, and to Enter Order.
pub const NEW_ORDER: &[Row] = &[
    row(
        11,
        (
            "client_order_id",
            "a number of the gateway; with the setting `naming`, as it is, and then 20 characters at most",
        ),
        ("user_ref_num, cl_ord_id", "a number that only rises, and its digits"),
    ),
    row(1, ("account", "10 characters at most"), NONE),
    row(21, AUTOMATED, AUTOMATED),
    row(
        18,
        ("passive_only_order", "6: the setting `passive_only`; others are refused"),
        ("display", "6: `P`, post only; others are refused"),
    ),
    row(55, ("instrument_id", "by the reference table"), ("symbol", "by the reference table")),
    row(48, ("instrument_id", "by the reference table"), ("symbol", "by the reference table")),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(
        54,
        ("side", "1, 2; 5 as 2, which has no mark of a short sell, or refused (`short_sells`)"),
        ("side", "1, 2, 5, 6: `B`, `S`, `T`, `E`"),
    ),
    row(60, OWN_TIME, OWN_TIME),
    row(38, ("order_qty", "a whole number"), ("quantity", "a whole number")),
    row(40, ("order_type", "1, 2, 3, 4"), ("price", "1: the price of market orders; 2: the limit")),
    row(
        44,
        ("limit_price", "exact, 8 decimals; a multiple of the tick"),
        ("price", "exact, 4 decimals; a multiple of the tick"),
    ),
    row(99, ("stop_price", "exact, 8 decimals; a multiple of the tick"), ("", "refused: no stop orders")),
    row(
        59,
        ("tif", "0, 2, 3, 4, 6, 7: 0, 5, 3, 4, 6, 10; 1: 6 with the date `good_till_cancel_s`"),
        ("time_in_force", "0: `0`; 3: `3`; 4: `3` with MinQty of the whole quantity; 6: `6`"),
    ),
    row(
        432,
        ("expire_date_time", "the last second of the day, UTC"),
        ("appendage", "ExpireTime: the seconds until the last one of the day, UTC"),
    ),
    row(
        126,
        ("expire_date_time", "seconds since 1970 UTC"),
        ("appendage", "ExpireTime: the seconds until then"),
    ),
    row(110, ("minimum_quantity", "a whole number"), ("appendage", "MinQty")),
    row(111, ("display_qty", "a whole number"), ("display, appendage", "0: `N`, hidden; a part: MaxFloor")),
    row(210, ("display_qty", "a whole number"), ("display, appendage", "as MaxFloor (111)")),
    row(1138, ("display_qty", "a whole number"), ("display, appendage", "as MaxFloor (111)")),
    row(528, ("capacity", "A, P, R by the settings `capacity`: 3, 2, 1"), ("capacity", "A, P, R; none: `O`")),
    row(453, COUNT, NONE),
    row(
        448,
        ("client_id, investment_decision_maker, executing_trader", "short codes, by the reference table"),
        NONE,
    ),
    row(447, ("", "not needed: PartyID is in the reference table, or a number"), NONE),
    row(
        452,
        ("", "3: Client ID; 122: Investment Decision Maker; 12: Executing Trader; others are refused"),
        NONE,
    ),
];

/// OrderCancelReplaceRequest (G) to Order Cancel Replace Request, and to Replace Order.
pub const REPLACE: &[Row] = &[
    row(11, ("client_order_id", "as for a new order"), ("user_ref_num, cl_ord_id", "as for a new order")),
    row(
        41,
        ("original_client_order_id", "the name of that request, also of one in flight"),
        ("orig_user_ref_num", "the number of that request"),
    ),
    row(37, ("order_id", "the venue's id of the order, if it is known"), NAMED),
    row(1, ("account", "10 characters at most; left out: it stays"), NONE),
    row(21, AUTOMATED, AUTOMATED),
    row(18, ("passive_only_order", "as for a new order"), ("display", "as for a new order")),
    row(55, ("instrument_id", "must be that of the order"), ALREADY),
    row(48, ("instrument_id", "must be that of the order"), ALREADY),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(54, ("side", "must be that of the order"), ALREADY),
    row(60, OWN_TIME, OWN_TIME),
    row(38, ("order_qty", "a whole number"), ("quantity", "a whole number")),
    row(40, ALREADY, ("price", "1: the price of market orders; 2: the limit")),
    row(44, ("limit_price", "exact, 8 decimals"), ("price", "exact, 4 decimals")),
    row(99, ("stop_price", "exact, 8 decimals"), ("", "refused: no stop orders")),
    row(59, ALREADY, ("time_in_force", "as for a new order")),
    row(432, ("expire_date_time", "the last second of the day, UTC"), ("appendage", "as for a new order")),
    row(126, ("expire_date_time", "seconds since 1970 UTC"), ("appendage", "as for a new order")),
    row(110, ("minimum_quantity", "a whole number"), ("appendage", "MinQty")),
    row(111, ("display_qty", "a whole number"), ("display, appendage", "as for a new order")),
    row(210, ("display_qty", "a whole number"), ("display, appendage", "as for a new order")),
    row(1138, ("display_qty", "a whole number"), ("display, appendage", "as for a new order")),
    row(528, ALREADY, ALREADY),
    row(453, ALREADY, NONE),
    row(448, ALREADY, NONE),
    row(447, ALREADY, NONE),
    row(452, ALREADY, NONE),
];

/// OrderCancelRequest (F) to Order Cancel Request, and to Cancel Order.
pub const CANCEL: &[Row] = &[
    row(11, ("client_order_id", "as for a new order"), ("", "the report of the cancel has it again")),
    row(
        41,
        ("original_client_order_id", "the name of that request, also of one in flight"),
        ("user_ref_num", "the number of that request"),
    ),
    row(37, ("order_id", "the venue's id of the order, if it is known"), NAMED),
    row(1, NAMED, NAMED),
    row(55, ("instrument_id", "must be that of the order"), ALREADY),
    row(48, ("instrument_id", "must be that of the order"), ALREADY),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(54, ("side", "must be that of the order"), ALREADY),
    row(60, OWN_TIME, OWN_TIME),
    row(
        38,
        ("", "not needed: all of the order is cancelled"),
        ("quantity", "0: all of the order is cancelled"),
    ),
];

/// OrderMassCancelRequest (q) to Order Mass Cancel Request. What a venue has no request for becomes a cancel of each order.
pub const MASS_CANCEL: &[Row] = &[
    row(11, ("client_order_id", "as for a new order"), ("", "the report has it again")),
    row(
        530,
        (
            "mass_cancel_request_type",
            "1: 3, all orders of the user in the instrument, if they are the client's; 7, 9 and otherwise: each order of the client is cancelled",
        ),
        ("", "1, 7, 9: each order of the client is cancelled"),
    ),
    row(
        55,
        ("instrument_id", "of 530 = 1: by the reference table"),
        ("", "of 530 = 1: by the reference table"),
    ),
    row(
        48,
        ("instrument_id", "of 530 = 1: by the reference table"),
        ("", "of 530 = 1: by the reference table"),
    ),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(
        1300,
        ("", "of 530 = 9: the segment, by the reference table"),
        ("", "of 530 = 9: the segment, by the reference table"),
    ),
    row(60, OWN_TIME, OWN_TIME),
];

/// Quote (S) to New Quote.
pub const QUOTE: &[Row] = &[
    row(117, ("client_order_id", "as ClOrdID (11) of an order"), NONE),
    row(537, ("", "1 (tradeable) alone"), NONE),
    row(55, ("instrument_id", "by the reference table"), NONE),
    row(48, ("instrument_id", "by the reference table"), NONE),
    row(22, NOT_NEEDED, NONE),
    row(132, ("bid_price", "exact, 8 decimals; a multiple of the tick"), NONE),
    row(134, ("bid_size", "a whole number; left out: no bid"), NONE),
    row(133, ("ask_price", "exact, 8 decimals; a multiple of the tick"), NONE),
    row(135, ("ask_size", "a whole number; left out: no offer"), NONE),
    row(528, ("capacity", "A, P, R by the settings `capacity`: 3, 2, 1"), NONE),
    row(60, OWN_TIME, NONE),
    row(453, COUNT, NONE),
    row(
        448,
        ("client_id, investment_decision_maker, executing_trader", "short codes, by the reference table"),
        NONE,
    ),
    row(447, ("", "not needed: PartyID is in the reference table, or a number"), NONE),
    row(
        452,
        ("", "3: Client ID; 122: Investment Decision Maker; 12: Executing Trader; others are refused"),
        NONE,
    ),
];

/// MassQuote (i): each entry to a New Quote. Either all of them are sent or none.
pub const MASS_QUOTE: &[Row] = &[
    row(117, ("", "the acknowledgement has it again"), NONE),
    row(537, ("", "1 (tradeable) alone"), NONE),
    row(301, ("", "each quote is answered, whatever it says"), NONE),
    row(453, COUNT, NONE),
    row(448, ("client_id, investment_decision_maker, executing_trader", "short codes, of every entry"), NONE),
    row(447, ("", "not needed: PartyID is in the reference table, or a number"), NONE),
    row(452, ("", "as of a Quote"), NONE),
    row(296, COUNT, NONE),
    row(302, ("", "the names of the sets do not count"), NONE),
    row(295, COUNT, NONE),
    row(299, ("client_order_id", "as ClOrdID (11) of an order"), NONE),
    row(55, ("instrument_id", "by the reference table"), NONE),
    row(48, ("instrument_id", "by the reference table"), NONE),
    row(22, NOT_NEEDED, NONE),
    row(132, ("bid_price", "as of a Quote"), NONE),
    row(134, ("bid_size", "as of a Quote"), NONE),
    row(133, ("ask_price", "as of a Quote"), NONE),
    row(135, ("ask_size", "as of a Quote"), NONE),
];

/// QuoteCancel (Z): an Order Cancel Request by Order ID for each side.
pub const QUOTE_CANCEL: &[Row] = &[
    row(298, ("", "5: the quote of QuoteID; 4: all quotes of the client; others are refused"), NONE),
    row(117, ("order_id", "the venue's ids of both sides"), NONE),
];

const EXEC_ID: &str = "with the date, the App ID and, of a date with several days of the venue, the day's number before it: unique for ever";
const KEPT: (&str, &str) = ("", "from the gateway's state");

/// Execution Report, and what OUCH has in its place, to ExecutionReport (8).
pub const EXECUTION_REPORT: &[Row] = &[
    row(37, ("order_id", "`NONE` before the venue's first report"), ("order_reference_number", "as digits")),
    row(
        17,
        ("execution_id", EXEC_ID),
        (
            "user_ref_num, match_number",
            "the message's type, the order and the match, or the time and how many came at that time before, with the date before it",
        ),
    ),
    row(
        19,
        ("execution_report_ref_id", "of 150 = H; as ExecID"),
        ("match_number", "of 150 = G and H: the ExecID of the fill"),
    ),
    row(11, ("client_order_id", "the ClOrdID of that name"), ("user_ref_num", "the ClOrdID of that number")),
    row(41, ("", "of an answer to a cancel or replace"), ("", "of an answer to a cancel or replace")),
    row(
        150,
        ("exec_type", "0, 4, 5, 8, 9, C, D, F, H; F is 1 or 2 in FIX 4.2, and H the state with 20 = 1"),
        ("", "by the message: A 0, U 5, C and D 4 or C, E F, B H, F G, J 8, P 6, M, R and T D"),
    ),
    row(
        20,
        ("exec_type", "FIX 4.2 alone: 1 of a cancelled trade"),
        ("", "FIX 4.2 alone: 1 and 2 of cancelled and corrected trades"),
    ),
    row(39, KEPT, KEPT),
    row(
        103,
        ("order_reject_code", "by the table of reject codes; 99 without"),
        ("rejected_order_reason", "by the table of reject codes; 99 without"),
    ),
    row(
        58,
        ("order_reject_code", "the code with its text; of a cancel by the gateway, that"),
        ("rejected_order_reason, cancel_order_reason", "the reason in words"),
    ),
    row(
        378,
        ("restatement_reason", "as it is"),
        ("order_restated_reason", "3: the price changed; 99: anything else"),
    ),
    row(54, KEPT, KEPT),
    row(55, KEPT, KEPT),
    row(48, KEPT, KEPT),
    row(1, KEPT, NONE),
    row(38, KEPT, KEPT),
    row(40, KEPT, KEPT),
    row(44, KEPT, ("price", "of a T, whose price changed; otherwise from the gateway's state")),
    row(99, KEPT, NONE),
    row(59, KEPT, KEPT),
    row(126, KEPT, KEPT),
    row(528, KEPT, KEPT),
    row(110, KEPT, KEPT),
    row(32, ("executed_qty", "of 150 = F, G, H"), ("quantity", "of 150 = F, G, H")),
    row(31, ("executed_price", "exact, 8 decimals"), ("price", "exact, 4 decimals")),
    row(151, ("leaves_qty", "0 of an order that ended"), ("quantity", "what was left less this")),
    row(14, KEPT, KEPT),
    row(
        6,
        ("", "rounded half to even at the eighth decimal"),
        ("", "rounded half to even at the eighth decimal"),
    ),
    row(
        60,
        ("transact_time_seconds, transact_time_nanoseconds", "UTC"),
        ("timestamp", "since midnight in New York, to UTC"),
    ),
    row(880, ("trade_match_id", "as digits"), ("match_number", "as digits")),
    row(
        851,
        ("trade_liquidity_indicator", "A, R, C: 1, 2, 4"),
        ("liquidity_flag", "1 added, 2 removed, 4 auction"),
    ),
];

/// Order Cancel Reject, and Cancel Reject of OUCH, to OrderCancelReject (9).
pub const CANCEL_REJECT: &[Row] = &[
    row(37, ("order_id", "from the gateway's state"), KEPT),
    row(
        11,
        ("client_order_id", "the ClOrdID of that name"),
        ("user_ref_num", "the ClOrdID of the cancel or replace that has that number"),
    ),
    row(41, KEPT, KEPT),
    row(39, KEPT, KEPT),
    row(434, KEPT, KEPT),
    row(
        102,
        ("cancel_reject_reason", "by the table of reject codes; 0 of an order that ended, 99 otherwise"),
        ("", "0 of an order that ended, 99 otherwise"),
    ),
    row(58, ("cancel_reject_reason", "the code with its text"), ("", "the reason in words")),
    row(
        60,
        ("transact_time_seconds, transact_time_nanoseconds", "UTC"),
        ("timestamp", "since midnight in New York, to UTC"),
    ),
];

/// Order Mass Cancel Report to OrderMassCancelReport (r).
pub const MASS_CANCEL_REPORT: &[Row] = &[
    row(11, ("client_order_id", "the ClOrdID of that name"), ("", "from the request")),
    row(37, ("client_order_id", "as it is at the venue"), ("", "the ClOrdID")),
    row(530, ("", "from the request"), ("", "from the request")),
    row(531, ("mass_cancel_response", "0: 0; 7: that of the request"), ("", "that of the request")),
    row(532, ("mass_cancel_reject_reason", "99, with the code in Text"), ("", "99")),
    row(533, ("", "of 530 = 7 and 9: how many orders are cancelled"), ("", "how many orders are cancelled")),
    row(58, ("mass_cancel_reject_reason", "the code with its text"), ("", "the reason in words")),
    row(60, ("transact_time_seconds, transact_time_nanoseconds", "UTC"), ("", "when the request came")),
];

/// The first Execution Report of a quote to QuoteStatusReport (AI); in FIX 4.2 to QuoteAcknowledgement (b).
pub const QUOTE_STATUS: &[Row] = &[
    row(117, ("client_order_id", "the QuoteID or QuoteEntryID of that name"), NONE),
    row(297, ("exec_type", "8: 5; others: 0. A QuoteCancel: 17, or 4 of all quotes"), NONE),
    row(300, ("order_reject_code", "99, with the code in Text"), NONE),
    row(58, ("order_reject_code", "the code with its text"), NONE),
    row(60, ("transact_time_seconds, transact_time_nanoseconds", "UTC"), NONE),
];
