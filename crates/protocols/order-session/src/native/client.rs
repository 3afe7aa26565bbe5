//! A user's end of a native session: both channels, recovery, throttle.
//!
//! The caller opens a connection when [`Client::wants`] says so, moves the bytes ([`Client::receive`],
//! [`Client::output`], [`Client::sent`]), calls [`Client::tick`] at [`Client::due_ns`], and closes a connection that is
//! [`Client::over`]. Each report arrives once as an [`Event::Report`], in order per App ID. Save
//! [`Client::last_numbers`] and pass it to [`Client::restore`] after a restart: the recovery resumes from there.
//!
//! If the connection breaks, orders still waiting for the throttle are returned as [`Event::Unsent`]. Only the reports
//! show the fate of an order whose bytes were already passed to the connection.

use std::collections::VecDeque;

use tapeworks_wire::millennium::native::{
    AppId, AppStatus, Logon, LogonFields, Logout, LogoutFields, Message, MissedMessageAckType,
    MissedMessageReportType, MissedMessageRequest, MissedMessageRequestFields, Reject, START_OF_MESSAGE,
    message_length, report_number,
};
use tapeworks_wire::millennium::variant::{LSE, Variant};
use tapeworks_wire::{Ascii, DecodeError};
use thiserror::Error;

use super::link::{Link, Timing};
use super::tracker::{Handed, MAX_REPORT_BYTES, RecoverySettings, Tracker, TrackerCounters};
use super::{Channel, End};
use tapeworks_session::Throttle;

/// The settings of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// The venue: padding, heartbeats, partitions, message version. Its `throttle_per_second` is the rate that the client
    /// keeps to; 0 is unlimited. Set it below the venue's limit: messages sent over more than a second may arrive within one.
    pub variant: Variant,
    /// The user's name, up to 25 characters.
    pub user: String,
    /// The password, up to 25 characters.
    pub password: String,
    /// The new password to set at the next logon.
    pub new_password: Option<String>,
    /// How long the answer to a logon may take, in nanoseconds. 10 s.
    pub logon_timeout_ns: u64,
    /// The wait before the first reconnect, in nanoseconds. It doubles with each failure. 1 s.
    pub first_reconnect_ns: u64,
    /// The longest wait before a reconnect, in nanoseconds. 30 s.
    pub longest_reconnect_ns: u64,
    /// The most messages that may wait for the throttle. 1,000.
    pub queue_messages: usize,
    /// The most unsent bytes; above this, [`Client::send`] refuses messages. 1 MiB.
    pub output_bytes: usize,
    /// Settings for recovering missed reports.
    pub recovery: RecoverySettings,
}

impl std::fmt::Debug for ClientSettings {
    /// Omits the passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { variant, user, recovery, .. } = self;
        f.debug_struct("ClientSettings")
            .field("variant", variant)
            .field("user", user)
            .field("recovery", recovery)
            .finish_non_exhaustive()
    }
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            variant: LSE,
            user: String::new(),
            password: String::new(),
            new_password: None,
            logon_timeout_ns: 10_000_000_000,
            first_reconnect_ns: 1_000_000_000,
            longest_reconnect_ns: 30_000_000_000,
            queue_messages: 1_000,
            output_bytes: 1 << 20,
            recovery: RecoverySettings::default(),
        }
    }
}

/// Why settings are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The user name does not fit its field.
    #[error("the user name has more than 25 characters or other than printable ASCII")]
    User,
    /// A password does not fit its field.
    #[error("a password has more than 25 characters or other than printable ASCII")]
    Password,
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The message is in the connection's output.
    Now,
    /// The message waits for the throttle.
    Queued {
        /// Number of messages ahead of it.
        before: usize,
    },
}

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The real-time channel is not logged on.
    #[error("the session is not logged on")]
    NotLoggedOn,
    /// The throttle's queue is full.
    #[error("{waiting} messages wait for the throttle")]
    Throttled {
        /// Number of waiting messages.
        waiting: usize,
    },
    /// The venue reads too slowly.
    #[error("{unsent} bytes wait to be sent")]
    Backlog {
        /// Number of unsent bytes.
        unsent: usize,
    },
    /// The message is empty or longer than any valid message.
    #[error("a message of {length} bytes cannot be sent")]
    Length {
        /// Its length in bytes.
        length: usize,
    },
}

