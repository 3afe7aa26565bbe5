//! The thread that publishes to NATS.
//!
//! ```text
//! queue ─▶ PREFIX.nbbo.SYMBOL (reply: inbox) ─▶ server ─▶ JetStream ─ stored ─▶ inbox
//!       └▶ PREFIX.trade.SYMBOL                └ marker: all before it arrived ──▶ inbox
//! ```
//!
//! Core NATS does not acknowledge messages. The publisher therefore sends itself a marker after its records, one marker at a
//! time: when it returns, the server has received everything before it. At most [`WINDOW`] records are unconfirmed; beyond that
//! the queue waits, and when the queue is full the stream conflates. A connection that breaks or confirms nothing in time is
//! replaced, after pauses that grow to a limit, and every current NBBO is published again. JetStream's own answers confirm that
//! an NBBO is stored; after a failed store all NBBOs are published again later.
//!
//! Cost: each record is decoded for its symbol and encoded again as JSON, with one allocation for the subject and one for the text. Each
//! connection has its own runtime, so that nothing of an old connection survives it. An idle publisher wakes up only for pings.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr, StatusCode, Subscriber};
use axum::extract::ws::Message;
use futures_util::{FutureExt, StreamExt};
use prost::Message as _;
use serde_json::{Value, json};
use tapeworks_outputs::stream::messages::{Kind, Record};
use tapeworks_outputs::stream::{Encoding, Hub, Request, StreamCounters, Subscription};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{NatsEncoding, NatsHandle, NatsLogin, NatsSetting, NatsStatus, token_of};

/// Maximum number of records that the server has not confirmed.
pub const WINDOW: u64 = 8_192;

/// Maximum number of records published between two checks for confirmations.
const AT_ONCE: usize = 256;

/// The first pause after a failure. The pause doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The interval between pings of an idle connection.
const PING: Duration = Duration::from_secs(15);

/// Longer than a broken connection is kept.
const NEVER: Duration = Duration::from_secs(3_600);

/// How long the first records of a connection wait for JetStream's stream. After that they are published without it.
const GRACE: Duration = Duration::from_secs(1);

/// JetStream's error code for a stream that does not exist.
const NO_STREAM: u64 = 10_059;

/// Why publishing cannot start.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum NatsError {
    /// The thread could not be started.
    #[error("no thread for NATS: {0}")]
    Thread(io::Error),
    /// The file of certificate authorities is unusable.
    #[cfg(feature = "tls")]
    #[error("'authorities' of [nats]: {0}")]
    Tls(#[from] tapeworks_runtime::tls::TlsError),
}

/// Why the output ended before it was stopped. An unreachable server does not end it.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum NatsFailure {
    /// The thread panicked.
    #[error("the thread for NATS panicked")]
    Panicked,
}

/// The output to NATS. Dropping it stops the thread.
#[derive(Debug)]
pub struct Nats {
    shared: Arc<Shared>,
    linger: Duration,
    ending: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and readers of the status.
#[derive(Debug)]
struct Shared {
    status: Mutex<NatsStatus>,
    /// Records taken from the queue.
    taken: AtomicU64,
    /// Counters of the queue.
    queue: Arc<StreamCounters>,
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut NatsStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn waiting(&self) -> u64 {
        self.queue.stream_records.get().saturating_sub(self.taken.load(Ordering::Acquire))
    }

