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
//! | `/live` | a WebSocket that brings the page what it shows, as JSON |
//! | `/stream` | a WebSocket for programs: NBBO, trades and gaps, as JSON or Protobuf; where it is configured |
//! | `/metrics` | Prometheus' text format, version 0.0.4 |
//! | `/status.json` | the same for programs: everything, at once |
//! | `/health` | 200 while the process is alive; needs no token |
//! | `/ready` | 200 when every condition of readiness is met, else 503; each condition with the reasons why it is not |
//! | `/login` | a form for the token, where there is one |
//!
//! The server has a thread of its own, and an async runtime in it. It reads what the others tell of themselves some times a
//! second, and holds no lock for longer than a copy takes. Who is slow gets fewer looks, and who stands still is
//! dropped; both cost the market's threads nothing.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::live::config::WebSetting;
use crate::live::service::Handles;
use crate::refusals::{OnRefusal, Refusals};

mod access;
mod counters;
mod describe;
mod live;
mod metrics;
mod page;
pub mod stream;

use access::Access;
use counters::Counters;
use describe::Tick;

/// Connections that speak HTTP at once; WebSockets are counted apart.
const MOST_CONNECTIONS: usize = 128;

/// Pages that look at once.
const MOST_VIEWERS: usize = 64;

/// How long a connection may take to say what it wants.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// How long a connection that speaks HTTP may live.
const CONNECTION_TIME: Duration = Duration::from_secs(300);

/// Bytes of a request's header, and of its body.
const HEADER_BYTES: usize = 16 << 10;
const BODY_BYTES: usize = 4 << 10;

/// How often those who look are told.
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
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no thread, or no runtime in it.
    #[error("no thread for the web page: {0}")]
    Thread(std::io::Error),
}

/// An address that is taken, for a page that is started later.
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

/// Shows what `handles` tell; `on_refusal` is told of who is turned away.
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
        streams: Arc::new(Semaphore::new(stream::MOST_CLIENTS)),
        ticks,
    });
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(async {
            // Inside the runtime, or there is nothing that would tell of its connections.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::select! {
                () = serve(listener, Arc::clone(&app)) => {}
                () = live::tell(&app) => {}
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
            // A thread that is gone need not be told.
            let _gone = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell of its end.
            let _ended = thread.join();
        }
    }
}

/// What all requests share.
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

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

impl App {
    /// Tells that somebody is turned away.
    fn refuse(&self, Peer(address): Peer, why: &str) {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).refused(address, &why, now_ns);
    }
}

/// Takes connections, as many as there may be.
async fn serve(listener: tokio::net::TcpListener, app: Arc<App>) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let router = router(&app);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // No more files, most likely: it may be better in a while.
            app.counters.accept_errors.add();
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            app.counters.connections_refused.add();
            app.refuse(Peer(peer), "too many connections");
            continue;
        };
        app.counters.connections.add();
        let service = TowerToHyperService::new(router.clone().layer(Extension(Peer(peer))));
        tokio::spawn(async move {
            // What is sent is small, and somebody waits for it.
            let _slower = stream.set_nodelay(true);
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_buf_size(HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // Whichever way it ends, there is nobody left to be told.
            let _ended = tokio::time::timeout(CONNECTION_TIME, connection).await;
            drop(permit);
        });
    }
}

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/live", get(live::connect))
        .route("/stream", get(stream::endpoint::connect))
        .route("/metrics", get(metrics))
        .route("/status.json", get(status))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/login", get(access::form).post(access::login))
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
    let (is_ready, told) = describe::Look::new(&app).readiness();
    json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &told)
}

fn json(code: StatusCode, value: &serde_json::Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
