//! Halts, closed venues, gaps, quotes and sessions, each in a short sequence of events.

use tapeworks_market::event::{Definition, Gap, Session, Status, StatusAction};
use tapeworks_market::nbbo::{MarketState, NbboRules, StaleBooks};
use tapeworks_market::round_lots::RoundLotPrices;
use tapeworks_market::{
    BookStage, Event, EventKind, Flags, InstrumentId, NbboStage, NbboUpdate, Price, Publisher, Side, Symbol,
};
use tapeworks_stage::{Stage, Through};
use tapeworks_time::Nanos;

const NASDAQ: Publisher = Publisher::XNAS_ITCH;
const BX: Publisher = Publisher::XBOS_ITCH;
const ONE: InstrumentId = InstrumentId(0);
const TWO: InstrumentId = InstrumentId(1);

struct Market(Through<BookStage, NbboStage>);

impl Market {
    fn new(rules: NbboRules) -> Self {
        Self(Through::new(BookStage::new([]), NbboStage::new(rules, [NASDAQ, BX], 4)))
    }

    /// Sends one event; returns the updates it gave: instrument, flags, whether the NBBO changed.
    fn send(&mut self, event: Event) -> Vec<(InstrumentId, Flags, bool)> {
        let mut updates = Vec::new();
        self.0.process(&[event], &mut |update: NbboUpdate<'_>| {
            updates.push((update.book.event.instrument, update.book.event.flags(), update.changed));
        });
        updates
    }

    fn order(
        &mut self,
        venue: Publisher,
        instrument: InstrumentId,
        id: u64,
        side: Side,
        cents: u32,
        size: u32,
    ) {
        let mut event = Event::new(EventKind::Add, venue, instrument);
        (event.order_id, event.side, event.size) = (id, side, size);
        event.price = Some(Price::from_e4(cents * 100));
        self.send(event);
    }

    fn bid(&self, instrument: InstrumentId) -> Option<(String, u32, Publisher)> {
        let bid = self.0.second.nbbo(instrument).bid;
        bid.price.map(|price| (price.to_string(), bid.size, bid.publisher))
    }

    fn status(&mut self, venue: Publisher, action: StatusAction, is_trading: Option<bool>) {
        let status =
            Status { action, reason: 0, is_trading, is_quoting: None, is_short_sell_restricted: None };
        self.send(Event::new(EventKind::Status, venue, ONE).with_status(status));
    }
}

fn quote(side: Side, cents: u32, size: u32, flags: Flags) -> Event {
    let mut event = Event::new(EventKind::Quote, Publisher::IEXG_TOPS, ONE);
    (event.side, event.size) = (side, size);
    event.set_flags(flags);
    event.price = (cents > 0).then(|| Price::from_e4(cents * 100));
    event
}

#[test]
fn a_halted_venue_does_not_count_and_its_book_goes_on() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(BX, ONE, 1, Side::Bid, 1001, 300);
    assert_eq!(market.bid(ONE), Some(("10.01".into(), 300, BX)));
    market.status(BX, StatusAction::NotAvailableForTrading, Some(false));
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, NASDAQ)));
    market.order(BX, ONE, 2, Side::Bid, 1002, 100);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, NASDAQ)));
    market.status(BX, StatusAction::None, Some(true));
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 100, BX)));
}

#[test]
fn a_closed_venue_leaves_every_nbbo_at_once() {
    let mut market = Market::new(NbboRules::default());
    for instrument in [ONE, TWO] {
        market.order(NASDAQ, instrument, 1 + u64::from(instrument.0), Side::Bid, 1000, 100);
        market.order(BX, instrument, 1 + u64::from(instrument.0), Side::Bid, 1001, 100);
    }
    let close = Event::new(EventKind::Session, BX, InstrumentId::ALL).with_session(Session::EndOfSystemHours);
    let updates = market.send(close);
    assert_eq!(
        updates.iter().filter(|update| update.2).map(|update| update.0).collect::<Vec<_>>(),
        [ONE, TWO]
    );
    assert_eq!(market.bid(TWO), Some(("10.00".into(), 100, NASDAQ)));
}

