//! Threads and channels of a world.

use std::fmt::Debug;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

/// A handle for waking a thread.
pub trait Unpark: Clone + Debug + Send + Sync + 'static {
    /// Ends the thread's [`park`](super::World::park), or the next one if it is not parked.
    fn unpark(&self);
}

/// A thread that returns a `T`.
pub trait ThreadHandle<T>: Debug + Send + 'static {
    /// Returns whether the thread has ended.
    fn is_finished(&self) -> bool;

    /// Ends the thread's [`park`](super::World::park), or the next one if it is not parked.
    fn unpark(&self);

    /// Waits until the thread ends.
    ///
    /// # Errors
    /// The payload of the thread's panic.
    fn join(self) -> std::thread::Result<T>;
}

/// The sending end of an unbounded channel.
pub trait SendTo<T>: Clone + Debug + Send + Sync + 'static {
    /// Sends an item.
    ///
    /// # Errors
    /// Returns the item if the receiver was dropped.
    fn send(&self, item: T) -> Result<(), SendError<T>>;
}

/// The sending end of a bounded channel.
pub trait TrySend<T>: Clone + Debug + Send + Sync + 'static {
    /// Sends an item if there is room.
    ///
    /// # Errors
    /// Returns the item if there is no room or the receiver was dropped.
    fn try_send(&self, item: T) -> Result<(), TrySendError<T>>;
}

/// The receiving end of a channel.
pub trait Receive<T>: Debug + Send + 'static {
    /// Takes an available item.
    ///
    /// # Errors
    /// If there is none.
    fn try_recv(&self) -> Result<T, TryRecvError>;

    /// Waits for an item.
    ///
    /// # Errors
    /// If all senders were dropped.
    fn recv(&self) -> Result<T, RecvError>;

    /// Waits for an item for at most `longest`.
    ///
    /// # Errors
    /// If no item arrived in that time, or all senders were dropped.
    fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError>;
}
