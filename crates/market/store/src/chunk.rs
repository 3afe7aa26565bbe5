//! Column chunks: the encoded pages of a batch, the dictionaries of a row group, and each column's footer metadata.
//!
//! A batch produces one page per column, stored back to back in one array ([`Pages`]). A row group keeps the arrays of its
//! batches, and a column chunk is gathered from them when the group is written ([`ColumnChunk`]), so encoded bytes are not
//! copied in between. [`Press`] and [`Pages`] are reused: a batch allocates next to nothing.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;

use bytes::{Buf as _, Bytes};
use parquet::basic::{Compression as Codec, Encoding};
use parquet::column::page::{CompressedPage, Page as DataOrDictionary, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

mod bits;

/// Compresses pages, or passes them through.
pub(crate) enum Compressor {
    None,
    Snappy(Box<snap::raw::Encoder>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    fn codec(&self) -> Codec {
        match self {
            Self::None => Codec::UNCOMPRESSED,
            Self::Snappy(_) => Codec::SNAPPY,
            // The file format does not record the level.
            Self::Zstd(_) => Codec::ZSTD(parquet::basic::ZstdLevel::default()),
        }
    }

    /// Compresses `plain` into `room`, a reused buffer.
    fn compress<'p>(&mut self, plain: &'p [u8], room: &'p mut Vec<u8>) -> Result<&'p [u8]> {
        match self {
            Self::None => Ok(plain),
            Self::Snappy(encoder) => {
                let most = snap::raw::max_compress_len(plain.len());
                if room.len() < most {
                    room.resize(most, 0);
                }
                let length =
                    encoder.compress(plain, room).map_err(|error| ParquetError::External(Box::new(error)))?;
                Ok(&room[..length])
            }
            Self::Zstd(compressor) => {
                room.clear();
                room.reserve(zstd::zstd_safe::compress_bound(plain.len()));
                compressor.compress_to_buffer(plain, room)?;
                Ok(room)
            }
        }
    }
}

/// The compressor and buffers for encoding pages.
pub(crate) struct Press {
    compressor: Compressor,
    /// A page before and after compression.
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

impl Press {
    pub(crate) fn new(compressor: Compressor) -> Self {
        Self { compressor, plain: Vec::new(), compressed: Vec::new() }
    }
}

/// The values of a column in a page.
pub(crate) enum Values<'v> {
    /// 32-bit numbers.
    Narrow(&'v [i32]),
    /// 64-bit numbers.
    Wide(&'v [i64]),
    /// Floating-point numbers.
    Floating(&'v [f64]),
    /// Keys into the column's dictionary.
    Keys(&'v [u32]),
}

/// No key: the value has no text, or is not in the dictionary yet.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// Numbers from here on are looked up in a map, because a server may give its instruments any number. The table for smaller
/// numbers takes at most 16 MB.
const MOST_NUMBERED: u32 = 1 << 22;

/// The texts of a column, in order of first appearance in the row group.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    plain: Vec<u8>,
    count: u32,
    /// The keys of values that have a number (a letter, an instrument), below [`MOST_NUMBERED`].
    by_number: Vec<u32>,
    /// The keys of higher numbers, which a server may use.
    by_high_number: HashMap<u32, u32>,
    /// The keys of values without a number.
    by_text: HashMap<String, u32>,
}

impl Dictionary {
    /// Returns the number of texts.
    #[cfg(feature = "arrow")]
    pub(crate) const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns the texts in the order of their keys.
    #[cfg(feature = "arrow")]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.plain.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (text, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            // The bytes were appended from a `str`.
            std::str::from_utf8(text).ok()
        })
    }

    fn push(&mut self, text: &str) -> u32 {
        self.plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.plain.extend_from_slice(text.as_bytes());
        self.count += 1;
        self.count - 1
    }

    /// Returns the key of the text with this number, or [`NO_KEY`] if `text` returns none for it.
    #[inline]
    pub(crate) fn key_of_number<'t>(
        &mut self,
        number: u32,
        text: impl FnOnce(u32) -> Option<&'t str>,
    ) -> u32 {
        match self.by_number.get(number as usize) {
            Some(key) if *key != NO_KEY => *key,
            _ => self.add(number, text),
        }
    }

    #[cold]
    #[inline(never)]
    fn add<'t>(&mut self, number: u32, text: impl FnOnce(u32) -> Option<&'t str>) -> u32 {
        if let Some(key) = self.by_high_number.get(&number) {
            return *key;
        }
        let Some(text) = text(number) else { return NO_KEY };
        let key = self.push(text);
        if number >= MOST_NUMBERED {
            self.by_high_number.insert(number, key);
            return key;
        }
        let place = number as usize;
        if place >= self.by_number.len() {
            self.by_number.resize((place + 1).next_power_of_two(), NO_KEY);
        }
        self.by_number[place] = key;
        key
    }

    /// Returns the key of a text, or [`NO_KEY`] if it is empty.
    pub(crate) fn key_of_text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return NO_KEY;
        }
        if let Some(key) = self.by_text.get(text) {
            return *key;
        }
        let key = self.push(text);
        self.by_text.insert(text.to_owned(), key);
        key
    }
}

