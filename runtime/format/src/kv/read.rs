//! Reads a `.siskin-kv` file, which is untrusted.

use super::{
    BLOCK_ALIGNMENT, BlockRecord, CONTAINER, KvGroup, KvIdentity, KvLayout, KvPositions, RECORD_BYTES,
    SectionKind, blocks_hash,
};
use crate::container::{FieldReader, Section};
use crate::{Error, ErrorKind, Result};

/// A parsed `.siskin-kv` file. All of it is validated except the words of the blocks, whose hashes
/// [`block`](Self::block) compares.
#[derive(Debug)]
pub struct KvFile<'a> {
    bytes: &'a [u8],
    /// The model that computed the KV cache.
    pub identity: KvIdentity,
    /// The layout of the blocks.
    pub layout: KvLayout,
    /// The tokens of the sequence.
    pub tokens: Vec<u32>,
    pub(super) records: Vec<BlockRecord>,
    /// What else a session needs.
    pub session: &'a [u8],
    has_verified_blocks: bool,
}

impl<'a> KvFile<'a> {
    /// Parses a file.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] for another major version, [`ErrorKind::Integrity`] for a wrong hash, and
    /// [`ErrorKind::Corrupt`] for anything else that `docs/format-kv.md` rules out.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let sections = CONTAINER.sections(bytes)?;
        let section = |kind: SectionKind| {
            let section = sections.iter().find(|section| section.number == kind as u32);
            section.ok_or_else(|| Error::corrupt(format!("section table: {}", kind.name()), "missing"))
        };
        let checked = |kind: SectionKind| {
            let section = section(kind)?;
            let content = bytes.get(section.range()).unwrap_or_default();
            match *blake3::hash(content).as_bytes() == section.hash {
                true => Ok(content),
                false => Err(differs(kind.name())),
            }
        };
        let identity = identity(checked(SectionKind::Identity)?)?;
        let layout = layout(checked(SectionKind::Layout)?)?;
        let tokens = words("tokens", checked(SectionKind::Tokens)?)?;
        let blocks = section(SectionKind::Blocks)?;
        let records = records(checked(SectionKind::BlockTable)?, &layout.groups, blocks)?;
        if blocks_hash(&records) != blocks.hash {
            return Err(differs(SectionKind::Blocks.name()));
        }
        let session = checked(SectionKind::Session)?;
        Ok(Self { bytes, identity, layout, tokens, records, session, has_verified_blocks: false })
    }

    /// Declares that the hashes of all blocks that will be used were compared before, with the same bytes.
    #[must_use]
    pub fn assume_verified(self) -> Self {
        Self { has_verified_blocks: true, ..self }
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of each block of a group, ascending.
    pub fn block_numbers(&self, group: usize) -> impl Iterator<Item = usize> {
        self.records
            .iter()
            .filter(move |record| record.group as usize == group)
            .map(|record| record.index as usize)
    }

    /// Returns the words of block `index` of a group, or `None` if the file does not have it.
    ///
    /// # Errors
    /// [`ErrorKind::Integrity`] if they are damaged.
    pub fn block(&self, group: usize, index: usize) -> Result<Option<&'a [[u8; 4]]>> {
        let key = |record: &BlockRecord| (record.group as usize, record.index as usize);
        let Ok(at) = self.records.binary_search_by_key(&(group, index), key) else { return Ok(None) };
        let (record, words) = (&self.records[at], self.layout.groups[group].block_words as usize);
        let start = record.offset as usize;
        let content = self.bytes.get(start..start + 4 * words).unwrap_or_default();
        match self.has_verified_blocks || *blake3::hash(content).as_bytes() == record.hash {
            true => Ok(Some(content.as_chunks().0)),
            false => Err(differs(&format!("block {index} of group {group}"))),
        }
    }
}

fn differs(name: &str) -> Error {
    Error::new(ErrorKind::Integrity, name, "hash mismatch: the file is corrupt; save it again")
}

fn identity(bytes: &[u8]) -> Result<KvIdentity> {
    let mut fields = FieldReader { rest: bytes, location: "identity" };
    let (model, count) = (fields.array("model")?, fields.u32("skipped_layers")? as usize);
    let skipped_layers = words("identity.skipped_layers", fields.rest)?;
    match skipped_layers.len() == count {
        true => Ok(KvIdentity { model, skipped_layers }),
        false => Err(fields.corrupt("skipped_layers", format!("{count} do not end with the section"))),
    }
}

fn layout(bytes: &[u8]) -> Result<KvLayout> {
    let mut fields = FieldReader { rest: bytes, location: "layout" };
    let block_positions = fields.u32("block_positions")?;
    let mut groups = Vec::new();
    for _ in 0..fields.u32("groups")? {
        let (kind, window, sinks) = (fields.u32("kind")?, fields.u32("window")?, fields.u32("sinks")?);
        let positions = match kind {
            0 => KvPositions::Full,
            1 => KvPositions::SlidingWindow { window, sinks },
            2 => KvPositions::Transient,
            3 => KvPositions::CrossAttention,
            4 => KvPositions::RecurrentState,
            other => return Err(fields.corrupt("kind", format!("unknown kind {other}; update Siskin"))),
        };
        let (block_words, length) = (fields.u32("block_words")?, fields.u32("block_format")? as usize);
        let name = fields.take(length, "block_format")?;
        let block_format = std::str::from_utf8(name)
            .map_err(|error| fields.corrupt("block_format", error.to_string()))?
            .to_owned();
        fields.take(length.next_multiple_of(4) - length, "block_format")?;
        groups.push(KvGroup { positions, block_words, block_format });
    }
    match fields.rest.is_empty() {
        true => Ok(KvLayout { block_positions, groups }),
        false => Err(fields.corrupt("groups", "trailing bytes")),
    }
}

/// Parses the block table: records in ascending order, each with its block inside the section, behind the one before.
fn records(bytes: &[u8], groups: &[KvGroup], blocks: &Section) -> Result<Vec<BlockRecord>> {
    let mut fields = FieldReader { rest: bytes, location: "block table" };
    let mut records: Vec<BlockRecord> = Vec::with_capacity(bytes.len() / RECORD_BYTES);
    let mut free = blocks.offset;
    while !fields.rest.is_empty() {
        let (group, index, offset) = (fields.u32("group")?, fields.u32("index")?, fields.u64("offset")?);
        let record = BlockRecord { group, index, offset, hash: fields.array("hash")? };
        let Some(layout) = groups.get(group as usize) else {
            return Err(fields.corrupt("group", format!("{group}; the layout has {} groups", groups.len())));
        };
        if records.last().is_some_and(|last| (last.group, last.index) >= (group, index)) {
            return Err(fields.corrupt("index", "not in ascending order"));
        }
        let end = offset.checked_add(4 * u64::from(layout.block_words));
        let end = end.filter(|&end| end <= blocks.offset + blocks.length);
        if offset < free || !offset.is_multiple_of(BLOCK_ALIGNMENT) {
            return Err(fields.corrupt("offset", "overlaps another block, or not aligned"));
        }
        free = end.ok_or_else(|| fields.corrupt("offset", "reaches past the end of the blocks"))?;
        records.push(record);
    }
    Ok(records)
}

fn words(location: &str, bytes: &[u8]) -> Result<Vec<u32>> {
    match bytes.as_chunks() {
        (words, []) => Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect()),
        _ => Err(Error::corrupt(location, "not a whole number of words")),
    }
}
