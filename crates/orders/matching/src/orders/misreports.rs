//! Reports that a faulty venue sends instead of, or in addition to, the true ones. The register and its ledger do not know of them.
//!
//! Cost: without faults, one comparison per report.

use std::collections::VecDeque;

use tapeworks_order_session::native::{Input, UserId};
use tapeworks_wire::millennium::native::{
    ExecType, ExecutionReport, ExecutionReportFields, Message, OrderStatus, Side,
};
use tapeworks_wire::nasdaq::ouch50::outbound::{
    self, AccountQueryResponse, LiquidityFlag, OrderExecuted, OrderExecutedFields, SystemEvent,
};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceMidnight};

use super::faults::Misreport;
use super::ids::base_62;
use super::register::{Entry, OrderRegister, Recipient, Report};
use super::{Instrument, OrderExchange};
use crate::engine::OrderSide;

/// Maximum number of reports kept for repetition.
const MOST_REPEATABLE: usize = 256;
/// Maximum number of requests left unanswered after a withheld native report.
const MOST_UNANSWERED: u64 = 3;
/// How long an OUCH connection lives after its reports are withheld.
const WITHHELD_NS: u64 = 1_000_000_000;
/// How long a report waits for the report to swap with.
const LONGEST_WAIT_NS: u64 = 10_000_000;
/// First number of invented executions and trades, out of reach of true ones.
const FIRST_INVENTED: u64 = 1 << 48;
/// Length of a truncated report, which still names its order.
const NATIVE_SHORT_BYTES: usize = 60;
const OUCH_SHORT_BYTES: usize = 14;
/// A message type and Exec Type that exists in neither protocol.
const UNKNOWN: u8 = b'~';
/// Offsets of a native message's length, type, and Exec Type.
const NATIVE_LENGTH: std::ops::Range<usize> = 1..3;
const NATIVE_TYPE: usize = 3;
const NATIVE_EXEC_TYPE: usize = 53;

/// A report to be swapped with its user's next report.
#[derive(Debug)]
struct Held {
    report: Report,
    /// The number already assigned to a native report.
    number: u32,
    since_ns: u64,
}

/// The faults in progress.
#[derive(Debug, Default)]
pub(super) struct Misreports {
    /// The newest reports, if they may be repeated.
    sent: VecDeque<Report>,
    held: Vec<Held>,
    inventions: u64,
    /// OUCH users whose reports are withheld, and when their connections are dropped.
    withheld: Vec<(usize, u64)>,
}

impl Misreports {
    /// Returns when [`OrderExchange::end_misreports`] next has work; `u64::MAX` means never.
    pub(super) fn due_ns(&self) -> u64 {
        let held = self.held.iter().map(|held| held.since_ns.saturating_add(LONGEST_WAIT_NS));
        held.chain(self.withheld.iter().map(|(_, until_ns)| *until_ns)).min().unwrap_or(u64::MAX)
    }

    fn take_held(&mut self, to: Recipient) -> Option<Held> {
        let place = self.held.iter().position(|held| held.report.to == to)?;
        Some(self.held.remove(place))
    }
}

impl OrderExchange {
    /// Sends a report with the faults drawn for it.
    pub(super) fn send(&mut self, mut report: Report) {
        self.send_garbage(&report);
        let held = self.misreports.take_held(report.to).and_then(|held| {
            if may_change_places(&held.report, &report) {
                return Some(held);
            }
            self.send_held(held);
            None
        });
        let misreport = report.misreport.take().filter(|_| !report.is_gap && is_of_order(&report));
        match misreport {
            None => self.put(&mut report),
            Some(Misreport::Repeat(bits)) => {
                self.put(&mut report);
                self.repeat(report.to, bits);
            }
            Some(Misreport::Invention(bits)) => self.put_with_invention(&mut report, bits),
            Some(Misreport::Withheld(bits)) => self.withhold(&mut report, bits),
            Some(Misreport::Reorder) if held.is_none() => self.hold(report),
            Some(Misreport::Reorder) => self.put(&mut report),
            Some(Misreport::Garbled(bits)) => {
                self.send_garbled(&report, bits);
                self.put(&mut report);
            }
        }
        if let Some(held) = held {
            self.send_held(held);
        }
    }

    /// Sends the reports that have waited long enough for a later one, and drops the connections whose reports were withheld,
    /// when due.
    pub(super) fn end_misreports(&mut self) {
        let now_ns = self.register.now_ns;
        let is_due = |held: &mut Held| held.since_ns.saturating_add(LONGEST_WAIT_NS) <= now_ns;
        let due: Vec<Held> = self.misreports.held.extract_if(.., is_due).collect();
        due.into_iter().for_each(|held| self.send_held(held));
        let over: Vec<(usize, u64)> =
            self.misreports.withheld.extract_if(.., |(_, until_ns)| *until_ns <= now_ns).collect();
        for (user, _) in over {
            if let Some(acceptor) = self.ouch.get_mut(user).filter(|acceptor| acceptor.is_withheld()) {
                acceptor.disconnect();
            }
        }
    }

