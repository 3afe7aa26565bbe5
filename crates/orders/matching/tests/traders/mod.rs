//! A simulated exchange with real clients: native users and OUCH users, whose bytes are carried whole or in pieces.

use tapeworks_matching::orders::{Connection, Gate, Instrument, OrderExchange, OrderOptions, OuchUser};
use tapeworks_order_session::native::{Channel, Client, ClientSettings, Event, ServerSettings, User};
use tapeworks_order_session::soupbintcp::{SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace};
use tapeworks_session::Credentials;
use tapeworks_wire::millennium::native::{
    Anonymity, AutoCancel, Capacity, ClearingAccount, ClientId, ExecutingTrader, ExecutionReportFields,
    InvestmentDecisionMaker, MassCancelOrderSubType, MassCancelRequestType, Message, MifidFlags, NewOrder,
    NewOrderFields, OrderCancelReplaceRequest, OrderCancelReplaceRequestFields, OrderCancelRequest,
    OrderCancelRequestFields, OrderMassCancelRequest, OrderMassCancelRequestFields, OrderSubType, OrderType,
    OwnerType, PassiveOnlyOrder, PeggedExecInst, Side, Tif, message_length,
};
use tapeworks_wire::millennium::variant::{LSE, Variant};
use tapeworks_wire::nasdaq::ouch50::inbound::{self, EnterOrderFields};
use tapeworks_wire::nasdaq::ouch50::outbound;
use tapeworks_wire::{Ascii, Decimal};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const E8: i64 = 100_000_000;

/// No throttle: the tests send fast.
pub(crate) const VARIANT: Variant = Variant { partitions: 2, throttle_per_second: 0, ..LSE };

/// Two instruments, one a partition, two native users and one of OUCH.
pub(crate) fn options() -> OrderOptions {
    let instrument = |id: i32, symbol: &str, partition| Instrument {
        id,
        symbol: Ascii::new(symbol).unwrap(),
        partition,
        tick_e8: E8 / 100,
        lowest_price_e8: 1,
        highest_price_e8: i64::MAX,
        most_quantity: 1_000_000,
    };
    OrderOptions {
        instruments: vec![instrument(11, "AAPL", 1), instrument(22, "MSFT", 2)],
        native_users: vec![User::new("ANN", "secret", &VARIANT), User::new("BOB", "secret", &VARIANT)],
        native: ServerSettings { variant: VARIANT, ..ServerSettings::default() },
        ouch_users: vec![OuchUser { credentials: ouch_credentials(), cancels_on_disconnect: true }],
        ouch_store_bytes: 1 << 20,
        most_orders: 64,
        publishes_market: true,
        ..OrderOptions::default()
    }
}

fn ouch_credentials() -> Credentials {
    Credentials { user: "CAT".to_owned(), password: "secret".to_owned() }
}

/// A native user with its connections and what it was sent.
pub(crate) struct Native {
    pub(crate) client: Client,
    pub(crate) lines: [Option<Connection>; 2],
    /// Every report, once and in order per App ID.
    pub(crate) reports: Vec<Vec<u8>>,
    pub(crate) session: Vec<String>,
}

impl Native {
    pub(crate) fn new(user: &str) -> Self {
        let settings = ClientSettings {
            variant: VARIANT,
            user: user.to_owned(),
            password: "secret".to_owned(),
            ..ClientSettings::default()
        };
        Self {
            client: Client::new(settings).unwrap(),
            lines: [None; 2],
            reports: Vec::new(),
            session: Vec::new(),
        }
    }

    /// The execution reports.
    pub(crate) fn executions(&self) -> Vec<ExecutionReportFields> {
        let decoded = self.reports.iter().filter_map(|report| match Message::decode(report).unwrap() {
            Message::ExecutionReport(report) => Some(report.to_fields()),
            _ => None,
        });
        decoded.collect()
    }
}

