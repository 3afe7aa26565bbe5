//! The feeds: one row each.
//!
//! A row names a feed's messages, its normaliser, its transport and its publishers. Everything that needs to know which feeds
//! exist reads this table: recognition, replay, live channels, checkpoints, the analyser, command line and configuration.
//! [`feeds!`] generates the enum [`Application`] and the static dispatch to the normalisers from it; no other code in the
//! repository matches on a feed.
//!
//! Requirements of the feeds, and where they are handled:
//!
//! | requirement | feed | where |
//! | --- | --- | --- |
//! | several channels (16 bits) | Cboe (35) | [`ChannelIdentity`](crate::ChannelIdentity), [`LiveFeed`](crate::live::LiveFeed), [`Event::channel`] |
//! | bytes that do not identify their venue | Cboe, NYSE, LSE | [`FeedSpec::needs_group`] |
//! | requests over TCP, answers on a multicast group | Cboe, NYSE | [`tapeworks_session::requests`]; an answer is a packet of `Line::Recovery` |
//! | several publishers on one channel | UTP, CTA | each event has its publisher; [`FeedSpec::channels_are_shared`]: a gap affects all |
//! | depth and quotes of one venue | IEX, MEMX | two rows; the NBBO uses the most detailed non-stale ([`Detail`](tapeworks_market::venue::Detail)) |
//!
//! A new feed needs a declaration in `tapeworks_wire`, a file beside this one, and a row here (and its transport in
//! `tapeworks_session` if that is new).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tapeworks_follow::run::Dialect;
use tapeworks_market::{Event, Publisher};
use tapeworks_session::{SessionId, TransportKind};
use tapeworks_stage::Sink;
use tapeworks_time::Nanos;
use tapeworks_wire::schema::Schema;
use tapeworks_wire::{DecodeError, protocol_by_name};

use crate::cboe;
use crate::cfe::{self, CfeNormaliser};
use crate::cqs::{self, CqsNormaliser};
use crate::iex::{self, Deep, DeepPlus, Tops};
use crate::integrated::{self, IntegratedNormaliser};
use crate::itch::{self, ItchNormaliser};
use crate::locates::Contradiction;
use crate::memoir::{self, MemoirNormaliser};
use crate::mitch::{self, MitchNormaliser};
use crate::naming::{Naming, Suffixes};
use crate::normaliser::{Normaliser, Start, Target};
use crate::pitch::{self, PitchNormaliser};
use crate::publisher::PublisherSpec;
use crate::sip;
use crate::uqdf::{self, UqdfNormaliser};

/// The user named one venue, and the multicast group belongs to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{destination} is a group of {}, not of {}, which was named as the venue of everything",
    .known.venue_name(), .named.venue_name()
)]
pub struct VenueConflict {
    /// The packet's destination.
    pub destination: SocketAddr,
    /// The venue of that group.
    pub known: Publisher,
    /// The venue that the user named.
    pub named: Publisher,
}

/// A feed.
#[derive(Debug)]
pub struct FeedSpec {
    /// Its variant.
    pub application: Application,
    /// Its short name, an alias of the declaration's name.
    pub name: &'static str,
    /// The schema of its messages.
    pub schema: &'static Schema,
    /// The transport of its UDP channels.
    pub transport: TransportKind,
    /// Its publishers; the first is the default.
    pub publishers: &'static [PublisherSpec],
    /// Whether every channel carries messages of all the publishers (the participants of a SIP). Otherwise each channel has one
    /// publisher.
    pub channels_are_shared: bool,
    /// How messages name their instrument.
    pub naming: Naming,
    /// Whether a UDP payload certainly belongs to this feed. If the feed [`needs_group`](FeedSpec::needs_group): whether it may.
    pub recognise: fn(&[u8]) -> bool,
    /// Whether only payloads to a group of one of its publishers are recognised, because the bytes do not identify the venue.
    pub needs_group: bool,
    /// Whether a session of its transport belongs to this feed, judging by the header. Callers use [`FeedSpec::takes`].
    has_session: fn(&SessionId) -> bool,
    /// Checks that a message can be read.
    pub check: fn(&[u8]) -> Result<(), DecodeError>,
    /// Returns the time in a message, in the venue's units. The message may be padded to 32 bytes.
    pub time: fn(&[u8]) -> Option<u64>,
    /// Returns whether a message announces that the venue restarts the numbers of its channel.
    pub restarts: fn(&[u8]) -> bool,
    /// Whether a venue has one session at a time, over all its groups.
    pub has_one_session: bool,
    /// A message about a nonexistent order, which the plant uses to keep code warm. Its last byte is part of the order number.
    /// Empty if there is none.
    pub harmless: &'static [u8],
}

