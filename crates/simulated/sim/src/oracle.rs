//! The truth, and the comparison of the plant's events and books with it.
//!
//! The oracle sees each packet of line A as the venue sends it, before the network touches it. From these packets, a separate
//! engine and books build what a plant without packet loss would have. The plant's events are compared one by one, by message
//! number; its books are compared whenever the plant calls them good.
//!
//! The plant's events do not name their session. The plant empties all books of a channel when it changes to another session,
//! and the content and time of the next message show which session it is. The end of a session may be missing without a
//! report if no packet arrived that would have revealed the loss, so the oracle also sees which packets the plant takes.

mod log;
mod truth;

use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};

use rustc_hash::{FxHashMap, FxHasher};
use tapeworks_engine::{EngineOptions, MarketStage, Start};
use tapeworks_feed::Application;
use tapeworks_market::price::price_e9;
use tapeworks_market::{
    BookOptions, Capacity, Event, EventKind, Flags, InstrumentId, Line, Publisher, Side, Symbol,
};
use tapeworks_time::Nanos;

use tapeworks_session::SessionId;

use log::Log;
use truth::{SessionTruth, Truth};

/// An event without the parts that depend on how its packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Essence {
    publisher: Publisher,
    sequence: u64,
    kind: EventKind,
    symbol: Option<Symbol>,
    order: u64,
    price: i64,
    size: u32,
    aux: u64,
    detail: u8,
    side: Side,
    time: Nanos,
}

impl Essence {
    /// Returns whether the plant may show this event as `is`. A plant that joined late does not know names that were sent
    /// before or, if the names define the scale of prices, the prices. A guessed second may differ.
    fn is_shown_as(&self, is: &Self, is_second_guessed: bool) -> bool {
        let is_whole_seconds_off = self.time.0.abs_diff(is.time.0).is_multiple_of(Nanos::SECOND);
        let time = if is_second_guessed && is_whole_seconds_off { is.time } else { self.time };
        let has_no_scale = is.symbol.is_none() && is.price == price_e9(None) && names_scale(self.publisher);
        let price = if has_no_scale { is.price } else { self.price };
        Self { symbol: is.symbol.and(self.symbol), time, price, ..*self } == *is
    }
}

/// Returns whether the mapping of a symbol defines the scale of its prices in this feed.
fn names_scale(publisher: Publisher) -> bool {
    Application::of_publisher(publisher) == Some(Application::NyseIntegrated25)
}

/// Symbols by instrument number, for one stream.
#[derive(Default, Debug)]
struct Names(FxHashMap<InstrumentId, Symbol>);

impl Names {
    fn note(&mut self, event: &Event) {
        if let (EventKind::SymbolMapping, Some(symbol)) = (event.kind, event.symbol()) {
            self.0.insert(event.instrument, symbol);
        }
    }

    fn essence(&self, event: &Event) -> Essence {
        Essence {
            publisher: event.publisher,
            sequence: event.channel_sequence,
            kind: event.kind,
            symbol: self.0.get(&event.instrument).copied(),
            order: event.order_id,
            price: price_e9(event.price),
            size: event.size,
            aux: event.aux,
            detail: event.detail,
            side: event.side,
            time: event.ts_event,
        }
    }
}

/// Returns whether an event comes from a venue's message and has its number, which excludes the second half of an imbalance.
fn is_of_message(event: &Event) -> bool {
    use EventKind::{Gap, ImbalancePrices, Recovered, SymbolMapping};
    !matches!(event.kind, SymbolMapping | Gap | Recovered | ImbalancePrices) && event.channel_sequence > 0
}

