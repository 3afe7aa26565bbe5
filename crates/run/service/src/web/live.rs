//! The page's WebSocket.
//!
//! The page sends a request, and may send another at any time:
//!
//! ```json
//! {"symbol": "AAPL", "search": "A", "most": 200}
//! ```
//!
//! Five times a second it gets an update: `status` as in `/status.json`, the new `delays`, the `list` of matching symbols (with the
//! `busiest` of all symbols), and the `book` of the requested symbol. There is no queue: a slow page gets its next update later.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tapeworks_market::Symbol;
use tapeworks_time::Nanos;
use tokio::time::Instant;

use super::app::App;
use super::closing;
use super::describe::{Activity, Tick};

/// Maximum number of bytes in a page's message.
const MOST_SAID: usize = 1 << 10;

/// How long a page may take to receive an update.
const STUCK: Duration = Duration::from_secs(5);

/// How soon a page gets an update after a new request.
const SOON: Duration = Duration::from_millis(50);

/// Maximum number of symbols in a page's list.
const MOST_ROWS: usize = 500;

/// Interval between updates.
const TICK: Duration = Duration::from_millis(200);

/// Publishes ticks while a page is open.
pub(super) async fn publish(app: &App) {
    let mut activity = Activity::default();
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if app.ticks.receiver_count() > 0 {
            app.handles.watch.look_at_list();
            app.ticks.send_replace(Arc::new(app.tick(&mut activity)));
        }
    }
}

/// Accepts a page's WebSocket.
pub(super) async fn connect(State(app): State<Arc<App>>, socket: WebSocketUpgrade) -> Response {
    let Ok(permit) = Arc::clone(&app.viewers).try_acquire_owned() else {
        app.server.counters.viewers_refused.add();
        let about = [(header::CONNECTION, "close")];
        return (StatusCode::SERVICE_UNAVAILABLE, about, "too many pages look already\n").into_response();
    };
    app.server.counters.viewers.add();
    let socket = socket.max_message_size(MOST_SAID).max_frame_size(MOST_SAID);
    socket.on_upgrade(async move |socket| {
        Viewer { app, socket, shows: Shows::default(), sent_until: Nanos(0) }.run().await;
        drop(permit);
    })
}

/// A page's request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Shows {
    symbol: Option<Symbol>,
    search: String,
    most: usize,
}

impl Shows {
    /// Parses a page's message.
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let said = value.as_object()?;
        let symbol = match said.get("symbol") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(Symbol::parse(name)?),
            Some(_) => return None,
        };
        let search = said.get("search").map_or(Some(""), Value::as_str)?;
        let most = said.get("most").map_or(Some(0), Value::as_u64)?;
        let most = usize::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        Some(Self { symbol, search: search.trim().to_uppercase(), most })
    }
}

struct Viewer {
    app: Arc<App>,
    socket: WebSocket,
    shows: Shows,
    /// The time of the last delay that the page has received.
    sent_until: Nanos,
}

impl Viewer {
    async fn run(mut self) {
        let mut ticks = self.app.ticks.subscribe();
        // Skip a tick that was made for another page long ago.
        ticks.mark_unchanged();
        let mut updated = Instant::now();
        let mut is_requested = false;
        loop {
            let tick = tokio::select! {
                changed = ticks.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    Arc::clone(&ticks.borrow_and_update())
                }
                () = tokio::time::sleep_until(updated + SOON), if is_requested => Arc::clone(&ticks.borrow()),
                said = self.socket.recv() => match said {
                    Some(Ok(Message::Text(text))) => match Shows::read(&text) {
                        Some(shows) => {
                            self.shows = shows;
                            self.look();
                            is_requested = !ticks.borrow().status.is_empty();
                            continue;
                        }
                        None => return self.dismiss().await,
                    },
                    Some(Ok(Message::Binary(_))) => return self.dismiss().await,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_))) | None => return closing::answer(self.socket).await,
                    Some(Err(error)) => {
                        self.app.server.counters.viewers_garbled.add();
                        return closing::fail(self.socket, error).await;
                    }
                },
            };
            is_requested = false;
            self.look();
            let text = self.compose(&tick);
            match tokio::time::timeout(STUCK, self.socket.send(Message::text(text))).await {
                Ok(Ok(())) => updated = Instant::now(),
                Ok(Err(_)) => return,
                Err(_) => {
                    self.app.server.counters.viewers_stuck.add();
                    return;
                }
            }
        }
    }

    /// Requests the books of the shown symbol.
    fn look(&self) {
        if let Some(symbol) = self.shows.symbol {
            // If too many symbols are watched, there is no book, and the page reports that.
            let _too_many = self.app.handles.watch.look_at(symbol);
        }
    }

    fn compose(&mut self, tick: &Tick) -> String {
        let (delays, until) = tick.delays(self.sent_until);
        self.sent_until = until;
        let Shows { symbol, search, most } = &self.shows;
        let book = symbol.map_or(Value::Null, |symbol| tick.book(symbol));
        let list = tick.list(search, *most);
        format!("{{\"status\":{},\"delays\":{delays},\"list\":{list},\"book\":{book}}}", tick.status)
    }

    /// Closes the connection after a message that our page never sends.
    async fn dismiss(self) {
        self.app.server.counters.viewers_garbled.add();
        closing::close(self.socket, close_code::POLICY, "expected {\"symbol\", \"search\", \"most\"}").await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_of_the_page_is_parsed() {
        let shows = Shows::read(r#"{"symbol":"AAPL","search":" aa ","most":9000}"#).unwrap();
        assert_eq!(shows.symbol, Some(Symbol::from_bytes(b"AAPL").unwrap()));
        assert_eq!((shows.search.as_str(), shows.most), ("AA", MOST_ROWS));
        assert_eq!(Shows::read("{}"), Some(Shows::default()));
        for wrong in
            ["", "[]", "1", r#"{"symbol":""}"#, r#"{"symbol":1}"#, r#"{"most":-1}"#, r#"{"search":[]}"#]
        {
            assert_eq!(Shows::read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_request_of_a_page_breaks_it(text in ".{0,200}", symbol in ".{0,20}", search in ".{0,20}") {
            let _any = Shows::read(&text);
            let said = serde_json::json!({ "symbol": symbol, "search": search }).to_string();
            if let Some(shows) = Shows::read(&said) {
                prop_assert!(Tick::default().list(&shows.search, 10)["rows"].as_array().unwrap().is_empty());
            }
        }
    }
}
