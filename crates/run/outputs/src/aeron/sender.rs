//! The queue between the output and the media driver, and the thread that publishes.
//!
//! The output never waits: a message without room in the queue is dropped and counted. The thread waits for slow readers, but only
//! briefly: then the stream drops messages until there is room again. A missing or dead driver is retried, with pauses that grow up
//! to a limit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use rusteron_client::{AeronExclusivePublication, AeronOfferError};
use serde_json::json;

use super::client::{AeronTrouble, Client};
use super::message::{Draft, Key, Kind};
use super::{AeronSetting, AeronStatus};

/// How often the status of the streams is published.
pub(super) const STATUS_EVERY: Duration = Duration::from_millis(500);

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of messages taken from the queue at once.
const AT_ONCE: usize = 256;

/// Maximum number of buffers kept for reuse.
const KEPT: usize = 4_096;

/// Number of attempts without a pause when a reader does not keep up.
const YIELDS: u32 = 20;

/// The pause between later attempts.
const PAUSE: Duration = Duration::from_micros(100);

/// A queued message.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) stream: i32,
    pub(super) bytes: Vec<u8>,
    pub(super) items: u16,
}

/// The position of a stream.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    /// The sequence number of its next message.
    pub(super) sequence: u64,
    /// The key of its last record or event.
    pub(super) last: Option<Key>,
}

#[derive(Default, Debug)]
struct Inside {
    messages: VecDeque<Waiting>,
    bytes: usize,
    items: u64,
    free: Vec<Vec<u8>>,
    /// The positions of the streams after the queued messages.
    places: BTreeMap<i32, Place>,
    /// The number of the next event.
    next: u64,
    /// Set when the output has ended: until when queued messages may be sent.
    until: Option<Instant>,
}

/// The queue.
#[derive(Default, Debug)]
pub(super) struct Queue {
    inside: Mutex<Inside>,
    changed: Condvar,
    status: Mutex<AeronStatus>,
}

impl Queue {
    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues messages, and takes buffers of sent ones. Messages that do not fit in `most` bytes are counted and dropped.
    pub(super) fn put(
        &self,
        messages: &mut Vec<Waiting>,
        free: &mut Vec<Vec<u8>>,
        places: &BTreeMap<i32, Place>,
        next: u64,
        most: usize,
    ) {
        let mut dropped = 0;
        let mut inside = self.inside();
        for message in messages.drain(..) {
            if inside.bytes + message.bytes.len() > most {
                dropped += u64::from(message.items);
                free.push(message.bytes);
                continue;
            }
            inside.bytes += message.bytes.len();
            inside.items += u64::from(message.items);
            inside.messages.push_back(message);
        }
        inside.places.clone_from(places);
        inside.next = next;
        free.append(&mut inside.free);
        drop(inside);
        free.truncate(KEPT);
        self.changed.notify_one();
        if dropped > 0 {
            self.update(|status| status.dropped_full += dropped);
        }
    }

    /// Ends the queue: no more messages follow, and queued ones may be sent until `until`.
    pub(super) fn end(&self, until: Instant) {
        let mut inside = self.inside();
        inside.until = Some(inside.until.map_or(until, |before| before.min(until)));
        drop(inside);
        self.changed.notify_one();
    }

    /// Returns whether nothing more is to be sent.
    fn is_over(&self) -> bool {
        let inside = self.inside();
        inside.until.is_some_and(|until| inside.messages.is_empty() || Instant::now() >= until)
    }

    /// Returns the number of the next event: earlier ones were queued.
    pub(super) fn next(&self) -> u64 {
        self.inside().next
    }