/// The plant's position in the truth of a channel.
#[derive(Clone, Default, Debug)]
struct Place {
    /// The session, by its index in the channel's sessions.
    session: usize,
    /// The session is not known yet, because none of its messages was shown. It is this one or a later one.
    is_entering: bool,
    /// Index of the next event in the session's truth.
    next: usize,
    /// Messages that the plant has reported missing.
    named: Vec<(u64, u64)>,
    /// A snapshot replaced the messages before this one.
    replaced: u64,
    /// The last message shown.
    at: u64,
    /// A snapshot has emptied the books and is incomplete; [`EventKind::Recovered`] ends it.
    is_rebuilding: bool,
    /// Messages delivered by an answer and not yet by a packet of a line: the venue also answers from the packet that it is still filling.
    ahead: VecDeque<Essence>,
    /// A message of the session arrived as random bytes after a valid header. It may have been taken for any other message, and may have
    /// changed any book or symbol of the session. The session is also spoiled if the first symbol seen for a locate was a wrong one.
    is_spoiled: bool,
    /// The previous session was spoiled: a session that restarts under its name keeps its symbols.
    was_spoiled: bool,
    /// Later sessions that also sent everything shown of this one. A message that only one of them sent identifies it.
    may_be: Vec<usize>,
}

impl Place {
    /// Creates the position before the first message of this session, or of a later one.
    fn entering(session: usize) -> Self {
        Self { session, is_entering: true, ..Self::default() }
    }

    /// Returns the first message of the session that the plant knows of at this time, and has neither shown nor reported missing.
    fn silent(&self, session: &SessionTruth, now: Nanos) -> Option<u64> {
        if self.is_spoiled || !session.spoiled.is_empty() {
            return None;
        }
        let heard = session.heard(now);
        let silent = session.all.iter_from(self.next).map(|essence| essence.sequence);
        silent.take_while(|sequence| *sequence < heard).find(|sequence| !self.accounts_for(*sequence))
    }

    /// Compares a message that the plant shows with its session's truth. Returns what is wrong.
    fn shows(&mut self, truth: &Truth, event: &Event, is: &Essence, may_have_lost: bool) -> Option<String> {
        let session = truth.sessions.get(self.session)?;
        self.is_spoiled |= session.spoiled.range(..=event.channel_sequence).next().is_some();
        // Of two symbols for one locate the first one counts. A plant that missed it, or has it from a snapshot, may see the other one first.
        let contradicted = session.contradicted.partition_point(|at| *at <= event.channel_sequence);
        let last = contradicted.checked_sub(1).and_then(|last| session.contradicted.get(last));
        let may_be_other =
            |at: &u64| self.replaced > 0 || self.named.iter().any(|(first, count)| first < at && *count > 0);
        self.is_spoiled |= last.is_some_and(may_be_other);
        if self.is_spoiled {
            self.next = self.next.max(session.place_of(event.channel_sequence + 1));
            self.at = self.at.max(event.channel_sequence);
            return None;
        }
        // A snapshot implies missing messages.
        let has_missed = self.replaced > 0 || self.named.iter().any(|(_, count)| *count > 0);
        let is_guessed = truth.guesses_seconds && has_missed;
        let all = &session.all;
        if may_have_lost && all.get(self.next).is_none_or(|next| next.sequence > event.channel_sequence) {
            self.next = session.place_of(event.channel_sequence);
        }
        let mut wrong = None;
        while let Some(is) = self.ahead.front()
            && let Some(should) = all.get(self.next)
        {
            if !should.is_shown_as(is, is_guessed) {
                wrong = Some(format!("has shown {is:?}, and the venue sent {should:?}"));
            }
            (self.next, _) = (self.next + 1, self.ahead.pop_front());
        }
        while let Some(missed) =
            all.get(self.next).filter(|essence| essence.sequence < event.channel_sequence)
        {
            if !self.accounts_for(missed.sequence) {
                wrong.get_or_insert_with(|| {
                    format!("message {} is not shown, nor named as missing", missed.sequence)
                });
            }
            self.next += 1;
        }
        let mut unreadable = session.unreadable.range(self.at + 1..event.channel_sequence.max(self.at + 1));
        if let Some(number) = unreadable.find(|number| !self.accounts_for(**number))
            && !may_have_lost
        {
            wrong = Some(format!("message {number} cannot be read, and is not named as missing"));
        }
        match all.get(self.next) {
            Some(should) if should.is_shown_as(is, is_guessed) => self.next += 1,
            Some(should) => wrong = Some(format!("shows {is:?}, and the venue sent {should:?}")),
            None if event.line() == Line::Recovery || !self.ahead.is_empty() => {
                self.ahead.push_back(*is);
            }
            None => wrong = Some(format!("shows {is:?}, which the venue has not sent")),
        }
        self.at = self.at.max(event.channel_sequence);
        wrong
    }

