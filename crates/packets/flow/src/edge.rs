//! The ends of an edge between two threads, for every kind of edge.
//!
//! A thread waits in one place for all its incoming edges ([`Waiter`]), so rings are only polled. A producer wakes a sleeping
//! thread ([`WakeUp`]) after adding packets.
//!
//! If several edges lead into one stage, each is a separate ring, which the stage's thread polls in turn. With one ring shared by
//! several producers, all of them would write one counter. Each claim would take that cache line from another core, at 50 to 100
//! ns under contention for every packet or batch, and the consumer would wait for the slowest claim. Rings with one producer each
//! share no line, and polling an empty ring only loads a line that no other core has changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tapeworks_capture::pool::Packet;
use tapeworks_ring::disruptor::{self, Builder, Single};
use tapeworks_ring::prefetch;
use tapeworks_ring::spsc;
use tapeworks_ring::wait::{Backoff, BusySpin, Park, Wait, WaitStrategy as _, Yielding};

use crate::graph::{EdgeKind, WhenFull};
use crate::packets::Passing;
use crate::queue::{self, BlockingQueue};

/// The longest a thread sleeps at a queue before it checks whether the run should end.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// Counts of an edge, written by its ends and read by a watching thread.
#[derive(Debug, Default)]
pub(crate) struct EdgeCounters {
    /// Packets that the preceding stage had for the edge.
    pub(crate) offered: AtomicU64,
    /// Packets delivered to the following stage.
    pub(crate) delivered: AtomicU64,
    /// Packets for which there was no room.
    pub(crate) full: AtomicU64,
    /// Packets abandoned because the receiving thread had ended.
    pub(crate) abandoned: AtomicU64,
    /// The most packets found in the edge.
    pub(crate) most: AtomicU64,
    /// The sum of sampled fill levels, and the number of samples.
    pub(crate) held: AtomicU64,
    pub(crate) looks: AtomicU64,
}

/// Adds to a counter that only this thread writes, without a locked instruction.
#[inline]
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Wakes a parked thread.
#[derive(Debug, Clone)]
pub(crate) struct WakeUp(Option<Arc<Park>>);

impl WakeUp {
    #[inline]
    pub(crate) fn ring(&self) {
        if let Some(park) = &self.0 {
            park.notify();
        }
    }
}

/// How a thread waits.
#[derive(Debug, Clone)]
pub(crate) enum Waiter {
    BusySpin(BusySpin),
    Yielding(Yielding),
    Backoff(Backoff),
    Park(Arc<Park>),
}

impl Waiter {
    pub(crate) fn new(wait: Wait) -> Self {
        match wait {
            Wait::BusySpin => Self::BusySpin(BusySpin),
            Wait::Yielding => Self::Yielding(Yielding::default()),
            Wait::Backoff => Self::Backoff(Backoff::default()),
            Wait::Park => Self::Park(Arc::new(Park::default())),
        }
    }

    /// Returns the strategy for an end that no other thread wakes: parking becomes backing off.
    pub(crate) fn unwoken(wait: Wait) -> Self {
        Self::new(if wait == Wait::Park { Wait::Backoff } else { wait })
    }

    pub(crate) fn wake_up(&self) -> WakeUp {
        match self {
            Self::Park(park) => WakeUp(Some(Arc::clone(park))),
            _ => WakeUp(None),
        }
    }

    pub(crate) fn wait_until(&self, is_ready: impl FnMut() -> bool) {
        match self {
            Self::BusySpin(strategy) => strategy.wait_until(is_ready),
            Self::Yielding(strategy) => strategy.wait_until(is_ready),
            Self::Backoff(strategy) => strategy.wait_until(is_ready),
            Self::Park(strategy) => strategy.wait_until(is_ready),
        }
    }
}

/// A Disruptor slot, empty before its first packet and after a mutating consumer takes the packet.
type Slot = Option<Packet>;

/// The end where packets enter.
#[derive(Debug)]
enum Producing {
    Spsc(spsc::Producer<Packet>),
    Disruptor(disruptor::Producer<Slot, BusySpin>),
    Queue(BlockingQueue<Packet>),
}

/// The end where packets leave.
#[derive(Debug)]
enum Consuming {
    Spsc(spsc::Consumer<Packet>),
    /// The ring's only consumer, which takes the packets out.
    Taking(disruptor::Consumer<Slot, BusySpin, Single>),
    /// One of several consumers that share the packets.
    Sharing(disruptor::Consumer<Slot, BusySpin, Single>),
    Queue(BlockingQueue<Packet>),
}

