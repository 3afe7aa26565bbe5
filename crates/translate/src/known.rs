//! The orders and requests that are known, in fixed pools, found by the client's and by the venue's ids.
//!
//! Each request of a client (new order, cancel, replace, mass cancel) has its ClOrdID, and is kept as long as its order: ids are not used
//! twice. Of an order with very many requests the oldest answered ones are forgotten. An order that ended stays for late events. The one that
//! ended first is forgotten first, when room is needed, and counted. Cost: one lookup per id. Nothing allocates after [`Known::new`].

use std::collections::VecDeque;

use tapeworks_wire::fix::order_entry::OrdStatus;

use crate::ids::{ClOrdId, ClientIndex, ExecutionId, InstrumentIndex, VenueName, VenueOrderId};
use crate::index::{Index, Key};
use crate::orders::{ExchangeToClient, ExchangeToClientState, Order};
use crate::pool::{Handle, Pool};
use crate::report::ExecutionKind;
use crate::request::NewOrder;
use crate::settings::Settings;

/// The spaces of the venue's ids; clients' ids are in a table of their own.
const BY_NAME: u16 = 0;
const BY_ORDER_ID: u16 = 1;

/// An order with so many requests loses answered ones: one order must not use up the room of all.
const MOST_OF_ORDER: u32 = 256;

/// The newest requests of such an order that stay, answered or not.
const KEPT_OF_ORDER: u32 = 128;

/// What a client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    New,
    Cancel,
    Replace,
    MassCancel,
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
    /// Of everything but a mass cancel.
    pub(crate) order: Option<Handle>,
    /// The venue has not answered it.
    pub(crate) is_pending: bool,
    /// What a replace makes of the order.
    pub(crate) terms: Option<NewOrder>,
    /// The gateway's own: no client learns of it.
    pub(crate) is_own: bool,
    /// It was sent again without a quantity.
    pub(crate) is_in_doubt: bool,
    /// The order's request before.
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
        }
    }
}

impl ClientRequest {
    /// A request that is sent now, of no order.
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
            is_pending: true,
            terms: None,
            is_own: false,
            is_in_doubt: false,
            next: None,
        }
    }

    /// Whether a report of this kind that names the request is its answer.
    pub(crate) const fn is_answered_by(&self, kind: ExecutionKind) -> bool {
        match self.kind {
            RequestKind::New => true,
            RequestKind::Cancel => matches!(kind, ExecutionKind::Cancelled),
            // A replace to no more than is filled ends the order.
            RequestKind::Replace => {
                matches!(kind, ExecutionKind::Replaced | ExecutionKind::Cancelled | ExecutionKind::Expired)
            }
            RequestKind::MassCancel => false,
        }
    }
}

/// An order with its machine.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) machine: ExchangeToClient,
    pub(crate) order: Order,
    requests: Option<Handle>,
    /// How many they are.
    request_count: u32,
    /// It is among those that may be forgotten.
    is_queued: bool,
}

/// A fill, as it counts for its order now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) order: Handle,
    pub(crate) match_id: u64,
    pub(crate) quantity: u32,
    pub(crate) price_e8: i64,
    pub(crate) execution_id: ExecutionId,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Order(Handle),
    Request(Handle),
}

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct Known {
    orders: Pool<Entry>,
    requests: Pool<ClientRequest>,
    by_client: Index,
    by_venue: Index,
    by_order_id: Index,
    ended: VecDeque<Ended>,
    fills: VecDeque<Fill>,
    most_fills: usize,
    /// By place of the pool: whose working order is there, and of which instrument.
    working: Vec<Option<(ClientIndex, InstrumentIndex)>>,
    /// Ended orders that were forgotten.
    pub(crate) forgotten: u64,
}

