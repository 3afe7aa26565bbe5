//! Tests of clients' records, without sockets.

use std::collections::BTreeSet;

use tapeworks_engine::Start;
use tapeworks_market::{BookOptions, Symbol};
use tapeworks_time::Nanos;
use tokio::sync::mpsc::Receiver;

use super::messages::Lagged;
use super::*;

const A: InstrumentId = InstrumentId(0);
const B: InstrumentId = InstrumentId(1);

fn nbbo(event: u64) -> Record {
    Record { event, kind: Some(Kind::Nbbo(Nbbo::default())) }
}

fn trade(event: u64) -> Record {
    Record { event, kind: Some(Kind::Trade(Trade::default())) }
}

fn gap(event: u64) -> Record {
    Record { event, kind: Some(Kind::Gap(Gap::default())) }
}

fn newcomer(request: Request, queue: mpsc::Sender<Message>) -> Newcomer {
    Newcomer { request, queue, counters: Arc::default(), wants_current: None }
}

/// Returns a subscriber of all records with room for `room` of them, its queue, and its counters.
fn subscriber(room: usize) -> (Subscriber, Receiver<Message>, Arc<StreamCounters>) {
    let (queue, messages) = mpsc::channel(room);
    let request = Request { encoding: Encoding::Protobuf, trades: true, ..Request::default() };
    let newcomer = newcomer(request, queue);
    let counters = Arc::clone(&newcomer.counters);
    (Subscriber::new(newcomer), messages, counters)
}

fn read(messages: &mut Receiver<Message>) -> Option<Record> {
    match messages.try_recv().ok()? {
        Message::Binary(bytes) => Some(Record::decode(bytes).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_falls_behind_gets_the_last_quote_of_each_instrument_and_the_number_missed() {
    let (mut subscriber, mut messages, counters) = subscriber(4);
    let offer = |subscriber: &mut Subscriber, instrument, record: Record| {
        subscriber.offer(instrument, &mut Encoded::new(&record));
    };
    for event in 0..4 {
        offer(&mut subscriber, Some(A), nbbo(event));
    }
    // The queue is full: two changes of A are replaced by the third; B's only one is kept.
    for event in 4..7 {
        offer(&mut subscriber, Some(A), nbbo(event));
    }
    offer(&mut subscriber, Some(B), nbbo(7));
    offer(&mut subscriber, Some(A), trade(8));
    offer(&mut subscriber, None, gap(9));
    let last = |instrument, _| nbbo(if instrument == A { 6 } else { 7 });
    subscriber.catch_up(10, last);
    assert_eq!(read(&mut messages), Some(nbbo(0)), "there was no room to catch up");
    // One free slot is too little to begin, so the new record waits too.
    offer(&mut subscriber, Some(A), trade(10));
    subscriber.catch_up(11, last);
    for event in 1..4 {
        assert_eq!(read(&mut messages), Some(nbbo(event)));
    }
    assert_eq!(read(&mut messages), None);
    subscriber.catch_up(11, last);
    let missed = Lagged { conflated: 2, dropped_trades: 2, dropped_gaps: 1 };
    assert_eq!(read(&mut messages), Some(Record { event: 11, kind: Some(Kind::Lagged(missed)) }));
    assert_eq!((read(&mut messages), read(&mut messages)), (Some(nbbo(6)), Some(nbbo(7))));
    // From then on it is treated like the other clients.
    offer(&mut subscriber, Some(A), trade(12));
    subscriber.catch_up(13, last);
    assert_eq!((read(&mut messages), read(&mut messages)), (Some(trade(12)), None));
    let counted = [
        (&counters.stream_conflated, 2),
        (&counters.stream_dropped_trades, 2),
        (&counters.stream_dropped_gaps, 1),
        (&counters.stream_lagged, 1),
        (&counters.stream_records, 8),
    ];
    for (counter, count) in counted {
        assert_eq!(counter.get(), count);
    }
    drop(messages);
    assert!(subscriber.is_gone());
}

#[test]
fn a_client_gets_only_the_records_of_its_subscriptions() {
    let (queue, mut messages) = mpsc::channel(9);
    let (one, other) = (Symbol::from_bytes(b"ONE").unwrap(), Symbol::from_bytes(b"OTHER").unwrap());
    let request = Request {
        encoding: Encoding::Protobuf,
        nbbo: false,
        trades: true,
        symbols: Some(BTreeSet::from([other])),
    };
    let mut subscriber = Subscriber::new(newcomer(request, queue));
    subscriber.name(A, one);
    subscriber.name(B, other);
    [A, B].into_iter().for_each(|instrument| subscriber.show(instrument));
    let offers = [(Some(A), trade(1)), (Some(B), trade(2)), (Some(B), nbbo(3)), (None, gap(4))];
    for (instrument, record) in offers {
        subscriber.offer(instrument, &mut Encoded::new(&record));
    }
    subscriber.catch_up(5, |_, _| nbbo(0));
    assert_eq!((read(&mut messages), read(&mut messages)), (Some(trade(2)), Some(gap(4))));
    assert_eq!(read(&mut messages), None);
}

#[test]
fn a_record_is_encoded_once_however_many_want_it() {
    let record = trade(1);
    let mut encoded = Encoded::new(&record);
    let texts = [encoded.get(Encoding::Json), encoded.get(Encoding::Json)];
    let [Message::Text(one), Message::Text(other)] = texts else { panic!("no text") };
    assert_eq!(one.as_str().as_ptr(), other.as_str().as_ptr());
    assert!(encoded.protobuf.is_none());
}

#[test]
fn once_the_stream_has_ended_no_client_waits_for_it() {
    let hub = Hub::default();
    let mut before = hub.join(Request::default());
    hub.end();
    let mut after = hub.join(Request::default());
    assert!(before.blocking_recv().is_none() && after.blocking_recv().is_none());
}

#[test]
fn a_subscription_gets_every_instrument_when_it_requests_it_and_has_counters_of_its_own() {
    let hub = Arc::new(Hub::default());
    let request = Request { encoding: Encoding::Protobuf, ..Request::default() };
    let mut subscription = hub.subscribe(request, 9);
    let mut builder = RecordBuilder::new(&BookOptions::default());
    let [one, other] = ["ONE", "OTHER"].map(|name| Symbol::from_bytes(name.as_bytes()).unwrap());
    builder.market.restore(Start::new(&BookOptions::default(), 0, Nanos(0), [one, other]));
    hub.take().into_iter().for_each(|newcomer| builder.admit(newcomer));
    builder.show_current();
    builder.catch_up();
    assert_eq!(read(&mut subscription.records), None, "it has requested nothing");
    for _ in 0..2 {
        subscription.request_current();
        assert!(hub.has_requests.swap(false, Ordering::AcqRel));
        builder.show_current();
        builder.catch_up();
        for symbol in [one, other] {
            let Some(Kind::Nbbo(nbbo)) = read(&mut subscription.records).unwrap().kind else { panic!() };
            assert_eq!((nbbo.symbol.as_str(), nbbo.bid_price), (symbol.as_str(), None));
            assert_eq!(nbbo.flags, u32::from(Flags::SNAPSHOT.0));
        }
        assert_eq!(read(&mut subscription.records), None);
    }
    assert_eq!((subscription.counters.stream_records.get(), hub.counters.stream_records.get()), (4, 0));
}
