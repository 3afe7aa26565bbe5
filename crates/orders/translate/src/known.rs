//! Known orders and requests, in fixed pools, found by the client's ids and by the venue's.
//!
//! Each request of a client (new order, cancel, replace, mass cancel, quote) has its own ClOrdID and is kept as long as its order,
//! so that no id is used twice. An order with very many requests loses its oldest answered ones. An order that has ended is kept
//! for late events. When room is needed, the order that ended first is forgotten first, and counted. Cost: one lookup per id.
//! Nothing allocates after [`Known::new`].

use std::collections::VecDeque;

use tapeworks_fix_wire::order_entry::OrdStatus;

use crate::ids::{ClOrdId, ClientIndex, InstrumentIndex, VenueName, VenueOrderId};
use crate::index::{Hash, Index};
use crate::orders::{ExchangeToClient, ExchangeToClientState, Order};
use crate::pool::{Handle, Pool};
use crate::report::ExecutionKind;
use crate::reported::Reported;
use crate::request::NewOrder;
use crate::route::RouteIndex;
use crate::settings::Settings;

/// Number of requests above which an order loses answered ones, so that one order cannot use up the room of all.
const MOST_OF_ORDER: u32 = 256;

/// Number of the newest requests of such an order that are kept, answered or not.
const KEPT_OF_ORDER: u32 = 128;

/// The kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    New,
    Cancel,
    Replace,
    MassCancel,
    Quote,
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) kind: RequestKind,
    pub(crate) client: ClientIndex,
    pub(crate) id: ClOrdId,
    /// OrigClOrdID (41).
    pub(crate) original: ClOrdId,
    pub(crate) name: VenueName,
    pub(crate) instrument: InstrumentIndex,
    /// The order; `None` for a mass cancel or a probe. For a quote: its bid.
    pub(crate) order: Option<Handle>,
    /// For a quote: its offer.
    pub(crate) offer: Option<Handle>,
    /// Whether the venue has yet to answer it.
    pub(crate) is_pending: bool,
    /// For a replace: the new terms of the order, in `changes`.
    pub(crate) change: Option<Handle>,
    /// Whether it is the gateway's own request, which is not reported to clients.
    pub(crate) is_own: bool,
    /// Whether it is in doubt, and was sent again with a quantity of 0.
    pub(crate) is_in_doubt: bool,
    /// The party for which the client sent it.
    pub(crate) route: RouteIndex,
    /// The order's previous request.
    pub(crate) next: Option<Handle>,
}

impl RequestKind {
    /// MsgType (35).
    pub(crate) const fn message_type(self) -> &'static [u8] {
        match self {
            Self::New => b"D",
            Self::Cancel => b"F",
            Self::Replace => b"G",
            Self::MassCancel => b"q",
            Self::Quote => b"S",
        }
    }
}

impl ClientRequest {
    /// Creates a pending request without an order.
    pub(crate) const fn new(
        kind: RequestKind,
        client: ClientIndex,
        (id, original): (ClOrdId, ClOrdId),
        name: VenueName,
        instrument: InstrumentIndex,
    ) -> Self {
        Self {
            kind,
            client,
            id,
            original,
            name,
            instrument,
            order: None,
            offer: None,
            is_pending: true,
            change: None,
            is_own: false,
            is_in_doubt: false,
            route: RouteIndex::NONE,
            next: None,
        }
    }

    /// Returns whether it is a probe: a cancel of no order, sent after requests in doubt.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_own && self.kind == RequestKind::Cancel && self.order.is_none()
    }

    /// Returns whether a report of this kind, naming the request, is its answer.
    pub(crate) const fn is_answered_by(&self, kind: ExecutionKind) -> bool {
        match self.kind {
            RequestKind::New | RequestKind::Quote => true,
            RequestKind::Cancel => matches!(kind, ExecutionKind::Cancelled),
            // A replace to no more than the filled quantity ends the order.
            RequestKind::Replace => {
                matches!(kind, ExecutionKind::Replaced | ExecutionKind::Cancelled | ExecutionKind::Expired)
            }
            RequestKind::MassCancel => false,
        }
    }
}

/// An order with its state machine.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) machine: ExchangeToClient,
    pub(crate) order: Order,
    requests: Option<Handle>,
    /// The quote of which it is a side.
    pub(crate) quote: Option<Handle>,
    /// The number of `requests`.
    request_count: u32,
    /// Whether it is queued to be forgotten.
    is_queued: bool,
}

