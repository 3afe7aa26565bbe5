//! Quotes: each is a request with two orders, its sides.
//!
//! The sides share the quote's name at the venue, so the side in a report shows which one it is about. Cost: as for two orders; the
//! report of the quote itself needs one more lookup.

use tapeworks_fix_wire::order_entry::{
    MassQuote, MassQuoteAcknowledgementFields, QuoteStatusReportFields, Side,
};
use tapeworks_fix_wire::tag;
use tapeworks_wire::NanosecondsSinceEpoch;

use super::{Translator, reason_text};
use crate::admission::{Incoming, MOST_ENTRIES};
use crate::fix_side::{Body, Reply};
use crate::ids::{ClOrdId, ClientIndex, ExecutionId, InstrumentIndex};
use crate::incoming::{entries_of, parties, quote_terms};
use crate::known::{ClientRequest, RequestKind};
use crate::orders::{ExchangeToClientState, Order};
use crate::outputs::Outputs;
use crate::pool::Handle;
use crate::refusal::Refusal;
use crate::report::{Execution, ExecutionKind};
use crate::request::{Quote, Request};
use crate::route::Route;
use crate::settings::FixVersion;
use crate::text::Text;
use crate::venue::Venue;

/// QuoteStatus (297).
const QUOTE_ACCEPTED: i64 = 0;
const ALL_QUOTES_CANCELLED: i64 = 4;
const QUOTE_REJECTED: i64 = 5;
const QUOTE_CANCELLED: i64 = 17;

impl<V: Venue> Translator<V> {
    pub(super) fn send_quote(
        &mut self,
        client: ClientIndex,
        (id, instrument): (ClOrdId, InstrumentIndex),
        quote: Quote,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let quote = Quote { name: self.venue.name(self.next_name, &id), ..quote };
        self.send(quote.name, &Request::Quote(quote), instrument, now_ns, out)?;
        let route = self.admission.route;
        let sides = [(Side::Buy, quote.bid), (Side::Sell, quote.offer)].map(|(side, part)| {
            let order = || Order { route, ..Order::new(client, id, instrument, quote.order(side), now_ns) };
            (part.quantity != 0).then(order)
        });
        self.count_open(client, sides.iter().flatten().count() as i32);
        let ids = (id, ClOrdId::default());
        let request = ClientRequest::new(RequestKind::Quote, client, ids, quote.name, instrument);
        self.admission.known.add_quote(ClientRequest { route, ..request }, sides);
        Ok(())
    }

    /// Sends all entries of a mass quote, or none: each entry is encoded once before the first is sent.
    #[cold]
    pub(super) fn send_mass_quote(
        &mut self,
        incoming: &Incoming<'_>,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let &Incoming { client, message, now_ns } = incoming;
        let view = MassQuote::read_parsed(message).map_err(Refusal::Unread)?;
        let parties = parties(view.parties(), &self.admission.reference)?;
        for is_sent in [false, true] {
            for entry in entries_of(&view).take(MOST_ENTRIES) {
                let id = self.admission.client_id(entry.quote_entry_id(), tag::QUOTE_ENTRY_ID)?;
                let (instrument, quote) =
                    quote_terms!(entry).quote(&self.admission.reference, None, parties)?;
                if is_sent {
                    self.send_quote(client, (id, instrument), quote, now_ns, out)?;
                } else {
                    let name = self.venue.name(self.next_name, &id);
                    self.written(&Request::Quote(Quote { name, ..quote }), instrument, now_ns)?;
                }
            }
        }
        let fields = MassQuoteAcknowledgementFields {
            quote_id: Some(view.quote_id()),
            ..MassQuoteAcknowledgementFields::new(QUOTE_ACCEPTED)
        };
        self.admission.counters.reports += 1;
        let route = self.admission.routes.get(self.admission.route);
        out.to_client(client, &Reply { body: Body::MassQuoteAcknowledgement(&fields), route });
        Ok(())
    }

    /// Cancels the sides of a quote, or of all quotes of the client.
    #[cold]
    pub(super) fn cancel_quotes(
        &mut self,
        incoming: &Incoming<'_>,
        quote: Option<Handle>,
        out: &mut impl Outputs,
    ) {
        let &Incoming { client, now_ns, .. } = incoming;
        let of_quote = |order: &Handle| self.admission.known.entry(*order).and_then(|entry| entry.quote);
        let mut sides = self.admission.known.open(client);
        sides.retain(|side| of_quote(side).is_some_and(|of| quote.is_none_or(|quote| quote == of)));
        for side in sides {
            self.send_own_cancel(side, now_ns, out);
        }
        let status = if quote.is_some() { QUOTE_CANCELLED } else { ALL_QUOTES_CANCELLED };
        let id = incoming.message.field(tag::QUOTE_ID).unwrap_or(b"NONE");
        let symbol = match quote.and_then(|quote| self.admission.known.request(quote)) {
            Some(request) => self.symbol(request.instrument),
            None => Text::new().push(incoming.message.field(tag::SYMBOL).unwrap_or_default()),
        };
        let route = self.admission.routes.get(self.admission.route).cloned();
        self.report_quote(client, (id, symbol), (status, None), None, (now_ns, route.as_ref()), out);
    }

