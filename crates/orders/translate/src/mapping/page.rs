//! Renders the rows as a page of the book.

use core::fmt::Write as _;

use tapeworks_fix_wire::order_entry;

use super::{
    CANCEL, CANCEL_REJECT, Counterpart, EXECUTION_REPORT, MASS_CANCEL, MASS_CANCEL_REPORT, MASS_QUOTE,
    NEW_ORDER, QUOTE, QUOTE_CANCEL, QUOTE_STATUS, REPLACE, Row,
};

/// A table of the page: its title, its rows, and the corresponding messages of Millennium and OUCH; `None`: no such message.
pub(super) type Table = (&'static str, &'static [Row], Option<&'static str>, Option<&'static str>);

/// From clients to the venue.
pub(super) const REQUESTS: &[Table] = &[
    ("NewOrderSingle (D)", NEW_ORDER, Some("New Order (D)"), Some("Enter Order (O)")),
    (
        "OrderCancelReplaceRequest (G)",
        REPLACE,
        Some("Order Cancel Replace Request (G)"),
        Some("Replace Order (U)"),
    ),
    ("OrderCancelRequest (F)", CANCEL, Some("Order Cancel Request (F)"), Some("Cancel Order (X)")),
    (
        "OrderMassCancelRequest (q)",
        MASS_CANCEL,
        Some("Order Mass Cancel Request (q), or one cancel per order"),
        Some("one cancel per order"),
    ),
    ("Quote (S)", QUOTE, Some("New Quote (S)"), None),
    ("MassQuote (i)", MASS_QUOTE, Some("one New Quote (S) per entry"), None),
    ("QuoteCancel (Z)", QUOTE_CANCEL, Some("one cancel per side, by Order ID"), None),
];

/// From the venue to clients.
pub(super) const REPORTS: &[Table] = &[
    (
        "ExecutionReport (8)",
        EXECUTION_REPORT,
        Some("from Execution Report (8)"),
        Some(
            "from Order Accepted (A), Replaced (U), Canceled (C), AIQ Canceled (D), Order Executed (E), Broken Trade (B), Trade Correction (F), Rejected Order (J), Cancel Pending (P), Order Modified (M), Order Restated (R), Order Priority Update (T)",
        ),
    ),
    (
        "OrderCancelReject (9)",
        CANCEL_REJECT,
        Some("from Order Cancel Reject (9)"),
        Some("from Cancel Reject (I), from Rejected Order (J) of a replace, or by the gateway"),
    ),
    (
        "OrderMassCancelReport (r)",
        MASS_CANCEL_REPORT,
        Some("from Order Mass Cancel Report (r), or by the gateway"),
        Some("by the gateway"),
    ),
    (
        "QuoteStatusReport (AI; b in FIX 4.2)",
        QUOTE_STATUS,
        Some("from the quote's first Execution Report (8), or by the gateway"),
        None,
    ),
];

/// The answers to quotes at a venue that has no quotes.
const NO_QUOTES: [&str; 2] = [
    "Quote, MassQuote: BusinessMessageReject (380 = 3), or the reject of a failed [check](gateway.md#checks) (297 = 5).\n\
     QuoteCancel: QuoteStatusReport, 298 = 4 → 297 = 4; 298 = 5 → 297 = 9 and 300 = 5.",
    "Built by the gateway; see QuoteCancel.",
];

/// Returns the standard's name of a tag; empty if it is not declared.
fn title(tag: u32) -> &'static str {
    let schema = &order_entry::SCHEMA;
    let fields = schema.messages.iter().chain(schema.groups).flat_map(|message| message.fields);
    fields.into_iter().find(|field| field.tag == tag).map_or("", |field| field.title)
}

/// Returns a native field's name as in its document: `Client Order Id`.
fn words(fields: &str) -> String {
    let word = |name: &str| {
        let mut letters = name.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect::<String>())
    };
    let field = |field: &str| field.split('_').map(word).collect::<Vec<_>>().join(" ");
    fields.split(", ").map(field).collect::<Vec<_>>().join(", ")
}

fn table(page: &mut String, (_, rows, _, _): &Table, of: fn(&Row) -> Counterpart) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| tag | FIX | venue | conversion |\n| ---: | --- | --- | --- |");
    for row in *rows {
        let Counterpart { fields, conversion } = of(row);
        if conversion.is_empty() {
            continue;
        }
        let _ = writeln!(page, "| {} | {} | {} | {conversion} |", row.tag, title(row.tag), words(fields));
    }
    page.push('\n');
}

