//! Stages and the edges that join them.
//!
//! A [`Stage`] is a struct with one method: it takes a batch of inputs and passes each output to a [`Sink`]. A batch is
//! the contents of a packet, a burst, or a part of a file. A stage may look ahead within it (decode all, prefetch all,
//! then apply), but never waits to fill one.
//!
//! An edge is a sink on one side and a source on the other. [`Chain`] joins two stages with the cheapest kind of edge:
//! a small buffer that stays in the L1 cache and is flushed at the end of each batch. A whole plant composed this way
//! runs to completion on one core without any queue; everything is monomorphized and inlined.
//!
//! ```
//! use tapeworks_stage::{Chain, Sink, Stage};
//!
//! /// Keeps even numbers.
//! struct Even;
//! impl<S: Sink<u32>> Stage<u32, S> for Even {
//!     fn process(&mut self, batch: &[u32], sink: &mut S) {
//!         batch.iter().filter(|n| **n % 2 == 0).for_each(|n| sink.put(*n));
//!     }
//! }
//!
//! /// Adds up.
//! struct Total(u32);
//! impl<S: Sink<u32>> Stage<u32, S> for Total {
//!     fn process(&mut self, batch: &[u32], sink: &mut S) {
//!         for n in batch {
//!             self.0 += n;
//!             sink.put(self.0);
//!         }
//!     }
//! }
//!
//! let mut chain = Chain::new(Even, Total(0), 64);
//! let mut totals = Vec::new();
//! chain.process(&[1, 2, 3, 4], &mut |total| totals.push(total));
//! assert_eq!(totals, [2, 6]);
//! ```
//!
//! Cost of the inline edge: one copy of the item into the buffer and one read from it, both in the L1 cache.

/// Receives a stage's outputs.
///
/// Every `FnMut(T)` is a sink, so a closure can end a chain.
pub trait Sink<T> {
    /// Receives one item. Items arrive in order.
    fn put(&mut self, item: T);

    /// Passes buffered items on, because the producer has handed over its whole batch.
    #[inline]
    fn end_of_batch(&mut self) {}

    /// Announces that an item with number `index` follows soon, so that a stage with a table indexed by that number can prefetch
    /// its line.
    ///
    /// This is a hint from a producer that looks ahead over items that cannot wait in a buffer.
    #[inline]
    fn expect(&mut self, _index: usize) {}
}

impl<T, F: FnMut(T)> Sink<T> for F {
    #[inline]
    fn put(&mut self, item: T) {
        self(item);
    }
}

/// One processing step: takes a batch of `In` and passes outputs to the sink `S`.
///
/// The sink is a parameter of the trait so that an implementation can require `S: for<'a> Sink<Update<'a>>` and emit
/// items that borrow from the stage itself.
pub trait Stage<In, S> {
    /// Processes a batch in order. The caller, not the stage, calls [`Sink::end_of_batch`].
    fn process(&mut self, batch: &[In], sink: &mut S);

    /// Announces that an input about the item `index` follows soon: see [`Sink::expect`].
    #[inline]
    fn expect(&mut self, _index: usize) {}
}

/// Two stages joined inline on the same core: the outputs of the first are the inputs of the second.
///
/// `T` is the type of the items between them. The buffer is allocated once, in [`Chain::new`].
#[derive(Debug)]
pub struct Chain<A, B, T> {
    /// The stage that takes the chain's input.
    pub first: A,
    /// The stage that produces the chain's output.
    pub second: B,
    buffer: Vec<T>,
}

impl<A, B, T> Chain<A, B, T> {
    /// Joins `first` to `second` with room for `capacity` items (at least one) between them.
    pub fn new(first: A, second: B, capacity: usize) -> Self {
        Self { first, second, buffer: Vec::with_capacity(capacity.max(1)) }
    }
}

impl<In, S, A, B, T> Stage<In, S> for Chain<A, B, T>
where
    A: for<'e> Stage<In, Inline<'e, B, T, S>>,
    B: Stage<T, S>,
{
    #[inline]
    fn process(&mut self, batch: &[In], sink: &mut S) {
        let mut edge = Inline { stage: &mut self.second, buffer: &mut self.buffer, sink };
        self.first.process(batch, &mut edge);
        edge.flush();
    }
}

