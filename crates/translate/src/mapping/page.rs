//! The rows as a page of the book.

use core::fmt::Write as _;

use tapeworks_wire::fix::order_entry;

use super::{
    CANCEL, CANCEL_REJECT, Counterpart, EXECUTION_REPORT, MASS_CANCEL, MASS_CANCEL_REPORT, MASS_QUOTE,
    NEW_ORDER, QUOTE, QUOTE_CANCEL, QUOTE_STATUS, REPLACE, Row,
};

/// A table of the page: its title, its rows, and what its messages are at Millennium and OUCH; `None`: nothing.
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
        Some("Order Mass Cancel Request (q), or a cancel of each order"),
        Some("a cancel of each order"),
    ),
    ("Quote (S)", QUOTE, Some("New Quote (S)"), None),
    ("MassQuote (i)", MASS_QUOTE, Some("a New Quote (S) for each entry"), None),
    ("QuoteCancel (Z)", QUOTE_CANCEL, Some("a cancel of each side, by Order ID"), None),
];

/// From the venue to clients.
pub(super) const REPORTS: &[Table] = &[
    (
        "ExecutionReport (8)",
        EXECUTION_REPORT,
        Some("Execution Report (8)"),
        Some(
            "Order Accepted (A), Replaced (U), Canceled (C), AIQ Canceled (D), Order Executed (E), Broken Trade (B), Trade Correction (F), Rejected Order (J), Cancel Pending (P), Order Modified (M), Order Restated (R), Order Priority Update (T)",
        ),
    ),
    (
        "OrderCancelReject (9)",
        CANCEL_REJECT,
        Some("Order Cancel Reject (9)"),
        Some("Cancel Reject (I), Rejected Order (J) of a replace"),
    ),
    (
        "OrderMassCancelReport (r)",
        MASS_CANCEL_REPORT,
        Some("Order Mass Cancel Report (r), or the gateway's own"),
        Some("the gateway's own"),
    ),
    ("QuoteStatusReport (AI)", QUOTE_STATUS, Some("the first Execution Report (8) of a quote"), None),
];

/// The standard's name of a tag; empty if the declaration does not have it.
fn title(tag: u32) -> &'static str {
    let schema = &order_entry::SCHEMA;
    let fields = schema.messages.iter().chain(schema.groups).flat_map(|message| message.fields);
    fields.into_iter().find(|field| field.tag == tag).map_or("", |field| field.title)
}

/// A native field's name as its document has it: `Client Order Id`.
fn words(fields: &str) -> String {
    let word = |name: &str| {
        let mut letters = name.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect::<String>())
    };
    let field = |field: &str| field.split('_').map(word).collect::<Vec<_>>().join(" ");
    fields.split(", ").map(field).collect::<Vec<_>>().join(", ")
}

fn table(
    page: &mut String,
    is_request: bool,
    (name, rows, _, _): &Table,
    venue: &str,
    of: fn(&Row) -> Counterpart,
) {
    let from = if is_request { "" } else { "from " };
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| tag | {name} | {from}{venue} | conversion |\n| ---: | --- | --- | --- |");
    for row in *rows {
        let Counterpart { fields, conversion } = of(row);
        let _ = writeln!(page, "| {} | {} | {} | {conversion} |", row.tag, title(row.tag), words(fields));
    }
    page.push('\n');
}

/// The page: a table for each venue, direction and message.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# The mapping tables\n\n\
         <!-- Generated from crates/translate/src/mapping: `cargo xtask golden --bless` writes it anew. -->\n\n\
         What each field of a client's message becomes at the [gateway's](gateway.md) venue, and each field of a reply is made of. A tag that is not \
         in the message's table is\nrefused by a BusinessMessageReject (380 = 0) that names it, unless the client's `ignored_tags` has it; a value that the \
         venue has no counterpart for by a Reject (373 = 5)\nthat names the tag. The session's own tags are not in the tables.\n\n",
    );
    type Venue = (&'static str, fn(&Row) -> Counterpart, fn(&Table) -> Option<&'static str>);
    let venues: [Venue; 2] = [
        ("Millennium native", |row| row.millennium, |table| table.2),
        ("OUCH 5.0", |row| row.ouch, |table| table.3),
    ];
    for (venue, column, message) in venues {
        for (is_request, tables) in [(true, REQUESTS), (false, REPORTS)] {
            let direction = if is_request { "from clients" } else { "to clients" };
            let _ = writeln!(page, "## {venue}, {direction}\n");
            for each in tables {
                let Some(native) = message(each) else {
                    let _ = writeln!(
                        page,
                        "### {}\n\nThe venue has no such message: {}\n",
                        each.0,
                        if is_request { "BusinessMessageReject, 380 = 3." } else { "it is never sent." }
                    );
                    continue;
                };
                let arrow = if is_request { "becomes" } else { "is made of" };
                let _ = writeln!(page, "### {}\n\nIt {arrow} {native}.\n", each.0);
                table(&mut page, is_request, each, venue, column);
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
        // What the gateway sets by its settings, or always to the same.
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