impl Entry {
    const fn new(order: Order) -> Self {
        let machine = ExchangeToClient::new();
        Self { machine, order, requests: None, quote: None, request_count: 0, is_queued: false }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Order(Handle),
    Request(Handle),
}

/// All known orders and requests.
#[derive(Debug)]
pub(crate) struct Known {
    orders: Pool<Entry>,
    requests: Pool<ClientRequest>,
    /// New terms requested by replaces. They are stored separately, because most requests have none.
    changes: Pool<NewOrder>,
    /// Index by ClOrdID. If ClOrdIDs are the names at the venue, clients share one hash space, and this is also the index by name.
    by_client: Index,
    /// Index by the name at the venue, if that is not the ClOrdID.
    by_name: Index,
    names_are_ids: bool,
    by_order_id: Index,
    /// Number of requests that the venue has not answered.
    unanswered: usize,
    ended: VecDeque<Ended>,
    pub(crate) reported: Reported,
    /// Number of ended orders that were forgotten.
    pub(crate) forgotten: u64,
}

impl Known {
    pub(crate) fn new(settings: &Settings, names_are_ids: bool) -> Self {
        let (orders, requests) =
            (settings.most_orders, settings.most_requests.max(settings.most_orders.saturating_mul(2)));
        Self {
            orders: Pool::new(orders),
            requests: Pool::new(requests),
            changes: Pool::new(requests),
            by_client: Index::new(requests),
            by_name: Index::new(if names_are_ids { 0 } else { requests }),
            names_are_ids,
            unanswered: 0,
            by_order_id: Index::new(orders),
            ended: VecDeque::with_capacity(orders.saturating_add(requests)),
            reported: Reported::new(settings.most_fills),
            forgotten: 0,
        }
    }

    /// Returns whether ClOrdIDs are the names at the venue.
    pub(crate) const fn names_are_ids(&self) -> bool {
        self.names_are_ids
    }

    /// Returns the hash of a ClOrdID, for [`in_use_by`](Self::in_use_by).
    #[inline]
    pub(crate) fn hash_of_id(&self, client: ClientIndex, id: &ClOrdId) -> Hash {
        Hash::of_id(if self.names_are_ids { 0 } else { client.0 }, id)
    }

    /// Returns the number of known orders, including ended ones.
    pub(crate) const fn len(&self) -> usize {
        self.orders.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.orders.iter()
    }

    #[inline]
    pub(crate) fn entry(&self, handle: Handle) -> Option<&Entry> {
        self.orders.get(handle)
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, handle: Handle) -> Option<&mut Entry> {
        self.orders.get_mut(handle)
    }

    #[inline]
    pub(crate) fn request_mut(&mut self, handle: Handle) -> Option<&mut ClientRequest> {
        self.requests.get_mut(handle)
    }

    /// Returns a client's request by its ClOrdID.
    #[inline]
    pub(crate) fn by_client(&self, client: ClientIndex, id: &ClOrdId) -> Option<&ClientRequest> {
        let is_it = |request: &ClientRequest| request.id == *id && request.client == client;
        let hash = self.hash_of_id(client, id);
        let place = self.by_client.get(hash, |place| self.requests.at(place).is_some_and(is_it))?;
        self.requests.at(place)
    }

    /// Returns the handle of a client's request by its ClOrdID.
    pub(crate) fn handle_of(&self, client: ClientIndex, id: &ClOrdId) -> Option<Handle> {
        let is_it = |request: &ClientRequest| request.id == *id && request.client == client;
        let hash = self.hash_of_id(client, id);
        self.requests.handle(self.by_client.get(hash, |place| self.requests.at(place).is_some_and(is_it))?)
    }

    /// Returns the request that already uses this ClOrdID: of this client, or of any client if the ids are names at the venue.
    #[inline]
    pub(crate) fn in_use(&self, client: ClientIndex, id: &ClOrdId) -> Option<&ClientRequest> {
        self.requests.at(self.place_in_use(client, id)?)
    }

    /// Like `in_use`, given the id's hash.
    #[inline]
    pub(crate) fn in_use_by(&self, hash: Hash, client: ClientIndex, id: &ClOrdId) -> Option<&ClientRequest> {
        self.requests.at(self.place_in_use_by(hash, client, id)?)
    }