    fn accounts_for(&self, sequence: u64) -> bool {
        sequence < self.replaced
            || self.named.iter().any(|(first, count)| (*first..first + count).contains(&sequence))
    }
}

/// Instruments by channel. They may be noted several times until they are taken.
#[derive(Default)]
struct Touched(Vec<(usize, InstrumentId)>);

impl Touched {
    /// Number of entries at which duplicates are removed.
    const MOST: usize = 1 << 12;

    fn note(&mut self, channel: usize, instrument: InstrumentId) {
        if self.0.last() == Some(&(channel, instrument)) {
            return;
        }
        if self.0.len() >= Self::MOST && self.0.len() == self.0.capacity() {
            self.sort();
        }
        self.0.push((channel, instrument));
    }

    fn sort(&mut self) {
        self.0.sort_unstable();
        self.0.dedup();
    }

    /// Takes each instrument once, in order.
    fn take(&mut self) -> Vec<(usize, InstrumentId)> {
        self.sort();
        std::mem::take(&mut self.0)
    }
}

/// An event that the plant has published, indexed by its number.
#[derive(Clone, Copy, Debug)]
struct Published {
    /// Hash of everything that a reader sees.
    hash: u64,
    event: Event,
}

/// The plant's published state, as a reader of its ring sees it.
pub(crate) struct Shown {
    market: MarketStage,
    names: Names,
    places: Vec<Place>,
    /// Instruments that changed since they were last compared.
    touched: Touched,
    /// Number of the next event.
    next: u64,
    /// The journal may lack some of the events published before.
    may_have_lost: bool,
}

/// The truth of all channels.
pub(crate) struct Oracle {
    channels: Vec<Truth>,
    /// The plant's time of day is always correct.
    has_true_clock: bool,
    options: EngineOptions,
    violations: Vec<String>,
    /// Events that readers saw, by number.
    published: Log<Published>,
    /// Books compared.
    pub(crate) compared: u64,
    /// Books that were stale and not compared.
    pub(crate) stale: u64,
    /// Messages reported missing.
    pub(crate) missing: u64,
    /// The same, by channel.
    named: Vec<u64>,
    /// Identical events published again with the same number.
    pub(crate) again: u64,
    /// Sessions entered by the plant.
    pub(crate) entered: u64,
}

/// What a channel's venue has sent, and the errors that a plant with all messages finds in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    /// Sessions begun.
    pub(crate) sessions: u64,
    /// Messages, over all sessions.
    pub(crate) sent: u64,
    /// Messages that the plant has reported missing.
    pub(crate) named: u64,
    /// Unreadable messages.
    pub(crate) unreadable: u64,
    /// Unreadable messages and symbols, and contradictory names.
    pub(crate) problems: u64,
    /// Changes rejected by books.
    pub(crate) rejected: u64,
    /// Contradicted books of the last session.
    pub(crate) contradicted_books: u64,
}

impl Sums {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.sent += other.sent;
        self.named += other.named;
        self.unreadable += other.unreadable;
        self.problems += other.problems;
        self.rejected += other.rejected;
        self.contradicted_books += other.contradicted_books;
    }
}

/// How far a venue has sent: a session, and a number of its events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SentUntil {
    /// The session, by its index in the channel's sessions.
    session: usize,
    /// Number of its events.
    events: usize,
}

/// Violations kept; more would be of no use.
const MOST_VIOLATIONS: usize = 8;

