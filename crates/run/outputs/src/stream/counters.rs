//! The stream's counters.

use tapeworks_runtime::counters;

counters! {
    StreamCounters:
    /// Stream clients that connected
    stream_clients,
    /// Stream clients refused because there were too many
    stream_refused,
    /// Requests for the stream refused for their parameters
    stream_refused_parameters,
    /// Stream clients dropped because they took nothing
    stream_stuck,
    /// Stream clients dropped because of a message that no client sends
    stream_garbled,
    /// Records that stream clients' queues took
    stream_records,
    /// Times that a stream client fell behind its queue
    stream_lagged,
    /// NBBO changes replaced by later ones for stream clients that had fallen behind
    stream_conflated,
    /// Trades not sent to stream clients that had fallen behind
    stream_dropped_trades,
    /// Gaps not sent to stream clients that had fallen behind
    stream_dropped_gaps,
}