/// Metadata of one column's page.
pub(crate) struct Page {
    /// Position in the bytes of its batch.
    bytes: Range<usize>,
    encoding: Encoding,
    /// Includes the page header.
    uncompressed_bytes: i64,
    rows: u64,
    nulls: u64,
    /// Minimum and maximum, for columns that keep them.
    range: Option<(i64, i64)>,
}

/// The encoded pages of a batch, one per column, in column order.
#[derive(Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    pages: Vec<Page>,
}

impl Pages {
    /// Removes all pages and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pages.clear();
    }

    /// Appends the page of a column with `rows` values. `defined` has a 1 or 0 per row, and `values` holds only the defined
    /// ones; `None` means that all are defined. `range` is their minimum and maximum if the footer is to record them.
    pub(crate) fn push(
        &mut self,
        column: &ColumnDescPtr,
        (rows, defined): (usize, Option<&[u32]>),
        values: &Values<'_>,
        range: Option<(i64, i64)>,
        press: &mut Press,
    ) -> Result<()> {
        let Press { compressor, plain, compressed } = press;
        plain.clear();
        if column.max_def_level() > 0 {
            bits::definition_levels(rows, defined, plain);
        }
        let (encoding, count) = match values {
            Values::Narrow(values) => {
                bits::delta_i32(values, plain);
                (Encoding::DELTA_BINARY_PACKED, values.len())
            }
            Values::Wide(values) => {
                bits::delta_i64(values, plain);
                (Encoding::DELTA_BINARY_PACKED, values.len())
            }
            Values::Floating(values) => {
                values.iter().for_each(|value| plain.extend_from_slice(&value.to_le_bytes()));
                (Encoding::PLAIN, values.len())
            }
            Values::Keys(keys) => {
                bits::keys(keys, plain);
                (Encoding::RLE_DICTIONARY, keys.len())
            }
        };
        let page = DataOrDictionary::DataPage {
            buf: Bytes::copy_from_slice(compressor.compress(plain, compressed)?),
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let start = self.bytes.len();
        let uncompressed_bytes = write(&mut self.bytes, page, plain.len())?;
        let (bytes, rows, nulls) = (start..self.bytes.len(), rows as u64, (rows - count) as u64);
        self.pages.push(Page { bytes, encoding, uncompressed_bytes, rows, nulls, range });
        Ok(())
    }
}

/// A column of a row group, ready to be written: its dictionary page, if any, and its data pages.
pub(crate) struct ColumnChunk<'p> {
    dictionary: Bytes,
    pages: Vec<&'p [u8]>,
}

/// Reads pages back to back.
pub(crate) struct Gather<'p> {
    page: &'p [u8],
    rest: std::vec::IntoIter<&'p [u8]>,
}

impl Read for Gather<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.page.is_empty() {
            match self.rest.next() {
                Some(page) => self.page = page,
                None => return Ok(0),
            }
        }
        self.page.read(to)
    }
}