fn hash_of(event: &Event) -> u64 {
    let mut hasher = FxHasher::default();
    let numbers = (event.kind as u8, event.side as u8, event.detail, event.flags().0, event.line() as u8);
    let names = (event.channel_sequence, event.instrument.0, event.publisher.0, event.channel, event.aux);
    let values = (event.order_id, tapeworks_market::price::price_e9(event.price), event.size);
    (numbers, names, values, event.ts_event.0, event.ts_recv.0).hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    pub(crate) fn new(options: EngineOptions, has_true_clock: bool) -> Self {
        let channels = options.channels.iter().map(|channel| {
            let capacity = Capacity::for_orders(1 << 10);
            let feeds = channel.publishers().map(|publisher| (publisher, capacity)).collect();
            let books = BookOptions { feeds, capacity, ..options.books.clone() };
            Truth::new(EngineOptions { channels: vec![channel.clone()], books, ..options.clone() })
        });
        let channels: Vec<_> = channels.collect();
        Self {
            named: vec![0; channels.len()],
            channels,
            has_true_clock,
            options,
            violations: Vec::new(),
            published: Log::default(),
            compared: 0,
            stale: 0,
            missing: 0,
            again: 0,
            entered: 0,
        }
    }

    /// Takes a packet that a venue sends on line A.
    pub(crate) fn sends(&mut self, channel: usize, now: Nanos, received: Nanos, payload: &[u8]) {
        if let Some(truth) = self.channels.get_mut(channel) {
            truth.packet(now, received, payload);
        }
    }

    /// Takes a packet that the plant takes from a line.
    pub(crate) fn takes(&mut self, channel: usize, now: Nanos, payload: &[u8]) {
        if let Some(truth) = self.channels.get_mut(channel) {
            truth.takes(now, payload);
        }
    }

    /// Notes that a channel's retransmission server sometimes answers with something that was not sent, so that its answers
    /// must be shown to the oracle.
    pub(crate) fn expect_other_answers(&mut self, channel: usize) {
        if let Some(truth) = self.channels.get_mut(channel) {
            truth.keeps_messages = true;
        }
    }

    /// Notes that a channel guesses the second of a split time from the receive time after missing messages or a snapshot,
    /// and that answers to its requests may be more than half a second late.
    pub(crate) fn expect_guessed_seconds(&mut self, channel: usize) {
        if let Some(truth) = self.channels.get_mut(channel) {
            truth.guesses_seconds = true;
        }
    }

    /// Takes an answer of a retransmission server.
    pub(crate) fn answers(&mut self, channel: usize, payload: &[u8]) {
        if let Some(truth) = self.channels.get_mut(channel) {
            truth.answers(payload);
        }
    }

    /// Notes that the plant starts and may have lost what it took before.
    pub(crate) fn plant_starts(&mut self) {
        self.channels.iter_mut().for_each(Truth::plant_starts);
    }

    pub(crate) fn violation(&mut self, text: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(text);
        }
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Returns the number of events that readers have seen.
    pub(crate) fn published(&self) -> u64 {
        self.published.len() as u64
    }

    /// Forgets the events from this number on, which the plant has lost: it may publish different ones now.
    pub(crate) fn forget(&mut self, from: u64) {
        self.published.truncate(usize::try_from(from).unwrap_or(usize::MAX));
    }

    /// Creates a reader that begins with the first event.
    pub(crate) fn shown(&self, may_have_lost: bool) -> Shown {
        Shown {
            market: MarketStage::new(&self.options, ()),
            names: Names::default(),
            places: vec![Place::entering(0); self.channels.len()],
            touched: Touched::default(),
            next: 0,
            may_have_lost,
        }
    }

    /// Creates a reader that begins with a state. Its positions in the truth follow from the earlier events, which were published once.
    pub(crate) fn shown_from(&mut self, start: Start, may_have_lost: bool) -> Shown {
        let mut shown = self.shown(may_have_lost);
        let first = start.first_event();
        for number in 0..first {
            let Some(published) = usize::try_from(number).ok().and_then(|number| self.published.get(number))
            else {
                self.violation(format!(
                    "the plant begins with event {first}, and has published {}",
                    self.published.len()
                ));
                break;
            };
            let event = published.event;
            shown.names.note(&event);
            self.follow(&mut shown, &event);
        }
        shown.next = first;
        shown.market.restore(start);
        shown.touched.0.clear();
        shown
    }

    /// Returns what each venue has sent so far.
    pub(crate) fn sent_until(&self) -> Vec<SentUntil> {
        let of = |truth: &Truth| match truth.sessions.as_slice() {
            [before @ .., last] => SentUntil { session: before.len(), events: last.all.len() },
            [] => SentUntil::default(),
        };
        self.channels.iter().map(of).collect()
    }

    /// Returns what part of `sent` is neither shown nor reported missing.
    pub(crate) fn not_shown(&self, shown: &Shown, sent: &[SentUntil]) -> Option<String> {
        for (channel, (place, sent)) in shown.places.iter().zip(sent).enumerate() {
            let Some(truth) = self.channels.get(channel) else { continue };
            let Some(session) = truth.sessions.get(sent.session) else { continue };
            let is_there = place.session == sent.session;
            if place.session < sent.session && truth.is_last_too_short() {
                continue;
            }
            // A session that the plant has left, or is about to leave, is checked by the next event.
            let is_left = place.session > sent.session || is_there && place.is_entering;
            if is_left || place.is_spoiled || !session.spoiled.is_empty() {
                continue;
            }
            let shown = if is_there { place.next } else { 0 };
            let mut late = session.all.iter_from(shown).take(sent.events.saturating_sub(shown));
            let is_late = |late: &&Essence| !is_there || !place.accounts_for(late.sequence);
            if let Some(late) = late.find(is_late) {
                return Some(format!(
                    "channel {channel} has not shown message {} of session {}",
                    late.sequence, sent.session
                ));
            }
        }
        None
    }

    /// Takes events that the plant shows.
    pub(crate) fn shows(&mut self, shown: &mut Shown, events: &[Event]) {
        for event in events {
            let hash = hash_of(event);
            let number = usize::try_from(shown.next).unwrap_or(usize::MAX);
            match self.published.get(number) {
                Some(before) if before.hash == hash => self.again += 1,
                // Events lost by the disk may be replaced by others, several times.
                Some(_) if shown.may_have_lost => {
                    self.published.truncate(number);
                    self.published.push(Published { hash, event: *event });
                }
                Some(before) => {
                    let text = format!("event {number} is {event:?}, and was {:?} before", before.event);
                    self.violation(text);
                }
                None => self.published.push(Published { hash, event: *event }),
            }
            shown.next += 1;
            shown.names.note(event);
            self.follow(shown, event);
            let is_of_all = matches!(event.kind, EventKind::Recovered | EventKind::Clear);
            if is_of_all && event.instrument == InstrumentId::ALL {
                for instrument in shown.names.0.keys() {
                    shown.touched.note(usize::from(event.channel), *instrument);
                }
            }
            shown.touched.note(usize::from(event.channel), event.instrument);
        }
        shown.market.apply(events);
    }

    /// Notes that the journal has been replayed and live events start: no event repeats from now on.
    pub(crate) fn goes_live(&self, shown: &mut Shown) {
        shown.may_have_lost = false;
        for (place, truth) in shown.places.iter_mut().zip(&self.channels) {
            let Some(session) = truth.sessions.get(place.session).filter(|_| !place.is_entering) else {
                continue;
            };
            let after = session.place_of(place.at.saturating_add(1));
            // A partly shown message continues.
            place.next = if place.next < after { place.next } else { after };
        }
    }

    /// Compares an event with the truth.
    fn follow(&mut self, shown: &mut Shown, event: &Event) {
        let channel = usize::from(event.channel);
        let (Some(place), Some(truth)) = (shown.places.get_mut(channel), self.channels.get(channel)) else {
            return;
        };
        if let Some(gap) = event.gap().filter(|_| event.kind == EventKind::Gap) {
            self.missing += gap.count;
            if let Some(named) = self.named.get_mut(channel) {
                *named += gap.count;
            }
            place.named.push((gap.first, gap.count));
            let rest = truth.sessions.get(place.session..).unwrap_or_default();
            // A session that restarts under its name may be taken for the previous one.
            let name = rest.first().map(|session| session.name);
            let may_be = |session: &&SessionTruth| place.is_entering || Some(session.name) == name;
            let sent = rest.iter().filter(may_be).map(SessionTruth::next).max().unwrap_or(u64::MAX);
            if gap.first.saturating_add(gap.count) > sent {
                self.violation(format!(
                    "channel {channel}: {} messages from {} are named as missing, and {} were sent",
                    gap.count,
                    gap.first,
                    sent.saturating_sub(1)
                ));
            }
            return;
        }
        let is_of_snapshot = event.flags().contains(Flags::SNAPSHOT);
        if event.kind == EventKind::Clear && event.instrument == InstrumentId::ALL && !is_of_snapshot {
            // Another session begins. The plant cannot report a message missing that no packet has revealed.
            let known = if self.has_true_clock { event.ts_recv } else { Nanos(0) };
            let left = truth.sessions.get(place.session).filter(|_| !place.is_entering);
            let silent = left.and_then(|session| place.silent(session, known));
            let (session, was_spoiled) =
                (place.session, place.is_spoiled || place.is_entering && place.was_spoiled);
            *place = Place { was_spoiled, ..Place::entering(session) };
            if let Some(silent) = silent {
                self.violation(format!(
                    "channel {channel}: the plant leaves session {session}, and message {silent} is not shown, nor named as missing"
                ));
            }
            return;
        }
        if event.instrument == InstrumentId::ALL {
            match event.kind {
                EventKind::Clear => place.is_rebuilding = true,
                EventKind::Recovered => place.is_rebuilding = false,
                _ => {}
            }
        }
        if !is_of_message(event) {
            return;
        }
        if is_of_snapshot {
            // The books are emptied first, under the number of the next message.
            if event.kind == EventKind::Clear {
                return;
            }
            place.replaced = place.replaced.max(event.channel_sequence + 1);
            place.at = place.at.max(event.channel_sequence);
            if let Some(session) = truth.sessions.get(place.session).filter(|_| !place.is_entering) {
                place.next = place.next.max(session.place_of(place.replaced));
            }
            return;
        }
        let is = shown.names.essence(event);
        if !place.is_entering
            && let Some(left) = truth.sessions.get(place.session)
        {
            place.is_spoiled |= left.spoiled.range(..=event.channel_sequence).next().is_some();
        }
        if place.is_entering
            && let Some(session) = truth.session_of(place.session, &is)
        {
            let name = |session: usize| truth.sessions.get(session).map(|session| session.name);
            place.is_spoiled = place.was_spoiled && name(place.session) == name(session);
            (place.session, place.is_entering) = (session, false);
            place.may_be = truth.later_with(session, &is);
            self.entered += 1;
        } else if let Some(session) = truth.session_like(place.session, &is)
            && place.named.last().is_some_and(|(first, count)| first + count == is.sequence)
        {
            // The session restarted under the same name while the plant was down, and its numbers are beyond the old ones:
            // the plant sees a gap.
            let is_spoiled = place.is_spoiled;
            *place = Place {
                session,
                named: vec![(0, is.sequence)],
                at: is.sequence,
                is_spoiled,
                ..Place::default()
            };
            self.entered += 1;
        }
        place.may_be.retain(|later| truth.sessions.get(*later).is_some_and(|later| later.has(&is)));
        let before = (!place.may_be.is_empty()).then(|| place.clone());
        let mut wrong = place.shows(truth, event, &is, shown.may_have_lost);
        if wrong.is_some()
            && let Some(before) = before
            && let [session, may_be @ ..] = before.may_be.as_slice()
        {
            let next = truth.sessions.get(*session).map_or(0, |session| session.place_of(is.sequence));
            *place = Place { session: *session, next, may_be: may_be.to_vec(), ..before };
            wrong = place.shows(truth, event, &is, shown.may_have_lost);
        }
        if let Some(wrong) = wrong {
            let session = place.session;
            let name = truth.sessions.get(session).map(|session| session.name.to_string());
            self.violation(format!(
                "channel {channel}, session {session} ({}), event {}: {wrong}",
                name.unwrap_or_default(),
                shown.next
            ));
        }
    }

    /// Compares the plant's good books with the venue's, after the plant has shown all events so far.
    pub(crate) fn compare(&mut self, shown: &mut Shown) {
        for (channel, instrument) in shown.touched.take() {
            let (Some(truth), Some(place)) = (self.channels.get_mut(channel), shown.places.get(channel))
            else {
                continue;
            };
            // The next message shows which session it is. Events of a snapshot are marked as such: books are complete only
            // after the last one, and a reader may see the ring between two of them.
            if place.is_entering || place.is_rebuilding || !place.ahead.is_empty() {
                shown.touched.note(channel, instrument);
                continue;
            }
            let Some(truth) = truth.sessions.get_mut(place.session) else { continue };
            truth.advance(place.at);
            let Some(publisher) = self.options.channels.get(channel).map(|channel| channel.publisher) else {
                continue;
            };
            if instrument == InstrumentId::ALL {
                continue;
            }
            let Some(symbol) = shown.names.0.get(&instrument) else { continue };
            let Some(books) = shown.market.books().feed(publisher) else { continue };
            let book = books.book(instrument);
            if book.is_stale() || truth.at != place.at || place.is_spoiled {
                self.stale += 1;
                continue;
            }
            if place.replaced == 0 && truth.overfilled.get(symbol).is_some_and(|first| *first <= place.at) {
                self.violation(format!(
                    "channel {channel}, {symbol}, message {}: an order was overfilled, and the plant calls the book good",
                    place.at
                ));
                continue;
            }
            let Some(of_truth) = truth.market.books().feed(publisher) else { continue };
            let true_instrument = truth.market.instruments().find(*symbol);
            if true_instrument.is_some_and(|instrument| of_truth.book(instrument).is_stale()) {
                // The venue itself made the book doubtful. Only a snapshot, which the oracle does not see, makes it good again.
                if place.replaced == 0 {
                    self.violation(format!(
                        "channel {channel}, {symbol}, message {}: the venue's messages contradict the book, and the plant calls it good",
                        place.at
                    ));
                }
                continue;
            }
            self.compared += 1;
            for side in [Side::Bid, Side::Ask] {
                let is_equal = match true_instrument {
                    Some(instrument) => book.has_levels_of(of_truth.book(instrument), side),
                    None => book.depth(side) == 0,
                };
                if !is_equal {
                    let has: Vec<_> = book.levels(side).take(3).collect();
                    let should: Vec<_> = true_instrument
                        .map(|instrument| of_truth.book(instrument).levels(side).take(3).collect())
                        .unwrap_or_default();
                    let text = format!(
                        "channel {channel}, {symbol}, message {}: the plant's {side:?} side is called good and has {has:?}, the \
                         venue's has {should:?}",
                        place.at
                    );
                    if self.violations.len() < MOST_VIOLATIONS {
                        self.violations.push(text);
                    }
                    break;
                }
            }
        }
    }

    /// Checks at the end that every message of a venue's last session was shown, or reported missing if a later packet arrived.
    pub(crate) fn complete(&mut self, shown: &Shown) {
        for (channel, place) in shown.places.iter().enumerate() {
            let Some(truth) = self.channels.get(channel) else { continue };
            let Some(last) = truth.sessions.len().checked_sub(1) else { continue };
            let Some(session) = truth.sessions.get(last) else { continue };
            let is_elsewhere = place.session < last && !place.is_entering;
            if place.session < last && truth.is_last_too_short() {
                continue;
            }
            let text = if is_elsewhere && session.heard(Nanos(u64::MAX)) > 1 {
                Some(format!("the plant is in session {} of {last} at the end", place.session))
            } else {
                place.silent(session, Nanos(u64::MAX)).map(|number| {
                    let sent = session.sent();
                    format!("at the end message {number} of {sent} is not shown, nor named as missing")
                })
            };
            if let Some(text) = text {
                self.violation(format!("channel {channel}: {text}"));
            }
        }
    }

    /// Returns what a channel's venue has sent, and the errors that a plant with all messages finds in it.
    pub(crate) fn sums(&mut self, channel: usize) -> Sums {
        let named = self.named.get(channel).copied().unwrap_or_default();
        let sums = self.channels.get_mut(channel).map(Truth::sums).unwrap_or_default();
        Sums { named, ..sums }
    }

    /// Returns the current session of a channel's venue.
    pub(crate) fn running_session(&self, channel: usize) -> Option<SessionId> {
        self.channels.get(channel)?.sessions.last().map(|session| session.name)
    }

    /// Returns how many sessions a channel's venue has begun.
    pub(crate) fn begun(&self, channel: usize) -> u64 {
        self.channels.get(channel).map_or(0, |truth| truth.sessions.len() as u64)
    }

    /// Returns how many messages a channel's venue has sent.
    pub(crate) fn sent(&self, channel: usize) -> u64 {
        self.channels.get(channel).map_or(0, Truth::sent)
    }
}
