//! One connection of a session: logon, sequence numbers, gaps, heartbeats, logout.
//!
//! The caller passes received bytes to [`Session::receive`], calls [`Session::tick`] at least once a second, sends
//! [`Session::output`] and reports the bytes sent. When [`Session::over`] returns an end, the caller closes the
//! connection.

mod logon;
mod receiving;
mod resending;
mod sending;

use core::fmt;
use std::sync::Arc;

use tapeworks_fix_wire::{Parts, tag};

pub use self::logon::shown;
use self::receiving::Throttle;
use self::resending::{Gap, Queue};
use super::dictionary::Dictionary;
use super::link::Link;
use super::received::Received;
use super::settings::{Role, Settings};
use super::store::{Store, StoreError};
use super::validate::{Rejection, Room};

const SECOND_NS: u64 = 1_000_000_000;

/// A gap still open this long after its ResendRequest is requested again, in nanoseconds.
const ASK_AGAIN_NS: u64 = 30 * SECOND_NS;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides logged out.
    LoggedOut,
    /// The peer closed the connection.
    Closed,
    /// The first message is not an acceptable Logon. The text has the reason and the offending values.
    Refused(String),
    /// The first message is a Logon with the wrong user or password.
    WrongPassword,
    /// No Logon arrived in time.
    NoLogon,
    /// The peer did not answer our Logout in time.
    NoLogout,
    /// The peer sent nothing and did not answer a TestRequest.
    TimedOut,
    /// The peer sent more messages than allowed.
    Throttled,
    /// More messages followed a gap than the queue holds.
    QueueFull,
    /// The store failed.
    Store(StoreError),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedOut => f.write_str("logged out"),
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::Refused(why) => write!(f, "the Logon is refused: {why}"),
            Self::WrongPassword => f.write_str("the Logon is refused: not this user or password"),
            Self::NoLogon => f.write_str("no Logon in time"),
            Self::NoLogout => f.write_str("the Logout was not answered in time"),
            Self::TimedOut => f.write_str("the peer was silent for too long"),
            Self::Throttled => f.write_str("the peer sends more messages than it may"),
            Self::QueueFull => f.write_str("too many messages behind a gap"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// What the application did with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The application accepted it.
    Taken,
    /// The application does not handle this message type: BusinessMessageReject, reason 3.
    UnsupportedType,
    /// The application refused it: a BusinessMessageReject with this reason (380) and text (58).
    Refused(u32, &'static str),
    /// The message is invalid: a session reject.
    Rejected(Rejection),
}

/// The caller's side of a session.
pub trait Application {
    /// Handles an application message. Each arrives once and in order. `link` sends replies.
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict;

    /// Observes a session message before the session acts on it.
    fn admin(&mut self, _received: &Received<'_>) {}

    /// Called when the session is logged on.
    fn logged_on(&mut self, _link: &mut Link, _store: &mut dyn Store, _now_ns: u64) {}

    /// Returns whether to resend a message. Refuse stale orders: they are gap-filled.
    fn may_resend(&mut self, _message: &[u8]) -> bool {
        true
    }
}

/// Event counters. They only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Complete messages received.
    pub received: u64,
    /// Runs of garbled bytes skipped.
    pub garbled: u64,
    /// Garbled bytes skipped.
    pub garbled_bytes: u64,
    /// Session rejects sent.
    pub rejects: u64,
    /// BusinessMessageRejects sent.
    pub business_rejects: u64,
    /// Duplicates ignored.
    pub duplicates: u64,
    /// ResendRequests sent.
    pub resend_requests: u64,
    /// SequenceResets to the number already expected.
    pub needless_resets: u64,
    /// Messages that could not be written because they are too long, for example, and unnumbered Logouts dropped after the store failed.
    pub unsent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No Logon has arrived, or ours has not been answered.
    Fresh,
    LoggedOn,
    /// We sent a Logout first, at this time.
    LoggingOut(u64),
    /// The remaining output is sent; then we close the connection, or the peer does.
    Closing {
        /// The connection ends at this time in any case.
        until_ns: u64,
        end: End,
        /// Wait for the peer to close.
        waits: bool,
    },
    Over(End),
}

/// The caller's part in one call: its store, its application and the time.
struct Turn<'a> {
    store: &'a mut dyn Store,
    application: &'a mut dyn Application,
    now_ns: u64,
}

/// One connection of a session.
#[derive(Debug)]
pub struct Session {
    link: Link,
    dictionary: Arc<Dictionary>,
    state: State,
    input: Vec<u8>,
    /// `input` starts with a message of the wrong length whose trailer has not arrived.
    awaits_trailer: bool,
    parts: Parts,
    room: Room,
    /// Messages after a gap.
    queue: Queue,
    gap: Option<Gap>,
    heartbeat_ns: u64,
    started_ns: u64,
    received_ns: u64,
    /// TestRequests sent since a message was last received.
    tests: u64,
    throttle: Throttle,
    counters: Counters,
}

