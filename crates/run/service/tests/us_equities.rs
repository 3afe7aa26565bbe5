//! The examples of the US equity market: the plant has exactly the channels that the exchange sends.

#![allow(clippy::unwrap_used)] // a failure here is a failed test

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tapeworks_feed::Application;
use tapeworks_market::Publisher;
use tapeworks_service::config::Config as PlantConfig;
use tapeworks_venues::Config as ExchangeConfig;

/// Of a channel: its groups and ports, its publisher's dataset, its protocol. A SIP's channels are of all its publishers, which have one dataset.
type Channel = (Vec<SocketAddr>, &'static str, Application);

fn dataset(publisher: Publisher) -> &'static str {
    publisher.feed().unwrap().dataset
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(name)
}

#[test]
fn the_plant_has_exactly_the_channels_that_the_exchange_sends() {
    let exchange = ExchangeConfig::load(&example("exchange/us_equities.toml")).unwrap();
    let sent: BTreeMap<String, Channel> = exchange
        .venues
        .iter()
        .map(|venue| {
            let publisher = venue.live.kind.publisher();
            let application = Application::of_publisher(publisher).unwrap();
            let lines = venue.lines.iter().map(|line| SocketAddr::V4(*line)).collect();
            (venue.name.clone(), (lines, dataset(publisher), application))
        })
        .collect();
    let plant = PlantConfig::load(&example("plant/us_equities.toml")).unwrap();
    let received: BTreeMap<String, Channel> = plant
        .plant
        .venues
        .iter()
        .map(|venue| (venue.name.clone(), (venue.lines.clone(), dataset(venue.publisher), venue.application)))
        .collect();
    assert_eq!((exchange.venues.len(), plant.plant.venues.len(), sent.len()), (155, 155, 155));
    for (name, channel) in &sent {
        assert_eq!(received.get(name), Some(channel), "{name}");
    }
    assert_eq!(received.len(), sent.len());
}
