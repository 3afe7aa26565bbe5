//! The dialects by kind of venue: the one place that names them all.

/// Runs an expression with the type of the dialect that a [`VenueKind`] speaks.
macro_rules! for_dialect {
    ($kind:expr, $dialect:ident => $body:expr) => {
        match $kind {
            $crate::VenueKind::Nasdaq | $crate::VenueKind::Bx | $crate::VenueKind::Psx => {
                type $dialect = $crate::nasdaq::Itch;
                $body
            }
            $crate::VenueKind::IexTops | $crate::VenueKind::IexDeep => {
                type $dialect = $crate::iex::Iex;
                $body
            }
            $crate::VenueKind::IexDeepPlus => {
                type $dialect = $crate::iex::DeepPlus;
                $body
            }
            $crate::VenueKind::Bzx
            | $crate::VenueKind::Byx
            | $crate::VenueKind::Edga
            | $crate::VenueKind::Edgx => {
                type $dialect = $crate::pitch::Pitch;
                $body
            }
            $crate::VenueKind::Nyse
            | $crate::VenueKind::Arca
            | $crate::VenueKind::American
            | $crate::VenueKind::National
            | $crate::VenueKind::Texas => {
                type $dialect = $crate::integrated::Integrated;
                $body
            }
            $crate::VenueKind::Lse => {
                type $dialect = $crate::mitch::Mitch;
                $body
            }
            $crate::VenueKind::Uqdf => {
                type $dialect = $crate::consolidated::Uqdf;
                $body
            }
            $crate::VenueKind::Cqs => {
                type $dialect = $crate::consolidated::Cqs;
                $body
            }
            $crate::VenueKind::Memx => {
                type $dialect = $crate::memoir::Memoir;
                $body
            }
        }
    };
}
pub(crate) use for_dialect;
