//! Requests for missed messages over TCP: Cboe's Gap Request Proxy, NYSE's request server, MITCH's replay channel and MEMX's gap fill.
//!
//! A client requests messages over a connection and receives a response with a status. Cboe and NYSE send the messages
//! themselves as datagrams to a separate address, which neither end here sees. MITCH and MEMX send them over the connection.
//!
//! | | Cboe GRP | NYSE request server | MITCH replay channel | MEMX gap fill |
//! | --- | --- | --- | --- | --- |
//! | packets | sequenced units, unit 0, number 0 | Pillar packets | units without a group, number 0 | messages after type and length |
//! | login | user and password | none; each request names its source | user and password | a token of user and password |
//! | heartbeats | both sides, after 1 s without a packet | server each minute; client answers within 5 s | as Cboe | as Cboe |
//! | silence | 5 s | 125 s: two server heartbeats and the time for one answer | 5 s | 5 s |
//! | messages per request | 100 | 1,000 | 1,000 | 1,000 |
//! | requests | 320/s, 1,500/min, 100,000/day | 5,000/day | 100/s | 100/s |
//! | delivery | to a group | to a group | units with their own numbers | between the begin and the end of the replay |
//!
//! The layouts and statuses of Cboe's and MITCH's messages agree with two other implementations, MEMX's with the public
//! definitions of its order entry. Times and limits are those of public documents as others quote them; none has been
//! verified on real packets. Some are ours: NYSE's limit of 100 requests a second and its silence limit, and all limits
//! and times of MITCH and MEMX.
//!
//! [`Requester`] is the client's end of one channel, [`RequestServer`] the server's end of one connection. Bytes and
//! times go in, bytes come out.
//!
//! Cost: a request is 17 bytes (Cboe) or 40 bytes (NYSE), a response 18 or 45. Both ends keep bounded queues and one incomplete packet.

mod client;
mod link;
mod replay;
mod server;

pub use crate::dialect::connection::LoginLimits;
pub use crate::dialect::requests::{DayTime, LoginFields, RequestLogin, RequestStatus, ServerLimits};
pub use crate::protocols::RequestProtocol;
pub use client::{Requester, RequesterCounters, RequesterEnd};
pub use server::{RequestServer, RequestServerEnd};

impl RequestProtocol {
    /// Returns whether the messages are sent to a group. Otherwise they are sent over the connection.
    #[must_use]
    pub const fn answers_to_group(self) -> bool {
        self.rules().answers_to_group
    }

    /// Returns what the venue's login consists of.
    #[must_use]
    pub const fn login_limits(self) -> LoginLimits {
        self.rules().connection.limits
    }

    /// Returns the most messages per request.
    #[must_use]
    pub const fn most_messages(self) -> u16 {
        self.rules().limits.messages
    }

    /// Returns the most requests in any second.
    #[must_use]
    pub const fn per_second(self) -> u32 {
        self.rules().limits.per_second
    }
}

#[cfg(test)]
mod tests;