/// The parameters for making an edge.
pub(crate) struct Making {
    pub(crate) kind: EdgeKind,
    pub(crate) capacity: usize,
    pub(crate) wait: Wait,
    pub(crate) when_full: WhenFull,
}

/// The end that a stage sends packets to; a Disruptor leads to several stages.
#[derive(Debug)]
pub(crate) struct Sender {
    producing: Producing,
    /// Packets of the current batch.
    pending: Vec<Packet>,
    waiter: Waiter,
    when_full: WhenFull,
    /// One per edge, with the wake-up of its thread.
    edges: Vec<(Arc<EdgeCounters>, WakeUp)>,
    is_closed: Arc<AtomicBool>,
}

/// The end from which a thread receives packets.
#[derive(Debug)]
pub(crate) struct Receiver {
    consuming: Consuming,
    counters: Arc<EdgeCounters>,
    is_closed: Arc<AtomicBool>,
}

/// Creates an edge, or several edges of a Disruptor, with their counters and the wake-ups of the receiving threads.
pub(crate) fn make(
    making: &Making,
    edges: Vec<(Arc<EdgeCounters>, WakeUp)>,
    batch: usize,
) -> (Sender, Vec<Receiver>) {
    let is_closed = Arc::new(AtomicBool::new(false));
    let (producing, consuming) = match making.kind {
        EdgeKind::Queue | EdgeKind::Inline => {
            let queue = queue::bounded(making.capacity);
            (Producing::Queue(queue.clone()), vec![Consuming::Queue(queue)])
        }
        EdgeKind::Spsc => {
            let (producer, consumer) = spsc::exact(making.capacity);
            (Producing::Spsc(producer), vec![Consuming::Spsc(consumer)])
        }
        EdgeKind::Disruptor => {
            let mut builder = Builder::new(making.capacity, || None, || BusySpin);
            let is_alone = edges.len() == 1;
            let declare =
                |_: &_| if is_alone { builder.mutator("stage", &[]) } else { builder.consumer("stage", &[]) };
            let ids: Vec<_> = edges.iter().map(declare).collect();
            let (producer, mut ends) = builder.single_producer();
            let consumers = ids.into_iter().filter_map(|id| ends.take(id));
            let consuming = consumers.map(|consumer| {
                if is_alone { Consuming::Taking(consumer) } else { Consuming::Sharing(consumer) }
            });
            (Producing::Disruptor(producer), consuming.collect())
        }
    };
    let receivers = consuming
        .into_iter()
        .zip(&edges)
        .map(|(consuming, (counters, _))| Receiver {
            consuming,
            counters: Arc::clone(counters),
            is_closed: Arc::clone(&is_closed),
        })
        .collect();
    let sender = Sender {
        producing,
        pending: Vec::with_capacity(batch),
        waiter: Waiter::unwoken(making.wait),
        when_full: making.when_full,
        edges,
        is_closed,
    };
    (sender, receivers)
}

/// The result of an attempt to add packets.
#[derive(PartialEq)]
enum Put {
    Done,
    Full,
    /// The receiving thread has ended, and this many packets were lost in the attempt.
    Gone(usize),
}

impl Producing {
    /// Adds the packets that have room and leaves the rest in `items`. A queue instead wakes the other side and sleeps until all
    /// fit.
    fn put(&mut self, items: &mut std::vec::Drain<'_, Packet>, wake: impl Fn()) -> Put {
        match self {
            Self::Spsc(producer) => {
                if producer.is_closed() {
                    return Put::Gone(0);
                }
                producer.push_batch(items);
                if items.len() == 0 { Put::Done } else { Put::Full }
            }
            Self::Disruptor(producer) => loop {
                let free = producer.capacity() - producer.fill();
                let count = free.min(items.len());
                if count == 0 {
                    if items.len() == 0 {
                        return Put::Done;
                    }
                    // The attempt shows whether a consumer is left.
                    return match producer.try_publish(|slot| *slot = items.next()) {
                        Ok(_) => continue,
                        Err(disruptor::PublishError::Full) => Put::Full,
                        Err(_) => Put::Gone(0),
                    };
                }
                if producer.publish_batch(count, |_, slot| *slot = items.next()).is_err() {
                    return Put::Gone(0);
                }
            },
            Self::Queue(queue) => {
                for packet in items.by_ref() {
                    let Err(packet) = queue.try_push(packet) else { continue };
                    // The thread that makes room may be asleep at another of its edges.
                    wake();
                    if queue.push(packet).is_err() {
                        return Put::Gone(1);
                    }
                }
                Put::Done
            }
        }
    }

