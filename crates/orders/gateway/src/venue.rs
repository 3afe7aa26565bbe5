//! The session with the venue, as the gateway sees it: Millennium's native session, or OUCH over SoupBinTCP.
//!
//! The two differ in their channels, and in how missed reports arrive. The rest of the crate does not distinguish them.

use core::fmt::Debug;

use tapeworks_order_session::fix::Schedule;
use tapeworks_order_session::native::{self, Channel};
use tapeworks_order_session::soupbintcp::{
    CredentialsTooLong, SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace,
};
use tapeworks_planted::planted;
use tapeworks_translate::ids::Partitions;
use tapeworks_translate::{Millennium, Ouch, Venue};
use tapeworks_wire::millennium::native::report_time_ns;
use tapeworks_wire::nasdaq::ouch50::inbound::AccountQueryFields;
use tapeworks_wire::nasdaq::ouch50::outbound;

/// An event of the session.
#[derive(Clone, Copy, Debug)]
pub enum VenueEvent<'a> {
    /// Orders can be sent; missed reports are still to come.
    LoggedOn,
    /// A report, delivered once and in order.
    Report {
        /// The App ID whose sequence the report belongs to; 0: the venue has one sequence.
        app_id: u8,
        /// The report's number; 0: it has none, and may arrive again.
        number: u64,
        /// The message.
        message: &'a [u8],
    },
    /// The venue no longer has these reports.
    Missing {
        /// The App ID whose sequence the reports belong to.
        app_id: u8,
        /// The number of the first one.
        first: u64,
        /// The number of reports.
        count: u64,
    },
    /// The venue's sequence numbers restart.
    NewDay {
        /// The App ID whose sequence restarts.
        app_id: u8,
    },
    /// The name of the venue's session. Sequence numbers of different sessions are unrelated.
    Session(&'a [u8]),
    /// The venue has seen no request named by this number or a later one, and all reports of earlier requests have arrived.
    NextName(u32),
    /// A message that was not sent.
    Unsent(&'a [u8]),
    /// The venue did not answer a request for missed reports in time.
    Unanswered {
        /// The App ID of the missed reports.
        app_id: u8,
    },
    /// The venue rejected this App ID as unknown.
    UnknownAppId {
        /// The App ID.
        app_id: u8,
    },
    /// Information about the venue.
    Notice(&'static str),
    /// A problem that needs someone's attention.
    Alert(&'static str),
    /// The order session ended, with the reason.
    Ended(&'a str),
}

/// A session with a venue, without sockets and clocks. Channels are numbered from 0; orders use channel 0.
pub trait VenueSession: Debug {
    /// The venue's mapping table.
    type Table: Venue + Debug + Send;
    /// Number of simultaneous connections.
    const CHANNELS: usize;

    /// Returns whether the caller should connect this channel now.
    fn wants(&self, channel: usize, now_ns: u64) -> bool;
    /// Sets the password for the next logon. A password that does not fit changes nothing.
    fn set_password(&mut self, password: &str);
    /// Notes that the connection is established.
    fn connected(&mut self, channel: usize, now_ns: u64);
    /// Notes that the connection could not be established.
    fn refused(&mut self, channel: usize, now_ns: u64);
    /// Processes received bytes.
    fn receive(&mut self, channel: usize, bytes: &[u8], now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Returns the bytes to send.
    fn output(&self, channel: usize) -> &[u8];
    /// Notes that the first `count` bytes of the output were sent.
    fn sent(&mut self, channel: usize, count: usize, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Notes that the connection is closed.
    fn closed(&mut self, channel: usize, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Returns whether the caller should close the connection.
    fn is_over(&self, channel: usize) -> bool;
    /// Advances time.
    fn tick(&mut self, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Sends a message. Returns whether the session accepted it.
    fn send(&mut self, message: &[u8], now_ns: u64) -> bool;
    /// Withdraws the queued messages that `is_meant` selects: they are not sent.
    fn take_back(&mut self, is_meant: impl Fn(&[u8]) -> bool, each: impl FnMut(&[u8]));
    /// Returns whether orders can be sent.
    fn is_logged_on(&self) -> bool;
    /// Returns whether all missed reports have arrived.
    fn is_caught_up(&self) -> bool;
    /// Returns the partitions with missing reports.
    fn behind(&self) -> Partitions {
        Partitions::default()
    }
    /// Restores the name of the venue's session in a previous run. Call it before [`VenueSession::restore`].
    fn restore_session(&mut self, _name: &[u8]) {}
    /// Restores the number of the last report that a previous run delivered.
    fn restore(&mut self, app_id: u8, number: u64, newest_ns: u64);
    /// Returns the time of a report in UTC nanoseconds, for [`VenueSession::restore`]; 0: not needed.
    fn report_time_ns(message: &[u8]) -> u64;
    /// Returns the midnight before this time from which the venue's times count, in UTC nanoseconds; `None`: its times include a
    /// date.
    fn midnight_ns(&self, _utc_ns: u64) -> Option<u64> {
        None
    }
    /// Logs out, and reconnects no more.
    fn log_out(&mut self, now_ns: u64);
    /// Returns the number of messages that wait for the throttle.
    fn queued(&self) -> usize;
}

const CHANNELS: [Channel; 2] = Channel::ALL;

fn of_native(event: native::Event<'_>, each: &mut impl FnMut(VenueEvent<'_>)) {
    match event {
        native::Event::LoggedOn { channel: Channel::RealTime, .. } => each(VenueEvent::LoggedOn),
        native::Event::Report { app_id, number, message } => {
            each(VenueEvent::Report { app_id, number: number.into(), message });
        }
        native::Event::Missing { app_id, first, count } => {
            each(VenueEvent::Missing { app_id, first: first.into(), count: count.into() });
        }
        native::Event::BeganAnew { app_id } => each(VenueEvent::NewDay { app_id }),
        native::Event::Rejected(reject) => {
            each(VenueEvent::Report { app_id: 0, number: 0, message: reject.as_bytes() });
        }
        native::Event::Unreadable(message) => {
            each(VenueEvent::Report { app_id: 0, number: 0, message });
        }
        native::Event::Unsent(message) => each(VenueEvent::Unsent(message)),
        native::Event::UnknownAppId { app_id } => each(VenueEvent::UnknownAppId { app_id }),
        native::Event::Unanswered { app_id } => each(VenueEvent::Unanswered { app_id }),
        native::Event::Ended { channel: Channel::RealTime, end } => {
            each(VenueEvent::Ended(&end.to_string()));
        }
        native::Event::SystemStatus { .. } => {
            each(VenueEvent::Notice("a partition, or its recovery, changed its state"));
        }
        native::Event::PasswordChanged => each(VenueEvent::Notice("the password was changed")),
        _ => {}
    }
}

impl VenueSession for native::Client {
    type Table = Millennium;
    const CHANNELS: usize = 2;

    fn wants(&self, channel: usize, now_ns: u64) -> bool {
        CHANNELS.get(channel).is_some_and(|channel| self.wants(*channel, now_ns))
    }

    fn set_password(&mut self, password: &str) {
        // The configuration has checked that the password fits.
        let _stays_at_worst = native::Client::set_password(self, password);
    }

    fn connected(&mut self, channel: usize, now_ns: u64) {
        if let Some(channel) = CHANNELS.get(channel) {
            self.connected(*channel, now_ns);
        }
    }

    fn refused(&mut self, channel: usize, now_ns: u64) {
        if let Some(channel) = CHANNELS.get(channel) {
            self.refused(*channel, now_ns);
        }
    }

    fn receive(&mut self, channel: usize, bytes: &[u8], now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        if let Some(channel) = CHANNELS.get(channel) {
            self.receive(*channel, bytes, now_ns, |event| of_native(event, &mut each));
        }
    }

    fn output(&self, channel: usize) -> &[u8] {
        CHANNELS.get(channel).map_or(&[], |channel| self.output(*channel))
    }

    fn sent(&mut self, channel: usize, count: usize, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        if let Some(channel) = CHANNELS.get(channel) {
            self.sent(*channel, count, now_ns, |event| of_native(event, &mut each));
        }
    }

    fn closed(&mut self, channel: usize, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        if let Some(channel) = CHANNELS.get(channel) {
            self.closed(*channel, now_ns, |event| of_native(event, &mut each));
        }
    }

    fn is_over(&self, channel: usize) -> bool {
        CHANNELS.get(channel).is_some_and(|channel| self.over(*channel).is_some())
    }

    fn tick(&mut self, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        self.tick(now_ns, |event| of_native(event, &mut each));
    }

    fn send(&mut self, message: &[u8], now_ns: u64) -> bool {
        self.send(message, now_ns).is_ok()
    }

    fn take_back(&mut self, is_meant: impl Fn(&[u8]) -> bool, each: impl FnMut(&[u8])) {
        self.take_back(is_meant, each);
    }

    fn is_logged_on(&self) -> bool {
        self.is_logged_on()
    }

    fn behind(&self) -> Partitions {
        self.behind().collect()
    }

    fn is_caught_up(&self) -> bool {
        self.is_caught_up()
    }

    fn restore(&mut self, app_id: u8, number: u64, newest_ns: u64) {
        self.restore(app_id, u32::try_from(number).unwrap_or(u32::MAX), newest_ns);
    }

    fn report_time_ns(message: &[u8]) -> u64 {
        report_time_ns(message).unwrap_or(0)
    }

    fn log_out(&mut self, now_ns: u64) {
        self.logout("", now_ns);
    }

    fn queued(&self) -> usize {
        self.queued()
    }
}

/// State of a connection's Account Query. The answer is a sequenced message: it follows the reports of all requests that the venue
/// had accepted before, including those not yet reported at the login. No in-doubt request can be answered after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Wanted,
    /// When the query was sent, and whether a missing answer has been reported.
    Asked {
        since_ns: u64,
        is_noticed: bool,
    },
    Answered,
}

/// How long the answer to an Account Query may take before an alert reports it missing.
const QUERY_PATIENCE_NS: u64 = 10_000_000_000;

/// An OUCH session over SoupBinTCP.
#[derive(Debug)]
pub struct OuchSession {
    settings: SoupInitiatorSettings,
    initiator: SoupInitiator,
    /// The session of a previous run; blank: none.
    session: [u8; 10],
    query: Query,
    asks: bool,
    /// The days whose midnight the venue's times count from.
    day: Option<Schedule>,
}

impl OuchSession {
    /// Creates a session before its first connection.
    ///
    /// # Errors
    /// The user or the password is too long.
    pub fn new(settings: SoupInitiatorSettings) -> Result<Self, CredentialsTooLong> {
        // Orders pass once every report that existed at the login has arrived.
        let settings = SoupInitiatorSettings { finds_end: true, ..settings };
        let place = SoupPlace::default();
        let initiator = SoupInitiator::new(settings.clone(), place)?;
        Ok(Self { settings, initiator, session: place.session, query: Query::Wanted, asks: true, day: None })
    }

    /// Sets the days whose midnight the venue's times count from.
    #[must_use]
    pub fn with_days(mut self, day: Schedule) -> Self {
        self.day = Some(day);
        self
    }

    /// Disables the Account Query after each login, for a venue that does not answer it. A request that the venue reports only
    /// after the login may then be treated as lost.
    #[must_use]
    pub const fn without_query(mut self) -> Self {
        self.asks = false;
        self
    }

    /// Sends the query once every report that existed at the login has arrived. An answer to a previous connection's query is one
    /// of those.
    fn ask(&mut self, now_ns: u64) {
        if self.query == Query::Wanted && self.initiator.is_caught_up() {
            if !self.asks || planted!("account-not-queried") {
                self.query = Query::Answered;
            } else if self.initiator.send(&AccountQueryFields {}.encode(), now_ns).is_ok() {
                self.query = Query::Asked { since_ns: now_ns, is_noticed: false };
            }
        }
    }

    fn handle(event: SoupEvent<'_>, query: &mut Query, each: &mut impl FnMut(VenueEvent<'_>)) {
        match event {
            SoupEvent::LoggedIn { place, is_new_session } => {
                *query = Query::Wanted;
                if is_new_session {
                    each(VenueEvent::NewDay { app_id: 0 });
                }
                each(VenueEvent::Session(&place.session));
                each(VenueEvent::LoggedOn);
            }
            SoupEvent::Message { number, message } => match outbound::Message::decode(message) {
                Ok(outbound::Message::SystemEvent(_)) => each(VenueEvent::Notice("the day began or ended")),
                Ok(outbound::Message::AccountQueryResponse(answer)) => {
                    if matches!(query, Query::Asked { .. }) {
                        *query = Query::Answered;
                        each(VenueEvent::NextName(answer.next_user_ref_num()));
                    }
                }
                _ => each(VenueEvent::Report { app_id: 0, number, message }),
            },
            SoupEvent::Missing { first, count } => each(VenueEvent::Missing { app_id: 0, first, count }),
            SoupEvent::Ended(end) => each(VenueEvent::Ended(&format!("{end:?}"))),
            _ => {}
        }
    }

    fn begin_at(&mut self, next: u64) {
        let place = SoupPlace { session: self.session, next };
        // The same credentials were accepted before.
        if let Ok(initiator) = SoupInitiator::new(self.settings.clone(), place) {
            self.initiator = initiator;
        }
    }
}

impl VenueSession for OuchSession {
    type Table = Ouch;
    const CHANNELS: usize = 1;

    fn wants(&self, _channel: usize, now_ns: u64) -> bool {
        self.initiator.wants(now_ns)
    }

    fn set_password(&mut self, password: &str) {
        // The configuration has checked that the password fits.
        let _stays_at_worst = self.initiator.set_password(password);
    }

    fn connected(&mut self, _channel: usize, now_ns: u64) {
        self.initiator.connected(now_ns);
    }

    fn refused(&mut self, _channel: usize, now_ns: u64) {
        self.initiator.refused(now_ns);
    }

    fn receive(&mut self, _channel: usize, bytes: &[u8], now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        let Self { initiator, query, .. } = self;
        initiator.receive(bytes, now_ns, |event| Self::handle(event, query, &mut each));
        self.ask(now_ns);
    }

    fn output(&self, _channel: usize) -> &[u8] {
        self.initiator.output()
    }

    fn sent(&mut self, _channel: usize, count: usize, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        let Self { initiator, query, .. } = self;
        initiator.sent(count, now_ns, |event| Self::handle(event, query, &mut each));
    }

    fn closed(&mut self, _channel: usize, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        let Self { initiator, query, .. } = self;
        initiator.closed(now_ns, |event| Self::handle(event, query, &mut each));
    }

    fn is_over(&self, _channel: usize) -> bool {
        self.initiator.over().is_some()
    }

    fn tick(&mut self, now_ns: u64, mut each: impl FnMut(VenueEvent<'_>)) {
        let Self { initiator, query, .. } = self;
        initiator.tick(now_ns, |event| Self::handle(event, query, &mut each));
        self.ask(now_ns);
        if let Query::Asked { since_ns, is_noticed } = &mut self.query
            && self.initiator.is_logged_in()
            && now_ns.saturating_sub(*since_ns) >= QUERY_PATIENCE_NS
            && !std::mem::replace(is_noticed, true)
        {
            each(VenueEvent::Alert("no answer to the Account Query, so no orders pass"));
        }
    }

    fn send(&mut self, message: &[u8], now_ns: u64) -> bool {
        self.initiator.send(message, now_ns).is_ok()
    }

    fn take_back(&mut self, _: impl Fn(&[u8]) -> bool, _: impl FnMut(&[u8])) {}

    fn is_logged_on(&self) -> bool {
        self.initiator.is_logged_in()
    }

    fn is_caught_up(&self) -> bool {
        self.initiator.is_caught_up() && self.query == Query::Answered
    }

    fn restore_session(&mut self, name: &[u8]) {
        if let Ok(session) = name.try_into() {
            self.session = session;
            self.begin_at(1);
        }
    }

    fn restore(&mut self, _app_id: u8, number: u64, _newest_ns: u64) {
        self.begin_at(number.saturating_add(1));
    }

    fn report_time_ns(_message: &[u8]) -> u64 {
        0
    }

    fn midnight_ns(&self, utc_ns: u64) -> Option<u64> {
        self.day.as_ref()?.began_ns(utc_ns)
    }

    fn log_out(&mut self, now_ns: u64) {
        self.initiator.logout(now_ns);
    }

    fn queued(&self) -> usize {
        0
    }
}
