//! A day of the whole US market and London: the same bytes each time, and every type of message that the generator makes.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

use std::collections::{BTreeMap, BTreeSet};

use tapeworks_generator::{Generator, MAX_MESSAGE_BYTES, Scenario, Unit, VenueConfig, VenueKind, write_pcap};
use tapeworks_wire::schema::Schema;
use tapeworks_wire::{cboe, cta, iex, memx, millennium, nasdaq, nyse, utp};

/// The US market, London, futures, and the two feeds of IEX that the market has no place for.
fn every_feed(messages: u64, symbols: u32) -> Scenario {
    let mut scenario = Scenario { symbols, bursts: Vec::new(), ..Scenario::us_market(messages) };
    let others = VenueKind::each(["lse", "iex-tops", "iex-deep", "cfe"]);
    scenario.venues.extend(others.map(|kind| VenueConfig { kind, share: 20, unit: Unit::WHOLE }));
    scenario
}

/// A protocol, and the messages of its declaration that the generator never makes.
type Protocol = (&'static Schema, &'static [&'static str]);

const ITCH: Protocol = (&nasdaq::itch50::SCHEMA, &[]);
const TOPS: Protocol = (&iex::tops16::SCHEMA, &[]);
const DEEP: Protocol = (&iex::deep10::SCHEMA, &[]);
const DEEP_PLUS: Protocol = (&iex::deep_plus10::SCHEMA, &["ClearBook"]);
/// The generator corrects no trade, and only a snapshot ends with the other.
const MEMOIR: Protocol = (&memx::depth13::SCHEMA, &["CorrectedTrade", "SnapshotComplete"]);
/// Expanded messages are of symbols with more than six letters, and the long one of more than 65,535 shares, which no order here has.
const PITCH: Protocol = (&cboe::pitch::SCHEMA, &["AddOrderExpanded", "ReduceSizeLong", "TradeExpanded"]);
/// The generator has no end of a day's trading, and its orders are small and have whole cents.
const FUTURES: Protocol = (&cboe::futures::SCHEMA, &["EndOfDaySummary", "ReduceSizeLong", "Settlement"]);
/// Besides corrections and summaries: what request servers and refreshes send.
const INTEGRATED: Protocol = (
    &nyse::integrated::SCHEMA,
    &[
        "AddOrderRefresh",
        "CrossCorrection",
        "HeartbeatResponse",
        "MessageUnavailable",
        "RefreshHeader",
        "RefreshRequest",
        "RequestResponse",
        "RetransmissionRequest",
        "StockSummary",
        "SymbolIndexMappingRequest",
    ],
);
/// London has no auctions here.
const MITCH: Protocol =
    (&millennium::mitch::SCHEMA, &["AuctionInfo", "AuctionTrade", "Statistics", "TopOfBook"]);
const UQDF: Protocol = (
    &utp::uqdf15::SCHEMA,
    &[
        "AuctionCollar",
        "FinraAdfMarketParticipantQuotation",
        "GeneralAdministrative",
        "MarketWideCircuitBreakerDeclineLevel",
        "MarketWideCircuitBreakerStatus",
        "QuoteWipeOut",
        "SessionCloseRecap",
    ],
);
const CQS: Protocol = (
    &cta::cqs191::SCHEMA,
    &[
        "AdministrativeUnformatted",
        "AuctionStatus",
        "DisasterRecoveryDataCenterActivation",
        "EndOfTestCycle",
        "FinraClose",
        "FinraOpen",
        "LineIntegrity",
        "MarketWideCircuitBreakerDeclineLevelStatus",
        "MarketWideCircuitBreakerStatus",
        "ResetBlockSequenceNumber",
        "SpecialLongQuote",
        "StartOfTestCycle",
    ],
);

/// The protocol of each venue.
const PROTOCOLS: [(&[&str], Protocol); 11] = [
    (&["nasdaq", "bx", "psx"], ITCH),
    (&["iex-tops"], TOPS),
    (&["iex-deep"], DEEP),
    (&["iex-deep-plus"], DEEP_PLUS),
    (&["memx"], MEMOIR),
    (&["bzx", "byx", "edga", "edgx"], PITCH),
    (&["cfe"], FUTURES),
    (&["nyse", "arca", "american", "national", "texas"], INTEGRATED),
    (&["lse"], MITCH),
    (&["uqdf"], UQDF),
    (&["cqs"], CQS),
];

fn protocol(kind: VenueKind) -> Protocol {
    PROTOCOLS.iter().find(|(kinds, _)| kinds.contains(&kind.key())).unwrap().1
}

#[test]
fn the_generator_makes_every_message_type_of_every_protocol_but_those_listed() {
    // Of 59, the symbol of the operational halts is one of UQDF's.
    let scenario = every_feed(600_000, 59);
    let mut generator = Generator::new(&scenario).unwrap();
    let mut message = [0; MAX_MESSAGE_BYTES];
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    while let Some(generated) = generator.next_message(&mut message) {
        let (schema, _) = protocol(scenario.venues[generated.venue].kind);
        let decoded = schema.decode(&message[..generated.length]);
        assert_eq!(decoded.error, None, "{}: {:x?}", schema.name, &message[..generated.length]);
        seen.entry(schema.name).or_default().insert(decoded.structure.unwrap().name);
    }
    let protocols: BTreeMap<&str, Protocol> =
        scenario.venues.iter().map(|venue| protocol(venue.kind)).map(|one| (one.0.name, one)).collect();
    assert_eq!(protocols.len(), 11);
    let never = |(schema, _): &Protocol| {
        let names = schema.messages.iter().map(|message| message.name);
        names.filter(|name| !seen[schema.name].contains(name)).collect::<BTreeSet<_>>()
    };
    let found: BTreeMap<&str, BTreeSet<&str>> =
        protocols.iter().map(|(name, one)| (*name, never(one))).collect();
    let listed: BTreeMap<&str, BTreeSet<&str>> =
        protocols.iter().map(|(name, (_, never))| (*name, never.iter().copied().collect())).collect();
    assert_eq!(found, listed);
}

#[test]
fn the_generator_makes_the_same_day_of_all_venues_each_time() {
    let scenario = Scenario { line_b: true, ..every_feed(60_000, 30) };
    let [first, second, other] = [1, 1, 2].map(|seed| {
        let mut file = Vec::new();
        write_pcap(&Scenario { seed, ..scenario.clone() }, &mut file).unwrap();
        file
    });
    assert!(first == second, "the same seed gives the same bytes");
    assert!(first != other, "another seed gives others");
}