    /// Takes messages, waiting for them for at most `wait`.
    fn take(&self, into: &mut VecDeque<Waiting>, sent: &mut Vec<Vec<u8>>, wait: Duration) {
        let mut inside = self.inside();
        inside.free.append(sent);
        inside.free.truncate(KEPT);
        if inside.messages.is_empty() && inside.until.is_none() && !wait.is_zero() {
            let waited = self.changed.wait_timeout(inside, wait);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        while into.len() < AT_ONCE
            && let Some(message) = inside.messages.pop_front()
        {
            inside.bytes -= message.bytes.len();
            inside.items -= u64::from(message.items);
            into.push_back(message);
        }
    }

    /// Puts messages that were taken but not sent back to the front of the queue.
    fn put_back(&self, messages: &mut VecDeque<Waiting>) {
        let mut inside = self.inside();
        while let Some(message) = messages.pop_back() {
            inside.bytes += message.bytes.len();
            inside.items += u64::from(message.items);
            inside.messages.push_front(message);
        }
    }

    /// Waits for `most`, or until nothing more is to be sent.
    fn pause(&self, most: Duration) {
        let began = Instant::now();
        let mut inside = self.inside();
        loop {
            let mut left = most.saturating_sub(began.elapsed());
            if let Some(until) = inside.until {
                left = left.min(until.saturating_duration_since(Instant::now()));
            }
            if left.is_zero() || (inside.until.is_some() && inside.messages.is_empty()) {
                return;
            }
            let waited = self.changed.wait_timeout(inside, left);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Changes the status.
    pub(super) fn update(&self, change: impl FnOnce(&mut AeronStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the current status.
    pub(super) fn status(&self) -> AeronStatus {
        let waiting = self.inside().items;
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        AeronStatus { waiting, ..status }
    }
}

/// A publication, and whether its readers keep up.
struct Stream {
    publication: AeronExclusivePublication,
    is_stuck: bool,
}

/// The outcome for a message.
enum Fate {
    Sent,
    Unread,
    Slow,
    Refused(String),
}

impl Stream {
    /// Publishes a message. Waits for slow readers for at most `patience`, and not at all if the previous message had to be
    /// dropped.
    fn send(&mut self, bytes: &[u8], patience: Duration) -> Fate {
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            match self.publication.offer(bytes) {
                Ok(_) => {
                    self.is_stuck = false;
                    return Fate::Sent;
                }
                Err(AeronOfferError::NotConnected) => return Fate::Unread,
                // The log rotates to its next term: retry immediately.
                Err(AeronOfferError::AdminAction) if tries < YIELDS => {}
                Err(AeronOfferError::BackPressured | AeronOfferError::AdminAction) => {
                    if self.is_stuck || began.elapsed() >= patience {
                        self.is_stuck = true;
                        return Fate::Slow;
                    }
                }
                Err(error) => return Fate::Refused(error.to_string()),
            }
            tries += 1;
            if tries < YIELDS { yield_now() } else { sleep(PAUSE) }
        }
    }
}

/// The thread that publishes.
pub(super) struct Sender {
    pub(super) setting: AeronSetting,
    pub(super) queue: Arc<Queue>,
    /// The plant's start time, in ns.
    pub(super) epoch: u64,
    /// The feeds, in the order in which ties of the NBBO are broken.
    pub(super) feeds: Vec<u16>,
}

impl Sender {
    /// Publishes until the output has ended.
    pub(super) fn run(self) {
        let (mut pause, mut messages) = (FIRST_PAUSE, VecDeque::new());
        while !self.queue.is_over() {
            let before = self.queue.status().messages;
            let Err(trouble) = self.session(&mut messages) else { continue };
            self.queue.put_back(&mut messages);
            if self.queue.status().messages > before {
                pause = FIRST_PAUSE;
            }
            self.queue.update(|status| {
                status.failures += 1;
                (status.is_connected, status.read_streams) = (false, 0);
                status.error = Some(trouble.to_string());
            });
            self.queue.pause(pause);
            pause = (pause * 2).min(self.setting.longest_pause);
        }
        self.queue.update(|status| (status.is_connected, status.read_streams) = (false, 0));
    }

    /// Publishes over one connection. Messages left in `messages` were taken but not sent.
    fn session(&self, messages: &mut VecDeque<Waiting>) -> Result<(), AeronTrouble> {
        let Self { setting, queue, .. } = self;
        let client = Client::connect(setting.directory.as_deref(), setting.driver_timeout)?;
        let mut streams = BTreeMap::new();
        self.stream(&client, &mut streams, setting.stream)?;
        queue.update(|status| {
            status.connects += 1;
            (status.is_connected, status.error) = (true, None);
        });
        let mut sent = Vec::new();
        let mut shown: Option<Instant> = None;
        let mut sequence = 0;
        while !queue.is_over() {
            let since = shown.map_or(STATUS_EVERY, |shown| shown.elapsed());
            let left = STATUS_EVERY.saturating_sub(since);
            queue.take(messages, &mut sent, left);
            client.check()?;
            while let Some(message) = messages.pop_front() {
                let stream = self.stream(&client, &mut streams, message.stream);
                let fate = match stream {
                    Ok(stream) => stream.send(&message.bytes, setting.back_pressure),
                    Err(trouble) => {
                        queue.update(|status| status.refused += u64::from(message.items));
                        return Err(trouble);
                    }
                };
                self.count(&message, &fate);
                if let Fate::Refused(reason) = fate {
                    return Err(AeronTrouble::stream(&setting.channel, message.stream, &reason));
                }
                sent.push(message.bytes);
            }
            if since >= STATUS_EVERY {
                shown = Some(Instant::now());
                let status = self.status(sequence);
                if let Ok(stream) = self.stream(&client, &mut streams, setting.stream) {
                    // If nobody reads it, or a reader is slow, the next status has the same contents.
                    if let Fate::Refused(reason) = stream.send(&status, Duration::ZERO) {
                        return Err(AeronTrouble::stream(&setting.channel, setting.stream, &reason));
                    }
                    sequence += 1;
                }
                let read = streams.values().filter(|stream| stream.publication.is_connected()).count();
                let all = streams.len();
                queue.update(|status| (status.read_streams, status.streams) = (read as u64, all as u64));
            }
        }
        Ok(())
    }

    /// Returns the publication of a stream.
    fn stream<'s>(
        &self,
        client: &Client,
        streams: &'s mut BTreeMap<i32, Stream>,
        number: i32,
    ) -> Result<&'s mut Stream, AeronTrouble> {
        use std::collections::btree_map::Entry;
        match streams.entry(number) {
            Entry::Occupied(stream) => Ok(stream.into_mut()),
            Entry::Vacant(place) => {
                let publication = client.publication(&self.setting.channel, number)?;
                Ok(place.insert(Stream { publication, is_stuck: false }))
            }
        }
    }

    fn count(&self, message: &Waiting, fate: &Fate) {
        let items = u64::from(message.items);
        self.queue.update(|status| match fate {
            Fate::Sent => {
                status.items += items;
                status.messages += 1;
                status.bytes += message.bytes.len() as u64;
            }
            Fate::Unread => status.unread += items,
            Fate::Slow => status.dropped_slow += items,
            Fate::Refused(_) => status.refused += items,
        });
    }

    /// Returns a status message.
    fn status(&self, sequence: u64) -> Vec<u8> {
        let Self { setting, queue, epoch, feeds } = self;
        let (places, next) = {
            let inside = queue.inside();
            (inside.places.clone(), inside.next)
        };
        let status = queue.status();
        let streams: Vec<_> = places
            .iter()
            .map(|(stream, place)| {
                let last = place.last.map(|key| (key.number, key.place));
                json!({ "stream": stream, "next": place.sequence, "last": last })
            })
            .collect();
        let text = json!({
            "next_event": next,
            "nbbo_streams": setting.nbbo_streams,
            "events": setting.events,
            "streams": streams,
            "feeds": feeds,
            "dropped": status.dropped(),
        });
        let mut draft = Draft::begin(Vec::new(), Kind::Status, *epoch, sequence);
        draft.put_text(&text.to_string());
        draft.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts() {
        let queue = Queue::default();
        let message = |items| Waiting { stream: 1, bytes: vec![0; 100], items };
        let (mut messages, mut free) = (vec![message(1), message(2), message(4)], Vec::new());
        queue.put(&mut messages, &mut free, &BTreeMap::new(), 7, 250);
        let status = queue.status();
        assert_eq!((status.waiting, status.dropped_full, status.dropped()), (3, 4, 4));
        assert_eq!((messages.len(), free.len()), (0, 1), "its memory is used again");
        let (mut taken, mut sent) = (VecDeque::new(), Vec::new());
        queue.take(&mut taken, &mut sent, Duration::ZERO);
        assert_eq!(taken.iter().map(|message| message.items).collect::<Vec<_>>(), [1, 2]);
        queue.put_back(&mut taken);
        assert_eq!(
            (queue.status().waiting, queue.inside().bytes),
            (3, 200),
            "a driver died before they were sent"
        );
        queue.take(&mut taken, &mut sent, Duration::ZERO);
        assert_eq!(taken.iter().map(|message| message.items).collect::<Vec<_>>(), [1, 2]);
        queue.put(&mut vec![message(8)], &mut free, &BTreeMap::new(), 8, 250);
        assert_eq!(queue.status().waiting, 8);
    }

    #[test]
    fn a_sender_without_a_driver_reports_it_and_ends_when_it_is_to() {
        let folder = tempfile::tempdir().unwrap();
        let setting = AeronSetting {
            directory: Some(folder.path().join("none").display().to_string()),
            driver_timeout: Duration::from_millis(100),
            ..AeronSetting::new("aeron:ipc".to_owned())
        };
        let queue = Arc::new(Queue::default());
        let sender = Sender { setting, queue: Arc::clone(&queue), epoch: 1, feeds: Vec::new() };
        let thread = std::thread::spawn(move || sender.run());
        while queue.status().failures < 2 {
            sleep(Duration::from_millis(1));
        }
        let status = queue.status();
        assert!(status.error.as_ref().unwrap().contains("no media driver of Aeron in"), "{status:?}");
        assert_eq!((status.is_connected, status.connects), (false, 0));
        queue.end(Instant::now());
        thread.join().unwrap();
    }
}
