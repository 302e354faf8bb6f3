//! Reading packed tokens.

use std::fmt;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use siskin::file::Bytes;
use siskin::{Error, ErrorKind, Result};

use super::{HEADER, Header, Layout};
use crate::data::records::{Records, Table};

/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// Where bytes come from.
trait Input: Read + Seek + Send {}

impl<I: Read + Seek + Send> Input for I {}

/// Packed tokens in a file. Tokens are read when they are wanted.
///
/// Where the file changes while it is open, reading gives an error or other tokens, but never an id that is too large.
pub struct Packed {
    input: Mutex<Box<dyn Input>>,
    place: String,
    header: Header,
    table: Table,
}

impl Packed {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let place = path.as_ref().display().to_string();
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io(&place, &error))?;
        if !metadata.is_file() {
            return Err(Error::unsupported(
                place,
                "is not a regular file; a file of packed tokens is wanted here",
            ));
        }
        let file = std::fs::File::open(path).map_err(|error| Error::io(&place, &error))?;
        Self::parse(Box::new(file), metadata.len(), &place).map_err(|error| error.within(&place))
    }

    /// Opens what is in memory already.
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let length = bytes.len() as u64;
        Self::parse(Box::new(Cursor::new(bytes)), length, "packed tokens")
    }

    fn parse(mut input: Box<dyn Input>, length: u64, place: &str) -> Result<Self> {
        let mut bytes = [0; HEADER];
        if length < HEADER as u64 {
            return Err(Error::corrupt(
                "header",
                format!("the file has {length} bytes, the header {HEADER}"),
            ));
        }
        input.read_exact(&mut bytes).map_err(|error| Error::io("header", &error))?;
        let header = Header::parse(&bytes)?;
        let layout = header.layout().filter(|layout| layout.end == length).ok_or_else(|| {
            let message = format!(
                "{} records and {} tokens do not fill the file's {length} bytes; it was cut off or changed, pack \
                 the texts again",
                header.records, header.tokens
            );
            Error::corrupt("header", message)
        })?;
        let table = table(&mut input, &header, layout)?;
        Ok(Self { input: Mutex::new(input), place: place.to_owned(), header, table })
    }

    /// The [identity](super::identity) of the tokenizer that made the tokens; 0 where it is not known.
    pub fn identity(&self) -> u64 {
        self.header.identity
    }

    /// Refuses tokens that another tokenizer made.
    pub fn expect(&self, identity: u64) -> Result<()> {
        if self.header.identity == identity || self.header.identity == 0 {
            return Ok(());
        }
        let message = "another tokenizer made these tokens; pack the texts again with the model's tokenizer";
        Err(Error::new(ErrorKind::Integrity, format!("{}: header.identity", self.place), message))
    }

    /// How many tokens all records have.
    pub fn tokens(&self) -> u64 {
        self.header.tokens
    }

    fn wrong(&self, record: usize, part: usize, message: String) -> Error {
        Error::corrupt(format!("{}: record {record}, part {part}", self.place), message)
    }
}

/// Reads `count` numbers of eight or four bytes. The caller has seen that the file is long enough.
fn numbers<const N: usize, T>(
    input: &mut dyn Input,
    place: &str,
    (offset, count): (u64, u64),
    of: fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    let io = |error: std::io::Error| Error::io(place, &error);
    let too_many = || Error::new(ErrorKind::Memory, place, format!("{count} numbers do not fit in memory"));
    let mut numbers = Vec::new();
    let count = usize::try_from(count).map_err(|_| too_many())?;
    numbers.try_reserve_exact(count).map_err(|_| too_many())?;
    input.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = vec![0; PIECE];
    while numbers.len() < count {
        let piece = &mut bytes[..((count - numbers.len()) * N).min(PIECE)];
        input.read_exact(piece).map_err(io)?;
        numbers.extend(piece.as_chunks::<N>().0.iter().map(|&bytes| of(bytes)));
    }
    Ok(numbers)
}

fn table(input: &mut Box<dyn Input>, header: &Header, layout: Layout) -> Result<Table> {
    let lists = header.records * u64::from(header.parts) + 1;
    let starts = numbers(input, "starts", (layout.starts, lists), u64::from_le_bytes)?;
    let wrong = |list: usize, message: &str| Err(Error::corrupt(format!("starts[{list}]"), message));
    if starts.first() != Some(&0) {
        return wrong(0, "the first list starts with the first token");
    }
    if let Some(list) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
        return wrong(list + 1, "lies before the list before");
    }
    if starts.last() != Some(&header.tokens) {
        return wrong(starts.len() - 1, "the last list does not end with the last token");
    }
    let classes = if header.labels { header.records } else { 0 };
    let labels = numbers(input, "labels", (layout.labels, classes), u32::from_le_bytes)?;
    Ok(Table { parts: header.parts as usize, starts, labels })
}

impl Records for Packed {
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
        let mut left = (range.end - range.start) as usize * width;
        let mut bytes = vec![0; left.min(PIECE)];
        let io = |error: std::io::Error| Error::io(&self.place, &error);
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        input.seek(SeekFrom::Start(HEADER as u64 + range.start * width as u64)).map_err(io)?;
        while left > 0 {
            let piece = &mut bytes[..left.min(PIECE)];
            input.read_exact(piece).map_err(io)?;
            left -= piece.len();
            let first = out.len();
            match width {
                2 => out.extend(piece.as_chunks().0.iter().map(|&two| u32::from(u16::from_le_bytes(two)))),
                _ => out.extend(piece.as_chunks().0.iter().map(|&four| u32::from_le_bytes(four))),
            }
            if let Some(id) = out[first..].iter().find(|&&id| id >= self.header.vocabulary) {
                let message = format!(
                    "token {id} is beyond the vocabulary of {}; pack the texts again",
                    self.header.vocabulary
                );
                return Err(self.wrong(record, part, message));
            }
        }
        Ok(())
    }

    fn label(&self, record: usize) -> Option<u32> {
        self.table.labels.get(record).copied()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({}, {} records, {} tokens)", self.place, self.table.count(), self.header.tokens)
    }
}