impl Session {
    /// Creates a session for a new connection. The first [`Session::tick`] sends an initiator's Logon.
    #[must_use]
    pub fn new(settings: Settings, dictionary: Arc<Dictionary>, now_ns: u64) -> Self {
        let heartbeat_ns = u64::from(settings.heartbeat_s) * SECOND_NS;
        Self {
            link: Link::new(settings, now_ns),
            dictionary,
            state: State::Fresh,
            input: Vec::new(),
            awaits_trailer: false,
            parts: Parts::new(),
            room: Room::default(),
            queue: Queue::default(),
            gap: None,
            heartbeat_ns,
            started_ns: now_ns,
            received_ns: now_ns,
            tests: 0,
            throttle: Throttle::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.link.settings
    }

    /// Returns the event counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the bytes held for an incomplete message, and for messages after a gap.
    #[must_use]
    pub fn held_bytes(&self) -> (usize, usize) {
        (self.input.len(), self.queue.bytes())
    }

    /// Returns whether both sides have sent a Logon and neither a Logout.
    #[must_use]
    pub fn is_logged_on(&self) -> bool {
        self.state == State::LoggedOn
    }

    /// Returns why the connection must be closed, or `None` while it is open. Nothing is sent after the end.
    #[must_use]
    pub fn over(&self) -> Option<&End> {
        match &self.state {
            State::Over(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        if matches!(self.state, State::Over(_)) { &[] } else { self.link.output() }
    }

    /// Records that `count` bytes of the output were sent. [`Session::resend`] and [`Session::tick`] continue a resend that had no room.
    pub fn sent(&mut self, count: usize) {
        self.link.take(count);
        self.close_if_sent();
    }

    /// Returns whether [`Session::resend`] has something to do.
    #[must_use]
    pub fn has_to_resend(&self) -> bool {
        self.link.goes_on() && !matches!(self.state, State::Over(_))
    }

    /// Continues a long resend as far as the output has room.
    pub fn resend(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        if self.has_to_resend() {
            self.pump(&mut Turn { store, application, now_ns });
        }
    }

    /// Returns the sending half, for the caller's messages.
    pub const fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Shifts all timers after the caller's clock was set ahead by this many nanoseconds (back, if negative), so that
    /// the jump does not count as elapsed time.
    pub fn clock_was_set(&mut self, ahead_ns: i64) {
        let move_by = |time_ns: &mut u64| *time_ns = time_ns.saturating_add_signed(ahead_ns);
        move_by(&mut self.started_ns);
        move_by(&mut self.received_ns);
        move_by(&mut self.link.sent_ns);
        if let Some(gap) = &mut self.gap {
            move_by(&mut gap.asked_ns);
        }
        match &mut self.state {
            State::LoggingOut(time_ns) | State::Closing { until_ns: time_ns, .. } => move_by(time_ns),
            _ => {}
        }
    }

    /// Records that the peer closed the connection.
    pub fn closed(&mut self, store: &mut dyn Store, now_ns: u64) {
        if let State::Over(_) = self.state {
            return;
        }
        let end = match &self.state {
            State::Closing { end, .. } => end.clone(),
            _ => End::Closed,
        };
        self.finish(end);
        self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
    }

    /// Sends a Logout and waits for the peer's.
    pub fn log_out(&mut self, store: &mut dyn Store, text: &str, now_ns: u64) {
        if self.state == State::LoggedOn {
            self.send_logout(store, text, now_ns);
        }
    }

    /// Runs the timers: heartbeats, TestRequests, timeouts, and resends in progress.
    pub fn tick(&mut self, store: &mut dyn Store, application: &mut dyn Application, now_ns: u64) {
        match self.state.clone() {
            State::Fresh => {
                if self.link.settings.role == Role::Initiator && self.link.messages_sent == 0 {
                    self.send_first_logon(store, now_ns);
                }
                if now_ns.saturating_sub(self.started_ns) >= self.link.settings.logon_timeout_ns {
                    self.finish(End::NoLogon);
                }
            }
            State::LoggedOn => self.tick_logged_on(store, now_ns),
            State::LoggingOut(since_ns) => {
                if now_ns.saturating_sub(since_ns) >= self.link.settings.logout_timeout_ns {
                    self.finish(End::NoLogout);
                    self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
                }
            }
            State::Closing { until_ns, end, .. } => {
                if now_ns >= until_ns {
                    self.finish(end);
                }
            }
            State::Over(_) => return,
        }
        self.pump(&mut Turn { store, application, now_ns });
    }

    fn tick_logged_on(&mut self, store: &mut dyn Store, now_ns: u64) {
        if let Some(schedule) = &self.link.settings.schedule
            && schedule.began_ns(now_ns).is_none()
        {
            self.send_logout(store, "the session's hours are over", now_ns);
            return;
        }
        if let Some(gap) = self.gap
            && now_ns.saturating_sub(gap.asked_ns) >= ASK_AGAIN_NS
        {
            self.ask(gap.highest, store, now_ns);
        }
        if self.heartbeat_ns == 0 {
            return;
        }
        let silent_ns = now_ns.saturating_sub(self.received_ns);
        // A fifth of the interval is allowed for the transit time.
        let patience_ns = self.heartbeat_ns + self.heartbeat_ns / 5;
        if silent_ns >= 2 * patience_ns && self.tests > 0 {
            self.finish(End::TimedOut);
            self.reset_if(self.link.settings.resets_on_disconnect, store, now_ns);
        } else if silent_ns >= patience_ns && self.tests == 0 {
            self.tests = 1;
            self.reply(store, b"1", &[], now_ns, |writer| _ = writer.text(tag::TEST_REQ_ID, b"TEST"));
        } else if self.tests == 0 && now_ns.saturating_sub(self.link.sent_ns) >= self.heartbeat_ns {
            self.reply(store, b"0", &[], now_ns, |_| {});
        }
    }
}
