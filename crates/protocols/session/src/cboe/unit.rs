//! Cboe's sequenced unit header as a [`Transport`](crate::Transport).

use tapeworks_wire::cboe::unit::{SCHEMA, SequencedUnit};
use tapeworks_wire::schema::{Schema, Structure};

use crate::protocols::{RequestProtocol, SnapshotProtocol};
use crate::transport::{SessionId, TransportKind};
use crate::units::{Unit, Units};

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
