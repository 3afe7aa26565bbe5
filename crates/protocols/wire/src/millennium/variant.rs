//! Venues that run Millennium Exchange, as variants of one declaration.
//!
//! The layouts of [`native`](super::native) are the London Stock Exchange's, version 21.2; so are the partitions, order types and
//! times in force of [`LSE`]. The differences in the other rows are common knowledge about those venues and are not verified.
//! Before connecting to a venue, check its document for the layouts and every value of its row. Each value is a setting that a
//! caller can change in a copy. Oslo and Borsa Italiana have since moved to another system; their rows serve tests and old
//! captures.

use super::native::{OrderType, Tif};
use crate::Ascii;

/// The padding after text in a field. Readers accept both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPadding {
    /// Pads with NUL bytes.
    Nul,
    /// Pads with spaces.
    Space,
}

impl TextPadding {
    /// Returns `text` as a field of `N` bytes; `None` if it is longer or not printable ASCII.
    #[must_use]
    pub fn field<const N: usize>(self, text: &str) -> Option<Ascii<N>> {
        let spaced = Ascii::<N>::new(text)?;
        Some(match self {
            Self::Space => spaced,
            Self::Nul => {
                let mut bytes = spaced.0;
                bytes.get_mut(text.len()..)?.fill(0);
                Ascii(bytes)
            }
        })
    }
}

/// A venue that runs Millennium Exchange. Only [`LSE`] is based on a document; see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name in configurations: `lse`.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// The padding of sent text. Not verified for any venue.
    pub text_padding: TextPadding,
    /// A side that has been silent for this long sends a heartbeat, in nanoseconds. Not verified: 3 s.
    pub heartbeat_interval_ns: u64,
    /// The other side is considered dead after this many intervals without a message. Not verified: 5.
    pub missed_heartbeats: u32,
    /// The most messages that a user may send per second. The limit is agreed with the venue; the value is an example.
    pub throttle_per_second: u32,
    /// The TCP port of the real-time channel. The venue assigns it; this is the simulated exchange's port.
    pub real_time_port: u16,
    /// The TCP port of the recovery channel. The venue assigns it; this is the simulated exchange's port.
    pub recovery_port: u16,
    /// The number of partitions: their App IDs count from 1.
    pub partitions: u8,
    /// Message Version of a logon.
    pub message_version: u8,
    /// The order types that the venue accepts.
    pub order_types: &'static [OrderType],
    /// The times in force that the venue accepts.
    pub tifs: &'static [Tif],
}

impl Variant {
    /// Returns whether the venue accepts orders of this type.
    #[must_use]
    pub fn takes_order_type(&self, order_type: OrderType) -> bool {
        self.order_types.contains(&order_type)
    }

    /// Returns whether the venue accepts orders with this time in force.
    #[must_use]
    pub fn takes_tif(&self, tif: Tif) -> bool {
        self.tifs.contains(&tif)
    }
}

/// London Stock Exchange.
pub const LSE: Variant = Variant {
    name: "lse",
    title: "London Stock Exchange",
    text_padding: TextPadding::Nul,
    heartbeat_interval_ns: 3_000_000_000,
    missed_heartbeats: 5,
    throttle_per_second: 1_000,
    real_time_port: 9_021,
    recovery_port: 9_022,
    partitions: 4,
    message_version: 1,
    order_types: &[OrderType::Market, OrderType::Limit, OrderType::Stop, OrderType::StopLimit],
    tifs: &[
        Tif::Day,
        Tif::ImmediateOrCancel,
        Tif::FillOrKill,
        Tif::AtTheOpening,
        Tif::GoodTillDate,
        Tif::GoodTillTime,
        Tif::AtTheClose,
        Tif::ClosingPriceCross,
        Tif::GoodForAuction,
        Tif::GoodForIntradayAuction,
        Tif::GoodForScheduledAuction,
        Tif::AuctionVolumeDiscovery,
        Tif::AuctionVolumeClose,
    ],
};