    fn status(&self) -> NatsStatus {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        NatsStatus {
            waiting: self.waiting(),
            conflated: self.queue.stream_conflated.get(),
            dropped_trades: self.queue.stream_dropped_trades.get(),
            dropped_gaps: self.queue.stream_dropped_gaps.get(),
            lagged: self.queue.stream_lagged.get(),
            ..status
        }
    }
}

/// Starts publishing the records of the stream, even if no server is reachable: see [`Nats::status`].
///
/// # Errors
/// [`NatsError`].
pub fn start(setting: NatsSetting, hub: &Arc<Hub>) -> Result<Nats, NatsError> {
    #[cfg(feature = "tls")]
    if let Some(authorities) = &setting.authorities {
        // Report an unusable file now, not on each connection.
        tapeworks_runtime::transport::Connector::tls(authorities, None, "localhost")?;
    }
    let request =
        Request { encoding: Encoding::Protobuf, nbbo: setting.nbbo, trades: setting.trades, symbols: None };
    let subscription = hub.subscribe(request, setting.queue_records);
    let shared = Arc::new(Shared {
        status: Mutex::default(),
        taken: AtomicU64::new(0),
        queue: Arc::clone(&subscription.counters),
    });
    let (ending, is_ending) = watch::channel(None);
    let linger = setting.linger;
    let publisher = Publisher {
        setting,
        subscription,
        shared: Arc::clone(&shared),
        ending: is_ending,
        pause: Duration::ZERO,
        store_pause: Duration::ZERO,
        flight: Flight::default(),
    };
    let thread = std::thread::Builder::new().name("nats".to_owned()).spawn(move || publisher.run());
    Ok(Nats { shared, linger, ending, thread: Some(thread.map_err(NatsError::Thread)?) })
}

impl Nats {
    /// Returns a handle that reads the status from another thread.
    pub fn handle(&self) -> NatsHandle {
        let shared = Arc::clone(&self.shared);
        NatsHandle::new(move || shared.status())
    }

    /// Returns the current status.
    pub fn status(&self) -> NatsStatus {
        self.shared.status()
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the server has confirmed the remaining records of an ended stream, or until the configured time is over.
    ///
    /// # Errors
    /// [`NatsFailure`] if the thread panicked.
    pub fn join(mut self) -> Result<(), NatsFailure> {
        self.end(self.linger)
    }

    fn end(&mut self, within: Duration) -> Result<(), NatsFailure> {
        self.ending.send_replace(Some(Instant::now() + within));
        self.thread.take().map_or(Ok(()), JoinHandle::join).map_err(|_| NatsFailure::Panicked)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // Callers that need the result call `join`.
        let _ended = self.end(Duration::ZERO);
    }
}

/// How a connection ended.
enum Outcome {
    /// Everything is published, or the time for it is over.
    Ended,
    /// The connection failed, for this reason.
    Broken(String),
}

/// A connection.
struct Connection {
    client: Client,
    /// Receives the publisher's own markers and JetStream's answers.
    inbox: Subscriber,
    inbox_name: String,
    events: mpsc::UnboundedReceiver<Event>,
    /// The lookup of JetStream's stream in progress. Only the first records wait for it.
    look: Option<Look>,
    /// The time until which records wait for the first lookup.
    grace: Option<Instant>,
}

/// A lookup of JetStream's stream: `Ok` if the stream exists, or the reason why not.
type Look = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Waits for the lookup in progress; never returns if there is none.
async fn looked(look: &mut Option<Look>) -> Result<(), String> {
    match look {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// Messages in flight over one connection.
#[derive(Debug)]
struct Flight {
    /// Published records.
    sent: u64,
    /// Records that the server has confirmed.
    confirmed: u64,
    /// Whether a marker is in flight.
    has_marker: bool,
    /// When the server last confirmed a record, or when the first record after that was sent.
    progressed: Instant,
    /// Whether JetStream is to confirm NBBOs.
    is_storing: bool,
    /// Changes when earlier answers of JetStream become invalid.
    epoch: u64,
    /// NBBOs that JetStream has not confirmed.
    unstored: u64,
    /// When JetStream last answered, or when the first NBBO after that was sent.
    stored: Instant,
    /// When to look up JetStream's stream again.
    repair: Option<Instant>,
}

impl Default for Flight {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            sent: 0,
            confirmed: 0,
            has_marker: false,
            progressed: now,
            is_storing: false,
            epoch: 0,
            unstored: 0,
            stored: now,
            repair: None,
        }
    }
}

impl Flight {
    const fn in_flight(&self) -> u64 {
        self.sent - self.confirmed
    }

    const fn has_room(&self) -> bool {
        self.in_flight() < WINDOW && self.unstored < WINDOW
    }

    const fn is_settled(&self) -> bool {
        self.in_flight() == 0 && self.unstored == 0
    }

    /// Returns when the next answer is overdue or the next lookup is due. Answers may take `timeout`.
    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        let confirmed = (self.in_flight() > 0).then(|| self.progressed + timeout);
        let stored = (self.unstored > 0).then(|| self.stored + timeout);
        [confirmed, stored, self.repair].into_iter().flatten().min()
    }
}

struct Publisher {
    setting: NatsSetting,
    subscription: Subscription,
    shared: Arc<Shared>,
    ending: watch::Receiver<Option<Instant>>,
    pause: Duration,
    store_pause: Duration,
    flight: Flight,
}

/// Returns the next pause after a failure.
fn longer(pause: Duration, longest: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE.min(longest), longest)
}