#[test]
fn odd_lots_add_up_to_a_round_lot_at_the_worst_of_their_prices() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1003, 60);
    assert_eq!(market.bid(ONE), None);
    market.order(NASDAQ, ONE, 2, Side::Bid, 1001, 70);
    assert_eq!(market.bid(ONE), Some(("10.01".into(), 100, NASDAQ)));
    // A venue that defines a lot of 40 shares makes the first order one.
    let mut definition = Event::new(EventKind::Definition, NASDAQ, ONE);
    definition.size = 40;
    market.send(definition);
    assert_eq!(market.bid(ONE), Some(("10.03".into(), 40, NASDAQ)));
}

#[test]
fn size_is_added_over_venues_and_the_venue_is_the_one_with_most() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(BX, ONE, 1, Side::Bid, 1000, 300);
    let nbbo = market.0.second.nbbo(ONE);
    assert_eq!(
        (nbbo.bid.size, nbbo.bid.venue_size, nbbo.bid.publisher, nbbo.bid.venues),
        (400, 300, BX, 0b11)
    );
}

#[test]
fn of_two_feeds_of_a_venue_the_depth_counts_and_the_quotes_while_it_is_stale() {
    let (tops, deep) = (Publisher::IEXG_TOPS, Publisher::IEXG_DEEP);
    for rules in
        [NbboRules::default(), NbboRules { stale_books: StaleBooks::Exclude, ..NbboRules::default() }]
    {
        let stale_books = rules.stale_books;
        let mut market = Market::new(rules);
        market.order(NASDAQ, ONE, 1, Side::Bid, 900, 100);
        let level = |cents: u32, size| {
            let mut level = Event::new(EventKind::Level, deep, ONE);
            (level.side, level.size, level.price) = (Side::Bid, size, Some(Price::from_e4(cents * 100)));
            level
        };
        let of_deep = |kind| Event::new(kind, deep, InstrumentId::ALL);
        market.send(quote(Side::Bid, 1000, 200, Flags(0)));
        market.send(quote(Side::Ask, 1002, 100, Flags::LAST));
        assert_eq!(market.bid(ONE), Some(("10.00".into(), 200, tops)), "nothing else was heard");
        market.send(level(1000, 300));
        assert_eq!(market.bid(ONE), Some(("10.00".into(), 300, deep)), "once, and by the depth");
        market.send(quote(Side::Bid, 1001, 500, Flags::LAST));
        assert_eq!(market.bid(ONE), Some(("10.00".into(), 300, deep)));
        market.send(of_deep(EventKind::Gap).with_gap(Gap { first: 7, count: 1 }));
        assert_eq!(market.bid(ONE), Some(("10.01".into(), 500, tops)), "the depth is stale");
        assert_eq!(market.0.second.nbbo(ONE).flags, Flags(0), "what counts is not stale");
        market.send(level(1003, 700));
        assert_eq!(market.bid(ONE), Some(("10.01".into(), 500, tops)));
        market.send(of_deep(EventKind::Recovered));
        assert_eq!(market.bid(ONE), Some(("10.03".into(), 700, deep)));
        // The removal of a level that is not there contradicts the book.
        market.send(level(1, 0));
        assert_eq!(market.bid(ONE), Some(("10.01".into(), 500, tops)));
        let gap = Event::new(EventKind::Gap, tops, InstrumentId::ALL).with_gap(Gap { first: 9, count: 1 });
        market.send(gap);
        // Both are stale: the more detailed one, under the rule for stale books.
        let expected = match stale_books {
            StaleBooks::Flag => ("10.03".into(), 700, deep),
            StaleBooks::Exclude => ("9.00".into(), 100, NASDAQ),
        };
        assert_eq!(market.bid(ONE), Some(expected));
        // After a clear nothing is known of the depth until its first level.
        market.send(quote(Side::Bid, 1000, 200, Flags(0)));
        market.send(quote(Side::Ask, 1002, 100, Flags::LAST));
        market.send(of_deep(EventKind::Clear));
        assert_eq!(market.bid(ONE), Some(("10.00".into(), 200, tops)));
        market.send(level(999, 100));
        assert_eq!(market.bid(ONE), Some(("9.99".into(), 100, deep)));
        assert_eq!(market.0.second.ignored(), 0);
    }
}

#[test]
fn locked_and_crossed_markets_are_flagged_and_shown() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    assert_eq!(market.0.second.nbbo(ONE).state(), MarketState::OneSided);
    market.order(BX, ONE, 1, Side::Ask, 1001, 100);
    assert_eq!(market.0.second.nbbo(ONE).state(), MarketState::Normal);
    market.order(BX, ONE, 2, Side::Ask, 1000, 100);
    assert_eq!(market.0.second.nbbo(ONE).state(), MarketState::Locked);
    market.order(BX, ONE, 3, Side::Ask, 999, 100);
    assert_eq!(market.0.second.nbbo(ONE).state(), MarketState::Crossed);
    assert_eq!((market.0.second.counts().locked, market.0.second.counts().crossed), (1, 1));
}

