//! The plant in a browser and for a monitor: the page, its data, metrics, and whether it is well.
//!
//! ```text
//! status of plant and clients ─┬▶ tick, five times a second ─▶ /live: one WebSocket for each page
//! watch of the books ──────────┘└▶ /status.json, /metrics, /ready
//! ```
//!
//! | path | what |
//! | --- | --- |
//! | `/` | the page; its files are in the program |
//! | `/live` | a WebSocket with the page's data as JSON |
//! | `/stream` | a WebSocket for programs: NBBO, trades and gaps, as JSON or Protobuf; where it is configured |
//! | `/metrics` | Prometheus' text format, version 0.0.4 |
//! | `/status.json` | the same for programs, complete in one answer |
//! | `/health` | 200 while the process is alive; needs no token |
//! | `/ready` | 200 when every condition of readiness is met, else 503; each condition with the reasons why it is not |
//! | `/login`, `/logout` | a form for the token, where there is one, and the end of a login |
//!
//! The server runs an async runtime on its own thread. It reads the report of plant and outputs five times a second, and holds
//! no lock for longer than a copy takes. A slow page gets fewer updates, and a page that reads none is dropped; neither affects
//! the market's threads.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;

use crate::config::WebSetting;
use crate::report::Handles;
use tapeworks_runtime::refusals::{OnRefusal, Refusals};

mod access;
mod closing;
mod counters;
mod describe;
mod live;
mod metrics;
mod page;
mod stream;

use access::Access;
use counters::Counters;
use describe::Tick;

/// Connections that speak HTTP at once; WebSockets are counted apart.
const MOST_CONNECTIONS: usize = 128;

/// Of them, from one address.
const MOST_OF_ADDRESS: usize = 32;

/// Further connections, for [`RESERVED`] alone: probes and scrapes are answered even if others hold all connections.
const RESERVE: usize = 64;

/// The paths that are answered on the reserve.
const RESERVED: [&str; 3] = ["/health", "/ready", "/metrics"];

/// The time limit of a connection of the reserve for its request and for reading the answer.
const RESERVE_HEADER_TIME: Duration = Duration::from_millis(250);
const RESERVE_TIME: Duration = Duration::from_secs(5);

/// Pages that look at once.
const MOST_VIEWERS: usize = 64;

/// The time limit of a connection for its request.
const HEADER_TIME: Duration = Duration::from_secs(3);

/// How long a connection that speaks HTTP may live.
const CONNECTION_TIME: Duration = Duration::from_secs(300);

/// Bytes of a request's header, and of its body.
const HEADER_BYTES: usize = 16 << 10;
const BODY_BYTES: usize = 4 << 10;

/// How often pages get an update.
const TICK: Duration = Duration::from_millis(200);

/// Why there is no page.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum WebError {
    /// The address cannot be had: another program has the port, or it is not ours.
    #[error("cannot listen on {address} for the web page: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no thread, or no runtime in it.
    #[error("no thread for the web page: {0}")]
    Thread(std::io::Error),
}

/// A bound address, for a page that is started later.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
}

/// Takes the address of the page.
///
/// # Errors
/// [`WebError::Bind`].
pub fn bind(setting: &WebSetting) -> Result<Listening, WebError> {
    let address = setting.address;
    let bound = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let (listener, address) = bound().map_err(|source| WebError::Bind { address, source })?;
    let token = setting.token.clone().filter(|token| !token.is_empty());
    Ok(Listening { listener, address, token })
}

/// Serves the reports of `handles`, and reports refused clients to `on_refusal`.
///
/// # Errors
/// [`WebError::Thread`].
pub fn start(listening: Listening, handles: Handles, on_refusal: Option<OnRefusal>) -> Result<Web, WebError> {
    let Listening { listener, address, token } = listening;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(WebError::Thread)?;
    let (ticks, _) = watch::channel(Arc::new(Tick::default()));
    let app = Arc::new(App {
        access: Access::new(address, token.as_deref()),
        handles,
        counters: Counters::default(),
        refusals: Mutex::new(Refusals::new("page", on_refusal)),
        began: Instant::now(),
        viewers: Arc::new(Semaphore::new(MOST_VIEWERS)),
        streams: Arc::new(Semaphore::new(tapeworks_outputs::stream::MOST_CLIENTS)),
        ticks,
    });
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(async {
            // Made inside the runtime, which wakes the task when a connection comes.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::select! {
                () = serve(listener, Arc::clone(&app)) => {}
                () = live::publish(&app) => {}
                _ = stopped => {}
            }
        });
        // Connections that are open end here.
        drop(runtime);
    };
    let thread = std::thread::Builder::new().name("web".to_owned()).spawn(run).map_err(WebError::Thread)?;
    Ok(Web { address, stop: Some(stop), thread: Some(thread) })
}

