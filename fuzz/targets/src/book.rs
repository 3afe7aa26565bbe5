//! Books and the NBBO: whatever events come, levels are the sums of orders and the NBBO is the best of the books.

use std::collections::BTreeMap;

use tapeworks_market::book::BooksImage;
use tapeworks_market::event::{Gap, Session, Status, StatusAction};
use tapeworks_market::nbbo::NbboRules;
use tapeworks_market::{
    BookRef, BookStage, Capacity, Event, EventKind, InstrumentId, NbboStage, NbboUpdate, Price, Publisher,
    Side,
};
use tapeworks_stage::{Stage, Through};

use crate::take::Take;

const VENUES: [Publisher; 3] = [Publisher::XNAS_ITCH, Publisher::XBOS_ITCH, Publisher::XPSX_ITCH];
/// Shares of a round lot where no venue has said another.
const ROUND_LOT: u64 = 100;
/// Instruments with orders, then those with levels, then those with quotes: an instrument has one kind of book only.
const ORDERED: u32 = 3;
const LEVELLED: u32 = 2;
const QUOTED: u32 = 2;
const INSTRUMENTS: u32 = ORDERED + LEVELLED + QUOTED;

fn event(take: &mut Take<'_>) -> Event {
    let kind = take.u8();
    let venue = VENUES[usize::from(kind >> 6) % VENUES.len()];
    let kind = kind & 0x3f;
    let mut instrument = InstrumentId(u32::from(take.u8()) % ORDERED);
    let (id, new_id) = (u64::from(take.u8() & 0x3f), u64::from(take.u8() & 0x3f));
    let place = take.u8();
    let side = if place & 0x80 == 0 { Side::Bid } else { Side::Ask };
    // Usually small; else near the largest a level can have.
    let size = u32::from(take.u16()) << if place & 0x40 == 0 { 0 } else { 16 };
    let price = Price::from_e4(u32::from(place & 0x1f) * 100);
    let mut event = Event::new(EventKind::Other, venue, instrument);
    match kind {
        0..20 => event.kind = EventKind::Add,
        20..26 => event.kind = EventKind::Execute,
        26..32 => event.kind = EventKind::Cancel,
        32..38 => event.kind = EventKind::Delete,
        38..44 => event.kind = EventKind::Replace,
        44..50 => {
            event.kind = EventKind::Level;
            instrument.0 = ORDERED + instrument.0 % LEVELLED;
        }
        50..56 => {
            event.kind = EventKind::Quote;
            instrument.0 = ORDERED + LEVELLED + instrument.0 % QUOTED;
        }
        56 => event = event.with_gap(Gap { first: id, count: new_id + 1 }),
        57 => {
            event = event.with_gap(Gap { first: id, count: 1 });
            instrument = InstrumentId::ALL;
        }
        58 => event.kind = EventKind::Clear,
        59 => {
            event.kind = EventKind::Clear;
            instrument = InstrumentId::ALL;
        }
        60 => {
            let is_trading = Some(size & 1 == 0);
            event = event.with_status(Status {
                action: if size & 1 == 0 { StatusAction::Trading } else { StatusAction::Halt },
                reason: 0,
                is_trading,
                is_quoting: is_trading,
                is_short_sell_restricted: None,
            });
        }
        61 => {
            let phase = if size & 1 == 0 { Session::StartOfSystemHours } else { Session::EndOfSystemHours };
            event = event.with_session(phase);
            instrument = InstrumentId::ALL;
        }
        62 => event.kind = EventKind::Trade,
        // Numbers are given out one by one, so a large one is a large table: a market's worth is enough.
        _ => instrument = InstrumentId(size & 0xfff),
    }
    event.instrument = instrument;
    if matches!(event.kind, EventKind::Gap | EventKind::Status | EventKind::Session) {
        return event;
    }
    event.order_id = id;
    event.side = side;
    event.size = size;
    event.aux = new_id;
    // Price 0 stands for none.
    event.price = (place & 0x1f != 0).then_some(price);
    event
}

