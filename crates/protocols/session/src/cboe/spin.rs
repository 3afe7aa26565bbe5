//! The Spin server: it offers its snapshots, and sends the one that a client requests.

use tapeworks_wire::cboe::grp::{
    LoginStatus, Message, SpinFinished, SpinFinishedFields, SpinImageAvailable, SpinImageAvailableFields,
    SpinRequest, SpinRequestFields, SpinResponse, SpinResponseFields, SpinStatus,
};
use tapeworks_wire::cboe::pitch::{AddOrderExpanded, AddOrderLong, AddOrderShort};

use super::CONNECTION;
use crate::dialect::connection::Asked;
use crate::dialect::snapshots::{
    Answer, Conversation, Flow, Image, SnapshotDialect, SnapshotFailure, SnapshotRules, State, Step,
};
use crate::login::{Credentials, is_known};
use crate::units::tcp;

pub(crate) static SNAPSHOTS: SnapshotRules =
    SnapshotRules::new(&CONNECTION, Flow::Offered { is_repeated: true }, &Spin);

/// Returns whether a message adds an order. A spin announces its number of orders.
fn adds_order(message: &[u8]) -> bool {
    matches!(message.get(1), Some(&(AddOrderLong::TAG | AddOrderShort::TAG | AddOrderExpanded::TAG)))
}

struct Spin;

impl SnapshotDialect for Spin {
    fn frame(&self, image: &mut Image, message: &[u8]) {
        tcp::append(image, message, adds_order(message));
    }

    fn finish(&self, image: &mut Image) {
        let fields = SpinFinishedFields { length: SpinFinished::LENGTH as u8, sequence: image.last() };
        tcp::append(image, &fields.encode(), false);
    }

    fn fetch(&self, client: &mut Conversation) -> Result<Option<Step>, SnapshotFailure> {
        while let Some(range) = tcp::next_message(&mut client.input)? {
            let message = client.input.get(range.clone());
            let is_of_server = matches!(message.get(1), Some(0x01..=0x04 | 0x80..=0x87));
            if !is_of_server {
                client.count(adds_order(message))?;
                return Ok(Some(Step::Message(range)));
            }
            match (Message::decode(message).map_err(|_| SnapshotFailure::Malformed)?, client.state) {
                (Message::LoginResponse(response), State::LoggingIn) => {
                    SnapshotFailure::LoginRejected.unless(response.status() == LoginStatus::Accepted)?;
                    client.state = State::Waiting;
                }
                (Message::SpinImageAvailable(offered), State::Waiting) => {
                    let sequence = offered.sequence();
                    let fields = SpinRequestFields { length: SpinRequest::LENGTH as u8, sequence };
                    client.output.extend_from_slice(&tcp::packet(&fields.encode()));
                    client.state = State::Requested(sequence);
                }
                // Further spins are offered each second.
                (Message::SpinImageAvailable(_), _) => {}
                (Message::SpinResponse(response), State::Requested(sequence)) => {
                    SnapshotFailure::SpinRefused.unless(
                        response.status() == SpinStatus::Accepted && response.sequence() == sequence,
                    )?;
                    client.state = State::Receiving { sequence, orders: response.order_count() };
                }
                (Message::SpinFinished(finished), State::Receiving { sequence, orders }) => {
                    SnapshotFailure::Torn.unless(finished.sequence() == sequence && orders == 0)?;
                    return Ok(Some(Step::End(u64::from(sequence) + 1)));
                }
                _ => return Err(SnapshotFailure::Malformed),
            }
        }
        Ok(None)
    }

    fn asked(&self, message: &[u8], admitted: Option<&Credentials>) -> Asked<Result<(), Vec<u8>>> {
        match Message::decode(message) {
            Ok(Message::Login(login)) => {
                Asked::Login(is_known(admitted, &login.username().0, &login.password().0))
            }
            Ok(Message::SpinRequest(_)) => Asked::Request(Ok(())),
            _ => Asked::Unexpected,
        }
    }

    fn login_answer(&self, is_known: bool) -> Vec<u8> {
        tcp::packet(&super::answer(is_known))
    }

    fn offer(&self, image: &Image) -> Vec<u8> {
        let length = SpinImageAvailable::LENGTH as u8;
        tcp::packet(&SpinImageAvailableFields { length, sequence: image.last() }.encode())
    }

    fn answer(&self, image: &Image, message: &[u8]) -> Answer {
        let sequence = SpinRequest::decode(message).map_or(0, |request| request.sequence());
        let is_offered = sequence == image.last();
        let fields = SpinResponseFields {
            length: SpinResponse::LENGTH as u8,
            sequence,
            order_count: if is_offered { image.orders } else { 0 },
            status: if is_offered { SpinStatus::Accepted } else { SpinStatus::OutOfRange },
        };
        let response = tcp::packet(&fields.encode());
        if is_offered { Answer::Accept(response) } else { Answer::Decline(response) }
    }
}