fn note(reports: &mut Vec<Vec<u8>>, session: &mut Vec<String>, event: Event<'_>) {
    match event {
        Event::Report { message, .. } => reports.push(message.to_vec()),
        Event::CaughtUp { .. } => {}
        other => session.push(format!("{other:?}")),
    }
}

/// The OUCH user.
pub(crate) struct Ouch {
    pub(crate) client: SoupInitiator,
    pub(crate) line: Option<Connection>,
    pub(crate) messages: Vec<Vec<u8>>,
}

/// The exchange and its clients.
pub(crate) struct World {
    pub(crate) exchange: OrderExchange,
    pub(crate) natives: Vec<Native>,
    pub(crate) ouch: Ouch,
    pub(crate) now_ns: u64,
    /// All bytes that the exchange sent.
    pub(crate) sent: Vec<u8>,
}

impl World {
    pub(crate) fn new(options: &OrderOptions) -> Self {
        let now_ns = 1_000 * SECOND_NS;
        let ouch = SoupInitiator::new(SoupInitiatorSettings::new(ouch_credentials()), SoupPlace::default());
        let mut world = Self {
            exchange: OrderExchange::new(options, now_ns).unwrap(),
            natives: vec![Native::new("ANN"), Native::new("BOB")],
            ouch: Ouch { client: ouch.unwrap(), line: None, messages: Vec::new() },
            now_ns,
            sent: Vec::new(),
        };
        world.settle();
        world
    }

    fn open(&mut self) {
        let now_ns = self.now_ns;
        for native in &mut self.natives {
            for channel in Channel::ALL {
                if native.client.wants(channel, now_ns) {
                    native.lines[usize::from(channel == Channel::Recovery)] =
                        self.exchange.open(Gate::Native(channel), now_ns);
                    native.client.connected(channel, now_ns);
                }
            }
        }
        if self.ouch.client.wants(now_ns) {
            self.ouch.line = self.exchange.open(Gate::Ouch { user: 0 }, now_ns);
            self.ouch.client.connected(now_ns);
        }
    }

