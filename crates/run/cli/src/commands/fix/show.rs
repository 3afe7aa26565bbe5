//! Formats FIX messages for people, and as JSON.

use serde_json::{Map, Value};
use tapeworks_fix_wire::{Fields, field, message_type};

fn text(message: &[u8], tag: u32) -> String {
    field(message, tag).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// Returns whether the message rejects a request.
pub(super) fn is_reject(message: &[u8]) -> bool {
    match message_type(message) {
        b"8" => field(message, 150) == Some(b"8"),
        b"9" | b"j" | b"3" => true,
        b"r" => field(message, 531) == Some(b"0"),
        _ => false,
    }
}

/// Returns OrdStatus (39) in words.
fn status(code: &str) -> &str {
    match code {
        "0" => "new",
        "1" => "partly filled",
        "2" => "filled",
        "4" => "cancelled",
        "6" => "pending cancel",
        "8" => "rejected",
        "9" => "suspended",
        "A" => "pending new",
        "C" => "expired",
        "E" => "pending replace",
        other => other,
    }
}

/// Returns ExecType (150) in words.
fn event(code: &str) -> &str {
    match code {
        "0" => "accepted",
        "1" | "2" | "F" => "fill",
        "3" => "done for day",
        "4" => "cancelled",
        "5" => "replaced",
        "8" => "rejected",
        "9" => "suspended",
        "C" => "expired",
        "D" => "restated",
        "G" => "trade corrected",
        "H" => "trade cancelled",
        "I" => "status",
        other => other,
    }
}

/// Formats a message as one line.
pub(super) fn line(message: &[u8]) -> String {
    let text = |tag| text(message, tag);
    let reason = match text(58) {
        reason if reason.is_empty() => String::new(),
        reason => format!(": {reason}"),
    };
    match message_type(message) {
        b"8" => {
            let side = match text(54).as_str() {
                "1" => "buy",
                "2" => "sell",
                "5" => "short",
                _ => "",
            };
            let fill =
                if text(32).is_empty() { String::new() } else { format!(" {} @{}", text(32), text(31)) };
            let original = if text(41).is_empty() { String::new() } else { format!(" (was {})", text(41)) };
            format!(
                "{} {}{fill}{original}: {side} {} {}, {}, {} filled, {} left{reason}",
                text(11),
                event(&text(150)),
                text(38),
                text(55),
                status(&text(39)),
                text(14),
                text(151),
            )
        }
        b"9" => format!("{} rejected, {} is {}{reason}", text(11), text(41), status(&text(39))),
        b"r" => {
            let answer = if text(531) == "0" { "rejected" } else { "accepted" };
            format!("{} mass cancel {answer}{reason}", text(11))
        }
        b"j" => format!("message {} of type {} refused{reason}", text(45), text(372)),
        b"3" => format!("message {} rejected, tag {}{reason}", text(45), text(371)),
        b"5" => format!("the gateway logs out{reason}"),
        _ => String::from_utf8_lossy(message).replace('\x01', "|"),
    }
}

/// Formats a message as a JSON object of tags and values.
pub(super) fn json(message: &[u8]) -> String {
    let fields = Fields::new(message).map_while(Result::ok);
    let all: Map<String, Value> = fields
        .map(|field| (field.tag.to_string(), Value::from(String::from_utf8_lossy(field.value).into_owned())))
        .collect();
    Value::Object(all).to_string()
}
