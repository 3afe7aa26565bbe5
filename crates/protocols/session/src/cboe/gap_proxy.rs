//! The Gap Request Proxy.

use tapeworks_wire::cboe::grp::{
    GapRequest, GapRequestFields, GapResponse, GapResponseFields, GapStatus, LoginStatus, Message,
};

use super::CONNECTION;
use crate::dialect::connection::Asked;
use crate::dialect::requests::{
    Heard, RequestAsked, RequestDialect, RequestLogin, RequestRules, RequestStatus, ServerLimits, Statuses,
    Taken,
};
use crate::protocols::RequestProtocol;
use crate::transport::{Request, SessionId};

pub(crate) static REQUESTS: RequestRules = RequestRules {
    answers_to_group: true,
    limits: ServerLimits { messages: 100, per_second: 320, per_minute: 1_500, per_day: 100_000 },
    ..RequestRules::new(&CONNECTION, &GapProxy)
};

/// The statuses of the Gap Request Proxy.
pub(crate) const STATUSES: Statuses<GapStatus> = Statuses {
    pairs: &[
        (RequestStatus::Accepted, GapStatus::Accepted),
        (RequestStatus::OutOfRange, GapStatus::OutOfRange),
        (RequestStatus::TooLong, GapStatus::CountLimit),
        (RequestStatus::SecondQuota, GapStatus::SecondQuota),
        (RequestStatus::MinuteQuota, GapStatus::MinuteQuota),
        (RequestStatus::DayQuota, GapStatus::DailyQuota),
        (RequestStatus::InvalidChannel, GapStatus::InvalidUnit),
        (RequestStatus::InvalidProduct, GapStatus::InvalidUnit),
        (RequestStatus::InvalidSource, GapStatus::InvalidUnit),
        (RequestStatus::Unavailable, GapStatus::UnitUnavailable),
    ],
    other: GapStatus::UnitUnavailable,
};

struct GapProxy;

impl RequestDialect for GapProxy {
    fn request(&self, _login: &RequestLogin, request: &Request) -> Option<Vec<u8>> {
        let SessionId::CboeUnit(unit) = request.session else { return None };
        let (length, sequence) = (GapRequest::LENGTH as u8, request.first as u32);
        Some(GapRequestFields { length, unit, sequence, count: request.count }.encode().to_vec())
    }

    fn heard<'a>(&self, message: &'a [u8]) -> Heard<'a> {
        match Message::decode(message) {
            Ok(Message::LoginResponse(response)) => {
                Heard::LoggedIn(response.status() == LoginStatus::Accepted)
            }
            Ok(Message::GapResponse(response)) => {
                let first = u64::from(response.sequence());
                Heard::Response {
                    session: SessionId::CboeUnit(response.unit()),
                    numbers: first..first.saturating_add(u64::from(response.count())),
                    status: STATUSES.ours(response.status()),
                }
            }
            _ => Heard::Unexpected,
        }
    }

    fn asked(&self, message: &[u8], admitted: Option<&RequestLogin>) -> Asked<RequestAsked> {
        match Message::decode(message) {
            Ok(Message::Login(login)) => {
                let (sub_id, user) = (login.session_sub_id(), login.username());
                let password = login.password();
                let texts = [sub_id.trimmed(), user.trimmed(), password.trimmed()];
                Asked::Login(admitted.is_none_or(|known| known.admits(RequestProtocol::Grp, texts)))
            }
            Ok(Message::GapRequest(request)) => {
                let session = SessionId::CboeUnit(request.unit());
                let first = u64::from(request.sequence());
                Asked::Request((Request { session, first, count: request.count() }, None))
            }
            _ => Asked::Unexpected,
        }
    }

    fn login_answer(&self, is_known: bool, _session: Option<SessionId>) -> Vec<u8> {
        super::answer(is_known).to_vec()
    }

    fn response(&self, taken: &Taken, status: RequestStatus) -> Option<Vec<u8>> {
        let Request { session, first, count } = taken.request;
        let SessionId::CboeUnit(unit) = session else { return None };
        let (length, sequence, status) = (GapResponse::LENGTH as u8, first as u32, STATUSES.theirs(status));
        Some(GapResponseFields { length, unit, sequence, count, status }.encode().to_vec())
    }
}