    /// Prefetches the cache line that [`in_use_by`](Self::in_use_by) reads first: in a large table it is in no cache.
    #[inline]
    pub(crate) fn fetch_id(&self, hash: Hash) {
        self.by_client.fetch(hash);
    }

    fn handle_in_use(&self, client: ClientIndex, id: &ClOrdId) -> Option<Handle> {
        self.requests.handle(self.place_in_use(client, id)?)
    }

    #[inline]
    fn place_in_use(&self, client: ClientIndex, id: &ClOrdId) -> Option<u32> {
        self.place_in_use_by(self.hash_of_id(client, id), client, id)
    }

    #[inline]
    fn place_in_use_by(&self, hash: Hash, client: ClientIndex, id: &ClOrdId) -> Option<u32> {
        let is_it =
            |request: &ClientRequest| request.id == *id && (self.names_are_ids || request.client == client);
        self.by_client.get(hash, |place| self.requests.at(place).is_some_and(is_it))
    }

    /// Returns whether a request that [`Self::in_use`] does not find has this name at the venue.
    #[inline]
    pub(crate) fn is_named(&self, name: &VenueName) -> bool {
        !self.names_are_ids && self.by_name(name).is_some()
    }

    /// Returns a request by its name at the venue.
    #[inline]
    pub(crate) fn by_name(&self, name: &VenueName) -> Option<(Handle, &ClientRequest)> {
        let index = if self.names_are_ids { &self.by_client } else { &self.by_name };
        let is_it = |request: &ClientRequest| request.name == *name;
        let place = index.get(Hash::new(0, &name.0), |place| self.requests.at(place).is_some_and(is_it))?;
        let handle = self.requests.handle(place)?;
        self.requests.get(handle).map(|request| (handle, request))
    }

    /// Returns an order by the venue's id.
    #[inline]
    pub(crate) fn by_order_id(&self, id: &VenueOrderId) -> Option<Handle> {
        let is_it = |entry: &Entry| entry.order.order_id == *id;
        let hash = Hash::new(0, &id.0);
        let place = self.by_order_id.get(hash, |place| self.orders.at(place).is_some_and(is_it))?;
        self.orders.handle(place)
    }

    /// Sets the venue's id of an order.
    #[inline]
    pub(crate) fn set_order_id(&mut self, handle: Handle, id: VenueOrderId) {
        let Some(entry) = self.orders.get_mut(handle) else { return };
        if id.0.is_blank() || entry.order.order_id == id {
            return;
        }
        let before = core::mem::replace(&mut entry.order.order_id, id);
        if !before.0.is_blank() {
            self.by_order_id.remove(Hash::new(0, &before.0), handle.place);
        }
        // The venue may reuse the id of an older order. The newer order then owns it.
        let orders = &self.orders;
        let is_it = |place: u32| orders.at(place).is_some_and(|entry| entry.order.order_id == id);
        self.by_order_id.insert(Hash::new(0, &id.0), handle.place, is_it);
    }

    /// Returns the new terms that a replace requests.
    #[inline]
    pub(crate) fn change(&self, request: &ClientRequest) -> Option<&NewOrder> {
        request.change.and_then(|change| self.changes.get(change))
    }

    /// Returns the number of requests that the venue has not answered.
    #[inline]
    pub(crate) const fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Marks a request as answered by the venue.
    #[inline]
    pub(crate) fn set_answered(&mut self, handle: Handle) -> Option<&ClientRequest> {
        let request = self.requests.get_mut(handle)?;
        self.unanswered -= usize::from(core::mem::replace(&mut request.is_pending, false));
        Some(request)
    }

    /// Returns the requests that the venue has not answered, sorted by name. Numbers ascend, and the order of the handles does not
    /// depend on when earlier requests were forgotten.
    pub(crate) fn pending(&self) -> Vec<Handle> {
        let mut pending: Vec<(Handle, &ClientRequest)> =
            self.requests.handles().filter(|(_, request)| request.is_pending).collect();
        pending.sort_unstable_by_key(|(_, request)| request.name.0.0);
        pending.into_iter().map(|(handle, _)| handle).collect()
    }

