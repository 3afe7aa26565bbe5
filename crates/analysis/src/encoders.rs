//! Threads that encode the batches of Parquet files.
//!
//! A [`Pool`] has one queue of [`Work`] that all writers share. A writer that finds more than
//! [`AHEAD`] units for each thread in it encodes one itself, so the thread that reads and applies the messages helps where the
//! encoding is the slower part, and no core waits.
//!
//! Cost: one lock for a unit of 8,192 records. Memory: 550 KB for a unit of `mbo`, [`MOST_OUT`] for each thread and file at most.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tapeworks_store::apart::{Encoders, Lost, Work};

/// Units that may wait for each thread before a writer encodes one itself: few enough to stay in the caches.
const AHEAD: usize = 4;

/// Most units of one writer that are not back, for each thread. It lets the writer go on while the system delays one thread.
const MOST_OUT: usize = 32;

/// A unit, and where its writer waits for it.
type Item = (Work, Sender<()>);

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    change: Condvar,
}

impl Shared {
    /// No thread panics while it has the lock, so what a poisoned one guards is whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread: take, encode, send.
    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let (work, to) = loop {
                if queue.is_over {
                    return;
                }
                match queue.items.pop_front() {
                    Some(item) => break item,
                    None => queue = self.change.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            work.encode();
            // A writer that failed waits for nothing.
            let _unwanted = to.send(());
        }
    }
}

/// Threads that encode. Dropped, it waits for the units that are being encoded and forgets the others.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts so many threads.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new() };
        for number in 0..threads {
            let shared = pool.shared.clone();
            let builder = thread::Builder::new().name(format!("encode-{number}"));
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// What a writer gives its work to.
    pub(crate) fn encoders(&self) -> Box<dyn Encoders> {
        Box::new(Share { shared: self.shared.clone(), threads: self.threads.len(), out: VecDeque::new() })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.is_over = true;
        queue.items.clear();
        drop(queue);
        self.shared.change.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so, and its writer reports the lost batch.
            let _ended = thread.join();
        }
    }
}

/// A writer's share of the pool.
struct Share {
    shared: Arc<Shared>,
    threads: usize,
    /// Where each unit that is given away comes back, the oldest first.
    out: VecDeque<Receiver<()>>,
}

impl Share {
    /// Encodes the oldest unit that no thread has begun, if more than `most` of them wait.
    fn help(&self, most: usize) -> bool {
        let mut queue = self.shared.queue();
        let item = if queue.items.len() > most { queue.items.pop_front() } else { None };
        drop(queue);
        let Some((work, to)) = item else { return false };
        work.encode();
        let _unwanted = to.send(());
        true
    }

    /// Forgets what is done, in order, until at most `most` units are out: helps, or waits, for as long as there are more.
    fn collect(&mut self, most: usize) -> Result<(), Lost> {
        while let Some(oldest) = self.out.front() {
            match oldest.try_recv() {
                Err(TryRecvError::Empty) if self.out.len() <= most => break,
                Err(TryRecvError::Empty) if self.help(0) => continue,
                Err(TryRecvError::Empty) => oldest.recv().map_err(|_| Lost)?,
                // Its thread has panicked.
                returned => returned.map_err(|_| Lost)?,
            };
            self.out.pop_front();
        }
        Ok(())
    }
}

impl Encoders for Share {
    fn give(&mut self, work: Work) -> Result<(), Lost> {
        let (to, from) = mpsc::channel();
        self.shared.queue().items.push_back((work, to));
        self.shared.change.notify_one();
        self.out.push_back(from);
        // One unit at most, so that the threads still find some.
        self.help(AHEAD * self.threads);
        self.collect(MOST_OUT * self.threads)
    }

    fn rest(&mut self) -> Result<(), Lost> {
        self.collect(0)
    }
}