/// An event of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A channel is logged on.
    LoggedOn {
        /// The channel.
        channel: Channel,
        /// Days until the password expires, if the venue reports them.
        password_expiry_days: Option<u32>,
    },
    /// The venue accepted the new password. Save it.
    PasswordChanged,
    /// A report. Each is delivered once, and in order within its App ID.
    Report {
        /// The partition.
        app_id: u8,
        /// The report's number for this user and day.
        number: u32,
        /// The message, with its header.
        message: &'a [u8],
    },
    /// The venue no longer has these reports: the caller must reconcile by other means.
    Missing {
        /// The partition.
        app_id: u8,
        /// The first missing number.
        first: u32,
        /// The number of missing reports.
        count: u32,
    },
    /// An App ID's report numbers restarted at 1: the venue is on another day.
    BeganAnew {
        /// The partition.
        app_id: u8,
    },
    /// No reports of an App ID are missing, as far as the venue has reported.
    CaughtUp {
        /// The partition.
        app_id: u8,
    },
    /// The venue did not answer a request for missed reports in time. The recovery channel reconnects and repeats the request.
    Unanswered {
        /// The partition.
        app_id: u8,
    },
    /// The venue does not know this App ID. It is treated as having no reports, unless it is a configured partition of
    /// which reports have arrived.
    UnknownAppId {
        /// The partition.
        app_id: u8,
    },
    /// The venue rejected a message.
    Rejected(Reject<'a>),
    /// A message of an undeclared type. It is unknown whether it is a report.
    Unreadable(&'a [u8]),
    /// The status of a partition, or of its recovery service.
    SystemStatus {
        /// The partition.
        app_id: u8,
        /// The status.
        status: AppStatus,
    },
    /// A message that waited for the throttle and was not sent because the session ended.
    Unsent(&'a [u8]),
    /// A connection ended.
    Ended {
        /// The channel.
        channel: Channel,
        /// How it ended.
        end: End,
    },
}

/// A client's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Counters of the report numbers.
    pub reports: TrackerCounters,
    /// Messages sent with [`Client::send`].
    pub sent: u64,
    /// Messages that waited for the throttle.
    pub queued: u64,
    /// Messages that [`Client::send`] refused.
    pub refused: u64,
    /// Messages handed back as [`Event::Unsent`].
    pub unsent: u64,
    /// Requests for missed reports.
    pub requests: u64,
    /// Requests that the venue refused or could not answer.
    pub requests_refused: u64,
    /// Requests that the venue did not answer in time.
    pub requests_unanswered: u64,
    /// Connections that broke: they ended neither by logout nor with the real-time channel.
    pub breaks: u64,
    /// Messages of an undeclared type. They are only passed on as `Event::Unreadable`.
    pub unknown_messages: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Closed,
    /// The logon was sent.
    LoggingOn,
    LoggedOn,
    /// Our logout was sent.
    LoggingOut,
    /// The remaining output is sent; then the connection ends.
    Closing(End),
    Over(End),
}

#[derive(Debug, Clone)]
struct Line {
    link: Link,
    phase: Phase,
    /// When the next connection may be opened, and the wait after the next failure.
    retry_at_ns: u64,
    wait_ns: u64,
}

#[derive(Debug, Clone)]
struct Queued {
    length: usize,
    bytes: [u8; MAX_REPORT_BYTES],
}

/// The recovery request in progress.
#[derive(Debug, Clone, Copy)]
struct Recovering {
    app_id: u8,
    /// When the venue last sent part of the answer, or when the request was made.
    heard_ns: u64,
}

/// A user's end of a session.
#[derive(Debug, Clone)]
pub struct Client {
    settings: ClientSettings,
    /// The password last set by the caller. A password change by the session itself does not affect it.
    given_password: String,
    timing: Timing,
    lines: [Line; 2],
    tracker: Tracker,
    throttle: Throttle,
    queue: VecDeque<Queued>,
    recovering: Option<Recovering>,
    /// The caller logged out: no connection is reopened.
    is_stopped: bool,
    counters: ClientCounters,
}

fn text<const N: usize>(settings: &ClientSettings, text: &str) -> Option<Ascii<N>> {
    settings.variant.text_padding.field(text)
}

fn password_expiry_days(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

impl Client {
    /// Creates a session before its first connection.
    ///
    /// # Errors
    /// The user name or a password does not fit its field.
    pub fn new(settings: ClientSettings) -> Result<Self, SettingsError> {
        text::<25>(&settings, &settings.user).ok_or(SettingsError::User)?;
        text::<25>(&settings, &settings.password).ok_or(SettingsError::Password)?;
        text::<25>(&settings, settings.new_password.as_deref().unwrap_or(""))
            .ok_or(SettingsError::Password)?;
        let line = || Line {
            link: Link::new(0),
            phase: Phase::Closed,
            retry_at_ns: 0,
            wait_ns: settings.first_reconnect_ns,
        };
        Ok(Self {
            timing: Timing::of(&settings.variant),
            lines: [line(), line()],
            tracker: Tracker::new(settings.variant.partitions, settings.recovery),
            throttle: Throttle::new(settings.variant.throttle_per_second),
            queue: VecDeque::with_capacity(settings.queue_messages),
            recovering: None,
            is_stopped: false,
            counters: ClientCounters::default(),
            given_password: settings.password.clone(),
            settings,
        })
    }

    /// Sets the password for the next logon, if it differs from the one that the caller set before.
    ///
    /// A password that the venue accepted in the meantime ([`Event::PasswordChanged`]) therefore stays until the caller has a new one.
    ///
    /// # Errors
    /// The password does not fit its field. Nothing changes.
    pub fn set_password(&mut self, password: &str) -> Result<(), SettingsError> {
        if self.given_password == password {
            return Ok(());
        }
        text::<25>(&self.settings, password).ok_or(SettingsError::Password)?;
        password.clone_into(&mut self.given_password);
        password.clone_into(&mut self.settings.password);
        Ok(())
    }

    fn line(&self, channel: Channel) -> &Line {
        &self.lines[channel.index()]
    }

    fn line_mut(&mut self, channel: Channel) -> &mut Line {
        &mut self.lines[channel.index()]
    }

    /// Returns whether the caller must open this connection now.
    #[must_use]
    pub fn wants(&self, channel: Channel, now_ns: u64) -> bool {
        let line = self.line(channel);
        let is_turn = channel == Channel::RealTime || self.is_logged_on();
        !self.is_stopped && is_turn && line.phase == Phase::Closed && line.retry_at_ns <= now_ns
    }

    /// Returns whether orders can be sent.
    #[must_use]
    pub fn is_logged_on(&self) -> bool {
        self.line(Channel::RealTime).phase == Phase::LoggedOn
    }

    /// Returns whether every known report was delivered: the session is logged on, and each App ID has been recovered since.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.is_logged_on() && self.tracker.is_caught_up()
    }

    /// Returns the App IDs whose reports are, or may be, missing. Their later reports are held until recovery.
    pub fn behind(&self) -> impl Iterator<Item = u8> {
        self.tracker.behind()
    }

    /// Returns the number of messages waiting for the throttle.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> ClientCounters {
        ClientCounters { reports: self.tracker.counters(), ..self.counters }
    }

    /// Returns the number of the last delivered report per App ID. Save these.
    pub fn last_numbers(&self) -> impl Iterator<Item = (u8, u32)> {
        self.tracker.last_numbers()
    }

    /// Resumes after the last handled report of an App ID, as saved. Call it before the first connection.
    ///
    /// `newest_ns` is the newest Transact Time of its reports. If it is 0 (unknown), a new day that started in the meantime goes unnoticed.
    pub fn restore(&mut self, app_id: u8, last_number: u32, newest_ns: u64) {
        self.tracker.restore(app_id, last_number, newest_ns);
    }

    /// Starts a new day: the numbers restart at 1. Call it while no connection is open.
    pub fn new_day(&mut self) {
        self.tracker.new_day();
        self.is_stopped = false;
    }

    /// Records that a connection was opened, and sends the logon.
    pub fn connected(&mut self, channel: Channel, now_ns: u64) {
        let settings = &self.settings;
        // The constructor and the password change have checked that the texts fit.
        let fields = LogonFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(Logon::LENGTH),
            user_name: text(settings, &settings.user).unwrap_or_default(),
            password: text(settings, &settings.password).unwrap_or_default(),
            new_password: text(settings, settings.new_password.as_deref().unwrap_or("")).unwrap_or_default(),
            message_version: settings.variant.message_version,
        };
        let logon = fields.encode();
        let line = self.line_mut(channel);
        line.link.restart(now_ns);
        line.link.put(&logon, now_ns);
        line.phase = Phase::LoggingOn;
    }

    /// Processes bytes received on a connection.
    pub fn receive(&mut self, channel: Channel, bytes: &[u8], now_ns: u64, mut each: impl FnMut(Event<'_>)) {
        if matches!(self.line(channel).phase, Phase::Closed | Phase::Over(_)) {
            return;
        }
        self.line_mut(channel).link.heard(now_ns);
        let mut reader = std::mem::take(&mut self.line_mut(channel).link.reader);
        let read = reader.read(bytes, |message| {
            self.message(channel, message, now_ns, &mut each);
            !matches!(self.line(channel).phase, Phase::Closed | Phase::Over(_))
        });
        self.line_mut(channel).link.reader = reader;
        if read.is_err() {
            self.end(channel, End::Malformed, now_ns, &mut each);
        }
        self.request(now_ns);
    }

    fn message(&mut self, channel: Channel, message: &[u8], now_ns: u64, each: &mut impl FnMut(Event<'_>)) {
        let phase = self.line(channel).phase;
        if let Some((app_id, number)) = report_number(message) {
            if phase == Phase::LoggingOn || Message::decode(message).is_err() {
                return self.end(channel, End::Malformed, now_ns, each);
            }
            let is_recovered = channel == Channel::Recovery;
            if is_recovered && let Some(recovering) = &mut self.recovering {
                recovering.heard_ns = now_ns;
            }
            return self
                .tracker
                .take(app_id, number, message, is_recovered, &mut |handed| each(event(handed)));
        }
        match (Message::decode(message), phase) {
            (Ok(Message::LogonReply(reply)), Phase::LoggingOn) => match reply.reject_code() {
                0 => {
                    let days = password_expiry_days(reply.password_expiry_day_count().trimmed());
                    self.logged_on(channel, days, now_ns, each);
                }
                code => self.end(channel, End::Rejected(code), now_ns, each),
            },
            (Ok(Message::Heartbeat(_)), _) => {}
            (Ok(Message::Reject(reject)), _) => {
                each(Event::Rejected(reject));
                if phase == Phase::LoggingOn {
                    self.end(channel, End::Rejected(reject.reject_code()), now_ns, each);
                } else if channel == Channel::Recovery
                    && let Some(Recovering { app_id, .. }) = self.recovering.take()
                {
                    self.counters.requests_refused += 1;
                    self.tracker.refused(app_id, now_ns);
                }
            }
            (Ok(Message::Logout(_)), Phase::LoggingOut) => self.end(channel, End::LoggedOut, now_ns, each),
            (Ok(Message::Logout(_)), _) => {
                let logout = self.logout_message("");
                let line = self.line_mut(channel);
                line.link.put(&logout, now_ns);
                line.phase = Phase::Closing(End::LoggedOut);
            }
            (Ok(Message::SystemStatus(status)), Phase::LoggedOn | Phase::LoggingOut) => {
                let (app_id, status) = (status.app_id().raw(), status.app_status());
                if status == AppStatus::RecoveryServiceResumed {
                    self.tracker.resumed(app_id);
                }
                each(Event::SystemStatus { app_id, status });
            }
            (Ok(Message::MissedMessageRequestAck(ack)), _) if channel == Channel::Recovery => {
                self.acknowledged(ack.response_type(), now_ns, each);
            }
            (Ok(Message::MissedMessageReport(report)), _) if channel == Channel::Recovery => {
                self.recovered(report.response_type(), now_ns, each);
            }
            (Err(DecodeError::UnknownMessage { .. }), Phase::LoggedOn | Phase::LoggingOut) => {
                self.counters.unknown_messages += 1;
                each(Event::Unreadable(message));
            }
            (_, Phase::Closing(_)) => {}
            _ => self.end(channel, End::Malformed, now_ns, each),
        }
    }

    fn logged_on(
        &mut self,
        channel: Channel,
        password_expiry_days: Option<u32>,
        _now_ns: u64,
        each: &mut impl FnMut(Event<'_>),
    ) {
        let first_wait_ns = self.settings.first_reconnect_ns;
        let line = self.line_mut(channel);
        line.phase = Phase::LoggedOn;
        line.wait_ns = first_wait_ns;
        if let Some(password) = self.settings.new_password.take() {
            self.settings.password = password;
            each(Event::PasswordChanged);
        }
        each(Event::LoggedOn { channel, password_expiry_days });
        if channel == Channel::RealTime {
            self.tracker.real_time_began();
            self.line_mut(Channel::Recovery).retry_at_ns = 0;
        }
    }

    fn acknowledged(&mut self, ack: MissedMessageAckType, now_ns: u64, each: &mut impl FnMut(Event<'_>)) {
        let Some(Recovering { app_id, heard_ns }) = &mut self.recovering else { return };
        let app_id = *app_id;
        *heard_ns = now_ns;
        match ack {
            MissedMessageAckType::Successful => {}
            MissedMessageAckType::InvalidAppId => {
                self.recovering = None;
                self.counters.requests_refused += 1;
                each(Event::UnknownAppId { app_id });
                let is_configured = (1..=self.settings.variant.partitions).contains(&app_id);
                if is_configured && self.tracker.has_reports(app_id) {
                    // The venue has sent reports of this App ID, so its gap stays open.
                    self.tracker.refused(app_id, now_ns);
                } else {
                    self.tracker.complete(app_id, &mut |handed| each(event(handed)));
                }
            }
            MissedMessageAckType::RecoveryRequestLimitReached
            | MissedMessageAckType::ServiceUnavailable
            | MissedMessageAckType::Unknown(_) => {
                self.recovering = None;
                self.counters.requests_refused += 1;
                self.tracker.refused(app_id, now_ns);
            }
        }
    }

    fn recovered(&mut self, end: MissedMessageReportType, now_ns: u64, each: &mut impl FnMut(Event<'_>)) {
        let Some(Recovering { app_id, .. }) = self.recovering.take() else { return };
        match end {
            MissedMessageReportType::DownloadComplete => {
                self.tracker.complete(app_id, &mut |handed| each(event(handed)));
            }
            MissedMessageReportType::MessageLimitReached => self.tracker.limit_reached(app_id, now_ns),
            MissedMessageReportType::ServiceUnavailable | MissedMessageReportType::Unknown(_) => {
                self.counters.requests_refused += 1;
                self.tracker.refused(app_id, now_ns);
            }
        }
    }

    /// Sends the next request for missed reports, if any. Only one is outstanding, because the end of an answer does not name its App ID.
    fn request(&mut self, now_ns: u64) {
        let is_open = self.line(Channel::Recovery).phase == Phase::LoggedOn && self.is_logged_on();
        if self.recovering.is_some() || !is_open {
            return;
        }
        let Some((app_id, last)) = self.tracker.next_request(now_ns) else { return };
        let fields = MissedMessageRequestFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(MissedMessageRequest::LENGTH),
            app_id: AppId::from_raw(app_id),
            last_msg_seq_num: i32::try_from(last).unwrap_or(i32::MAX),
        };
        self.recovering = Some(Recovering { app_id, heard_ns: now_ns });
        self.counters.requests += 1;
        self.line_mut(Channel::Recovery).link.put(&fields.encode(), now_ns);
    }

    fn logout_message(&self, reason: &str) -> [u8; Logout::LENGTH] {
        LogoutFields {
            start_of_message: START_OF_MESSAGE,
            message_length: message_length(Logout::LENGTH),
            reason: text(&self.settings, reason).unwrap_or_default(),
        }
        .encode()
    }

    /// Ends a connection. The caller closes it.
    fn end(&mut self, channel: Channel, end: End, now_ns: u64, each: &mut impl FnMut(Event<'_>)) {
        let longest_ns = self.settings.longest_reconnect_ns;
        let line = self.line_mut(channel);
        if matches!(line.phase, Phase::Closed | Phase::Over(_)) {
            return;
        }
        line.phase = Phase::Over(end);
        line.retry_at_ns = now_ns.saturating_add(line.wait_ns);
        line.wait_ns = line.wait_ns.saturating_mul(2).min(longest_ns);
        self.counters.breaks += u64::from(!matches!(end, End::LoggedOut | End::RealTimeEnded));
        each(Event::Ended { channel, end });
        self.recovering = None;
        self.tracker.recovery_broke();
        if channel == Channel::RealTime {
            while let Some(queued) = self.queue.pop_front() {
                self.counters.unsent += 1;
                each(Event::Unsent(queued.bytes.get(..queued.length).unwrap_or_default()));
            }
            self.end(Channel::Recovery, End::RealTimeEnded, now_ns, each);
        }
    }

    /// Sends an order, a cancel or another user message on the real-time channel, or queues it if over the throttle rate.
    ///
    /// # Errors
    /// The reason why it was not sent. The message is not kept.
    pub fn send(&mut self, message: &[u8], now_ns: u64) -> Result<Sent, SendError> {
        let sent = self.try_send(message, now_ns);
        self.counters.refused += u64::from(sent.is_err());
        sent
    }

    fn try_send(&mut self, message: &[u8], now_ns: u64) -> Result<Sent, SendError> {
        if !self.is_logged_on() {
            return Err(SendError::NotLoggedOn);
        }
        if message.is_empty() || message.len() > MAX_REPORT_BYTES {
            return Err(SendError::Length { length: message.len() });
        }
        let unsent = self.line(Channel::RealTime).link.unsent_bytes();
        if unsent + message.len() > self.settings.output_bytes {
            return Err(SendError::Backlog { unsent });
        }
        if self.queue.is_empty() && self.throttle.take(now_ns) {
            self.counters.sent += 1;
            self.line_mut(Channel::RealTime).link.put(message, now_ns);
            return Ok(Sent::Now);
        }
        let before = self.queue.len();
        if before >= self.settings.queue_messages {
            return Err(SendError::Throttled { waiting: before });
        }
        let mut queued = Queued { length: message.len(), bytes: [0; MAX_REPORT_BYTES] };
        if let Some(room) = queued.bytes.get_mut(..message.len()) {
            room.copy_from_slice(message);
        }
        self.counters.queued += 1;
        self.queue.push_back(queued);
        Ok(Sent::Queued { before })
    }

    /// Removes the messages selected by `is_meant` from the throttle's queue and passes each to `each`. They are not sent.
    pub fn take_back(&mut self, is_meant: impl Fn(&[u8]) -> bool, mut each: impl FnMut(&[u8])) {
        let counters = &mut self.counters;
        self.queue.retain(|queued| {
            let message = queued.bytes.get(..queued.length).unwrap_or_default();
            let is_taken = is_meant(message);
            if is_taken {
                counters.unsent += 1;
                each(message);
            }
            !is_taken
        });
    }

    fn release(&mut self, now_ns: u64) {
        while self.is_logged_on()
            && let Some(queued) = self.queue.front()
        {
            let length = queued.length;
            let unsent = self.line(Channel::RealTime).link.unsent_bytes();
            if unsent + length > self.settings.output_bytes || !self.throttle.take(now_ns) {
                return;
            }
            let Some(queued) = self.queue.pop_front() else { return };
            self.counters.sent += 1;
            let message = queued.bytes.get(..length).unwrap_or_default();
            self.line_mut(Channel::RealTime).link.put(message, now_ns);
        }
    }

    /// Returns the bytes to send next on a connection; empty if there are none.
    #[must_use]
    pub fn output(&self, channel: Channel) -> &[u8] {
        match self.line(channel).phase {
            Phase::Closed | Phase::Over(_) => &[],
            _ => self.line(channel).link.output(),
        }
    }

    /// Records that this many bytes of [`Client::output`] were sent.
    pub fn sent(&mut self, channel: Channel, bytes: usize, now_ns: u64, mut each: impl FnMut(Event<'_>)) {
        let line = self.line_mut(channel);
        line.link.sent(bytes, now_ns);
        if let Phase::Closing(end) = line.phase
            && line.link.unsent_bytes() == 0
        {
            self.end(channel, end, now_ns, &mut each);
        }
    }

    /// Records that the connection is closed, after [`Client::over`] or because the venue closed it.
    pub fn closed(&mut self, channel: Channel, now_ns: u64, mut each: impl FnMut(Event<'_>)) {
        let end = match self.line(channel).phase {
            Phase::Closing(end) => end,
            Phase::LoggingOut => End::LoggedOut,
            _ => End::Closed,
        };
        self.end(channel, end, now_ns, &mut each);
        self.line_mut(channel).phase = Phase::Closed;
    }

    /// Records that a connection could not be opened. It is retried later.
    pub fn refused(&mut self, channel: Channel, now_ns: u64) {
        let longest_ns = self.settings.longest_reconnect_ns;
        let line = self.line_mut(channel);
        line.retry_at_ns = now_ns.saturating_add(line.wait_ns);
        line.wait_ns = line.wait_ns.saturating_mul(2).min(longest_ns);
    }

    /// Logs out on both channels. No connection is reopened until [`Client::resume`] or [`Client::new_day`].
    pub fn logout(&mut self, reason: &str, now_ns: u64) {
        self.is_stopped = true;
        for channel in Channel::ALL {
            let logout = self.logout_message(reason);
            let line = self.line_mut(channel);
            if matches!(line.phase, Phase::LoggingOn | Phase::LoggedOn) {
                line.link.put(&logout, now_ns);
                line.phase = Phase::LoggingOut;
            }
        }
    }

    /// Allows connections again after [`Client::logout`].
    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// Runs the timers: heartbeats, timeouts, the throttle's queue, and pending requests.
    pub fn tick(&mut self, now_ns: u64, mut each: impl FnMut(Event<'_>)) {
        for channel in Channel::ALL {
            let (timing, timeout_ns) = (self.timing, self.settings.logon_timeout_ns);
            let line = self.line_mut(channel);
            let end = match line.phase {
                Phase::Closed | Phase::Over(_) => None,
                Phase::LoggingOn if line.link.age_ns(now_ns) >= timeout_ns => Some(End::NoLogon),
                _ if line.link.is_dead(&timing, now_ns) => Some(End::TimedOut),
                // The venue does not answer the logout.
                Phase::LoggingOut | Phase::Closing(_) if line.link.idle_ns(now_ns) >= timing.dead_ns() => {
                    Some(End::TimedOut)
                }
                Phase::LoggedOn => {
                    line.link.keep_alive(&timing, now_ns);
                    None
                }
                _ => None,
            };
            if let Some(end) = end {
                self.end(channel, end, now_ns, &mut each);
            }
        }
        if self.answer_due_ns() <= now_ns
            && let Some(Recovering { app_id, .. }) = self.recovering
        {
            self.counters.requests_unanswered += 1;
            self.tracker.refused(app_id, now_ns);
            each(Event::Unanswered { app_id });
            // A late answer would be mistaken for the answer to the next request.
            self.end(Channel::Recovery, End::NoAnswer, now_ns, &mut each);
        }
        self.release(now_ns);
        self.request(now_ns);
    }

    /// Returns when the outstanding request counts as unanswered; `u64::MAX` if there is none.
    fn answer_due_ns(&self) -> u64 {
        let timeout_ns = self.settings.recovery.answer_timeout_ns;
        self.recovering.map_or(u64::MAX, |recovering| recovering.heard_ns.saturating_add(timeout_ns))
    }

    /// Returns when [`Client::tick`] is due next, in nanoseconds of the caller's clock; `u64::MAX` if never.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        let mut due_ns = u64::MAX;
        for line in &self.lines {
            if !matches!(line.phase, Phase::Closed | Phase::Over(_)) {
                due_ns = due_ns.min(line.link.due_ns(&self.timing));
            }
        }
        if !self.queue.is_empty() {
            due_ns = due_ns.min(self.throttle.free_at_ns());
        }
        if self.recovering.is_none() && self.line(Channel::Recovery).phase == Phase::LoggedOn {
            due_ns = due_ns.min(self.tracker.request_due_ns().unwrap_or(u64::MAX));
        }
        due_ns.min(self.answer_due_ns())
    }

    /// Returns how a connection ended, if it has. The caller closes it and calls [`Client::closed`].
    #[must_use]
    pub fn over(&self, channel: Channel) -> Option<End> {
        match self.line(channel).phase {
            Phase::Over(end) => Some(end),
            _ => None,
        }
    }
}

fn event(handed: Handed<'_>) -> Event<'_> {
    match handed {
        Handed::Report { app_id, number, message } => Event::Report { app_id, number, message },
        Handed::Missing { app_id, first, count } => Event::Missing { app_id, first, count },
        Handed::CaughtUp { app_id } => Event::CaughtUp { app_id },
        Handed::BeganAnew { app_id } => Event::BeganAnew { app_id },
    }
}