    /// Moves up to `most` bytes each way on each connection. Returns whether any moved.
    pub(crate) fn carry(&mut self, most: usize) -> bool {
        let now_ns = self.now_ns;
        let mut has_moved = false;
        for native in &mut self.natives {
            let Native { client, lines, reports, session } = native;
            for channel in Channel::ALL {
                let Some(line) = lines[usize::from(channel == Channel::Recovery)] else { continue };
                let up = client.output(channel)[..client.output(channel).len().min(most)].to_vec();
                client.sent(channel, up.len(), now_ns, |event| note(reports, session, event));
                if !up.is_empty() {
                    self.exchange.receive(line, &up, now_ns);
                }
                let down = self.exchange.output(line)[..self.exchange.output(line).len().min(most)].to_vec();
                self.exchange.sent(line, down.len(), now_ns);
                client.receive(channel, &down, now_ns, |event| note(reports, session, event));
                self.sent.extend_from_slice(&down);
                has_moved |= !up.is_empty() || !down.is_empty();
            }
        }
        if let Some(line) = self.ouch.line {
            let Ouch { client, messages, .. } = &mut self.ouch;
            let mut note = |event: SoupEvent<'_>| {
                if let SoupEvent::Message { message, .. } = event {
                    messages.push(message.to_vec());
                }
            };
            let up = client.output()[..client.output().len().min(most)].to_vec();
            client.sent(up.len(), now_ns, &mut note);
            if !up.is_empty() {
                self.exchange.receive(line, &up, now_ns);
            }
            let down = self.exchange.output(line)[..self.exchange.output(line).len().min(most)].to_vec();
            self.exchange.sent(line, down.len(), now_ns);
            client.receive(&down, now_ns, &mut note);
            self.sent.extend_from_slice(&down);
            has_moved |= !up.is_empty() || !down.is_empty();
        }
        self.reap();
        has_moved
    }

    fn reap(&mut self) {
        for user in 0..self.natives.len() {
            for channel in Channel::ALL {
                let native = &self.natives[user];
                let Some(line) = native.lines[usize::from(channel == Channel::Recovery)] else { continue };
                if native.client.over(channel).is_some() || self.exchange.over(line) {
                    self.cut(user, channel);
                }
            }
        }
        if self.ouch.line.is_some_and(|line| self.ouch.client.over().is_some() || self.exchange.over(line)) {
            self.cut_ouch();
        }
    }

    /// A native connection breaks.
    pub(crate) fn cut(&mut self, user: usize, channel: Channel) {
        let now_ns = self.now_ns;
        let Native { client, lines, reports, session } = &mut self.natives[user];
        let Some(line) = lines[usize::from(channel == Channel::Recovery)].take() else { return };
        self.exchange.closed(line, now_ns);
        client.closed(channel, now_ns, |event| note(reports, session, event));
    }

    /// The OUCH connection breaks.
    pub(crate) fn cut_ouch(&mut self) {
        let Some(line) = self.ouch.line.take() else { return };
        self.exchange.closed(line, self.now_ns);
        self.ouch.client.closed(self.now_ns, |_| {});
    }

    pub(crate) fn tick(&mut self) {
        let now_ns = self.now_ns;
        self.exchange.tick(now_ns);
        for Native { client, reports, session, .. } in &mut self.natives {
            client.tick(now_ns, |event| note(reports, session, event));
        }
        self.ouch.client.tick(now_ns, |_| {});
        self.reap();
    }

    /// Lets everything go its way until nothing moves.
    pub(crate) fn settle(&mut self) {
        loop {
            self.tick();
            self.open();
            if !self.carry(usize::MAX) {
                return;
            }
        }
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now_ns += SECOND_NS;
            self.settle();
        }
    }

    /// Sends a native message and lets everything settle. Returns the new execution reports of all native users, with the user.
    pub(crate) fn native(&mut self, user: usize, message: &[u8]) -> Vec<(usize, ExecutionReportFields)> {
        let before: Vec<usize> = self.natives.iter().map(|native| native.executions().len()).collect();
        self.natives[user].client.send(message, self.now_ns).unwrap();
        self.settle();
        let each = self.natives.iter().zip(before).enumerate();
        each.flat_map(|(user, (native, before))| {
            native.executions().into_iter().skip(before).map(move |report| (user, report))
        })
        .collect()
    }

    /// Sends an OUCH message and lets everything settle. Returns the new messages.
    pub(crate) fn ouch(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let before = self.ouch.messages.len();
        self.ouch.client.send(message, self.now_ns).unwrap();
        self.settle();
        self.ouch.messages[before..].to_vec()
    }
}

pub(crate) fn name<const N: usize>(text: &str) -> Ascii<N> {
    Ascii::new(text).unwrap()
}

/// A day limit order, shown whole, that a test changes.
pub(crate) fn order(
    client_order_id: &str,
    instrument_id: i32,
    side: Side,
    quantity: i32,
    price_e8: i64,
) -> NewOrderFields {
    NewOrderFields {
        start_of_message: 2,
        message_length: message_length(NewOrder::LENGTH),
        client_order_id: name(client_order_id),
        trader_id: name("T"),
        account: name(""),
        clearing_account: ClearingAccount::House,
        instrument_id,
        mifid_flags: MifidFlags(0),
        party_role_qualifiers: 0,
        order_type: OrderType::Limit,
        tif: Tif::Day,
        expire_date_time: 0,
        side,
        order_qty: quantity,
        display_qty: quantity,
        limit_price: Decimal(price_e8),
        capacity: Capacity::DealingOnOwnAccount,
        auto_cancel: AutoCancel::ConformToUserConfiguration,
        order_sub_type: OrderSubType::Order,
        anonymity: Anonymity::Anonymous,
        stop_price: Decimal(0),
        passive_only_order: PassiveOnlyOrder::NoConstraint,
        client_id: ClientId::None,
        investment_decision_maker: InvestmentDecisionMaker::None,
        group_id: 0,
        minimum_quantity: 0,
        executing_trader: ExecutingTrader::Client,
        offset: 0,
        pegged_exec_inst: PeggedExecInst::Default,
        owner_type: OwnerType::Default,
        reserved_14: [0; 14],
    }
}