    /// Sends the reports that wait for a later one.
    pub(super) fn send_all_held(&mut self) {
        std::mem::take(&mut self.misreports.held).into_iter().for_each(|held| self.send_held(held));
    }

    /// Discards the faults in progress: nothing of one day is sent on the next.
    pub(super) fn forget_misreports(&mut self) {
        self.misreports = Misreports { inventions: self.misreports.inventions, ..Misreports::default() };
    }

    fn send_garbage(&mut self, report: &Report) {
        let mut noise = [0; 64];
        let noise = noise.get_mut(..report.garbage).unwrap_or_default();
        self.register.script.garbage(noise);
        if let (Recipient::Native(user), false) = (report.to, noise.is_empty()) {
            self.send_raw(UserId(user), noise);
        }
    }

    /// Sends unnumbered bytes to a native user.
    fn send_raw(&mut self, user: UserId, bytes: &[u8]) {
        let Self { native, register, gone, .. } = self;
        native.send_raw(user, bytes, register.now_ns, |input| note_gone(gone, &input));
    }

    /// Numbers a report, stores it, and sends it unless it is a gap.
    fn put(&mut self, report: &mut Report) {
        let Self { native, ouch, register, gone, .. } = self;
        let (app_id, is_gap) = (report.app_id, report.is_gap);
        match report.to {
            Recipient::Native(user) if is_gap => {
                native.report_unsent(UserId(user), app_id, report.bytes());
            }
            Recipient::Native(user) => {
                let note = |input: Input<'_>| note_gone(gone, &input);
                native.report(UserId(user), app_id, report.bytes(), register.now_ns, note);
            }
            Recipient::Ouch(user) => {
                if let Some(acceptor) = ouch.get_mut(user) {
                    acceptor.send(report.bytes(), register.now_ns);
                }
            }
        }
        if self.register.script.repeats() && is_of_order(report) {
            let sent = &mut self.misreports.sent;
            if sent.len() >= MOST_REPEATABLE {
                sent.pop_front();
            }
            sent.push_back(report.clone());
        }
    }

    fn repeat(&mut self, to: Recipient, bits: u64) {
        let of_user: Vec<&Report> = self.misreports.sent.iter().filter(|sent| sent.to == to).collect();
        let choice = bits % (of_user.len() as u64).max(1);
        let Some(mut report) = of_user.get(choice as usize).map(|report| (*report).clone()) else { return };
        self.register.script.counters.repeats += 1;
        self.put(&mut report);
    }

    fn put_with_invention(&mut self, report: &mut Report, bits: u64) {
        let number = FIRST_INVENTED + self.misreports.inventions;
        let invented = match report.to {
            Recipient::Native(_) => invented_native(&self.register, report.as_bytes(), bits, number),
            Recipient::Ouch(user) => invented_ouch(&self.register, user, report.as_bytes(), bits, number),
        };
        let Some((bytes, is_before)) = invented else { return self.put(report) };
        self.misreports.inventions += 1;
        self.register.script.counters.inventions += 1;
        let mut invented = report.with_bytes(&bytes);
        let [first, second] = if is_before { [&mut invented, report] } else { [report, &mut invented] };
        self.put(first);
        self.put(second);
    }

    fn withhold(&mut self, report: &mut Report, bits: u64) {
        let until_ns = self.register.now_ns.saturating_add(WITHHELD_NS);
        match report.to {
            Recipient::Native(user) => {
                let requests = 1 + (bits % MOST_UNANSWERED) as u32;
                self.native.leave_unanswered(UserId(user), report.app_id, requests);
                report.is_gap = true;
                self.register.script.counters.withheld += 1;
            }
            Recipient::Ouch(user) => {
                if let Some(acceptor) = self.ouch.get_mut(user)
                    && acceptor.is_logged_in()
                    && !acceptor.is_withheld()
                {
                    acceptor.withhold();
                    self.misreports.withheld.push((user, until_ns));
                    self.register.script.counters.withheld += 1;
                }
            }
        }
        self.put(report);
    }

    fn hold(&mut self, mut report: Report) {
        let number = match report.to {
            Recipient::Native(user) => {
                let app_id = report.app_id;
                self.native.report_unsent(UserId(user), app_id, report.bytes()).unwrap_or(0)
            }
            Recipient::Ouch(_) => 0,
        };
        self.register.script.counters.reorders += 1;
        self.misreports.held.push(Held { report, number, since_ns: self.register.now_ns });
    }

