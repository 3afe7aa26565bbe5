//! The request server.

use tapeworks_wire::Ascii;
use tapeworks_wire::nyse::integrated::{
    HeartbeatResponse, HeartbeatResponseFields, RequestResponse, RequestResponseFields,
    RequestStatus as Status, RetransmissionRequest, RetransmissionRequestFields,
};

use super::packets::{self, CONNECTION};
use crate::dialect::connection::{Asked, SECOND_NS};
use crate::dialect::requests::{
    Heard, RequestAsked, RequestDialect, RequestLogin, RequestRules, RequestStatus, ServerLimits, Statuses,
    Taken,
};
use crate::protocols::RequestProtocol;
use crate::transport::{Request, SessionId};

const USUAL: RequestRules = RequestRules::new(&CONNECTION, &Requests);

pub(crate) static REQUESTS: RequestRules = RequestRules {
    has_login: false,
    answers_to_group: true,
    limits: ServerLimits { per_day: 5_000, ..USUAL.limits },
    heartbeat_ns: 60 * SECOND_NS,
    silence_ns: 125 * SECOND_NS,
    ..USUAL
};

/// Returns the source of a client, filled with NUL.
pub(super) fn source(login: &RequestLogin) -> Ascii<10> {
    let mut source = Ascii([0; 10]);
    source.0.iter_mut().zip(login.user.trimmed()).for_each(|(to, from)| *to = *from);
    source
}

/// The statuses of the request server.
pub(crate) const STATUSES: Statuses<Status> = Statuses {
    pairs: &[
        (RequestStatus::Accepted, Status::Accepted),
        (RequestStatus::OutOfRange, Status::TooOld),
        (RequestStatus::Unavailable, Status::TooOld),
        (RequestStatus::TooLong, Status::RangeTooLong),
        (RequestStatus::DayQuota, Status::TooManyRequests),
        (RequestStatus::SecondQuota, Status::TooManyRequests),
        (RequestStatus::MinuteQuota, Status::TooManyRequests),
        (RequestStatus::DayQuota, Status::TooManyRefreshRequests),
        (RequestStatus::InvalidChannel, Status::InvalidChannel),
        (RequestStatus::InvalidProduct, Status::InvalidProduct),
        (RequestStatus::InvalidSource, Status::InvalidSource),
        (RequestStatus::InvalidMessage, Status::InvalidMessage),
    ],
    other: Status::InvalidMessage,
};

struct Requests;

impl RequestDialect for Requests {
    fn request(&self, login: &RequestLogin, request: &Request) -> Option<Vec<u8>> {
        let begin_sequence = request.first as u32;
        let fields = RetransmissionRequestFields {
            length: RetransmissionRequest::LENGTH as u16,
            begin_sequence,
            end_sequence: begin_sequence.saturating_add(u32::from(request.count).saturating_sub(1)),
            source_id: source(login),
            product_id: login.product,
            channel_id: login.channel,
        };
        Some(fields.encode().to_vec())
    }

    fn heard<'a>(&self, message: &'a [u8]) -> Heard<'a> {
        match RequestResponse::decode(message) {
            Ok(response) if packets::tag(message) == RequestResponse::TAG => Heard::Response {
                session: SessionId::Pillar,
                numbers: u64::from(response.begin_sequence())
                    ..u64::from(response.end_sequence()).saturating_add(1),
                status: STATUSES.ours(response.status()),
            },
            _ => Heard::Unexpected,
        }
    }

    /// The server closes the connection of a client that does not answer its heartbeats.
    fn heartbeat_answer(&self, packet: &[u8], login: &RequestLogin) -> Option<Vec<u8>> {
        let length = HeartbeatResponse::LENGTH as u16;
        let answer = HeartbeatResponseFields { length, source_id: source(login) };
        packets::is_heartbeat(packet).then(|| answer.encode().to_vec())
    }

    fn packet_number(&self, packet: &[u8]) -> u32 {
        packets::number(packet).unwrap_or_default()
    }

    fn asked(&self, message: &[u8], admitted: Option<&RequestLogin>) -> Asked<RequestAsked> {
        let tag = packets::tag(message);
        if tag == HeartbeatResponse::TAG && HeartbeatResponse::decode(message).is_ok() {
            return Asked::Nothing;
        }
        let Some(request) =
            RetransmissionRequest::decode(message).ok().filter(|_| tag == RetransmissionRequest::TAG)
        else {
            return Asked::Unexpected;
        };
        let (begin, end) = (request.begin_sequence(), request.end_sequence());
        let count = end.checked_sub(begin).and_then(|more| u16::try_from(more.checked_add(1)?).ok());
        let known = admitted.filter(|known| known.protocol == RequestProtocol::Pillar);
        let refused = match (count, known) {
            (_, Some(known)) if source(known).trimmed() != request.source_id().trimmed() => {
                Some(RequestStatus::InvalidSource)
            }
            (_, Some(known)) if known.product != request.product_id() => Some(RequestStatus::InvalidProduct),
            (_, Some(known)) if known.channel != request.channel_id() => Some(RequestStatus::InvalidChannel),
            (None, _) if end < begin => Some(RequestStatus::InvalidMessage),
            (None, _) => Some(RequestStatus::TooLong),
            (Some(_), _) => None,
        };
        let (first, count) = (u64::from(begin), count.unwrap_or_default());
        Asked::Request((Request { session: SessionId::Pillar, first, count }, refused))
    }

    /// The response repeats the request.
    fn response(&self, taken: &Taken, status: RequestStatus) -> Option<Vec<u8>> {
        let request = RetransmissionRequest::decode(&taken.message).ok()?;
        let fields = RequestResponseFields {
            length: RequestResponse::LENGTH as u16,
            request_sequence: taken.packet_number,
            begin_sequence: request.begin_sequence(),
            end_sequence: request.end_sequence(),
            source_id: request.source_id(),
            product_id: request.product_id(),
            channel_id: request.channel_id(),
            status: STATUSES.theirs(status),
        };
        Some(fields.encode().to_vec())
    }
}
