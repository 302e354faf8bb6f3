//! The contents of KV cache blocks in host memory, in the layout of the CPU's attention kernels.

mod block_memory;

use super::block_table::{
    BlockCopy, BlockId, BlockLayout, BlockTable, KvGroupKind, KvGroupLayout, NO_BLOCK, SequenceId,
};
use super::{BlockFormat, BlockStorage, ForwardPass};
use block_memory::BlockMemory;
use siskin_format::{Error, Result};
use siskin_graph::Attention;
use siskin_kernels::ops::attention::{self, BLOCK, CacheType};

/// The location of a layer's keys and values in the blocks of its group.
#[derive(Clone, Copy, Debug)]
pub struct LayerPlace {
    /// The group.
    pub group: usize,
    /// Words from the start of a block to the layer.
    pub offset: usize,
    /// Words of the keys (and of the values) of one head.
    pub head_words: usize,
}

/// Where the keys, values and states of all layers are in the blocks of their groups.
#[derive(Debug)]
pub struct KvStorageLayout {
    layers: Vec<Option<LayerPlace>>,
    /// Offset of each recurrent state in the block of its group.
    states: Vec<usize>,
    /// Words of a block of each group.
    block_words: Vec<usize>,
    /// The element type of each group.
    types: Vec<CacheType>,
    state_group: Option<usize>,
}

impl KvStorageLayout {
    /// Lays out the blocks for the attention layers and recurrent states of some passes.
    pub fn new(passes: &[ForwardPass], blocks: &BlockLayout) -> Result<Self> {
        let mut block_words = vec![0_usize; blocks.groups.len()];
        let types: Vec<CacheType> =
            blocks.groups.iter().map(|group| blocks.options.types.of(group.kind)).collect();
        // The two graphs of a model reuse state indices, but at different times.
        let mut sizes: Vec<usize> = Vec::new();
        for (state, size) in passes.iter().flat_map(|pass| pass.graph.states()) {
            sizes.resize(sizes.len().max(state + 1), 0);
            sizes[state] = sizes[state].max(size.div_ceil(16).saturating_mul(16));
        }
        let mut states = Vec::new();
        let mut end = 0_usize;
        for size in sizes {
            states.push(end);
            end = end.saturating_add(size);
        }
        let state_group = blocks.state_group();
        if let Some(group) = state_group {
            block_words[group] = end;
        }
        let mut layers: Vec<Option<LayerPlace>> = Vec::new();
        for attention in passes.iter().flat_map(|pass| pass.graph.attentions()) {
            let is_placed = layers.get(attention.layer).is_some_and(Option::is_some);
            let Some(group) = blocks.group_of(attention.layer).filter(|_| !is_placed) else { continue };
            let cached = types[group];
            if attention.head_size > cached.max_columns() {
                let message = format!("heads of {} columns are not supported; use f16", attention.head_size);
                return Err(Error::unsupported("cache", message));
            }
            let head_words = cached.words(attention.head_size);
            let layer_words = 2 * head_words * attention.kv_heads;
            let is_transient = blocks.groups[group].kind == KvGroupKind::Transient;
            let offset = if is_transient { 0 } else { block_words[group] };
            block_words[group] = block_words[group].max(offset + layer_words);
            layers.resize(layers.len().max(attention.layer + 1), None);
            layers[attention.layer] = Some(LayerPlace { group, offset, head_words });
        }
        Ok(Self { layers, states, block_words, types, state_group })
    }

    /// Returns where the keys and values of a layer are.
    pub fn layer(&self, layer: usize) -> Option<LayerPlace> {
        *self.layers.get(layer)?
    }

    /// Returns the group of a recurrent state, and the words from the start of a block to it.
    pub fn state(&self, state: usize) -> Option<(usize, usize)> {
        Some((self.state_group?, *self.states.get(state)?))
    }

    /// Returns the element type of a group.
    pub fn cache_type(&self, group: usize) -> CacheType {
        self.types[group]
    }

    /// Returns the words of a block of a group.
    pub fn block_words(&self, group: usize) -> usize {
        self.block_words[group]
    }

    /// Returns the format of the blocks of a group.
    pub fn format(&self, group: usize) -> BlockFormat {
        let element = match self.types[group] {
            CacheType::F32 => "F32",
            CacheType::F16 => "F16",
            CacheType::Int8 => "Int8",
            CacheType::Int14 => "Int14",
        };
        let words = self.block_words[group];
        BlockFormat { name: format!("{element} {words}"), words }
    }

    /// Returns the size of a block of each group.
    pub fn block_bytes(&self) -> Vec<usize> {
        self.block_words.iter().map(|words| words.saturating_mul(4)).collect()
    }

    /// Returns the bytes of all blocks, saturating.
    pub fn bytes(&self, blocks: &BlockLayout) -> usize {
        let bytes = |(words, group): (&usize, &KvGroupLayout)| {
            words.saturating_mul(group.block_count).saturating_mul(4)
        };
        self.block_words.iter().zip(&blocks.groups).map(bytes).fold(0, usize::saturating_add)
    }
}

/// The keys, values and recurrent states of all layers and sequences.
pub(super) struct KvStorage {
    layout: KvStorageLayout,
    groups: Vec<BlockMemory>,
}

