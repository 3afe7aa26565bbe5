//! A gateway's pages for browsers, monitors, and `tapeworks gateway halt`.
//!
//! | path | what |
//! | --- | --- |
//! | `/` | the page, embedded in the program |
//! | `/status.json` | sessions, counters, percentiles |
//! | `/orders.json` | open orders; `?all=1` includes ended ones; `?most=N` returns at most N |
//! | `/metrics` | Prometheus' text format, version 0.0.4 |
//! | `/health` | 200 while the process is alive; needs no token |
//! | `/ready` | 200 when orders can reach the venue, else 503 with the reasons |
//! | `POST /halt`, `POST /resume` | the kill switch; `?client=NAME` for one client; `?cancel=1` also cancels open orders |
//! | `/login`, `/logout` | the login form, if a token is required, and logout |
//!
//! Everything except the page itself is also served on the [control socket](super::control), without a token. When all
//! connections are taken, the port still answers probes, the status and the kill switch.
//!
//! A command goes to the gateway's thread over a channel. A thread of the runtime's pool waits at most two seconds for the
//! answer. The gateway's hot path takes no locks and allocates no memory for this.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};
use tapeworks_gateway::status::Status;
use tapeworks_gateway::{Command, Handle, NotObeyed};
use tapeworks_plant::Condition;
use tapeworks_runtime::now;
use tapeworks_runtime::refusals::OnRefusal;
use tapeworks_runtime::traces::TraceHandle;
use tapeworks_runtime::world::{System, World as _};

use crate::describe;

use super::access::Access;
use super::conditions::conditions;
use super::control::{self, Control, ControlError};
use super::{
    Listening, Server, Site, Web, WebError, files, gateway_metrics, health, metrics_text, reserved, whole,
};

/// How long the gateway's thread may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The default and the maximum number of orders in an answer.
const USUAL_ORDERS: usize = 1_000;
const MOST_ORDERS: usize = 10_000;

/// Serves the state of a gateway, and forwards commands to it.
///
/// # Errors
/// [`WebError::Thread`].
pub fn start(
    listening: Listening,
    gateway: Handle<System>,
    traces: Option<TraceHandle>,
    on_refusal: Option<OnRefusal>,
) -> Result<Web, WebError> {
    super::start(listening, on_refusal, |server| {
        let app = Arc::new(App { server: Arc::clone(server), gateway, traces });
        let all = commands().route("/orders.json", get(orders));
        Site {
            whole: whole(server, all.with_state(Arc::clone(&app)), "gateway.html"),
            reserved: reserved(server, commands().with_state(app)),
            background: Box::pin(std::future::pending()),
        }
    })
}

/// Serves the same paths on a Unix socket, to users whom its permissions admit. `page` is the gateway's page, if it has one.
///
/// # Errors
/// [`ControlError`].
pub fn start_control(
    path: PathBuf,
    gateway: Handle<System>,
    traces: Option<TraceHandle>,
    page: Option<&Web>,
) -> Result<Control, ControlError> {
    let none =
        || Arc::new(Server::new(Access::new(([127, 0, 0, 1], 0).into(), None, false), None, Vec::new()));
    let server = page.map_or_else(none, |page| Arc::clone(&page.server));
    let routes = commands().route("/orders.json", get(orders)).route("/health", get(health));
    control::start(path, routes.with_state(Arc::new(App { server, gateway, traces })))
}

/// Returns the paths that are answered however many connections there are.
fn commands() -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/ready", get(ready))
        .route("/status.json", get(status))
        .route("/halt", post(halt))
        .route("/resume", post(resume))
}

/// State shared by all requests.
#[derive(Debug)]
struct App {
    server: Arc<Server>,
    gateway: Handle<System>,
    traces: Option<TraceHandle>,
}

/// Returns the answer of `/ready`, and whether all conditions are met.
fn readiness(status: &Status) -> (bool, Value) {
    let conditions = conditions(status, now());
    let is_ready = conditions.iter().all(Condition::is_met);
    let states: Vec<Value> = conditions
        .iter()
        .map(|one| json!({ "name": one.name, "is_met": one.is_met(), "reasons": one.reasons }))
        .collect();
    let reasons: Vec<&String> = conditions.iter().flat_map(|one| &one.reasons).collect();
    (is_ready, json!({ "is_ready": is_ready, "reasons": reasons, "conditions": states }))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let Server { counters, files, .. } = &*app.server;
    let traces = app.traces.as_ref().map(TraceHandle::status);
    let status = app.gateway.status();
    metrics_text(gateway_metrics::text(&status, now(), &counters.all(), files, traces.as_ref()))
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let (is_ready, body) = readiness(&app.gateway.status());
    super::json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}

