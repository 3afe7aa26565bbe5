//! Replies to clients: the fields of FIX messages, from the state of orders and the venue's reports.
//!
//! A reply borrows its texts; the session writes it after its header ([`Reply::write`]). In FIX 4.2, fills are ExecType 1 and 2,
//! and cancelled and corrected trades are ExecTransType (20) 1 and 2.

use tapeworks_fix_wire::order_entry::{
    BusinessMessageRejectFields, ExecTransType, ExecType, ExecutionReportFields,
    MassQuoteAcknowledgementFields, OrdStatus, OrdType, OrderCancelRejectFields, OrderMassCancelReportFields,
    QuoteStatusReportFields, RejectFields,
};
use tapeworks_fix_wire::{Writer, write_date, write_unsigned};
use tapeworks_wire::{Ascii, Decimal, NanosecondsSinceEpoch};

use crate::ids::{ClOrdId, ExecutionId};
use crate::orders::Order;
use crate::reference::Instrument;
use crate::report::{Execution, Liquidity};
use crate::risk::E8;
use crate::route::Route;
use crate::settings::FixVersion;

pub(crate) const DAY_NS: u64 = 86_400_000_000_000;

/// A message to a client, without the header that its session writes.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The fields of the message.
    pub body: Body<'a>,
    /// The party for which the client sent the answered message; `None`: not stated.
    pub route: Option<&'a Route>,
}

/// The message type and fields of a [`Reply`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Body<'a> {
    /// ExecutionReport (8).
    Execution(&'a ExecutionReportFields<'a>),
    /// OrderCancelReject (9).
    CancelReject(&'a OrderCancelRejectFields<'a>),
    /// OrderMassCancelReport (r).
    MassCancel(&'a OrderMassCancelReportFields<'a>),
    /// QuoteStatusReport (AI).
    QuoteStatus(&'a QuoteStatusReportFields<'a>),
    /// MassQuoteAcknowledgement (b), QuoteAcknowledgement in FIX 4.2.
    MassQuoteAcknowledgement(&'a MassQuoteAcknowledgementFields<'a>),
    /// BusinessMessageReject (j).
    BusinessReject(&'a BusinessMessageRejectFields<'a>),
    /// Reject (3).
    Reject(&'a RejectFields<'a>),
}

impl<'a> From<Body<'a>> for Reply<'a> {
    fn from(body: Body<'a>) -> Self {
        Self { body, route: None }
    }
}

impl Reply<'_> {
    /// Returns MsgType (35).
    #[must_use]
    pub const fn message_type(&self) -> &'static [u8] {
        match self.body {
            Body::Execution(_) => b"8",
            Body::CancelReject(_) => b"9",
            Body::MassCancel(_) => b"r",
            Body::QuoteStatus(_) => b"AI",
            Body::MassQuoteAcknowledgement(_) => b"b",
            Body::BusinessReject(_) => b"j",
            Body::Reject(_) => b"3",
        }
    }

    /// Returns whether it is an ExecutionReport. These are sent to drop copy clients too.
    #[must_use]
    pub const fn is_execution(&self) -> bool {
        matches!(self.body, Body::Execution(_))
    }

    /// Writes the rest of the header, and the fields after it.
    #[inline]
    pub fn write(&self, writer: &mut Writer<'_>) {
        if let Some(route) = self.route {
            route.write(writer);
        }
        self.body.write(writer);
    }
}

impl Body<'_> {
    #[inline]
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Execution(fields) => fields.write(writer),
            Self::CancelReject(fields) => fields.write(writer),
            Self::MassCancel(fields) => fields.write(writer),
            Self::QuoteStatus(fields) => fields.write(writer),
            Self::MassQuoteAcknowledgement(fields) => fields.write(writer),
            Self::BusinessReject(fields) => fields.write(writer),
            Self::Reject(fields) => fields.write(writer),
        }
    }
}

/// Converts a quantity to FIX's decimal.
#[inline]
pub(crate) fn quantity(units: u32) -> Decimal<i64, 8> {
    Decimal(i64::from(units) * E8)
}

/// Returns the text, unless it is blank.
#[inline]
pub(crate) fn present<const N: usize>(text: &Ascii<N>) -> Option<&[u8]> {
    let trimmed = text.trimmed();
    (!trimmed.is_empty()).then_some(trimmed)
}

