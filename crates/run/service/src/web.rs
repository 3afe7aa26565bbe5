//! The server of the web pages, for a plant ([`plant`]) and for a gateway ([`gateway`]).
//!
//! This module contains the parts that all sites share: the accept loop, limits, the reserve for probes and the kill switch, access by
//! token, login, and the files of the pages. Each site adds its own paths. The server runs an async runtime on its own thread.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use tapeworks_runtime::followed::FollowedFiles;
use tapeworks_runtime::refusals::{OnRefusal, Refusals};
use tapeworks_runtime::secrets::Secret;
use tapeworks_runtime::transport::Acceptor;

mod access;
mod app;
mod closing;
mod conditions;
pub mod control;
mod counters;
mod describe;
mod files;
pub mod gateway;
mod gateway_metrics;
mod live;
mod metrics;
mod page;
pub mod plant;
mod prometheus;
mod serving;
mod stream;

use access::Access;
use counters::Counters;
use serving::Serving;

/// Maximum number of simultaneous HTTP connections; WebSockets are counted separately.
const MOST_CONNECTIONS: usize = 128;

/// Maximum number of these connections from one address.
const MOST_OF_ADDRESS: usize = 32;

/// Additional connections for [`reserved`] only, so that probes, scrapes and the kill switch work when all other connections are taken.
const RESERVE: usize = 64;

/// Time limits of a reserve connection: for sending its request, and for reading the answer.
const RESERVE_HEADER_TIME: Duration = Duration::from_millis(250);
const RESERVE_TIME: Duration = Duration::from_secs(5);

/// Time limit for a connection to send its request.
const HEADER_TIME: Duration = Duration::from_secs(3);

/// Maximum lifetime of an HTTP connection.
const CONNECTION_TIME: Duration = Duration::from_secs(300);

/// Pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Maximum number of bytes in a request's header, and in its body.
const HEADER_BYTES: usize = 16 << 10;
const BODY_BYTES: usize = 4 << 10;

/// Why the page cannot be served.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum WebError {
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on {address} for the web page: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The thread or its runtime could not be started.
    #[error("no thread for the web page: {0}")]
    Thread(std::io::Error),
}

/// A bound address for a page that starts later.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Secret>,
    acceptor: Acceptor,
    /// Followed files, with their purposes.
    files: Vec<(String, Arc<dyn FollowedFiles>)>,
}

impl Listening {
    /// Adds files to show on the page, if there are any.
    #[must_use]
    pub fn showing(mut self, what: impl Into<String>, files: Option<Arc<dyn FollowedFiles>>) -> Self {
        self.files.extend(files.map(|files| (what.into(), files)));
        self
    }
}

/// Binds the address of the page. Requests need `token`, if present, and TLS, if `acceptor` uses it.
///
/// # Errors
/// [`WebError::Bind`].
pub fn bind(address: SocketAddr, token: Option<Secret>, acceptor: Acceptor) -> Result<Listening, WebError> {
    let bound = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let (listener, address) = bound().map_err(|source| WebError::Bind { address, source })?;
    let (of_tls, of_token) = (acceptor.files(), token.as_ref().and_then(Secret::files));
    let listening = Listening { listener, address, token, acceptor, files: Vec::new() };
    Ok(listening.showing("web.certificate", of_tls).showing("web.token", of_token))
}

/// The paths of a site.
struct Site {
    /// All paths.
    whole: Router,
    /// The paths that the reserve also answers.
    reserved: Router,
    /// The site's background task.
    background: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Serves a site, and reports refused clients to `on_refusal`.
fn start(
    listening: Listening,
    on_refusal: Option<OnRefusal>,
    site: impl FnOnce(&Arc<Server>) -> Site,
) -> Result<Web, WebError> {
    let Listening { listener, address, token, acceptor, files } = listening;
    let access = Access::new(address, token, acceptor.is_tls());
    let server = Arc::new(Server::new(access, on_refusal, files));
    let is_tls = acceptor.is_tls();
    let Site { whole, reserved, background } = site(&server);
    let serving = Arc::clone(&server);
    let serve = async move {
        // Converted inside the runtime, which wakes the task when a connection arrives.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        tokio::select! {
            () = serve(listener, acceptor, serving, whole, reserved) => {}
            () = background => {}
        }
    };
    let serving = Serving::start("web", serve).map_err(WebError::Thread)?;
    Ok(Web { address, is_tls, server, _serving: serving })
}

/// The page's server. Dropping it stops it.
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    is_tls: bool,
    server: Arc<Server>,
    _serving: Serving,
}

impl Web {
    /// Returns the address that the server listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        format!("{}://{}/", if self.is_tls { "https" } else { "http" }, self.address)
    }
}

/// State shared by the requests of all sites.
#[derive(Debug)]
struct Server {
    access: Access,
    counters: Counters,
    refusals: Mutex<Refusals>,
    began: Instant,
    /// Followed files, with their purposes.
    files: Arc<files::Files>,
}

/// The address of a connection's peer.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

impl Server {
    fn new(
        access: Access,
        on_refusal: Option<OnRefusal>,
        files: Vec<(String, Arc<dyn FollowedFiles>)>,
    ) -> Self {
        Self {
            access,
            counters: Counters::default(),
            refusals: Mutex::new(Refusals::new("page", on_refusal)),
            began: Instant::now(),
            files: files.into(),
        }
    }

    /// Reports a refused client.
    fn refuse(&self, Peer(address): Peer, why: &str) {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).refused(address, &why, now_ns);
    }
}

