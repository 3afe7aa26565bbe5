//! Reports from the venue that repeat, contradict their orders, or cannot be read.
//!
//! A repeated report has no effect. An in-doubt report is applied if its order is certain; the client gets the reason in Text (58),
//! and the host is notified. Cost: a few comparisons for each report, and for fills and changes the cost of [`crate::reported`].

use tapeworks_fix_wire::order_entry::{ExecType, ExecutionReportFields, OrdType, Side};
use tapeworks_wire::NanosecondsSinceEpoch;

use super::Translator;
use crate::fix_side::{Body, ExecId, Reply, exec_type_of, of_order};
use crate::orders::{ExchangeToClientState, Order};
use crate::outputs::Outputs;
use crate::pool::Handle;
use crate::report::{Doubt, Execution, ExecutionKind};
use crate::reported::{Id, Kept};
use crate::venue::{Unreadable, Venue};

/// Why a report has no effect.
pub(super) enum Incomplete {
    /// The report was received before.
    Repeated,
    /// The fill that it refers to is not known.
    Unknown,
}

impl<V: Venue> Translator<V> {
    /// Returns what is wrong with a report of an order, before it is applied.
    #[inline]
    pub(super) fn doubt_of(&self, order: Handle, report: &Execution) -> Option<Doubt> {
        let entry = self.admission.known.entry(order)?;
        let (order, terms) = (&entry.order, &entry.order.terms);
        let is_buy = terms.side == Side::Buy;
        // These may give the order another id.
        let may_rename = matches!(
            report.kind,
            ExecutionKind::Accepted | ExecutionKind::Replaced | ExecutionKind::Restated
        );
        let is_named = !report.order_id.0.is_blank() && !order.order_id.0.is_blank();
        if is_named && !may_rename && report.order_id != order.order_id {
            return Some(Doubt::OrderId);
        }
        if report.side.is_some_and(|side| (side == Side::Buy) != is_buy) {
            return Some(Doubt::Side);
        }
        let instrument = self.admission.reference.instrument(order.instrument);
        let is_of = |number| instrument.is_none_or(|known| self.venue.instrument_number(known) == number);
        if report.instrument.is_some_and(|number| !is_of(number)) {
            return Some(Doubt::Instrument);
        }
        if report.kind != ExecutionKind::Trade {
            return None;
        }
        let has_ended = entry.machine.state() == ExchangeToClientState::Ended;
        let left = if has_ended { terms.quantity.saturating_sub(order.cumulative) } else { order.leaves };
        let price_e8 = report.last_price_e8;
        let has_limit = matches!(terms.kind, OrdType::Limit | OrdType::StopLimit);
        let is_beyond = if is_buy { price_e8 > terms.price_e8 } else { price_e8 < terms.price_e8 };
        let may_be_negative = instrument.is_some_and(|instrument| instrument.has_negative_prices);
        match report.last_quantity {
            0 => Some(Doubt::NoQuantity),
            quantity if quantity > left => Some(Doubt::TooMuch),
            _ if price_e8 <= 0 && !may_be_negative => Some(Doubt::NotPositive),
            _ => (has_limit && is_beyond).then_some(Doubt::BeyondLimit),
        }
    }

    /// Marks the order of an in-doubt report, notifies the host, and halts the instrument if configured.
    #[cold]
    pub(super) fn note_doubt(
        &mut self,
        order: Handle,
        report: &Execution,
        doubt: Doubt,
        out: &mut impl Outputs,
    ) {
        if let Some(order) = self.mark_in_doubt(order) {
            out.doubtful(order, report, doubt);
        }
    }

    /// Marks an order as in doubt. Returns the order, if it is known.
    fn mark_in_doubt(&mut self, order: Handle) -> Option<&Order> {
        self.admission.counters.doubtful += 1;
        let entry = self.admission.known.entry_mut(order)?;
        entry.order.is_in_doubt = true;
        if let Some(traded) = self.admission.traded.get_mut(entry.order.instrument.0 as usize) {
            traded.is_doubtful |= self.admission.halts_doubtful;
        }
        Some(&entry.order)
    }

    /// Returns whether an in-doubt report must not be applied: it would accept or end an order that may be another one.
    pub(super) fn is_left_out(report: &Execution, doubt: Doubt) -> bool {
        let accepts = report.kind == ExecutionKind::Accepted;
        let ends = matches!(report.kind, ExecutionKind::Cancelled | ExecutionKind::Expired)
            || report.kind != ExecutionKind::Trade && report.leaves == Some(0);
        (accepts || ends) && doubt.is_of_identity()
    }

    /// Leaves an order unchanged although a report would accept or end it, because the report may be about another order. Sends the
    /// client the reason.
    #[cold]
    pub(super) fn leave_in_doubt(
        &mut self,
        order: Handle,
        report: &Execution,
        doubt: Doubt,
        out: &mut impl Outputs,
    ) {
        let Some(requested_ns) = self.admission.known.entry(order).map(|entry| entry.order.requested_ns)
        else {
            return;
        };
        // The venue may use the report's id again: for the right order, or when it repeats this report.
        let own = self.own_execution(requested_ns);
        let exec_id = self.dates.exec_id(self.own_report_ns, 0, &own);
        self.report_doubt(order, &exec_id, report.time_ns, doubt, out);
        self.note_doubt(order, report, doubt, out);
    }

