//! Session and order entry messages.
//!
//! Sources: *FIX session layer*; *FIX 4.2*, *4.4* and *5.0 SP2*, volumes 2 and 4. The declared fields are the ones that order entry uses.
//! A field that only some versions require is optional here; a dictionary checks the rest. Other tags are accessible by number.

tapeworks_wire_macros::fix! {
    /// Sessions and order entry: orders, cancels, replaces, mass cancels, quotes and their reports, in FIX 4.2, 4.4 and 5.0 SP2.
    fix "fix-order-entry" {
        title: "FIX order entry",
        versions: "4.2, 4.4, 5.0 SP2",
    }

    enum Side: char {
        Buy = '1', Sell = '2', BuyMinus = '3', SellPlus = '4', SellShort = '5', SellShortExempt = '6', Undisclosed = '7',
        Cross = '8', CrossShort = '9',
    }

    enum OrdType: char {
        Market = '1', Limit = '2', Stop = '3', StopLimit = '4', MarketOnClose = '5', WithOrWithout = '6', LimitOrBetter = '7',
        LimitWithOrWithout = '8', OnBasis = '9', OnClose = 'A', LimitOnClose = 'B', PreviouslyQuoted = 'D',
        PreviouslyIndicated = 'E', Funari = 'I', MarketIfTouched = 'J', MarketWithLeftOver = 'K', Pegged = 'P',
    }

    enum TimeInForce: char {
        Day = '0', GoodTillCancel = '1', AtTheOpening = '2', ImmediateOrCancel = '3', FillOrKill = '4', GoodTillCrossing = '5',
        GoodTillDate = '6', AtTheClose = '7', GoodThroughCrossing = '8', AtCrossing = '9',
    }

    enum HandlInst: char { AutomatedPrivate = '1', AutomatedPublic = '2', Manual = '3' }

    enum OrderCapacity: char {
        Agency = 'A', Proprietary = 'G', Individual = 'I', Principal = 'P', RisklessPrincipal = 'R', OtherMember = 'W',
    }

    enum ExecType: char {
        New = '0', PartialFill = '1', Fill = '2', DoneForDay = '3', Canceled = '4', Replaced = '5', PendingCancel = '6',
        Stopped = '7', Rejected = '8', Suspended = '9', PendingNew = 'A', Calculated = 'B', Expired = 'C', Restated = 'D',
        PendingReplace = 'E', Trade = 'F', TradeCorrect = 'G', TradeCancel = 'H', OrderStatus = 'I', Triggered = 'L',
    }

    enum OrdStatus: char {
        New = '0', PartiallyFilled = '1', Filled = '2', DoneForDay = '3', Canceled = '4', Replaced = '5', PendingCancel = '6',
        Stopped = '7', Rejected = '8', Suspended = '9', PendingNew = 'A', Calculated = 'B', Expired = 'C',
        AcceptedForBidding = 'D', PendingReplace = 'E',
    }

    /// FIX 4.2 only.
    enum ExecTransType: char { New = '0', Cancel = '1', Correct = '2', Status = '3' }

    enum CxlRejResponseTo: char { OrderCancelRequest = '1', OrderCancelReplaceRequest = '2' }

    enum MassCancelRequestType: char {
        Security = '1', UnderlyingSecurity = '2', Product = '3', CfiCode = '4', SecurityType = '5', TradingSession = '6',
        AllOrders = '7', Market = '8', MarketSegment = '9', SecurityGroup = 'A',
    }

    enum MassCancelResponse: char {
        Rejected = '0', Security = '1', UnderlyingSecurity = '2', Product = '3', CfiCode = '4', SecurityType = '5',
        TradingSession = '6', AllOrders = '7', Market = '8', MarketSegment = '9', SecurityGroup = 'A',
    }

    /// A party of a message.
    group Party {
        required party_id: 448 text,
        party_id_source: 447 char,
        party_role: 452 int,
        party_subs "NoPartySubIDs": 802 group<PartySub>,
    }

    /// A sub-identifier of a party.
    group PartySub {
        required party_sub_id: 523 text,
        party_sub_id_type: 803 int,
    }

    /// A quote of a MassQuote's set.
    group QuoteEntry {
        required quote_entry_id: 299 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        bid_px: 132 decimal<8>,
        offer_px: 133 decimal<8>,
        bid_size: 134 decimal<8>,
        offer_size: 135 decimal<8>,
    }

    /// A set of quotes.
    group QuoteSet {
        required quote_set_id: 302 text,
        required quote_entries "NoQuoteEntries": 295 group<QuoteEntry>,
    }

    header {
        required sender_comp_id: 49 text,
        required target_comp_id: 56 text,
        required msg_seq_num: 34 number,
        required sending_time: 52 timestamp,
        poss_dup_flag: 43 flag,
        poss_resend: 97 flag,
        orig_sending_time: 122 timestamp,
        sender_sub_id: 50 text,
        sender_location_id: 142 text,
        target_sub_id: 57 text,
        target_location_id: 143 text,
        on_behalf_of_comp_id: 115 text,
        on_behalf_of_sub_id: 116 text,
        on_behalf_of_location_id: 144 text,
        deliver_to_comp_id: 128 text,
        deliver_to_sub_id: 129 text,
        deliver_to_location_id: 145 text,
        secure_data: 91 data<90>,
        xml_data: 213 data<212>,
        message_encoding: 347 text,
        last_msg_seq_num_processed: 369 number,
        appl_ver_id: 1128 text,
        cstm_appl_ver_id: 1129 text,
        appl_ext_id: 1156 int,
    }

    trailer {
        signature: 89 data<93>,
    }

    // ---- the session -------------------------------------------------------------------------------------

    message Heartbeat = "0" {
        /// That of the TestRequest that is answered.
        test_req_id: 112 text,
    }

    message TestRequest = "1" {
        required test_req_id: 112 text,
    }

    message ResendRequest = "2" {
        required begin_seq_no: 7 number,
        /// 0: all that there are.
        required end_seq_no: 16 number,
    }

    message Reject = "3" {
        required ref_seq_num: 45 number,
        ref_tag_id: 371 int,
        ref_msg_type: 372 text,
        session_reject_reason: 373 int,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    message SequenceReset = "4" {
        gap_fill_flag: 123 flag,
        required new_seq_no: 36 number,
    }

    message Logout = "5" {
        text: 58 text,
        encoded_text: 355 data<354>,
        session_status: 1409 int,
    }

    message Logon = "A" {
        /// 0: none. No other method is supported.
        required encrypt_method: 98 int,
        /// Seconds.
        required heart_bt_int: 108 int,
        raw_data: 96 data<95>,
        reset_seq_num_flag: 141 flag,
        next_expected_msg_seq_num: 789 number,
        max_message_size: 383 number,
        test_message_indicator: 464 flag,
        username: 553 text,
        password: 554 text,
        new_password: 925 text,
        session_status: 1409 int,
        /// FIXT 1.1 only, and required there.
        default_appl_ver_id: 1137 text,
    }

    message BusinessMessageReject = "j" {
        ref_seq_num: 45 number,
        required ref_msg_type: 372 text,
        business_reject_ref_id: 379 text,
        required business_reject_reason: 380 int,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    // ---- orders ------------------------------------------------------------------------------------------

    message NewOrderSingle = "D" {
        required cl_ord_id: 11 text,
        account: 1 text,
        handl_inst: 21 HandlInst,
        exec_inst: 18 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        security_type: 167 text,
        required side: 54 Side,
        locate_reqd: 114 flag,
        required transact_time: 60 timestamp,
        order_qty: 38 decimal<8>,
        cash_order_qty: 152 decimal<8>,
        required ord_type: 40 OrdType,
        price: 44 decimal<8>,
        stop_px: 99 decimal<8>,
        currency: 15 text,
        time_in_force: 59 TimeInForce,
        expire_date: 432 date,
        expire_time: 126 timestamp,
        min_qty: 110 decimal<8>,
        max_floor: 111 decimal<8>,
        max_show: 210 decimal<8>,
        display_qty: 1138 decimal<8>,
        order_capacity: 528 OrderCapacity,
        order_restrictions: 529 text,
        ex_destination: 100 text,
        secondary_cl_ord_id: 526 text,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    message OrderCancelRequest = "F" {
        required orig_cl_ord_id: 41 text,
        order_id: 37 text,
        required cl_ord_id: 11 text,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        required side: 54 Side,
        required transact_time: 60 timestamp,
        order_qty: 38 decimal<8>,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }

    message OrderCancelReplaceRequest = "G" {
        required orig_cl_ord_id: 41 text,
        order_id: 37 text,
        required cl_ord_id: 11 text,
        account: 1 text,
        handl_inst: 21 HandlInst,
        exec_inst: 18 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        required side: 54 Side,
        locate_reqd: 114 flag,
        required transact_time: 60 timestamp,
        order_qty: 38 decimal<8>,
        required ord_type: 40 OrdType,
        price: 44 decimal<8>,
        stop_px: 99 decimal<8>,
        currency: 15 text,
        time_in_force: 59 TimeInForce,
        expire_date: 432 date,
        expire_time: 126 timestamp,
        min_qty: 110 decimal<8>,
        max_floor: 111 decimal<8>,
        max_show: 210 decimal<8>,
        display_qty: 1138 decimal<8>,
        order_capacity: 528 OrderCapacity,
        order_restrictions: 529 text,
        secondary_cl_ord_id: 526 text,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    message OrderStatusRequest = "H" {
        order_id: 37 text,
        cl_ord_id: 11 text,
        ord_status_req_id: 790 text,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        required side: 54 Side,
        parties "NoPartyIDs": 453 group<Party>,
    }

    message OrderMassCancelRequest = "q" {
        required cl_ord_id: 11 text,
        secondary_cl_ord_id: 526 text,
        required mass_cancel_request_type: 530 MassCancelRequestType,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        market_id: 1301 text,
        market_segment_id: 1300 text,
        side: 54 Side,
        required transact_time: 60 timestamp,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }

    message OrderMassCancelReport = "r" {
        cl_ord_id: 11 text,
        secondary_cl_ord_id: 526 text,
        order_id: 37 text,
        mass_action_report_id: 1369 text,
        required mass_cancel_request_type: 530 MassCancelRequestType,
        required mass_cancel_response: 531 MassCancelResponse,
        mass_cancel_reject_reason: 532 int,
        total_affected_orders: 533 number,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        market_id: 1301 text,
        market_segment_id: 1300 text,
        side: 54 Side,
        transact_time: 60 timestamp,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }

    message ExecutionReport = "8" {
        required order_id: 37 text,
        secondary_order_id: 198 text,
        cl_ord_id: 11 text,
        orig_cl_ord_id: 41 text,
        secondary_cl_ord_id: 526 text,
        ord_status_req_id: 790 text,
        required exec_id: 17 text,
        exec_ref_id: 19 text,
        secondary_exec_id: 527 text,
        /// FIX 4.2 only, and required there.
        exec_trans_type: 20 ExecTransType,
        required exec_type: 150 ExecType,
        required ord_status: 39 OrdStatus,
        ord_rej_reason: 103 int,
        exec_restatement_reason: 378 int,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        required side: 54 Side,
        order_qty: 38 decimal<8>,
        ord_type: 40 OrdType,
        price: 44 decimal<8>,
        stop_px: 99 decimal<8>,
        currency: 15 text,
        time_in_force: 59 TimeInForce,
        expire_date: 432 date,
        expire_time: 126 timestamp,
        exec_inst: 18 text,
        order_capacity: 528 OrderCapacity,
        order_restrictions: 529 text,
        /// LastShares in FIX 4.2.
        last_qty: 32 decimal<8>,
        last_px: 31 decimal<8>,
        last_mkt: 30 text,
        last_capacity: 29 char,
        required leaves_qty: 151 decimal<8>,
        required cum_qty: 14 decimal<8>,
        required avg_px: 6 decimal<8>,
        trade_date: 75 date,
        transact_time: 60 timestamp,
        handl_inst: 21 HandlInst,
        min_qty: 110 decimal<8>,
        max_floor: 111 decimal<8>,
        display_qty: 1138 decimal<8>,
        trd_match_id: 880 text,
        last_liquidity_ind: 851 int,
        copy_msg_indicator: 797 flag,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    message OrderCancelReject = "9" {
        required order_id: 37 text,
        secondary_order_id: 198 text,
        required cl_ord_id: 11 text,
        required orig_cl_ord_id: 41 text,
        required ord_status: 39 OrdStatus,
        account: 1 text,
        transact_time: 60 timestamp,
        required cxl_rej_response_to: 434 CxlRejResponseTo,
        cxl_rej_reason: 102 int,
        text: 58 text,
        encoded_text: 355 data<354>,
    }

    // ---- quotes ------------------------------------------------------------------------------------------

    message Quote = "S" {
        quote_req_id: 131 text,
        required quote_id: 117 text,
        quote_msg_id: 1166 text,
        quote_type: 537 int,
        account: 1 text,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        security_exchange: 207 text,
        bid_px: 132 decimal<8>,
        offer_px: 133 decimal<8>,
        bid_size: 134 decimal<8>,
        offer_size: 135 decimal<8>,
        valid_until_time: 62 timestamp,
        order_capacity: 528 OrderCapacity,
        order_restrictions: 529 text,
        transact_time: 60 timestamp,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }

    message MassQuote = "i" {
        quote_req_id: 131 text,
        required quote_id: 117 text,
        quote_type: 537 int,
        quote_response_level: 301 int,
        account: 1 text,
        parties "NoPartyIDs": 453 group<Party>,
        required quote_sets "NoQuoteSets": 296 group<QuoteSet>,
    }

    message QuoteCancel = "Z" {
        quote_req_id: 131 text,
        quote_id: 117 text,
        required quote_cancel_type: 298 int,
        account: 1 text,
        parties "NoPartyIDs": 453 group<Party>,
    }

    message QuoteStatusReport = "AI" {
        quote_status_req_id: 649 text,
        quote_req_id: 131 text,
        required quote_id: 117 text,
        quote_type: 537 int,
        symbol: 55 text,
        security_id: 48 text,
        security_id_source: 22 text,
        quote_status: 297 int,
        quote_reject_reason: 300 int,
        transact_time: 60 timestamp,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }

    message MassQuoteAcknowledgement = "b" {
        quote_req_id: 131 text,
        quote_id: 117 text,
        required quote_status: 297 int,
        quote_reject_reason: 300 int,
        quote_response_level: 301 int,
        account: 1 text,
        parties "NoPartyIDs": 453 group<Party>,
        text: 58 text,
    }
}