pub(crate) fn cancel(
    client_order_id: &str,
    original: &str,
    order_id: Ascii<12>,
    side: Side,
) -> [u8; OrderCancelRequest::LENGTH] {
    OrderCancelRequestFields {
        start_of_message: 2,
        message_length: message_length(OrderCancelRequest::LENGTH),
        client_order_id: name(client_order_id),
        original_client_order_id: name(original),
        order_id,
        instrument_id: 11,
        reserved_1: [0],
        second_reserved_1: [0],
        side,
        rfq_id: name(""),
    }
    .encode()
}

pub(crate) fn replace(
    client_order_id: &str,
    original: &str,
    quantity: i32,
    price_e8: i64,
) -> [u8; OrderCancelReplaceRequest::LENGTH] {
    OrderCancelReplaceRequestFields {
        start_of_message: 2,
        message_length: message_length(OrderCancelReplaceRequest::LENGTH),
        client_order_id: name(client_order_id),
        original_client_order_id: name(original),
        order_id: name(""),
        instrument_id: 11,
        group_id: 0,
        reserved_1: [0],
        expire_date_time: 0,
        order_qty: quantity,
        display_qty: quantity,
        limit_price: Decimal(price_e8),
        account: name(""),
        second_reserved_1: [0],
        side: Side::Buy,
        stop_price: Decimal(0),
        passive_only_order: PassiveOnlyOrder::NoConstraint,
        offset: 0,
        reserved_5: [0; 5],
        minimum_quantity: 0,
    }
    .encode()
}

pub(crate) fn mass_cancel(
    client_order_id: &str,
    instrument_id: i32,
    kind: u8,
) -> [u8; OrderMassCancelRequest::LENGTH] {
    OrderMassCancelRequestFields {
        start_of_message: 2,
        message_length: message_length(OrderMassCancelRequest::LENGTH),
        client_order_id: name(client_order_id),
        mass_cancel_request_type: MassCancelRequestType::from_raw(kind),
        instrument_id,
        reserved_1: [0],
        group_id: 0,
        segment: name(""),
        order_sub_type: MassCancelOrderSubType::Order,
        reserved_10: [0; 10],
    }
    .encode()
}

/// An OUCH order, visible and for the day, that a test changes.
pub(crate) fn enter(
    reference: u32,
    side: inbound::Side,
    quantity: u32,
    price_e4: u64,
) -> EnterOrderFields<'static> {
    EnterOrderFields {
        user_ref_num: reference,
        side,
        quantity,
        symbol: name("AAPL"),
        price: Decimal(price_e4),
        time_in_force: inbound::TimeInForce::Day,
        display: inbound::Display::Visible,
        capacity: inbound::Capacity::Principal,
        inter_market_sweep_eligibility: inbound::InterMarketSweepEligibility::NotEligible,
        cross_type: inbound::CrossType::ContinuousMarket,
        cl_ord_id: name("C"),
        appendage_length: 0,
        appendage: &[],
    }
}

/// The bytes of an OUCH order.
pub(crate) fn bytes(fields: &EnterOrderFields<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let length = fields.encode_into(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// The only message, decoded.
pub(crate) fn only(messages: &[Vec<u8>]) -> outbound::Message<'_> {
    let [message] = messages else { panic!("{} messages", messages.len()) };
    outbound::Message::decode(message).unwrap()
}
