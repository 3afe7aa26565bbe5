//! Gap fills: a replay of the requested messages over the connection.

use tapeworks_wire::memx::tcp::{Message, ReplayRejectCode, ReplayRequest, ReplayRequestFields, RequestMode};

use super::CONNECTION;
use super::memoir::Memoir;
use crate::dialect::connection::Asked;
use crate::dialect::requests::{
    Heard, RequestAsked, RequestDialect, RequestLogin, RequestRules, RequestStatus, Statuses, Taken,
};
use crate::transport::{Request, SessionId, Transport};

pub(crate) static REQUESTS: RequestRules =
    RequestRules { last_number: u64::MAX, ..RequestRules::new(&CONNECTION, &GapFill) };

/// The reject codes of gap fills. An accepted request is answered by messages instead.
pub(crate) const STATUSES: Statuses<ReplayRejectCode> = Statuses {
    pairs: &[
        (RequestStatus::InvalidChannel, ReplayRejectCode::NotTheActiveSession),
        (RequestStatus::InvalidProduct, ReplayRejectCode::NotTheActiveSession),
        (RequestStatus::InvalidSource, ReplayRejectCode::NotTheActiveSession),
        (RequestStatus::OutOfRange, ReplayRejectCode::OutOfRange),
        (RequestStatus::Unavailable, ReplayRejectCode::OutOfRange),
        (RequestStatus::TooLong, ReplayRejectCode::OutOfRange),
        (RequestStatus::InvalidMessage, ReplayRejectCode::ReplayNotAllowed),
        (RequestStatus::InvalidMessage, ReplayRejectCode::ReplayAllNotAllowed),
    ],
    other: ReplayRejectCode::ReplayNotAllowed,
};

struct GapFill;

impl RequestDialect for GapFill {
    fn request(&self, _login: &RequestLogin, request: &Request) -> Option<Vec<u8>> {
        let SessionId::Memoir(session_id) = request.session else { return None };
        let fields = ReplayRequestFields {
            message_length: super::length(ReplayRequest::LENGTH),
            session_id,
            next_sequence_number: request.first,
            count: u32::from(request.count),
        };
        Some(fields.encode().to_vec())
    }

    fn heard<'a>(&self, message: &'a [u8]) -> Heard<'a> {
        match Message::decode(message) {
            Ok(Message::Heartbeat(_) | Message::StartOfSession(_)) => Heard::Nothing,
            Ok(Message::LoginAccepted(accepted)) => {
                Heard::LoggedIn(accepted.supported_request_mode() == RequestMode::Replay)
            }
            Ok(Message::LoginRejected(_)) => Heard::LoggedIn(false),
            Ok(Message::EndOfSession(_)) => Heard::Closed,
            Ok(Message::ReplayBegin(begin)) => Heard::ReplayBegin(begin.next_sequence_number()),
            Ok(Message::SequencedMessage(sequenced)) => Heard::Replayed(sequenced.message()),
            Ok(Message::ReplayComplete(_)) => Heard::ReplayComplete,
            Ok(Message::ReplayRejected(rejected)) => {
                Heard::ReplayRefused(STATUSES.ours(rejected.replay_reject_code()))
            }
            _ => Heard::Unexpected,
        }
    }

    fn asked(&self, message: &[u8], admitted: Option<&RequestLogin>) -> Asked<RequestAsked> {
        match Message::decode(message) {
            Ok(Message::Heartbeat(_)) => Asked::Nothing,
            Ok(Message::LoginRequest(login)) => {
                Asked::Login(admitted.is_none_or(|known| super::admits(known, login.token())))
            }
            Ok(Message::ReplayRequest(request)) => {
                let count = u16::try_from(request.count()).ok();
                let (session, first) =
                    (SessionId::Memoir(request.session_id()), request.next_sequence_number());
                let request = Request { session, first, count: count.unwrap_or_default() };
                Asked::Request((request, count.is_none().then_some(RequestStatus::TooLong)))
            }
            _ => Asked::Unexpected,
        }
    }

    fn login_answer(&self, is_known: bool, session: Option<SessionId>) -> Vec<u8> {
        if is_known { super::accepted(RequestMode::Replay, session) } else { super::rejected() }
    }

    /// An accepted request is answered by the messages alone.
    fn response(&self, _taken: &Taken, status: RequestStatus) -> Option<Vec<u8>> {
        (status != RequestStatus::Accepted).then(|| super::request_rejected(STATUSES.theirs(status)))
    }

    fn replay(&self, request: &Request, packets: &[Vec<u8>]) -> Vec<u8> {
        let (mut messages, mut count) = (Vec::new(), 0);
        let header = |packet: &Vec<u8>| Memoir::packet(packet).ok().map(|packet| packet.header);
        let first = packets.first().and_then(header).map_or(request.first, |header| header.first);
        for packet in packets.iter().map_while(|packet| Memoir::packet(packet).ok()) {
            // Messages have no number here: each is the next one.
            if packet.header.first != first + u64::from(count) {
                break;
            }
            for message in packet.blocks.filter_map(Result::ok) {
                count += 1;
                super::append_sequenced(message, &mut messages);
            }
        }
        [&super::begin(first, count)[..], &messages, &super::complete(u64::from(count))].concat()
    }
}