    /// Returns the orders of a client that have not ended, sorted by ClOrdID.
    pub(crate) fn open(&self, client: ClientIndex) -> Vec<Handle> {
        let is_open = |entry: &Entry| {
            entry.order.client == client && entry.machine.state() != ExchangeToClientState::Ended
        };
        let mut open: Vec<(Handle, &Entry)> =
            self.orders.handles().filter(|(_, entry)| is_open(entry)).collect();
        open.sort_unstable_by(|(_, one), (_, other)| one.order.id.text().cmp(other.order.id.text()));
        open.into_iter().map(|(handle, _)| handle).collect()
    }

    /// Forgets the ended order, the ended quote, or the answered mass cancel that uses this ClOrdID, if any.
    pub(crate) fn forget_ended(&mut self, client: ClientIndex, id: &ClOrdId) {
        if let Some(request) = self.handle_in_use(client, id) {
            self.forget_ended_request(request);
        }
    }

    /// Like `forget_ended`, by the name at the venue.
    pub(crate) fn forget_ended_name(&mut self, name: &VenueName) {
        if let Some((request, _)) = self.by_name(name) {
            self.forget_ended_request(request);
        }
    }

    fn forget_ended_request(&mut self, handle: Handle) {
        let Some(request) = self.requests.get(handle).copied() else { return };
        let orders = [request.order, request.offer];
        let mut working = orders.into_iter().flatten().filter(|order| !self.has_ended(*order));
        if working.next().is_some() || (request.is_pending && request.order.is_none()) {
            return;
        }
        for order in orders.into_iter().flatten() {
            self.forgotten += u64::from(self.orders.get(order).is_some());
            self.forget_order(order);
        }
        // A request that belongs to no single order, such as a quote, still exists.
        self.forget_request(handle);
    }

    /// Returns whether an order has ended, or was forgotten.
    fn has_ended(&self, order: Handle) -> bool {
        self.orders.get(order).is_none_or(|entry| entry.machine.state() == ExchangeToClientState::Ended)
    }

    /// Returns whether one of the gateway's own cancels is waiting for its answer.
    pub(crate) fn has_own_cancel(&self, order: Handle) -> bool {
        let mut next = self.orders.get(order).and_then(|entry| entry.requests);
        while let Some(request) = next.and_then(|handle| self.requests.get(handle)) {
            if request.is_own && request.is_pending {
                return true;
            }
            next = request.next;
        }
        false
    }

    /// Returns the newest unanswered cancel of an order that names `original`.
    pub(crate) fn newest_cancel(&self, order: Handle, original: &ClOrdId) -> Option<Handle> {
        let mut next = self.orders.get(order)?.requests;
        while let Some((handle, request)) = next.and_then(|handle| Some((handle, self.requests.get(handle)?)))
        {
            if request.is_pending && request.kind == RequestKind::Cancel && request.original == *original {
                return Some(handle);
            }
            next = request.next;
        }
        None
    }

    /// Returns whether another client has a working order in an instrument. Cost: a walk over all orders, for a rare request.
    #[cold]
    pub(crate) fn others_trade(&self, client: ClientIndex, instrument: InstrumentIndex) -> bool {
        self.is_any_working(instrument, |entry| entry.order.client != client)
    }

    /// Returns whether the client has a working side of a quote in an instrument. Cost: as for [`Self::others_trade`].
    #[cold]
    pub(crate) fn quotes(&self, client: ClientIndex, instrument: InstrumentIndex) -> bool {
        self.is_any_working(instrument, |entry| entry.order.client == client && entry.quote.is_some())
    }

    fn is_any_working(&self, instrument: InstrumentIndex, is_meant: impl Fn(&Entry) -> bool) -> bool {
        let is_working = |entry: &Entry| entry.machine.state() != ExchangeToClientState::Ended;
        self.orders
            .iter()
            .any(|entry| entry.order.instrument == instrument && is_working(entry) && is_meant(entry))
    }

    /// Returns the oldest unanswered cancel of an order that names `original`; with `None`, any.
    pub(crate) fn pending_cancel(&self, order: Handle, original: Option<&ClOrdId>) -> Option<Handle> {
        let mut next = self.orders.get(order)?.requests;
        let mut oldest = None;
        while let Some((handle, request)) = next.and_then(|handle| Some((handle, self.requests.get(handle)?)))
        {
            let is_named = original.is_none_or(|original| request.original == *original);
            if request.is_pending && request.kind == RequestKind::Cancel && is_named {
                oldest = Some(handle);
            }
            next = request.next;
        }
        oldest
    }

