//! GLIMPSE: SoupBinTCP that sends a snapshot after the login. Simulated venues without snapshots of their own use it too.

use tapeworks_wire::nasdaq::glimpse50::EndOfSnapshotFields;
use tapeworks_wire::nasdaq::soupbintcp::{
    ClientHeartbeat, EndOfSession, LoginRequest, LoginRequestFields, LogoutRequest, Message, Packets,
    RejectReasonCode, SequencedData, ServerHeartbeat,
};
use tapeworks_wire::{Ascii, AsciiNumber};

use crate::dialect::connection::{Asked, Connection, LoginLimits, SECOND_NS, padded, whole};
use crate::dialect::snapshots::{
    Answer, Conversation, Flow, Image, SnapshotDialect, SnapshotFailure, SnapshotRules, Step,
};
use crate::login::{Credentials, LONGEST_PACKET_BYTES, accepted, is_known, is_session, rejected};
use crate::transport::SessionId;

const CONNECTION: Connection = Connection {
    header_bytes: 2,
    longest_bytes: LONGEST_PACKET_BYTES,
    accepts_longer: true,
    packet_bytes,
    each_message: whole,
    packet: |message, _, _| message.to_vec(),
    heartbeat: &[0, 1, ClientHeartbeat::TAG],
    limits: LoginLimits { user: 6, password: 10, ..LoginLimits::NONE },
    login,
};

pub(crate) static SNAPSHOTS: SnapshotRules = SnapshotRules {
    silence_ns: 15 * SECOND_NS,
    farewell: &[0, 1, LogoutRequest::TAG],
    server_heartbeat: &[0, 1, ServerHeartbeat::TAG],
    ..SnapshotRules::new(&CONNECTION, Flow::AtLogin, &Glimpse)
};

fn packet_bytes(start: &[u8]) -> Option<usize> {
    start.first_chunk::<2>().map(|length| 2 + usize::from(u16::from_be_bytes(*length)))
}

fn login([_, user, password]: [&[u8]; 3], session: Option<&SessionId>) -> Vec<u8> {
    let fields = LoginRequestFields {
        packet_length: 47,
        username: padded(user),
        password: padded(password),
        requested_session: session.map_or(Ascii([b' '; 10]), SessionId::login_name),
        // A number has at most 20 digits.
        requested_sequence_number: AsciiNumber::new(1).unwrap_or(AsciiNumber([b' '; 20])),
    };
    fields.encode().to_vec()
}

/// Parses the End of Snapshot: `G`, and the number of the first live message that the snapshot does not include.
fn end_of_snapshot(message: &[u8]) -> Option<u64> {
    let (b'G', digits) = message.split_first()? else { return None };
    AsciiNumber(*<&[u8; 20]>::try_from(digits).ok()?).value()
}

pub(crate) struct Glimpse;

impl SnapshotDialect for Glimpse {
    fn frame(&self, image: &mut Image, message: &[u8]) {
        // The length includes the type. No message is longer than MAX_MESSAGE_BYTES.
        let length = 1 + message.len() as u16;
        image.packets.extend_from_slice(&length.to_be_bytes());
        image.packets.push(SequencedData::TAG);
        image.packets.extend_from_slice(message);
    }

    fn finish(&self, image: &mut Image) {
        // A 64-bit number has at most 20 digits.
        let sequence_number = AsciiNumber::new(image.next).unwrap_or(AsciiNumber([b' '; 20]));
        self.frame(image, &EndOfSnapshotFields { sequence_number }.encode());
        image.packets.extend_from_slice(&[0, 1, EndOfSession::TAG]);
    }

    fn fetch(&self, client: &mut Conversation) -> Result<Option<Step>, SnapshotFailure> {
        while let Some(range) = client.input.next_packet(&CONNECTION) {
            match Message::decode(client.input.get(range.clone())) {
                Ok(Message::SequencedData(data)) => {
                    let message = data.message();
                    let step = match end_of_snapshot(message) {
                        Some(next) => Step::End(next),
                        None => Step::Message(range.end - message.len()..range.end),
                    };
                    return Ok(Some(step));
                }
                Ok(Message::LoginRejected(_)) => return Err(SnapshotFailure::LoginRejected),
                Ok(Message::LoginAccepted(accepted)) => {
                    let (named, wanted) = (accepted.session().0, client.session.login_name().0);
                    SnapshotFailure::OtherSession.unless(
                        wanted.trim_ascii().is_empty() || named.trim_ascii() == wanted.trim_ascii(),
                    )?;
                }
                Ok(Message::EndOfSession(_)) => return Err(SnapshotFailure::Ended),
                Ok(_) => {}
                Err(_) => return Err(SnapshotFailure::Malformed),
            }
        }
        Ok(None)
    }

    fn asked(&self, message: &[u8], admitted: Option<&Credentials>) -> Asked<Result<(), Vec<u8>>> {
        match Message::decode(message) {
            Ok(Message::LoginRequest(login)) => {
                Asked::Login(is_known(admitted, &login.username().0, &login.password().0))
            }
            Ok(Message::ClientHeartbeat(_) | Message::Debug(_) | Message::UnsequencedData(_)) => {
                Asked::Nothing
            }
            Ok(Message::LogoutRequest(_)) => Asked::Logout,
            _ => Asked::Unexpected,
        }
    }

    /// The image answers an accepted login.
    fn login_answer(&self, is_known: bool) -> Vec<u8> {
        if is_known { Vec::new() } else { rejected(RejectReasonCode::NotAuthorised).to_vec() }
    }

    fn answer(&self, image: &Image, message: &[u8]) -> Answer {
        let requested = LoginRequest::decode(message).map_or([b' '; 10], |login| login.requested_session().0);
        let session = image.session.login_name().0;
        if image.is_for_any_session || is_session(&requested, &session) {
            Answer::Accept(accepted(session, 1).to_vec())
        } else {
            Answer::Reject(rejected(RejectReasonCode::SessionNotAvailable).to_vec())
        }
    }
}

impl Image {
    /// Passes on each message of an image that is framed like GLIMPSE.
    pub(crate) fn each_message(&self, mut each: impl FnMut(&[u8])) {
        let packets = Packets::new(&self.packets).filter_map(Result::ok);
        for packet in packets.take(usize::try_from(self.messages).unwrap_or(usize::MAX)) {
            packet.get(3..).into_iter().for_each(&mut each);
        }
    }
}
