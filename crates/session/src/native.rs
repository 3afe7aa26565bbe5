//! Both ends of a native session of Millennium Exchange: orders over two TCP connections, without sockets and clocks.
//!
//! Source: the session rules of the London Stock Exchange's *MIT203 Native Trading Gateway* as commonly documented. The
//! real-time channel carries orders, and all reports live; the recovery channel carries the missed reports of the
//! day. A client logs on to the real-time channel first, then to the recovery channel as the same user. Clients' messages have
//! no numbers. The venue's reports are numbered per App ID (the partition) and user, from 1 each day, through every reconnect.
//!
//! [`Client`] is a user's end, which a gateway runs; [`Server`] is a venue's end, which a simulated exchange runs. Rules that the
//! source does not settle are settings, with the default stated there: heartbeats after 3 s and five missed
//! ([`Variant`](tapeworks_wire::millennium::variant::Variant)), the second logon of a user is rejected, a user over the throttle rate is
//! disconnected, and the reject codes ([`reject_code`]).
//!
//! Cost: a message is cut from the stream and handed on where it lies, and a sent message is copied once. Nothing allocates on
//! a client after start-up.

mod client;
mod link;
mod server;
mod tracker;

use std::fmt;

pub use client::{Client, ClientCounters, ClientSettings, Event, SendError, Sent, SettingsError};
pub use server::{ConnectionId, Input, Server, ServerCounters, ServerSettings, User, UserId};
pub use tracker::{RecoverySettings, TrackerCounters};

/// The numbers in Reject Code of the session's own rejects. The venue's list must be checked: these are the simulated exchange's.
/// 0 is success.
pub mod reject_code {
    /// The logon is accepted.
    pub const NONE: i32 = 0;
    /// Not this user or password.
    pub const NOT_AUTHORISED: i32 = 1;
    /// The password has expired or is the first one: log on with a new one.
    pub const PASSWORD_EXPIRED: i32 = 2;
    /// The user is logged on to this channel already.
    pub const ALREADY_LOGGED_ON: i32 = 3;
    /// The first message is not a logon.
    pub const NOT_LOGGED_ON: i32 = 4;
    /// The message cannot be read, or is none of a client's.
    pub const MALFORMED: i32 = 5;
    /// More messages than the throttle rate allows.
    pub const THROTTLED: i32 = 6;
    /// The message belongs to the other channel.
    pub const WRONG_CHANNEL: i32 = 7;
    /// The user is not logged on to the real-time channel.
    pub const REAL_TIME_FIRST: i32 = 8;
    /// A recovery is in progress on this connection.
    pub const RECOVERY_IN_PROGRESS: i32 = 9;
    /// The new password is none that may be used.
    pub const WRONG_NEW_PASSWORD: i32 = 10;
}

/// One of the two connections of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Orders, and reports live.
    RealTime,
    /// Missed reports.
    Recovery,
}

impl Channel {
    /// Both, in the order of logon.
    pub const ALL: [Self; 2] = [Self::RealTime, Self::Recovery];

    const fn index(self) -> usize {
        match self {
            Self::RealTime => 0,
            Self::Recovery => 1,
        }
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// By logout.
    LoggedOut,
    /// The logon was rejected with this code.
    Rejected(i32),
    /// The other side sent what cannot be read, or what does not belong here.
    Malformed,
    /// The other side sent nothing, or read nothing, for too long.
    TimedOut,
    /// No logon, or no answer to it, in time.
    NoLogon,
    /// No answer to a request for missed reports in time.
    NoAnswer,
    /// The client sent more than its throttle rate.
    OverThrottle,
    /// The client reads too slowly: more waits for it than is kept.
    TooSlow,
    /// The other side closed the connection.
    Closed,
    /// The same user logged on again.
    Displaced,
    /// The real-time channel ended, and with it the recovery channel.
    RealTimeEnded,
    /// The caller ended it.
    Dropped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedOut => f.write_str("logged out"),
            Self::Rejected(code) => write!(f, "the logon was rejected with code {code}"),
            Self::Malformed => f.write_str("the other side sent an invalid message"),
            Self::TimedOut => f.write_str("the other side was silent for too long"),
            Self::NoLogon => f.write_str("no logon in time"),
            Self::NoAnswer => f.write_str("no answer to a request for missed reports in time"),
            Self::OverThrottle => f.write_str("more messages than the throttle rate allows"),
            Self::TooSlow => f.write_str("the other side reads too slowly"),
            Self::Closed => f.write_str("the other side closed the connection"),
            Self::Displaced => f.write_str("the user logged on again"),
            Self::RealTimeEnded => f.write_str("the real-time channel ended"),
            Self::Dropped => f.write_str("the connection was dropped"),
        }
    }
}