/// Maximum length of an ExecID: the date, a number of three digits, a point and a number of ten digits, the longest id, and two
/// hyphens.
const EXEC_ID_BYTES: usize = 8 + 1 + 3 + 1 + 10 + 1 + 32;

/// An ExecID (17). It is assembled from copies whose lengths the compiler knows; only its own length is dynamic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecId {
    bytes: [u8; EXEC_ID_BYTES],
    length: usize,
}

impl ExecId {
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The venue's days of one App ID. A day need not begin at midnight, and each day restarts the ids.
#[derive(Clone, Copy, Debug)]
struct VenueDays {
    /// The last date of the App ID's reports, in days since 1970.
    last: u64,
    /// The last date on which an earlier venue day has reports, and the number of venue days that began on that date.
    shared: u64,
    begun: u32,
}

/// Builds ExecIDs. Caches the date of the last one as text, because consecutive ExecIDs usually share it.
#[derive(Clone, Debug)]
pub(crate) struct Dates {
    days: u64,
    text: [u8; 8],
    of_venue: [VenueDays; 256],
    /// The time of the last report, and the number of earlier reports with the same time.
    report_ns: u64,
    others: u32,
}

impl Dates {
    pub(crate) const fn new() -> Self {
        let none = VenueDays { last: 0, shared: 0, begun: 0 };
        Self { days: u64::MAX, text: [b'0'; 8], of_venue: [none; 256], report_ns: u64::MAX, others: 0 }
    }

    /// Notes the time of a report from the venue. Returns the number of earlier reports with the same time. Only events that a
    /// restart replays are counted, because the ids must be the same again.
    #[inline]
    pub(crate) fn reported(&mut self, time_ns: u64, app_id: u8) -> u32 {
        let is_same = time_ns == self.report_ns;
        (self.report_ns, self.others) = (time_ns, if is_same { self.others.saturating_add(1) } else { 0 });
        if let Some(days) = self.of_venue.get_mut(usize::from(app_id)) {
            days.last = days.last.max(time_ns / DAY_NS);
        }
        self.others
    }

    /// Notes that the venue's ids of an App ID restart.
    pub(crate) fn new_day(&mut self, app_id: u8) {
        if let Some(days) = self.of_venue.get_mut(usize::from(app_id)) {
            days.begun = if days.shared == days.last { days.begun + 1 } else { 1 };
            days.shared = days.last;
        }
    }

    #[cold]
    fn set(&mut self, days: u64) {
        let mut date = [0; 16];
        let _length = write_date(&mut date, u32::try_from(days).unwrap_or(u32::MAX));
        let text = date.first_chunk::<8>();
        (self.days, self.text) = (days, text.copied().unwrap_or([b'0'; 8]));
    }

    /// Builds the ExecID (17) of the venue's execution: date, App ID and id, because the venue's ids are unique only per day and
    /// partition. On a date on which the previous venue day has reports too, `.` and a number follow the App ID.
    #[inline]
    pub(crate) fn exec_id(&mut self, time_ns: u64, app_id: u8, id: &ExecutionId) -> ExecId {
        let days = time_ns / DAY_NS;
        if days != self.days {
            self.set(days);
        }
        let mut bytes = [b'-'; EXEC_ID_BYTES];
        let (date, rest) = bytes.split_at_mut(8);
        date.copy_from_slice(&self.text);
        let digits = [b'0' + app_id / 100, b'0' + app_id / 10 % 10, b'0' + app_id % 10];
        let skipped = usize::from(app_id < 100) + usize::from(app_id < 10);
        let digits = digits.get(skipped..).unwrap_or_default();
        for (to, from) in rest.iter_mut().skip(1).zip(digits) {
            *to = *from;
        }
        let mut start = 8 + 1 + digits.len() + 1;
        let venue_days = self.of_venue.get(usize::from(app_id)).filter(|venue_days| venue_days.begun > 0);
        if let Some(venue_days) = venue_days.filter(|venue_days| days <= venue_days.shared) {
            start += put_number(bytes.get_mut(start - 1..).unwrap_or_default(), venue_days.begun);
        }
        if let Some(room) = bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<32>()) {
            *room = id.0.0;
        }
        ExecId { bytes, length: start + id.0.trimmed().len() }
    }
}

