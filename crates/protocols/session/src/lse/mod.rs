//! London's MITCH: units with a market data group, the replay channel for missed messages, and the recovery channel for snapshots.
//!
//! | | replay channel | recovery channel |
//! | --- | --- | --- |
//! | packets | units without a group, number 0; replayed units have their own | units without a group, number 0 |
//! | login | user and password | the same |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 1,000 messages, answered over the connection; 100/s | a snapshot of the whole group |
//!
//! The layouts and statuses agree with two other implementations. The limits and times are ours.

mod recovery;
mod replay;

pub(crate) use recovery::SNAPSHOTS;
pub(crate) use replay::REQUESTS;
#[cfg(test)]
pub(crate) use replay::STATUSES;

use tapeworks_wire::millennium::recovery::{
    LoginRequest, LoginRequestFields, LoginResponse, LoginResponseFields, LoginStatus,
};
use tapeworks_wire::millennium::unit::{SCHEMA, UnitHeader};
use tapeworks_wire::schema::{Schema, Structure};

use crate::dialect::connection::{Connection, LoginLimits, padded};
use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{SessionId, TransportKind};
use crate::units::{Unit, Units, tcp};

/// MITCH's unit header.
pub type MitchUnit = Unit<OfMitch>;

/// MITCH's unit header.
#[derive(Clone, Copy, Debug)]
pub struct OfMitch;

impl Units for OfMitch {
    const KIND: TransportKind = TransportKind::MitchUnit;
    const REQUESTS: RequestProtocol = RequestProtocol::Mitch;
    const SNAPSHOTS: SnapshotProtocol = SnapshotProtocol::Mitch;
    const SCHEMA: &'static Schema = &SCHEMA;
    const HEADER: &'static Structure = &UnitHeader::SCHEMA;
    const SESSION: fn(u8) -> SessionId = SessionId::MitchUnit;
}

/// The longest packet includes requested messages.
const CONNECTION: Connection =
    tcp::connection(2_048, LoginLimits { user: 6, password: 10, ..LoginLimits::NONE }, login);

fn login([_, user, password]: [&[u8]; 3], _session: Option<&SessionId>) -> Vec<u8> {
    let length = LoginRequest::LENGTH as u8;
    let fields = LoginRequestFields { length, username: padded(user), password: padded(password) };
    tcp::packet(&fields.encode())
}

/// Builds the answer to a login.
fn answer(is_known: bool) -> [u8; LoginResponse::LENGTH] {
    let status = if is_known { LoginStatus::Accepted } else { LoginStatus::InvalidPassword };
    LoginResponseFields { length: LoginResponse::LENGTH as u8, status }.encode()
}
