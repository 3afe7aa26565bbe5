//! Snapshots: a replay of all messages that stand for the running session.

use tapeworks_wire::NanosecondsSinceEpoch;
use tapeworks_wire::memx::depth13;
use tapeworks_wire::memx::tcp::{
    HEADER_BYTES, Message, ReplayAllRequest, ReplayAllRequestFields, ReplayRejectCode, RequestMode,
};

use super::CONNECTION;
use crate::dialect::connection::Asked;
use crate::dialect::snapshots::{
    Answer, Conversation, Flow, Image, SnapshotDialect, SnapshotFailure, SnapshotRules, State, Step,
};
use crate::login::{Credentials, is_known};
use crate::transport::SessionId;

/// The start of the session is the offer.
pub(crate) static SNAPSHOTS: SnapshotRules =
    SnapshotRules::new(&CONNECTION, Flow::Offered { is_repeated: false }, &Snapshots);

struct Snapshots;

impl SnapshotDialect for Snapshots {
    fn frame(&self, image: &mut Image, message: &[u8]) {
        super::append_sequenced(message, &mut image.packets);
    }

    fn finish(&self, image: &mut Image) {
        let fields = depth13::SnapshotCompleteFields {
            // The block follows a six-byte header.
            block_length: (depth13::SnapshotComplete::LENGTH - 6) as u16,
            schema_id: depth13::SCHEMA_ID,
            version: depth13::VERSION,
            timestamp: NanosecondsSinceEpoch(image.time_ns),
            as_of_sequence_number: image.next.saturating_sub(1),
        };
        super::append_sequenced(&fields.encode(), &mut image.packets);
        image.packets.extend_from_slice(&super::complete(image.messages + 1));
    }

    fn fetch(&self, client: &mut Conversation) -> Result<Option<Step>, SnapshotFailure> {
        while let Some(range) = client.input.next_packet(&CONNECTION) {
            let packet = client.input.get(range.clone());
            match (Message::decode(packet).map_err(|_| SnapshotFailure::Malformed)?, client.state) {
                (Message::Heartbeat(_), _) => {}
                (Message::LoginAccepted(accepted), State::LoggingIn) => {
                    SnapshotFailure::LoginRejected
                        .unless(accepted.supported_request_mode() == RequestMode::Snapshot)?;
                    client.state = State::Waiting;
                }
                (Message::LoginRejected(_), State::LoggingIn) => return Err(SnapshotFailure::LoginRejected),
                (Message::StartOfSession(start), State::Waiting) => {
                    let session_id = start.session_id();
                    SnapshotFailure::OtherSession.unless(client.session == SessionId::Memoir(session_id))?;
                    let message_length = super::length(ReplayAllRequest::LENGTH);
                    let fields = ReplayAllRequestFields { message_length, session_id };
                    client.output.extend_from_slice(&fields.encode());
                    client.state = State::Requested(0);
                }
                (Message::EndOfSession(_), _) => return Err(SnapshotFailure::Ended),
                (Message::ReplayRejected(_), State::Requested(_)) => return Err(SnapshotFailure::Refused),
                (Message::ReplayBegin(begin), State::Requested(_)) => {
                    client.state = State::Receiving { sequence: 0, orders: begin.pending_message_count() };
                }
                (Message::SequencedMessage(m), State::Receiving { orders, sequence }) => {
                    let orders = orders.checked_sub(1).ok_or(SnapshotFailure::Torn)?;
                    match depth13::Message::decode(m.message()) {
                        Ok(depth13::Message::SnapshotComplete(complete)) if orders == 0 => {
                            client.state = State::Complete(complete.as_of_sequence_number());
                        }
                        Ok(depth13::Message::SnapshotComplete(_)) => return Err(SnapshotFailure::Torn),
                        _ => {
                            client.state = State::Receiving { orders, sequence };
                            return Ok(Some(Step::Message(range.start + HEADER_BYTES..range.end)));
                        }
                    }
                }
                (Message::ReplayComplete(_), State::Complete(last)) => {
                    return Ok(Some(Step::End(last.saturating_add(1))));
                }
                (Message::ReplayComplete(_), State::Receiving { .. }) => return Err(SnapshotFailure::Torn),
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
        Ok(None)
    }

    fn asked(&self, message: &[u8], admitted: Option<&Credentials>) -> Asked<Result<(), Vec<u8>>> {
        match Message::decode(message) {
            Ok(Message::Heartbeat(_)) => Asked::Nothing,
            Ok(Message::LoginRequest(login)) => {
                let (user, password) = super::split_token(login.token());
                Asked::Login(is_known(admitted, user, password))
            }
            Ok(Message::ReplayAllRequest(_)) => Asked::Request(Ok(())),
            _ => Asked::Unexpected,
        }
    }

    /// An accepted login is answered by the offer.
    fn login_answer(&self, is_known: bool) -> Vec<u8> {
        if is_known { Vec::new() } else { super::rejected() }
    }

    fn offer(&self, image: &Image) -> Vec<u8> {
        super::accepted(RequestMode::Snapshot, Some(image.session))
    }

    fn answer(&self, image: &Image, message: &[u8]) -> Answer {
        let wanted = ReplayAllRequest::decode(message).map(|request| SessionId::Memoir(request.session_id()));
        if wanted != Ok(image.session) {
            return Answer::Reject(super::request_rejected(ReplayRejectCode::NotTheActiveSession));
        }
        // Includes the end of the snapshot.
        let count = u32::try_from(image.messages + 1).unwrap_or(u32::MAX);
        Answer::Accept(super::begin(1, count).to_vec())
    }
}