#[test]
fn a_gap_flags_the_books_that_it_may_have_touched_until_a_clear() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(BX, ONE, 1, Side::Bid, 1000, 100);
    let gap = Event::new(EventKind::Gap, NASDAQ, InstrumentId::ALL).with_gap(Gap { first: 5, count: 2 });
    let updates = market.send(gap);
    assert!(updates.contains(&(ONE, Flags::LAST.with(Flags::MAYBE_BAD_BOOK), true)), "{updates:?}");
    assert!(market.0.second.nbbo(ONE).flags.contains(Flags::MAYBE_BAD_BOOK));
    assert!(market.0.first.feed(NASDAQ).unwrap().book(ONE).is_stale());
    assert!(!market.0.first.feed(BX).unwrap().book(ONE).is_stale(), "another venue lost nothing");
    market.send(Event::new(EventKind::Clear, NASDAQ, ONE));
    assert!(!market.0.first.feed(NASDAQ).unwrap().book(ONE).is_stale());
    assert!(market.0.first.feed(NASDAQ).unwrap().book(TWO).is_stale(), "only the one was cleared");
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, BX)));
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags(0));
}

#[test]
fn a_recovered_book_is_no_longer_flagged() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(NASDAQ, TWO, 2, Side::Bid, 1000, 100);
    let is_stale =
        |market: &Market, instrument| market.0.first.feed(NASDAQ).unwrap().book(instrument).is_stale();
    market.send(Event::new(EventKind::Gap, NASDAQ, InstrumentId::ALL).with_gap(Gap { first: 5, count: 2 }));
    market.send(Event::new(EventKind::Recovered, NASDAQ, ONE));
    assert!(!is_stale(&market, ONE) && is_stale(&market, TWO));
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags(0));
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, NASDAQ)), "the book stayed as it was");
    market.send(Event::new(EventKind::Recovered, NASDAQ, InstrumentId::ALL));
    assert!(!is_stale(&market, TWO));
    assert_eq!(market.0.second.nbbo(TWO).flags, Flags(0));
}

#[test]
fn a_book_that_an_event_contradicts_is_flagged_until_a_clear() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(NASDAQ, TWO, 2, Side::Bid, 1000, 100);
    let mut delete = Event::new(EventKind::Delete, NASDAQ, ONE);
    delete.order_id = 77;
    let flagged = Flags::LAST.with(Flags::MAYBE_BAD_BOOK);
    assert_eq!(market.send(delete), [(ONE, flagged, true)], "the NBBO learns of it at once");
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags::MAYBE_BAD_BOOK);
    assert_eq!(market.0.second.nbbo(TWO).flags, Flags(0));
    market.send(Event::new(EventKind::Recovered, NASDAQ, InstrumentId::ALL));
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags::MAYBE_BAD_BOOK, "the end of a gap mends nothing here");
    market.order(NASDAQ, ONE, 3, Side::Ask, 1001, 100);
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags::MAYBE_BAD_BOOK);
    market.send(Event::new(EventKind::Clear, NASDAQ, ONE));
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    assert_eq!(market.0.second.nbbo(ONE).flags, Flags(0));
}

#[test]
fn a_contradicted_book_can_be_excluded_and_stays_excluded_in_a_checkpoint() {
    let rules = NbboRules { stale_books: StaleBooks::Exclude, ..NbboRules::default() };
    let mut market = Market::new(rules.clone());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1001, 100);
    market.order(BX, ONE, 1, Side::Bid, 1000, 100);
    let mut execute = Event::new(EventKind::Execute, NASDAQ, ONE);
    (execute.order_id, execute.size) = (9, 1);
    market.send(execute);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, BX)));
    let books = BookStage::from_image(&market.0.first.image(), |_| Default::default()).unwrap();
    let nbbo = NbboStage::from_image(rules, market.0.second.image()).unwrap();
    let mut market = Market(Through::new(books, nbbo));
    market.send(Event::new(EventKind::Recovered, NASDAQ, InstrumentId::ALL));
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, BX)));
    let start =
        Event::new(EventKind::Session, NASDAQ, InstrumentId::ALL).with_session(Session::StartOfMessages);
    market.send(start);
    market.order(NASDAQ, ONE, 1, Side::Bid, 1001, 100);
    assert_eq!(market.bid(ONE), Some(("10.01".into(), 100, NASDAQ)));
}

