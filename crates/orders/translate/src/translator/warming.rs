//! Keeps the path of an order in the caches with dummy orders.

use tapeworks_fix_wire::order_entry::ExecType;

use super::Translator;
use crate::admission::{ClientToExchangeState, Decision, Incoming};
use crate::ids::{ExecutionId, VenueName};
use crate::orders::Order;
use crate::report::{Execution, ExecutionKind};
use crate::request::{NewOrder, Request};
use crate::venue::Venue;
use crate::warm::Warm;

impl<V: Venue> Translator<V> {
    /// Prepares [`Self::warm`]: allocates a dummy order for each client.
    pub fn prepare_to_warm(&mut self) {
        self.warm = Some(Box::new(Warm::new(&self.admission)));
    }

    /// Runs a dummy order of the next client up to just before it would be sent, and its first report back up to the FIX bytes, so
    /// that code and tables are in the caches when an order arrives. Nothing is sent, counted or kept. Does nothing unless the path is
    /// open and [`Self::prepare_to_warm`] was called. A host calls it when idle. Cost: a few microseconds if the caches are cold.
    pub fn warm(&mut self, now_ns: u64) {
        let Some(mut warm) = self.warm.take() else { return };
        if self.way.state() == ClientToExchangeState::Open && !self.admission.is_replaying {
            let (counters, last_time) = (self.admission.counters, self.admission.last_time);
            self.admission.is_warming = true;
            self.warm_with(&mut warm, now_ns);
            self.admission.is_warming = false;
            (self.admission.counters, self.admission.last_time) = (counters, last_time);
        }
        self.warm = Some(warm);
    }

    fn warm_with(&mut self, warm: &mut Warm, now_ns: u64) {
        let Some((client, message)) = warm.next() else { return };
        let Some(message) = self.parts.parse(message) else { return };
        let incoming = Incoming { client, message: &message, now_ns };
        let decided = self.way.dispatch(&mut self.admission, u64::from(b'D'), incoming);
        let Ok(Ok(Decision::New { id, instrument, order })) = decided else { return };
        let order = NewOrder { name: self.venue.name(self.next_name, &id), ..order };
        if self.written(&Request::New(order), instrument, now_ns).is_err() || !self.admission.known.has_room()
        {
            return;
        }
        let Some(order) = self.admission.known.add_order(Order::new(client, id, instrument, order, now_ns))
        else {
            return;
        };
        let accepted = Execution {
            kind: ExecutionKind::Accepted,
            leaves: None,
            ..Execution::rejected(VenueName::default(), ExecutionId::default(), now_ns)
        };
        if let Some(entry) = self.admission.known.entry_mut(order) {
            let kind = (accepted.kind as u8).into();
            let _dispatched = entry.machine.dispatch(&mut entry.order, kind, &accepted);
        }
        self.report_execution(order, ExecType::New, &accepted, None, None, warm.discarded());
        self.admission.known.take_back(order);
    }
}
