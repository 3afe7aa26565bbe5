//! The publishers of a feed, as named by its row in the [table](crate::FEEDS).

use std::net::Ipv4Addr;

use tapeworks_market::Publisher;

/// A publisher of a feed.
#[derive(Clone, Copy, Debug)]
pub struct PublisherSpec {
    /// Its number.
    pub publisher: Publisher,
    /// Names of its venue on the command line, in lower case.
    pub names: &'static [&'static str],
    /// The multicast groups of lines A and B, if they identify it among the feed's publishers.
    pub groups: &'static [Ipv4Addr],
}