    fn send_held(&mut self, mut held: Held) {
        match held.report.to {
            Recipient::Native(user) => {
                let Self { native, register, gone, .. } = self;
                let note = |input: Input<'_>| note_gone(gone, &input);
                native.send_kept(UserId(user), held.report.app_id, held.number, register.now_ns, note);
            }
            Recipient::Ouch(_) => self.put(&mut held.report),
        }
    }

    fn send_garbled(&mut self, report: &Report, bits: u64) {
        self.register.script.counters.garbled += 1;
        let mut bytes = report.as_bytes().to_vec();
        match report.to {
            Recipient::Native(user) => {
                let has_exec_type = bytes.get(NATIVE_TYPE) == Some(&ExecutionReport::TAG);
                match bits % (2 + u64::from(has_exec_type)) {
                    0 => {
                        bytes.truncate(NATIVE_SHORT_BYTES.min(bytes.len() - 1));
                        // A report is shorter than 2^16 bytes. The length excludes itself and the preceding byte.
                        let length = (bytes.len() - NATIVE_LENGTH.end) as u16;
                        if let Some(place) = bytes.get_mut(NATIVE_LENGTH) {
                            place.copy_from_slice(&length.to_le_bytes());
                        }
                        self.send_raw(UserId(user), &bytes);
                    }
                    1 => {
                        bytes.iter_mut().skip(NATIVE_TYPE).take(1).for_each(|byte| *byte = UNKNOWN);
                        self.send_raw(UserId(user), &bytes);
                    }
                    _ => {
                        bytes.iter_mut().skip(NATIVE_EXEC_TYPE).take(1).for_each(|byte| *byte = UNKNOWN);
                        self.put(&mut report.with_bytes(&bytes));
                    }
                }
            }
            Recipient::Ouch(_) => {
                match bits % 2 {
                    0 => bytes.truncate(OUCH_SHORT_BYTES),
                    _ => bytes.iter_mut().take(1).for_each(|byte| *byte = UNKNOWN),
                }
                self.put(&mut report.with_bytes(&bytes));
            }
        }
    }
}

/// Records a native user that a report disconnected.
fn note_gone(gone: &mut Vec<UserId>, input: &Input<'_>) {
    if let Input::Gone { user, .. } = input {
        gone.push(*user);
    }
}

/// Returns whether a report is about orders: messages of an OUCH session about itself are never falsified.
fn is_of_order(report: &Report) -> bool {
    let of_session = [SystemEvent::TAG, AccountQueryResponse::TAG];
    let is_ouch = matches!(report.to, Recipient::Ouch(_));
    !is_ouch || report.as_bytes().first().is_some_and(|tag| !of_session.contains(tag))
}

/// Returns whether two consecutive reports may be swapped. Clients restore the order of native reports by their numbers.
fn may_change_places(one: &Report, other: &Report) -> bool {
    let orders = [one, other].map(|report| ouch_reference(report.as_bytes()));
    match (one.to, orders) {
        (Recipient::Native(_), _) => true,
        (Recipient::Ouch(_), [Some(one), Some(other)]) => one != other,
        (Recipient::Ouch(_), _) => false,
    }
}

/// Returns the order that an OUCH report is about, or `None` if there is none or it gets another reference number.
fn ouch_reference(bytes: &[u8]) -> Option<u32> {
    match outbound::Message::decode(bytes).ok()? {
        outbound::Message::OrderAccepted(view) => Some(view.user_ref_num()),
        outbound::Message::OrderExecuted(view) => Some(view.user_ref_num()),
        outbound::Message::Canceled(view) => Some(view.user_ref_num()),
        _ => None,
    }
}

/// Returns a price at which no limit order of this side may trade.
fn beyond_limit_e8(instrument: &Instrument, side: OrderSide) -> i64 {
    match side {
        OrderSide::Buy => instrument.highest_price_e8.saturating_add(instrument.tick_e8),
        OrderSide::Sell => instrument.lowest_price_e8.saturating_sub(instrument.tick_e8),
    }
}

