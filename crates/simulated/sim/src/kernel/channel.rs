//! Channels between simulated threads.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tapeworks_runtime::world::{Receive, SendTo, TrySend};

use super::{TaskId, Waits, until, wait, with};

struct Items<T> {
    queue: VecDeque<T>,
    bound: usize,
    senders: usize,
    has_receiver: bool,
    waiter: Option<TaskId>,
}

struct Shared<T>(Arc<Mutex<Items<T>>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the receiver.
    fn wake(&self) {
        let waiter = self.lock().waiter.take();
        if let Some(waiter) = waiter {
            with(|kernel| kernel.wake(waiter, Waits::Channel));
        }
    }
}

/// The sending end of a channel, bounded or unbounded.
pub struct SimSender<T>(Shared<T>);

impl<T> std::fmt::Debug for SimSender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimSender({} items)", self.0.lock().queue.len())
    }
}

impl<T> std::fmt::Debug for SimReceiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimReceiver({} items)", self.0.lock().queue.len())
    }
}

impl<T> Clone for SimSender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Shared(Arc::clone(&self.0.0)))
    }
}

impl<T> Drop for SimSender<T> {
    fn drop(&mut self) {
        let left = {
            let mut items = self.0.lock();
            items.senders -= 1;
            items.senders
        };
        if left == 0 {
            self.0.wake();
        }
    }
}

/// The receiving end of a channel.
pub struct SimReceiver<T>(Shared<T>);

impl<T> Drop for SimReceiver<T> {
    fn drop(&mut self) {
        let mut items = self.0.lock();
        items.has_receiver = false;
        let left = std::mem::take(&mut items.queue);
        drop(items);
        drop(left);
    }
}

/// Creates a channel with at most `bound` items.
pub(crate) fn channel<T>(bound: usize) -> (SimSender<T>, SimReceiver<T>) {
    let items = Items { queue: VecDeque::new(), bound, senders: 1, has_receiver: true, waiter: None };
    let shared = Arc::new(Mutex::new(items));
    (SimSender(Shared(Arc::clone(&shared))), SimReceiver(Shared(shared)))
}

impl<T> SimSender<T> {
    fn push(&self, item: T) -> Result<(), TrySendError<T>> {
        {
            let mut items = self.0.lock();
            if !items.has_receiver {
                return Err(TrySendError::Disconnected(item));
            }
            // A channel without room passes an item only to a waiting receiver.
            let room = items.bound.max(usize::from(items.waiter.is_some()));
            if items.queue.len() >= room {
                return Err(TrySendError::Full(item));
            }
            items.queue.push_back(item);
        }
        self.0.wake();
        Ok(())
    }
}

impl<T: Send + 'static> SendTo<T> for SimSender<T> {
    fn send(&self, item: T) -> Result<(), SendError<T>> {
        self.push(item).map_err(|error| match error {
            TrySendError::Full(item) | TrySendError::Disconnected(item) => SendError(item),
        })
    }
}

impl<T: Send + 'static> TrySend<T> for SimSender<T> {
    fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        self.push(item)
    }
}

impl<T> SimReceiver<T> {
    fn receive(&self, until_ns: Option<u64>) -> Result<T, RecvTimeoutError> {
        loop {
            {
                let mut items = self.0.lock();
                if let Some(item) = items.queue.pop_front() {
                    return Ok(item);
                }
                if items.senders == 0 {
                    return Err(RecvTimeoutError::Disconnected);
                }
                let (is_over, current) = with(|kernel| {
                    let is_over = until_ns.is_some_and(|until_ns| kernel.now_ns >= until_ns);
                    (is_over || kernel.is_dead(), kernel.current())
                });
                if is_over {
                    return Err(RecvTimeoutError::Timeout);
                }
                items.waiter = current;
            }
            wait(Waits::Channel, until_ns);
            self.0.lock().waiter = None;
        }
    }
}

impl<T: Send + 'static> Receive<T> for SimReceiver<T> {
    fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut items = self.0.lock();
        match items.queue.pop_front() {
            Some(item) => Ok(item),
            None if items.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    fn recv(&self) -> Result<T, RecvError> {
        self.receive(None).map_err(|_| RecvError)
    }

    fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
        self.receive(Some(until(longest)))
    }
}