impl KvStorage {
    /// Reserves memory for all blocks, which the system commits as it fills.
    pub(super) fn new(layout: KvStorageLayout, blocks: &BlockLayout) -> Result<Self> {
        let memory = |(words, group): (&usize, &KvGroupLayout)| BlockMemory::new(*words, group.block_count);
        let groups = layout.block_words.iter().zip(&blocks.groups).map(memory).collect::<Result<_>>()?;
        Ok(Self { layout, groups })
    }

    /// Returns the blocks together with the table that says whose they are.
    pub(super) fn view<'a>(&'a self, table: &'a BlockTable) -> KvView<'a> {
        KvView { table, storage: self }
    }
}

impl BlockStorage for KvStorage {
    fn bytes(&self) -> usize {
        self.groups.iter().map(BlockMemory::bytes).sum()
    }

    fn copy(&mut self, BlockCopy { group, from, to }: BlockCopy) -> Result<()> {
        self.groups[group].copy(from, to);
        Ok(())
    }

    fn format(&self, group: usize) -> Result<BlockFormat> {
        Ok(self.layout.format(group))
    }

    fn export(&self, group: usize, block: BlockId, out: &mut Vec<u8>) -> Result<()> {
        let words = self.groups[group].words(block, 0, self.groups[group].block_words());
        out.reserve(4 * words.len());
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        Ok(())
    }

    fn import(&mut self, group: usize, block: BlockId, words: &[[u8; 4]]) -> Result<()> {
        self.groups[group].fill(block, words);
        Ok(())
    }

    fn release(&mut self, group: usize, free: &[BlockId]) {
        self.groups[group].release(free);
    }
}

/// The storage and the block table, during a pass.
#[derive(Clone, Copy)]
pub(super) struct KvView<'a> {
    pub table: &'a BlockTable,
    storage: &'a KvStorage,
}

impl<'a> KvView<'a> {
    /// Returns the layer's keys and values of a sequence, for reading and storing.
    pub(super) fn layer(self, attention: &Attention, id: SequenceId) -> Option<LayerView<'a>> {
        let place = (*self.storage.layout.layers.get(attention.layer)?)?;
        let memory = self.storage.groups.get(place.group)?;
        let blocks = self.table.blocks(id, place.group)?;
        Some(LayerView { place, memory, blocks, cached: self.storage.layout.types[place.group] })
    }

    /// Returns a recurrent state of a sequence.
    pub(super) fn state(self, state: usize, id: SequenceId) -> Option<StateView<'a>> {
        let (group, offset) = self.storage.layout.state(state)?;
        let &[before, now] = self.table.blocks(id, group)? else { return None };
        let before = Some(before).filter(|&block| block != NO_BLOCK);
        Some(StateView { memory: &self.storage.groups[group], before, now, offset })
    }
}

/// A layer's keys and values of one sequence.
#[derive(Clone, Copy)]
pub(super) struct LayerView<'a> {
    place: LayerPlace,
    memory: &'a BlockMemory,
    blocks: &'a [BlockId],
    cached: CacheType,
}

impl<'a> LayerView<'a> {
    /// Returns the element type.
    pub(super) fn cached(self) -> CacheType {
        self.cached
    }

    /// Returns the keys and values of one head.
    pub(super) fn head(self, head: usize) -> HeadView<'a> {
        HeadView { offset: self.place.offset + 2 * head * self.place.head_words, layer: self }
    }
}

/// The keys and values of one head.
#[derive(Clone, Copy)]
pub(super) struct HeadView<'a> {
    layer: LayerView<'a>,
    offset: usize,
}

impl attention::HeadCache for HeadView<'_> {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[block];
        self.layer.memory.words(index, self.offset, 2 * words).split_at(words)
    }
}

impl HeadView<'_> {
    /// Stores keys and values from a position on; all must lie in one block.
    ///
    /// # Safety
    /// During the call, no other thread may read or write this head's part of the block that holds `position`.
    pub(super) unsafe fn store(&self, position: usize, pairs: &[attention::Pair<'_>]) {
        debug_assert!(position % BLOCK + pairs.len() <= BLOCK, "pairs beyond their block");
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[position / BLOCK];
        // SAFETY: these are the head's keys and values in the block, which no other thread accesses (see `# Safety`).
        let part = unsafe { self.layer.memory.words_mut(index, self.offset, 2 * words) };
        let (keys, values) = part.split_at_mut(words);
        attention::store(self.layer.cached, position % BLOCK, pairs, keys, values);
    }
}

/// A recurrent state of one sequence.
#[derive(Clone, Copy)]
pub(super) struct StateView<'a> {
    memory: &'a BlockMemory,
    before: Option<BlockId>,
    now: BlockId,
    offset: usize,
}

impl StateView<'_> {
    /// Returns the new values `start..start + count`, initialized from the old ones, or with zeros if there are none.
    ///
    /// # Safety
    /// No other thread may access these values while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "workers write disjoint parts of one state")]
    pub(super) unsafe fn begin(&self, start: usize, count: usize) -> &mut [f32] {
        // SAFETY: no other thread accesses these values while the slice is alive (see `# Safety`).
        let words = unsafe { self.memory.words_mut(self.now, self.offset + start, count) };
        match self.before {
            Some(before) => words.copy_from_slice(self.memory.words(before, self.offset + start, count)),
            None => words.fill(0),
        }
        // SAFETY: f32 and u32 have the same size and alignment, and all bits are valid for both.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) }
    }
}

#[cfg(test)]
mod tests;
