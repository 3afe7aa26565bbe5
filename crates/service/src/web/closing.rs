//! The end of a WebSocket (RFC 6455, section 7): answers a Close, and closes with the code of the error after a breach of the protocol.

use std::time::Duration;

use axum::Error;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use tokio_tungstenite::tungstenite::Error as Broken;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};

/// How long the other side may take to close.
const CLOSING: Duration = Duration::from_secs(2);

/// The other side closes, or has gone: its Close is answered.
pub(super) async fn answer(socket: WebSocket) {
    until_over(socket).await;
}

/// Closes with this code, and waits until the other side has closed too.
pub(super) async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    // It is closed either way.
    if let Ok(Ok(())) = tokio::time::timeout(CLOSING, socket.send(Message::Close(Some(frame)))).await {
        until_over(socket).await;
    }
}

/// Closes after an error, with its code.
pub(super) async fn fail(socket: WebSocket, error: Error) {
    if let Some((code, reason)) = code_of(error) {
        close(socket, code, reason).await;
    }
}

/// The code of an error (RFC 6455, section 7.4.1); `None` if the connection is gone.
fn code_of(error: Error) -> Option<(u16, &'static str)> {
    match *error.into_inner().downcast::<Broken>().ok()? {
        Broken::Capacity(CapacityError::MessageTooLong { .. }) => {
            Some((close_code::SIZE, "the message is too long"))
        }
        Broken::Utf8(_) => Some((close_code::INVALID, "the text is not UTF-8")),
        Broken::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Broken::Protocol(_) => Some((close_code::PROTOCOL, "this is not WebSocket's protocol")),
        _ => None,
    }
}

/// Reads until the connection is over; this also sends the remaining bytes.
async fn until_over(mut socket: WebSocket) {
    let over = async { while let Some(Ok(_)) = socket.recv().await {} };
    // A client that does not close in time is dropped.
    let _in_time = tokio::time::timeout(CLOSING, over).await;
}