async fn status(State(app): State<Arc<App>>) -> Response {
    let status = app.gateway.status();
    let (is_ready, readiness) = readiness(&status);
    let counters: Map<String, Value> = app
        .server
        .counters
        .all()
        .iter()
        .map(|(name, _, count)| ((*name).to_owned(), (*count).into()))
        .collect();
    let mut all = match serde_json::to_value(&status) {
        Ok(all) => all,
        Err(error) => return failed(&error.to_string()),
    };
    all["now_ns"] = now().0.into();
    all["has_login"] = app.server.access.has_token().into();
    all["is_ready"] = is_ready.into();
    all["reasons"] = readiness["reasons"].clone();
    all["conditions"] = readiness["conditions"].clone();
    all["web"] = counters.into();
    all["otel"] = app.traces.as_ref().map(|traces| describe::traces(&traces.status())).into();
    all["files"] = files::status(&app.server.files);
    super::json(StatusCode::OK, &all)
}

/// The parameters of a request.
type Parameters = HashMap<String, String>;

fn refuse_others(parameters: &Parameters, known: &[&str]) -> Result<(), String> {
    match parameters.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("there is no parameter '{name}'; there are {}", known.join(", "))),
        None => Ok(()),
    }
}

fn flag(parameters: &Parameters, name: &str) -> Result<bool, String> {
    match parameters.get(name).map(String::as_str) {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(format!("'{name}' is 1 or 0, not '{other}'")),
    }
}

fn bad(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("refused: {why}\n")).into_response()
}

fn failed(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// Sends a command, and waits for its answer off the runtime's thread.
async fn answer<T: Send + 'static>(
    app: &App,
    command: impl FnOnce(std::sync::mpsc::Sender<T>) -> Command<System>,
) -> Result<T, Response> {
    let (done, answered) = System::channel();
    app.gateway.command(command(done));
    let waited = tokio::task::spawn_blocking(move || answered.recv_timeout(ANSWER_TIME)).await;
    let seconds = ANSWER_TIME.as_secs();
    waited.ok().and_then(Result::ok).ok_or_else(|| {
        failed(&format!(
            "the gateway has not answered within {seconds} s: it may have ended, or its disk may take nothing; the command may still be obeyed"
        ))
    })
}

async fn orders(State(app): State<Arc<App>>, Query(parameters): Query<Parameters>) -> Response {
    let read = || {
        refuse_others(&parameters, &["all", "most"])?;
        let all = flag(&parameters, "all")?;
        let most = match parameters.get("most").map(|most| most.parse::<usize>()) {
            None => USUAL_ORDERS,
            Some(Ok(most)) if most <= MOST_ORDERS => most,
            Some(_) => return Err(format!("'most' is a number up to {MOST_ORDERS}")),
        };
        Ok((all, most))
    };
    let (all, most) = match read() {
        Ok(read) => read,
        Err(why) => return bad(&why),
    };
    match answer(&app, |done| Command::Orders { all, most, done }).await {
        Ok(orders) => match serde_json::to_value(&orders) {
            Ok(value) => super::json(StatusCode::OK, &value),
            Err(error) => failed(&error.to_string()),
        },
        Err(response) => response,
    }
}

async fn halt(State(app): State<Arc<App>>, Query(parameters): Query<Parameters>) -> Response {
    switch(&app, &parameters, true).await
}

async fn resume(State(app): State<Arc<App>>, Query(parameters): Query<Parameters>) -> Response {
    switch(&app, &parameters, false).await
}

/// Turns the kill switch on or off.
async fn switch(app: &App, parameters: &Parameters, is_halted: bool) -> Response {
    let known: &[&str] = if is_halted { &["client", "cancel"] } else { &["client"] };
    let cancels = match refuse_others(parameters, known).and_then(|()| flag(parameters, "cancel")) {
        Ok(cancels) => cancels,
        Err(why) => return bad(&why),
    };
    let client = parameters.get("client").cloned();
    let given = client.clone();
    match answer(app, |done| Command::Halt { client: given, is_halted, cancels, done }).await {
        Ok(Ok(())) => {
            let body = json!({ "client": client, "is_halted": is_halted, "cancels": cancels });
            super::json(StatusCode::OK, &body)
        }
        Ok(Err(why)) => {
            let code = match why {
                NotObeyed::NoClient(_) => StatusCode::NOT_FOUND,
                _ => StatusCode::CONFLICT,
            };
            (code, format!("{why}\n")).into_response()
        }
        Err(response) => response,
    }
}
