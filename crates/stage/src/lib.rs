//! Stages and the edges that join them.
//!
//! A [`Stage`] is a struct with one method: it takes a batch of inputs and hands each output to a [`Sink`]. The batch is the
//! contents of a packet, a burst or a part of a file; a stage may look ahead inside it (decode all, prefetch all, then apply),
//! but it never waits to fill one.
//!
//! An edge is a sink on one side and a source on the other. [`Chain`] joins two stages with the cheapest edge there
//! is: a small buffer that stays in the first-level cache, flushed at the end of each batch. A whole plant composed
//! so runs to completion on one core with no queue at all; everything is monomorphised and inlines.
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
//! Cost of the inline edge: one copy of the item into the buffer and one read from it, both in the first-level cache.

/// The receiver of a stage's outputs.
///
/// Every `FnMut(T)` is a sink, so a closure ends a chain.
pub trait Sink<T> {
    /// Takes one item. Called in order.
    fn put(&mut self, item: T);

    /// The producer has handed over its whole batch: buffered items are passed on now.
    #[inline]
    fn end_of_batch(&mut self) {}

    /// An item with the number `index` will come soon: a stage with a table by that number may prefetch
    /// its line. A hint of a producer that looks ahead over items that cannot wait in a buffer.
    #[inline]
    fn expect(&mut self, _index: usize) {}
}

impl<T, F: FnMut(T)> Sink<T> for F {
    #[inline]
    fn put(&mut self, item: T) {
        self(item);
    }
}

/// One step of the path: takes a batch of `In`, hands outputs to the sink `S`.
///
/// The sink is a parameter of the trait, so that an implementation can require
/// `S: for<'a> Sink<Update<'a>>` and put out items that borrow from the stage itself.
pub trait Stage<In, S> {
    /// Processes a batch in order. Does not call [`Sink::end_of_batch`]: the caller does.
    fn process(&mut self, batch: &[In], sink: &mut S);

    /// An input about the item `index` will come soon: see [`Sink::expect`].
    #[inline]
    fn expect(&mut self, _index: usize) {}
}

/// Two stages joined inline: the outputs of the first are the inputs of the second, on the same core.
///
/// `T` is the type between them. The buffer is allocated once, in [`Chain::new`].
#[derive(Debug)]
pub struct Chain<A, B, T> {
    /// The stage that takes the chain's input.
    pub first: A,
    /// The stage that gives the chain's output.
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

/// The inline edge: collects the outputs of the first stage and hands them to the second as one batch, when its buffer is full
/// and at the end of the input batch.
#[derive(Debug)]
pub struct Inline<'e, B, T, S> {
    stage: &'e mut B,
    buffer: &'e mut Vec<T>,
    sink: &'e mut S,
}

impl<'e, B: Stage<T, S>, T, S> Inline<'e, B, T, S> {
    /// An edge into `stage` over `buffer`, whose capacity is the longest batch. For a loop that drives the first stage
    /// itself and decides when a batch ends (a file whose packets may be taken together).
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

/// Two stages joined without a buffer, for outputs that borrow from the first stage and so cannot wait: each goes
/// into the second at once, as a batch of one.
#[derive(Debug)]
pub struct Through<A, B> {
    /// The stage that takes the input.
    pub first: A,
    /// The stage that gives the output.
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

    /// Puts out the sum so far and the length of the batch it came in; borrows from itself.
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

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
