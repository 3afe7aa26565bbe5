//! Nasdaq GLIMPSE 5.0: a snapshot of the books, for receivers that join during the day.
//!
//! Source: *Nasdaq GLIMPSE 5.0* specification. The server sends sequenced data over [SoupBinTCP](super::soupbintcp): first the
//! [TotalView-ITCH 5.0](super::itch50) messages that describe the current state (system events, directory, trading states, and
//! every displayed order as an addition), then the single message declared here.

tapeworks_wire_macros::protocol! {
    /// The end of a snapshot of the books; the messages before it are TotalView-ITCH 5.0.
    protocol "nasdaq-glimpse-5.0" {
        title: "Nasdaq GLIMPSE 5.0",
        version: "5.0",
        endian: big,
        tag: ascii<1> @ 0,
        length: exact,
    }

    /// End of snapshot: all messages up to a point of the real-time feed were sent.
    message EndOfSnapshot = 'G', 21 bytes {
        /// The number of the first message of the real-time feed that the snapshot does not include.
        sequence_number @ 1: ascii_number<20>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AsciiNumber;

    #[test]
    fn the_number_is_twenty_digits_set_to_the_right() {
        let bytes = EndOfSnapshotFields { sequence_number: AsciiNumber::new(1_234).unwrap() }.encode();
        assert_eq!(&bytes, b"G                1234");
        let Message::EndOfSnapshot(end) = Message::decode(&bytes).unwrap();
        assert_eq!(end.sequence_number().value(), Some(1_234));
    }
}