/// Contracts have no odd lots, in books that grow, are emptied or restored too.
#[test]
fn a_contract_is_a_round_lot() {
    let options = Publisher::XCBO_PITCH;
    let mut market = Market::new(NbboRules::default());
    market.order(options, ONE, 1, Side::Bid, 1000, 3);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 3, options)));
    market.order(Publisher::BATS_PITCH, TWO, 1, Side::Bid, 1000, 3);
    assert_eq!(market.bid(TWO), None, "an odd lot of shares");
    let image = market.0.first.image();
    let books = BookStage::from_image(&image, |_| Default::default()).unwrap();
    assert_eq!(books.image(), image);
    let nbbo = NbboStage::from_image(NbboRules::default(), market.0.second.image()).unwrap();
    let mut market = Market(Through::new(books, nbbo));
    market.send(Event::new(EventKind::Clear, options, InstrumentId::ALL));
    // Behind the table's end.
    let far = InstrumentId(5_000);
    assert!(far.index() >= market.0.first.feed(options).unwrap().instrument_count());
    assert_eq!(market.0.first.feed(options).unwrap().book(far).round_lot(), Some(1));
    for (id, instrument) in [(7, TWO), (8, far)] {
        market.order(options, instrument, id, Side::Bid, 999, 1);
        assert_eq!(market.bid(instrument), Some(("9.99".into(), 1, options)), "{instrument:?}");
    }
}

#[test]
fn a_number_far_beyond_the_known_ones_is_refused_and_takes_no_memory() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    let before = market.0.first.feed(NASDAQ).unwrap().bytes();
    let far = InstrumentId((1 << 24) - 1);
    market.order(NASDAQ, far, 2, Side::Bid, 1000, 100);
    for kind in [EventKind::Trade, EventKind::Quote, EventKind::Level, EventKind::Clear, EventKind::Gap] {
        let updates = market.send(Event::new(kind, NASDAQ, far));
        assert!(updates.iter().all(|update| update.0 == InstrumentId::UNKNOWN), "{updates:?}");
    }
    let books = market.0.first.feed(NASDAQ).unwrap();
    assert_eq!((books.bytes(), books.counters().instruments_beyond), (before, 6));
    // What is of one instrument cannot be of all, as another plant's events may say.
    for kind in [EventKind::Trade, EventKind::Add, EventKind::Quote, EventKind::Imbalance] {
        let updates = market.send(Event::new(kind, NASDAQ, InstrumentId::ALL));
        assert!(updates.iter().all(|update| update.0 == InstrumentId::UNKNOWN), "{updates:?}");
    }
    let books = market.0.first.feed(NASDAQ).unwrap();
    assert_eq!((books.bytes(), books.counters().instruments_beyond), (before, 10));
    // The next ones are taken, as they come.
    let next = InstrumentId(books.instrument_count() as u32);
    market.order(NASDAQ, next, 3, Side::Bid, 1000, 100);
    assert_eq!(market.bid(next), Some(("10.00".into(), 100, NASDAQ)));
}

#[test]
fn a_clear_that_names_a_side_still_empties_both() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    let mut clear = Event::new(EventKind::Clear, NASDAQ, ONE);
    clear.side = Side::Ask;
    market.send(clear);
    assert_eq!(market.bid(ONE), None);
}

#[test]
fn a_gap_of_one_instrument_leaves_the_others_alone() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    market.order(NASDAQ, TWO, 2, Side::Bid, 1000, 100);
    market.send(Event::new(EventKind::Gap, NASDAQ, ONE).with_gap(Gap { first: 5, count: 2 }));
    let books = market.0.first.feed(NASDAQ).unwrap();
    assert!(books.book(ONE).is_stale() && !books.book(TWO).is_stale());
}

#[test]
fn a_stale_book_can_be_excluded_instead() {
    let mut market = Market::new(NbboRules { stale_books: StaleBooks::Exclude, ..NbboRules::default() });
    market.order(NASDAQ, ONE, 1, Side::Bid, 1001, 100);
    market.order(BX, ONE, 1, Side::Bid, 1000, 100);
    market.send(Event::new(EventKind::Gap, NASDAQ, InstrumentId::ALL).with_gap(Gap { first: 5, count: 2 }));
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, BX)));
}

