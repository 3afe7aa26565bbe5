//! Closes a WebSocket (RFC 6455, section 7): answers a Close, and closes with an error's code after a protocol violation.

use std::time::Duration;

use axum::Error;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use tokio_tungstenite::tungstenite::Error as Broken;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};

/// How long the peer may take to close.
const CLOSING: Duration = Duration::from_secs(2);

/// Answers the Close of a peer, which may already have disconnected.
pub(super) async fn answer(socket: WebSocket) {
    until_over(socket).await;
}

/// Closes with this code, and waits until the peer has closed too.
pub(super) async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    // The socket is closed either way.
    if let Ok(Ok(())) = tokio::time::timeout(CLOSING, socket.send(Message::Close(Some(frame)))).await {
        until_over(socket).await;
    }
}

/// Closes after an error, with the error's code.
pub(super) async fn fail(socket: WebSocket, error: Error) {
    if let Some((code, reason)) = code_of(error) {
        close(socket, code, reason).await;
    }
}

/// Returns the code of an error (RFC 6455, section 7.4.1), or `None` if the connection is lost.
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

/// Reads until the connection is closed, which also sends the remaining bytes.
async fn until_over(mut socket: WebSocket) {
    let over = async { while let Some(Ok(_)) = socket.recv().await {} };
    // Drop a client that does not close in time.
    let _in_time = tokio::time::timeout(CLOSING, over).await;
}
