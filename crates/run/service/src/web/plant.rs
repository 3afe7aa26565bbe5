//! The plant's pages for browsers and monitors: the page, its data, metrics, and health.
//!
//! ```text
//! status of plant and clients ─┬▶ tick, five times a second ─▶ /live: one WebSocket per page
//! watch of the books ──────────┘└▶ /status.json, /metrics, /ready
//! ```
//!
//! | path | what |
//! | --- | --- |
//! | `/` | the page, embedded in the program |
//! | `/live` | a WebSocket with the page's data as JSON |
//! | `/stream` | a WebSocket for programs: NBBO, trades and gaps, as JSON or Protobuf; if configured |
//! | `/metrics` | Prometheus' text format, version 0.0.4 |
//! | `/status.json` | the complete status for programs, in one answer |
//! | `/health` | 200 while the process is alive; needs no token |
//! | `/ready` | 200 if every condition of readiness is met, else 503 with the reasons |
//! | `/login`, `/logout` | the login form, if a token is required, and logout |
//!
//! The server reads the report of the plant and its outputs five times a second while a page is open, and holds no lock for longer than a
//! copy takes. A slow page gets fewer updates, and a page that stops reading is dropped; neither affects the market's threads.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tokio::sync::{Semaphore, watch};

use super::app::App;
use super::describe::{self, Tick};
use super::{Listening, Site, Web, WebError, json, live, metrics, reserved, stream, whole};
use crate::report::Handles;
use tapeworks_runtime::refusals::OnRefusal;

/// Maximum number of simultaneous viewers.
const MOST_VIEWERS: usize = 64;

/// Serves the reports of `handles`, and reports refused clients to `on_refusal`.
///
/// # Errors
/// [`WebError::Thread`].
pub fn start(listening: Listening, handles: Handles, on_refusal: Option<OnRefusal>) -> Result<Web, WebError> {
    super::start(listening, on_refusal, |server| {
        let (ticks, _) = watch::channel(Arc::new(Tick::default()));
        let app = Arc::new(App {
            server: Arc::clone(server),
            handles,
            viewers: Arc::new(Semaphore::new(MOST_VIEWERS)),
            streams: Arc::new(Semaphore::new(tapeworks_outputs::stream::MOST_CLIENTS)),
            ticks,
        });
        let few = Router::new().route("/metrics", get(show_metrics)).route("/ready", get(ready));
        let all = few
            .clone()
            .route("/live", get(live::connect))
            .route("/stream", get(stream::connect))
            .route("/status.json", get(status));
        Site {
            whole: whole(server, all.with_state(Arc::clone(&app)), "index.html"),
            reserved: reserved(server, few.with_state(Arc::clone(&app))),
            background: Box::pin(async move { live::publish(&app).await }),
        }
    })
}

async fn show_metrics(State(app): State<Arc<App>>) -> Response {
    super::metrics_text(metrics::text(&app.look()))
}

async fn status(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &describe::status(&app.look()))
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let (is_ready, body) = app.look().readiness();
    json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}
