//! The options of an engine.

use std::collections::HashSet;

use tapeworks_feed::FeedOptions;
use tapeworks_feed::live::{LiveChannelOptions, LiveFeed};
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{BookOptions, Symbol};

/// The channels and books of an engine. Engines with equal options turn equal inputs into equal events, books and NBBO.
#[derive(Clone, Default, Debug)]
pub struct EngineOptions {
    /// Channels, in the order of their numbers in inputs.
    pub channels: Vec<LiveChannelOptions>,
    /// Symbols to process; `None` for all.
    pub symbols: Option<HashSet<Symbol>>,
    /// When venues are under self-help.
    pub self_help: Vec<SelfHelp>,
    /// Unit of the sizes in the SIPs' quotes.
    pub sip_sizes: SipSizes,
    /// The books and the NBBO.
    pub books: BookOptions,
    /// Whether to keep last trades, which a checkpoint needs. Cost: one store per trade.
    pub keeps_last_trades: bool,
}

impl EngineOptions {
    /// Creates the feed of these channels before the first input.
    pub fn live_feed(&self) -> LiveFeed {
        let (options, channels) = self.feed();
        LiveFeed::new(options, channels)
    }

    pub(crate) fn feed(&self) -> (FeedOptions, Vec<LiveChannelOptions>) {
        let (symbols, self_help) = (self.symbols.clone(), self.self_help.clone());
        let sip_sizes = self.sip_sizes;
        (FeedOptions { symbols, self_help, sip_sizes, ..FeedOptions::default() }, self.channels.clone())
    }
}
