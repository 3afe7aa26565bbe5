//! A column of the row group that is being written: its pages, encoded, and its dictionary.

use std::collections::HashMap;
use std::io::Write as _;

use bytes::Bytes;
use parquet::basic::{Compression as Codec, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

mod bits;

/// Compresses pages, or leaves them as they are.
pub(crate) enum Compressor {
    /// As they are.
    None,
    /// With Snappy.
    Snappy(Box<snap::raw::Encoder>),
    /// With Zstandard.
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    pub(crate) fn codec(&self) -> Codec {
        match self {
            Self::None => Codec::UNCOMPRESSED,
            Self::Snappy(_) => Codec::SNAPPY,
            // A file does not hold the level.
            Self::Zstd(_) => Codec::ZSTD(parquet::basic::ZstdLevel::default()),
        }
    }

    fn compress(&mut self, page: Vec<u8>) -> Result<Vec<u8>> {
        Ok(match self {
            Self::None => page,
            Self::Snappy(encoder) => encoder
                .compress_vec(&page)
                .map_err(|error| parquet::errors::ParquetError::External(Box::new(error)))?,
            Self::Zstd(compressor) => compressor.compress(&page)?,
        })
    }
}

/// The values of a column of a page.
pub(crate) enum Values<'v> {
    /// 32-bit numbers.
    Narrow(&'v [i32]),
    /// 64-bit numbers.
    Wide(&'v [i64]),
    /// Floating-point numbers.
    Floating(&'v [f64]),
    /// Keys of the column's dictionary.
    Keys(&'v [u32]),
}

/// No key: the value is not in the dictionary yet.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// The texts of a column, in the order of their first appearance in the row group.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    plain: Vec<u8>,
    count: u32,
    /// The key of what has a number (a letter, an instrument).
    by_number: Vec<u32>,
    /// The key of what has none.
    by_text: HashMap<String, u32>,
}

impl Dictionary {
    fn push(&mut self, text: &str) -> u32 {
        self.plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.plain.extend_from_slice(text.as_bytes());
        self.count += 1;
        self.count - 1
    }

    /// The key of the text with this number; [`NO_KEY`] when `text` has none for it.
    #[inline]
    pub(crate) fn key_of_number<'t>(
        &mut self,
        number: u32,
        text: impl FnOnce(u32) -> Option<&'t str>,
    ) -> u32 {
        match self.by_number.get(number as usize) {
            Some(key) if *key != NO_KEY => *key,
            _ => text(number).map_or(NO_KEY, |text| self.add(number, text)),
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, number: u32, text: &str) -> u32 {
        let key = self.push(text);
        let number = number as usize;
        if number >= self.by_number.len() {
            self.by_number.resize((number + 1).next_power_of_two(), NO_KEY);
        }
        self.by_number[number] = key;
        key
    }

    /// The key of a text; [`NO_KEY`] for an empty one.
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

/// A column of the row group that is being written.
pub(crate) struct Chunk {
    column: ColumnDescPtr,
    pages: TrackedWrite<Vec<u8>>,
    pub(crate) dictionary: Dictionary,
    encoding: Encoding,
    uncompressed_bytes: i64,
    rows: u64,
    nulls: u64,
    /// The least and the greatest value, where they are kept.
    range: Option<(i64, i64)>,
}

impl Chunk {
    pub(crate) fn new(column: ColumnDescPtr) -> Self {
        Self {
            column,
            pages: TrackedWrite::new(Vec::new()),
            dictionary: Dictionary::default(),
            encoding: Encoding::PLAIN,
            uncompressed_bytes: 0,
            rows: 0,
            nulls: 0,
            range: None,
        }
    }

    /// Keeps the least and the greatest of `values`.
    pub(crate) fn note_range(&mut self, values: &[i64]) {
        for value in values {
            let (least, greatest) = self.range.unwrap_or((*value, *value));
            self.range = Some((least.min(*value), greatest.max(*value)));
        }
    }

    /// Writes a page of `rows` values, of which those that `defined` (one for each, 1 or 0) says are in `values`;
    /// None means all.
    pub(crate) fn write_page(
        &mut self,
        rows: usize,
        defined: Option<&[u32]>,
        values: &Values<'_>,
        compressor: &mut Compressor,
    ) -> Result<()> {
        let mut page = Vec::with_capacity(8 * rows + 64);
        if self.column.max_def_level() > 0 {
            bits::definition_levels(rows, defined, &mut page);
        }
        let (encoding, count) = match values {
            Values::Narrow(values) => {
                bits::delta_i32(values, &mut page);
                (Encoding::DELTA_BINARY_PACKED, values.len())
            }
            Values::Wide(values) => {
                bits::delta_i64(values, &mut page);
                (Encoding::DELTA_BINARY_PACKED, values.len())
            }
            Values::Floating(values) => {
                values.iter().for_each(|value| page.extend_from_slice(&value.to_le_bytes()));
                (Encoding::PLAIN, values.len())
            }
            Values::Keys(keys) => {
                bits::keys(keys, &mut page);
                (Encoding::RLE_DICTIONARY, keys.len())
            }
        };
        self.encoding = encoding;
        self.rows += rows as u64;
        self.nulls += (rows - count) as u64;
        let uncompressed = page.len();
        let page = Page::DataPage {
            buf: Bytes::from(compressor.compress(page)?),
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.uncompressed_bytes += write(&mut self.pages, page, uncompressed)?;
        Ok(())
    }

    /// Appends the pages of `next`, whose keys are this chunk's.
    pub(crate) fn absorb(&mut self, next: Self) -> Result<()> {
        self.pages.write_all(&next.pages.into_inner()?)?;
        self.encoding = next.encoding;
        self.uncompressed_bytes += next.uncompressed_bytes;
        self.rows += next.rows;
        self.nulls += next.nulls;
        if let Some((least, greatest)) = next.range {
            self.note_range(&[least, greatest]);
        }
        Ok(())
    }

    /// Ends the column chunk: its bytes, and what the file's footer says of it. The next one begins.
    pub(crate) fn take(&mut self, compressor: &mut Compressor) -> Result<(Bytes, ColumnCloseResult)> {
        let mut chunk = std::mem::replace(self, Self::new(self.column.clone()));
        let mut bytes = TrackedWrite::new(Vec::new());
        let mut dictionary_bytes = None;
        let mut encodings = vec![chunk.encoding, Encoding::RLE];
        if chunk.encoding == Encoding::RLE_DICTIONARY {
            encodings.push(Encoding::PLAIN);
            let plain = std::mem::take(&mut chunk.dictionary.plain);
            let uncompressed = plain.len();
            let page = Page::DictionaryPage {
                buf: Bytes::from(compressor.compress(plain)?),
                num_values: chunk.dictionary.count,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            chunk.uncompressed_bytes += write(&mut bytes, page, uncompressed)?;
            dictionary_bytes = Some(bytes.bytes_written() as i64);
        }
        let mut bytes = bytes.into_inner()?;
        bytes.extend_from_slice(&chunk.pages.into_inner()?);
        let mut metadata = ColumnChunkMetaData::builder(chunk.column)
            .set_encodings(encodings)
            .set_compression(compressor.codec())
            .set_num_values(chunk.rows as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(chunk.uncompressed_bytes)
            .set_data_page_offset(dictionary_bytes.unwrap_or(0))
            .set_dictionary_page_offset(dictionary_bytes.map(|_| 0));
        if let Some((least, greatest)) = chunk.range {
            let statistics = Statistics::int64(Some(least), Some(greatest), None, Some(chunk.nulls), false);
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: chunk.rows,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((Bytes::from(bytes), close))
    }
}

/// Writes a page with its header; returns its length before compression, header included.
fn write(pages: &mut TrackedWrite<Vec<u8>>, page: Page, uncompressed: usize) -> Result<i64> {
    let spec = SerializedPageWriter::new(pages).write_page(CompressedPage::new(page, uncompressed))?;
    Ok(spec.uncompressed_size as i64)
}
