//! MEMX: MEMOIR UDP, gap fills for missed messages, and snapshots, both over MEMX-TCP.
//!
//! | | gap fill | snapshot |
//! | --- | --- | --- |
//! | packets | messages after type and length | the same |
//! | login | a token of user and password; the server's mode is replay | the same; the mode is snapshot |
//! | heartbeats | both sides, after 1 s without a packet; dead after 5 s | the same |
//! | request | up to 1,000 messages, between the begin and the end of a replay; 100/s | all messages of the session that the server starts |
//!
//! The layouts agree with the public definitions of MEMX's order entry. The limits and times are ours.

mod gap_fill;
mod memoir;
mod snapshots;

pub(crate) use gap_fill::REQUESTS;
#[cfg(test)]
pub(crate) use gap_fill::STATUSES;
pub use memoir::Memoir;
pub(crate) use snapshots::SNAPSHOTS;

use subtle::ConstantTimeEq;
use tapeworks_wire::memx::tcp::{
    HEADER_BYTES, LoginAccepted, LoginAcceptedFields, LoginRejectCode, LoginRejected, LoginRejectedFields,
    LoginRequestFields, ReplayBegin, ReplayBeginFields, ReplayComplete, ReplayCompleteFields,
    ReplayRejectCode, ReplayRejected, ReplayRejectedFields, RequestMode, SequencedMessageFields,
    StartOfSession, StartOfSessionFields, TokenType,
};

use crate::dialect::connection::{Connection, LoginLimits, whole};
use crate::dialect::requests::RequestLogin;
use crate::protocols::RequestProtocol;
use crate::transport::SessionId;

const LIMITS: LoginLimits = LoginLimits { user: 16, password: 32, ..LoginLimits::NONE };

const CONNECTION: Connection = Connection {
    header_bytes: HEADER_BYTES,
    // Includes a requested message.
    longest_bytes: 2_048,
    accepts_longer: false,
    packet_bytes,
    each_message: whole,
    packet: |message, _, _| if message.is_empty() { HEARTBEAT.to_vec() } else { message.to_vec() },
    heartbeat: &HEARTBEAT,
    limits: LIMITS,
    login,
};

const HEARTBEAT: [u8; HEADER_BYTES] = [0; HEADER_BYTES];

fn packet_bytes(start: &[u8]) -> Option<usize> {
    let [_, high, low] = start.first_chunk::<HEADER_BYTES>()?;
    Some(HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])))
}

fn login([_, user, password]: [&[u8]; 3], _session: Option<&SessionId>) -> Vec<u8> {
    let cut = |text: &[u8], most: usize| text.iter().copied().take(most).collect::<Vec<u8>>();
    let token = [&cut(user, LIMITS.user)[..], b":", &cut(password, LIMITS.password)].concat();
    // Name and password together have at most 48 characters.
    let message_length = (1 + token.len()) as u16;
    let fields = LoginRequestFields { message_length, token_type: TokenType::Plain, token: &token };
    let mut login = vec![0; HEADER_BYTES + 1 + token.len()];
    let written = fields.encode_into(&mut login);
    debug_assert!(written.is_ok(), "the login has its room: {written:?}");
    login
}

/// Returns whether a login's token is that of this client. Compares in constant time.
fn admits(known: &RequestLogin, token: &[u8]) -> bool {
    let known_token = [known.user.trimmed(), b":", known.password.trimmed()].concat();
    known.protocol == RequestProtocol::Memx && bool::from(token.ct_eq(&known_token))
}

/// Splits a token into user name and password.
fn split_token(token: &[u8]) -> (&[u8], &[u8]) {
    let colon = token.iter().position(|byte| *byte == b':').unwrap_or(token.len());
    let (user, password) = token.split_at(colon);
    (user, password.get(1..).unwrap_or_default())
}

/// Returns the length that the header of a message names.
const fn length(message_bytes: usize) -> u16 {
    (message_bytes - HEADER_BYTES) as u16
}

/// Builds the acceptance of a login by a server in this mode, and the start of the session if one is running.
fn accepted(supported_request_mode: RequestMode, session: Option<SessionId>) -> Vec<u8> {
    let message_length = length(LoginAccepted::LENGTH);
    let mut bytes = LoginAcceptedFields { message_length, supported_request_mode }.encode().to_vec();
    if let Some(SessionId::Memoir(session_id)) = session {
        let message_length = length(StartOfSession::LENGTH);
        bytes.extend_from_slice(&StartOfSessionFields { message_length, session_id }.encode());
    }
    bytes
}

/// Builds the rejection of a login.
fn rejected() -> Vec<u8> {
    let login_reject_code = LoginRejectCode::AuthorizationFailed;
    LoginRejectedFields { message_length: length(LoginRejected::LENGTH), login_reject_code }.encode().to_vec()
}

/// Announces this many messages, starting at this number.
pub(crate) fn begin(next_sequence_number: u64, pending_message_count: u32) -> [u8; ReplayBegin::LENGTH] {
    let message_length = length(ReplayBegin::LENGTH);
    ReplayBeginFields { message_length, next_sequence_number, pending_message_count }.encode()
}

/// Reports that this many messages were sent.
pub(crate) fn complete(message_count: u64) -> [u8; ReplayComplete::LENGTH] {
    ReplayCompleteFields { message_length: length(ReplayComplete::LENGTH), message_count }.encode()
}

/// Builds the rejection of a request.
fn request_rejected(replay_reject_code: ReplayRejectCode) -> Vec<u8> {
    let message_length = length(ReplayRejected::LENGTH);
    ReplayRejectedFields { message_length, replay_reject_code }.encode().to_vec()
}

/// Appends a message of a replay.
pub(crate) fn append_sequenced(message: &[u8], bytes: &mut Vec<u8>) {
    // No message is longer than a packet.
    let fields = SequencedMessageFields { message_length: message.len() as u16, message };
    let start = bytes.len();
    bytes.resize(start + HEADER_BYTES + message.len(), 0);
    let written = bytes.get_mut(start..).map(|room| fields.encode_into(room));
    debug_assert!(written.is_some_and(|written| written.is_ok()), "the message has its room");
}
