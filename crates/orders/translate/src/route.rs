//! Routing tags: the trader or firm behind a client's session. A report returns its order's SenderSubID (50) as TargetSubID (57),
//! OnBehalfOfCompID (115) as DeliverToCompID (128), and so on: see [`ROUTING`].
//!
//! Few traders send many orders, so each combination is stored once, and an order holds its number. Cost: none for a message
//! without these tags; otherwise a walk over its fields and a lookup, and an allocation for a new combination.

use std::collections::HashMap;

use tapeworks_fix_wire::{Parsed, SOH, Writer};
use tapeworks_order_session::fix::ROUTING;

use crate::ids::ClientIndex;
use crate::refusal::Refusal;

/// Maximum number of characters in one tag.
const MOST_CHARACTERS: usize = 64;

/// Maximum number of new combinations per client and day (UTC), so that a new one with every order cannot exhaust the memory.
const MOST_OF_CLIENT: u32 = 1_024;

const DAY_NS: u64 = 86_400_000_000_000;

/// Maximum length of a route's texts, each followed by SOH.
const MOST_BYTES: usize = ROUTING.len() * (MOST_CHARACTERS + 1);

/// Returns whether a tag names a party behind the session.
#[inline]
pub(crate) const fn is_of_route(tag: u32) -> bool {
    let mut place = 0;
    while place < ROUTING.len() {
        if ROUTING[place].0 == tag {
            return true;
        }
        place += 1;
    }
    false
}

/// The parties behind the session, for one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route(Box<[u8]>);

impl Route {
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == SOH)
    }

    /// Writes the fields of a reply to these parties. They belong in its header.
    #[cold]
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        for ((_, tag), text) in ROUTING.iter().zip(self.texts()) {
            if !text.is_empty() {
                writer.copied(*tag, text);
            }
        }
    }

    /// Returns SenderSubID (50), the trader; empty: none.
    #[must_use]
    pub fn sender_sub_id(&self) -> &[u8] {
        self.texts().next().unwrap_or_default()
    }
}

/// The number of a [`Route`]; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteIndex(u32);

impl RouteIndex {
    pub(crate) const NONE: Self = Self(0);

    /// Returns this index, or `other` if it is none.
    #[inline]
    pub(crate) const fn or(self, other: Self) -> Self {
        if self.0 == 0 { other } else { self }
    }
}

/// Every route seen since the start.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    all: Vec<Route>,
    numbers: HashMap<Box<[u8]>, RouteIndex>,
    /// The number of new routes of each client on `day`, in days since 1970.
    counts: HashMap<ClientIndex, u32>,
    day: u64,
}

impl Routes {
    #[inline]
    pub(crate) fn get(&self, index: RouteIndex) -> Option<&Route> {
        self.all.get((index.0 as usize).wrapping_sub(1))
    }

    /// Returns the route of a message. Fails if a text is too long or not printable, or if its client has used too many
    /// combinations.
    #[cold]
    pub(crate) fn of_message(
        &mut self,
        client: ClientIndex,
        message: &Parsed<'_>,
        now_ns: u64,
    ) -> Result<RouteIndex, Refusal> {
        let mut key = Key::NONE;
        for (tag, text) in texts_of(message) {
            if !key.push(text) {
                return Err(Refusal::Routing { tag });
            }
        }
        if now_ns / DAY_NS != self.day {
            self.day = now_ns / DAY_NS;
            self.counts.clear();
        }
        let key = key.bytes();
        if let Some(number) = self.numbers.get(key) {
            return Ok(*number);
        }
        let count = self.counts.entry(client).or_default();
        if *count >= MOST_OF_CLIENT {
            return Err(Refusal::Routes);
        }
        *count += 1;
        self.all.push(Route(key.into()));
        let number = RouteIndex(self.all.len() as u32);
        self.numbers.insert(key.into(), number);
        Ok(number)
    }
}

/// Returns the route of a message that is answered immediately, without texts that cannot be kept; `None`: it has none.
#[cold]
pub(crate) fn of_answered(message: &Parsed<'_>) -> Option<Route> {
    let mut key = Key::NONE;
    let mut has_text = false;
    for (_, text) in texts_of(message) {
        let is_taken = key.push(text);
        if !is_taken {
            key.push(b"");
        }
        has_text |= is_taken && !text.is_empty();
    }
    has_text.then(|| Route(key.bytes().into()))
}

/// Returns the texts of a message: each tag once, empty if it is absent.
fn texts_of<'a>(message: &Parsed<'a>) -> [(u32, &'a [u8]); ROUTING.len()] {
    let mut texts = ROUTING.map(|(tag, _)| (tag, &b""[..]));
    for (tag, value) in message.fields().filter(|(tag, _)| is_of_route(*tag)) {
        if let Some((_, text)) = texts.iter_mut().find(|(of, _)| *of == tag) {
            *text = value;
        }
    }
    texts
}

/// The bytes of a [`Route`], built without an allocation.
struct Key {
    bytes: [u8; MOST_BYTES],
    length: usize,
}

impl Key {
    const NONE: Self = Self { bytes: [0; MOST_BYTES], length: 0 };

    /// Appends a text. Returns whether it can be kept.
    fn push(&mut self, text: &[u8]) -> bool {
        let end = self.length + text.len();
        let is_plain = text.len() <= MOST_CHARACTERS && text.iter().all(|byte| (b' '..=b'~').contains(byte));
        let place = self.bytes.get_mut(self.length..end).filter(|_| is_plain);
        let Some(place) = place else { return false };
        place.copy_from_slice(text);
        if let Some(place) = self.bytes.get_mut(end) {
            *place = SOH;
        }
        self.length = end + 1;
        true
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