impl FeedSpec {
    /// Returns whether a session belongs to this feed, judging by the transport's header. Replay, live channels, checkpoints and
    /// the analyser follow this rule. A feed that is alone on its transport accepts every session of it, so a transport without
    /// sessions needs no rule.
    #[must_use]
    pub fn takes(&self, session: &SessionId) -> bool {
        session.transport() == self.transport && (self.has_session)(session)
    }

    /// Returns whether the feed has a publisher.
    #[must_use]
    pub fn has(&self, publisher: Publisher) -> bool {
        self.publishers.iter().any(|one| one.publisher == publisher)
    }

    /// Returns the publisher that uses a destination as its group.
    fn of_group(&self, destination: SocketAddr) -> Option<Publisher> {
        let IpAddr::V4(group) = destination.ip() else { return None };
        self.publishers.iter().find(|one| one.groups.contains(&group)).map(|one| one.publisher)
    }

    /// Returns whether a destination is a group of one of the feed's publishers.
    pub(crate) fn knows(&self, destination: SocketAddr) -> bool {
        self.of_group(destination).is_some()
    }

    /// Returns the contradiction if a destination is the group of a venue other than the one that the user named.
    pub(crate) fn conflict(
        &self,
        named: Option<Publisher>,
        destination: SocketAddr,
    ) -> Option<VenueConflict> {
        let named = named.filter(|publisher| self.has(*publisher))?;
        let known = self.of_group(destination).filter(|known| *known != named)?;
        Some(VenueConflict { destination, known, named })
    }

    /// Returns the publisher of a channel if it is known: the user names one of the feed's publishers, or else the group
    /// identifies it.
    fn known_publisher(
        &self,
        named: Option<Publisher>,
        destination: Option<SocketAddr>,
    ) -> Option<Publisher> {
        let named = named.filter(|publisher| self.has(*publisher));
        named.or_else(|| self.of_group(destination?))
    }

    /// Returns the publisher of a channel: the user's, if the feed has it; otherwise the group's; otherwise the first.
    #[must_use]
    pub fn publisher(&self, named: Option<Publisher>, destination: Option<SocketAddr>) -> Publisher {
        let first = || self.publishers.first().map(|one| one.publisher);
        self.known_publisher(named, destination).or_else(first).unwrap_or_default()
    }

    /// Returns whether the [publisher](Self::publisher) of a channel is only presumed: neither the bytes nor the group identify
    /// it, and the user names none.
    #[must_use]
    pub fn is_presumed(&self, named: Option<Publisher>, destination: Option<SocketAddr>) -> bool {
        self.needs_group
            && self.only_publisher().is_none()
            && self.known_publisher(named, destination).is_none()
    }

    /// Returns whether a UDP payload to this destination certainly belongs to this feed.
    #[must_use]
    pub fn recognises(&self, payload: &[u8], destination: SocketAddr) -> bool {
        (!self.needs_group || self.of_group(destination).is_some()) && (self.recognise)(payload)
    }

    /// Returns the publishers whose messages a channel carries: `of_channel` alone, or all of the feed's.
    pub fn publishers_on(&self, of_channel: Publisher) -> impl Iterator<Item = Publisher> + 'static {
        let all = if self.channels_are_shared { self.publishers } else { &[] };
        let own = (!self.channels_are_shared).then_some(of_channel);
        all.iter().map(|one| one.publisher).chain(own)
    }

    /// Returns the publisher of every channel if there is no choice: the feed has only one, or its channels carry all.
    #[must_use]
    pub fn only_publisher(&self) -> Option<Publisher> {
        match self.publishers {
            [only] => Some(only.publisher),
            [first, ..] if self.channels_are_shared => Some(first.publisher),
            _ => None,
        }
    }
}