    fn has_room(&self) -> bool {
        match self {
            Self::Spsc(producer) => producer.free_slots() > 0 || producer.is_closed(),
            Self::Disruptor(producer) => producer.fill() < producer.capacity(),
            Self::Queue(queue) => queue.len() < queue.capacity() || queue.is_closed(),
        }
    }
}

impl Sender {
    /// Holds a packet until the batch ends.
    #[inline]
    pub(crate) fn hold(&mut self, packet: Packet) {
        self.pending.push(packet);
    }

    /// Adds all packets at the end of a batch. Waits for room or drops packets, as configured.
    pub(crate) fn flush(&mut self) {
        let offered = self.pending.len();
        if offered == 0 {
            return;
        }
        for (counters, _) in &self.edges {
            add(&counters.offered, offered as u64);
        }
        if let (Producing::Queue(queue), WhenFull::Drop) = (&self.producing, self.when_full) {
            let full = self.pending.drain(..).filter_map(|packet| queue.try_push(packet).err()).count();
            self.count_lost(full, Put::Full);
            return;
        }
        let mut items = self.pending.drain(..);
        loop {
            let wake = || self.edges.iter().for_each(|(_, wake_up)| wake_up.ring());
            let put = self.producing.put(&mut items, wake);
            wake();
            match put {
                Put::Done => return,
                Put::Full if self.when_full == WhenFull::Wait => {
                    self.waiter.wait_until(|| self.producing.has_room());
                }
                lost => {
                    let count = items.len() + if let Put::Gone(lost) = lost { lost } else { 0 };
                    drop(items);
                    self.count_lost(count, lost);
                    return;
                }
            }
        }
    }

    #[cold]
    fn count_lost(&self, count: usize, why: Put) {
        for (counters, _) in &self.edges {
            let counter = if why == Put::Full { &counters.full } else { &counters.abandoned };
            add(counter, count as u64);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        if let Producing::Queue(queue) = &self.producing {
            queue.close();
        }
        for (_, wake_up) in &self.edges {
            wake_up.ring();
        }
    }
}

/// The result of polling an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Some,
    None,
    Ended,
}

/// Receives a packet from another core. Prefetches its head for writing, because releasing the packet counts there.
fn arrived(packet: Packet) -> Passing {
    prefetch::write_ahead(packet.description());
    Passing::new(packet)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // If this thread panicked, wake the preceding thread. Rings do so by themselves.
        if let Consuming::Queue(queue) = &self.consuming {
            queue.close();
        }
    }
}

impl Receiver {
    /// Moves up to `most` packets into `inbox`.
    pub(crate) fn receive(&mut self, most: usize, inbox: &mut Vec<Passing>) -> Received {
        // Read this before polling: a later poll sees packets added before the edge was closed.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let held = self.held();
        let count = match &mut self.consuming {
            Consuming::Spsc(consumer) => consumer.pop_batch(most, |packet| inbox.push(arrived(packet))),
            Consuming::Taking(consumer) => {
                consumer.poll_mut(|slot, _, _| inbox.extend(slot.take().map(arrived))).unwrap_or_default()
            }
            Consuming::Sharing(consumer) => {
                consumer.poll(|slot, _, _| inbox.extend(slot.clone().map(arrived))).unwrap_or_default()
            }
            Consuming::Queue(queue) => {
                let before = inbox.len();
                inbox.extend(std::iter::from_fn(|| queue.try_pop()).take(most).map(arrived));
                inbox.len() - before
            }
        };
        if count == 0 {
            return if is_closed { Received::Ended } else { Received::None };
        }
        let counters = &self.counters;
        add(&counters.delivered, count as u64);
        add(&counters.held, held.max(count) as u64);
        add(&counters.looks, 1);
        if (held.max(count) as u64) > counters.most.load(Ordering::Relaxed) {
            counters.most.store(held.max(count) as u64, Ordering::Relaxed);
        }
        Received::Some
    }

    /// Returns the number of packets in the edge.
    fn held(&self) -> usize {
        match &self.consuming {
            Consuming::Spsc(consumer) => consumer.len(),
            Consuming::Taking(consumer) | Consuming::Sharing(consumer) => consumer.lag(),
            Consuming::Queue(queue) => queue.len(),
        }
    }

    /// Returns whether there is something to receive, or the edge is closed.
    pub(crate) fn is_ready(&self) -> bool {
        self.held() > 0 || self.is_closed.load(Ordering::Acquire)
    }

    /// Sleeps at a queue until there is something. Returns `false` if this is not a queue.
    pub(crate) fn sleep(&self) -> bool {
        match &self.consuming {
            Consuming::Queue(queue) => {
                queue.wait_for_items(LONGEST_SLEEP);
                true
            }
            _ => false,
        }
    }
}
