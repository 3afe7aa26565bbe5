//! The rows. If a venue's column has no field, the conversion says what happens to the tag there.

use super::{Counterpart, Row};

/// Creates a row: the tag, then field and conversion for Millennium and for OUCH.
const fn row(tag: u32, millennium: (&'static str, &'static str), ouch: (&'static str, &'static str)) -> Row {
    Row {
        tag,
        millennium: Counterpart { fields: millennium.0, conversion: millennium.1 },
        ouch: Counterpart { fields: ouch.0, conversion: ouch.1 },
    }
}

const OWN_TIME: (&str, &str) = ("", "not sent");
const NAMED: (&str, &str) = ("", "ignored");
const NONE: (&str, &str) = ("", "refused");
const GROUP_REFUSED: (&str, &str) = ("", "refused, with its fields");
/// A field of a refused group. The page omits it.
const IN_REFUSED: (&str, &str) = ("", "");
const COUNT: (&str, &str) = ("", "repeating group");
const ALREADY: (&str, &str) = ("", "must match");
const NOT_NEEDED: (&str, &str) = ("", "ignored");
const AUTOMATED: (&str, &str) = ("", "1, 2; 3 (manual) refused");

/// NewOrderSingle (D) to New Order, and to Enter Order.
pub const NEW_ORDER: &[Row] = &[
    row(
        11,
        ("client_order_id", "gateway's number; with `naming = \"clordid\"`, copied (at most 20 characters)"),
        ("user_ref_num, cl_ord_id", "next number; its digits"),
    ),
    row(1, ("account", "copied; at most 10 characters"), NONE),
    row(21, AUTOMATED, AUTOMATED),
    row(
        18,
        ("passive_only_order", "6 → `passive_only`; others refused"),
        ("display", "6 → `P` (post only), refused with DisplayQty 0; others refused"),
    ),
    row(55, ("instrument_id", "from `[[instrument]]`"), ("symbol", "from `[[instrument]]`")),
    row(48, ("instrument_id", "from `[[instrument]]`"), ("symbol", "from `[[instrument]]`")),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(
        54,
        ("side", "1, 2; 5 → 2, not marked short, or refused (`short_sells`)"),
        ("side", "1, 2, 5, 6 → `B`, `S`, `T`, `E`"),
    ),
    row(60, OWN_TIME, OWN_TIME),
    row(38, ("order_qty", "integer"), ("quantity", "integer")),
    row(40, ("order_type", "1, 2, 3, 4"), ("price", "1 → `market_price`; 2 → Price (44)")),
    row(44, ("limit_price", "8 decimals, on tick"), ("price", "4 decimals, on tick; `market_price` refused")),
    row(99, ("stop_price", "8 decimals, on tick"), ("", "refused: no stop orders")),
    row(
        59,
        ("tif", "0, 2, 3, 4, 6, 7 → 0, 5, 3, 4, 6, 10; 1 → 6 until `good_till_cancel_s`"),
        ("time_in_force", "0, 3, 6 copied; 4 → `3` with MinQty = OrderQty"),
    ),
    row(432, ("expire_date_time", "23:59:59 UTC"), ("appendage", "ExpireTime: seconds until 23:59:59 UTC")),
    row(
        126,
        ("expire_date_time", "Unix seconds; fractions refused"),
        ("appendage", "ExpireTime: seconds until then; fractions refused"),
    ),
    row(110, ("minimum_quantity", "integer"), ("appendage", "MinQty")),
    row(
        111,
        ("display_qty", "integer"),
        ("display, appendage", "0 → `N` (hidden); below OrderQty → MaxFloor"),
    ),
    row(210, ("display_qty", "integer"), ("display, appendage", "see 111")),
    row(1138, ("display_qty", "integer"), ("display, appendage", "see 111")),
    row(528, ("capacity", "A, P, R → 3, 2, 1 by default (`capacity`)"), ("capacity", "A, P, R; absent: `O`")),
    row(453, COUNT, GROUP_REFUSED),
    row(
        448,
        ("client_id, investment_decision_maker, executing_trader", "short code: number, or from `[[party]]`"),
        IN_REFUSED,
    ),
    row(447, ("", "ignored"), IN_REFUSED),
    row(
        452,
        ("", "3: Client Id; 122: Investment Decision Maker; 12: Executing Trader; others refused"),
        IN_REFUSED,
    ),
];