#[test]
fn a_quote_replaces_its_side_and_clears_staleness() {
    let mut market = Market::new(NbboRules::default());
    let gap = Event::new(EventKind::Gap, Publisher::IEXG_TOPS, InstrumentId::ALL);
    market.send(gap.with_gap(Gap { first: 1, count: 1 }));
    market.send(quote(Side::Bid, 1000, 200, Flags(0)));
    assert_eq!(market.bid(ONE), None, "the quote's other side is still to come");
    let updates = market.send(quote(Side::Ask, 1002, 100, Flags::LAST));
    assert_eq!(updates, [(ONE, Flags::LAST, true)]);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 200, Publisher::IEXG_TOPS)));
    market.send(quote(Side::Bid, 0, 0, Flags(0)));
    market.send(quote(Side::Ask, 1002, 100, Flags::LAST));
    assert_eq!(market.bid(ONE), None);
}

#[test]
fn an_excluded_book_that_is_no_longer_stale_counts_with_both_sides_at_once() {
    let mut market = Market::new(NbboRules { stale_books: StaleBooks::Exclude, ..NbboRules::default() });
    market.send(quote(Side::Bid, 1000, 200, Flags::LAST));
    let gap = Event::new(EventKind::Gap, Publisher::IEXG_TOPS, InstrumentId::ALL);
    market.send(gap.with_gap(Gap { first: 1, count: 1 }));
    assert_eq!(market.bid(ONE), None);
    // Each side in a message of its own: the second heals, and only its own side moved.
    market.send(quote(Side::Bid, 1001, 100, Flags::LAST));
    market.send(quote(Side::Ask, 1002, 100, Flags::LAST));
    assert_eq!(market.bid(ONE), Some(("10.01".into(), 100, Publisher::IEXG_TOPS)));
}

#[test]
fn a_group_of_levels_counts_when_its_last_has_come() {
    let level = |cents: u32, size, flags| {
        let mut event = Event::new(EventKind::Level, Publisher::IEXG_DEEP, ONE);
        (event.side, event.size) = (Side::Bid, size);
        event.set_flags(flags);
        event.price = Some(Price::from_e4(cents * 100));
        event
    };
    let mut market = Market::new(NbboRules::default());
    for cents in [1000, 999, 998, 997, 996] {
        market.send(level(cents, 100, Flags::LAST));
    }
    // The top goes, then, last of the group, a level far below changes.
    market.send(level(1000, 0, Flags(0)));
    assert_eq!(market.bid(ONE).unwrap().0, "10.00");
    market.send(level(996, 500, Flags::LAST));
    assert_eq!(market.bid(ONE).unwrap().0, "9.99");
}

#[test]
fn the_start_of_messages_begins_with_empty_books() {
    let mut market = Market::new(NbboRules::default());
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    let start =
        Event::new(EventKind::Session, NASDAQ, InstrumentId::ALL).with_session(Session::StartOfMessages);
    market.send(start);
    assert_eq!(market.bid(ONE), None);
    assert_eq!(market.0.first.feed(NASDAQ).unwrap().order_count(), 0);
}

fn definition(venue: Publisher, round_lot: u32, listing: u8) -> Event {
    Event::new(EventKind::Definition, venue, ONE).with_definition(Definition {
        round_lot,
        reference_price: None,
        tick: None,
        class: b' ',
        listing,
        is_test: false,
        is_etp: false,
    })
}

#[test]
fn a_venue_that_states_no_lot_takes_that_of_the_listing_market_at_once() {
    let bzx = Publisher::BATS_PITCH;
    let mut market = Market::new(NbboRules::default());
    market.order(bzx, ONE, 1, Side::Bid, 1003, 10);
    market.order(bzx, ONE, 2, Side::Bid, 1002, 90);
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 100, bzx)), "no venue states a lot");
    let updates = market.send(definition(BX, 40, b'Q'));
    assert_eq!((updates.len(), updates[0].2), (1, true), "the other venue's contribution is in it");
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 80, bzx)));
    // Nasdaq lists it.
    assert!(market.send(definition(NASDAQ, 10, b'Q'))[0].2);
    assert_eq!(market.bid(ONE), Some(("10.03".into(), 10, bzx)));
    assert!(!market.send(definition(BX, 100, b'Q'))[0].2, "BX does not");
    // A checkpoint keeps it.
    let nbbo = NbboStage::from_image(NbboRules::default(), market.0.second.image()).unwrap();
    let books = BookStage::from_image(&market.0.first.image(), |_| Default::default()).unwrap();
    market = Market(Through::new(books, nbbo));
    market.order(bzx, ONE, 3, Side::Bid, 1004, 10);
    assert_eq!(market.bid(ONE), Some(("10.04".into(), 10, bzx)));
    // What the venue states itself comes first.
    market.send(definition(bzx, 20, b'Z'));
    assert_eq!(market.bid(ONE), Some(("10.03".into(), 20, bzx)));
    assert!(!market.send(definition(NASDAQ, 1, b'Q'))[0].2);
}