    /// Handles an unreadable message from the venue. The client of the order that it names gets the order's last known status and
    /// the reason.
    #[cold]
    pub(super) fn unreadable(&mut self, unreadable: &Unreadable, message: &[u8], out: &mut impl Outputs) {
        self.admission.counters.unreadable += 1;
        // The sides of a quote share a name.
        let by_id = Some(unreadable.order_id).filter(|id| !id.0.is_blank());
        let order = by_id.and_then(|id| self.admission.known.by_order_id(&id)).or_else(|| {
            let (_, request) = self.admission.known.by_name(&unreadable.name?)?;
            request.order.or(request.offer)
        });
        let requested_ns =
            order.and_then(|order| self.admission.known.entry(order)).map(|entry| entry.order.requested_ns);
        let (Some(order), Some(requested_ns)) = (order, requested_ns) else {
            return out.unreadable(message, None);
        };
        // The time cannot be read either.
        let own = self.own_execution(requested_ns);
        let time_ns = self.own_report_ns;
        let exec_id = self.dates.exec_id(time_ns, 0, &own);
        self.report_doubt(order, &exec_id, time_ns, Doubt::Unreadable, out);
        let order = self.mark_in_doubt(order);
        out.unreadable(message, order);
    }

    /// Sends the client the status of an order, and why the venue's status may differ.
    fn report_doubt(
        &mut self,
        order: Handle,
        exec_id: &ExecId,
        time_ns: u64,
        doubt: Doubt,
        out: &mut impl Outputs,
    ) {
        let Some(order) = self.admission.known.entry(order).map(|entry| &entry.order) else { return };
        let instrument = self.admission.reference.instrument(order.instrument);
        let exec_type = exec_type_of(self.version(order.client), ExecType::OrderStatus, order.status);
        let fields = ExecutionReportFields {
            text: Some(doubt.text().as_bytes()),
            transact_time: Some(NanosecondsSinceEpoch(time_ns)),
            ..of_order(order, instrument, exec_id.as_bytes(), exec_type, order.status)
        };
        let route = self.admission.routes.get(order.route);
        out.to_client(order.client, &Reply { body: Body::Execution(&fields), route });
        self.admission.counters.reports += 1;
    }

    /// Remembers a report that would do harm if it were repeated, and completes a bust or a correction from the fill that it refers
    /// to. Returns what is wrong with the report, if anything.
    #[inline]
    pub(super) fn complete(
        &mut self,
        order: Handle,
        report: &mut Execution,
    ) -> Result<Option<Doubt>, Incomplete> {
        let &mut Execution { kind, match_id, execution_id, .. } = report;
        let is_fill = kind == ExecutionKind::Trade;
        let is_change = match kind {
            ExecutionKind::Replaced | ExecutionKind::Restated | ExecutionKind::Suspended => true,
            ExecutionKind::Cancelled => report.leaves != Some(0),
            _ => false,
        };
        if is_fill || is_change {
            let is_named_by_match = is_fill && self.venue.names_fills_by_match();
            let is_named = if is_named_by_match { match_id > 0 } else { !execution_id.0.is_blank() };
            let quantity = if is_fill { report.last_quantity } else { 0 };
            let kept = Kept { quantity, is_named_by_match, ..Kept::of_change(order, report) };
            // A report without an id cannot be recognized again.
            let is_new = !is_named || self.admission.known.reported.add(kept);
            return if is_new { Ok(None) } else { Err(Incomplete::Repeated) };
        }
        if !matches!(kind, ExecutionKind::TradeCancelled | ExecutionKind::TradeCorrected) {
            return Ok(None);
        }
        self.complete_change_of_fill(order, report)
    }

    #[cold]
    fn complete_change_of_fill(
        &mut self,
        order: Handle,
        report: &mut Execution,
    ) -> Result<Option<Doubt>, Incomplete> {
        let reported = &mut self.admission.known.reported;
        let id = match self.venue.names_fills_by_match() {
            true => Id::Match(report.match_id),
            false => Id::Execution(report.reference),
        };
        let fill = reported.fill(order, &id, report.time_ns, report.match_id);
        let is_bust = report.kind == ExecutionKind::TradeCancelled;
        let (quantity, price_e8) = match is_bust {
            true => (report.last_quantity, report.last_price_e8),
            false => (report.corrected_quantity, report.corrected_price_e8),
        };
        let Some(fill) = fill else {
            let cumulative = self.admission.known.entry(order).map_or(0, |entry| entry.order.cumulative);
            if !(1..=cumulative).contains(&quantity) {
                return Err(Incomplete::Unknown);
            }
            let is_named = !report.execution_id.0.is_blank();
            let is_new = !is_named || self.admission.known.reported.add(Kept::of_change(order, report));
            return if is_new { Ok(Some(Doubt::UnknownFill)) } else { Err(Incomplete::Repeated) };
        };
        if fill.is_cancelled || fill.execution_id == report.execution_id {
            return Err(Incomplete::Repeated);
        }
        // A bust or a correction reverses the fill as it was applied, whatever figures the report has.
        let is_other = quantity > 0 && (quantity, price_e8) != (fill.quantity, fill.price_e8);
        report.reference = fill.execution_id;
        if is_bust {
            (report.last_quantity, report.last_price_e8) = (fill.quantity, fill.price_e8);
            fill.is_cancelled = true;
        } else {
            (report.corrected_quantity, report.corrected_price_e8) = (fill.quantity, fill.price_e8);
            (fill.quantity, fill.price_e8) = (report.last_quantity, report.last_price_e8);
            fill.execution_id = report.execution_id;
        }
        Ok(is_other.then_some(Doubt::OtherFigures))
    }
}
