//! The options of an engine.

use std::collections::HashSet;

use tapeworks_feed::FeedOptions;
use tapeworks_feed::live::{LiveChannelOptions, LiveFeed};
use tapeworks_market::nbbo::SelfHelp;
use tapeworks_market::round_lots::SipSizes;
use tapeworks_market::{BookOptions, Symbol};

/// The channels and the books of an engine. Engines with the same options give the same events, books and NBBO of the same inputs.
#[derive(Clone, Default, Debug)]
pub struct EngineOptions {
    /// The channels, in the order in which inputs number them.
    pub channels: Vec<LiveChannelOptions>,
    /// The only symbols wanted; all unless given.
    pub symbols: Option<HashSet<Symbol>>,
    /// When venues are under self-help.
    pub self_help: Vec<SelfHelp>,
    /// What the sizes of the SIPs' quotes count.
    pub sip_sizes: SipSizes,
    /// The books and the NBBO.
    pub books: BookOptions,
    /// Whether last trades are kept, which a checkpoint needs. Cost: a store for each trade.
    pub keeps_last_trades: bool,
}

impl EngineOptions {
    /// The feed of these channels before the first input.
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