#[test]
fn a_sip_states_a_lot_behind_all_venues_and_takes_no_place_among_them() {
    let (bzx, sip) = (Publisher::BATS_PITCH, Publisher::SIP_UTP);
    let mut market = Market::new(NbboRules::default());
    market.order(bzx, ONE, 1, Side::Bid, 1003, 10);
    market.order(bzx, ONE, 2, Side::Bid, 1002, 90);
    assert!(market.send(definition(sip, 10, b'Q'))[0].2);
    assert_eq!(market.bid(ONE), Some(("10.03".into(), 10, bzx)));
    market.send(Event::new(EventKind::Gap, sip, InstrumentId::ALL).with_gap(Gap { first: 1, count: 2 }));
    market.status(sip, StatusAction::Halt, Some(false));
    assert_eq!(market.0.second.venues(), [NASDAQ, BX, bzx]);
    assert!(market.send(definition(BX, 40, b'Q'))[0].2);
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 80, bzx)), "a venue's word comes first");
    assert!(!market.send(definition(sip, 10, b'Q'))[0].2);
}

#[test]
fn a_price_that_the_user_gives_makes_a_lot_until_a_venue_states_one() {
    let bzx = Publisher::BATS_PITCH;
    let mut prices = RoundLotPrices::parse("TEN,5000\nOLD,5000\n").unwrap();
    for (symbol, ts_recv, lot) in [
        ("TEN", 1_762_182_000_000_000_000, 10),
        ("OLD", 1_761_919_200_000_000_000, 100),
        ("NOT", 1_762_182_000_000_000_000, 100),
    ] {
        let rules = NbboRules { round_lot_prices: std::mem::take(&mut prices), ..NbboRules::default() };
        prices.clone_from(&rules.round_lot_prices);
        let mut market = Market::new(rules);
        let mapping = Event::new(EventKind::SymbolMapping, bzx, InstrumentId(9));
        market.send(mapping.with_symbol(Symbol::parse(symbol).unwrap()));
        for (id, cents, size) in [(1, 500_001, 10), (2, 500_000, 90)] {
            let mut order = Event::new(EventKind::Add, bzx, InstrumentId(9));
            (order.order_id, order.side, order.size, order.ts_recv) = (id, Side::Bid, size, Nanos(ts_recv));
            order.price = Some(Price::from_e4(cents * 100));
            market.send(order);
        }
        let cents = if lot == 10 { "5000.01" } else { "5000.00" };
        assert_eq!(market.bid(InstrumentId(9)), Some((cents.into(), lot, bzx)), "{symbol}");
        // A restored state takes the prices that the user gives now.
        let rules = NbboRules { round_lot_prices: prices.clone(), ..NbboRules::default() };
        for (rules, shares) in [(NbboRules::default(), 100), (rules, lot)] {
            let mut nbbo = NbboStage::from_image(rules, market.0.second.image()).unwrap();
            let mut symbols = vec![Symbol::parse("A").unwrap(); 9];
            symbols.push(Symbol::parse(symbol).unwrap());
            nbbo.price_lots(&symbols);
            let books = BookStage::from_image(&market.0.first.image(), |_| Default::default()).unwrap();
            market = Market(Through::new(books, nbbo));
            for kind in [EventKind::Add, EventKind::Delete] {
                let mut order = Event::new(kind, bzx, InstrumentId(9));
                (order.order_id, order.size, order.ts_recv) = (3, 100, Nanos(ts_recv));
                order.side = if kind == EventKind::Add { Side::Bid } else { Side::None };
                order.price = Some(Price::from_e4(50_000_200)).filter(|_| kind == EventKind::Add);
                market.send(order);
            }
            let cents = if shares == 10 { "5000.01" } else { "5000.00" };
            assert_eq!(market.bid(InstrumentId(9)), Some((cents.into(), shares, bzx)), "{symbol}");
        }
        let mut stated = definition(NASDAQ, 40, b'N');
        stated.instrument = InstrumentId(9);
        market.send(stated);
        assert_eq!(market.bid(InstrumentId(9)), Some(("5000.00".into(), 80, bzx)), "{symbol}");
    }
}