    /// Returns the ClOrdIDs by which an order can be named: its own, and those of replaces in flight.
    pub(crate) fn ids(&self, order: Handle) -> Vec<ClOrdId> {
        let Some(entry) = self.orders.get(order) else { return Vec::new() };
        let mut ids = vec![entry.order.id];
        let mut next = entry.requests;
        while let Some(request) = next.and_then(|handle| self.requests.get(handle)) {
            if request.is_pending && request.kind == RequestKind::Replace {
                ids.push(request.id);
            }
            next = request.next;
        }
        ids
    }

    #[inline]
    pub(crate) fn request(&self, handle: Handle) -> Option<&ClientRequest> {
        self.requests.get(handle)
    }

    /// Returns the pending status of an order, given by its newest unanswered request.
    pub(crate) fn pending_status(&self, entry: &Entry) -> Option<OrdStatus> {
        let mut next = entry.requests;
        while let Some(request) = next.and_then(|handle| self.requests.get(handle)) {
            match (request.is_pending, request.kind) {
                (true, RequestKind::Cancel) => return Some(OrdStatus::PendingCancel),
                (true, RequestKind::Replace) => return Some(OrdStatus::PendingReplace),
                _ => next = request.next,
            }
        }
        None
    }

    /// Makes room for a request, and for its orders if it is a new order or a quote. For each known order, room is reserved for a
    /// request to cancel it. Returns whether there is room.
    #[inline]
    pub(crate) fn make_room(&mut self, kind: RequestKind) -> bool {
        match kind {
            RequestKind::New => self.make_room_for(1, 1),
            RequestKind::Quote => self.make_room_for(2, 1),
            // The reserved requests are left for cancels.
            RequestKind::Replace => self.make_room_for(0, 1),
            RequestKind::Cancel | RequestKind::MassCancel => self.make_room_beyond(0, 0, 1),
        }
    }

    /// Makes room for new orders, and for requests that cancel nothing.
    #[inline]
    pub(crate) fn make_room_for(&mut self, orders: usize, requests: usize) -> bool {
        self.make_room_beyond(self.orders.len().saturating_add(orders), orders, requests)
    }

    #[inline]
    fn make_room_beyond(&mut self, mut reserved: usize, orders: usize, requests: usize) -> bool {
        loop {
            if self.orders.free() >= orders && self.requests.free() >= reserved.saturating_add(requests) {
                return true;
            }
            let before = self.orders.len();
            if !self.forget_one() {
                return false;
            }
            // A forgotten order needs no reserved request.
            reserved = reserved.saturating_sub(before - self.orders.len());
        }
    }

    /// Forgets ended orders until this many new ones fit, or none is left to forget.
    pub(crate) fn keep_room(&mut self, orders: usize) {
        let requests = |known: &Self| known.orders.len().saturating_add(orders.saturating_mul(2));
        while (self.orders.free() < orders || self.requests.free() < requests(self)) && self.forget_one() {}
    }

    #[cold]
    fn forget_one(&mut self) -> bool {
        match self.ended.pop_front() {
            None => return false,
            Some(Ended::Request(handle)) => {
                self.forget_request(handle);
            }
            Some(Ended::Order(handle)) => {
                let Some(entry) = self.orders.get_mut(handle) else { return true };
                entry.is_queued = false;
                if entry.machine.state() == ExchangeToClientState::Ended {
                    self.forget_order(handle);
                    self.forgotten += 1;
                }
            }
        }
        true
    }

    fn forget_request(&mut self, handle: Handle) -> Option<Handle> {
        let request = self.requests.remove(handle)?;
        self.unanswered -= usize::from(request.is_pending);
        self.by_client.remove(self.hash_of_id(request.client, &request.id), handle.place);
        if !self.names_are_ids {
            self.by_name.remove(Hash::new(0, &request.name.0), handle.place);
        }
        if let Some(change) = request.change {
            self.changes.remove(change);
        }
        request.next
    }

    fn forget_order(&mut self, handle: Handle) {
        let Some(entry) = self.orders.remove(handle) else { return };
        if !entry.order.order_id.0.is_blank() {
            self.by_order_id.remove(Hash::new(0, &entry.order.order_id.0), handle.place);
        }
        let mut next = entry.requests;
        while let Some(request) = next {
            next = self.forget_request(request);
        }
    }

