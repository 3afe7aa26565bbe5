//! Positions in a journal, for an index that a reader maintains itself.

use std::path::Path;

use tapeworks_disk::{Access, Disk, DiskFile as _};

use crate::error::{JournalError, failed};
use crate::folder::segment_path;

/// A position in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Number of the segment's first record.
    pub segment: u64,
    /// Byte offset in the segment.
    pub offset: u64,
}

/// Reads the bytes at a position without checking them. Returns how many there were.
///
/// They must be part of a record that was read or appended before. Cost: two system calls.
///
/// # Errors
/// A segment that was removed or cannot be read.
pub fn read_place_in<D: Disk>(folder: &Path, place: Place, bytes: &mut [u8]) -> Result<usize, JournalError> {
    let path = segment_path(folder, place.segment);
    let file = D::open(&path, Access::Read).map_err(failed(&path, "cannot be opened"))?;
    file.read_full_at(bytes, place.offset).map_err(failed(&path, "cannot be read"))
}

#[cfg(test)]
mod tests {
    use tapeworks_disk::System;

    use super::*;
    use crate::{JournalOptions, JournalReader, JournalWriter, Record};

    #[test]
    fn writer_and_reader_give_the_same_places_across_segments() {
        let folder = tempfile::tempdir().unwrap();
        let options = JournalOptions { segment_bytes: 400, keep_bytes: None };
        let (mut writer, _) = JournalWriter::open(folder.path(), options).unwrap();
        let payloads: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number; 50 + usize::from(number)]).collect();
        let mut ends = Vec::new();
        for payload in &payloads {
            writer.append(&Record { payload, ..Record::default() }).unwrap();
            ends.push(writer.place());
        }
        writer.flush().unwrap();
        assert!(ends.last().unwrap().segment > 0, "there are several segments");
        let mut reader = JournalReader::open(folder.path()).unwrap();
        for (payload, end) in payloads.iter().zip(&ends) {
            assert_eq!(reader.next().unwrap().unwrap().payload, payload);
            assert_eq!(reader.place(), Some(*end));
            let place = Place { offset: end.offset - payload.len() as u64, ..*end };
            let mut bytes = vec![0; payload.len()];
            assert_eq!(read_place_in::<System>(folder.path(), place, &mut bytes).unwrap(), payload.len());
            assert_eq!(&bytes, payload);
        }
    }
}
