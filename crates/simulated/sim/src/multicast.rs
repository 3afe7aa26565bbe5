//! The multicast output and its receivers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tapeworks_market::BookOptions;
use tapeworks_outputs::begin::Begin;
use tapeworks_outputs::multicast::receiver::{Receiver, ReceiverOptions};
use tapeworks_outputs::multicast::server::{self, Multicast, MulticastSetting, Sockets};
use tapeworks_outputs::subscriber::Records as _;
use tapeworks_plant::EventConsumer;
use tapeworks_runtime::world::World as _;

use crate::group::Reception;
use crate::kernel::{Simulated, note, now_ns};
use crate::plan::{MulticastPlan, Plan, SECOND};
use crate::shared::{Shared, locked};
use crate::states::hash_of;

/// Returns the setting of the output.
fn setting(plan: &MulticastPlan) -> MulticastSetting {
    MulticastSetting {
        retransmission: plan.has_retransmission.then(Plan::multicast_requests),
        schemas: plan.schemas.iter().filter_map(|schema| schema.parse().ok()).collect(),
        store_bytes: plan.store_bytes,
        ..MulticastSetting::new(Plan::multicast_group())
    }
}

/// Binds the addresses of the output.
pub(crate) fn bind(plan: &MulticastPlan) -> Result<Sockets<Simulated>, String> {
    server::bind_in::<Simulated>(&setting(plan)).map_err(|error| error.to_string())
}

/// Starts the output.
pub(crate) fn serve(
    plan: &MulticastPlan,
    sockets: Sockets<Simulated>,
    begin: Begin<Simulated>,
    books: &BookOptions,
    consumer: EventConsumer<Simulated>,
) -> Result<Multicast<Simulated>, String> {
    server::start(sockets, setting(plan), books, consumer, begin, None).map_err(|error| error.to_string())
}

/// Runs a receiver: it keeps what it receives until clients stop.
pub(crate) fn receive(number: u32, plan: &MulticastPlan, shared: &Shared) {
    let options = ReceiverOptions {
        group: Plan::multicast_group().into(),
        interface: None,
        retransmission: plan.has_retransmission.then(Plan::multicast_requests),
        from_beginning: plan.from_beginning,
        timeout: Duration::from_millis(500),
    };
    let mut receiver = match Receiver::<Simulated>::open_in(options) {
        Ok(receiver) => receiver,
        Err(error) => return shared.violation(format!("receiver {number} does not open: {error}")),
    };
    let mut records = Vec::new();
    // Symbols are sent repeatedly, so no receiver ever has everything that is sent.
    let mut end: Option<(u64, u64)> = None;
    loop {
        if shared.stop_clients.load(Ordering::Acquire) {
            let (last, until_ns) =
                *end.get_or_insert_with(|| (locked(&shared.sent).last(), now_ns() + 5 * SECOND));
            if receiver.counters().next > last && !receiver.has_more() || now_ns() >= until_ns {
                break;
            }
        }
        match receiver.next_record() {
            Ok(Some(record)) => records.push(hash_of(record.as_ref())),
            // The session has ended; the next one has another name.
            Ok(None) => Simulated::sleep(Duration::from_millis(100)),
            Err(error) if error.is_timeout() => {}
            Err(error) => {
                shared.violation(format!("receiver {number} failed: {error}"));
                break;
            }
        }
    }
    let counters = receiver.counters();
    note(|| format!("receiver {number} has {} records: {counters:?}", records.len()));
    let last = end.map_or(0, |(last, _)| last);
    locked(&shared.receptions).push(Reception { number, last, records, counters });
}
