//! Counters of the page's server.

use tapeworks_runtime::counters;

counters! {
    Counters:
    /// Connections taken
    connections,
    /// Connections that found no place and were taken on the reserve
    connections_refused,
    /// Connections that the system could not give
    accept_errors,
    /// Connections closed as they did not agree on TLS
    tls_refused,
    /// Requests answered
    requests,
    /// Requests refused for their Host header
    refused_host,
    /// Requests refused for their Origin header
    refused_origin,
    /// Requests refused for want of the token
    refused_token,
    /// Requests refused as too many wrong tokens came from their address
    refused_guesses,
    /// Connections of the reserve closed as they said nothing in time, or gave way to newer ones
    connections_evicted,
    /// Pages that came to look
    viewers,
    /// Pages refused as there were too many
    viewers_refused,
    /// Pages dropped as they took nothing
    viewers_stuck,
    /// Pages dropped for what they said
    viewers_garbled,
}