impl Known {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (orders, requests) =
            (settings.most_orders, settings.most_requests.max(settings.most_orders.saturating_mul(2)));
        Self {
            orders: Pool::new(orders),
            requests: Pool::new(requests),
            by_client: Index::new(requests),
            by_venue: Index::new(requests),
            by_order_id: Index::new(orders),
            ended: VecDeque::with_capacity(orders.saturating_add(requests)),
            fills: VecDeque::with_capacity(settings.most_fills),
            most_fills: settings.most_fills,
            working: vec![None; orders],
            forgotten: 0,
        }
    }

    /// How many orders are known, ended ones included.
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

    /// The request of a client by its ClOrdID.
    #[inline]
    pub(crate) fn by_client(&self, client: ClientIndex, id: &ClOrdId) -> Option<&ClientRequest> {
        let place = self.by_client.get(&Key::new(client.0, &id.0))?;
        self.requests.get(self.requests.handle(place)?)
    }

    /// The request by its name at the venue.
    #[inline]
    pub(crate) fn by_name(&self, name: &VenueName) -> Option<(Handle, &ClientRequest)> {
        let handle = self.requests.handle(self.by_venue.get(&Key::new(BY_NAME, &name.0))?)?;
        self.requests.get(handle).map(|request| (handle, request))
    }

    /// The order by the venue's id.
    #[inline]
    pub(crate) fn by_order_id(&self, id: &VenueOrderId) -> Option<Handle> {
        self.orders.handle(self.by_order_id.get(&Key::new(BY_ORDER_ID, &id.0))?)
    }

    /// The venue named its id of an order.
    pub(crate) fn set_order_id(&mut self, handle: Handle, id: VenueOrderId) {
        let Some(entry) = self.orders.get_mut(handle) else { return };
        if id.0.is_blank() || entry.order.order_id == id {
            return;
        }
        let before = core::mem::replace(&mut entry.order.order_id, id);
        self.by_order_id.remove(&Key::new(BY_ORDER_ID, &before.0));
        self.by_order_id.insert(Key::new(BY_ORDER_ID, &id.0), handle.place);
    }

    /// The requests that the venue has not answered, by their names: numbers ascend, and what was forgotten when does not matter.
    pub(crate) fn pending(&self) -> Vec<Handle> {
        let mut pending: Vec<(Handle, &ClientRequest)> =
            self.requests.handles().filter(|(_, request)| request.is_pending).collect();
        pending.sort_unstable_by_key(|(_, request)| request.name.0.0);
        pending.into_iter().map(|(handle, _)| handle).collect()
    }

    /// The orders of a client that have not ended, by ClOrdID.
    pub(crate) fn open(&self, client: ClientIndex) -> Vec<Handle> {
        let is_open = |entry: &Entry| {
            entry.order.client == client && entry.machine.state() != ExchangeToClientState::Ended
        };
        let mut open: Vec<(Handle, &Entry)> =
            self.orders.handles().filter(|(_, entry)| is_open(entry)).collect();
        open.sort_unstable_by_key(|(_, entry)| entry.order.id.0.0);
        open.into_iter().map(|(handle, _)| handle).collect()
    }

    /// Forgets the ended order, or the answered mass cancel, that has this ClOrdID of a client, if there is one.
    pub(crate) fn forget_ended(&mut self, client: ClientIndex, id: &ClOrdId) {
        let place = self.by_client.get(&Key::new(client.0, &id.0));
        if let Some(request) = place.and_then(|place| self.requests.handle(place)) {
            self.forget_ended_request(request);
        }
    }

    /// The same by the name at the venue.
    pub(crate) fn forget_ended_name(&mut self, name: &VenueName) {
        if let Some((request, _)) = self.by_name(name) {
            self.forget_ended_request(request);
        }
    }

    fn forget_ended_request(&mut self, handle: Handle) {
        let Some(request) = self.requests.get(handle) else { return };
        match request.order {
            None if !request.is_pending => _ = self.forget_request(handle),
            Some(order) if self.has_ended(order) => {
                self.forget_order(order);
                self.forgotten += 1;
            }
            _ => {}
        }
    }

    fn has_ended(&self, order: Handle) -> bool {
        self.orders.get(order).is_some_and(|entry| entry.machine.state() == ExchangeToClientState::Ended)
    }

    /// Whether a cancel of the gateway's own waits for its answer.
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

    /// The newest cancel of an order that the venue has not answered, of those that name `original`.
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

    /// Whether another client has a working order in an instrument. Cost: a walk over 12 bytes for each order that has room, for a rare
    /// request.
    #[cold]
    pub(crate) fn others_trade(&self, client: ClientIndex, instrument: InstrumentIndex) -> bool {
        self.working.iter().flatten().any(|(other, of)| *of == instrument && *other != client)
    }

    /// Notes whether an order works.
    #[inline]
    fn set_working(&mut self, handle: Handle, is_working: bool) {
        let order = self.orders.get(handle).map(|entry| (entry.order.client, entry.order.instrument));
        if let Some(place) = self.working.get_mut(handle.place as usize) {
            *place = order.filter(|_| is_working);
        }
    }

    /// An order that had ended works again.
    pub(crate) fn reopen_order(&mut self, handle: Handle) {
        self.set_working(handle, true);
    }

    /// The oldest cancel of an order that the venue has not answered, of those that name `original`; `None`: any.
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

    /// The ClOrdIDs by which an order can be named: its own, and those of replaces in flight.
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

    /// Keeps a fill, for a venue that names it by its number alone later. The oldest goes first.
    #[inline]
    pub(crate) fn add_fill(&mut self, fill: Fill) {
        if self.fills.len() >= self.most_fills {
            self.fills.pop_front();
        }
        self.fills.push_back(fill);
    }

    /// The fill of an order with this number. Cost: a walk over the kept fills, for a rare report.
    #[cold]
    pub(crate) fn fill(&mut self, order: Handle, match_id: u64) -> Option<&mut Fill> {
        self.fills.iter_mut().rev().find(|fill| fill.order == order && fill.match_id == match_id)
    }

    /// The status of an order by its newest request that the venue has not answered.
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

    /// Makes room for a request, and for an order if it is a new one. Each known order keeps room for a request to cancel it.
    /// Returns whether there is room.
    #[inline]
    pub(crate) fn make_room(&mut self, kind: RequestKind) -> bool {
        loop {
            let reserved = match kind {
                RequestKind::New => self.orders.len().saturating_add(1),
                RequestKind::Replace => self.orders.len(),
                RequestKind::Cancel | RequestKind::MassCancel => 0,
            };
            let has_order = kind != RequestKind::New || self.orders.free() > 0;
            if has_order && self.requests.free() > reserved {
                return true;
            }
            if !self.forget_one() {
                return false;
            }
        }
    }

    /// Forgets ended orders until so many new ones have room, or none is left to forget.
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
        self.by_client.remove(&Key::new(request.client.0, &request.id.0));
        self.by_venue.remove(&Key::new(BY_NAME, &request.name.0));
        request.next
    }

    fn forget_order(&mut self, handle: Handle) {
        let Some(entry) = self.orders.remove(handle) else { return };
        if !entry.order.order_id.0.is_blank() {
            self.by_order_id.remove(&Key::new(BY_ORDER_ID, &entry.order.order_id.0));
        }
        let mut next = entry.requests;
        while let Some(request) = next {
            next = self.forget_request(request);
        }
    }

    /// Adds a new order and its request. The caller has made room.
    pub(crate) fn add_order(&mut self, order: Order) -> Option<Handle> {
        let (client, id, instrument, name) = (order.client, order.id, order.instrument, order.terms.name);
        let machine = ExchangeToClient::new();
        let entry = Entry { machine, order, requests: None, request_count: 0, is_queued: false };
        let handle = self.orders.insert(entry)?;
        self.set_working(handle, true);
        let request =
            ClientRequest::new(RequestKind::New, client, (id, ClOrdId::default()), name, instrument);
        self.add_request(ClientRequest { order: Some(handle), ..request })?;
        Some(handle)
    }

    /// Adds a request. The caller has made room.
    pub(crate) fn add_request(&mut self, mut request: ClientRequest) -> Option<Handle> {
        let entry = request.order.and_then(|order| self.orders.get_mut(order));
        request.next = entry.as_ref().and_then(|entry| entry.requests);
        let handle = self.requests.insert(request)?;
        let mut is_crowded = false;
        if let Some(entry) = entry {
            entry.requests = Some(handle);
            entry.request_count += 1;
            is_crowded = entry.request_count > MOST_OF_ORDER;
        }
        if is_crowded && let Some(order) = request.order {
            self.forget_answered(order);
        }
        self.by_client.insert(Key::new(request.client.0, &request.id.0), handle.place);
        self.by_venue.insert(Key::new(BY_NAME, &request.name.0), handle.place);
        Some(handle)
    }

    /// Forgets the answered requests of an order but for the newest, and the one that it is called by.
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

    /// A request of no order is answered: it may be forgotten.
    pub(crate) fn end_request(&mut self, handle: Handle) {
        self.ended.push_back(Ended::Request(handle));
    }

    /// An order ended: it may be forgotten.
    pub(crate) fn end_order(&mut self, handle: Handle) {
        self.set_working(handle, false);
        if let Some(entry) = self.orders.get_mut(handle)
            && !core::mem::replace(&mut entry.is_queued, true)
        {
            self.ended.push_back(Ended::Order(handle));
        }
    }
}
