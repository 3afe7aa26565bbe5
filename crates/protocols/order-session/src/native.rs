//! Both ends of a native session of Millennium Exchange: orders over two TCP connections, without sockets or clocks.
//!
//! Source: the session rules of the London Stock Exchange's *MIT203 Native Trading Gateway* as commonly documented. The
//! real-time channel carries orders and live reports; the recovery channel carries the reports missed during the day. A
//! client logs on to the real-time channel first, then to the recovery channel as the same user. Client messages have
//! no sequence numbers. The venue numbers its reports per App ID (the partition) and user, from 1 each day, across
//! reconnects.
//!
//! A gateway runs [`Client`], the user's end; a simulated exchange runs [`Server`], the venue's end. Rules that the
//! source leaves open are settings with documented defaults: a heartbeat interval of 3 s and five missed heartbeats
//! ([`Variant`](tapeworks_wire::millennium::variant::Variant)), a user's second logon is rejected, a user over the
//! throttle rate is disconnected, and the reject codes ([`reject_code`]).
//!
//! Cost: a received message is passed on in place, and a sent message is copied once. A client allocates nothing after startup.

mod client;
mod link;
mod server;
mod tracker;

use std::fmt;

pub use client::{Client, ClientCounters, ClientSettings, Event, SendError, Sent, SettingsError};
pub use server::{ConnectionId, Input, Server, ServerCounters, ServerSettings, User, UserId};
pub use tracker::{RecoverySettings, TrackerCounters};

/// Reject codes of the session's own rejects.
///
/// These are the simulated exchange's numbers; check them against the venue's list. 0 is success.
pub mod reject_code {
    /// The logon is accepted.
    pub const NONE: i32 = 0;
    /// Wrong user or password.
    pub const NOT_AUTHORISED: i32 = 1;
    /// The password has expired or is the initial one: log on with a new one.
    pub const PASSWORD_EXPIRED: i32 = 2;
    /// The user is logged on to this channel already.
    pub const ALREADY_LOGGED_ON: i32 = 3;
    /// The first message is not a logon.
    pub const NOT_LOGGED_ON: i32 = 4;
    /// The message cannot be decoded, or clients may not send it.
    pub const MALFORMED: i32 = 5;
    /// More messages than the throttle rate allows.
    pub const THROTTLED: i32 = 6;
    /// The message belongs to the other channel.
    pub const WRONG_CHANNEL: i32 = 7;
    /// The user is not logged on to the real-time channel.
    pub const REAL_TIME_FIRST: i32 = 8;
    /// A recovery is in progress on this connection.
    pub const RECOVERY_IN_PROGRESS: i32 = 9;
    /// The new password is not allowed.
    pub const WRONG_NEW_PASSWORD: i32 = 10;
}

/// One of the two connections of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Orders and live reports.
    RealTime,
    /// Missed reports.
    Recovery,
}

impl Channel {
    /// Both channels, in logon order.
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
    /// The session logged out.
    LoggedOut,
    /// The logon was rejected with this code.
    Rejected(i32),
    /// The other side sent an invalid message, or one that is not allowed here.
    Malformed,
    /// The other side sent nothing, or read nothing, for too long.
    TimedOut,
    /// No logon, or no answer to it, arrived in time.
    NoLogon,
    /// No answer to a request for missed reports arrived in time.
    NoAnswer,
    /// The client exceeded its throttle rate.
    OverThrottle,
    /// The client reads too slowly: more output is waiting than the limit.
    TooSlow,
    /// The other side closed the connection.
    Closed,
    /// The same user logged on again.
    Displaced,
    /// The real-time channel ended, which ends the recovery channel.
    RealTimeEnded,
    /// The caller closed it.
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