    /// Reports the status of a quote. FIX 4.2 has another message for it.
    pub(super) fn report_quote(
        &mut self,
        client: ClientIndex,
        (id, symbol): (&[u8], Text),
        (status, reason): (i64, Option<i64>),
        text: Option<&[u8]>,
        (time_ns, route): (u64, Option<&Route>),
        out: &mut impl Outputs,
    ) {
        self.admission.counters.reports += 1;
        if self.version(client) == FixVersion::Fix42 {
            let fields = MassQuoteAcknowledgementFields {
                quote_id: Some(id),
                quote_reject_reason: reason,
                text,
                ..MassQuoteAcknowledgementFields::new(status)
            };
            return out.to_client(client, &Reply { body: Body::MassQuoteAcknowledgement(&fields), route });
        }
        let fields = QuoteStatusReportFields {
            symbol: Some(symbol.as_bytes()).filter(|symbol| !symbol.is_empty()),
            quote_status: Some(status),
            quote_reject_reason: reason,
            text,
            transact_time: Some(NanosecondsSinceEpoch(time_ns)),
            ..QuoteStatusReportFields::new(id)
        };
        out.to_client(client, &Reply { body: Body::QuoteStatus(&fields), route });
    }

    /// Rejects a quote, after the venue accepted neither side or never received it.
    #[cold]
    pub(super) fn reject_quote(&mut self, handle: Handle, text: &[u8], time_ns: u64, out: &mut impl Outputs) {
        let Some(request) = self.admission.known.request(handle).copied() else { return };
        self.end_sides(&request);
        self.answer(handle);
        let reason = (QUOTE_REJECTED, Some(99));
        let quote = (request.id.text(), self.symbol(request.instrument));
        let route = self.admission.routes.get(request.route).cloned();
        self.report_quote(request.client, quote, reason, Some(text), (time_ns, route.as_ref()), out);
    }

    /// Ends the sides of a quote that the venue has not reported.
    pub(super) fn end_sides(&mut self, request: &ClientRequest) {
        for side in [request.order, request.offer].into_iter().flatten() {
            let Some(entry) = self.admission.known.entry_mut(side) else { continue };
            if entry.machine.state() == ExchangeToClientState::Sent {
                let rejected = Execution::rejected(request.name, ExecutionId::default(), 0);
                let kind = (ExecutionKind::Rejected as u8).into();
                let _dispatched = entry.machine.dispatch(&mut entry.order, kind, &rejected);
                self.count_open(request.client, -1);
                self.admission.known.end_order(side);
            }
        }
    }

    /// Returns the side of a quote that a report is about.
    pub(super) fn side_of(&self, request: &ClientRequest, report: &Execution) -> Option<Handle> {
        match report.side {
            Some(Side::Buy) => request.order,
            Some(_) => request.offer,
            None => self.admission.known.by_order_id(&report.order_id),
        }
    }

    /// Answers a pending quote with its first report. Returns whether the report is about the whole quote.
    #[cold]
    pub(super) fn answer_quote(
        &mut self,
        handle: Handle,
        request: &ClientRequest,
        report: &Execution,
        out: &mut impl Outputs,
    ) -> bool {
        let is_rejected = report.kind == ExecutionKind::Rejected;
        let known = self.venue.reason(report.reject_code);
        let words = reason_text(report.reject_code, None, known.map(|known| known.text.as_bytes()));
        if is_rejected && report.side.is_none() {
            self.reject_quote(handle, words.as_bytes(), report.time_ns, out);
            return true;
        }
        self.admission.known.set_answered(handle);
        let status = if is_rejected { (QUOTE_REJECTED, Some(99)) } else { (QUOTE_ACCEPTED, None) };
        let text = is_rejected.then_some(words.as_bytes());
        let quote = (request.id.text(), self.symbol(request.instrument));
        let route = self.admission.routes.get(request.route).cloned();
        self.report_quote(request.client, quote, status, text, (report.time_ns, route.as_ref()), out);
        false
    }

    /// Cancels the quotes of an instrument by a mass cancel, for a side whose id at the venue is not yet known.
    pub(super) fn cancel_quotes_of(
        &mut self,
        client: ClientIndex,
        instrument: InstrumentIndex,
        now_ns: u64,
        out: &mut impl Outputs,
    ) {
        self.send_own(|translator, id| {
            translator.send_mass_cancel(client, (id, instrument), true, true, now_ns, out)
        });
    }

    /// Handles the end of a side of a quote: if the other side has ended too, the quote may be forgotten.
    pub(super) fn end_quote_of(&mut self, order: Handle) {
        let known = &mut self.admission.known;
        let Some(handle) = known.entry(order).and_then(|entry| entry.quote) else { return };
        let Some(quote) = known.request(handle) else { return };
        let has_ended = |side: &Handle| {
            known.entry(*side).is_none_or(|entry| entry.machine.state() == ExchangeToClientState::Ended)
        };
        if [quote.order, quote.offer].iter().flatten().all(has_ended) {
            known.end_request(handle);
        }
    }
}