#[test]
fn a_venue_under_self_help_leaves_every_nbbo_and_comes_back_with_the_book_it_has_then() {
    let (tops, deep) = (Publisher::IEXG_TOPS, Publisher::IEXG_DEEP);
    let mut market = Market::new(NbboRules::default());
    for instrument in [ONE, TWO] {
        market.order(NASDAQ, instrument, 1 + u64::from(instrument.0), Side::Bid, 1000, 100);
        market.order(BX, instrument, 1 + u64::from(instrument.0), Side::Bid, 1001, 100);
    }
    let changed = |updates: Vec<(InstrumentId, Flags, bool)>| -> Vec<InstrumentId> {
        updates.iter().filter(|update| update.2).map(|update| update.0).collect()
    };
    assert_eq!(changed(market.send(Event::of_self_help(BX, true))), [ONE, TWO]);
    assert_eq!(market.bid(TWO), Some(("10.00".into(), 100, NASDAQ)));
    assert!(market.0.second.is_under_self_help(BX) && !market.0.second.is_under_self_help(NASDAQ));
    assert!(market.send(Event::of_self_help(BX, true)).iter().all(|update| !update.2), "it is out already");
    market.order(BX, ONE, 9, Side::Bid, 1002, 300);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, NASDAQ)));
    // A checkpoint keeps it.
    let nbbo = NbboStage::from_image(NbboRules::default(), market.0.second.image()).unwrap();
    let books = BookStage::from_image(&market.0.first.image(), |_| Default::default()).unwrap();
    market = Market(Through::new(books, nbbo));
    assert_eq!(changed(market.send(Event::of_self_help(BX, false))), [ONE, TWO]);
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 300, BX)));
    // A venue without a feed yet: all feeds that come later are out.
    market.send(Event::of_self_help(deep, true));
    assert!(market.0.first.feed(deep).is_none(), "it needs no books");
    market.send(quote(Side::Bid, 1005, 100, Flags::LAST));
    assert_eq!(market.bid(ONE), Some(("10.02".into(), 300, BX)));
    market.send(Event::of_self_help(tops, false));
    assert_eq!(market.bid(ONE), Some(("10.05".into(), 100, tops)));
}

#[test]
fn a_short_sale_restriction_that_one_venue_announces_holds_for_the_instrument() {
    let mut market = Market::new(NbboRules::default());
    let restrict = |market: &mut Market, venue, is_short_sell_restricted| {
        let (action, reason) = (StatusAction::ShortSaleRestrictionChange, 0);
        let (is_trading, is_quoting) = (None, None);
        let status = Status { action, reason, is_trading, is_quoting, is_short_sell_restricted };
        market.send(Event::new(EventKind::Status, venue, ONE).with_status(status));
        [ONE, TWO].map(|one| market.0.first.is_short_sale_restricted(one))
    };
    market.order(NASDAQ, ONE, 1, Side::Bid, 1000, 100);
    assert_eq!(restrict(&mut market, NASDAQ, Some(false)), [false, false]);
    assert_eq!(restrict(&mut market, BX, Some(true)), [true, false]);
    assert_eq!(restrict(&mut market, NASDAQ, Some(true)), [true, false]);
    assert_eq!(market.bid(ONE), Some(("10.00".into(), 100, NASDAQ)), "it is no halt");
    assert_eq!(restrict(&mut market, BX, None), [true, false]);
    assert_eq!(restrict(&mut market, BX, Some(false)), [true, false]);
    assert_eq!(restrict(&mut market, NASDAQ, Some(false)), [false, false]);
    // It ends with the venue's day, whose first message begins another.
    restrict(&mut market, NASDAQ, Some(true));
    let start =
        Event::new(EventKind::Session, NASDAQ, InstrumentId::ALL).with_session(Session::StartOfMessages);
    market.send(start);
    assert!(!market.0.first.is_short_sale_restricted(ONE));
}
