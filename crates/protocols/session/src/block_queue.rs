//! A queue that grows without moving its elements. A session keeps millions of messages a day, and no message may wait
//! while they are copied into a larger buffer.
//!
//! Cost: two lookups to reach an element. Memory is allocated a block at a time.

use std::collections::VecDeque;

/// A queue in blocks of `BLOCK` elements.
#[derive(Debug, Clone)]
pub struct BlockQueue<T, const BLOCK: usize> {
    /// All blocks except the last are full.
    blocks: VecDeque<Vec<T>>,
    /// Elements already removed from the start of the first block.
    gone: usize,
    len: usize,
    /// Empty blocks to reuse.
    spare: Vec<Vec<T>>,
}

impl<T, const BLOCK: usize> Default for BlockQueue<T, BLOCK> {
    fn default() -> Self {
        Self { blocks: VecDeque::new(), gone: 0, len: 0, spare: Vec::new() }
    }
}

impl<T, const BLOCK: usize> BlockQueue<T, BLOCK> {
    /// Returns the number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the element at `place`, counted from the oldest.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        let place = place.checked_add(self.gone)?;
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    /// Returns the element at `place` mutably, counted from the oldest.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let place = place.checked_add(self.gone)?;
        self.blocks.get_mut(place / BLOCK)?.get_mut(place % BLOCK)
    }

    /// Appends an element.
    pub fn push_back(&mut self, element: T) {
        const { assert!(BLOCK > 0, "a block holds an element") };
        self.len += 1;
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(element),
            None => {
                let mut block = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK));
                block.push(element);
                self.blocks.push_back(block);
            }
        }
    }

    /// Removes the oldest element and returns whether there was one. Memory is freed a block at a time.
    pub fn drop_front(&mut self) -> bool {
        if self.len == 0 {
            return false;
        }
        (self.len, self.gone) = (self.len - 1, self.gone + 1);
        if self.gone == BLOCK {
            self.gone = 0;
            if let Some(mut block) = self.blocks.pop_front().filter(|_| self.spare.is_empty()) {
                block.clear();
                self.spare.push(block);
            }
        }
        true
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.blocks.clear();
        (self.gone, self.len) = (0, 0);
    }

    /// Reserves memory for `elements` more elements.
    pub fn keep_room(&mut self, elements: usize) {
        let in_last = self.blocks.back().map_or(0, |block| BLOCK - block.len());
        let blocks = elements.saturating_sub(in_last).div_ceil(BLOCK);
        self.blocks.reserve(blocks);
        while self.spare.len() < blocks {
            self.spare.push(Vec::with_capacity(BLOCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push,
        Drop,
        Clear,
        Room(usize),
        Change(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => Just(Step::Push),
            12 => Just(Step::Drop),
            1 => Just(Step::Clear),
            2 => (0usize..20).prop_map(Step::Room),
            4 => (0usize..40).prop_map(Step::Change),
        ]
    }

    proptest! {
        #[test]
        fn blocks_hold_what_a_queue_holds(steps in prop::collection::vec(step(), 0..300)) {
            let (mut blocks, mut queue) = (BlockQueue::<usize, 4>::default(), VecDeque::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push => {
                        blocks.push_back(number);
                        queue.push_back(number);
                    }
                    Step::Drop => prop_assert_eq!(blocks.drop_front(), queue.pop_front().is_some()),
                    Step::Clear => {
                        blocks.clear();
                        queue.clear();
                    }
                    Step::Room(elements) => {
                        blocks.keep_room(elements);
                        let room = blocks.blocks.back().map_or(0, |block| 4 - block.len()) + 4 * blocks.spare.len();
                        prop_assert!(room >= elements);
                    }
                    Step::Change(place) => {
                        let both = (blocks.get_mut(place), queue.get_mut(place));
                        prop_assert_eq!(both.0.is_some(), both.1.is_some());
                        if let (Some(one), Some(other)) = both {
                            (*one, *other) = (number, number);
                        }
                    }
                }
                prop_assert_eq!((blocks.len(), blocks.is_empty()), (queue.len(), queue.is_empty()));
                for place in 0..queue.len() + 2 {
                    prop_assert_eq!(blocks.get(place), queue.get(place));
                }
            }
        }

        #[test]
        fn an_element_stays_where_it_is_while_the_queue_grows(count in 1usize..200) {
            let mut blocks = BlockQueue::<usize, 8>::default();
            blocks.push_back(0);
            let first = std::ptr::from_ref(blocks.get(0).unwrap());
            (1..count).for_each(|number| blocks.push_back(number));
            prop_assert_eq!(first, std::ptr::from_ref(blocks.get(0).unwrap()));
        }
    }
}
