//! Differences between replies in FIX 4.2, 4.4 and 5.0 SP2. Clients validate messages with the dictionary of their version.
//!
//! A reply is made for the version of the order's client. A copy of it may go to a client with another version.

use tapeworks_fix_wire::order_entry::{
    ExecTransType, ExecType, ExecutionReportFields, MassQuoteAcknowledgementFields,
    OrderMassCancelReportFields, QuoteStatusReportFields,
};
use tapeworks_fix_wire::{Writer, tag};

use crate::fix_side::{Body, Reply, exec_type_of};
use crate::route::Route;
use crate::settings::FixVersion;

impl Reply<'_> {
    /// Like [`Reply::write`], for a client with this version.
    pub fn write_as(&self, version: FixVersion, writer: &mut Writer<'_>) {
        if let Some(route) = self.route {
            route.write(writer);
        }
        self.body.write_as(version, writer);
    }

    /// Like [`Reply::write_as`], for a drop copy: OnBehalfOfCompID (115) is `owner`, the CompID of the order's client, and
    /// OnBehalfOfSubID (116) the trader for whom the order was sent, if the client states it.
    pub fn write_copy_as(&self, version: FixVersion, owner: &[u8], writer: &mut Writer<'_>) {
        writer.copied(tag::ON_BEHALF_OF_COMP_ID, owner);
        let trader = self.route.map_or(&b""[..], Route::sender_sub_id);
        if !trader.is_empty() {
            writer.copied(tag::ON_BEHALF_OF_SUB_ID, trader);
        }
        self.body.write_as(version, writer);
    }
}

impl Body<'_> {
    fn write_as(&self, version: FixVersion, writer: &mut Writer<'_>) {
        match self {
            // The usual case: the reply was made for this version, and need not be copied.
            Self::Execution(fields) if fits(version, fields) => fields.write(writer),
            Self::Execution(fields) => {
                let mut fitted = **fields;
                fit(version, &mut fitted);
                fitted.write(writer);
            }
            Self::CancelReject(fields) => {
                let mut fitted = **fields;
                fitted.cxl_rej_reason = fitted.cxl_rej_reason.map(|reason| match version {
                    // 2: broker / exchange option.
                    FixVersion::Fix42 if reason > 3 => 2,
                    FixVersion::Fix44 if reason > 6 => 99,
                    _ => reason,
                });
                fitted.write(writer);
            }
            Self::MassCancel(fields) => {
                let id = fields.order_id.or(fields.cl_ord_id).or(Some(b"NONE"));
                // One of the two is required.
                if version == FixVersion::Fix50Sp2 {
                    OrderMassCancelReportFields { mass_action_report_id: id, ..**fields }.write(writer);
                } else {
                    OrderMassCancelReportFields { order_id: id, ..**fields }.write(writer);
                }
            }
            Self::QuoteStatus(fields) if version != FixVersion::Fix50Sp2 => {
                QuoteStatusReportFields {
                    // The field is required, but a cancel of all quotes names no symbol.
                    symbol: fields.symbol.or(Some(b"[N/A]")),
                    quote_status: fields.quote_status.map(old_quote_status),
                    quote_reject_reason: None,
                    ..**fields
                }
                .write(writer);
            }
            Self::MassQuoteAcknowledgement(fields) if version != FixVersion::Fix50Sp2 => {
                let most = if version == FixVersion::Fix42 { 8 } else { 99 };
                MassQuoteAcknowledgementFields {
                    quote_status: old_quote_status(fields.quote_status),
                    quote_reject_reason: fields.quote_reject_reason.filter(|reason| *reason <= most),
                    ..**fields
                }
                .write(writer);
            }
            _ => self.write(writer),
        }
    }
}

/// Converts QuoteStatus (297) to its values before FIX 5.0: 17, cancelled, becomes 1, cancelled for the symbol.
const fn old_quote_status(status: i64) -> i64 {
    match status {
        16 => 0,
        17 => 1,
        status => status,
    }
}

/// Returns whether [`fit`] would change nothing.
#[inline]
fn fits(version: FixVersion, fields: &ExecutionReportFields<'_>) -> bool {
    match version {
        FixVersion::Fix50Sp2 => fields.exec_trans_type.is_none(),
        FixVersion::Fix44 => {
            fields.exec_trans_type.is_none()
                && fields.trd_match_id.is_none()
                && fields.display_qty.is_none()
                && fields.last_liquidity_ind.is_none_or(|liquidity| liquidity < 4)
                && fields.ord_rej_reason.is_none_or(|reason| matches!(reason, 0..=15 | 99))
        }
        FixVersion::Fix42 => false,
    }
}

/// Removes the fields of a report that the version does not have, and converts its ExecType.
#[inline]
pub(crate) fn fit(version: FixVersion, fields: &mut ExecutionReportFields<'_>) {
    if version != FixVersion::Fix50Sp2 {
        fields.trd_match_id = None;
        fields.display_qty = None;
        // 4: an auction trade.
        fields.last_liquidity_ind = fields.last_liquidity_ind.filter(|liquidity| *liquidity < 4);
        fields.ord_rej_reason =
            fields.ord_rej_reason.map(|reason| if (0..=15).contains(&reason) { reason } else { 99 });
    }
    if version == FixVersion::Fix42 {
        fields.secondary_cl_ord_id = None;
        fields.ord_status_req_id = None;
        fields.secondary_exec_id = None;
        fields.order_capacity = None;
        fields.order_restrictions = None;
        fields.last_liquidity_ind = None;
        fields.copy_msg_indicator = None;
        fields.parties = Default::default();
        // 0: broker / exchange option.
        fields.ord_rej_reason = fields.ord_rej_reason.map(|reason| if reason > 8 { 0 } else { reason });
        fields.exec_restatement_reason = fields.exec_restatement_reason.filter(|reason| *reason <= 5);
        if fields.exec_trans_type.is_none() {
            (fields.exec_type, fields.exec_trans_type) =
                exec_type_of(version, fields.exec_type, fields.ord_status);
        }
    } else if let Some(kind) = fields.exec_trans_type.take() {
        fields.exec_type = since_43(kind, fields.exec_type);
    }
}

/// Converts an ExecType of FIX 4.2 to its value since FIX 4.3.
const fn since_43(kind: ExecTransType, exec_type: ExecType) -> ExecType {
    match (kind, exec_type) {
        (ExecTransType::Cancel, _) => ExecType::TradeCancel,
        (ExecTransType::Correct, _) => ExecType::TradeCorrect,
        (ExecTransType::Status, _) => ExecType::OrderStatus,
        (_, ExecType::PartialFill | ExecType::Fill) => ExecType::Trade,
        (_, other) => other,
    }
}
