//! A bounded blocking queue: a lock, two condition variables and a buffer.
//!
//! Most pipelines use such a queue, so it is included for comparison. It supports any number of producers and consumers, in
//! first-in first-out order. Producers sleep while it is full, and consumers while it is empty.
//!
//! Cost: each operation takes the lock, about 20 ns without contention and hundreds to thousands with it. An operation that finds
//! the other side asleep makes a system call to wake it. Nothing is allocated after creation.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Creates a queue of `capacity` items (at least one) and returns a handle, to be cloned for other threads.
///
/// ```
/// let queue = tapeworks_flow::queue::bounded(2);
/// let producer = queue.clone();
/// std::thread::spawn(move || (0..5).try_for_each(|n| producer.push(n)));
/// assert_eq!((0..5).map_while(|_| queue.pop()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
/// ```
pub fn bounded<T>(capacity: usize) -> BlockingQueue<T> {
    let capacity = capacity.max(1);
    let state = State {
        items: VecDeque::with_capacity(capacity),
        is_closed: false,
        waiting_for_items: 0,
        waiting_for_room: 0,
    };
    BlockingQueue {
        shared: Arc::new(Shared {
            capacity,
            state: Mutex::new(state),
            has_items: Condvar::new(),
            has_room: Condvar::new(),
        }),
    }
}

/// A handle to a bounded blocking queue.
#[derive(Debug)]
pub struct BlockingQueue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    has_items: Condvar,
    has_room: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
    /// Threads asleep at each condition. The kernel is called only if there are any.
    waiting_for_items: usize,
    waiting_for_room: usize,
}

impl<T> Clone for BlockingQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> BlockingQueue<T> {
    /// A thread that panicked while holding the lock left whole items, because each operation moves one.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item, sleeping while there is no room.
    ///
    /// # Errors
    /// Returns the item if the queue is closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        while state.items.len() >= self.shared.capacity && !state.is_closed {
            state.waiting_for_room += 1;
            state = self.shared.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_room -= 1;
        }
        if state.is_closed {
            return Err(item);
        }
        self.put(state, item);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, item: T) {
        state.items.push_back(item);
        let somebody_sleeps = state.waiting_for_items > 0;
        drop(state);
        if somebody_sleeps {
            self.shared.has_items.notify_one();
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let item = state.items.pop_front();
        let somebody_sleeps = state.waiting_for_room > 0;
        drop(state);
        if item.is_some() && somebody_sleeps {
            self.shared.has_room.notify_one();
        }
        item
    }

    /// Adds an item if there is room now.
    ///
    /// # Errors
    /// Returns the item if the queue is full or closed.
    pub fn try_push(&self, item: T) -> Result<(), T> {
        let state = self.lock();
        if state.is_closed || state.items.len() >= self.shared.capacity {
            return Err(item);
        }
        self.put(state, item);
        Ok(())
    }

    /// Removes an item, sleeping while there is none. Returns `None` once the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        while state.items.is_empty() && !state.is_closed {
            state.waiting_for_items += 1;
            state = self.shared.has_items.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_items -= 1;
        }
        self.take(state)
    }

    /// Removes an item if there is one now.
    pub fn try_pop(&self) -> Option<T> {
        self.take(self.lock())
    }

    /// Sleeps until there is an item, the queue is closed, or `longest` has elapsed.
    pub fn wait_for_items(&self, longest: Duration) {
        let mut state = self.lock();
        if state.items.is_empty() && !state.is_closed {
            state.waiting_for_items += 1;
            // Whether it was woken or timed out, the caller looks again.
            let waited = self.shared.has_items.wait_timeout(state, longest);
            waited.unwrap_or_else(PoisonError::into_inner).0.waiting_for_items -= 1;
        }
    }

    /// Closes the queue and wakes all threads. The queue accepts no more items, but those in it can still be removed.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.shared.has_items.notify_all();
        self.shared.has_room.notify_all();
    }

    /// Returns whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the most items that fit.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_producers_and_consumers_lose_nothing_and_each_producer_keeps_its_order() {
        let queue = bounded::<(usize, u32)>(3);
        let producers: Vec<_> = (0..3)
            .map(|who| {
                let queue = queue.clone();
                std::thread::spawn(move || (0..2_000).for_each(|n| queue.push((who, n)).unwrap()))
            })
            .collect();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>())
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        queue.close();
        let mut seen = 0;
        for consumer in consumers {
            let items = consumer.join().unwrap();
            seen += items.len();
            for who in 0..3 {
                let of_one: Vec<u32> = items.iter().filter(|item| item.0 == who).map(|item| item.1).collect();
                assert!(of_one.is_sorted());
            }
        }
        assert_eq!(seen, 6_000);
    }

    #[test]
    fn a_closed_queue_refuses_items_and_delivers_the_rest() {
        let queue = bounded(2);
        queue.push(1).unwrap();
        queue.close();
        assert_eq!(queue.push(2), Err(2));
        assert_eq!(queue.try_push(2), Err(2));
        assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_a_close_wakes_the_waiting_thread() {
        let queue = bounded(1);
        queue.push(1).unwrap();
        assert_eq!(queue.try_push(2), Err(2));
        let waiting = queue.clone();
        let producer = std::thread::spawn(move || waiting.push(3));
        while std::sync::Arc::strong_count(&queue.shared) < 2 {
            std::thread::yield_now();
        }
        queue.close();
        assert_eq!(producer.join().unwrap(), Err(3));
        queue.wait_for_items(Duration::from_secs(100));
        assert_eq!(queue.try_pop(), Some(1));
    }
}