/// Turquoise: no stop orders, and no auctions except its own.
pub const TURQUOISE: Variant = Variant {
    name: "turquoise",
    title: "Turquoise",
    real_time_port: 9_031,
    recovery_port: 9_032,
    order_types: &[OrderType::Market, OrderType::Limit],
    tifs: &[
        Tif::Day,
        Tif::ImmediateOrCancel,
        Tif::FillOrKill,
        Tif::GoodTillTime,
        Tif::AuctionVolumeDiscovery,
        Tif::AuctionVolumeClose,
    ],
    ..LSE
};

/// The times in force of venues with auctions, without the ones that only London has.
const AUCTION_TIFS: &[Tif] = &[
    Tif::Day,
    Tif::ImmediateOrCancel,
    Tif::FillOrKill,
    Tif::AtTheOpening,
    Tif::GoodTillDate,
    Tif::GoodTillTime,
    Tif::AtTheClose,
    Tif::GoodForAuction,
];

/// Borsa Italiana, before it moved to another system.
pub const BORSA_ITALIANA: Variant = Variant {
    name: "borsa-italiana",
    title: "Borsa Italiana",
    real_time_port: 9_041,
    recovery_port: 9_042,
    tifs: AUCTION_TIFS,
    ..LSE
};

/// Oslo Børs, before it moved to another system.
pub const OSLO: Variant = Variant {
    name: "oslo",
    title: "Oslo Børs",
    real_time_port: 9_051,
    recovery_port: 9_052,
    tifs: AUCTION_TIFS,
    ..LSE
};

/// Johannesburg Stock Exchange.
pub const JSE: Variant = Variant {
    name: "jse",
    title: "Johannesburg Stock Exchange",
    real_time_port: 9_061,
    recovery_port: 9_062,
    tifs: AUCTION_TIFS,
    ..LSE
};

/// Every variant.
pub const VARIANTS: [&Variant; 5] = [&LSE, &TURQUOISE, &BORSA_ITALIANA, &OSLO, &JSE];

/// Returns the variant with this name, ignoring case.
#[must_use]
pub fn variant_by_name(name: &str) -> Option<&'static Variant> {
    VARIANTS.into_iter().find(|variant| variant.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_as_the_venue_wants_and_read_alike() {
        let (nul, space) = (TextPadding::Nul.field::<6>("AB"), TextPadding::Space.field::<6>("AB"));
        assert_eq!(
            (nul.map(|text| text.0), space.map(|text| text.0)),
            (Some(*b"AB\0\0\0\0"), Some(*b"AB    "))
        );
        assert_eq!(nul.and_then(|text| text.as_str().map(str::to_owned)).as_deref(), Some("AB"));
        assert_eq!(TextPadding::Nul.field::<6>("ABCDEF").map(|text| text.0), Some(*b"ABCDEF"));
        for text in ["ABCDEFG", "Ä", "A\n"] {
            assert_eq!(TextPadding::Nul.field::<6>(text), None, "{text}");
        }
    }

    #[test]
    fn variants_are_found_by_name_and_differ_in_what_they_take() {
        for variant in VARIANTS {
            assert_eq!(variant_by_name(&variant.name.to_uppercase()), Some(variant));
            assert!(variant.takes_order_type(OrderType::Limit) && variant.takes_tif(Tif::Day));
            assert!(variant.partitions > 0 && variant.missed_heartbeats > 0);
            assert!(!variant.takes_order_type(OrderType::Unknown(9)) && !variant.takes_tif(Tif::Unknown(9)));
        }
        assert!(LSE.takes_order_type(OrderType::Stop) && !TURQUOISE.takes_order_type(OrderType::Stop));
        assert!(LSE.takes_tif(Tif::ClosingPriceCross) && !JSE.takes_tif(Tif::ClosingPriceCross));
        assert_eq!(variant_by_name("nasdaq"), None);
    }
}
