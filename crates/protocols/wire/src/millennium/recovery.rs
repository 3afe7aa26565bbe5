//! MITCH's replay and recovery channels over TCP: a client requests missed messages, or a snapshot of the books.
//!
//! Source: the public description of the London Stock Exchange's *MIT303 Level 2 MITCH*, "Replay Channel" and "Recovery Channel". Little-endian.
//! Both sides send [unit headers](super::unit) with messages that start with length and type. The messages declared here are in units with no
//! group and number 0; an empty unit is a heartbeat. Requested messages arrive on the same connection: on the replay channel in units with
//! their group and their numbers, on the recovery channel between [`SnapshotResponse`] and [`SnapshotComplete`].
//!
//! Not verified on real packets, and not in the field tables of 11.9. Types, statuses, and the login and replay layouts agree with two other
//! public implementations, except that one has an eight-character password. The snapshot layouts follow the later implementation.

tapeworks_wire_macros::protocol! {
    /// Requests for missed messages and for snapshots of MITCH's feeds, over TCP.
    protocol "lse-mitch-recovery-11.9" {
        title: "LSE MITCH replay and recovery channels 11.9",
        version: "11.9",
        endian: little,
        tag: u8 @ 1,
        length: extensible,
    }

    /// Client: logs in. Texts are filled with blanks.
    message LoginRequest = 0x01, 18 bytes {
        length   @ 0: u8,
        username @ 2: ascii<6>,
        password @ 8: ascii<10>,
    }

    enum LoginStatus: ascii<1> {
        Accepted = 'A',
        InvalidPassword = 'N',
        Locked = 'a',
        LoginLimit = 'b',
        ServiceUnavailable = 'c',
        ConcurrentLimit = 'd',
        Failed = 'e',
    }

    /// Server: the answer to a login.
    message LoginResponse = 0x02, 3 bytes {
        length @ 0: u8,
        status @ 2: LoginStatus,
    }

    /// Client: requests messages of a group again.
    message ReplayRequest = 0x03, 9 bytes {
        length            @ 0: u8,
        market_data_group @ 2: ascii<1>,
        first_message     @ 3: u32,
        count             @ 7: u16,
    }

    enum ReplayStatus: ascii<1> {
        Accepted = 'A',
        RequestLimit = 'D',
        InvalidGroup = 'I',
        OutOfRange = 'O',
        Unavailable = 'U',
        ConcurrentLimit = 'c',
        UnsupportedMessage = 'd',
        Failed = 'e',
    }

    /// Server: whether the messages will come.
    message ReplayResponse = 0x04, 10 bytes {
        length            @ 0: u8,
        market_data_group @ 2: ascii<1>,
        first_message     @ 3: u32,
        count             @ 7: u16,
        status            @ 9: ReplayStatus,
    }

    /// Client: ends the session.
    message LogoutRequest = 0x05, 2 bytes {
        length @ 0: u8,
    }

    enum SnapshotType: u8 {
        OrderBook = 0,
        SymbolStatus = 1,
        Instrument = 2,
        Trades = 3,
        Statistics = 4,
        AuctionInfo = 6,
    }

    /// Client: requests a snapshot.
    message SnapshotRequest = 0x81, 30 bytes {
        length            @ 0 : u8,
        /// The snapshot may be no older than this message.
        sequence_number   @ 2 : u32,
        /// Blank: of all segments.
        segment           @ 6 : ascii<6>,
        /// 0: of all instruments.
        instrument_id     @ 12: u32,
        sub_book          @ 16: u8,
        snapshot_type     @ 17: SnapshotType,
        recover_from_time @ 18: bytes<8>,
        request_id        @ 26: u32,
    }

    enum SnapshotStatus: ascii<1> {
        Accepted = 'A',
        OutOfRange = 'O',
        Unavailable = 'U',
        NoSegmentOrSymbol = 'a',
        RequestLimit = 'b',
        ConcurrentLimit = 'c',
        UnsupportedMessage = 'd',
        Failed = 'e',
    }

    /// Server: whether the snapshot will come.
    message SnapshotResponse = 0x82, 16 bytes {
        length          @ 0 : u8,
        sequence_number @ 2 : u32,
        /// Orders that the snapshot has.
        order_count     @ 6 : u32,
        status          @ 10: SnapshotStatus,
        snapshot_type   @ 11: SnapshotType,
        request_id      @ 12: u32,
    }

    /// Server: the snapshot is whole.
    message SnapshotComplete = 0x83, 24 bytes {
        length          @ 0 : u8,
        /// Of the last message that the snapshot includes.
        sequence_number @ 2 : u32,
        segment         @ 6 : ascii<6>,
        instrument_id   @ 12: u32,
        reserved        @ 16: u8,
        sub_book        @ 17: u8,
        trading_status  @ 18: ascii<1>,
        snapshot_type   @ 19: SnapshotType,
        request_id      @ 20: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ascii;

    #[test]
    fn a_replay_request_and_its_response_are_little_endian_behind_length_and_type() {
        let fields = ReplayRequestFields {
            length: 9,
            market_data_group: Ascii(*b"A"),
            first_message: 4_155,
            count: 50,
        };
        assert_eq!(fields.encode(), *b"\x09\x03A\x3b\x10\0\0\x32\0");
        let response = *b"\x0a\x04A\x3b\x10\0\0\x32\0O";
        let Message::ReplayResponse(response) = Message::decode(&response).unwrap() else { panic!() };
        assert_eq!((response.first_message(), response.count()), (4_155, 50));
        assert_eq!(response.status(), ReplayStatus::OutOfRange);
    }
}