/// Renders the page: a table for each venue, direction and message.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# The mapping tables\n\n\
         <!-- Generated from crates/orders/translate/src/mapping by `cargo xtask golden --bless`. -->\n\n\
         How the [gateway](gateway.md) maps request fields to the venue's messages, and fills the fields of replies. Session tags \
         are not\nlisted.\n\n\
         BusinessMessageReject refuses tags missing from the message's table (380 = 0), unless the client's `ignored_tags` lists \
         them; Account\nand parties at OUCH (380 = 0); unknown instruments (380 = 2); and missing fields that others require \
         (380 = 5). A price off tick gets\nthe message's own reject: 103 = 99, 102 = 18 or 300 = 8. Reject (373 = 5) refuses other \
         values without a counterpart.\n\n\
         Before FIX 5.0 SP2, replies lack 880, 851 = 4 and, in QuoteStatusReport, 300; 297 = 17 becomes 1. FIX 4.2 also lacks \
         528, 851,\n378 above 5 and 300 above 8. A 103 or 102 that a version lacks becomes 99, in FIX 4.2 0 or 2.\n\n\
         | conversion | meaning |\n\
         | --- | --- |\n\
         | see D, G, S | as the same tag in that message |\n\
         | ignored | accepted without effect |\n\
         | must match | if present, must equal the order's value |\n\
         | state | from the gateway's record of the order |\n\n",
    );
    type Venue = (&'static str, fn(&Row) -> Counterpart, fn(&Table) -> Option<&'static str>);
    let venues: [Venue; 2] = [
        ("Millennium native", |row| row.millennium, |table| table.2),
        ("OUCH 5.0", |row| row.ouch, |table| table.3),
    ];
    for (venue, column, message) in venues {
        for (is_request, tables) in [(true, REQUESTS), (false, REPORTS)] {
            let (direction, verb, no_quotes) = if is_request {
                ("from clients", "Sent as", NO_QUOTES[0])
            } else {
                ("to clients", "Built", NO_QUOTES[1])
            };
            let _ = writeln!(page, "## {venue}, {direction}\n");
            for each in tables {
                let Some(native) = message(each) else { continue };
                let _ = writeln!(page, "### {}\n\n{verb} {native}.\n", each.0);
                table(&mut page, each, column);
            }
            let missing = tables.iter().filter(|each| message(each).is_none());
            let missing: Vec<&str> = missing.map(|each| each.0).collect();
            if !missing.is_empty() {
                let _ = writeln!(page, "### {}\n\n{no_quotes}\n", missing.join(", "));
            }
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

#[cfg(test)]
mod tests {
    use tapeworks_wire::millennium::native;
    use tapeworks_wire::nasdaq::ouch50;

    use super::*;

    #[test]
    fn every_tag_and_every_native_field_is_one_that_is_declared() {
        let millennium = native::SCHEMA.messages.iter().flat_map(|message| message.fields);
        let millennium: Vec<&str> = millennium.map(|field| field.name).collect();
        let ouch = ouch50::inbound::SCHEMA.messages.iter().chain(ouch50::outbound::SCHEMA.messages);
        let ouch: Vec<&str> = ouch.flat_map(|message| message.fields).map(|field| field.name).collect();
        for (name, rows, _, _) in REQUESTS.iter().chain(REPORTS) {
            for row in *rows {
                assert_ne!(title(row.tag), "", "{name}: {}", row.tag);
                assert_eq!(
                    rows.iter().filter(|other| other.tag == row.tag).count(),
                    1,
                    "{name}: {}",
                    row.tag
                );
                for (of, declared) in [(row.millennium, &millennium), (row.ouch, &ouch)] {
                    for field in of.fields.split(", ").filter(|field| !field.is_empty()) {
                        assert!(declared.contains(&field), "{name}, {}: {field}", row.tag);
                    }
                }
            }
        }
    }

    #[test]
    fn every_field_of_a_native_request_is_mapped_or_the_gateways_own() {
        // Fields that the gateway sets from its settings, or always to the same value.
        const OWN: [&str; 15] = [
            "start_of_message",
            "message_length",
            "trader_id",
            "clearing_account",
            "mifid_flags",
            "party_role_qualifiers",
            "auto_cancel",
            "order_sub_type",
            "anonymity",
            "group_id",
            "offset",
            "pegged_exec_inst",
            "owner_type",
            "rfq_id",
            "segment",
        ];
        let messages = [
            ("NewOrder", NEW_ORDER),
            ("OrderCancelReplaceRequest", REPLACE),
            ("OrderCancelRequest", CANCEL),
            ("OrderMassCancelRequest", MASS_CANCEL),
            ("NewQuote", QUOTE),
        ];
        for (name, rows) in messages {
            let message = native::SCHEMA.messages.iter().find(|message| message.name == name).unwrap();
            for field in message.fields {
                let is_mapped =
                    rows.iter().any(|row| row.millennium.fields.split(", ").any(|one| one == field.name));
                let is_own = OWN.contains(&field.name) || field.name.contains("reserved");
                assert!(is_mapped != is_own, "{name}: {}", field.name);
            }
        }
    }
}