/// Waits until the plant ends and its time for remaining records is over.
async fn over(mut ending: watch::Receiver<Option<Instant>>, shared: &Shared) {
    let deadline = match ending.wait_for(Option::is_some).await {
        Ok(deadline) => *deadline,
        // The handle was dropped.
        Err(_) => None,
    };
    let Some(deadline) = deadline else { return };
    let status = shared.status();
    if status.is_connected || status.waiting > 0 {
        tokio::time::sleep_until(deadline).await;
    }
}

impl Publisher {
    fn run(mut self) {
        loop {
            let outcome = self.session();
            let unconfirmed = std::mem::take(&mut self.flight).in_flight();
            let error = match &outcome {
                Outcome::Ended => None,
                Outcome::Broken(why) => Some(format!("{}: {why}", self.setting.shown_servers())),
            };
            // Update everything in one step, so that nobody sees a broken connection without its reason.
            self.shared.update(|status| {
                (status.is_connected, status.is_storing, status.in_flight) = (false, false, 0);
                status.unconfirmed += unconfirmed;
                status.failures += u64::from(error.is_some());
                status.error = error.or(status.error.take());
            });
            match outcome {
                Outcome::Ended => break,
                Outcome::Broken(_) => self.pause = longer(self.pause, self.setting.longest_pause),
            }
        }
        let mut left = 0;
        while self.subscription.records.try_recv().is_ok() {
            left += 1;
        }
        self.shared.taken.fetch_add(left, Ordering::AcqRel);
        self.shared.update(|status| status.lost += left);
    }

