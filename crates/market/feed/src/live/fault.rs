//! The reasons why a requested snapshot was not applied.

use std::fmt;

/// Why a requested snapshot was not applied. The numbers are stable, because the journal records them.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum SnapshotFault {
    /// The journal does not record the reason.
    Unknown = 0,
    /// The connection to the server could not be made, or it broke.
    Unreachable = 1,
    /// The server rejected the login.
    LoginRejected = 2,
    /// The server refused the request.
    Refused = 3,
    /// The server's session is not the session of the lines.
    OtherSession = 4,
    /// The server ended the connection or the session before the snapshot's end.
    Ended = 5,
    /// The snapshot's end does not match its beginning.
    Torn = 6,
    /// Packets of a refresh did not arrive, despite repeated requests.
    Incomplete = 7,
    /// The server does not speak the protocol.
    Malformed = 8,
    /// The snapshot exceeds the limit for messages or bytes.
    TooLarge = 9,
    /// The server was silent for too long.
    Silent = 10,
    /// The snapshot was not complete in time.
    TimedOut = 11,
    /// The lines did not reach the end number of the snapshot in time.
    Unconfirmed = 12,
    /// The snapshot does not show the effect of a message below its end number.
    Behind = 13,
    /// A message from the end number on contradicts the snapshot.
    Contradicted = 14,
    /// A message of the snapshot cannot be read.
    Unreadable = 15,
    /// The snapshot ends before the first message that the lines delivered since the request.
    Stale = 16,
    /// More packets arrived during the request than a channel may keep.
    TooManyPackets = 17,
    /// Inputs of the plant were lost during the request.
    InputsLost = 18,
    /// The plant stopped, or the channel requested a newer snapshot.
    Abandoned = 19,
}

impl SnapshotFault {
    /// Every fault, ordered by number.
    pub const ALL: [Self; 20] = [
        Self::Unknown,
        Self::Unreachable,
        Self::LoginRejected,
        Self::Refused,
        Self::OtherSession,
        Self::Ended,
        Self::Torn,
        Self::Incomplete,
        Self::Malformed,
        Self::TooLarge,
        Self::Silent,
        Self::TimedOut,
        Self::Unconfirmed,
        Self::Behind,
        Self::Contradicted,
        Self::Unreadable,
        Self::Stale,
        Self::TooManyPackets,
        Self::InputsLost,
        Self::Abandoned,
    ];

    /// Returns a short name for metrics, stable across builds.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Unreachable => "unreachable",
            Self::LoginRejected => "login_rejected",
            Self::Refused => "refused",
            Self::OtherSession => "other_session",
            Self::Ended => "ended",
            Self::Torn => "torn",
            Self::Incomplete => "incomplete",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Silent => "silent",
            Self::TimedOut => "timed_out",
            Self::Unconfirmed => "unconfirmed",
            Self::Behind => "behind",
            Self::Contradicted => "contradicted",
            Self::Unreadable => "unreadable",
            Self::Stale => "stale",
            Self::TooManyPackets => "too_many_packets",
            Self::InputsLost => "inputs_lost",
            Self::Abandoned => "abandoned",
        }
    }

    /// Returns the fault with a number; [`SnapshotFault::Unknown`] if there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the reason is not known",
            Self::Unreachable => "the server cannot be reached",
            Self::LoginRejected => "the server rejected the login",
            Self::Refused => "the server refused the request",
            Self::OtherSession => "the server's session is not the session of the lines",
            Self::Ended => "the server ended the connection before the end of the snapshot",
            Self::Torn => "the end of the snapshot does not fit its beginning",
            Self::Incomplete => "packets of the refresh are missing",
            Self::Malformed => "the server does not speak the protocol of its snapshots",
            Self::TooLarge => "the snapshot exceeds the limit for messages or bytes",
            Self::Silent => "the server is silent",
            Self::TimedOut => "the snapshot was not complete in time",
            Self::Unconfirmed => "the lines did not reach the end number of the snapshot in time",
            Self::Behind => "the snapshot does not match the messages below its end number",
            Self::Contradicted => "the snapshot contradicts messages that follow it",
            Self::Unreadable => "the snapshot contains a message that cannot be read",
            Self::Stale => "the snapshot ends before the messages kept since the request",
            Self::TooManyPackets => "more packets came during the request than may be kept",
            Self::InputsLost => "inputs of the plant were lost during the request",
            Self::Abandoned => "the request was abandoned",
        })
    }
}

impl std::error::Error for SnapshotFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_number() {
        for (number, fault) in SnapshotFault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, number);
            assert_eq!(SnapshotFault::from_number(number as u8), fault);
        }
        assert_eq!(SnapshotFault::from_number(255), SnapshotFault::Unknown);
    }
}