/// Writes a point and a number. Returns their length.
#[cold]
fn put_number(target: &mut [u8], number: u32) -> usize {
    let mut digits = [0; 32];
    let count = write_unsigned(&mut digits, number.into()).unwrap_or(0);
    let text = core::iter::once(&b'.').chain(digits.get(..count).unwrap_or_default());
    for (to, from) in target.iter_mut().zip(text) {
        *to = *from;
    }
    count + 1
}

/// Converts an ExecType to the client's FIX version, with an ExecTransType for FIX 4.2.
#[inline]
pub(crate) fn exec_type_of(
    version: FixVersion,
    exec_type: ExecType,
    status: OrdStatus,
) -> (ExecType, Option<ExecTransType>) {
    if version != FixVersion::Fix42 {
        return (exec_type, None);
    }
    // The ExecType that FIX 4.2 uses for the status.
    let of_status = match status {
        OrdStatus::New => ExecType::New,
        OrdStatus::PartiallyFilled => ExecType::PartialFill,
        OrdStatus::Filled => ExecType::Fill,
        OrdStatus::Canceled => ExecType::Canceled,
        OrdStatus::Rejected => ExecType::Rejected,
        OrdStatus::Suspended => ExecType::Suspended,
        OrdStatus::Expired => ExecType::Expired,
        OrdStatus::PendingCancel => ExecType::PendingCancel,
        OrdStatus::PendingReplace => ExecType::PendingReplace,
        _ => ExecType::PendingNew,
    };
    match exec_type {
        // A fill after the order's end does not change its state.
        ExecType::Trade if status == OrdStatus::Filled => (ExecType::Fill, Some(ExecTransType::New)),
        ExecType::Trade => (ExecType::PartialFill, Some(ExecTransType::New)),
        ExecType::TradeCancel => (of_status, Some(ExecTransType::Cancel)),
        ExecType::TradeCorrect => (of_status, Some(ExecTransType::Correct)),
        ExecType::OrderStatus => (of_status, Some(ExecTransType::Status)),
        other => (other, Some(ExecTransType::New)),
    }
}

/// Returns the fields that every report of an order has.
#[inline]
pub(crate) fn of_order<'a>(
    order: &'a Order,
    instrument: Option<&'a Instrument>,
    exec_id: &'a [u8],
    (exec_type, exec_trans_type): (ExecType, Option<ExecTransType>),
    status: OrdStatus,
) -> ExecutionReportFields<'a> {
    let terms = &order.terms;
    let has_limit = matches!(terms.kind, OrdType::Limit | OrdType::StopLimit | OrdType::Pegged);
    let has_stop = matches!(terms.kind, OrdType::Stop | OrdType::StopLimit);
    ExecutionReportFields {
        cl_ord_id: order.id.present(),
        exec_trans_type,
        account: present(&terms.account),
        symbol: instrument.and_then(|instrument| present(&instrument.symbol)),
        security_id: instrument.and_then(|instrument| present(&instrument.security_id)),
        order_qty: Some(quantity(terms.quantity)),
        ord_type: Some(terms.kind),
        price: has_limit.then_some(Decimal(terms.price_e8)),
        stop_px: has_stop.then_some(Decimal(terms.stop_e8)),
        time_in_force: Some(terms.time_in_force),
        expire_time: (terms.expire_s != 0)
            .then_some(NanosecondsSinceEpoch(u64::from(terms.expire_s) * 1_000_000_000)),
        order_capacity: terms.capacity,
        min_qty: (terms.minimum != 0).then_some(quantity(terms.minimum)),
        ..ExecutionReportFields::new(
            present(&order.order_id.0).unwrap_or(b"NONE"),
            exec_id,
            exec_type,
            status,
            terms.side,
            quantity(order.leaves),
            quantity(order.cumulative),
            Decimal(order.average_price_e8()),
        )
    }
}

/// A number in decimal; 0 has no digits and means none.
#[derive(Debug)]
pub(crate) struct Digits {
    text: [u8; 24],
    length: usize,
}

impl Digits {
    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        let mut text = [0; 24];
        let length = if number == 0 { 0 } else { write_unsigned(&mut text, number).unwrap_or(0) };
        Self { text, length }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        self.text.get(..self.length).filter(|digits| !digits.is_empty())
    }
}

/// Texts of a report that are not stored in the order. They are built in place, because moving them costs as much as building them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    pub(crate) exec_ref_id: Option<&'a [u8]>,
    /// The trade's number.
    pub(crate) match_id: Option<&'a [u8]>,
    pub(crate) reason: Option<&'a [u8]>,
}

