//! The table of the bugs.

use std::fmt;

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    /// The file that it is planted in.
    pub file: &'static str,
    /// What is wrong then.
    pub wrong: &'static str,
    /// The simulated market that comes to it.
    pub market: Market,
}

/// What a simulation is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Market {
    /// A plant, its venues and its clients.
    Data,
    /// An order gateway, its exchange and its clients.
    Orders,
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "market data",
            Self::Orders => "orders",
        })
    }
}

/// One that a plant comes to.
const fn bug(name: &'static str, file: &'static str, wrong: &'static str) -> Bug {
    Bug { name, file, wrong, market: Market::Data }
}

/// One that a gateway comes to.
const fn order_bug(name: &'static str, file: &'static str, wrong: &'static str) -> Bug {
    Bug { name, file, wrong, market: Market::Orders }
}

/// All bugs.
pub const BUGS: &[Bug] = &[
    bug(
        "partial-answer-ends-recovery",
        "crates/market/follow/src/arbitration/gap.rs",
        "an answer with a part of the requested messages ends the recovery; the rest is given up",
    ),
    bug(
        "recovered-counted-twice",
        "crates/market/follow/src/arbitration.rs",
        "a message that was retransmitted is counted twice",
    ),
    bug(
        "dead-line-unnoticed",
        "crates/market/follow/src/arbitration.rs",
        "a line that brings nothing is never called silent",
    ),
    bug(
        "gap-filled-silently",
        "crates/market/feed/src/feed.rs",
        "messages that are given up are not named as missing",
    ),
    bug(
        "stale-cleared-early",
        "crates/market/feed/src/live.rs",
        "books are called good again while given-up messages are missing",
    ),
    bug(
        "late-messages-ignored",
        "crates/market/feed/src/live.rs",
        "books whose messages came after they were given up are called good",
    ),
    bug(
        "session-follows-at-once",
        "crates/market/follow/src/arbitration/session.rs",
        "another session takes over after the reorder window, not after the time of silence",
    ),
    bug(
        "unsound-behind-a-gap",
        "crates/market/follow/src/arbitration.rs",
        "a damaged packet that does not continue the sequence is followed",
    ),
    bug(
        "snapshot-joint-off-by-one",
        "crates/market/feed/src/live/snapshot.rs",
        "the first message behind a snapshot is not applied to its books",
    ),
    bug(
        "snapshot-not-asked-again",
        "crates/market/feed/src/live/snapshot.rs",
        "a snapshot that failed is not requested again",
    ),
    bug(
        "snapshot-end-unconfirmed",
        "crates/market/feed/src/live/snapshot.rs",
        "a snapshot whose end number no line has reached is applied",
    ),
    bug(
        "snapshot-not-compared",
        "crates/market/feed/src/live/snapshot.rs",
        "a snapshot that contradicts the packets around it is applied",
    ),
    bug(
        "unreadable-answer-recovered",
        "crates/market/follow/src/arbitration.rs",
        "an answer whose messages cannot be read fills a gap",
    ),
    bug(
        "locate-renamed-by-any-message",
        "crates/market/feed/src/locates.rs",
        "a message that names another symbol than its locate stands for is believed",
    ),
    bug(
        "over-execution-ignored",
        "crates/market/market/src/book.rs",
        "an order of which more is executed than it has leaves its book good",
    ),
    bug("gap-leaves-books-good", "crates/market/market/src/book.rs", "a gap does not make the books stale"),
    bug(
        "stale-marks-not-saved",
        "crates/market/market/src/book.rs",
        "stale books are good after a start from a checkpoint",
    ),
    bug(
        "snapshot-without-its-end",
        "crates/run/plant/src/snapshots.rs",
        "the last piece of a snapshot is not handed on",
    ),
    bug(
        "checkpoint-within-a-packet",
        "crates/run/plant/src/ingest.rs",
        "a checkpoint is taken before the books have the events of the last packets",
    ),
    bug(
        "books-copied-before-their-events",
        "crates/run/plant/src/books.rs",
        "the books' thread hands over its books without the events of its last batch",
    ),
    bug(
        "checkpoint-with-a-later-number",
        "crates/run/plant/src/journal.rs",
        "a checkpoint gets the number of a record behind later inputs, which a start then leaves out",
    ),
    bug(
        "always-does-not-sync",
        "crates/run/plant/src/journal.rs",
        "the policy `always` writes, and does not sync",
    ),
    bug(
        "event-before-its-input",
        "crates/run/plant/src/journal.rs",
        "events pass to clients before their inputs are in the journal",
    ),
    bug(
        "given-up-not-saved",
        "crates/market/follow/src/arbitration.rs",
        "a checkpoint forgets which messages were given up",
    ),
    bug(
        "attempts-not-saved",
        "crates/market/feed/src/live.rs",
        "a start from a checkpoint counts the requests of snapshots from the beginning",
    ),
    bug(
        "loss-not-noticed",
        "crates/market/engine/src/journal_history.rs",
        "a replay goes on behind inputs that the journal has lost as if none were missing",
    ),
    bug(
        "replay-off-by-one",
        "crates/market/engine/src/replay.rs",
        "a start from a checkpoint leaves out the first record behind it",
    ),
    bug(
        "checkpoint-not-checked",
        "crates/market/engine/src/checkpoint.rs",
        "a checkpoint is used although its CRC is wrong",
    ),
    bug(
        "numbers-used-again",
        "crates/market/journal/src/writer.rs",
        "records that a checkpoint includes and the journal has lost give their numbers to others",
    ),
    bug(
        "partial-shared",
        "crates/market/journal/src/writer.rs",
        "two tasks make the next segment in the same file",
    ),
    bug(
        "missing-sync-before-rename",
        "crates/market/journal/src/writer.rs",
        "the next segment gets its name before its predecessor is synced",
    ),
    bug("name-not-synced", "crates/market/journal/src/io_task.rs", "the name of a new segment is not synced"),
    bug(
        "record-not-checked",
        "crates/market/journal/src/format.rs",
        "a record is read although its CRC is wrong",
    ),
    bug("folder-not-locked", "crates/market/journal/src/writer.rs", "two processes write one journal"),
    bug(
        "replay-repeats-a-record",
        "crates/run/outputs/src/clients/replay.rs",
        "a client's replay goes on to the event from which the present begins",
    ),
    bug(
        "resume-off-by-one",
        "crates/run/outputs/src/clients/distributor/subscribed.rs",
        "the present begins one event behind the end of a client's replay",
    ),
    bug(
        "replay-without-its-end",
        "crates/run/outputs/src/clients/replay.rs",
        "the last piece of a client's replay is not sent",
    ),
    bug(
        "kept-records-dropped",
        "crates/run/outputs/src/clients/distributor/client.rs",
        "records that wait for the end of a client's replay are dropped at the limit, and the session goes on",
    ),
    bug(
        "cut-within-a-record",
        "crates/run/outputs/src/clients/outbox.rs",
        "a client that is too slow loses the end of a record that it has begun to read",
    ),
    bug(
        "slow-client-skips-silently",
        "crates/run/outputs/src/clients/distributor/client.rs",
        "a client that is too slow misses records, and its session goes on",
    ),
    bug(
        "wake-up-lost",
        "crates/run/outputs/src/clients/distributor/client.rs",
        "after a socket has taken a part, the server waits for a readiness that was reported before",
    ),
    bug(
        "conflation-drops-a-trade",
        "crates/run/outputs/src/clients/distributor/client.rs",
        "a client that conflates quotes misses a trade",
    ),
    bug(
        "conflation-keeps-the-first",
        "crates/run/outputs/src/clients/distributor/lag.rs",
        "a client that conflates quotes gets the first of those that wait, not the last",
    ),
    bug(
        "skip-not-counted",
        "crates/run/outputs/src/clients/distributor/client.rs",
        "the first record that is left out for a slow client is not counted",
    ),
    bug(
        "start-is-exclusive",
        "crates/run/outputs/src/clients/replay.rs",
        "a replay begins behind the records of its start, not with them",
    ),
    bug(
        "replay-repeats-behind-a-chunk",
        "crates/run/outputs/src/clients/replay.rs",
        "the first record of a piece of a client's replay is sent twice",
    ),
    bug(
        "list-forgets-a-new-symbol",
        "crates/run/outputs/src/clients/distributor/interest.rs",
        "a symbol on a client's list that appears later is not sent",
    ),
    bug(
        "snapshot-one-event-late",
        "crates/run/outputs/src/clients/distributor/requests.rs",
        "the records behind a client's snapshot begin one event too late",
    ),
    bug(
        "receiver-gives-up-silently",
        "crates/run/outputs/src/multicast/receiver.rs",
        "a receiver of the multicast does not count messages that it gives up",
    ),
    bug(
        "multicast-answer-one-short",
        "crates/run/outputs/src/multicast/server.rs",
        "an answer with messages of the multicast has one message too few",
    ),
    order_bug(
        "turn-not-synced",
        "crates/orders/gateway/src/ledger.rs",
        "with the policy `always` a turn is sent before it is synced",
    ),
    order_bug(
        "unsent-request-forgotten",
        "crates/orders/gateway/src/core.rs",
        "a request that the venue's session does not take is not answered",
    ),
    order_bug(
        "outgoing-number-one-short",
        "crates/orders/gateway/src/store.rs",
        "a start gives the number of the last message to a client to the next one too",
    ),
    order_bug(
        "unsent-not-restored",
        "crates/orders/gateway/src/restore.rs",
        "a start takes requests that were never sent for sent ones",
    ),
    order_bug(
        "sent-though-not-written",
        "crates/orders/gateway/src/host.rs",
        "what the disk does not take is sent all the same",
    ),
    order_bug(
        "reports-filled-not-resent",
        "crates/protocols/order-session/src/fix/link.rs",
        "a resend has a gap fill in place of reports",
    ),
    order_bug(
        "duplicate-taken-again",
        "crates/protocols/order-session/src/fix/session/receiving.rs",
        "a message that may be a duplicate is taken again",
    ),
    order_bug(
        "heartbeat-not-sent",
        "crates/protocols/order-session/src/native/link.rs",
        "a session with an exchange that has nothing to send sends no heartbeats",
    ),
    order_bug(
        "recovery-not-asked-again",
        "crates/protocols/order-session/src/native/tracker.rs",
        "a request for missed reports is not made again after its connection broke",
    ),
    order_bug(
        "recovery-one-report-short",
        "crates/protocols/order-session/src/native/server.rs",
        "an exchange's answer with missed reports lacks the last one",
    ),
    order_bug(
        "settled-before-recovered",
        "crates/orders/gateway/src/core.rs",
        "orders in doubt are settled before the missed reports are in",
    ),
    order_bug(
        "gap-not-requested",
        "crates/protocols/order-session/src/native/tracker.rs",
        "reports that an exchange has left out are not requested",
    ),
    order_bug(
        "account-not-queried",
        "crates/orders/gateway/src/venue.rs",
        "requests in doubt at an OUCH venue are settled when the reports of the login are in, without an Account Query",
    ),
    order_bug(
        "doubts-not-probed",
        "crates/orders/translate/src/translator.rs",
        "requests in doubt at a native venue are rejected when the missed reports are in, without a probe behind them",
    ),
    order_bug(
        "interval-not-synced",
        "crates/orders/gateway/src/ledger.rs",
        "a store that is to be synced by interval is never synced",
    ),
    order_bug(
        "exchange-answers-unsynced",
        "crates/simulated/venues/src/orders/durable.rs",
        "an exchange answers before its inputs are synced",
    ),
];
