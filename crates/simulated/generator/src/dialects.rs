//! Maps each venue to its dialect.

use tapeworks_session::{SessionId, TransportKind};

use crate::dialect::{Dialect as _, SessionName};
use crate::kinds::VenueKind;
use crate::scenario::Unit;

/// Evaluates an expression with the dialect type of a [`VenueKind`](crate::VenueKind).
macro_rules! for_dialect {
    ($kind:expr, $dialect:ident => $body:expr) => {
        match $kind.row().speaks {
            $crate::kinds::Speaks::Itch => {
                type $dialect = $crate::nasdaq::Itch;
                $body
            }
            $crate::kinds::Speaks::Iex => {
                type $dialect = $crate::iex::Iex;
                $body
            }
            $crate::kinds::Speaks::DeepPlus => {
                type $dialect = $crate::iex::DeepPlus;
                $body
            }
            $crate::kinds::Speaks::Memoir => {
                type $dialect = $crate::memoir::Memoir;
                $body
            }
            $crate::kinds::Speaks::Pitch => {
                type $dialect = $crate::pitch::Pitch;
                $body
            }
            $crate::kinds::Speaks::Futures => {
                type $dialect = $crate::futures::Futures;
                $body
            }
            $crate::kinds::Speaks::Integrated => {
                type $dialect = $crate::integrated::Integrated;
                $body
            }
            $crate::kinds::Speaks::Mitch => {
                type $dialect = $crate::mitch::Mitch;
                $body
            }
            $crate::kinds::Speaks::Uqdf => {
                type $dialect = $crate::consolidated::Uqdf;
                $body
            }
            $crate::kinds::Speaks::Cqs => {
                type $dialect = $crate::consolidated::Cqs;
                $body
            }
        }
    };
}
pub(crate) use for_dialect;

impl VenueKind {
    /// Returns the transport that carries its messages.
    #[must_use]
    pub fn transport(self) -> TransportKind {
        self.session([b' '; 10], 0, Unit::WHOLE).transport()
    }

    /// Returns a session of a unit of this venue, by name or, if the transport uses numbers, by number.
    #[must_use]
    pub fn session(self, name: [u8; 10], number: u32, unit: Unit) -> SessionId {
        let code = self.row().code;
        for_dialect!(self, D => D::session(&SessionName { text: name, number, unit: unit.number, code }))
    }
}
