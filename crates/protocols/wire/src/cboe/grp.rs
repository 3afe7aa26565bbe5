//! Cboe's TCP servers: the Gap Request Proxy (GRP), which resends missed messages, and the spin servers, which send a unit's open orders.
//!
//! Source: *Cboe US Equities/Options Multicast Depth of Book (PITCH) Specification*, "Gap Request Proxy Messages" and "Spin Messages".
//! Little-endian. Each side sends blocks with a [sequenced unit header](super::unit) of unit 0 and number 0; an empty block is a heartbeat.
//! A proxy sends the requested messages not over TCP but in sequenced units by multicast, at its own addresses. A spin server sends its
//! messages over the connection, between [`SpinResponse`] and [`SpinFinished`].
//!
//! Not verified on real packets. Lengths, offsets, types and statuses agree with two other public implementations of the specification,
//! one of them for the same servers at Cboe Australia. Cboe may lengthen any message.

tapeworks_wire_macros::protocol! {
    /// Requests for missed messages and for spins of Cboe's feeds, over TCP.
    protocol "cboe-grp-2.41" {
        title: "Cboe gap request proxy and spin server 2.41",
        version: "2.41",
        endian: little,
        tag: u8 @ 1,
        length: extensible,
    }

    /// Client: logs in. Texts are filled with blanks.
    message Login = 0x01, 22 bytes {
        length         @ 0 : u8,
        session_sub_id @ 2 : ascii<4>,
        username       @ 6 : ascii<4>,
        filler         @ 10: ascii<2>,
        password       @ 12: ascii<10>,
    }

    enum LoginStatus: ascii<1> {
        Accepted = 'A',
        /// Unknown user or wrong password.
        NotAuthorised = 'N',
        SessionInUse = 'B',
        InvalidSession = 'S',
    }

    /// Server: the answer to a login.
    message LoginResponse = 0x02, 3 bytes {
        length @ 0: u8,
        status @ 2: LoginStatus,
    }

    /// Client: requests messages of a unit again.
    message GapRequest = 0x03, 9 bytes {
        length   @ 0: u8,
        unit     @ 2: u8,
        /// Of the first message.
        sequence @ 3: u32,
        count    @ 7: u16,
    }

    enum GapStatus: ascii<1> {
        Accepted = 'A',
        /// Ahead of what was sent, or too far behind.
        OutOfRange = 'O',
        DailyQuota = 'D',
        MinuteQuota = 'M',
        SecondQuota = 'S',
        /// More messages than one request may name.
        CountLimit = 'C',
        InvalidUnit = 'I',
        UnitUnavailable = 'U',
    }

    /// Server: whether the messages will come.
    message GapResponse = 0x04, 10 bytes {
        length   @ 0: u8,
        unit     @ 2: u8,
        sequence @ 3: u32,
        count    @ 7: u16,
        status   @ 9: GapStatus,
    }

    /// Spin server, once a second: a spin can be requested.
    message SpinImageAvailable = 0x80, 6 bytes {
        length   @ 0: u8,
        /// Of the last message that the spin includes.
        sequence @ 2: u32,
    }

    /// Client: requests the spin that one of the last ten [`SpinImageAvailable`] named.
    message SpinRequest = 0x81, 6 bytes {
        length   @ 0: u8,
        sequence @ 2: u32,
    }

    enum SpinStatus: ascii<1> {
        Accepted = 'A',
        /// No such spin is available.
        OutOfRange = 'O',
        /// The client has not got the last one yet.
        InProgress = 'S',
    }

    /// Spin server: whether the spin will come.
    message SpinResponse = 0x82, 11 bytes {
        length      @ 0: u8,
        sequence    @ 2: u32,
        /// Orders that the spin has.
        order_count @ 6: u32,
        status      @ 10: SpinStatus,
    }

    /// Spin server: the spin is whole.
    message SpinFinished = 0x83, 6 bytes {
        length   @ 0: u8,
        /// Of the last message that the spin includes.
        sequence @ 2: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_response_are_little_endian_behind_length_and_type() {
        let request = GapRequestFields { length: 9, unit: 1, sequence: 4_155, count: 50 }.encode();
        assert_eq!(request, *b"\x09\x03\x01\x3b\x10\0\0\x32\0");
        let response = *b"\x0a\x04\x01\x3b\x10\0\0\x32\0O";
        let Message::GapResponse(response) = Message::decode(&response).unwrap() else { panic!() };
        assert_eq!((response.unit(), response.sequence(), response.count()), (1, 4_155, 50));
        assert_eq!(response.status(), GapStatus::OutOfRange);
    }
}
