//! Reading packed tokens.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};

use super::{HEADER, Header, Layout};
use crate::data::hash::fold;
use crate::data::records::{RecordTable, Records};

/// A memory-mapped file of packed tokens, which are read on demand.
///
/// While it is open, the file must not be written to or truncated; replacing it by another file of the same name, as
/// [`PackedWriter`](super::PackedWriter) does, is safe. A file that turns out to be shorter than it was gives an
/// error.
pub struct PackedTokenFile {
    bytes: Bytes,
    /// The mapped file.
    file: Option<File>,
    place: String,
    header: Header,
    table: RecordTable,
}

impl PackedTokenFile {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let place = path.as_ref().display().to_string();
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io(&place, &error))?;
        if !metadata.is_file() {
            return Err(Error::unsupported(place, "not a regular file; expected a file of packed tokens"));
        }
        let file = File::open(path).map_err(|error| Error::io(&place, &error))?;
        let packed = Bytes::map(&file).and_then(|bytes| Self::parse(bytes, Some(file), &place));
        packed.map_err(|error| error.within(&place))
    }

    /// Opens a file image in memory.
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        Self::parse(bytes, None, "packed tokens")
    }

    fn parse(bytes: Bytes, file: Option<File>, place: &str) -> Result<Self> {
        let length = bytes.len();
        let header = bytes.first_chunk::<HEADER>().ok_or_else(|| {
            Error::corrupt("header", format!("the file has {length} bytes, less than the header of {HEADER}"))
        })?;
        let header = Header::parse(header)?;
        let layout = header.layout().filter(|layout| layout.end == length as u64).ok_or_else(|| {
            let message = format!(
                "{} records and {} tokens do not fill the file's {length} bytes; it was truncated or \
                 changed; pack the texts again",
                header.records, header.tokens
            );
            Error::corrupt("header", message)
        })?;
        let table = table(&bytes, &header, layout)?;
        Ok(Self { bytes, file, place: place.to_owned(), header, table })
    }

    /// Drops the classes.
    pub fn without_labels(mut self) -> Self {
        self.table.labels = Vec::new();
        self
    }

    /// Returns the [identity](super::identity) of the tokenizer that made the tokens; 0 if unknown.
    pub fn identity(&self) -> u64 {
        self.header.identity
    }

    /// Rejects tokens of a different tokenizer.
    pub fn expect(&self, identity: u64) -> Result<()> {
        if self.header.identity == identity || self.header.identity == 0 {
            return Ok(());
        }
        let message = "made with a different tokenizer; pack the texts again with the model's tokenizer";
        Err(Error::new(ErrorKind::Integrity, format!("{}: header.identity", self.place), message))
    }

    /// Returns the number of tokens of all records.
    pub fn tokens(&self) -> u64 {
        self.header.tokens
    }

    /// Refuses to read pages beyond the current end of the file.
    fn check_length(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let length = file.metadata().map_err(|error| Error::io(&self.place, &error))?.len();
        if length == self.bytes.len() as u64 {
            return Ok(());
        }
        let message = format!(
            "{length} bytes, but {} when it was opened; do not modify it while it is in use",
            self.bytes.len()
        );
        Err(Error::corrupt(&self.place, message))
    }

    fn corrupt_record(&self, record: usize, part: usize, message: String) -> Error {
        Error::corrupt(format!("{}: record {record}, part {part}", self.place), message)
    }
}

/// Reads integers of eight or four bytes from `offset` on. The caller has checked that the file is long enough.
fn numbers<const N: usize, T>(
    bytes: &[u8],
    place: &str,
    (offset, count): (u64, u64),
    of: fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    let (offset, count) = (offset as usize, count as usize);
    let found = bytes.get(offset..offset + count * N).unwrap_or_default();
    let mut numbers = Vec::new();
    numbers
        .try_reserve_exact(count)
        .map_err(|_| Error::new(ErrorKind::Memory, place, format!("{count} values do not fit in memory")))?;
    numbers.extend(found.as_chunks::<N>().0.iter().map(|&bytes| of(bytes)));
    Ok(numbers)
}

fn table(bytes: &[u8], header: &Header, layout: Layout) -> Result<RecordTable> {
    let lists = header.records * u64::from(header.parts) + 1;
    let starts = numbers(bytes, "starts", (layout.starts, lists), u64::from_le_bytes)?;
    let corrupt_record = |list: usize, message: &str| Err(Error::corrupt(format!("starts[{list}]"), message));
    if starts.first() != Some(&0) {
        return corrupt_record(0, "the first list must start at the first token");
    }
    if let Some(list) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
        return corrupt_record(list + 1, "less than the previous start");
    }
    if starts.last() != Some(&header.tokens) {
        return corrupt_record(starts.len() - 1, "the last list must end at the last token");
    }
    let classes = if header.labels { header.records } else { 0 };
    let labels = numbers(bytes, "labels", (layout.labels, classes), u32::from_le_bytes)?;
    // Files without a fingerprint are identified by the lengths of their lists and by their classes.
    let outline = || {
        let classes = labels.iter().map(|&label| u64::from(label));
        starts.iter().copied().chain(classes).fold(0, fold)
    };
    let fingerprint = if header.fingerprint == 0 { outline() } else { header.fingerprint };
    Ok(RecordTable { parts: header.parts as usize, starts, labels, fingerprint })
}

impl Records for PackedTokenFile {
    fn count(&self) -> usize {
        self.table.count()
    }

    fn parts(&self) -> usize {
        self.table.parts
    }

    fn vocabulary(&self) -> u32 {
        self.header.vocabulary
    }

    fn length(&self, record: usize, part: usize) -> usize {
        let span = self.table.span(record, part);
        (span.end - span.start) as usize
    }

    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        let range = self.table.part(record, part, &range)?;
        let width = self.header.width as usize;
        let [start, end] = [range.start, range.end].map(|token| HEADER + token as usize * width);
        self.check_length()?;
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        let first = out.len();
        match width {
            2 => out.extend(bytes.as_chunks().0.iter().map(|&two| u32::from(u16::from_le_bytes(two)))),
            _ => out.extend(bytes.as_chunks().0.iter().map(|&four| u32::from_le_bytes(four))),
        }
        if let Some(id) = out[first..].iter().find(|&&id| id >= self.header.vocabulary) {
            let message = format!(
                "token {id} is beyond the vocabulary of {}; pack the texts again",
                self.header.vocabulary
            );
            return Err(self.corrupt_record(record, part, message));
        }
        Ok(())
    }

    fn label(&self, record: usize) -> Option<u32> {
        self.table.labels.get(record).copied()
    }

    fn fingerprint(&self) -> u64 {
        self.table.fingerprint
    }
}

impl fmt::Debug for PackedTokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({}, {} records, {} tokens)", self.place, self.table.count(), self.header.tokens)
    }
}