impl<'p> ColumnChunk<'p> {
    /// Gathers column `place` from the batches of a row group, with its footer metadata.
    pub(crate) fn gather(
        column: &ColumnDescPtr,
        place: usize,
        batches: &'p [Pages],
        dictionary: Dictionary,
        press: &mut Press,
    ) -> Result<(Self, ColumnCloseResult)> {
        let of_column = || batches.iter().filter_map(|batch| Some((batch, batch.pages.get(place)?)));
        let pages: Vec<_> = of_column().map(|(batch, page)| &batch.bytes[page.bytes.clone()]).collect();
        let encoding = of_column().next_back().map_or(Encoding::PLAIN, |(_, page)| page.encoding);
        let sum = |of: fn(&Page) -> u64| of_column().map(|(_, page)| of(page)).sum::<u64>();
        let (rows, nulls) = (sum(|page| page.rows), sum(|page| page.nulls));
        let mut uncompressed_bytes: i64 = of_column().map(|(_, page)| page.uncompressed_bytes).sum();
        let ranges = of_column().filter_map(|(_, page)| page.range);
        let range = ranges.reduce(|(least, greatest), (l, g)| (least.min(l), greatest.max(g)));
        let mut dictionary_page = Vec::new();
        let mut encodings = vec![encoding, Encoding::RLE];
        if encoding == Encoding::RLE_DICTIONARY {
            encodings.push(Encoding::PLAIN);
            let Press { compressor, compressed, .. } = press;
            let page = DataOrDictionary::DictionaryPage {
                buf: Bytes::copy_from_slice(compressor.compress(&dictionary.plain, compressed)?),
                num_values: dictionary.count,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            uncompressed_bytes += write(&mut dictionary_page, page, dictionary.plain.len())?;
        }
        let dictionary_bytes = (!dictionary_page.is_empty()).then_some(dictionary_page.len() as i64);
        let chunk = Self { dictionary: dictionary_page.into(), pages };
        let mut metadata = ColumnChunkMetaData::builder(column.clone())
            .set_encodings(encodings)
            .set_compression(press.compressor.codec())
            .set_num_values(rows as i64)
            .set_total_compressed_size(chunk.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes)
            .set_data_page_offset(dictionary_bytes.unwrap_or(0))
            .set_dictionary_page_offset(dictionary_bytes.map(|_| 0));
        if let Some((least, greatest)) = range {
            let statistics = Statistics::int64(Some(least), Some(greatest), None, Some(nulls), false);
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: chunk.len(),
            rows_written: rows,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((chunk, close))
    }
}

impl Length for ColumnChunk<'_> {
    fn len(&self) -> u64 {
        (self.dictionary.len() + self.pages.iter().map(|page| page.len()).sum::<usize>()) as u64
    }
}

impl<'p> ChunkReader for ColumnChunk<'p> {
    type T = io::Chain<bytes::buf::Reader<Bytes>, Gather<'p>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let pages = Gather { page: &[], rest: self.pages.clone().into_iter() };
        let mut all = self.dictionary.clone().reader().chain(pages);
        io::copy(&mut all.by_ref().take(start), &mut io::sink())?;
        Ok(all)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Writes a page with its header. Returns its uncompressed length, including the header.
fn write(to: &mut Vec<u8>, page: DataOrDictionary, uncompressed: usize) -> Result<i64> {
    let mut to = TrackedWrite::new(to);
    let spec = SerializedPageWriter::new(&mut to).write_page(CompressedPage::new(page, uncompressed))?;
    to.into_inner()?;
    Ok(spec.uncompressed_size as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_number_takes_no_memory_and_keeps_its_key() {
        let mut dictionary = Dictionary::default();
        let text = |number| (number != 5).then_some("text");
        assert_eq!(dictionary.key_of_number(u32::MAX, text), 0);
        assert_eq!(dictionary.key_of_number(7, text), 1);
        assert_eq!(dictionary.key_of_number(u32::MAX, text), 0);
        assert_eq!(dictionary.key_of_number(5, text), NO_KEY);
        assert_eq!(dictionary.by_number.len(), 8);
    }
}
