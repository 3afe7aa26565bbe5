//! MEMX-TCP: MEMX's sessions over TCP, including MEMOIR's gap fill and snapshots.
//!
//! Source: the public definitions of MEMX's *MEMO* 1.6, common header and session messages, and MEMX's public FAQ, which says that MEMOIR's
//! gap recovery uses replay mode. Big-endian. A 3-byte header contains the type and the length of the rest.
//!
//! Not verified on real packets, and not in the field tables of MEMOIR Depth 1.3. The definitions do not say what the length counts or how to
//! request a snapshot. This crate assumes that it counts the bytes after the header, and that a snapshot is all messages in snapshot mode.

tapeworks_wire_macros::protocol! {
    /// MEMX's sessions over TCP.
    protocol "memx-tcp-1.6" {
        title: "MEMX-TCP 1.6",
        version: "1.6",
        endian: big,
        tag: u8 @ 0,
        length: extensible,
    }

    /// Either side, after a second without another message.
    message Heartbeat = 0, 3 bytes {
        message_length @ 1: u16,
    }

    enum RequestMode: ascii<1> {
        Stream = 'S',
        Replay = 'R',
        Snapshot = 'T',
    }

    /// Server: the login is accepted.
    message LoginAccepted = 1, 4 bytes {
        message_length         @ 1: u16,
        supported_request_mode @ 3: RequestMode,
    }

    enum LoginRejectCode: ascii<1> {
        MalformedToken = 'T',
        TokenTypeUnsupported = 'U',
        TokenTypeInvalid = 'V',
        AuthorizationFailed = 'A',
    }

    /// Server: the login is rejected.
    message LoginRejected = 2, 4 bytes {
        message_length    @ 1: u16,
        login_reject_code @ 3: LoginRejectCode,
    }

    /// Server: which session runs.
    message StartOfSession = 3, 11 bytes {
        message_length @ 1: u16,
        session_id     @ 3: u64,
    }

    /// Server: the session is over.
    message EndOfSession = 4, 3 bytes {
        message_length @ 1: u16,
    }

    /// Server: the requested messages follow.
    message ReplayBegin = 5, 15 bytes {
        message_length        @ 1 : u16,
        next_sequence_number  @ 3 : u64,
        pending_message_count @ 11: u32,
    }

    enum ReplayRejectCode: ascii<1> {
        ReplayNotAllowed = 'R',
        ReplayAllNotAllowed = 'A',
        NotTheActiveSession = 'P',
        OutOfRange = 'S',
    }

    /// Server: the requested messages do not come.
    message ReplayRejected = 6, 4 bytes {
        message_length     @ 1: u16,
        replay_reject_code @ 3: ReplayRejectCode,
    }

    /// Server: the requested messages were sent.
    message ReplayComplete = 7, 11 bytes {
        message_length @ 1: u16,
        message_count  @ 3: u64,
    }

    /// Server: a message of the feed.
    message SequencedMessage = 11, 3.. bytes {
        message_length @ 1: u16,
        message        @ 3: rest,
    }

    enum TokenType: ascii<1> {
        Plain = 'P',
    }

    /// Client: logs in. The token is `USER:PASSWORD`.
    message LoginRequest = 100, 4.. bytes {
        message_length @ 1: u16,
        token_type     @ 3: TokenType,
        token          @ 4: rest,
    }

    /// Client: requests messages of a session again.
    message ReplayRequest = 101, 23 bytes {
        message_length       @ 1 : u16,
        session_id           @ 3 : u64,
        next_sequence_number @ 11: u64,
        count                @ 19: u32,
    }

    /// Client: requests all messages.
    message ReplayAllRequest = 102, 11 bytes {
        message_length @ 1: u16,
        session_id     @ 3: u64,
    }
}

/// Length of the header in bytes, which the length field excludes.
pub const HEADER_BYTES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_request_is_big_endian_behind_type_and_length() {
        let fields =
            ReplayRequestFields { message_length: 20, session_id: 7, next_sequence_number: 258, count: 9 };
        assert_eq!(fields.encode(), *b"\x65\0\x14\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\x01\x02\0\0\0\x09");
        let Message::SequencedMessage(m) = Message::decode(b"\x0b\0\x02ab").unwrap() else { panic!() };
        assert_eq!(m.message(), b"ab");
    }
}