/// OrderCancelReplaceRequest (G) to Order Cancel Replace Request, and to Replace Order.
pub const REPLACE: &[Row] = &[
    row(11, ("client_order_id", "see D"), ("user_ref_num, cl_ord_id", "see D")),
    row(
        41,
        ("original_client_order_id", "that request's Client Order Id; may be in flight"),
        ("orig_user_ref_num", "that request's User Ref Num"),
    ),
    row(37, ("order_id", "venue's order id, if known"), NAMED),
    row(1, ("account", "see D; unchanged if absent"), NONE),
    row(21, ("", "see D"), ("", "see D")),
    row(18, ("passive_only_order", "see D"), ("display", "see D")),
    row(55, ("instrument_id", "must match"), ALREADY),
    row(48, ("instrument_id", "must match"), ALREADY),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(54, ("side", "must match"), ALREADY),
    row(60, OWN_TIME, OWN_TIME),
    row(38, ("order_qty", "integer"), ("quantity", "integer")),
    row(40, ALREADY, ("price", "see D")),
    row(44, ("limit_price", "see D"), ("price", "see D")),
    row(99, ("stop_price", "see D"), ("", "refused")),
    row(59, ALREADY, ("time_in_force", "see D")),
    row(432, ("expire_date_time", "see D"), ("appendage", "see D")),
    row(126, ("expire_date_time", "see D"), ("appendage", "see D")),
    row(110, ("minimum_quantity", "integer"), ("appendage", "MinQty")),
    row(111, ("display_qty", "integer"), ("display, appendage", "see D")),
    row(210, ("display_qty", "integer"), ("display, appendage", "see D")),
    row(1138, ("display_qty", "integer"), ("display, appendage", "see D")),
    row(528, ALREADY, ALREADY),
    row(453, ALREADY, GROUP_REFUSED),
    row(448, ALREADY, IN_REFUSED),
    row(447, NOT_NEEDED, IN_REFUSED),
    row(452, ALREADY, IN_REFUSED),
];

/// OrderCancelRequest (F) to Order Cancel Request, and to Cancel Order.
pub const CANCEL: &[Row] = &[
    row(11, ("client_order_id", "see D"), ("", "returned in the report")),
    row(41, ("original_client_order_id", "see G"), ("user_ref_num", "see G")),
    row(37, ("order_id", "see G"), NAMED),
    row(1, NAMED, NAMED),
    row(55, ("instrument_id", "must match"), ALREADY),
    row(48, ("instrument_id", "must match"), ALREADY),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(54, ("side", "must match"), ALREADY),
    row(60, OWN_TIME, OWN_TIME),
    row(38, ("", "ignored: cancels the whole order"), ("quantity", "0: cancels the whole order")),
];

/// OrderMassCancelRequest (q) to Order Mass Cancel Request, or to one cancel per order if a venue has no such request.
pub const MASS_CANCEL: &[Row] = &[
    row(11, ("client_order_id", "see D"), ("", "returned in the report")),
    row(
        530,
        (
            "mass_cancel_request_type",
            "1 → 3 (all orders of the firm in the instrument); one cancel per order for 7 and 9, or if other clients have orders or this client has quotes in it",
        ),
        ("", "1, 7, 9"),
    ),
    row(55, ("instrument_id", "if 530 = 1"), ("", "if 530 = 1")),
    row(48, ("instrument_id", "if 530 = 1"), ("", "if 530 = 1")),
    row(22, NOT_NEEDED, NOT_NEEDED),
    row(1300, ("", "530 = 9: `segment` of `[[instrument]]`"), ("", "530 = 9: `segment` of `[[instrument]]`")),
    row(60, OWN_TIME, OWN_TIME),
];

