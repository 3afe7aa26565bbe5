//! FIX messages as the suite sees them: completing, framing and comparing, written without the product's code.

/// Ends each field of a message.
const SOH: u8 = 1;

/// CheckSum with its SOH: `10=123|`.
const TRAILER_BYTES: usize = 7;

/// The longest message that the acceptor may send; a longer BodyLength means garbled bytes.
const MOST_BODY_BYTES: usize = 1 << 20;

/// A message as text, with `|` for SOH.
pub(crate) fn show(message: &[u8]) -> String {
    String::from_utf8_lossy(message).replace('\x01', "|")
}

/// Sum of all bytes, modulo 256.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Adds BodyLength and CheckSum where a message lacks them. Stated ones stay unchanged, right or wrong: many definitions test how
/// the acceptor treats a wrong one. So does a message that does not begin with BeginString.
pub(crate) fn complete(message: &[u8]) -> Vec<u8> {
    let Some(head_end) = message.iter().position(|byte| *byte == SOH).filter(|_| message.starts_with(b"8="))
    else {
        return message.to_vec();
    };
    let (head, rest) = message.split_at(head_end + 1);
    let parts: Vec<&[u8]> = rest.split_inclusive(|byte| *byte == SOH).collect();
    let trailer = parts.last().filter(|part| part.starts_with(b"10=")).copied();
    let body = &rest[..rest.len() - trailer.map_or(0, <[u8]>::len)];
    let mut complete = head.to_vec();
    if !parts.iter().any(|part| part.starts_with(b"9=")) {
        complete.extend(format!("9={}\x01", body.len()).into_bytes());
    }
    complete.extend(body);
    match trailer {
        Some(trailer) => complete.extend(trailer),
        None => complete.extend(format!("10={:03}\x01", checksum(&complete)).into_bytes()),
    }
    complete
}

/// Length of the message at the start of `bytes`; `None` while its end is missing.
///
/// # Errors
/// The bytes cannot begin a message.
pub(crate) fn frame(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut fields = bytes.split_inclusive(|byte| *byte == SOH);
    let mut next = |prefix: &[u8], error| match fields.next() {
        Some(field) if field.ends_with(&[SOH]) => {
            field.starts_with(prefix).then_some(Some(field)).ok_or(error)
        }
        Some(part) => {
            let known = part.len().min(prefix.len());
            (part[..known] == prefix[..known]).then_some(None).ok_or(error)
        }
        None => Ok(None),
    };
    let Some(begin) = next(b"8=", "no BeginString")? else { return Ok(None) };
    let Some(length) = next(b"9=", "no BodyLength after BeginString")? else { return Ok(None) };
    let digits = std::str::from_utf8(&length[2..length.len() - 1]).unwrap_or_default();
    let body = digits.parse::<usize>().ok().filter(|body| *body <= MOST_BODY_BYTES);
    let end =
        begin.len() + length.len() + body.ok_or("BodyLength is not a plausible number")? + TRAILER_BYTES;
    let Some(message) = bytes.get(..end) else { return Ok(None) };
    let trailer = &message[end - TRAILER_BYTES..];
    let is_framed =
        message[end - TRAILER_BYTES - 1] == SOH && trailer.starts_with(b"10=") && trailer[6] == SOH;
    is_framed.then_some(Some(end)).ok_or("BodyLength does not lead to CheckSum")
}

/// A field's tag and value.
fn field(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 1..).unwrap_or_default())
}

fn fields(message: &[u8]) -> Vec<&[u8]> {
    message.strip_suffix(&[SOH]).unwrap_or(message).split(|byte| *byte == SOH).collect()
}

/// Whether a value looks like a UTC timestamp, with or without milliseconds.
fn is_timestamp(value: &[u8]) -> bool {
    let shape: Vec<u8> = value.iter().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte }).collect();
    [&b"00000000-00:00:00"[..], b"00000000-00:00:00.000"].contains(&&*shape)
}