    /// Runs one connection, from the pause before it to its end.
    fn session(&mut self) -> Outcome {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                std::thread::sleep(FIRST_PAUSE);
                let is_over = self.ending.borrow().is_some();
                return if is_over { Outcome::Ended } else { Outcome::Broken(error.to_string()) };
            }
        };
        let (ending, shared) = (self.ending.clone(), Arc::clone(&self.shared));
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = self.connect_and_publish() => outcome,
                () = over(ending, &shared) => Outcome::Ended,
            }
        });
        // Do not wait for a pending name lookup.
        runtime.shutdown_background();
        outcome
    }

    async fn connect_and_publish(&mut self) -> Outcome {
        tokio::time::sleep(self.pause).await;
        let longest = self.setting.timeout * u32::try_from(self.setting.servers.len()).unwrap_or(u32::MAX);
        let mut connection = match tokio::time::timeout(longest, self.connect()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(why)) => return Outcome::Broken(why),
            Err(_) => return Outcome::Broken("no connection in time".to_owned()),
        };
        self.shared.update(|status| {
            (status.is_connected, status.error) = (true, None);
            status.connects += 1;
        });
        self.look_for_stream(&mut connection);
        match connection.look {
            Some(_) => connection.grace = Some(Instant::now() + GRACE),
            None => self.subscription.request_current(),
        }
        match self.publish_all(&mut connection).await {
            Ok(()) => Outcome::Ended,
            Err(why) => Outcome::Broken(why),
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let setting = &self.setting;
        let (happened, events) = mpsc::unbounded_channel();
        let has_connected = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&has_connected);
        let room = usize::try_from(WINDOW).unwrap_or(usize::MAX) + AT_ONCE;
        let mut options = ConnectOptions::new()
            .name("tapeworks")
            .ignore_discovered_servers()
            .client_capacity(room)
            .connection_timeout(setting.timeout)
            .request_timeout(Some(setting.timeout))
            .ping_interval(PING)
            // The library must not reconnect by itself: messages left from the old connection would overtake newer ones.
            .reconnect_delay_callback(
                move |_| if is_over.load(Ordering::Acquire) { NEVER } else { Duration::ZERO },
            )
            .event_callback(move |event| {
                // The receiver is closed once the connection is given up.
                let _heard = happened.send(event);
                async {}
            });
        if let Some(authorities) = &setting.authorities {
            options = options.require_tls(true).add_root_certificates(authorities.clone());
        }
        options = match &setting.login {
            None => options,
            Some(NatsLogin::Token(token)) => options.token(token.get().to_string()),
            Some(NatsLogin::User { name, password }) => {
                options.user_and_password(name.clone(), password.get().to_string())
            }
        };
        let parsed = setting.servers.iter().map(|(host, port)| format!("nats://{host}:{port}").parse());
        let servers: Vec<ServerAddr> =
            parsed.collect::<Result<_, io::Error>>().map_err(|error| error.to_string())?;
        let client =
            options.connect(servers).await.map_err(|error| match (error.kind(), &setting.login) {
                (ConnectErrorKind::AuthorizationViolation, Some(NatsLogin::Token(_))) => {
                    "the server refuses the token of [nats]".to_owned()
                }
                (ConnectErrorKind::AuthorizationViolation, Some(NatsLogin::User { name, .. })) => {
                    format!("the server refuses the user '{name}' with the password of [nats]")
                }
                (ConnectErrorKind::AuthorizationViolation, None) => {
                    "the server requires a login, and [nats] has neither a token nor a 'login'".to_owned()
                }
                _ => error.to_string(),
            })?;
        has_connected.store(true, Ordering::Release);
        let inbox_name = client.new_inbox();
        let inbox = client.subscribe(format!("{inbox_name}.*")).await.map_err(|error| error.to_string())?;
        Ok(Connection { client, inbox, inbox_name, events, look: None, grace: None })
    }

    /// Starts to look up or create JetStream's stream, if one is configured.
    fn look_for_stream(&mut self, connection: &mut Connection) {
        self.flight.repair = None;
        if let Some(name) = &self.setting.stream {
            let (client, name, prefix) =
                (connection.client.clone(), name.clone(), self.setting.prefix.clone());
            connection.look = Some(Box::pin(find_or_create(client, name, prefix)));
        }
    }

    /// Handles the result of a lookup. A stream that was found gets all current NBBOs. Without a stream they are published too,
    /// unless that was done when the grace period ended.
    fn take_look(&mut self, connection: &mut Connection, looked: Result<(), String>) {
        connection.look = None;
        let have_waited = connection.grace.take().is_some();
        match looked {
            Ok(()) => {
                self.flight.is_storing = true;
                self.shared.update(|status| (status.is_storing, status.error) = (true, None));
                self.subscription.request_current();
            }
            Err(why) => {
                self.fail_to_store(&why);
                if have_waited {
                    self.subscription.request_current();
                }
            }
        }
    }

    /// Records that JetStream does not store NBBOs for now. They are still published.
    fn fail_to_store(&mut self, why: &str) {
        self.store_pause = longer(self.store_pause, self.setting.longest_pause);
        let flight = &mut self.flight;
        (flight.is_storing, flight.unstored) = (false, 0);
        flight.epoch += 1;
        flight.repair = Some(Instant::now() + self.store_pause);
        let stream = self.setting.stream.as_deref().unwrap_or_default();
        let error = format!("{}: JetStream's stream {stream}: {why}", self.setting.shown_servers());
        self.shared.update(|status| {
            status.store_failures += 1;
            (status.is_storing, status.error) = (false, Some(error));
        });
    }

    /// Publishes until the stream has ended and every record is confirmed.
    async fn publish_all(&mut self, connection: &mut Connection) -> Result<(), String> {
        let (mut has_ended, mut said) = (false, None);
        let because = |why: &str, said: &Option<String>| match said {
            Some(said) => format!("{why}; the server says: {said}"),
            None => why.to_owned(),
        };
        while !(has_ended && self.flight.is_settled() && connection.look.is_none()) {
            let in_flight = self.flight.in_flight();
            self.shared.update(|status| status.in_flight = in_flight);
            let deadline =
                self.flight.deadline(self.setting.timeout).into_iter().chain(connection.grace).min();
            tokio::select! {
                biased;
                event = connection.events.recv() => match event {
                    Some(Event::ServerError(error)) => {
                        // For example, a subject that the login may not publish to.
                        let error = error.to_string();
                        let shown = format!("{}: {error}", self.setting.shown_servers());
                        said = Some(error);
                        self.shared.update(|status| {
                            status.refused += 1;
                            status.error = Some(shown);
                        });
                    }
                    Some(Event::Disconnected | Event::Closed) | None => {
                        return Err(because("the connection broke", &said));
                    }
                    Some(_) => {}
                },
                message = connection.inbox.next() => {
                    let mut next = message;
                    loop {
                        let Some(message) = next else { return Err(because("the connection is closed", &said)) };
                        self.confirm(&message);
                        match connection.inbox.next().now_or_never() {
                            Some(more) => next = more,
                            None => break,
                        }
                    }
                    self.mark(connection).await?;
                }
                looked = looked(&mut connection.look) => self.take_look(connection, looked),
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.look_at_time(connection).map_err(|why| because(&why, &said))?;
                }
                record = self.subscription.records.recv(), if !has_ended && connection.grace.is_none() && self.flight.has_room() => {
                    let Some(record) = record else {
                        has_ended = true;
                        continue;
                    };
                    self.publish(connection, record).await?;
                    for _ in 1..AT_ONCE {
                        if !self.flight.has_room() {
                            break;
                        }
                        // The next `recv` reports the end.
                        let Ok(record) = self.subscription.records.try_recv() else { break };
                        self.publish(connection, record).await?;
                    }
                    self.mark(connection).await?;
                }
            }
        }
        Ok(())
    }

    /// Handles overdue confirmations of the server or JetStream, and repeats the lookup of the stream when it is due.
    fn look_at_time(&mut self, connection: &mut Connection) -> Result<(), String> {
        let (now, timeout) = (Instant::now(), self.setting.timeout);
        if connection.grace.is_some_and(|until| until <= now) {
            connection.grace = None;
            self.subscription.request_current();
        }
        let flight = &self.flight;
        if flight.in_flight() > 0 && flight.progressed + timeout <= now {
            return Err(format!("the server confirms nothing for {timeout:?}"));
        }
        if flight.unstored > 0 && flight.stored + timeout <= now {
            self.fail_to_store(&format!("no answer for {timeout:?}"));
        } else if flight.repair.is_some_and(|at| at <= now) {
            self.look_for_stream(connection);
        }
        Ok(())
    }

    /// Handles a returned marker, or JetStream's answer to an NBBO.
    fn confirm(&mut self, message: &async_nats::Message) {
        let token = message.subject.as_str().rsplit('.').next().unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().ok();
        if let Some(upto) = token.strip_prefix('m').and_then(number) {
            let flight = &mut self.flight;
            let confirmed = upto.min(flight.sent).saturating_sub(flight.confirmed);
            flight.confirmed += confirmed;
            (flight.has_marker, flight.progressed) = (false, Instant::now());
            self.pause = Duration::ZERO;
            let in_flight = flight.in_flight();
            self.shared.update(|status| {
                status.records += confirmed;
                status.in_flight = in_flight;
            });
        } else if token.strip_prefix('s').and_then(number) == Some(self.flight.epoch) {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                let why = format!("no stream takes {}.nbbo.*", self.setting.prefix);
                return self.fail_to_store(&why);
            }
            let answer: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
            if let Some((_, description)) = error_of(&answer) {
                return self.fail_to_store(&description);
            }
            self.flight.unstored = self.flight.unstored.saturating_sub(1);
            self.flight.stored = Instant::now();
            self.store_pause = Duration::ZERO;
            self.shared.update(|status| status.stored += 1);
        }
    }

    async fn publish(&mut self, connection: &Connection, message: Message) -> Result<(), String> {
        self.shared.taken.fetch_add(1, Ordering::AcqRel);
        let Message::Binary(bytes) = message else {
            return Err("a record of the stream is no record".to_owned());
        };
        let record = Record::decode(bytes.clone()).map_err(|error| error.to_string())?;
        let mut subject = String::with_capacity(64);
        subject.push_str(&self.setting.prefix);
        let flight = &mut self.flight;
        let mut reply = None;
        // Writing to a string cannot fail.
        let _written = match &record.kind {
            Some(Kind::Nbbo(nbbo)) => {
                if flight.is_storing {
                    reply = Some(format!("{}.s{}", connection.inbox_name, flight.epoch));
                }
                write!(subject, ".nbbo.{}", token_of(&nbbo.symbol))
            }
            Some(Kind::Trade(trade)) => write!(subject, ".trade.{}", token_of(&trade.symbol)),
            Some(Kind::Gap(_)) => write!(subject, ".gap"),
            Some(Kind::Lagged(_)) | None => write!(subject, ".lagged"),
        };
        let payload = match self.setting.encoding {
            NatsEncoding::Json => record.to_json().into(),
            NatsEncoding::Protobuf => bytes,
        };
        let now = Instant::now();
        if flight.in_flight() == 0 {
            flight.progressed = now;
        }
        flight.sent += 1;
        // The client's queue has room for everything in flight, so neither call waits.
        let published = match reply {
            Some(reply) => {
                if flight.unstored == 0 {
                    flight.stored = now;
                }
                flight.unstored += 1;
                connection.client.publish_with_reply(subject, reply, payload).await
            }
            None => connection.client.publish(subject, payload).await,
        };
        published.map_err(|error| error.to_string())
    }

    /// Sends a marker after the records, unless one is in flight.
    async fn mark(&mut self, connection: &Connection) -> Result<(), String> {
        let flight = &mut self.flight;
        if flight.has_marker || flight.in_flight() == 0 {
            return Ok(());
        }
        flight.has_marker = true;
        let subject = format!("{}.m{}", connection.inbox_name, flight.sent);
        connection.client.publish(subject, Default::default()).await.map_err(|error| error.to_string())
    }
}