/// The page's server. Dropping it stops it.
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _gone = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // The thread returns no result.
            let _ended = thread.join();
        }
    }
}

/// The state that all requests share.
#[derive(Debug)]
struct App {
    access: Access,
    handles: Handles,
    counters: Counters,
    refusals: Mutex<Refusals>,
    began: Instant,
    viewers: Arc<Semaphore>,
    /// Places for clients of the stream.
    streams: Arc<Semaphore>,
    ticks: watch::Sender<Arc<Tick>>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

impl App {
    /// Reports a refused client.
    fn refuse(&self, Peer(address): Peer, why: &str) {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).refused(address, &why, now_ns);
    }
}

/// Connections of each address.
type OfAddresses = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A connection's place: among all, and among those of its address.
struct Place {
    _permit: OwnedSemaphorePermit,
    address: IpAddr,
    all: OfAddresses,
}

impl Place {
    /// A place for a connection of `address`, if there is one.
    fn take(connections: &Arc<Semaphore>, all: &OfAddresses, address: IpAddr) -> Option<Self> {
        let mut counts = all.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        let permit = (*count < MOST_OF_ADDRESS).then(|| Arc::clone(connections).try_acquire_owned());
        match permit {
            Some(Ok(permit)) => {
                *count += 1;
                Some(Self { _permit: permit, address, all: Arc::clone(all) })
            }
            _ => {
                if *count == 0 {
                    counts.remove(&address);
                }
                None
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Accepts connections up to the limit. Beyond it there is a reserve: a connection there must send its request soon, and
/// gives way to newer ones. So clients that hold connections without a request cannot block checks of the plant's health.
async fn serve(listener: tokio::net::TcpListener, app: Arc<App>) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut reserve = VecDeque::new();
    let of_addresses = OfAddresses::default();
    let (whole, reserved) = (router(&app), reserved(&app));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Most likely there are no more file descriptors: try again later.
            app.counters.accept_errors.add();
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Answers are small, and the client waits for them.
        let _slower = stream.set_nodelay(true);
        app.counters.connections.add();
        let app = Arc::clone(&app);
        match Place::take(&connections, &of_addresses, peer.ip()) {
            Some(place) => {
                let service = TowerToHyperService::new(whole.clone().layer(Extension(Peer(peer))));
                tokio::spawn(async move {
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEADER_TIME)
                        .max_buf_size(HEADER_BYTES)
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades();
                    // The connection is over, so its error cannot be sent.
                    let _ended = tokio::time::timeout(CONNECTION_TIME, connection).await;
                    drop(place);
                });
            }
            None => {
                app.counters.connections_refused.add();
                app.refuse(Peer(peer), "too many connections");
                reserve.retain(|one: &AbortHandle| !one.is_finished());
                if reserve.len() >= RESERVE
                    && let Some(oldest) = reserve.pop_front()
                {
                    // It sent no request, or reads its answer slowly; the new connection may have a request.
                    oldest.abort();
                    app.counters.connections_evicted.add();
                }
                let service = TowerToHyperService::new(reserved.clone().layer(Extension(Peer(peer))));
                let task = tokio::spawn(async move {
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(RESERVE_HEADER_TIME)
                        .max_buf_size(HEADER_BYTES)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), service);
                    if !matches!(tokio::time::timeout(RESERVE_TIME, connection).await, Ok(Ok(()))) {
                        app.counters.connections_evicted.add();
                    }
                });
                reserve.push_back(task.abort_handle());
            }
        }
    }
}

/// Answers the paths of the reserve; refuses all others.
fn reserved(app: &Arc<App>) -> Router {
    let full = || async {
        let about = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
        (StatusCode::SERVICE_UNAVAILABLE, about, "refused: too many connections\n").into_response()
    };
    let [health_path, ready_path, metrics_path] = RESERVED;
    Router::new()
        .route(metrics_path, get(metrics))
        .route(health_path, get(health))
        .route(ready_path, get(ready))
        .fallback(full)
        .layer(middleware::from_fn_with_state(Arc::clone(app), access::guard))
        .with_state(Arc::clone(app))
}

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/live", get(live::connect))
        .route("/stream", get(stream::connect))
        .route("/metrics", get(metrics))
        .route("/status.json", get(status))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/login", get(access::form).post(access::login))
        .route("/logout", post(access::logout))
        .fallback(get(page::file))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(app), access::guard))
        .with_state(Arc::clone(app))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, metrics::text(&describe::Look::new(&app))).into_response()
}

async fn status(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &describe::status(&describe::Look::new(&app)))
}

async fn health() -> &'static str {
    "alive\n"
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let (is_ready, body) = describe::Look::new(&app).readiness();
    json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}

fn json(code: StatusCode, value: &serde_json::Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
