//! Traces of orders: when each stage of a traced order began and ended.
//!
//! ```text
//! order   socket ─ read ─▶ translator ─ check and translate ─▶ … ─ store ─▶ ─ send to the venue ─▶
//! answer  socket ─ read ─▶ translator ─ translate ─▶ … ─ store ─▶ ─ send to the client ─▶ recorded
//! ```
//!
//! The tracer exists only if traces are configured; otherwise each trace point costs a branch. A traced order costs eight clock
//! readings, and a slot in a table that does not allocate after the start. An order that is not answered in time, or whose client
//! disconnects, is recorded as far as it got.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tapeworks_fix_wire::Parsed;
use tapeworks_fix_wire::order_entry::ExecType;
use tapeworks_runtime::traces::{Fact, Operations, Recorder, Sample, Sampler, Text, Traces};
use tapeworks_translate::ids::ClOrdId;
use tapeworks_translate::{Body, Reply};

use crate::clock::Now;

/// Maximum number of orders traced simultaneously.
const MOST_UNDER_WAY: usize = 1_024;

/// Time after which an order is recorded without the venue's answer.
const LONGEST_NS: u64 = 10_000_000_000;

/// Key of a client's request: the client's index and the ClOrdID.
type Key = (usize, ClOrdId);

/// Times of an order's stages, by the steady clock; 0: not reached yet.
#[derive(Clone, Copy, Default, Debug)]
struct Stamps {
    message: u64,
    translated: u64,
    storing: u64,
    stored: u64,
    sent: u64,
}

/// A traced order.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// Whether the order was sampled, and is recorded however long it takes.
    is_chosen: bool,
    symbol: Text,
    side: &'static str,
    order_id: Text,
    outcome: &'static str,
    has_failed: bool,
    /// When the turn that read the order began.
    received: Now,
    order: Stamps,
    /// When the turn that read the venue's answer began.
    answered: Option<Now>,
    answer: Stamps,
}

/// A client's request that is being translated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    key: Key,
    way: Way,
}

/// Follows orders.
#[derive(Debug)]
pub(crate) struct Tracer {
    recorder: Recorder,
    operations: Option<Operations>,
    sampler: Sampler,
    names: Vec<Text>,
    /// How the host measures the time since an instant, by the steady clock.
    since: fn(Instant) -> Duration,
    began: Instant,
    turn: Now,
    under_way: HashMap<Key, Way>,
    /// Requests that have not been sent to the venue yet.
    to_venue: Vec<Key>,
    /// Requests whose answer has not been sent to the client yet.
    to_client: Vec<Key>,
    /// When the translator received the current report.
    report: u64,
    /// The number of answers in `to_client` that the translator has finished.
    translated: usize,
    /// While missed reports arrive: when the venue's session logged on, and the number of reports since.
    recovering: Option<(Now, u64)>,
}

/// Returns FIX's Side (54) as a word.
const fn side_of(code: u8) -> &'static str {
    match code {
        b'1' => "buy",
        b'2' => "sell",
        b'5' => "sell short",
        b'6' => "sell short exempt",
        _ => "other",
    }
}

/// Returns the outcome that an execution report states for its order, and whether it is a failure.
const fn outcome_of(kind: ExecType) -> (&'static str, bool) {
    match kind {
        ExecType::New => ("accepted", false),
        ExecType::PartialFill | ExecType::Fill | ExecType::Trade => ("filled", false),
        ExecType::Canceled => ("cancelled", false),
        ExecType::Replaced => ("replaced", false),
        ExecType::Expired => ("expired", false),
        ExecType::Rejected => ("rejected", true),
        _ => ("answered", false),
    }
}