/// Generates the enum of feeds, the table and the dispatch to the normalisers from the rows.
macro_rules! feeds {
    ($($(#[$doc:meta])* $name:ident, $normaliser:ty, $transport:ident { $($field:ident: $value:expr,)* })*) => {
        /// The protocol of a channel.
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Application {
            $($(#[$doc])* $name,)*
        }

        /// Every feed, in the order of [`Application`].
        pub static FEEDS: &[FeedSpec] = &[
            $(FeedSpec {
                application: Application::$name,
                transport: TransportKind::$transport,
                $($field: $value,)*
            },)*
        ];

        /// Returns the publishers of the feeds that several venues share. A name can choose each of them.
pub fn shared_publishers() -> impl Iterator<Item = &'static PublisherSpec> + Clone {
    FEEDS.iter().filter(|feed| feed.only_publisher().is_none()).flat_map(|feed| feed.publishers)
}

/// Returns the publisher of a shared feed by one of its venue's names, in any case.
#[must_use]
pub fn shared_publisher(name: &str) -> Option<Publisher> {
    let wanted = name.to_ascii_lowercase();
    shared_publishers().find(|one| one.names.contains(&wanted.as_str())).map(|one| one.publisher)
}

impl Application {
            /// Returns the transport of the feed's UDP channels.
            #[inline]
            #[must_use]
            pub const fn transport(self) -> TransportKind {
                match self {
                    $(Self::$name => TransportKind::$transport,)*
                }
            }

            /// Returns whether the feed is the table's first row.
            #[inline(always)]
            pub(crate) const fn is_first(self) -> bool {
                self as usize == 0
            }

            /// Returns the feed's row.
            #[must_use]
            pub fn spec(self) -> &'static FeedSpec {
                let row = match self {
                    $(Self::$name => {
                        const ROW: usize = Application::$name as usize;
                        &FEEDS[ROW]
                    })*
                };
                debug_assert!(row.application == self, "rows lie in the order of the enum");
                row
            }
        }

        /// The normaliser of a channel.
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[derive(Debug)]
        pub(crate) enum ChannelNormaliser {
            $($name($normaliser),)*
        }

        impl ChannelNormaliser {
            pub(crate) fn new(application: Application, start: &Start) -> Self {
                match application {
                    $(Application::$name => Self::$name(Normaliser::new(start)),)*
                }
            }

            #[cfg(feature = "serde")]
            pub(crate) const fn application(&self) -> Application {
                match self {
                    $(Self::$name(_) => Application::$name,)*
                }
            }

            /// See [`Normaliser::frequent`]. Handles either the table's first feed or all others: separating their paths is
            /// faster.
            #[inline(always)]
            pub(crate) fn frequent<S: Sink<Event>, const FIRST: bool>(
                &mut self,
                message: &[u8],
                to: &mut Target<'_, S>,
            ) -> bool {
                match self {
                    $(Self::$name(normaliser) if Application::$name.is_first() == FIRST => {
                        normaliser.frequent(message, to)
                    })*
                    _ => false,
                }
            }

            /// See [`Normaliser::message`].
            #[inline]
            pub(crate) fn message<S: Sink<Event>>(
                &mut self,
                message: &[u8],
                to: &mut Target<'_, S>,
            ) -> Result<Option<Contradiction>, DecodeError> {
                match self {
                    $(Self::$name(normaliser) => normaliser.message(message, to),)*
                }
            }

            /// See [`Normaliser::time_of`].
            pub(crate) fn time_of(&self, message: &[u8]) -> Nanos {
                match self {
                    $(Self::$name(normaliser) => normaliser.time_of(message),)*
                }
            }

            /// See [`Normaliser::is_sound`].
            #[cfg(feature = "serde")]
            pub(crate) fn is_sound(&self, symbols: &crate::symbols::SymbolTable) -> bool {
                match self {
                    $(Self::$name(normaliser) => normaliser.is_sound(symbols),)*
                }
            }

            /// See [`Normaliser::snapshot_reaches`].
            pub(crate) fn snapshot_reaches(&self) -> u64 {
                match self {
                    $(Self::$name(normaliser) => normaliser.snapshot_reaches(),)*
                }
            }

            /// See [`Normaliser::reach_of`].
            pub(crate) fn reach_of(&self, message: &[u8]) -> u64 {
                match self {
                    $(Self::$name(normaliser) => normaliser.reach_of(message),)*
                }
            }

            /// See [`Normaliser::forget_unnamed`].
            pub(crate) fn forget_unnamed(&mut self) {
                match self {
                    $(Self::$name(normaliser) => normaliser.forget_unnamed(),)*
                }
            }
        }
    };
}

/// The rows, followed by those of `$more`.
macro_rules! rows {
    ($($more:tt)*) => {
        feeds! {
            /// Nasdaq TotalView-ITCH 5.0.
            TotalViewItch50, ItchNormaliser, MoldUdp64 {
                name: "itch",
                schema: &tapeworks_wire::nasdaq::itch50::SCHEMA,
                // The groups come from Nasdaq's multicast configuration; any other group counts as Nasdaq's own.
                publishers: &[
                    PublisherSpec {
                        publisher: Publisher::XNAS_ITCH,
                        names: &["nasdaq", "xnas"],
                        groups: &[Ipv4Addr::new(233, 54, 12, 111), Ipv4Addr::new(233, 49, 196, 111)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XBOS_ITCH,
                        names: &["bx", "xbos"],
                        groups: &[Ipv4Addr::new(233, 54, 12, 40), Ipv4Addr::new(233, 49, 196, 40)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XPSX_ITCH,
                        names: &["psx", "xpsx"],
                        groups: &[Ipv4Addr::new(233, 54, 12, 45), Ipv4Addr::new(233, 49, 196, 45)],
                    },
                ],
                channels_are_shared: false,
                naming: Naming {
                    symbol: "stock",
                    suffix: None,
                    suffixes: Suffixes::AsTheyStand,
                    number: Some("stock_locate"),
                    zero_is_none: true,
                    directory: Some("StockDirectory"),
                    issue_name: None,
                },
                recognise: itch::recognise,
                needs_group: false,
                has_session: |_| true,
                check: itch::check,
                time: itch::time,
                restarts: itch::restarts,
                has_one_session: true,
                harmless: &itch::HARMLESS,
            }
            /// IEX TOPS 1.6 (and 1.5, whose messages are the same).
            IexTops16, Tops, IexTp {
                name: "tops",
                schema: &tapeworks_wire::iex::tops16::SCHEMA,
                publishers: &[PublisherSpec { publisher: Publisher::IEXG_TOPS, names: &["iex"], groups: &[] }],
                channels_are_shared: false,
                naming: iex::NAMING,
                recognise: Tops::recognise,
                needs_group: false,
                has_session: Tops::has_session,
                check: Tops::check,
                time: iex::time,
                restarts: |_| false,
                has_one_session: false,
                harmless: &[],
            }
            /// IEX DEEP 1.0.
            IexDeep10, Deep, IexTp {
                name: "deep",
                schema: &tapeworks_wire::iex::deep10::SCHEMA,
                publishers: &[PublisherSpec { publisher: Publisher::IEXG_DEEP, names: &["iex"], groups: &[] }],
                channels_are_shared: false,
                naming: iex::NAMING,
                recognise: Deep::recognise,
                needs_group: false,
                has_session: Deep::has_session,
                check: Deep::check,
                time: iex::time,
                restarts: |_| false,
                has_one_session: false,
                harmless: &[],
            }
            /// IEX DEEP+ 1.0.
            IexDeepPlus10, DeepPlus, IexTp {
                name: "deep+",
                schema: &tapeworks_wire::iex::deep_plus10::SCHEMA,
                publishers: &[
                    PublisherSpec { publisher: Publisher::IEXG_DEEP_PLUS, names: &["iex"], groups: &[] },
                ],
                channels_are_shared: false,
                naming: iex::NAMING,
                recognise: DeepPlus::recognise,
                needs_group: false,
                has_session: DeepPlus::has_session,
                check: DeepPlus::check,
                time: iex::time,
                restarts: |_| false,
                has_one_session: false,
                harmless: &iex::HARMLESS,
            }
            /// MEMX MEMOIR Depth 1.3.
            MemoirDepth13, MemoirNormaliser, Memoir {
                name: "memoir",
                schema: &tapeworks_wire::memx::depth13::SCHEMA,
                publishers: &[PublisherSpec { publisher: Publisher::MEMX_MEMOIR, names: &["memx"], groups: &[] }],
                channels_are_shared: false,
                naming: memoir::NAMING,
                recognise: memoir::recognise,
                needs_group: false,
                has_session: |_| true,
                check: memoir::check,
                time: memoir::time,
                restarts: |_| false,
                has_one_session: false,
                harmless: &memoir::HARMLESS,
            }
            /// Cboe PITCH 2.41.
            CboePitch241, PitchNormaliser, CboeUnit {
                name: "pitch",
                schema: &tapeworks_wire::cboe::pitch::SCHEMA,
                // The groups are those of the simulated venues.
                publishers: &[
                    PublisherSpec {
                        publisher: Publisher::BATS_PITCH,
                        names: &["bzx", "bats"],
                        groups: &[Ipv4Addr::new(239, 192, 130, 1), Ipv4Addr::new(239, 192, 131, 1)],
                    },
                    PublisherSpec {
                        publisher: Publisher::BATY_PITCH,
                        names: &["byx", "baty"],
                        groups: &[Ipv4Addr::new(239, 192, 130, 2), Ipv4Addr::new(239, 192, 131, 2)],
                    },
                    PublisherSpec {
                        publisher: Publisher::EDGA_PITCH,
                        names: &["edga"],
                        groups: &[Ipv4Addr::new(239, 192, 130, 3), Ipv4Addr::new(239, 192, 131, 3)],
                    },
                    PublisherSpec {
                        publisher: Publisher::EDGX_PITCH,
                        names: &["edgx"],
                        groups: &[Ipv4Addr::new(239, 192, 130, 4), Ipv4Addr::new(239, 192, 131, 4)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XCBO_PITCH,
                        names: &["cboe-options", "xcbo"],
                        groups: &[],
                    },
                ],
                channels_are_shared: false,
                naming: pitch::NAMING,
                // Cboe's futures have the same header and some of the same messages.
                recognise: pitch::recognise,
                needs_group: true,
                has_session: |_| true,
                check: pitch::check,
                time: pitch::time,
                restarts: pitch::restarts,
                has_one_session: false,
                harmless: &cboe::HARMLESS,
            }
            /// NYSE Integrated (Pillar) 2.5.
            NyseIntegrated25, IntegratedNormaliser, Pillar {
                name: "integrated",
                schema: &tapeworks_wire::nyse::integrated::SCHEMA,
                // The groups are those of the simulated venues.
                publishers: &[
                    PublisherSpec {
                        publisher: Publisher::XNYS_PILLAR,
                        names: &["nyse", "xnys"],
                        groups: &[Ipv4Addr::new(239, 192, 140, 1), Ipv4Addr::new(239, 192, 141, 1)],
                    },
                    PublisherSpec {
                        publisher: Publisher::ARCX_PILLAR,
                        names: &["arca", "arcx"],
                        groups: &[Ipv4Addr::new(239, 192, 140, 2), Ipv4Addr::new(239, 192, 141, 2)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XASE_PILLAR,
                        names: &["american", "xase"],
                        groups: &[Ipv4Addr::new(239, 192, 140, 3), Ipv4Addr::new(239, 192, 141, 3)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XCIS_PILLAR,
                        names: &["national", "xcis"],
                        groups: &[Ipv4Addr::new(239, 192, 140, 4), Ipv4Addr::new(239, 192, 141, 4)],
                    },
                    PublisherSpec {
                        publisher: Publisher::XCHI_PILLAR,
                        names: &["texas", "xchi"],
                        groups: &[Ipv4Addr::new(239, 192, 140, 5), Ipv4Addr::new(239, 192, 141, 5)],
                    },
                ],
                channels_are_shared: false,
                naming: integrated::NAMING,
                // NYSE's options and other feeds have the same header and some of the same messages.
                recognise: integrated::recognise,
                needs_group: true,
                has_session: |_| true,
                check: integrated::check,
                time: |_| None,
                restarts: integrated::restarts,
                has_one_session: false,
                // Every message about an order ends with another field.
                harmless: &[],
            }
            /// LSE MITCH Level 2 11.9.
            LseMitch119, MitchNormaliser, MitchUnit {
                name: "mitch",
                schema: &tapeworks_wire::millennium::mitch::SCHEMA,
                // The groups are those of the simulated venue.
                publishers: &[PublisherSpec {
                    publisher: Publisher::XLON_MITCH,
                    names: &["lse", "xlon"],
                    groups: &[Ipv4Addr::new(239, 192, 150, 1), Ipv4Addr::new(239, 192, 151, 1)],
                }],
                channels_are_shared: false,
                naming: mitch::NAMING,
                // Other Millennium venues have the same header and messages; Cboe has the same header.
                recognise: mitch::recognise,
                needs_group: true,
                has_session: |_| true,
                check: mitch::check,
                time: mitch::time,
                restarts: mitch::restarts,
                has_one_session: false,
                // No message ends with an order number.
                harmless: &[],
            }
            /// UTP UQDF 1.5.
            UtpUqdf15, UqdfNormaliser, MoldUdp64 {
                name: "uqdf",
                schema: &tapeworks_wire::utp::uqdf15::SCHEMA,
                publishers: &sip::OF_UTP,
                channels_are_shared: true,
                naming: uqdf::NAMING,
                recognise: uqdf::recognise,
                needs_group: false,
                has_session: |_| true,
                check: uqdf::check,
                time: uqdf::time,
                restarts: uqdf::restarts,
                has_one_session: false,
                harmless: &[],
            }
            /// CTA CQS 1.91.
            CtaCqs191, CqsNormaliser, CtaBlock {
                name: "cqs",
                schema: &tapeworks_wire::cta::cqs191::SCHEMA,
                publishers: &sip::OF_CTA,
                channels_are_shared: true,
                naming: cqs::NAMING,
                recognise: cqs::recognise,
                needs_group: false,
                has_session: cqs::has_session,
                check: cqs::check,
                time: cqs::time,
                restarts: cqs::restarts,
                has_one_session: false,
                harmless: &[],
            }
            /// Cboe Futures Exchange PITCH 1.1.
            CboeFutures11, CfeNormaliser, CboeUnit {
                name: "cfe",
                schema: &tapeworks_wire::cboe::futures::SCHEMA,
                publishers: &[PublisherSpec {
                    publisher: Publisher::XCBF_PITCH,
                    names: &["cfe", "xcbf"],
                    // The groups in our captures, and the simulated venue's.
                    groups: &[
                        Ipv4Addr::new(233, 130, 124, 132),
                        Ipv4Addr::new(239, 192, 130, 5),
                        Ipv4Addr::new(239, 192, 131, 5),
                    ],
                }],
                channels_are_shared: false,
                naming: cfe::NAMING,
                // Equities have the same header and some of the same messages.
                recognise: cfe::recognise,
                needs_group: true,
                has_session: |_| true,
                check: cfe::check,
                time: cfe::time,
                restarts: cfe::restarts,
                has_one_session: false,
                harmless: &cboe::HARMLESS,
            }
            $($more)*
        }
    };
}

#[cfg(not(test))]
rows! {}

// The tests add a feed of two publishers on one channel.
#[cfg(test)]
rows! {
    /// A SIP with two participants.
    TestSip, crate::several_publishers::SipNormaliser, MoldUdp64 {
        name: "test-sip",
        schema: &tapeworks_wire::nasdaq::moldudp64::SCHEMA,
        publishers: &crate::several_publishers::PARTICIPANTS,
        channels_are_shared: true,
        naming: iex::NAMING,
        recognise: |_| false,
        needs_group: false,
        has_session: |_| true,
        check: |_| Ok(()),
        time: |_| None,
        restarts: |_| false,
        has_one_session: false,
        harmless: &[],
    }
}

impl Application {
    /// Returns how to follow the feed's channels.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        let FeedSpec { transport, has_session, check, time, restarts, .. } = *self.spec();
        Dialect { transport, feed: Some(self as u32), has_session, check, time, restarts }
    }

    /// Returns the protocol's name in [`tapeworks_wire::protocol_by_name`].
    #[must_use]
    pub fn protocol(self) -> &'static str {
        self.spec().schema.name
    }

    /// Returns the application with a protocol name or alias.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let schema = protocol_by_name(name)?.schema;
        FEEDS.iter().find(|feed| feed.schema.name == schema.name).map(|feed| feed.application)
    }

    /// Returns the application that has this publisher.
    #[must_use]
    pub fn of_publisher(publisher: Publisher) -> Option<Self> {
        FEEDS.iter().find(|feed| feed.has(publisher)).map(|feed| feed.application)
    }

    /// The feed of message files without packets and of SoupBinTCP connections, which do not name one.
    pub const OF_STREAMS: Self = Self::TotalViewItch50;

    /// Returns the application of a session: `known`, that of the last packet to the same destination, if it
    /// [takes](FeedSpec::takes) the session; otherwise the first that does; otherwise `named`, the user's choice. Returns `None`
    /// if no feed takes the session.
    #[must_use]
    pub fn of_session(session: &SessionId, known: Self, named: Option<Self>) -> Option<Self> {
        let takes = |feed: &&FeedSpec| feed.takes(session);
        let first = || FEEDS.iter().find(takes).map(|feed| feed.application);
        Some(known.spec()).filter(takes).map(|feed| feed.application).or_else(first).or(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_and_has_a_publisher_that_the_market_knows() {
        for (place, feed) in
            FEEDS.iter().enumerate().filter(|(_, feed)| feed.application != Application::TestSip)
        {
            assert_eq!(feed.application as usize, place);
            assert_eq!(feed.application.spec().name, feed.name);
            assert_eq!(feed.transport, feed.application.transport());
            assert_eq!(Application::by_name(feed.name), Some(feed.application), "{}", feed.name);
            assert!(!feed.publishers.is_empty());
            for one in feed.publishers {
                assert!(one.publisher.feed().is_some(), "{}: {:?}", feed.name, one.publisher);
                assert!(!one.names.is_empty());
            }
            let fields = feed.schema.messages.iter().flat_map(|message| message.fields);
            assert!(fields.clone().any(|field| field.name == feed.naming.symbol), "{}", feed.name);
            let directory =
                feed.schema.messages.iter().filter(|message| Some(message.name) == feed.naming.directory);
            let of_directory = directory.flat_map(|message| message.fields).collect::<Vec<_>>();
            assert_eq!(of_directory.is_empty(), feed.naming.directory.is_none(), "{}", feed.name);
            if let Some(name) = feed.naming.issue_name {
                assert!(of_directory.iter().any(|field| field.name == name), "{}", feed.name);
            }
            assert!(feed.harmless.is_empty() || (feed.check)(feed.harmless).is_ok(), "{}", feed.name);
        }
    }

    #[test]
    fn a_transport_is_no_feed() {
        assert_eq!(Application::by_name("itch"), Some(Application::TotalViewItch50));
        assert_eq!(Application::by_name("iex-deep"), Some(Application::IexDeep10));
        assert_eq!(Application::by_name("soupbintcp"), None);
    }

    #[test]
    fn a_publisher_is_the_named_one_or_that_of_the_group_or_the_first() {
        let itch = Application::TotalViewItch50.spec();
        let bx = "233.54.12.40:25475".parse().ok();
        assert_eq!(itch.publisher(None, bx), Publisher::XBOS_ITCH);
        assert_eq!(itch.publisher(Some(Publisher::XPSX_ITCH), bx), Publisher::XPSX_ITCH);
        assert_eq!(itch.publisher(None, "239.1.2.3:1".parse().ok()), Publisher::XNAS_ITCH);
        // A venue that the feed does not carry is ignored.
        assert_eq!(itch.publisher(Some(Publisher::ARCX_PILLAR), bx), Publisher::XBOS_ITCH);
        let deep = Application::IexDeep10.spec();
        assert_eq!(deep.publisher(Some(Publisher::XPSX_ITCH), None), Publisher::IEXG_DEEP);
    }
}
