//! Parquet files with pages that are compressed with zstd.
//!
//! The library reads such pages only with zstd's library in C. So it is told that they are not compressed, hands them over as they are, and
//! they are decompressed here, in Rust.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader, SerializedPageReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use ruzstd::decoding::StreamingDecoder;

/// The most that a page can hold by its format, in bytes.
const MOST_BYTES: u64 = i32::MAX as u64;

/// Reads Parquet files, whose pages may be compressed with zstd or in any way that the library knows.
pub(crate) struct ZstdFileReader {
    inner: SerializedFileReader<File>,
    file: Arc<File>,
}

impl ZstdFileReader {
    /// Reads what the end of the file says about it.
    pub(crate) fn new(file: File) -> Result<Self> {
        let pages = Arc::new(file.try_clone()?);
        let inner = SerializedFileReader::new(file)?;
        // The library panics at these when it comes to the column.
        if inner.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns).any(is_misplaced) {
            return Err(ParquetError::General("the place of a column is damaged".to_owned()));
        }
        Ok(Self { inner, file: pages })
    }
}

impl FileReader for ZstdFileReader {
    fn metadata(&self) -> &ParquetMetaData {
        self.inner.metadata()
    }

    fn num_row_groups(&self) -> usize {
        self.inner.num_row_groups()
    }

    fn get_row_group(&self, i: usize) -> Result<Box<dyn RowGroupReader + '_>> {
        Ok(Box::new(RowGroup { inner: self.inner.get_row_group(i)?, file: self.file.clone() }))
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_file(projection, self)
    }
}

/// Whether a column cannot be where the file says.
fn is_misplaced(column: &ColumnChunkMetaData) -> bool {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    start < 0 || column.data_page_offset() < 0 || column.compressed_size() < 0
}

struct RowGroup<'a> {
    inner: Box<dyn RowGroupReader + 'a>,
    file: Arc<File>,
}

impl RowGroupReader for RowGroup<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.inner.metadata()
    }

    fn num_columns(&self) -> usize {
        self.inner.num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata().column(i);
        if !matches!(column.compression(), Compression::ZSTD(_)) {
            return self.inner.get_column_page_reader(i);
        }
        let as_stored = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let n_rows = usize::try_from(self.metadata().num_rows())?;
        let stored = SerializedPageReader::new(self.file.clone(), &as_stored, n_rows, None)?;
        Ok(Box::new(ZstdPages(stored)))
    }

    fn get_column_bloom_filter(&self, i: usize) -> Option<&Sbbf> {
        self.inner.get_column_bloom_filter(i)
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

/// The pages of a column, each decompressed.
struct ZstdPages(SerializedPageReader<File>);

impl PageReader for ZstdPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.0.get_next_page()?.map(decompressed).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.0.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.0.at_record_boundary()
    }
}

impl Iterator for ZstdPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// The page with its bytes as they were before they were compressed.
fn decompressed(mut page: Page) -> Result<Page> {
    let (bytes, n_plain) = match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
        Page::DataPageV2 { is_compressed: false, .. } => return Ok(page),
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            (buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)
        }
    };
    let Some((plain, compressed)) = bytes.split_at_checked(n_plain) else {
        return Err(ParquetError::General("a page is shorter than its levels".to_owned()));
    };
    let mut whole = plain.to_vec();
    // Frames follow each other. A page without a value may have none.
    let mut rest = compressed;
    while !rest.is_empty() && whole.len() as u64 <= MOST_BYTES {
        let room = MOST_BYTES + 1 - whole.len() as u64;
        let decoder =
            StreamingDecoder::new(&mut rest).map_err(|error| ParquetError::General(format!("zstd: {error}")))?;
        decoder.take(room).read_to_end(&mut whole)?;
    }
    if whole.len() as u64 > MOST_BYTES {
        return Err(ParquetError::General("a page is larger than pages can be".to_owned()));
    }
    *bytes = whole.into();
    Ok(page)
}

#[cfg(test)]
mod tests {
    use parquet::basic::Encoding;
    use parquet::column::page::Page;

    use super::decompressed;

    /// A frame with these bytes as they are.
    fn frame(bytes: &[u8]) -> Vec<u8> {
        const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
        // One segment with its length in a byte, then the last block, which is not compressed.
        let head = [&MAGIC[..], &[0x20, bytes.len() as u8, 1 | (bytes.len() as u8) << 3, 0, 0]].concat();
        [&head, bytes].concat()
    }

    fn page(compressed: Vec<u8>) -> Page {
        let encoding = Encoding::PLAIN;
        Page::DictionaryPage { buf: compressed.into(), num_values: 1, encoding, is_sorted: false }
    }

    #[test]
    fn all_frames_of_a_page_are_decompressed() {
        let two = decompressed(page([frame(b"one, "), frame(b"two")].concat())).unwrap();
        assert_eq!(&two.buffer()[..], b"one, two");
        assert!(decompressed(page(Vec::new())).unwrap().buffer().is_empty());
        let torn = [frame(b"one, "), frame(b"two")[..7].to_vec()].concat();
        assert!(decompressed(page(torn)).is_err());
    }
}