    /// Adds a new order and its request. The caller has made room.
    #[inline]
    pub(crate) fn add_order(&mut self, order: Order) -> Option<Handle> {
        let (client, id, instrument, name) = (order.client, order.id, order.instrument, order.terms.name);
        let handle = self.orders.insert(Entry::new(order))?;
        let mut request =
            ClientRequest::new(RequestKind::New, client, (id, ClOrdId::default()), name, instrument);
        request.order = Some(handle);
        self.add_request(request)?;
        Some(handle)
    }

    /// Returns whether an order fits without forgetting one.
    pub(crate) const fn has_room(&self) -> bool {
        self.orders.free() > 0 && self.requests.free() > 0
    }

    /// Removes the order that was added last, restoring every table.
    pub(crate) fn take_back(&mut self, order: Handle) {
        self.forget_order(order);
    }

    /// Adds a quote with its sides. The caller has made room.
    pub(crate) fn add_quote(&mut self, request: ClientRequest, sides: [Option<Order>; 2]) -> Option<Handle> {
        let [bid, offer] = sides.map(|side| self.orders.insert(Entry::new(side?)));
        let quote = self.add_request(ClientRequest { order: None, ..request })?;
        if let Some(request) = self.requests.get_mut(quote) {
            (request.order, request.offer) = (bid, offer);
        }
        for side in [bid, offer].into_iter().flatten() {
            if let Some(entry) = self.orders.get_mut(side) {
                entry.quote = Some(quote);
            }
        }
        Some(quote)
    }

    /// Adds a request that changes an order. The caller has made room.
    pub(crate) fn add_change(&mut self, request: ClientRequest, terms: Option<NewOrder>) -> Option<Handle> {
        let change = terms.and_then(|terms| self.changes.insert(terms));
        self.add_request(ClientRequest { change, ..request })
    }

    /// Adds a request. The caller has made room.
    #[inline]
    pub(crate) fn add_request(&mut self, mut request: ClientRequest) -> Option<Handle> {
        let entry = request.order.and_then(|order| self.orders.get_mut(order));
        request.next = entry.as_ref().and_then(|entry| entry.requests);
        let (client, id, name) = (request.client, request.id, request.name);
        let handle = self.requests.insert(request)?;
        self.unanswered += usize::from(request.is_pending);
        let mut is_crowded = false;
        if let Some(entry) = entry {
            entry.requests = Some(handle);
            entry.request_count += 1;
            is_crowded = entry.request_count > MOST_OF_ORDER;
        }
        if is_crowded && let Some(order) = request.order {
            self.forget_answered(order);
        }
        // The caller has looked up both: neither is known.
        self.by_client.insert_new(self.hash_of_id(client, &id), handle.place);
        if !self.names_are_ids {
            self.by_name.insert_new(Hash::new(0, &name.0), handle.place);
        }
        Some(handle)
    }

    /// Forgets the answered requests of an order, except for the newest ones and the one whose ClOrdID the order has.
    #[cold]
    fn forget_answered(&mut self, order: Handle) {
        let Some((id, newest)) = self.orders.get(order).map(|entry| (entry.order.id, entry.requests)) else {
            return;
        };
        let (mut last, mut next, mut count) = (None, newest, 0);
        while let Some(handle) = next {
            let Some(request) = self.requests.get(handle) else { break };
            let behind = request.next;
            let is_kept = count < KEPT_OF_ORDER || request.is_pending || request.id == id;
            if is_kept {
                (last, count) = (Some(handle), count + 1);
            } else {
                self.forget_request(handle);
                if let Some(last) = last.and_then(|last| self.requests.get_mut(last)) {
                    last.next = behind;
                }
            }
            next = behind;
        }
        if let Some(entry) = self.orders.get_mut(order) {
            entry.request_count = count;
        }
    }

    /// Allows an answered request without an order to be forgotten.
    pub(crate) fn end_request(&mut self, handle: Handle) {
        self.ended.push_back(Ended::Request(handle));
    }

    /// Allows an ended order to be forgotten.
    pub(crate) fn end_order(&mut self, handle: Handle) {
        if let Some(entry) = self.orders.get_mut(handle)
            && !core::mem::replace(&mut entry.is_queued, true)
        {
            self.ended.push_back(Ended::Order(handle));
        }
    }
}
