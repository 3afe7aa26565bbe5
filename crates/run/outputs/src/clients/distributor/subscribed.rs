//! A client's subscriptions: those that wait for the stream to start, and the interests in effect.

use tapeworks_engine::replica::{SCHEMAS, place_of};
use tapeworks_market::{InstrumentId, Instruments, Symbol};
use tapeworks_planted::planted;
use tapeworks_store::Schema;

use super::super::control::{Refusal, Subscription, Wanted};
use super::super::replay::Selection;
use super::interest::Interest;

/// The destination of an instrument's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanting {
    /// To the client's queue.
    Now,
    /// To the records kept until the end of a replay.
    Kept,
}

/// A client's subscriptions.
#[derive(Debug)]
pub(super) struct Subscribed {
    /// Those that wait for the start of the stream.
    waiting: Vec<Subscription>,
    /// Those in effect, by schema.
    interests: Vec<Option<Interest>>,
    /// Instruments known when the first subscription with a start took effect: the replay names those that appeared later.
    known_at_start: Option<usize>,
}

impl Subscribed {
    pub(super) fn new() -> Self {
        Self { waiting: Vec::new(), interests: (0..SCHEMAS).map(|_| None).collect(), known_at_start: None }
    }

    /// Returns the interest in a schema, if there is one.
    pub(super) fn get(&self, of_schema: usize) -> Option<&Interest> {
        self.interests.get(of_schema)?.as_ref()
    }

    /// Returns whether all interests in the records of event `number` are being replayed; `None` if there are no such interests.
    pub(super) fn is_replayed(&self, number: u64) -> Option<bool> {
        let has_come = |interest: &&Interest| interest.groups.iter().any(|group| group.from <= number);
        let mut interests = self.interests.iter().flatten().filter(has_come).peekable();
        interests.peek()?;
        Some(interests.all(|interest| interest.start.is_some()))
    }

    /// Ends all interests.
    pub(super) fn clear(&mut self) {
        self.interests.iter_mut().for_each(|interest| *interest = None);
    }

    /// Keeps a subscription until the stream starts.
    pub(super) fn keep(&mut self, subscription: Subscription) {
        self.waiting.push(subscription);
    }

    /// Takes the subscriptions that wait for the start of the stream.
    pub(super) fn take_waiting(&mut self) -> Vec<Subscription> {
        std::mem::take(&mut self.waiting)
    }

    /// Notes the number of instruments known when a subscription with a start takes effect.
    pub(super) fn resumes_at(&mut self, known: usize) {
        self.known_at_start.get_or_insert(known);
    }

    /// Returns how many instruments the client has symbols for before a replay, if it wants them.
    pub(super) fn known_at_start(&self) -> usize {
        self.known_at_start.unwrap_or_default()
    }

    /// Joins lists that were kept apart for records of earlier events, in schemas that hold no such records any more. Returns
    /// whether any were joined.
    pub(super) fn join_lists(&mut self, is_held: impl Fn(Schema) -> bool) -> bool {
        let mut is_joined = false;
        for schema in Schema::ALL {
            let Some(Some(interest)) = self.interests.get_mut(place_of(schema)) else { continue };
            if interest.groups.len() > 1 && interest.start.is_none() && !is_held(schema) {
                interest.merge();
                is_joined = true;
            }
        }
        is_joined
    }

    /// Checks that all subscriptions to a schema have the same start while it is replayed.
    pub(super) fn check_start(&self, subscription: &Subscription) -> Result<(), Refusal> {
        let schema = subscription.schema;
        let kept = self.waiting.iter().find(|kept| kept.schema == schema).map(|kept| kept.start);
        let started = self.get(place_of(schema)).map(|interest| interest.start);
        match kept.or(started) {
            Some(start) if start != subscription.start => {
                let reason = format!(
                    "the subscriptions of a session to {schema} have one start= while it is replayed"
                );
                Err(Refusal::Subscription { reason })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn interest(&mut self, schema: Schema) -> &mut Interest {
        let of_schema = place_of(schema);
        if self.interests.len() <= of_schema {
            self.interests.resize_with(of_schema + 1, || None);
        }
        self.interests[of_schema].get_or_insert_default()
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = (usize, &Interest)> {
        self.interests
            .iter()
            .enumerate()
            .filter_map(|(of_schema, one)| one.as_ref().map(|one| (of_schema, one)))
    }

    pub(super) fn unsubscribe(&mut self, subscription: &Subscription, known: &Instruments) {
        let is_it = |one: &Subscription| one.schema == subscription.schema;
        for kept in self.waiting.iter_mut().filter(|kept| is_it(kept)) {
            match (&mut kept.wanted, &subscription.wanted) {
                (wanted, Wanted::All) => *wanted = Wanted::Symbols(Vec::new()),
                (Wanted::Symbols(symbols), Wanted::Symbols(gone)) => {
                    symbols.retain(|one| !gone.contains(one))
                }
                (Wanted::Instruments(all), Wanted::Instruments(gone)) => {
                    all.retain(|one| !gone.contains(one))
                }
                _ => {}
            }
        }
        if let Some(slot) = self.interests.get_mut(place_of(subscription.schema))
            && let Some(interest) = slot
        {
            interest.remove(&subscription.wanted, known);
            // A running replay keeps its instruments.
            if interest.is_empty() && interest.start.is_none() {
                *slot = None;
            }
        }
    }

    /// Handles a new instrument. Returns where the client wants its records, and the schemas whose lists it is on now.
    pub(super) fn resolve(
        &mut self,
        event: u64,
        instrument: InstrumentId,
        symbol: Symbol,
        is_replaying: bool,
    ) -> (Option<Wanting>, Vec<usize>) {
        let (mut wanting, mut by_schema) = (None, Vec::new());
        for (of_schema, interest) in self.interests.iter_mut().enumerate() {
            let Some(interest) = interest else { continue };
            by_schema.extend(interest.appears(instrument, symbol).then_some(of_schema));
            if interest.wants(instrument, event) {
                let is_kept = interest.start.is_some() && is_replaying;
                wanting = if is_kept { wanting.or(Some(Wanting::Kept)) } else { Some(Wanting::Now) };
            }
        }
        (wanting, by_schema)
    }

    /// Returns the selections for a replay.
    pub(super) fn selections(&self) -> Vec<Selection> {
        let of = |schema: Schema| {
            let interest = self.get(place_of(schema))?;
            Some(Selection { schema, start: interest.start?, wanted: interest.replayed.clone() })
        };
        Schema::ALL.into_iter().filter_map(of).collect()
    }

    /// Keeps records of replayed schemas from this event on, until the end of the replay.
    pub(super) fn join(&mut self, event: u64) {
        for interest in self.interests.iter_mut().flatten().filter(|interest| interest.start.is_some()) {
            interest.groups.iter_mut().for_each(|group| {
                group.from = event.saturating_add(u64::from(planted!("resume-off-by-one")));
            });
        }
    }

    /// Ends the replays. Returns their schemas.
    pub(super) fn finish_replays(&mut self) -> Vec<Schema> {
        let mut finished = Vec::new();
        for schema in Schema::ALL {
            let interest = self.interests.get_mut(place_of(schema)).and_then(Option::as_mut);
            let Some(interest) = interest.filter(|interest| interest.start.is_some()) else { continue };
            interest.start = None;
            interest.replayed = Vec::new();
            interest.merge();
            finished.push(schema);
        }
        finished
    }
}
