//! `/stream`: one WebSocket per client.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::SinkExt;
use tokio::sync::mpsc;

use tapeworks_outputs::stream::{Hub, Request};

use super::app::App;
use super::closing;

/// Maximum length of a client's message in bytes; the stream needs none.
const MOST_SAID: usize = 1 << 10;

/// How long a client may read nothing.
const STUCK: Duration = Duration::from_secs(30);

/// How often the server pings a client.
const PING: Duration = Duration::from_secs(15);

/// Maximum number of records between checks for messages of the client.
const AT_ONCE: usize = 256;

/// Close the connection of a refused upgrade, so that it frees its place.
const CLOSE: [(header::HeaderName, &str); 1] = [(header::CONNECTION, "close")];

/// Accepts a client's WebSocket.
pub(super) async fn connect(
    State(app): State<Arc<App>>,
    uri: Uri,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let Some(hub) = app.handles.stream.clone() else {
        let why = "this plant has no stream: its configuration lacks `stream = true` in [web]\n";
        return (StatusCode::NOT_FOUND, CLOSE, why).into_response();
    };
    let request = match Request::read(&uri) {
        Ok(request) => request,
        Err(error) => {
            hub.counters.stream_refused_parameters.add();
            return (StatusCode::BAD_REQUEST, CLOSE, format!("{error}\n")).into_response();
        }
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(rejection) => return rejection.into_response(),
    };
    let Ok(permit) = Arc::clone(&app.streams).try_acquire_owned() else {
        hub.counters.stream_refused.add();
        let why = "too many clients have the stream already\n";
        return (StatusCode::SERVICE_UNAVAILABLE, CLOSE, why).into_response();
    };
    hub.counters.stream_clients.add();
    let socket = socket.max_message_size(MOST_SAID).max_frame_size(MOST_SAID);
    socket.on_upgrade(async move |socket| {
        let messages = hub.join(request);
        run(&hub, socket, messages).await;
        drop(permit);
    })
}

async fn run(hub: &Hub, mut socket: WebSocket, mut messages: mpsc::Receiver<Message>) {
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.recv() => {
                let Some(message) = message else {
                    return closing::close(socket, close_code::AWAY, "the plant has ended").await;
                };
                match tokio::time::timeout(STUCK, write(&mut socket, message, &mut messages)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => return hub.counters.stream_stuck.add(),
                }
            }
            _ = ping.tick() => {
                let ping = socket.send(Message::Ping(Default::default()));
                match tokio::time::timeout(STUCK, ping).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => return hub.counters.stream_stuck.add(),
                }
            }
            said = socket.recv() => match said {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return closing::answer(socket).await,
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    hub.counters.stream_garbled.add();
                    return closing::close(socket, close_code::POLICY, "there is nothing to say here").await;
                }
                Some(Err(error)) => {
                    hub.counters.stream_garbled.add();
                    return closing::fail(socket, error).await;
                }
            },
        }
    }
}

/// Writes a message and some of the messages that wait after it.
async fn write(
    socket: &mut WebSocket,
    first: Message,
    messages: &mut mpsc::Receiver<Message>,
) -> Result<(), axum::Error> {
    socket.feed(first).await?;
    for _ in 1..AT_ONCE {
        match messages.try_recv() {
            Ok(message) => socket.feed(message).await?,
            Err(_) => break,
        }
    }
    socket.flush().await
}
