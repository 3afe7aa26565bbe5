//! Threads that encode the batches of Parquet files.
//!
//! A [`Pool`] has one queue of [`Work`] that all writers share. A writer that finds more than [`AHEAD`] units per thread in the
//! queue encodes one itself, so the thread that reads and applies messages helps when encoding is the bottleneck, and no core
//! idles.
//!
//! Cost: one lock per unit of 8,192 records. Memory: 550 KB per `mbo` unit, at most [`MOST_OUT`] units per thread and file.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tapeworks_store::apart::{Encoders, Lost, Work};

/// Units that may wait, per thread, before a writer encodes one itself: few enough to stay in the caches.
const AHEAD: usize = 4;

/// Maximum unfinished units of one writer, per thread. It lets the writer continue while the system delays one thread.
const MOST_OUT: usize = 32;

/// A unit, and the channel that signals its completion to the writer.
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
    /// Locks the queue. No thread panics while it holds the lock, so the contents of a poisoned one are intact.
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
            // A writer that failed does not wait for the result.
            let _unwanted = to.send(());
        }
    }
}

/// The encoding threads. Dropping it waits for the units being encoded and discards the others.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts this many threads.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new() };
        for number in 0..threads {
            let shared = pool.shared.clone();
            let builder = thread::Builder::new().name(format!("encode-{number}"));
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Returns the handle through which a writer submits its work.
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
            // A thread that panicked has already reported that, and its writer reports the lost batch.
            let _ended = thread.join();
        }
    }
}

/// A writer's share of the pool.
struct Share {
    shared: Arc<Shared>,
    threads: usize,
    /// Completion signals of the submitted units, oldest first.
    out: VecDeque<Receiver<()>>,
}

impl Share {
    /// Encodes the oldest queued unit if more than `most` are waiting.
    fn help(&self, most: usize) -> bool {
        let mut queue = self.shared.queue();
        let item = if queue.items.len() > most { queue.items.pop_front() } else { None };
        drop(queue);
        let Some((work, to)) = item else { return false };
        work.encode();
        let _unwanted = to.send(());
        true
    }

    /// Removes finished units, in order, until at most `most` are unfinished; while there are more, it helps or waits.
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
        // One unit at most, so that work remains for the threads.
        self.help(AHEAD * self.threads);
        self.collect(MOST_OUT * self.threads)
    }

    fn rest(&mut self) -> Result<(), Lost> {
        self.collect(0)
    }
}
