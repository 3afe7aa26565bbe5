//! Reasons why a snapshot could not be fetched.

use std::fmt;

/// Why a snapshot could not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotFailure {
    /// The server rejected the login.
    LoginRejected,
    /// The server does not have this spin, or is already sending one.
    SpinRefused,
    /// The server refused the request for a snapshot.
    Refused,
    /// The server's session is not the requested one.
    OtherSession,
    /// The session ended before the snapshot did.
    Ended,
    /// The end contradicts the beginning: another number, or another count of orders or messages.
    Torn,
    /// The server refused a refresh, or its directory.
    RefreshRefused,
    /// Packets of a refresh did not arrive despite repeated requests, or there were too many.
    RefreshIncomplete,
    /// The server violated the protocol.
    Malformed,
}

impl fmt::Display for SnapshotFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoginRejected => "the login was rejected",
            Self::SpinRefused => "the spin was refused",
            Self::Refused => "the snapshot was refused",
            Self::OtherSession => "the server's session is not the requested one",
            Self::Ended => "the session ended before the snapshot did",
            Self::Torn => "the end of the snapshot does not fit its beginning",
            Self::RefreshRefused => "the refresh was refused",
            Self::RefreshIncomplete => "the refresh did not come whole",
            Self::Malformed => "the server does not speak the protocol of its snapshots",
        })
    }
}

impl std::error::Error for SnapshotFailure {}
