//! The recovery channel: a client requests a snapshot of the whole group.

use tapeworks_wire::millennium::mitch;
use tapeworks_wire::millennium::recovery::{
    LoginStatus, LogoutRequest, Message, SnapshotComplete, SnapshotCompleteFields, SnapshotRequest,
    SnapshotRequestFields, SnapshotResponse, SnapshotResponseFields, SnapshotStatus, SnapshotType,
};

use super::CONNECTION;
use crate::dialect::connection::{Asked, padded};
use crate::dialect::snapshots::{
    Answer, Conversation, Flow, Image, SnapshotDialect, SnapshotFailure, SnapshotRules, State, Step,
};
use crate::login::{Credentials, is_known};
use crate::units::tcp;

pub(crate) static SNAPSHOTS: SnapshotRules =
    SnapshotRules { farewell: &LOGOUT, ..SnapshotRules::new(&CONNECTION, Flow::OnRequest, &Recovery) };

/// A unit with a logout request.
const LOGOUT: [u8; tcp::HEADER_BYTES + 2] = [10, 0, 1, 0, 0, 0, 0, 0, 2, LogoutRequest::TAG];

/// Returns whether a message adds an order. A snapshot announces its number of orders.
fn adds_order(message: &[u8]) -> bool {
    matches!(message.get(1), Some(&(mitch::AddOrder::TAG | mitch::AddAttributedOrder::TAG)))
}

/// Builds the response to a request: the last message included, and the number of orders.
fn response(sequence_number: u32, order_count: u32, status: SnapshotStatus, request_id: u32) -> Vec<u8> {
    let fields = SnapshotResponseFields {
        length: SnapshotResponse::LENGTH as u8,
        sequence_number,
        order_count,
        status,
        snapshot_type: SnapshotType::OrderBook,
        request_id,
    };
    tcp::packet(&fields.encode())
}

struct Recovery;

impl SnapshotDialect for Recovery {
    fn frame(&self, image: &mut Image, message: &[u8]) {
        tcp::append(image, message, adds_order(message));
    }

    fn finish(&self, image: &mut Image) {
        let fields = SnapshotCompleteFields {
            length: SnapshotComplete::LENGTH as u8,
            sequence_number: image.last(),
            segment: padded(b""),
            instrument_id: 0,
            reserved: 0,
            sub_book: 0,
            trading_status: padded(b""),
            snapshot_type: SnapshotType::OrderBook,
            request_id: 0,
        };
        tcp::append(image, &fields.encode(), false);
    }

    fn fetch(&self, client: &mut Conversation) -> Result<Option<Step>, SnapshotFailure> {
        while let Some(range) = tcp::next_message(&mut client.input)? {
            let message = client.input.get(range.clone());
            let is_of_server = matches!(message.get(1), Some(0x01..=0x05 | 0x81..=0x83));
            if !is_of_server {
                client.count(adds_order(message))?;
                return Ok(Some(Step::Message(range)));
            }
            match (Message::decode(message).map_err(|_| SnapshotFailure::Malformed)?, client.state) {
                (Message::LoginResponse(response), State::LoggingIn) => {
                    SnapshotFailure::LoginRejected.unless(response.status() == LoginStatus::Accepted)?;
                    let fields = SnapshotRequestFields {
                        length: SnapshotRequest::LENGTH as u8,
                        // Requests any number that the server has.
                        sequence_number: 0,
                        segment: padded(b""),
                        instrument_id: 0,
                        sub_book: 0,
                        snapshot_type: SnapshotType::OrderBook,
                        recover_from_time: [0; 8],
                        request_id: 1,
                    };
                    client.output.extend_from_slice(&tcp::packet(&fields.encode()));
                    client.state = State::Requested(0);
                }
                (Message::SnapshotResponse(response), State::Requested(_)) => {
                    SnapshotFailure::Refused.unless(response.status() == SnapshotStatus::Accepted)?;
                    let (sequence, orders) = (response.sequence_number(), response.order_count());
                    client.state = State::Receiving { sequence, orders };
                }
                (Message::SnapshotComplete(complete), State::Receiving { sequence, orders }) => {
                    // The end of one instrument's or segment's snapshot does not cover the rest of the group.
                    let is_whole = complete.instrument_id() == 0 && complete.segment().trimmed().is_empty();
                    SnapshotFailure::Torn
                        .unless(is_whole && complete.sequence_number() == sequence && orders == 0)?;
                    return Ok(Some(Step::End(u64::from(sequence) + 1)));
                }
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
        Ok(None)
    }

    fn asked(&self, message: &[u8], admitted: Option<&Credentials>) -> Asked<Result<(), Vec<u8>>> {
        match Message::decode(message) {
            Ok(Message::LoginRequest(login)) => {
                Asked::Login(is_known(admitted, &login.username().0, &login.password().0))
            }
            Ok(Message::SnapshotRequest(request)) => {
                let is_whole = request.instrument_id() == 0 && request.segment().trimmed().is_empty();
                if is_whole && request.snapshot_type() == SnapshotType::OrderBook {
                    return Asked::Request(Ok(()));
                }
                // Images here cover whole groups.
                let status = SnapshotStatus::UnsupportedMessage;
                Asked::Request(Err(response(0, 0, status, request.request_id())))
            }
            Ok(Message::LogoutRequest(_)) => Asked::Logout,
            _ => Asked::Unexpected,
        }
    }

    fn login_answer(&self, is_known: bool) -> Vec<u8> {
        tcp::packet(&super::answer(is_known))
    }

    fn answer(&self, image: &Image, message: &[u8]) -> Answer {
        let request_id = SnapshotRequest::decode(message).map_or(0, |request| request.request_id());
        Answer::Accept(response(image.last(), image.orders, SnapshotStatus::Accepted, request_id))
    }
}