/// Returns the code and text of JetStream's error, if the answer is one.
fn error_of(answer: &Value) -> Option<(u64, String)> {
    let error = answer.get("error")?;
    let text = error["description"].as_str().unwrap_or("an error without a description");
    Some((error["err_code"].as_u64().unwrap_or_default(), text.to_owned()))
}

/// Finds JetStream's stream or creates it. An existing stream is not changed.
async fn find_or_create(client: Client, name: String, prefix: String) -> Result<(), String> {
    let subject = format!("{prefix}.nbbo.*");
    match request(&client, format!("$JS.API.STREAM.INFO.{name}"), "").await? {
        Ok(info) => {
            let subjects = info["config"]["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
            let subjects: Vec<&str> = subjects.iter().filter_map(Value::as_str).collect();
            return if subjects.iter().any(|filter| takes(filter, &subject)) {
                Ok(())
            } else {
                Err(format!("it takes {}, not {subject}", subjects.join(", ")))
            };
        }
        Err((NO_STREAM, _)) => {}
        Err((_, description)) => return Err(description),
    }
    let config = json!({
        "name": name,
        "subjects": [subject],
        "max_msgs_per_subject": 1,
        "retention": "limits",
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
    });
    let created = request(&client, format!("$JS.API.STREAM.CREATE.{name}"), &config.to_string()).await?;
    created.map(drop).map_err(|(_, description)| format!("it cannot be created: {description}"))
}

/// Returns whether a stream's filter matches every subject of a pattern.
fn takes(filter: &str, pattern: &str) -> bool {
    let (mut filter, mut pattern) = (filter.split('.'), pattern.split('.'));
    loop {
        match (filter.next(), pattern.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// Sends a request to JetStream. Returns its answer, or the code and text of its error.
async fn request(
    client: &Client,
    subject: String,
    body: &str,
) -> Result<Result<Value, (u64, String)>, String> {
    let answer = client.request(subject, body.to_owned().into()).await;
    let answer = answer.map_err(|error| match error.kind() {
        async_nats::RequestErrorKind::NoResponders => "the server has no JetStream for this login".to_owned(),
        _ => error.to_string(),
    })?;
    let answer = serde_json::from_slice(&answer.payload)
        .map_err(|error| format!("an answer that is no JSON: {error}"))?;
    Ok(error_of(&answer).map_or(Ok(answer), Err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_a_pattern_only_if_it_takes_all_of_it() {
        for (filter, is_taken) in [
            ("t.nbbo.*", true),
            ("t.nbbo.>", true),
            ("t.>", true),
            (">", true),
            ("*.nbbo.*", true),
            ("t.nbbo.AAPL", false),
            ("t.trade.*", false),
            ("t.nbbo", false),
            ("t.nbbo.*.*", false),
            ("", false),
        ] {
            assert_eq!(takes(filter, "t.nbbo.*"), is_taken, "{filter}");
        }
    }
}
