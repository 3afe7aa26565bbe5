//! The trading state of an instrument at a venue.
//!
//! Books keep changing during a halt; the state only determines whether the venue counts in the NBBO.

use crate::event::{Status, StatusAction};

/// The trading state of an instrument at a venue, in eight bits.
///
/// An instrument without any status message counts as trading, because a capture that starts in the middle of the day
/// lacks the opening messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct InstrumentState(u8);

const HALTED: u8 = 1;
const VENUE_HALTED: u8 = 2;
const SHORT_SALE_RESTRICTED: u8 = 4;

impl InstrumentState {
    /// Returns the eight bits.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Decodes the eight bits; unknown bits are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & (HALTED | VENUE_HALTED | SHORT_SALE_RESTRICTED))
    }

    /// Returns the state after `status`.
    #[inline]
    pub const fn after(self, status: Status) -> Self {
        let mut bits = self.0;
        match status.action {
            StatusAction::Trading => bits &= !HALTED,
            StatusAction::Halt
            | StatusAction::Pause
            | StatusAction::Quoting
            | StatusAction::PreOpen
            | StatusAction::PreCross
            | StatusAction::Close => bits |= HALTED,
            StatusAction::NotAvailableForTrading => bits |= VENUE_HALTED,
            StatusAction::None => match status.is_trading {
                // An operational resumption: the venue trades again, while a market-wide halt stays in effect.
                Some(true) => bits &= !VENUE_HALTED,
                Some(false) => bits |= VENUE_HALTED,
                None => {}
            },
            StatusAction::ShortSaleRestrictionChange => {}
        }
        match status.is_short_sell_restricted {
            Some(true) => bits |= SHORT_SALE_RESTRICTED,
            Some(false) => bits &= !SHORT_SALE_RESTRICTED,
            None => {}
        }
        Self(bits)
    }

    /// Returns whether the instrument trades here: no halt, pause, quotation-only period or operational halt.
    #[inline]
    pub const fn is_trading(self) -> bool {
        self.0 & (HALTED | VENUE_HALTED) == 0
    }

    /// Returns whether a short-sale price test restricts the instrument.
    #[inline]
    pub const fn is_short_sale_restricted(self) -> bool {
        self.0 & SHORT_SALE_RESTRICTED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(action: StatusAction, is_trading: Option<bool>) -> Status {
        Status { action, reason: 0, is_trading, is_quoting: None, is_short_sell_restricted: None }
    }

    #[test]
    fn a_halt_and_an_operational_halt_end_each_by_its_own_resumption() {
        let halted = InstrumentState::default()
            .after(status(StatusAction::Halt, Some(false)))
            .after(status(StatusAction::NotAvailableForTrading, Some(false)));
        assert!(!halted.is_trading());
        let resumed = halted.after(status(StatusAction::None, Some(true)));
        assert!(!resumed.is_trading(), "the halt goes on");
        assert!(resumed.after(status(StatusAction::Trading, Some(true))).is_trading());
        let traded_elsewhere = halted.after(status(StatusAction::Trading, Some(true)));
        assert!(!traded_elsewhere.is_trading(), "the operational halt goes on");
    }

    #[test]
    fn a_short_sale_restriction_is_no_halt() {
        let restricted = Status {
            is_short_sell_restricted: Some(true),
            ..status(StatusAction::ShortSaleRestrictionChange, None)
        };
        let state = InstrumentState::default().after(restricted);
        assert!(state.is_trading() && state.is_short_sale_restricted());
    }
}
