//! The session with the venue, as the gateway needs it: Millennium's native session, and OUCH over SoupBinTCP.
//!
//! The two differ in channels, and in how missed reports come. Nothing else of
//! the crate knows which it is.

use core::fmt::Debug;

use tapeworks_planted::planted;
use tapeworks_session::fix::Schedule;
use tapeworks_session::native::{self, Channel};
use tapeworks_session::soupbintcp::{
    CredentialsTooLong, SoupEvent, SoupInitiator, SoupInitiatorSettings, SoupPlace,
};
use tapeworks_translate::ids::Partitions;
use tapeworks_translate::{Millennium, Ouch, Venue};
use tapeworks_wire::millennium::native::report_time_ns;
use tapeworks_wire::nasdaq::ouch50::inbound::AccountQueryFields;
use tapeworks_wire::nasdaq::ouch50::outbound;

/// What happened on the session.
#[derive(Clone, Copy, Debug)]
pub enum VenueEvent<'a> {
    /// Orders can be sent; missed reports are still to come.
    LoggedOn,
    /// A report, once and in order.
    Report {
        /// Whose numbers these are; 0: of a venue that has one series.
        app_id: u8,
        /// Its number; 0: it has none, and may come again.
        number: u64,
        /// The message.
        message: &'a [u8],
    },
    /// The venue does not have these reports any more.
    Missing {
        /// Whose numbers these are.
        app_id: u8,
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The venue's numbers begin anew.
    NewDay {
        /// Whose numbers these are.
        app_id: u8,
    },
    /// The venue's session has this name: the numbers of another are others.
    Session(&'a [u8]),
    /// The venue has seen no request with this number for a name, or a later one, and all reports of those before are in.
    NextName(u32),
    /// A message that was not sent.
    Unsent(&'a [u8]),
    /// The venue has not answered a request for missed reports in time.
    Unanswered {
        /// Whose numbers these are.
        app_id: u8,
    },
    /// The venue says that it does not have this App ID.
    UnknownAppId {
        /// Which.
        app_id: u8,
    },
    /// The venue said something of itself.
    Notice(&'static str),
    /// Somebody must do something.
    Alert(&'static str),
    /// The session for orders ended, and how.
    Ended(&'a str),
}

/// A session with a venue, without sockets and clocks. Channels are numbered from 0; orders go over channel 0.
pub trait VenueSession: Debug {
    /// The venue's mapping table.
    type Table: Venue + Debug + Send;
    /// Connections at once.
    const CHANNELS: usize;

    /// Whether the caller is to connect this channel now.
    fn wants(&self, channel: usize, now_ns: u64) -> bool;
    /// The password is this from the next logon on. One that does not fit changes nothing.
    fn set_password(&mut self, password: &str);
    /// The connection is made.
    fn connected(&mut self, channel: usize, now_ns: u64);
    /// The connection could not be made.
    fn refused(&mut self, channel: usize, now_ns: u64);
    /// Takes bytes.
    fn receive(&mut self, channel: usize, bytes: &[u8], now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// The bytes to send.
    fn output(&self, channel: usize) -> &[u8];
    /// So many bytes of the output were sent.
    fn sent(&mut self, channel: usize, count: usize, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// The connection is closed.
    fn closed(&mut self, channel: usize, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Whether the caller is to close the connection.
    fn is_over(&self, channel: usize) -> bool;
    /// Time passes.
    fn tick(&mut self, now_ns: u64, each: impl FnMut(VenueEvent<'_>));
    /// Sends a message. Returns whether it is taken.
    fn send(&mut self, message: &[u8], now_ns: u64) -> bool;
    /// Takes back the messages that wait, and that `is_meant` picks: they are not sent.
    fn take_back(&mut self, is_meant: impl Fn(&[u8]) -> bool, each: impl FnMut(&[u8]));
    /// Whether orders can be sent.
    fn is_logged_on(&self) -> bool;
    /// Whether all missed reports came.
    fn is_caught_up(&self) -> bool;
    /// The partitions of which reports are missing.
    fn behind(&self) -> Partitions {
        Partitions::default()
    }
    /// The venue's session of a former run had this name. Before [`VenueSession::restore`].
    fn restore_session(&mut self, _name: &[u8]) {}
    /// A former run handed this report on last.
    fn restore(&mut self, app_id: u8, number: u64, newest_ns: u64);
    /// The time of a report, in UTC nanoseconds, as [`VenueSession::restore`] needs it; 0: it needs none.
    fn report_time_ns(message: &[u8]) -> u64;
    /// The midnight before this time that the venue's times count from, in UTC nanoseconds; `None`: they have a date.
    fn midnight_ns(&self, _utc_ns: u64) -> Option<u64> {
        None
    }
    /// Logs out; nothing is connected again.
    fn log_out(&mut self, now_ns: u64);
    /// Messages that wait for the throttle.
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
        // The configuration has checked that it fits.
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

/// The Account Query of a connection. Its answer is a sequenced message: it comes behind the reports of all requests that the venue had
/// taken before, those too that it had not made yet at the login. So no request in doubt is answered after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Wanted,
    /// When it was sent, and whether anybody knows that there is no answer.
    Asked {
        since_ns: u64,
        is_noticed: bool,
    },
    Answered,
}

/// The answer to an Account Query may take so long before the log says that it is missing.
const QUERY_PATIENCE_NS: u64 = 10_000_000_000;

/// OUCH over SoupBinTCP.
#[derive(Debug)]
pub struct OuchSession {
    settings: SoupInitiatorSettings,
    initiator: SoupInitiator,
    /// The session of a former run; blank: none.
    session: [u8; 10],
    query: Query,
    asks: bool,
    /// The days whose midnight the venue's times count from.
    day: Option<Schedule>,
}

impl OuchSession {
    /// A session before its first connection.
    ///
    /// # Errors
    /// The user or the password is too long.
    pub fn new(settings: SoupInitiatorSettings) -> Result<Self, CredentialsTooLong> {
        // Orders pass when every report that there was at the login has come.
        let settings = SoupInitiatorSettings { finds_end: true, ..settings };
        let place = SoupPlace::default();
        let initiator = SoupInitiator::new(settings.clone(), place)?;
        Ok(Self { settings, initiator, session: place.session, query: Query::Wanted, asks: true, day: None })
    }

    /// The venue's times count from the midnight of these days.
    #[must_use]
    pub fn with_days(mut self, day: Schedule) -> Self {
        self.day = Some(day);
        self
    }

    /// Without an Account Query after each login, for a venue that does not answer it. A request whose report the venue makes after the
    /// login may then be taken for lost.
    #[must_use]
    pub const fn without_query(mut self) -> Self {
        self.asks = false;
        self
    }

    /// Sends the query when every report that there was at the login has come: an answer to the query of a former connection is one of them.
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
        // The credentials were taken before.
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
        // The configuration has checked that it fits.
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