/// Quote (S) to New Quote.
pub const QUOTE: &[Row] = &[
    row(117, ("client_order_id", "see ClOrdID in D"), NONE),
    row(537, ("", "1 (tradeable) only"), NONE),
    row(55, ("instrument_id", "see D"), NONE),
    row(48, ("instrument_id", "see D"), NONE),
    row(22, NOT_NEEDED, NONE),
    row(132, ("bid_price", "8 decimals, on tick"), NONE),
    row(134, ("bid_size", "integer; absent: no bid"), NONE),
    row(133, ("ask_price", "8 decimals, on tick"), NONE),
    row(135, ("ask_size", "integer; absent: no offer"), NONE),
    row(528, ("capacity", "see D"), NONE),
    row(60, OWN_TIME, NONE),
    row(453, COUNT, NONE),
    row(448, ("client_id, investment_decision_maker, executing_trader", "see D"), NONE),
    row(447, ("", "ignored"), NONE),
    row(452, ("", "see D"), NONE),
];

/// MassQuote (i): each entry to a New Quote. Either all of them are sent, or none.
pub const MASS_QUOTE: &[Row] = &[
    row(117, ("", "returned in the acknowledgement"), NONE),
    row(537, ("", "see S"), NONE),
    row(301, ("", "ignored: every quote is answered"), NONE),
    row(453, COUNT, NONE),
    row(448, ("client_id, investment_decision_maker, executing_trader", "see S, on every entry"), NONE),
    row(447, ("", "ignored"), NONE),
    row(452, ("", "see S"), NONE),
    row(296, COUNT, NONE),
    row(302, ("", "ignored"), NONE),
    row(295, COUNT, NONE),
    row(299, ("client_order_id", "see ClOrdID in D"), NONE),
    row(55, ("instrument_id", "see S"), NONE),
    row(48, ("instrument_id", "see S"), NONE),
    row(22, NOT_NEEDED, NONE),
    row(132, ("bid_price", "see S"), NONE),
    row(134, ("bid_size", "see S"), NONE),
    row(133, ("ask_price", "see S"), NONE),
    row(135, ("ask_size", "see S"), NONE),
];

/// QuoteCancel (Z): an Order Cancel Request by Order ID for each side.
pub const QUOTE_CANCEL: &[Row] = &[
    row(298, ("", "5: this QuoteID; 4: all the client's quotes; others refused"), NONE),
    row(117, ("order_id", "venue's order ids of both sides"), NONE),
];

const EXEC_ID: &str =
    "`DATE-APPID-ID`, or `DATE-APPID.N-ID` after the venue starts a new day on that date; never repeats";
const KEPT: (&str, &str) = ("", "state");

/// Execution Report, and OUCH's corresponding messages, to ExecutionReport (8).
pub const EXECUTION_REPORT: &[Row] = &[
    row(37, ("order_id", "copied; `NONE` before the first report"), ("order_reference_number", "decimal")),
    row(
        17,
        ("execution_id", EXEC_ID),
        (
            "user_ref_num, match_number",
            "`DATE-0-`, message type, User Ref Num, and match number or time, with a count for equal times",
        ),
    ),
    row(
        19,
        ("execution_report_ref_id", "150 = H; formatted like ExecID"),
        ("match_number", "150 = G, H: ExecID of the fill"),
    ),
    row(11, ("client_order_id", "client's ClOrdID"), ("user_ref_num", "client's ClOrdID")),
    row(41, ("", "in replies to F and G"), ("", "in replies to F and G")),
    row(
        150,
        (
            "exec_type",
            "0, 4, 5, 8, 9, C, D, F, H copied; in FIX 4.2, F → 1 or 2, H → the order's state with 20 = 1",
        ),
        ("", "A: 0 (dead: 8); U: 5; C: 4 or C; D: 4; E: F; B: H; F: G; J: 8; P: 6; M, R, T: D"),
    ),
    row(
        20,
        ("exec_type", "FIX 4.2 only: 1 for busts, otherwise 0"),
        ("", "FIX 4.2 only: 1 for busts, 2 for corrections, otherwise 0"),
    ),
    row(39, KEPT, KEPT),
    row(
        103,
        ("order_reject_code", "from `[[venue.reject]]`, or 99"),
        ("rejected_order_reason", "by the reason, or from `[[venue.reject]]`; 99 if unknown"),
    ),
    row(
        58,
        ("order_reject_code", "code and text, or `Cancelled by the gateway`"),
        ("rejected_order_reason, cancel_order_reason", "rejects: code and text; cancels: reason"),
    ),
    row(378, ("restatement_reason", "copied"), ("order_restated_reason", "3: price changed; 99: other")),
    row(54, KEPT, KEPT),
    row(55, KEPT, KEPT),
    row(48, KEPT, KEPT),
    row(1, KEPT, ("", "not sent")),
    row(38, KEPT, KEPT),
    row(40, KEPT, KEPT),
    row(44, KEPT, ("price", "T: the new price; otherwise state")),
    row(99, KEPT, ("", "not sent")),
    row(59, KEPT, KEPT),
    row(126, KEPT, KEPT),
    row(528, KEPT, KEPT),
    row(110, KEPT, KEPT),
    row(32, ("executed_qty", "150 = F, H only"), ("quantity", "150 = F, G; H: state")),
    row(31, ("executed_price", "8 decimals"), ("price", "4 decimals")),
    row(
        151,
        ("leaves_qty", "copied; 0 once ended"),
        ("quantity, decrement_shares", "A, U, M: Quantity; C, E: less Quantity; D: less Decrement Shares"),
    ),
    row(14, KEPT, KEPT),
    row(6, ("", "8 decimals, half to even"), ("", "8 decimals, half to even")),
    row(
        60,
        ("transact_time_seconds, transact_time_nanoseconds", "UTC"),
        ("timestamp", "New York time to UTC"),
    ),
    row(880, ("trade_match_id", "decimal"), ("match_number", "decimal")),
    row(
        851,
        ("trade_liquidity_indicator", "A, R, C → 1, 2, 4"),
        ("liquidity_flag", "added: 1; removed: 2; auction: 4"),
    ),
];

