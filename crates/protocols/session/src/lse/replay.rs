//! The replay channel.

use tapeworks_wire::Ascii;
use tapeworks_wire::millennium::recovery::{
    LoginStatus, Message, ReplayRequest, ReplayRequestFields, ReplayResponse, ReplayResponseFields,
    ReplayStatus,
};

use super::CONNECTION;
use crate::dialect::connection::Asked;
use crate::dialect::requests::{
    Heard, RequestAsked, RequestDialect, RequestLogin, RequestRules, RequestStatus, Statuses, Taken,
};
use crate::protocols::RequestProtocol;
use crate::transport::{Request, SessionId};

pub(crate) static REQUESTS: RequestRules = RequestRules::new(&CONNECTION, &Replay);

/// The statuses of the replay channel.
pub(crate) const STATUSES: Statuses<ReplayStatus> = Statuses {
    pairs: &[
        (RequestStatus::Accepted, ReplayStatus::Accepted),
        (RequestStatus::OutOfRange, ReplayStatus::OutOfRange),
        (RequestStatus::DayQuota, ReplayStatus::RequestLimit),
        (RequestStatus::SecondQuota, ReplayStatus::ConcurrentLimit),
        (RequestStatus::MinuteQuota, ReplayStatus::ConcurrentLimit),
        (RequestStatus::InvalidChannel, ReplayStatus::InvalidGroup),
        (RequestStatus::InvalidProduct, ReplayStatus::InvalidGroup),
        (RequestStatus::InvalidSource, ReplayStatus::InvalidGroup),
        (RequestStatus::Unavailable, ReplayStatus::Unavailable),
        (RequestStatus::InvalidMessage, ReplayStatus::UnsupportedMessage),
    ],
    other: ReplayStatus::Failed,
};

struct Replay;

impl RequestDialect for Replay {
    fn request(&self, _login: &RequestLogin, request: &Request) -> Option<Vec<u8>> {
        let SessionId::MitchUnit(group) = request.session else { return None };
        let fields = ReplayRequestFields {
            length: ReplayRequest::LENGTH as u8,
            market_data_group: Ascii([group]),
            first_message: request.first as u32,
            count: request.count,
        };
        Some(fields.encode().to_vec())
    }

    fn heard<'a>(&self, message: &'a [u8]) -> Heard<'a> {
        match Message::decode(message) {
            Ok(Message::LoginResponse(response)) => {
                Heard::LoggedIn(response.status() == LoginStatus::Accepted)
            }
            Ok(Message::ReplayResponse(response)) => {
                let first = u64::from(response.first_message());
                let [group] = response.market_data_group().0;
                Heard::Response {
                    session: SessionId::MitchUnit(group),
                    numbers: first..first.saturating_add(u64::from(response.count())),
                    status: STATUSES.ours(response.status()),
                }
            }
            _ => Heard::Unexpected,
        }
    }

    /// Number 0 marks the server's own messages; any other is the number of a requested message.
    fn is_answer(&self, packet: &[u8]) -> bool {
        packet.get(4..8).is_some_and(|number| number != [0; 4])
    }

    fn asked(&self, message: &[u8], admitted: Option<&RequestLogin>) -> Asked<RequestAsked> {
        match Message::decode(message) {
            Ok(Message::LoginRequest(login)) => {
                let (user, password) = (login.username(), login.password());
                let texts = [b"", user.trimmed(), password.trimmed()];
                Asked::Login(admitted.is_none_or(|known| known.admits(RequestProtocol::Mitch, texts)))
            }
            Ok(Message::ReplayRequest(request)) => {
                let [group] = request.market_data_group().0;
                let (first, count) = (u64::from(request.first_message()), request.count());
                Asked::Request((Request { session: SessionId::MitchUnit(group), first, count }, None))
            }
            Ok(Message::LogoutRequest(_)) => Asked::Logout,
            _ => Asked::Unexpected,
        }
    }

    fn login_answer(&self, is_known: bool, _session: Option<SessionId>) -> Vec<u8> {
        super::answer(is_known).to_vec()
    }

    fn response(&self, taken: &Taken, status: RequestStatus) -> Option<Vec<u8>> {
        let Request { session, first, count } = taken.request;
        let SessionId::MitchUnit(group) = session else { return None };
        let fields = ReplayResponseFields {
            length: ReplayResponse::LENGTH as u8,
            market_data_group: Ascii([group]),
            first_message: first as u32,
            count,
            status: STATUSES.theirs(status),
        };
        Some(fields.encode().to_vec())
    }

    fn replay(&self, _request: &Request, packets: &[Vec<u8>]) -> Vec<u8> {
        packets.concat()
    }
}
