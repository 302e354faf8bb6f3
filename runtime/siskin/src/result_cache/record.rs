//! The file format of a cache.
//!
//! Little-endian: the magic, the version (u32), zero (u32), the number of entries (u64); for each entry its key (32
//! bytes), when it was stored (u64, milliseconds since 1970), the columns of its vector (u32; 0: no vector), the length
//! of its value (u32), its index (32 bytes) and its vector (f32) if it has one, its value; at the end the BLAKE3 hash
//! of all bytes before it.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::Key;
use super::index::is_unit;
use super::store::CacheStore;
use crate::{Error, ErrorKind, Result};
use siskin_format::file::AtomicFile;

const MAGIC: [u8; 8] = *b"SISKMEMO";
const VERSION: u32 = 1;
const HASH_BYTES: usize = 32;
/// The maximum file size, in bytes.
const MAX_BYTES: u64 = 1 << 31;

/// An entry of a file.
pub(super) struct CacheRecord<'a> {
    pub key: Key,
    pub index: Option<(Key, Vec<f32>)>,
    pub value: &'a [u8],
    pub stored: u64,
}

/// Serializes the entries of `store` that have not expired.
pub(super) fn write(store: &CacheStore, now: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(store.bytes());
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 4]);
    let at = out.len();
    out.extend([0; 8]);
    let mut count = 0_u64;
    store.each(now, |key, vector, value, stored| {
        let (Ok(length), Ok(columns)) =
            (u32::try_from(value.len()), u32::try_from(vector.map_or(0, |(_, vector)| vector.len())))
        else {
            return;
        };
        count += 1;
        out.extend(key.bytes());
        out.extend(stored.to_le_bytes());
        out.extend(columns.to_le_bytes());
        out.extend(length.to_le_bytes());
        if let Some((index, vector)) = vector {
            out.extend(index.bytes());
            out.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
        }
        out.extend(value);
    });
    out[at..at + 8].copy_from_slice(&count.to_le_bytes());
    let hash = blake3::hash(&out);
    out.extend(hash.as_bytes());
    out
}

/// The bytes that remain to be parsed.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, place: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| Error::corrupt(place, "the file is truncated"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, place: &str) -> Result<[u8; N]> {
        let bytes = self.take(N, place)?;
        bytes.try_into().map_err(|_| Error::corrupt(place, "the file is truncated"))
    }

    fn length(&mut self, place: &str) -> Result<usize> {
        Ok(u32::from_le_bytes(self.array(place)?) as usize)
    }
}

/// Parses the entries in `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<CacheRecord<'_>>> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::corrupt("result cache", "not a saved result cache"));
    }
    let (body, hash) = bytes
        .split_last_chunk::<HASH_BYTES>()
        .ok_or_else(|| Error::corrupt("result cache", "ends before its hash"))?;
    let mut reader = Reader { rest: body };
    reader.take(MAGIC.len(), "result cache")?;
    let version = u32::from_le_bytes(reader.array("result_cache.version")?);
    if version != VERSION {
        let message = format!("version {version}, expected {VERSION}; remove the file");
        return Err(Error::new(ErrorKind::Version, "result_cache.version", message));
    }
    if blake3::hash(body).as_bytes() != hash {
        return Err(Error::new(ErrorKind::Integrity, "result cache", "hash mismatch; remove the file"));
    }
    if u32::from_le_bytes(reader.array("result_cache.reserved")?) != 0 {
        return Err(Error::corrupt("result_cache.reserved", "not zero"));
    }
    let count = u64::from_le_bytes(reader.array("result_cache.count")?);
    let mut records = Vec::new();
    for index in 0..count {
        records.push(record(&mut reader, &format!("result_cache[{index}]"))?);
    }
    match reader.rest.is_empty() {
        true => Ok(records),
        false => Err(Error::corrupt("result_cache.count", "trailing bytes")),
    }
}

fn record<'a>(reader: &mut Reader<'a>, place: &str) -> Result<CacheRecord<'a>> {
    let key = Key::from_bytes(reader.array(place)?);
    let stored = u64::from_le_bytes(reader.array(place)?);
    let columns = reader.length(place)?;
    let length = reader.length(place)?;
    let index = match columns {
        0 => None,
        _ => {
            let index = Key::from_bytes(reader.array(place)?);
            let bytes = reader.take(columns.saturating_mul(4), place)?;
            let vector: Vec<f32> =
                bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            if !is_unit(&vector) {
                return Err(Error::corrupt(format!("{place}.vector"), "not normalized"));
            }
            Some((index, vector))
        }
    };
    Ok(CacheRecord { key, index, value: reader.take(length, place)?, stored })
}

/// Returns the bytes of the file at `path`; `None` if it does not exist.
pub(super) fn read_file(path: &Path) -> Result<Option<Vec<u8>>> {
    let place = path.display().to_string();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(place, &error)),
    };
    if !metadata.is_file() {
        return Err(Error::argument(place, "not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(Error::new(ErrorKind::Memory, place, format!("{} bytes are too many", metadata.len())));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| Error::io(&place, &error))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| Error::io(&place, &error))?;
    Ok(Some(bytes))
}

/// Writes a file atomically.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() as u64 > MAX_BYTES {
        let place = path.display().to_string();
        return Err(Error::new(ErrorKind::Memory, place, format!("{} bytes are too many", bytes.len())));
    }
    AtomicFile::create(path)?.commit_bytes(bytes)
}
