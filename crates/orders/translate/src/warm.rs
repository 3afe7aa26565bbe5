//! Dummy orders that keep the order path in the caches, and are never sent.
//!
//! Without them, a rare order finds the path cold: since the previous order, the code and the table entries that it touches have
//! left the caches.

use tapeworks_fix_wire::Writer;
use tapeworks_fix_wire::order_entry::{HeaderFields, NewOrderSingleFields, OrdType, Side};
use tapeworks_wire::{Decimal, NanosecondsSinceEpoch};

use crate::admission::Admission;
use crate::fix_side::Reply;
use crate::ids::{ClientIndex, InstrumentIndex};
use crate::outputs::Outputs;
use crate::report::Report;
use crate::risk::E8;

/// A ClOrdID that no client should need. If a client uses it, warming covers less.
const ID: &[u8] = b"~~~~ warm ~~~~";

/// Maximum number of bytes in a message.
const MOST_BYTES: usize = 1_024;

/// A dummy order for each client, and the buffer for its reply.
#[derive(Debug)]
pub(crate) struct Warm {
    messages: Vec<Vec<u8>>,
    next: usize,
    discarded: Discarded,
}

impl Warm {
    /// Creates an order for each client: one unit at the lowest price, in an instrument that the client may trade.
    pub(crate) fn new(admission: &Admission) -> Self {
        let message = |index: InstrumentIndex| {
            let instrument = admission.reference.instrument(index)?;
            let fields = NewOrderSingleFields {
                symbol: Some(instrument.symbol.trimmed()),
                order_qty: Some(Decimal(E8)),
                price: Some(Decimal(instrument.tick_e8.max(1))),
                ..NewOrderSingleFields::new(ID, Side::Buy, NanosecondsSinceEpoch(0), OrdType::Limit)
            };
            let mut buffer = [0; MOST_BYTES];
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"D");
            HeaderFields::new(b"WARM", b"WARM", 1, NanosecondsSinceEpoch(0)).write(&mut writer);
            fields.write(&mut writer);
            writer.finish().ok().map(|message| message.to_vec())
        };
        let of_client = |client: &crate::admission::Client| message(client.risk.first_instrument());
        let messages = admission.clients.iter().map(|client| of_client(client).unwrap_or_default()).collect();
        Self { messages, next: 0, discarded: Discarded { buffer: [0; MOST_BYTES], length: 0 } }
    }

    /// Returns the next client and its order.
    pub(crate) fn next(&mut self) -> Option<(ClientIndex, &[u8])> {
        self.next = if self.next + 1 < self.messages.len() { self.next + 1 } else { 0 };
        let message = self.messages.get(self.next)?;
        Some((ClientIndex(u16::try_from(self.next).ok()?), message))
    }

    pub(crate) const fn discarded(&mut self) -> &mut Discarded {
        &mut self.discarded
    }
}

/// Encodes replies as a session does, and keeps the bytes of the last one, because a compiler that could see them unused would
/// remove the work.
#[derive(Debug)]
pub(crate) struct Discarded {
    buffer: [u8; MOST_BYTES],
    length: usize,
}

impl Outputs for Discarded {
    fn to_venue(&mut self, _: &[u8]) {}

    fn to_client(&mut self, _: ClientIndex, reply: &Reply<'_>) {
        let mut writer = Writer::begin(&mut self.buffer, b"FIX.4.4", reply.message_type());
        HeaderFields::new(b"WARM", b"WARM", 1, NanosecondsSinceEpoch(0)).write(&mut writer);
        reply.write(&mut writer);
        self.length = writer.finish().map_or(0, |message| message.len());
    }

    fn unmatched(&mut self, _: &Report) {}
}