/// Compares a received message with the expected one, field by field and in order. Returns one line per difference.
///
/// BodyLength and CheckSum must fit the received message, whatever the definition states, and times only need the shape of a time.
pub(crate) fn differences(expected: &[u8], received: &[u8]) -> Vec<String> {
    let mut differences = Vec::new();
    let received_fields = fields(received);
    let expected_fields = fields(expected);
    for at in 0..expected_fields.len().max(received_fields.len()) {
        let (wanted, came) = match (expected_fields.get(at), received_fields.get(at)) {
            (Some(wanted), Some(came)) => (field(wanted), field(came)),
            (Some(wanted), None) => {
                differences.push(format!("{} is missing", show(wanted)));
                continue;
            }
            (_, Some(came)) => {
                differences.push(format!("{} is not expected", show(came)));
                continue;
            }
            (None, None) => continue,
        };
        if wanted.0 != came.0 {
            let place = at + 1;
            let (wanted, came) = (show(expected_fields[at]), show(received_fields[at]));
            differences.push(format!("field {place} should be {wanted}, but is {came}"));
            // After a missing or an additional field, all others would differ too.
            break;
        }
        let is_right = match wanted.0 {
            b"9" => frame(received) == Ok(Some(received.len())),
            b"10" => {
                let sum = checksum(&received[..received.len().saturating_sub(TRAILER_BYTES)]);
                came.1 == format!("{sum:03}").as_bytes()
            }
            b"42" | b"52" | b"60" | b"122" => is_timestamp(came.1),
            _ => wanted.1 == came.1,
        };
        if !is_right {
            let (tag, came) = (show(came.0), show(came.1));
            differences.push(match wanted.0 {
                b"9" => format!("BodyLength (9) is {came}, which does not fit the message"),
                b"10" => format!("CheckSum (10) is {came}, which does not fit the message"),
                b"42" | b"52" | b"60" | b"122" => format!("{tag} should be a time, but is {came}"),
                _ => format!("{tag} should be {}, but is {came}", show(wanted.1)),
            });
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Vec<u8> {
        text.replace('|', "\x01").into_bytes()
    }

    /// The differences of two messages that need not state BodyLength and CheckSum.
    fn compared(expected: &str, received: &str) -> Vec<String> {
        differences(&complete(&message(expected)), &complete(&message(received)))
    }

    #[test]
    fn body_length_and_checksum_are_added_where_they_are_missing() {
        let text = |given: &str| show(&complete(&message(given)));
        // 5 bytes of 35 and 5 of 34; the sum of all bytes before CheckSum is 1,190, which is 166 modulo 256.
        assert_eq!(text("8=FIX.4.4|35=0|34=2|"), "8=FIX.4.4|9=10|35=0|34=2|10=166|");
        assert_eq!(text("8=FIX.4.4|9=10|35=0|34=2|"), "8=FIX.4.4|9=10|35=0|34=2|10=166|");
    }

    #[test]
    fn stated_body_lengths_and_checksums_stay_unchanged() {
        for text in ["8=FIX.4.4|9=99|35=0|10=256|", "35=0|8=FIX.4.4|9=29|10=121|", "8=FIX.4.4|9=5|35=0|10=0|"]
        {
            assert_eq!(show(&complete(&message(text))), text);
        }
        assert_eq!(show(&complete(&message("8=FIX.4.4|35=0|10=256|"))), "8=FIX.4.4|9=5|35=0|10=256|");
    }

    #[test]
    fn a_message_ends_where_its_body_length_says() {
        let whole = complete(&message("8=FIX.4.2|35=0|34=2|"));
        for end in 0..whole.len() {
            assert_eq!(frame(&whole[..end]), Ok(None), "{end} bytes");
        }
        let mut two = whole.clone();
        two.extend(&whole);
        assert_eq!(frame(&two), Ok(Some(whole.len())));
    }

    #[test]
    fn bytes_that_cannot_begin_a_message_are_an_error() {
        let garbled = [
            "X",
            "9=5|",
            "8=FIX.4.2|35=0|",
            "8=FIX.4.2|9=x|",
            "8=FIX.4.2|9=9999999|",
            "8=FIX.4.2|9=3|35=0|10=000|",
        ];
        for text in garbled {
            assert!(frame(&message(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn equal_messages_have_no_differences() {
        let text = "8=FIX.4.4|35=D|34=2|58=a=b|372=|";
        assert_eq!(compared(text, text), [""; 0]);
    }

    #[test]
    fn times_are_compared_by_their_shape() {
        let expected = "8=FIX.4.4|35=0|52=00000000-00:00:00.000|";
        assert_eq!(compared(expected, "8=FIX.4.4|35=0|52=20260102-03:04:05.678|"), [""; 0]);
        assert_eq!(compared(expected, "8=FIX.4.4|35=0|52=20260102-03:04:05|"), [""; 0]);
        for wrong in ["", "20260102", "20260102-03:04:05.6", "20260102-03:04:05.678Z", "20260102 03:04:05"] {
            let found = compared(expected, &format!("8=FIX.4.4|35=0|52={wrong}|"));
            assert_eq!(found, [format!("52 should be a time, but is {wrong}")]);
        }
        // Other fields are not times, whatever they look like.
        assert_eq!(
            compared("8=FIX.4.4|35=0|126=20260102-03:04:05|", "8=FIX.4.4|35=0|126=20260102-03:04:06|").len(),
            1
        );
    }

    #[test]
    fn body_length_and_checksum_must_fit_the_received_message() {
        let expected = message("8=FIX.4.4|9=1|35=0|34=2|10=0|");
        assert_eq!(differences(&expected, &complete(&message("8=FIX.4.4|35=0|34=2|"))), [""; 0]);
        let found = differences(&expected, &message("8=FIX.4.4|9=10|35=0|34=2|10=162|"));
        assert_eq!(found, ["CheckSum (10) is 162, which does not fit the message"]);
        let found = differences(&expected, &complete(&message("8=FIX.4.4|9=11|35=0|34=2|")));
        assert_eq!(found, ["BodyLength (9) is 11, which does not fit the message"]);
    }

    #[test]
    fn other_values_missing_fields_and_additional_ones_are_differences() {
        let expected = "8=FIX.4.4|35=3|34=2|45=2|";
        let found = compared(expected, "8=FIX.4.4|35=3|34=3|45=3|");
        assert_eq!(found, ["34 should be 2, but is 3", "45 should be 2, but is 3"]);
        let found = compared(expected, "8=FIX.4.4|35=3|34=2|");
        assert!(found[0].starts_with("field 5 should be 45=2, but is 10="), "{found:?}");
        let found = compared(expected, "8=FIX.4.4|35=3|34=2|45=2|58=no|");
        assert!(found[0].ends_with(", but is 58=no"), "{found:?}");
        assert_eq!(differences(&message("8=1|35=0|"), &message("8=1|")), ["35=0 is missing"]);
        assert_eq!(differences(&message("8=1|"), &message("8=1|35=0|")), ["35=0 is not expected"]);
    }

    #[test]
    fn the_order_of_fields_is_compared() {
        let found = compared("8=FIX.4.4|35=0|34=2|49=A|", "8=FIX.4.4|35=0|49=A|34=2|");
        assert_eq!(found, ["field 4 should be 34=2, but is 49=A"]);
    }
}