/// Levels are sorted, and those of orders are their sums.
fn check_book(book: BookRef<'_>) {
    for side in [Side::Bid, Side::Ask] {
        let levels: Vec<_> = book.levels(side).collect();
        assert_eq!(levels.len(), book.depth(side));
        assert_eq!(levels.first().copied(), book.best(side));
        for pair in levels.windows(2) {
            let sorted =
                if side == Side::Bid { pair[0].price > pair[1].price } else { pair[0].price < pair[1].price };
            assert!(sorted, "{side:?}: {levels:?}");
        }
        assert!(levels.iter().all(|level| level.size > 0), "{levels:?}");
        if book.instrument().0 >= ORDERED {
            continue;
        }
        let mut sums = BTreeMap::<Price, (u64, u32)>::new();
        for order in book.queue().iter().filter(|order| order.side == side) {
            let sum = sums.entry(order.price).or_default();
            *sum = (sum.0 + u64::from(order.size), sum.1 + 1);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        if side == Side::Bid {
            sums.reverse();
        }
        let levels: Vec<_> =
            levels.iter().map(|level| (level.price, (u64::from(level.size), level.orders))).collect();
        assert_eq!(levels, sums, "{side:?} of {:?}", book.instrument());
    }
}

/// The price down to which a round lot stands, as the rule says it: no venue here publishes another lot than the usual.
fn round_lot_best(book: BookRef<'_>, side: Side) -> Option<Price> {
    let mut shares = 0u64;
    book.levels(side).find_map(|level| {
        shares += u64::from(level.size);
        (shares >= ROUND_LOT).then_some(level.price)
    })
}

/// The NBBO's prices are the best round-lot prices of the venues that trade.
fn check_nbbo(chain: &Through<BookStage, NbboStage>, instrument: InstrumentId) {
    let nbbo = chain.second.nbbo(instrument);
    for (side, best) in [(Side::Bid, nbbo.bid), (Side::Ask, nbbo.ask)] {
        let venues = chain.first.feeds().iter().map(|feed| feed.book(instrument));
        let offers = venues
            .filter(|book| book.state().is_trading() && book.is_open())
            .filter_map(|book| round_lot_best(book, side));
        let expected = if side == Side::Bid { offers.max() } else { offers.min() };
        assert_eq!(best.price, expected, "{side:?} of {instrument:?}");
        assert_eq!(best.price.is_some(), best.venues != 0);
    }
}

/// Random events, 7 bytes each, through books whose tables start too small, and the NBBO over them. Books and NBBO made of an
/// image on the way end as the ones that the image was taken of.
pub fn book(bytes: &[u8]) {
    let capacity = Capacity { instruments: 1, orders: 8, levels: 4 };
    let books = BookStage::with_unnamed([(VENUES[0], capacity)], capacity);
    // The rule under which a stale book is left out is tested by stories; here every book that trades counts.
    let nbbo = NbboStage::new(NbboRules::default(), [], 1);
    let mut chain = Through::new(books, nbbo);
    let mut take = Take(bytes);
    let mut batch = Vec::new();
    let mut twin: Option<Through<BookStage, NbboStage>> = None;
    let mut batches = 0;
    while !take.is_empty() {
        batch.push(event(&mut take));
        // Batches of every length up to 16.
        if batch.len() > usize::from(take.0.len() as u8 & 15) || take.is_empty() {
            if batches == bytes.len() % 7 {
                let books = BookStage::from_image(&chain.first.image(), |_| capacity).expect("it is sound");
                let nbbo =
                    NbboStage::from_image(NbboRules::default(), chain.second.image()).expect("it is sound");
                twin = Some(Through::new(books, nbbo));
            }
            batches += 1;
            if let Some(twin) = &mut twin {
                twin.process(&batch, &mut |_: NbboUpdate<'_>| {});
            }
            let mut seen = 0;
            chain.process(&batch, &mut |update: NbboUpdate<'_>| {
                seen += 1;
                assert!(update.book.depth().is_none_or(|depth| depth < 1 << 16));
            });
            assert!(seen >= batch.len(), "{seen} updates of {} events", batch.len());
            batch.clear();
            for instrument in (0..INSTRUMENTS).map(InstrumentId) {
                chain.first.feeds().iter().for_each(|feed| check_book(feed.book(instrument)));
                check_nbbo(&chain, instrument);
            }
        }
    }
    if let Some(twin) = twin {
        let images = [&twin, &chain].map(|chain| {
            let mut images = chain.first.image();
            images.iter_mut().for_each(BooksImage::sort);
            images
        });
        assert_eq!(images[0], images[1]);
        assert_eq!(twin.second.image(), chain.second.image());
    }
    for feed in chain.first.feeds() {
        let counters = feed.counters();
        assert!(counters.rejected() <= counters.events);
    }
}
