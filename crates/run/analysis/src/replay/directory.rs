//! The symbols of a day, with each venue's information about them.

use std::collections::BTreeMap;

use tapeworks_market::event::{Definition, Event, EventKind, Status, StatusAction};
use tapeworks_market::luld::{PriceBands, Standing};
use tapeworks_market::{InstrumentId, Publisher};
use tapeworks_time::Nanos;

/// A feed's information about an instrument.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Its last definition.
    pub definition: Option<Definition>,
    /// The last trading status, and when it arrived.
    pub status: Option<(Nanos, Status)>,
    /// Whether a short-sale price test restricts it, according to the last message about that.
    pub is_short_sell_restricted: Option<bool>,
    /// The last price bands of a SIP.
    pub bands: Option<PriceBands>,
    /// How a SIP's national best last stood relative to the bands.
    pub standing: Option<Standing>,
    /// The issue name, if the feed sends one and the replay [reads them](super::Options::reads_issue_names).
    pub issue_name: Option<Box<str>>,
}

/// The feeds' information about instruments, by instrument and feed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directory(BTreeMap<(InstrumentId, Publisher), Listing>);

impl Directory {
    /// Whether events of this kind carry information for the directory.
    #[inline]
    pub(super) const fn takes(kind: EventKind) -> bool {
        matches!(
            kind,
            EventKind::SymbolMapping
                | EventKind::Definition
                | EventKind::Status
                | EventKind::PriceBands
                | EventKind::LimitState
        )
    }

    /// Learns from an event. Events of other kinds, or about no single instrument, are ignored.
    pub(super) fn learn(&mut self, event: &Event) {
        if event.instrument >= InstrumentId::UNKNOWN || !Self::takes(event.kind) {
            return;
        }
        let listing = self.0.entry((event.instrument, event.publisher)).or_default();
        if let Some(definition) = event.definition() {
            listing.definition = Some(definition);
        }
        listing.bands = event.price_bands().or(listing.bands);
        listing.standing = event.standing().or(listing.standing);
        if let Some(status) = event.status() {
            if !matches!(status.action, StatusAction::None | StatusAction::ShortSaleRestrictionChange) {
                listing.status = Some((event.ts_event, status));
            }
            if status.is_short_sell_restricted.is_some() {
                listing.is_short_sell_restricted = status.is_short_sell_restricted;
            }
        }
    }

    /// Sets an issue name.
    pub(super) fn name(&mut self, instrument: InstrumentId, publisher: Publisher, name: Box<str>) {
        self.0.entry((instrument, publisher)).or_default().issue_name = Some(name);
    }

    /// Returns each feed's information about an instrument, ordered by feed number.
    pub fn of(&self, instrument: InstrumentId) -> impl Iterator<Item = (Publisher, &Listing)> {
        let of_one = (instrument, Publisher(0))..=(instrument, Publisher(u16::MAX));
        self.0.range(of_one).map(|((_, publisher), listing)| (*publisher, listing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InstrumentId = InstrumentId(1);

    fn status(
        action: StatusAction,
        is_trading: Option<bool>,
        is_short_sell_restricted: Option<bool>,
    ) -> Event {
        let status = Status { action, reason: 0, is_trading, is_quoting: None, is_short_sell_restricted };
        Event::new(EventKind::Status, Publisher::XNAS_ITCH, ONE).with_status(status)
    }

    #[test]
    fn a_restriction_leaves_the_trading_status_as_it_is() {
        let mut directory = Directory::default();
        directory.learn(&status(StatusAction::Halt, Some(false), None));
        directory.learn(&status(StatusAction::ShortSaleRestrictionChange, None, Some(true)));
        let (publisher, listing) = directory.of(ONE).next().unwrap();
        assert_eq!(publisher, Publisher::XNAS_ITCH);
        assert_eq!(listing.status.map(|(_, status)| status.action), Some(StatusAction::Halt));
        assert_eq!(listing.is_short_sell_restricted, Some(true));
        assert_eq!(directory.of(InstrumentId(0)).count() + directory.of(InstrumentId(2)).count(), 0);
    }

    #[test]
    fn events_of_all_instruments_define_none() {
        let mut directory = Directory::default();
        directory.learn(&Event::new(EventKind::Status, Publisher::XNAS_ITCH, InstrumentId::ALL));
        directory.learn(&Event::new(EventKind::Add, Publisher::XNAS_ITCH, ONE));
        assert_eq!(directory, Directory::default());
    }
}
