//! The dialects: the one place that names them all.

/// Runs an expression with the type of the dialect that a [`VenueKind`](crate::VenueKind) speaks.
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
