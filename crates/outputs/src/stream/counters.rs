//! What the stream counts of itself.

use tapeworks_runtime::counters;

counters! {
    StreamCounters:
    /// Stream clients that came
    stream_clients,
    /// Stream clients refused as there were too many
    stream_refused,
    /// Requests for the stream refused for their parameters
    stream_refused_parameters,
    /// Stream clients dropped as they took nothing
    stream_stuck,
    /// Stream clients dropped for what they said
    stream_garbled,
    /// Records that stream clients' queues took
    stream_records,
    /// Times that a stream client fell behind its queue
    stream_lagged,
    /// NBBO changes that gave way to later ones for stream clients that had fallen behind
    stream_conflated,
    /// Trades that stream clients were not told as they had fallen behind
    stream_dropped_trades,
    /// Gaps that stream clients were not told as they had fallen behind
    stream_dropped_gaps,
}