/// Number of connections per address.
type OfAddresses = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A connection's place, counted in total and for its address.
struct Place {
    _permit: OwnedSemaphorePermit,
    address: IpAddr,
    all: OfAddresses,
}

impl Place {
    /// Reserves a place for a connection from `address`, if one is free.
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

/// An accepted connection, over TCP or over TLS.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// Completes the TLS handshake, if TLS is configured. Returns `None` if the handshake fails or takes too long.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS refuses"))]
async fn agree(
    acceptor: &Acceptor,
    stream: TcpStream,
    longest: Duration,
    server: &Server,
    peer: Peer,
) -> Option<Box<dyn Connection>> {
    match acceptor {
        Acceptor::Plain => Some(Box::new(stream)),
        #[cfg(feature = "tls")]
        Acceptor::Tls(tls) => {
            let handshake = tokio_rustls::TlsAcceptor::from(tls.get()).accept(stream);
            let why = match tokio::time::timeout(longest, handshake).await {
                Ok(Ok(stream)) => return Some(Box::new(stream)),
                Ok(Err(error)) => format!("no TLS: {error}"),
                Err(_) => "no TLS in time".to_owned(),
            };
            server.counters.tls_refused.add();
            server.refuse(peer, &why);
            None
        }
    }
}

/// A connection on the reserve.
struct Reserved {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

/// Accepts connections up to the limit, then on the reserve. A reserve connection must send its request soon, and until then gives way to
/// newer ones. Clients that hold connections without a request therefore cannot block health checks or a gateway's kill switch.
async fn serve(
    listener: tokio::net::TcpListener,
    acceptor: Acceptor,
    server: Arc<Server>,
    whole: Router,
    reserved: Router,
) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut reserve = VecDeque::new();
    let of_addresses = OfAddresses::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Most likely the process is out of file descriptors: retry later.
            server.counters.accept_errors.add();
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        // Answers are small, and clients wait for them.
        let _slower = stream.set_nodelay(true);
        server.counters.connections.add();
        let (server, acceptor) = (Arc::clone(&server), acceptor.clone());
        match Place::take(&connections, &of_addresses, peer.ip()) {
            Some(place) => {
                let service = TowerToHyperService::new(whole.clone().layer(Extension(Peer(peer))));
                tokio::spawn(async move {
                    if let Some(stream) = agree(&acceptor, stream, HEADER_TIME, &server, Peer(peer)).await {
                        let connection = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .header_read_timeout(HEADER_TIME)
                            .max_buf_size(HEADER_BYTES)
                            .serve_connection(TokioIo::new(stream), service)
                            .with_upgrades();
                        // The connection is over, so its error has no recipient.
                        let _ended = tokio::time::timeout(CONNECTION_TIME, connection).await;
                    }
                    drop(place);
                });
            }
            None => {
                server.counters.connections_refused.add();
                server.refuse(Peer(peer), "too many connections");
                if reserve.len() >= RESERVE {
                    // A request that the kernel has already received counts as sent. This task may accept many connections in a
                    // row before the tasks that it has started run for the first time.
                    tokio::task::yield_now().await;
                    reserve.retain(|one: &Reserved| !one.task.is_finished());
                }
                if reserve.len() >= RESERVE {
                    // Evict the oldest connection without a request, or else the oldest, which may be reading its answer slowly.
                    let silent =
                        reserve.iter().position(|one: &Reserved| !one.has_asked.load(Ordering::Relaxed));
                    if let Some(oldest) = reserve.remove(silent.unwrap_or(0)) {
                        oldest.task.abort();
                        server.counters.connections_evicted.add();
                    }
                }
                let has_asked = Arc::new(AtomicBool::new(false));
                let asks = Arc::clone(&has_asked);
                let noted = middleware::map_request(move |request: Request| {
                    asks.store(true, Ordering::Relaxed);
                    std::future::ready(request)
                });
                let service = reserved.clone().layer(Extension(Peer(peer))).layer(noted);
                let service = TowerToHyperService::new(service);
                let task = tokio::spawn(async move {
                    let longest = RESERVE_HEADER_TIME;
                    let Some(stream) = agree(&acceptor, stream, longest, &server, Peer(peer)).await else {
                        return;
                    };
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(RESERVE_HEADER_TIME)
                        .max_buf_size(HEADER_BYTES)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), service);
                    if !matches!(tokio::time::timeout(RESERVE_TIME, connection).await, Ok(Ok(()))) {
                        server.counters.connections_evicted.add();
                    }
                });
                reserve.push_back(Reserved { task: task.abort_handle(), has_asked });
            }
        }
    }
}

/// Adds the paths that all sites share, and the guard. `index` is the file of the page.
fn whole(server: &Arc<Server>, routes: Router, index: &'static str) -> Router {
    let shared = Router::new()
        .route("/login", get(access::form).post(access::login))
        .route("/logout", post(access::logout))
        .with_state(Arc::clone(server));
    routes
        .merge(shared)
        .route("/health", get(health))
        .fallback(get(move |uri: Uri, headers: HeaderMap| async move { page::file(index, &uri, &headers) }))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(server), access::guard))
}

/// Answers the reserve's paths and refuses all others.
fn reserved(server: &Arc<Server>, routes: Router) -> Router {
    let full = || async {
        let about = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
        (StatusCode::SERVICE_UNAVAILABLE, about, "refused: too many connections\n").into_response()
    };
    routes
        .route("/health", get(health))
        .fallback(full)
        .layer(middleware::from_fn_with_state(Arc::clone(server), access::guard))
}

async fn health() -> &'static str {
    "alive\n"
}

/// Returns metrics in Prometheus' text format.
fn metrics_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn json(code: StatusCode, value: &serde_json::Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