/// Invents a native report that the true report's order does not justify. Returns it and whether it is sent before the true one.
fn invented_native(
    register: &OrderRegister,
    bytes: &[u8],
    bits: u64,
    number: u64,
) -> Option<(Vec<u8>, bool)> {
    let Ok(Message::ExecutionReport(view)) = Message::decode(bytes) else { return None };
    let report = view.to_fields();
    if report.order_id.is_blank() {
        return None;
    }
    let instrument = register.instrument(register.symbol_of_id(report.instrument_id)?)?;
    let (side, other_side) = match report.side {
        Side::Buy => (OrderSide::Buy, Side::Sell),
        _ => (OrderSide::Sell, Side::Buy),
    };
    let (other_instrument, other_order) = (report.instrument_id.wrapping_add(1), base_62(number));
    if report.exec_type == ExecType::New && bits.is_multiple_of(2) {
        let invented = match bits % 4 {
            0 => ExecutionReportFields { side: other_side, ..report },
            _ => ExecutionReportFields { instrument_id: other_instrument, ..report },
        };
        return Some((
            ExecutionReportFields { execution_id: base_62(number), ..invented }.encode().into(),
            true,
        ));
    }
    let fill = ExecutionReportFields {
        exec_type: ExecType::Trade,
        order_status: OrderStatus::PartiallyFilled,
        execution_id: base_62(number),
        executed_price: Decimal(instrument.lowest_price_e8),
        executed_qty: 1,
        leaves_qty: report.leaves_qty.saturating_sub(1).max(0),
        trade_match_id: number,
        ..report
    };
    let end = ExecutionReportFields {
        exec_type: ExecType::Cancelled,
        order_status: OrderStatus::Cancelled,
        leaves_qty: 0,
        executed_qty: 0,
        trade_match_id: 0,
        executed_price: Decimal(0),
        ..fill
    };
    let unknown = match bits & 8 {
        0 => Ascii(*b"NEVER SENT          "),
        _ => Ascii(*b"4294967295          "),
    };
    let invented = match (bits >> 4) % 8 {
        0 => ExecutionReportFields {
            executed_qty: i32::try_from(instrument.most_quantity).unwrap_or(i32::MAX).saturating_add(1),
            order_status: OrderStatus::Filled,
            leaves_qty: 0,
            ..fill
        },
        1 => ExecutionReportFields { executed_price: Decimal(beyond_limit_e8(instrument, side)), ..fill },
        2 => ExecutionReportFields { side: other_side, ..fill },
        3 => ExecutionReportFields { instrument_id: other_instrument, ..fill },
        4 => ExecutionReportFields { executed_qty: 0, leaves_qty: report.leaves_qty, ..fill },
        5 => ExecutionReportFields { client_order_id: unknown, order_id: other_order, ..fill },
        6 => ExecutionReportFields { order_id: other_order, ..end },
        _ => ExecutionReportFields { side: other_side, ..end },
    };
    Some((invented.encode().into(), false))
}

/// Invents an OUCH report in the same way; OUCH fills name neither side nor symbol.
fn invented_ouch(
    register: &OrderRegister,
    user: usize,
    bytes: &[u8],
    bits: u64,
    number: u64,
) -> Option<(Vec<u8>, bool)> {
    let decoded = outbound::Message::decode(bytes).ok()?;
    let reference = ouch_reference(bytes)?;
    if let outbound::Message::OrderAccepted(view) = &decoded
        && bits.is_multiple_of(2)
    {
        let mut accepted = view.to_fields();
        if bits.is_multiple_of(4) {
            accepted.side = match accepted.side {
                outbound::Side::Buy => outbound::Side::Sell,
                _ => outbound::Side::Buy,
            };
        } else {
            accepted.symbol = Ascii(*b"NEVER   ");
        }
        let mut invented = vec![0; bytes.len()];
        accepted.encode_into(&mut invented).ok()?;
        return Some((invented, true));
    }
    let order = register.references.get(&(user, reference)).and_then(|order| register.entry(*order))?;
    let Entry::Ouch(order) = order else { return None };
    let instrument = register.instrument(register.symbol_of_name(&order.symbol)?)?;
    let side = if order.side == tapeworks_wire::nasdaq::ouch50::inbound::Side::Buy {
        OrderSide::Buy
    } else {
        OrderSide::Sell
    };
    let next = register.next_references.get(user).copied().unwrap_or(1);
    let unknown = match bits & 8 {
        0 => next.saturating_add(1_000),
        _ => u32::MAX,
    };
    let beyond = u64::try_from(beyond_limit_e8(instrument, side) / super::ouch::E8_PER_E4).unwrap_or(0);
    let (reference, quantity, price) = match (bits >> 4) % 4 {
        0 => (reference, instrument.most_quantity.saturating_add(1), order.price),
        1 => (reference, 1, beyond),
        2 => (reference, 0, order.price),
        _ => (unknown, 1, order.price),
    };
    let (_, time) = bytes.split_first()?;
    let fields = OrderExecutedFields {
        timestamp: NanosecondsSinceMidnight(u64::from_be_bytes(*time.first_chunk()?)),
        user_ref_num: reference,
        quantity,
        price: Decimal(price),
        liquidity_flag: LiquidityFlag::Added,
        match_number: number,
        appendage_length: 0,
        appendage: &[],
    };
    let mut invented = vec![0; OrderExecuted::MINIMUM_LENGTH];
    fields.encode_into(&mut invented).ok()?;
    Some((invented, false))
}
