//! The bodies of the fuzz targets: checks that hold for any bytes.
//!
//! A target is a function of bytes that panics when a check fails. `cargo fuzz run NAME` drives it with libFuzzer (see
//! `fuzz/README.md`); the test of this crate and the program `mutate` run every target over the seeds of `fuzz/seeds` and over
//! seeded mutations of them, with nothing but the toolchain. [`TARGETS`] lists them all.
//!
//! Cost: some microseconds for each input, so that a fuzzer reaches tens of thousands a second.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a target reports what it found")]

mod book;
mod capture;
mod clients;
mod feed;
mod fix;
mod gateway;
mod live;
mod multicast;
pub mod mutate;
mod network;
mod orders;
mod packets;
mod requests;
pub mod seeds;
mod take;
mod venues;
mod wire;

pub use book::book;
pub use capture::{capture, framed};
pub use clients::{control, stream_request};
pub use feed::{feed_capture, feed_file, feed_packets};
pub use fix::{fix_message, fix_session, fix_stream};
pub use gateway::gateway;
pub use live::{checkpoint, config, journal, live_feed};
pub use multicast::multicast;
pub use network::{net, rewrite, tcp};
pub use orders::{native_session, order_exchange, soup_session};
pub use requests::{request_server, requester};
pub use venues::{refresh, retransmission, snapshot, snapshot_client};
pub use wire::{
    cboeunit, cfe, cqs, ctablock, deep_plus10, deep10, iextp, integrated, itch50, memoir13, memoirudp, mitch,
    mitchunit, moldudp64, native, ouch50, pillarpacket, pitch, recovery, schema, soupbintcp, tops16, uqdf,
};

/// A target: its name, and its function of bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by name. A target's seeds lie in the folder of its name, or in the one that [`seeds_of`] returns.
pub const TARGETS: &[Target] = &[
    ("book", book),
    ("capture", capture),
    ("cboeunit", cboeunit),
    ("checkpoint", checkpoint),
    ("config", config),
    ("control", control),
    ("cqs", cqs),
    ("ctablock", ctablock),
    ("deep10", deep10),
    ("deep_plus10", deep_plus10),
    ("feed_capture", feed_capture),
    ("feed_file", feed_file),
    ("feed_packets", feed_packets),
    ("fix_message", fix_message),
    ("fix_session", fix_session),
    ("fix_stream", fix_stream),
    ("framed", framed),
    ("gateway", gateway),
    ("iextp", iextp),
    ("integrated", integrated),
    ("itch50", itch50),
    ("journal", journal),
    ("live_feed", live_feed),
    ("memoir13", memoir13),
    ("memoirudp", memoirudp),
    ("mitch", mitch),
    ("mitchunit", mitchunit),
    ("moldudp64", moldudp64),
    ("multicast", multicast),
    ("native", native),
    ("native_session", native_session),
    ("net", net),
    ("order_exchange", order_exchange),
    ("ouch50", ouch50),
    ("pillarpacket", pillarpacket),
    ("pitch", pitch),
    ("recovery", recovery),
    ("refresh", refresh),
    ("request_server", request_server),
    ("requester", requester),
    ("retransmission", retransmission),
    ("rewrite", rewrite),
    ("schema", schema),
    ("snapshot", snapshot),
    ("snapshot_client", snapshot_client),
    ("soup_session", soup_session),
    ("soupbintcp", soupbintcp),
    ("stream_request", stream_request),
    ("tcp", tcp),
    ("tops16", tops16),
    ("uqdf", uqdf),
];

/// The folder of `fuzz/seeds` that holds the seeds of a target: some share theirs.
pub fn seeds_of(target: &str) -> &str {
    match target {
        "feed_capture" => "capture",
        "feed_file" => "framed",
        other => other,
    }
}
