//! State that the books do not keep: last trades.

use tapeworks_market::price::UNDEFINED_PRICE;
use tapeworks_market::{InstrumentId, NbboUpdate, Publisher, Side};

use super::{Trade, trade_of};

/// The publisher that stands for all venues together.
pub(super) const ALL_VENUES: Publisher = Publisher(0);

/// The last trade of an instrument, and the last event recorded for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) trade: Trade,
    /// Time of the last trade.
    pub(super) traded_at: u64,
    /// Feed of the last event that traded or changed the NBBO; [`ALL_VENUES`] if there was none.
    pub(super) publisher: Publisher,
    pub(super) flags: u8,
}

/// No trade, and no record yet.
pub(super) const NOTHING: Last = Last {
    trade: Trade { price: UNDEFINED_PRICE, size: 0, side: Side::None },
    traded_at: dbn::UNDEF_TIMESTAMP,
    publisher: ALL_VENUES,
    flags: 0,
};

/// State of a [`RecordBuilder`](crate::live::RecordBuilder) besides books and NBBO: the last trade of every instrument, per
/// feed and over all feeds.
///
/// Cost: one or two cache lines per update that trades or changes an NBBO; a compare for other updates. 32 bytes per
/// instrument of each feed that trades.
#[derive(Clone, Default, Debug)]
pub struct Carried {
    /// Indexed by instrument. Feeds are in order of first appearance.
    feeds: Vec<(Publisher, Vec<Last>)>,
}

/// The carried state of an instrument as plain values: its number, the price (1e-9) and size of the last trade, DBN's letter
/// of its side, its time (ns), and the feed and flags of the last recorded event.
pub type LastImage = (u32, i64, u32, u8, u64, u16, u8);

/// The carried state as plain values, by feed; feed 0 stands for all.
pub type CarriedImage = Vec<(u16, Vec<LastImage>)>;

impl Carried {
    /// Notes an update.
    #[inline]
    pub fn note(&mut self, update: &NbboUpdate<'_>) {
        let trade = trade_of(&update.book).ok();
        if update.changed || trade.is_some() {
            self.change(update, trade);
        }
    }

    fn change(&mut self, update: &NbboUpdate<'_>, trade: Option<Trade>) {
        let event = update.book.event;
        if event.instrument >= InstrumentId::UNKNOWN {
            return;
        }
        let all = self.last_mut(ALL_VENUES, event.instrument);
        (all.publisher, all.flags) = (event.publisher, event.flags().0 | update.nbbo.flags.0);
        if let Some(trade) = trade {
            (all.trade, all.traded_at) = (trade, event.ts_event.0);
            let one = self.last_mut(event.publisher, event.instrument);
            (one.trade, one.traded_at) = (trade, event.ts_event.0);
        }
    }

    fn last_mut(&mut self, publisher: Publisher, instrument: InstrumentId) -> &mut Last {
        let known = self.feeds.iter().position(|(feed, _)| *feed == publisher);
        let place = known.unwrap_or_else(|| {
            self.feeds.push((publisher, Vec::new()));
            self.feeds.len() - 1
        });
        let instruments = &mut self.feeds[place].1;
        if instrument.index() >= instruments.len() {
            instruments.resize((instrument.index() + 1).next_power_of_two(), NOTHING);
        }
        &mut instruments[instrument.index()]
    }

    /// Returns the carried state of an instrument at a feed, or at [`ALL_VENUES`].
    pub(super) fn last(&self, publisher: Publisher, instrument: InstrumentId) -> Last {
        let feed = self.feeds.iter().find(|(feed, _)| *feed == publisher);
        feed.and_then(|(_, instruments)| instruments.get(instrument.index())).copied().unwrap_or(NOTHING)
    }

    /// Returns the state as plain values.
    pub fn image(&self) -> CarriedImage {
        let of_feed = |(feed, instruments): &(Publisher, Vec<Last>)| {
            let known = instruments.iter().enumerate();
            let known = known.filter(|(_, last)| {
                last.traded_at != NOTHING.traded_at || last.publisher != NOTHING.publisher
            });
            let image = |(index, last): (usize, &Last)| {
                let Trade { price, size, side } = last.trade;
                (index as u32, price, size, side as u8, last.traded_at, last.publisher.0, last.flags)
            };
            (feed.0, known.map(image).collect())
        };
        self.feeds.iter().map(of_feed).collect()
    }

    /// Rebuilds the state from an image. Returns `None` if an instrument is not below `instruments`, or a side is invalid.
    pub fn from_image(image: &CarriedImage, instruments: usize) -> Option<Self> {
        let mut carried = Self::default();
        for (feed, known) in image {
            for (index, price, size, side, traded_at, publisher, flags) in known {
                let instrument = InstrumentId(*index);
                let side = [Side::Bid, Side::Ask, Side::None].into_iter().find(|one| *one as u8 == *side)?;
                if instrument.index() >= instruments {
                    return None;
                }
                *carried.last_mut(Publisher(*feed), instrument) = Last {
                    trade: Trade { price: *price, size: *size, side },
                    traded_at: *traded_at,
                    publisher: Publisher(*publisher),
                    flags: *flags,
                };
            }
        }
        Some(carried)
    }
}
