//! Writes a `.siskin-kv` file: blocks first, then the other sections.

use super::{
    BLOCK_ALIGNMENT, BlockRecord, CONTAINER, KvIdentity, KvLayout, KvPositions, SectionKind, blocks_hash,
};
use crate::container::{HEADER_BYTES, Hash, REQUIRED, SECTION_ALIGNMENT, SECTION_BYTES, Section};
use crate::{Error, Result};
use std::ops::Range;

/// One section of each kind.
const SECTIONS: usize = 6;

/// Writes a `.siskin-kv` file to memory.
pub struct KvFileWriter {
    out: Vec<u8>,
    sections: Vec<Section>,
    /// The group, the index and the place of each block.
    blocks: Vec<(u32, u32, Range<usize>)>,
}

impl Default for KvFileWriter {
    fn default() -> Self {
        let mut writer = Self { out: Vec::new(), sections: Vec::new(), blocks: Vec::new() };
        writer.out.resize(HEADER_BYTES + SECTIONS * SECTION_BYTES, 0);
        writer.align(BLOCK_ALIGNMENT);
        writer
    }
}

impl KvFileWriter {
    /// Appends a block; `fill` appends its words. Blocks must be in ascending order of group and index. They are hashed
    /// by [`finish`](Self::finish), which another thread can call.
    pub fn block(
        &mut self,
        group: usize,
        index: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.align(BLOCK_ALIGNMENT);
        let start = self.out.len();
        fill(&mut self.out)?;
        self.blocks.push((number(group)?, number(index)?, start..self.out.len()));
        Ok(())
    }

    /// Appends the other sections, and returns the file. `session` is what else a session needs.
    pub fn finish(
        mut self,
        identity: &KvIdentity,
        layout: &KvLayout,
        tokens: &[u32],
        session: &[u8],
    ) -> Result<Vec<u8>> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        let record = |(group, index, place): (u32, u32, Range<usize>)| {
            let offset = place.start as u64;
            BlockRecord { group, index, offset, hash: *blake3::hash(&self.out[place]).as_bytes() }
        };
        let records: Vec<_> = blocks.map(record).collect();
        let start = HEADER_BYTES + SECTIONS * SECTION_BYTES;
        let start = (start as u64).next_multiple_of(BLOCK_ALIGNMENT);
        let length = self.out.len() as u64 - start;
        self.list(SectionKind::Blocks, start, length, blocks_hash(&records));
        self.section(SectionKind::Identity, &encode_identity(identity)?);
        self.section(SectionKind::Layout, &encode_layout(layout)?);
        self.section(SectionKind::Tokens, &words(tokens));
        self.section(SectionKind::BlockTable, &encode_records(&records));
        self.section(SectionKind::Session, session);
        let header = CONTAINER.encode(&self.sections, self.out.len() as u64);
        self.out[..header.len()].copy_from_slice(&header);
        Ok(self.out)
    }

    fn section(&mut self, kind: SectionKind, bytes: &[u8]) {
        self.align(SECTION_ALIGNMENT);
        let offset = self.out.len() as u64;
        self.out.extend_from_slice(bytes);
        self.list(kind, offset, bytes.len() as u64, *blake3::hash(bytes).as_bytes());
    }

    fn list(&mut self, kind: SectionKind, offset: u64, length: u64, hash: Hash) {
        self.sections.push(Section { number: kind as u32, flags: REQUIRED, offset, length, hash });
    }

    fn align(&mut self, alignment: u64) {
        self.out.resize(self.out.len().next_multiple_of(alignment as usize), 0);
    }
}

fn encode_identity(identity: &KvIdentity) -> Result<Vec<u8>> {
    let mut out = Vec::from(identity.model);
    out.extend(number(identity.skipped_layers.len())?.to_le_bytes());
    out.extend(words(&identity.skipped_layers));
    Ok(out)
}

fn encode_layout(layout: &KvLayout) -> Result<Vec<u8>> {
    let mut out = words(&[layout.block_positions, number(layout.groups.len())?]);
    for group in &layout.groups {
        let [kind, window, sinks] = match group.positions {
            KvPositions::Full => [0, 0, 0],
            KvPositions::SlidingWindow { window, sinks } => [1, window, sinks],
            KvPositions::Transient => [2, 0, 0],
            KvPositions::CrossAttention => [3, 0, 0],
            KvPositions::RecurrentState => [4, 0, 0],
        };
        let name = group.block_format.as_bytes();
        out.extend(words(&[kind, window, sinks, group.block_words, number(name.len())?]));
        out.extend_from_slice(name);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    Ok(out)
}

fn encode_records(records: &[BlockRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend(words(&[record.group, record.index]));
        out.extend(record.offset.to_le_bytes());
        out.extend(record.hash);
    }
    out
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn number(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::unsupported("session", "too long to be saved"))
}
