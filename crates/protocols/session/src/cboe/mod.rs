//! Cboe: sequenced units, the Gap Request Proxy for missed messages, and the Spin server for snapshots.
//!
//! | | Gap Request Proxy | Spin server |
//! | --- | --- | --- |
//! | packets | sequenced units, unit 0, number 0 | the same |
//! | login | sub-id, user and password | the same |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 100 messages, answered to a group; 320/s, 1,500/min, 100,000/day | the spin that is offered each second |
//!
//! The layouts and statuses agree with two other implementations. Times and limits are those of public documents as others
//! quote them; none has been verified on real packets.

mod gap_proxy;
mod spin;

pub(crate) use gap_proxy::REQUESTS;
#[cfg(test)]
pub(crate) use gap_proxy::STATUSES;
pub(crate) use spin::SNAPSHOTS;

use tapeworks_wire::cboe::grp::{Login, LoginFields, LoginResponse, LoginResponseFields, LoginStatus};
use tapeworks_wire::cboe::unit::{SCHEMA, SequencedUnit};
use tapeworks_wire::schema::{Schema, Structure};

use crate::dialect::connection::{Connection, LoginLimits, padded};
use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{SessionId, TransportKind};
use crate::units::{Unit, Units, tcp};

/// Cboe's sequenced unit header.
pub type CboeUnit = Unit<OfCboe>;

/// Cboe's unit header.
#[derive(Clone, Copy, Debug)]
pub struct OfCboe;

impl Units for OfCboe {
    const KIND: TransportKind = TransportKind::CboeUnit;
    const REQUESTS: RequestProtocol = RequestProtocol::Grp;
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Spin;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER: &'static Structure = &SequencedUnit::SCHEMA;
    const SESSION: fn(u8) -> SessionId = SessionId::CboeUnit;
}

/// The longest packet is far longer than any message of these servers, which have at most 22 bytes.
const CONNECTION: Connection =
    tcp::connection(512, LoginLimits { sub_id: 4, user: 4, password: 10, ..LoginLimits::NONE }, login);

fn login([sub_id, user, password]: [&[u8]; 3], _session: Option<&SessionId>) -> Vec<u8> {
    let fields = LoginFields {
        length: Login::LENGTH as u8,
        session_sub_id: padded(sub_id),
        username: padded(user),
        filler: padded(b""),
        password: padded(password),
    };
    tcp::packet(&fields.encode())
}

/// Builds the answer to a login.
fn answer(is_known: bool) -> [u8; LoginResponse::LENGTH] {
    let status = if is_known { LoginStatus::Accepted } else { LoginStatus::NotAuthorised };
    LoginResponseFields { length: LoginResponse::LENGTH as u8, status }.encode()
}
