//! Threads and channels of a world.

use std::fmt::Debug;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

/// A handle on a thread.
pub trait Unpark: Clone + Debug + Send + Sync + 'static {
    /// Ends the thread's [`park`](super::World::park), or the next one if it is not parked.
    fn unpark(&self);
}

/// A thread that returns a `T`.
pub trait ThreadHandle<T>: Debug + Send + 'static {
    /// Whether it has ended.
    fn is_finished(&self) -> bool;

    /// Ends its [`park`](super::World::park), or the next one if it is not parked.
    fn unpark(&self);

    /// Waits until it ends.
    ///
    /// # Errors
    /// The payload of its panic.
    fn join(self) -> std::thread::Result<T>;
}

/// The sending end of a channel with any number of items.
pub trait SendTo<T>: Clone + Debug + Send + Sync + 'static {
    /// Sends an item.
    ///
    /// # Errors
    /// The item, when the receiver is gone.
    fn send(&self, item: T) -> Result<(), SendError<T>>;
}

/// The sending end of a channel with a bound.
pub trait TrySend<T>: Clone + Debug + Send + Sync + 'static {
    /// Sends an item if there is room.
    ///
    /// # Errors
    /// The item, when there is no room or the receiver is gone.
    fn try_send(&self, item: T) -> Result<(), TrySendError<T>>;
}

/// The receiving end of a channel.
pub trait Receive<T>: Debug + Send + 'static {
    /// An item that is there.
    ///
    /// # Errors
    /// When there is none.
    fn try_recv(&self) -> Result<T, TryRecvError>;

    /// Waits for an item.
    ///
    /// # Errors
    /// When all senders are gone.
    fn recv(&self) -> Result<T, RecvError>;

    /// Waits for an item, `longest` at most.
    ///
    /// # Errors
    /// When none came in that time, or all senders are gone.
    fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError>;
}
