//! A list that grows, or is truncated, without moving its entries.

/// Entries per chunk.
const CHUNK: usize = 4_096;

/// A list in chunks of equal size.
#[derive(Debug)]
pub(super) struct Log<T> {
    /// All chunks but the last are full.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Log<T> {
    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub(super) fn push(&mut self, entry: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<&T> {
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.chunks.last()?.last()
    }

    /// Keeps the first `length` entries.
    pub(super) fn truncate(&mut self, length: usize) {
        if length >= self.len() {
            return;
        }
        self.chunks.truncate(length.div_ceil(CHUNK));
        if let Some(last) = self.chunks.last_mut().filter(|_| !length.is_multiple_of(CHUNK)) {
            last.truncate(length % CHUNK);
        }
    }

    /// Iterates over the entries starting at `place`.
    pub(super) fn iter_from(&self, place: usize) -> impl Iterator<Item = &T> {
        let chunks = self.chunks.get(place / CHUNK..).unwrap_or_default();
        chunks.iter().flatten().skip(place % CHUNK)
    }

    /// Returns the first position whose entry is not `before`. All entries that are `before` must precede the others.
    pub(super) fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let full = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&before));
        // All of the last chunk may be `before`, even if it is not full.
        self.chunks.get(full).map_or(self.len(), |chunk| full * CHUNK + chunk.partition_point(before))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Log};

    #[test]
    fn a_log_is_the_list_that_was_pushed() {
        let lengths = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7];
        for length in lengths {
            let (mut log, mut list) = (Log::default(), Vec::new());
            for number in 0..length {
                log.push(number / 3);
                list.push(number / 3);
            }
            for kept in lengths.into_iter().rev() {
                log.truncate(kept);
                list.truncate(kept);
                assert_eq!((log.len(), log.last()), (list.len(), list.last()));
                for place in [0, 1, CHUNK - 1, CHUNK, CHUNK + 3, 2 * CHUNK] {
                    assert_eq!(log.get(place), list.get(place));
                    assert!(log.iter_from(place).eq(list.iter().skip(place)));
                    let before = |entry: &usize| *entry < place / 3;
                    assert_eq!(log.partition_point(before), list.partition_point(before));
                }
            }
            log.push(usize::MAX);
            list.push(usize::MAX);
            assert!(log.iter_from(0).eq(&list));
        }
    }
}