impl Tracer {
    /// Creates a tracer for these clients. Returns `None` if there is one already.
    pub(crate) fn new<'n>(
        traces: &Traces,
        names: impl Iterator<Item = &'n str>,
        since: fn(Instant) -> Duration,
        began: Instant,
    ) -> Option<Self> {
        Some(Self {
            recorder: traces.take_recorder()?,
            operations: traces.operations().cloned(),
            sampler: traces.sampling.into(),
            names: names.map(|name| Text::new(name.as_bytes())).collect(),
            since,
            began,
            turn: Now::default(),
            under_way: HashMap::with_capacity(2 * MOST_UNDER_WAY),
            to_venue: Vec::with_capacity(MOST_UNDER_WAY),
            to_client: Vec::with_capacity(MOST_UNDER_WAY),
            report: 0,
            translated: 0,
            recovering: None,
        })
    }

    fn clock(&self) -> u64 {
        u64::try_from((self.since)(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Starts a turn, whose input arrived at `now`.
    pub(crate) const fn turn_begins(&mut self, now: Now) {
        self.turn = now;
    }

    /// Notes that a client's message reaches the translator. If the message is traced, returns a value for [`Tracer::translated`].
    #[inline]
    pub(crate) fn message(&mut self, client: usize, message: &Parsed<'_>) -> Option<Begun> {
        let name = match message.message_type() {
            b"D" => "order",
            b"F" => "cancel",
            b"G" => "replace",
            _ => return None,
        };
        let is_chosen = self.sampler.is_chosen();
        if is_chosen || self.sampler.follows_all() {
            self.begin(client, name, message, is_chosen)
        } else {
            None
        }
    }

    #[cold]
    fn begin(
        &self,
        client: usize,
        name: &'static str,
        message: &Parsed<'_>,
        is_chosen: bool,
    ) -> Option<Begun> {
        let text = |tag| message.field(tag).unwrap_or_default();
        let key = (client, ClOrdId::new(text(11))?);
        let way = Way {
            name,
            is_chosen,
            symbol: Text::new(text(55)),
            side: text(54).first().map_or("", |code| side_of(*code)),
            order_id: Text::default(),
            outcome: "no answer",
            has_failed: true,
            received: self.turn,
            order: Stamps { message: self.clock(), ..Stamps::default() },
            answered: None,
            answer: Stamps::default(),
        };
        Some(Begun { key, way })
    }

    /// Notes that the translator has finished a traced message, and whether it was sent or refused.
    #[cold]
    pub(crate) fn translated(&mut self, begun: Begun, is_sent: bool) {
        let Begun { key, mut way } = begun;
        way.order.translated = self.clock();
        if self.under_way.len() >= MOST_UNDER_WAY || self.under_way.contains_key(&key) {
            return self.recorder.count_unfollowed();
        }
        if is_sent {
            self.to_venue.push(key);
        } else {
            (way.outcome, way.has_failed) = ("refused by the gateway", true);
            self.to_client.push(key);
        }
        self.under_way.insert(key, way);
        self.translated = self.to_client.len();
    }

    /// Returns whether any order is being traced.
    #[inline]
    pub(crate) fn is_following(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Notes that a report from the venue reaches the translator.
    pub(crate) fn report_begins(&mut self) {
        if let Some((_, reports)) = &mut self.recovering {
            *reports += 1;
        }
        if self.is_following() {
            self.report = self.clock();
        }
    }

    /// Notes a reply to a client that the venue's report caused.
    pub(crate) fn reply(&mut self, client: usize, reply: &Reply<'_>) {
        let (id, order_id, (outcome, has_failed)) = match reply.body {
            Body::Execution(fields) => {
                (fields.cl_ord_id.unwrap_or_default(), fields.order_id, outcome_of(fields.exec_type))
            }
            Body::CancelReject(fields) => (fields.cl_ord_id, fields.order_id, ("cancel rejected", true)),
            _ => return,
        };
        let Some(key) = ClOrdId::new(id).map(|id| (client, id)) else { return };
        let Some(way) = self.under_way.get_mut(&key).filter(|way| way.answered.is_none()) else { return };
        // If the gateway itself rejects a message that the venue's session refused, there is no report.
        way.answered = Some(self.turn);
        way.answer.message = self.report.max(self.turn.steady_ns);
        (way.order_id, way.outcome, way.has_failed) = (Text::new(order_id), outcome, has_failed);
        self.to_client.push(key);
    }

    /// Notes that the translator has finished the venue's report.
    pub(crate) fn report_ends(&mut self) {
        if self.translated == self.to_client.len() {
            return;
        }
        let now = self.clock();
        for key in self.to_client.iter().skip(self.translated) {
            if let Some(way) = self.under_way.get_mut(key) {
                way.answer.translated = now;
            }
        }
        self.translated = self.to_client.len();
    }

    /// Returns whether this turn writes or sends anything traced.
    #[inline]
    pub(crate) fn has_to_stamp(&self) -> bool {
        !self.to_venue.is_empty() || !self.to_client.is_empty()
    }

    /// Notes that the turn is in the store. Writing it began at `storing`.
    #[cold]
    pub(crate) fn stored(&mut self, storing: u64) {
        let stored = self.clock();
        let keys = self.to_venue.iter().chain(&self.to_client);
        for key in keys {
            let Some(way) = self.under_way.get_mut(key) else { continue };
            // A request that the gateway rejects itself never reached the venue.
            let stamps = if way.answered.is_some() { &mut way.answer } else { &mut way.order };
            if stamps.stored == 0 {
                (stamps.storing, stamps.stored) = (storing, stored);
            }
        }
    }

    /// Notes that the kernel has accepted everything for the venue.
    #[cold]
    pub(crate) fn sent_to_venue(&mut self) {
        let now = self.clock();
        let under_way = &mut self.under_way;
        self.to_venue.retain(|key| {
            let Some(way) = under_way.get_mut(key) else { return false };
            if way.order.stored != 0 {
                way.order.sent = now;
            }
            way.order.stored == 0
        });
    }

    /// Notes that the kernel has accepted everything for a client.
    #[cold]
    pub(crate) fn sent_to_client(&mut self, client: usize) {
        let now = self.clock();
        let mut at = 0;
        while let Some(key) = self.to_client.get(at).copied() {
            let is_stored = |way: &Way| {
                let stamps = if way.answered.is_some() { &way.answer } else { &way.order };
                stamps.stored != 0
            };
            match self.under_way.get(&key) {
                Some(way) if key.0 != client || !is_stored(way) => at += 1,
                Some(_) => {
                    self.to_client.remove(at);
                    if let Some(mut way) = self.under_way.remove(&key) {
                        way.answer.sent = now;
                        self.record(key, &way, now);
                    }
                }
                None => drop(self.to_client.remove(at)),
            }
        }
        self.translated = self.to_client.len();
    }

    /// Records the orders that have waited too long, or all orders when the gateway ends.
    #[cold]
    pub(crate) fn give_up(&mut self, now: Now, is_end: bool) {
        while let Some(key) = self.under_way.iter().find_map(|(key, way)| {
            let is_over = now.steady_ns.saturating_sub(way.received.steady_ns) >= LONGEST_NS;
            (is_end || is_over).then_some(*key)
        }) {
            if let Some(mut way) = self.under_way.remove(&key) {
                if way.answered.is_some() {
                    (way.outcome, way.has_failed) = ("the client did not take the answer", true);
                }
                self.record(key, &way, now.steady_ns);
            }
        }
        self.to_venue.retain(|key| self.under_way.contains_key(key));
        self.to_client.retain(|key| self.under_way.contains_key(key));
        self.translated = self.to_client.len();
    }

    fn record(&mut self, (client, id): Key, way: &Way, end: u64) {
        if !way.is_chosen && !self.sampler.is_slow(end.saturating_sub(way.received.steady_ns)) {
            return;
        }
        let Way { received, order, answer, .. } = way;
        let utc =
            |steady_ns: u64| received.utc_ns.saturating_add(steady_ns.saturating_sub(received.steady_ns));
        let mut sample = Sample::new(way.name, received.utc_ns);
        let mut part = |name, start: u64, end: u64| {
            // A stage that was not reached has no times.
            if start != 0 && end != 0 {
                sample.part(name, utc(start), utc(end));
            }
        };
        part("read", received.steady_ns.max(1), order.message);
        part("check and translate", order.message, order.translated);
        part("store", order.storing, order.stored);
        part("send to the venue", order.stored, order.sent);
        if let Some(answered) = way.answered {
            part("venue", order.sent, answered.steady_ns);
            part("read the answer", answered.steady_ns, answer.message);
            part("translate the answer", answer.message, answer.translated);
            part("store the answer", answer.storing, answer.stored);
            part("send to the client", answer.stored, answer.sent);
        } else {
            part("send to the client", order.stored, answer.sent);
        }
        sample.lasts_until(utc(end));
        sample.text("session", self.names.get(client).copied().unwrap_or_default());
        sample.text("symbol", way.symbol);
        if !way.side.is_empty() {
            sample.fact("side", Fact::Word(way.side));
        }
        sample.text("cl_ord_id", Text::new(id.text()));
        sample.text("order_id", way.order_id);
        sample.fact("outcome", Fact::Word(way.outcome));
        sample.fact("chosen", Fact::Flag(way.is_chosen));
        sample.failed = way.has_failed.then_some(way.outcome);
        self.recorder.record(&sample);
    }

    // ---- rare operations ----

    /// Returns where rare operations are recorded, if they are.
    pub(crate) const fn operations(&self) -> Option<&Operations> {
        self.operations.as_ref()
    }

    /// Notes that missed reports arrive from now on.
    pub(crate) const fn recovery_begins(&mut self) {
        self.recovering = Some((self.turn, 0));
    }

    /// Notes that all missed reports have arrived, or that the session ended before.
    #[cold]
    pub(crate) fn recovery_ends(&mut self, failed: Option<&'static str>) {
        let Some(((began, reports), operations)) = self.recovering.take().zip(self.operations.as_ref())
        else {
            return;
        };
        let mut sample = Sample::new("recover missed reports", began.utc_ns);
        let took = self.clock().saturating_sub(began.steady_ns);
        sample.lasts_until(began.utc_ns.saturating_add(took));
        sample.number("reports", reports);
        sample.failed = failed;
        operations.record(&sample);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use tapeworks_fix_wire::Parts;
    use tapeworks_fix_wire::order_entry::{CxlRejResponseTo, OrdStatus, OrderCancelRejectFields};
    use tapeworks_runtime::traces::{Samples, Sampling};

    use super::*;

    thread_local! {
        static CLOCK: Cell<u64> = const { Cell::new(0) };
    }

    /// A clock that the test advances.
    fn since(_began: Instant) -> Duration {
        Duration::from_nanos(CLOCK.get())
    }

    fn pass(ns: u64) {
        CLOCK.set(CLOCK.get() + ns);
    }

    fn tracer(every: u64, slower_than: Option<Duration>) -> (Tracer, Samples) {
        CLOCK.set(1_000);
        let (traces, samples) = Traces::new(Sampling { every, slower_than }, 4_096, true);
        let names = ["alpha", "beta"].into_iter();
        #[expect(clippy::disallowed_methods, reason = "what it gives is not looked at")]
        let began = Instant::now();
        (Tracer::new(&traces, names, since, began).unwrap(), samples)
    }

    /// Starts a turn whose time of day is far from the steady clock.
    fn turn(tracer: &mut Tracer) {
        tracer.turn_begins(Now { utc_ns: 5_000_000_000 + CLOCK.get(), steady_ns: CLOCK.get() });
    }

    fn order(id: u64) -> Vec<u8> {
        format!("8=FIX.4.4\x019=5\x0135=D\x0111=ID{id}\x0155=AAPL\x0154=5\x0110=000\x01").into_bytes()
    }

    /// A client's order arrives, and is sent or refused.
    fn comes(tracer: &mut Tracer, client: usize, id: u64, is_sent: bool) {
        pass(10);
        let (message, mut parts) = (order(id), Parts::default());
        if let Some(begun) = tracer.message(client, &parts.split(&message).unwrap()) {
            pass(10);
            tracer.translated(begun, is_sent);
        }
    }

    /// The venue answers the order.
    fn answers(tracer: &mut Tracer, client: usize, id: u64) {
        pass(10);
        tracer.report_begins();
        let id = format!("ID{id}");
        let (known, asked) = (OrdStatus::Rejected, CxlRejResponseTo::OrderCancelRequest);
        let fields = OrderCancelRejectFields::new(b"VENUE7", id.as_bytes(), b"NONE", known, asked);
        tracer.reply(client, &Body::CancelReject(&fields).into());
        pass(10);
        tracer.report_ends();
    }

    fn write(tracer: &mut Tracer) {
        let storing = CLOCK.get();
        pass(10);
        tracer.stored(storing);
        pass(10);
    }

    fn taken(samples: &mut Samples) -> Vec<Sample> {
        let mut all = Vec::new();
        samples.take(usize::MAX, |sample| all.push(*sample));
        all
    }

    fn names(sample: &Sample) -> Vec<&'static str> {
        sample.parts().iter().map(|part| part.name).collect()
    }

    fn fact(sample: &Sample, name: &str) -> Option<Fact> {
        sample.facts().iter().find(|(known, _)| *known == name).map(|(_, fact)| *fact)
    }

    #[test]
    fn an_order_has_a_part_for_each_stage_one_behind_the_other() {
        let (mut tracer, mut samples) = tracer(2, None);
        turn(&mut tracer);
        comes(&mut tracer, 1, 7, true);
        comes(&mut tracer, 1, 8, true);
        assert!(tracer.has_to_stamp() && tracer.under_way.len() == 1, "one of two is followed");
        write(&mut tracer);
        tracer.sent_to_venue();
        pass(500);
        turn(&mut tracer);
        answers(&mut tracer, 1, 8);
        answers(&mut tracer, 1, 7);
        write(&mut tracer);
        tracer.sent_to_client(0);
        assert_eq!(taken(&mut samples).len(), 0, "another client's bytes are sent");
        tracer.sent_to_client(1);
        let all = taken(&mut samples);
        let [sample] = &all[..] else { panic!("{all:?}") };
        let wanted = [
            "read",
            "check and translate",
            "store",
            "send to the venue",
            "venue",
            "read the answer",
            "translate the answer",
            "store the answer",
            "send to the client",
        ];
        assert_eq!((sample.name, names(sample)), ("order", wanted.to_vec()));
        for pair in sample.parts().windows(2) {
            assert!(pair[0].end_ns <= pair[1].start_ns, "{pair:?}");
        }
        let (start, end) = sample.times();
        assert_eq!(start, 5_000_001_000);
        assert_eq!(end, 5_000_000_000 + CLOCK.get());
        assert_eq!(sample.parts()[4].end_ns - sample.parts()[4].start_ns, 500);
        assert_eq!(fact(sample, "session"), Some(Fact::Text(Text::new(b"beta"))));
        assert_eq!(fact(sample, "cl_ord_id"), Some(Fact::Text(Text::new(b"ID7"))));
        assert_eq!(fact(sample, "order_id"), Some(Fact::Text(Text::new(b"VENUE7"))));
        assert_eq!(fact(sample, "symbol"), Some(Fact::Text(Text::new(b"AAPL"))));
        assert_eq!(fact(sample, "side"), Some(Fact::Word("sell short")));
        assert_eq!(sample.failed, Some("cancel rejected"));
        assert!(!tracer.is_following() && !tracer.has_to_stamp());
    }

    #[test]
    fn an_order_that_the_gateway_refuses_has_no_stage_at_the_venue() {
        let (mut tracer, mut samples) = tracer(1, None);
        turn(&mut tracer);
        comes(&mut tracer, 0, 1, false);
        write(&mut tracer);
        tracer.sent_to_client(0);
        let all = taken(&mut samples);
        assert_eq!(names(&all[0]), ["read", "check and translate", "store", "send to the client"]);
        assert_eq!(all[0].failed, Some("refused by the gateway"));
    }

    #[test]
    fn a_slow_order_is_recorded_though_it_was_not_chosen_and_a_fast_one_is_not() {
        let (mut tracer, mut samples) = tracer(0, Some(Duration::from_micros(1)));
        for (id, wait) in [(1, 100), (2, 2_000)] {
            turn(&mut tracer);
            comes(&mut tracer, 0, id, true);
            write(&mut tracer);
            tracer.sent_to_venue();
            pass(wait);
            turn(&mut tracer);
            answers(&mut tracer, 0, id);
            write(&mut tracer);
            tracer.sent_to_client(0);
        }
        let all = taken(&mut samples);
        assert_eq!(all.len(), 1);
        assert_eq!(fact(&all[0], "cl_ord_id"), Some(Fact::Text(Text::new(b"ID2"))));
        assert_eq!(fact(&all[0], "chosen"), Some(Fact::Flag(false)));
    }

    #[test]
    fn an_order_without_an_answer_is_recorded_in_time_and_one_too_many_is_counted() {
        let (mut tracer, mut samples) = tracer(1, None);
        turn(&mut tracer);
        for id in 0..MOST_UNDER_WAY as u64 + 3 {
            comes(&mut tracer, 0, id, true);
        }
        // An order that is traced already.
        comes(&mut tracer, 0, 0, true);
        assert_eq!(samples.counts().unfollowed(), 4);
        write(&mut tracer);
        tracer.sent_to_venue();
        let now = |ns| Now { utc_ns: 0, steady_ns: CLOCK.get() + ns };
        tracer.give_up(now(0), false);
        assert_eq!(taken(&mut samples).len(), 0);
        tracer.give_up(now(LONGEST_NS), false);
        let all = taken(&mut samples);
        assert_eq!(all.len(), MOST_UNDER_WAY);
        assert!(all.iter().all(|sample| sample.failed == Some("no answer") && names(sample).len() == 4));
    }

    #[test]
    fn missed_reports_are_one_operation_from_the_logon_to_the_last() {
        let (mut tracer, mut samples) = tracer(0, None);
        turn(&mut tracer);
        tracer.recovery_begins();
        for _ in 0..3 {
            tracer.report_begins();
        }
        pass(50);
        tracer.recovery_ends(None);
        tracer.recovery_ends(None);
        let all = taken(&mut samples);
        assert_eq!(
            (all.len(), all[0].name, fact(&all[0], "reports")),
            (1, "recover missed reports", Some(Fact::Number(3)))
        );
        assert_eq!(all[0].times().1 - all[0].times().0, 50);
    }

    proptest! {
        #[test]
        fn whatever_comes_in_whatever_order_each_followed_order_is_recorded_once_and_well_formed(
            steps in prop::collection::vec((0u8..7, 0usize..2, 0u64..12, any::<bool>()), 1..200),
        ) {
            let (mut tracer, mut samples) = tracer(1, None);
            let mut followed = 0;
            turn(&mut tracer);
            for (step, client, id, flag) in steps {
                match step {
                    0 => {
                        let before = samples.counts().unfollowed();
                        comes(&mut tracer, client, id, flag);
                        followed += usize::from(samples.counts().unfollowed() == before);
                    }
                    1 => answers(&mut tracer, client, id),
                    2 => write(&mut tracer),
                    3 => tracer.sent_to_venue(),
                    4 => tracer.sent_to_client(client),
                    5 => turn(&mut tracer),
                    _ => pass(id * 100),
                }
            }
            tracer.give_up(Now { utc_ns: 0, steady_ns: CLOCK.get() }, true);
            prop_assert!(!tracer.is_following() && !tracer.has_to_stamp());
            let all = taken(&mut samples);
            prop_assert_eq!(all.len(), followed);
            for sample in &all {
                let (start, end) = sample.times();
                prop_assert!(start <= end);
                for part in sample.parts() {
                    prop_assert!(start <= part.start_ns && part.start_ns <= part.end_ns && part.end_ns <= end, "{sample:?}");
                }
                prop_assert_eq!(sample.parts().first().map(|part| part.name), Some("read"));
            }
        }
    }
}
