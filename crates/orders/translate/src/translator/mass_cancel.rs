//! Mass cancels: sent to the venue, or as a cancel of each order and each side of a quote.

use tapeworks_fix_wire::order_entry::{OrderMassCancelReportFields, OrderMassCancelRequest};
use tapeworks_wire::NanosecondsSinceEpoch;

use super::{Translator, response_of};
use crate::admission::{Incoming, Scope};
use crate::fix_side::{Body, Reply};
use crate::ids::{ClOrdId, ClientIndex, InstrumentIndex};
use crate::known::{ClientRequest, RequestKind};
use crate::outputs::Outputs;
use crate::pool::Handle;
use crate::refusal::Refusal;
use crate::request::{MassCancel, Request};
use crate::route::RouteIndex;
use crate::venue::Venue;

impl<V: Venue> Translator<V> {
    /// Sends a mass cancel of an instrument to a venue that accepts them. The gateway cancels each order and each side of a quote itself if other
    /// clients have orders in the instrument, because the venue would cancel all orders of the firm, or if the client has quotes in it, because the
    /// venue would not cancel them.
    #[cold]
    pub(super) fn mass_cancel(
        &mut self,
        incoming: &Incoming<'_>,
        id: ClOrdId,
        scope: Scope,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        let client = incoming.client;
        if let Scope::Instrument(instrument) = scope
            && self.venue.takes_mass_cancels()
            && !self.admission.known.others_trade(client, instrument)
            && !self.admission.known.quotes(client, instrument)
        {
            return self.send_mass_cancel(client, (id, instrument), false, false, incoming.now_ns, out);
        }
        let is_meant = |instrument: InstrumentIndex| match scope {
            Scope::All => true,
            Scope::Instrument(of) => of == instrument,
            Scope::Segment(segment) => self
                .admission
                .reference
                .instrument(instrument)
                .is_some_and(|found| found.segment.trimmed() == segment.trimmed()),
        };
        let of = |order: &Handle| self.admission.known.entry(*order).map(|entry| entry.order.instrument);
        let mut orders = self.admission.known.open(client);
        orders.retain(|order| of(order).is_some_and(is_meant));
        let before = self.admission.counters.own_cancels;
        for order in &orders {
            self.send_own_cancel(*order, incoming.now_ns, out);
        }
        if self.admission.counters.own_cancels != before {
            // The id is in use from now on. A mass cancel without orders is not remembered, because the store does not have it.
            let name = self.venue.name(self.next_name, &id);
            self.next_name = self.next_name.wrapping_add(1);
            let instrument = InstrumentIndex::default();
            let request = ClientRequest::new(
                RequestKind::MassCancel,
                client,
                (id, ClOrdId::default()),
                name,
                instrument,
            );
            let request = ClientRequest { is_pending: false, route: self.admission.route, ..request };
            if let Some(handle) = self.admission.known.add_request(request) {
                self.admission.known.end_request(handle);
            }
        }
        let Ok(view) = OrderMassCancelRequest::read_parsed(incoming.message) else { return Ok(()) };
        let (request_type, response) = (scope.request_type(), response_of(scope.request_type()));
        let fields = OrderMassCancelReportFields {
            cl_ord_id: Some(id.text()),
            order_id: Some(id.text()),
            total_affected_orders: Some(orders.len() as u64),
            symbol: view.symbol(),
            security_id: view.security_id(),
            market_segment_id: view.market_segment_id(),
            transact_time: Some(NanosecondsSinceEpoch(incoming.now_ns)),
            ..OrderMassCancelReportFields::new(request_type, response)
        };
        self.admission.counters.reports += 1;
        let route = self.admission.routes.get(self.admission.route);
        out.to_client(client, &Reply { body: Body::MassCancel(&fields), route });
        Ok(())
    }

    pub(super) fn send_mass_cancel(
        &mut self,
        client: ClientIndex,
        (id, instrument): (ClOrdId, InstrumentIndex),
        is_of_quotes: bool,
        is_own: bool,
        now_ns: u64,
        out: &mut impl Outputs,
    ) -> Result<(), Refusal> {
        if is_own && self.admission.known.in_use(client, &id).is_some() {
            return Err(Refusal::Duplicate);
        }
        let name = self.venue.name(self.next_name, &id);
        self.send(name, &Request::MassCancel(MassCancel { name, is_of_quotes }), instrument, now_ns, out)?;
        let request =
            ClientRequest::new(RequestKind::MassCancel, client, (id, ClOrdId::default()), name, instrument);
        let route = if is_own { RouteIndex::NONE } else { self.admission.route };
        self.admission.known.add_request(ClientRequest { is_own, route, ..request });
        Ok(())
    }
}
