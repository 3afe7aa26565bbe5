//! Connections to the Gap Request Proxy and the Spin server, and their login.

use tapeworks_wire::cboe::grp::{Login, LoginFields, LoginResponse, LoginResponseFields, LoginStatus};

use crate::dialect::{Connection, LoginLimits, RequestLogin, padded};
use crate::protocols::RequestProtocol;
use crate::transport::SessionId;
use crate::units::tcp;

const LIMITS: LoginLimits = LoginLimits { sub_id: 4, user: 4, password: 10 };

/// The longest packet is far longer than any message of these servers, which have at most 22 bytes.
pub(super) const CONNECTION: Connection = tcp::connection(512, LIMITS, login);

fn login([sub_id, user, password]: [&[u8]; 3], _session: Option<&SessionId>) -> Vec<u8> {
    let fields = LoginFields {
        length: Login::LENGTH as u8,
        session_sub_id: padded(sub_id),
        username: padded(user),
        filler: padded(b""),
        password: padded(password),
    };
    tcp::packet(&fields.encode())
}

/// Builds the answer to a login.
pub(super) fn answer(is_known: bool) -> [u8; LoginResponse::LENGTH] {
    let status = if is_known { LoginStatus::Accepted } else { LoginStatus::NotAuthorised };
    LoginResponseFields { length: LoginResponse::LENGTH as u8, status }.encode()
}

impl RequestLogin {
    /// Creates a user of Cboe's Gap Request Proxy.
    ///
    /// Returns `None` if the sub-id or name has more than 4 characters, the password has more than 10, or one contains
    /// anything but printable ASCII.
    #[must_use]
    pub fn grp(sub_id: &str, user: &str, password: &str) -> Option<Self> {
        Self::new(RequestProtocol::Grp, &CONNECTION, [sub_id, user, password])
    }
}