/// The inline edge.
///
/// Collects the outputs of the first stage and passes them to the second as one batch, when the buffer is full and at
/// the end of the input batch.
#[derive(Debug)]
pub struct Inline<'e, B, T, S> {
    stage: &'e mut B,
    buffer: &'e mut Vec<T>,
    sink: &'e mut S,
}

impl<'e, B: Stage<T, S>, T, S> Inline<'e, B, T, S> {
    /// Creates an edge into `stage` over `buffer`, whose capacity is the longest batch.
    ///
    /// For a loop that drives the first stage itself and decides when a batch ends, for example a file whose packets
    /// may be processed together.
    pub const fn new(stage: &'e mut B, buffer: &'e mut Vec<T>, sink: &'e mut S) -> Self {
        Self { stage, buffer, sink }
    }

    #[inline]
    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.stage.process(self.buffer, self.sink);
            self.buffer.clear();
        }
    }
}

impl<B: Stage<T, S>, T, S> Sink<T> for Inline<'_, B, T, S> {
    #[inline]
    fn put(&mut self, item: T) {
        if self.buffer.len() == self.buffer.capacity() {
            self.flush();
        }
        self.buffer.push(item);
    }

    #[inline]
    fn end_of_batch(&mut self) {
        self.flush();
    }
}

/// Two stages joined without a buffer, for outputs that borrow from the first stage and so cannot wait.
///
/// Each output goes into the second stage immediately, as a batch of one.
#[derive(Debug)]
pub struct Through<A, B> {
    /// The stage that takes the input.
    pub first: A,
    /// The stage that produces the output.
    pub second: B,
}

impl<A, B> Through<A, B> {
    /// Joins `first` to `second`.
    pub const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<In, S, A, B> Stage<In, S> for Through<A, B>
where
    A: for<'e> Stage<In, Direct<'e, B, S>>,
{
    #[inline]
    fn process(&mut self, batch: &[In], sink: &mut S) {
        self.first.process(batch, &mut Direct { stage: &mut self.second, sink });
    }
}

/// The edge of [`Through`].
#[derive(Debug)]
pub struct Direct<'e, B, S> {
    stage: &'e mut B,
    sink: &'e mut S,
}

impl<T, B: Stage<T, S>, S> Sink<T> for Direct<'_, B, S> {
    #[inline]
    fn put(&mut self, item: T) {
        self.stage.process(std::slice::from_ref(&item), self.sink);
    }

    #[inline]
    fn expect(&mut self, index: usize) {
        self.stage.expect(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Twice;
    impl<S: Sink<u64>> Stage<u64, S> for Twice {
        fn process(&mut self, batch: &[u64], sink: &mut S) {
            for n in batch {
                sink.put(*n);
                sink.put(*n);
            }
        }
    }

    /// Emits the values so far and the length of the batch. The output borrows from the stage.
    struct Sum(Vec<u64>);
    impl<S: for<'a> Sink<(&'a [u64], usize)>> Stage<u64, S> for Sum {
        fn process(&mut self, batch: &[u64], sink: &mut S) {
            for n in batch {
                self.0.push(*n);
                sink.put((&self.0, batch.len()));
            }
        }
    }

    #[test]
    fn the_second_stage_sees_batches_no_longer_than_the_buffer_and_nothing_is_left_behind() {
        let mut chain = Chain::new(Twice, Sum(Vec::new()), 4);
        let mut seen = Vec::new();
        chain.process(&[1, 2, 3], &mut |(so_far, batch): (&[u64], usize)| seen.push((so_far.len(), batch)));
        assert_eq!(seen, [(1, 4), (2, 4), (3, 4), (4, 4), (5, 2), (6, 2)]);
        assert_eq!(chain.second.0, [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn chains_nest() {
        let mut chain = Chain::new(Chain::new(Twice, Twice, 3), Sum(Vec::new()), 64);
        chain.process(&[7], &mut |_: (&[u64], usize)| {});
        assert_eq!(chain.second.0, [7; 4]);
    }

    #[test]
    fn an_edge_of_capacity_zero_still_carries_items() {
        let mut chain = Chain::new(Twice, Sum(Vec::new()), 0);
        chain.process(&[1], &mut |_: (&[u64], usize)| {});
        assert_eq!(chain.second.0, [1, 1]);
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
