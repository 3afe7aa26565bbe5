//! Connections to the replay channel and the recovery channel, and their login.

use tapeworks_wire::millennium::recovery::{
    LoginRequest, LoginRequestFields, LoginResponse, LoginResponseFields, LoginStatus,
};

use crate::dialect::{Connection, LoginLimits, RequestLogin, padded};
use crate::protocols::RequestProtocol;
use crate::transport::SessionId;
use crate::units::tcp;

const LIMITS: LoginLimits = LoginLimits { sub_id: 0, user: 6, password: 10 };

/// The longest packet includes requested messages.
pub(super) const CONNECTION: Connection = tcp::connection(2_048, LIMITS, login);

fn login([_, user, password]: [&[u8]; 3], _session: Option<&SessionId>) -> Vec<u8> {
    let length = LoginRequest::LENGTH as u8;
    let fields = LoginRequestFields { length, username: padded(user), password: padded(password) };
    tcp::packet(&fields.encode())
}

/// Builds the answer to a login.
pub(super) fn answer(is_known: bool) -> [u8; LoginResponse::LENGTH] {
    let status = if is_known { LoginStatus::Accepted } else { LoginStatus::InvalidPassword };
    LoginResponseFields { length: LoginResponse::LENGTH as u8, status }.encode()
}

impl RequestLogin {
    /// Creates a user of MITCH's replay channel.
    ///
    /// Returns `None` if the name has more than 6 characters, the password has more than 10, or one contains anything but printable ASCII.
    #[must_use]
    pub fn mitch(user: &str, password: &str) -> Option<Self> {
        Self::new(RequestProtocol::Mitch, &CONNECTION, ["", user, password])
    }
}