/// Adds the contents of the venue's report to a reply.
#[inline]
pub(crate) fn add_execution<'a>(
    fields: &mut ExecutionReportFields<'a>,
    exec_type: ExecType,
    report: &Execution,
    texts: Texts<'a>,
    answers: Option<(&'a ClOrdId, &'a ClOrdId)>,
) {
    fields.transact_time = Some(NanosecondsSinceEpoch(report.time_ns));
    match exec_type {
        ExecType::Trade | ExecType::TradeCancel | ExecType::TradeCorrect => {
            fields.last_qty = Some(quantity(report.last_quantity));
            fields.last_px = Some(Decimal(report.last_price_e8));
            fields.trd_match_id = texts.match_id;
            fields.last_liquidity_ind = report.liquidity.map(|liquidity| match liquidity {
                Liquidity::Added => 1,
                Liquidity::Removed => 2,
                Liquidity::Auction => 4,
            });
            fields.exec_ref_id = texts.exec_ref_id;
        }
        ExecType::Restated => fields.exec_restatement_reason = Some(report.restatement),
        ExecType::Rejected => fields.text = texts.reason,
        _ => {}
    }
    if let Some((id, original)) = answers {
        fields.cl_ord_id = id.present();
        fields.orig_cl_ord_id = original.present();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_id_has_the_date_the_app_id_and_the_venues_id() {
        let mut dates = Dates::new();
        let id = ExecutionId(Ascii::new("E1").unwrap());
        let longest = ExecutionId(Ascii([b'X'; 32]));
        let text = |id: ExecId| String::from_utf8_lossy(id.as_bytes()).into_owned();
        for (days, app_id, expected) in [
            (0, 0, "19700101-0-E1"),
            (19_782, 7, "20240229-7-E1"),
            (19_782, 42, "20240229-42-E1"),
            (1, 255, "19700102-255-E1"),
        ] {
            assert_eq!(text(dates.exec_id(days * DAY_NS + 1, app_id, &id)), expected);
        }
        let long = text(dates.exec_id(DAY_NS, 255, &longest));
        assert_eq!((long.len(), long.starts_with("19700102-255-XX")), (EXEC_ID_BYTES - 11, true));
        assert_eq!(text(dates.exec_id(0, 1, &ExecutionId::default())), "19700101-1-");
    }

    #[test]
    fn a_venues_day_that_begins_on_the_date_of_the_one_before_has_other_exec_ids() {
        let mut dates = Dates::new();
        let id = ExecutionId(Ascii::new("E1").unwrap());
        let exec_id = |dates: &mut Dates, days: u64, app_id: u8| {
            dates.reported(days * DAY_NS, app_id);
            String::from_utf8_lossy(dates.exec_id(days * DAY_NS, app_id, &id).as_bytes()).into_owned()
        };
        // The venue's first day, before any report, does not count as a new day.
        dates.new_day(1);
        assert_eq!(exec_id(&mut dates, 2, 1), "19700103-1-E1");
        dates.new_day(1);
        assert_eq!(exec_id(&mut dates, 2, 1), "19700103-1.1-E1");
        assert_eq!(exec_id(&mut dates, 2, 2), "19700103-2-E1", "each App ID has its own");
        dates.new_day(1);
        assert_eq!(exec_id(&mut dates, 2, 1), "19700103-1.2-E1");
        assert_eq!(exec_id(&mut dates, 3, 1), "19700104-1-E1", "over midnight");
        assert_eq!(exec_id(&mut dates, 2, 1), "19700103-1.2-E1", "a late one");
        dates.new_day(1);
        assert_eq!(exec_id(&mut dates, 3, 1), "19700104-1.1-E1");
        dates.new_day(1);
        assert_eq!(exec_id(&mut dates, 4, 1), "19700105-1-E1");
        let longest = ExecutionId(Ascii([b'X'; 32]));
        dates.of_venue[255] = VenueDays { last: 4, shared: 4, begun: u32::MAX };
        let long = dates.exec_id(4 * DAY_NS, 255, &longest);
        assert_eq!(long.as_bytes().len(), EXEC_ID_BYTES);
        assert!(long.as_bytes().starts_with(b"19700105-255.4294967295-XX"));
    }
}
