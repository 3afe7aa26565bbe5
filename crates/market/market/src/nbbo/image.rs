//! The NBBO as plain values: see [`image`](crate::image).

use super::{Contribution, Nbbo, NbboCounts};
use crate::luld::Luld;
use crate::round_lots::TakenLot;
use crate::venue::Publisher;

/// The NBBO of every instrument as plain values: see [`NbboStage::image`](crate::NbboStage::image).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NbboImage {
    pub(crate) venues: Vec<Publisher>,
    pub(crate) contributions: Vec<Contribution>,
    pub(crate) best: Vec<Nbbo>,
    pub(crate) stride: usize,
    pub(crate) ignored: u64,
    pub(crate) counts: NbboCounts,
    pub(crate) all_stale: u32,
    pub(crate) own: Vec<Contribution>,
    pub(crate) lots: Vec<TakenLot>,
    pub(crate) luld: Vec<Luld>,
    pub(crate) self_help: Vec<Publisher>,
}