/// Order Cancel Reject, and OUCH's Cancel Reject, to OrderCancelReject (9).
pub const CANCEL_REJECT: &[Row] = &[
    row(37, ("order_id", "state"), KEPT),
    row(11, ("client_order_id", "client's ClOrdID"), ("user_ref_num", "client's ClOrdID")),
    row(41, KEPT, KEPT),
    row(39, KEPT, KEPT),
    row(434, KEPT, KEPT),
    row(
        102,
        ("cancel_reject_reason", "from `[[venue.reject]]`; otherwise 0 if ended, 99 if not"),
        ("rejected_order_reason", "J: as 103; otherwise 0 if ended, 99 if not"),
    ),
    row(
        58,
        ("cancel_reject_reason", "code and text"),
        ("rejected_order_reason", "J: code and text; otherwise the gateway's text"),
    ),
    row(
        60,
        ("transact_time_seconds, transact_time_nanoseconds", "UTC"),
        ("timestamp", "New York time to UTC"),
    ),
];

/// Order Mass Cancel Report to OrderMassCancelReport (r).
pub const MASS_CANCEL_REPORT: &[Row] = &[
    row(11, ("client_order_id", "client's ClOrdID"), ("", "from the request")),
    row(37, ("client_order_id", "copied"), ("", "the ClOrdID")),
    row(530, ("", "from the request"), ("", "from the request")),
    row(531, ("mass_cancel_response", "0 → 0; 7 → same as 530"), ("", "same as 530; 0 if refused")),
    row(532, ("mass_cancel_reject_reason", "99; code in Text"), ("", "99 if refused")),
    row(533, ("", "number of orders, when cancelled individually"), ("", "number of orders")),
    row(58, ("mass_cancel_reject_reason", "code and text"), ("", "reason, if refused")),
    row(60, ("transact_time_seconds, transact_time_nanoseconds", "UTC"), ("", "when the request arrived")),
];

/// The first Execution Report of a quote to QuoteStatusReport (AI); in FIX 4.2 to QuoteAcknowledgement (b).
pub const QUOTE_STATUS: &[Row] = &[
    row(117, ("client_order_id", "client's QuoteID or QuoteEntryID"), NONE),
    row(55, KEPT, NONE),
    row(
        297,
        ("exec_type", "8 → 5; others → 0; gateway's refusal: 5; QuoteCancel: 17, 4 (all), 9 (unknown)"),
        NONE,
    ),
    row(300, ("order_reject_code", "99; gateway's refusal: 3, 5, 6, 8, 99"), NONE),
    row(58, ("order_reject_code", "code and text"), NONE),
    row(60, ("transact_time_seconds, transact_time_nanoseconds", "UTC"), NONE),
];
