//! MITCH's unit header as a [`Transport`](crate::Transport).

use tapeworks_wire::millennium::unit::{SCHEMA, UnitHeader};
use tapeworks_wire::schema::{Schema, Structure};

use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{SessionId, TransportKind};
use crate::units::{Unit, Units};

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
