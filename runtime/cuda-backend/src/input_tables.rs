//! What is copied to the device for each batch: tokens, positions, ranges of keys, and block lists, at fixed places for
//! batches of up to a number of rows.

use siskin_backend::block_table::{BlockTable, NO_BLOCK, SequenceId};
use siskin_backend::kv_storage::KvStorageLayout;
use siskin_backend::{Batch, place, second_place};
use siskin_device::DevicePtr;
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask, RopeTable, RowKind};
use siskin_kernels::ops::attention::{BLOCK, CHUNK, RUNS};

/// Words of the key ranges of a row: the first position of each, then the last: `QueryRanges` in `paged_attention.cu`.
const RANGE_WORDS: usize = 2 * RUNS;
/// Tables begin at multiples of this many words.
const ALIGNMENT: usize = 4;

/// Where the tables are, in words from the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputTables {
    /// The maximum number of rows.
    rows: usize,
    /// The number of tokens, then those of output rows and of frames.
    counts: usize,
    /// The number of slots, by the number of slots of a row.
    slot_counts: Vec<(usize, usize)>,
    /// By row: whether a run of rows of a sequence begins.
    run_starts: Option<usize>,
    pub tokens: usize,
    pub token_types: usize,
    pub positions: usize,
    pub output_rows: usize,
    /// The cosines and sines of each row, for each RoPE table that the graph uses, with words per row.
    ropes: Vec<(usize, usize, usize)>,
    /// The maximum number of frames.
    frames: usize,
    /// External input, with words per row.
    external: Option<(usize, usize)>,
    /// Input features, with words per frame.
    features: Option<usize>,
    taps: Vec<(Taps, usize)>,
    groups: Vec<GroupTables>,
    sequences: Option<SequenceList>,
    /// A group with recurrent states, and by sequence the block that is read, −1 if there is none, and that which is
    /// written.
    states: Option<(usize, usize)>,
    masks: Vec<(Attention, usize)>,
    tiles: Vec<TileTable>,
    /// A group with global tokens, and by row the block and the position of its second place, −1 without one.
    second_places: Option<(usize, usize, usize)>,
    /// By row: the bias of a global token's position.
    global_bias: Option<usize>,
    /// Attention with a bias by position, and by row the first value and their number.
    key_biases: Vec<(Attention, usize)>,
    /// Rows of global tokens, as tiles of one row.
    global_tiles: Option<TileTable>,
    /// The end of the tables, where block lists begin.
    lists: usize,
}

/// The blocks of a KV cache group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupTables {
    group: usize,
    /// By row: the block of its position.
    pub stores: usize,
    /// By row: where the block list of its sequence begins, counted from the first list.
    pub starts: usize,
}

/// Which rows an im2col concatenates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taps {
    pub offsets: Vec<isize>,
    pub stride: usize,
    /// The kinds of rows of the input and the output.
    pub rows: [RowKind; 2],
}

/// The rows of each sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceList {
    /// The number of sequences.
    pub count: usize,
    /// By sequence: the index of its first row in `rows`; then the end of the last one's.
    pub starts: usize,
    /// The rows, by sequence.
    pub rows: usize,
}

/// Rows that attention kernels compute together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileTable {
    /// The maximum number of rows in a tile.
    rows: usize,
    /// The number of tiles.
    pub count: usize,
    /// By tile: its first row and its number of rows.
    pub tiles: usize,
}

impl InputTables {
    /// Creates tables for batches of up to `rows` rows and `frames` frames.
    pub(crate) fn new(rows: usize, frames: usize) -> Self {
        let mut tables = Self { rows, frames, ..Self::default() };
        tables.counts = tables.add(4);
        tables.tokens = tables.add(rows);
        tables.token_types = tables.add(rows);
        tables.positions = tables.add(rows);
        tables.output_rows = tables.add(rows);
        tables
    }

    fn add(&mut self, words: usize) -> usize {
        let start = self.lists;
        self.lists = (start + words).next_multiple_of(ALIGNMENT);
        start
    }

    /// Returns where the number of rows of a kind is.
    pub(crate) fn count(&self, rows: RowKind) -> usize {
        match rows {
            RowKind::Tokens => self.counts,
            RowKind::Outputs => self.counts + 1,
            RowKind::Frames => self.counts + 2,
            RowKind::Slots(top_k) => {
                let known = self.slot_counts.iter().find(|(known, _)| *known == top_k);
                known.map_or(self.counts, |(_, place)| *place)
            }
        }
    }

    /// Adds the number of slots of rows that select `top_k` experts, on first use.
    pub(crate) fn add_slot_count(&mut self, top_k: usize) {
        if self.slot_counts.iter().all(|(known, _)| *known != top_k) {
            let place = self.add(1);
            self.slot_counts.push((top_k, place));
        }
    }

    /// Returns where it says which rows begin a run of rows of a sequence, adding that on first use.
    pub(crate) fn run_starts(&mut self) -> usize {
        if let Some(start) = self.run_starts {
            return start;
        }
        let start = self.add(self.rows);
        self.run_starts = Some(start);
        start
    }

    /// Returns where the cosines and sines of a RoPE table are, adding them on first use.
    pub(crate) fn rope(&mut self, rope: usize, columns: usize) -> usize {
        if let Some((_, start, _)) = self.ropes.iter().find(|(known, ..)| *known == rope) {
            return *start;
        }
        let start = self.add(self.rows * columns);
        self.ropes.push((rope, start, columns));
        start
    }

    /// Returns where the external input is.
    pub(crate) fn external_input(&mut self, columns: usize) -> usize {
        if let Some((start, _)) = self.external {
            return start;
        }
        let start = self.add(self.rows * columns);
        self.external = Some((start, columns));
        start
    }

    /// Returns where the input features are.
    pub(crate) fn features(&mut self, columns: usize) -> usize {
        if let Some(start) = self.features {
            return start;
        }
        let start = self.add(self.frames * columns);
        self.features = Some(start);
        start
    }

    /// Returns where the rows of an im2col are named, adding them on first use.
    pub(crate) fn taps(&mut self, taps: &Taps) -> usize {
        if let Some((_, start)) = self.taps.iter().find(|(known, _)| known == taps) {
            return *start;
        }
        let rows = if taps.rows[1] == RowKind::Frames { self.frames } else { self.rows };
        let start = self.add(rows * taps.offsets.len());
        self.taps.push((taps.clone(), start));
        start
    }

    /// Returns the tables of a KV cache group, adding them on first use.
    pub(crate) fn group(&mut self, group: usize) -> GroupTables {
        if let Some(known) = self.groups.iter().find(|known| known.group == group) {
            return *known;
        }
        let tables = GroupTables { group, stores: self.add(self.rows), starts: self.add(self.rows) };
        self.groups.push(tables);
        tables
    }

    /// Returns the rows of each sequence, adding them on first use.
    pub(crate) fn sequences(&mut self) -> SequenceList {
        if let Some(known) = self.sequences {
            return known;
        }
        let tables =
            SequenceList { count: self.add(1), starts: self.add(self.rows + 1), rows: self.add(self.rows) };
        self.sequences = Some(tables);
        tables
    }

    /// Returns where the blocks with the states of each sequence are, adding them on first use.
    pub(crate) fn states(&mut self, group: usize) -> usize {
        if let Some((_, start)) = self.states {
            return start;
        }
        let start = self.add(2 * self.rows);
        self.states = Some((group, start));
        start
    }

    /// Returns where the key ranges of an attention mask are, adding them on first use.
    pub(crate) fn ranges(&mut self, attention: &Attention) -> usize {
        let same = |known: &Attention| {
            known.attention_mask == attention.attention_mask && known.projection == attention.projection
        };
        if let Some((_, start)) = self.masks.iter().find(|(known, _)| same(known)) {
            return *start;
        }
        let start = self.add(self.rows * RANGE_WORDS);
        self.masks.push((attention.clone(), start));
        start
    }

    /// Returns the tiles of up to `rows` rows, adding them on first use.
    pub(crate) fn tiles(&mut self, rows: usize) -> TileTable {
        if let Some(known) = self.tiles.iter().find(|known| known.rows == rows) {
            return *known;
        }
        let count = self.add(1);
        let table = TileTable { rows, count, tiles: self.add(2 * self.rows) };
        self.tiles.push(table);
        table
    }

    /// Returns where global tokens are stored a second time, adding that on first use: the blocks and the positions.
    pub(crate) fn second_places(&mut self, group: usize) -> [usize; 2] {
        if let Some((_, blocks, positions)) = self.second_places {
            return [blocks, positions];
        }
        let (blocks, positions) = (self.add(self.rows), self.add(self.rows));
        self.second_places = Some((group, blocks, positions));
        [blocks, positions]
    }

    /// Returns where the bias of global tokens' positions is, adding it on first use.
    pub(crate) fn global_bias(&mut self) -> usize {
        if let Some(start) = self.global_bias {
            return start;
        }
        let start = self.add(self.rows);
        self.global_bias = Some(start);
        start
    }

    /// Returns where it says which bias by position the rows have, adding that on first use.
    pub(crate) fn key_bias_ranges(&mut self, attention: &Attention) -> usize {
        let mask = attention.attention_mask;
        if let Some((_, start)) = self.key_biases.iter().find(|(known, _)| known.attention_mask == mask) {
            return *start;
        }
        let start = self.add(2 * self.rows);
        self.key_biases.push((attention.clone(), start));
        start
    }

    /// Returns the rows of global tokens as tiles, adding them on first use.
    pub(crate) fn global_tiles(&mut self) -> TileTable {
        if let Some(known) = self.global_tiles {
            return known;
        }
        let table = TileTable { rows: 1, count: self.add(1), tiles: self.add(2 * self.rows) };
        self.global_tiles = Some(table);
        table
    }

    /// Returns the address of a place in tables that are at `base`.
    pub(crate) fn ptr(base: DevicePtr, place: usize) -> DevicePtr {
        base + 4 * place as DevicePtr
    }

    /// Returns the maximum number of chunks of keys that one of `rows` rows in filled tables attends to in its first
    /// range.
    pub(crate) fn max_chunks(&self, words: &[u32], rows: usize) -> usize {
        let ranges =
            self.masks.iter().flat_map(|(_, start)| words[*start..].chunks_exact(RANGE_WORDS).take(rows));
        let chunks = ranges.map(|range| range[RUNS] as usize / CHUNK - range[0] as usize / CHUNK + 1);
        chunks.max().unwrap_or(1)
    }

    /// Returns where block lists begin.
    pub(crate) fn lists(&self) -> usize {
        self.lists
    }

    /// Fills `words` with the tables of a batch. Returns the number of words to copy.
    ///
    /// # Errors
    /// If the block lists of the batch do not fit.
    pub(crate) fn fill(
        &self,
        ropes: &[RopeTable],
        batch: &Batch,
        table: &BlockTable,
        storage: &KvStorageLayout,
        words: &mut [u32],
    ) -> Result<usize> {
        words[self.counts] = batch.rows.len() as u32;
        words[self.counts + 1] = batch.output_rows.len() as u32;
        words[self.counts + 2] = batch.frames.len() as u32;
        for (top_k, place) in &self.slot_counts {
            words[*place] = (batch.rows.len() * top_k) as u32;
        }
        if let Some(start) = self.run_starts {
            let mut before = None;
            for (word, row) in words[start..].iter_mut().zip(&batch.rows) {
                *word = u32::from(before.replace(row.sequence) != Some(row.sequence));
            }
        }
        for (row, token) in batch.rows.iter().enumerate() {
            words[self.tokens + row] = token.token;
            words[self.token_types + row] = token.token_type;
            words[self.positions + row] = token.position as u32;
        }
        for (index, row) in batch.output_rows.iter().enumerate() {
            words[self.output_rows + index] = *row as u32;
        }
        self.fill_floats(ropes, batch, words);
        self.fill_sequences(batch, table, words);
        self.fill_global_tokens(batch, table, words);
        for (attention, start) in &self.masks {
            for (row, token) in batch.rows.iter().enumerate() {
                let place = place(*token, table);
                let (first, last) = attention.seen(place);
                let ranges = &mut words[start + row * RANGE_WORDS..][..RANGE_WORDS];
                let others = attention.also_seen(place).map(|range| range.unwrap_or((1, 0)));
                let all = [(first, last)].into_iter().chain(others);
                let (firsts, lasts) = ranges.split_at_mut(RUNS);
                for ((first, last), range) in firsts.iter_mut().zip(lasts).zip(all) {
                    (*first, *last) = (range.0 as u32, range.1 as u32);
                }
            }
        }
        for tiles in &self.tiles {
            let mut count = 0;
            let mut row = 0;
            for rows in batch.rows.chunk_by(|a, b| a.sequence == b.sequence) {
                for tile in rows.chunks(tiles.rows) {
                    words[tiles.tiles + 2 * count] = row;
                    words[tiles.tiles + 2 * count + 1] = tile.len() as u32;
                    row += tile.len() as u32;
                    count += 1;
                }
            }
            words[tiles.count] = count as u32;
        }
        self.fill_lists(batch, table, storage, words)
    }

    fn fill_floats(&self, ropes: &[RopeTable], batch: &Batch, words: &mut [u32]) {
        for &(rope, start, columns) in &self.ropes {
            let mut angles = vec![0.0; columns];
            for (row, token) in batch.rows.iter().enumerate() {
                token.rope_frequencies(&ropes[rope], &mut angles);
                let out = &mut words[start + row * columns..][..columns];
                out.iter_mut().zip(&angles).for_each(|(word, angle)| *word = angle.to_bits());
            }
        }
        if let Some((start, _)) = self.external {
            let out = words[start..].iter_mut().zip(&batch.external_input);
            out.for_each(|(word, value)| *word = value.to_bits());
        }
        if let Some(start) = self.features {
            let out = words[start..].iter_mut().zip(&batch.features);
            out.for_each(|(word, value)| *word = value.to_bits());
        }
        for (Taps { offsets, stride, rows: [from, to] }, start) in &self.taps {
            let rows =
                (0..batch.counts().of(*to)).flat_map(|row| offsets.iter().map(move |offset| (row, *offset)));
            for (word, (row, offset)) in words[*start..].iter_mut().zip(rows) {
                let other = batch.neighbor(*from, *to, row, offset, *stride);
                *word = other.map_or(u32::MAX, |other| other as u32);
            }
        }
    }

    fn fill_global_tokens(&self, batch: &Batch, table: &BlockTable, words: &mut [u32]) {
        if let Some((group, blocks, positions)) = self.second_places {
            for (row, token) in batch.rows.iter().enumerate() {
                let position = second_place(*token, table);
                let block =
                    position.and_then(|position| table.blocks(token.sequence, group)?.get(position / BLOCK));
                words[blocks + row] = block.map_or(u32::MAX, |block| *block);
                words[positions + row] = position.unwrap_or(0) as u32;
            }
        }
        if let Some(start) = self.global_bias {
            let out = words[start..].iter_mut().zip(&batch.global_token_mask);
            out.for_each(|(word, value)| *word = value.to_bits());
        }
        for (attention, start) in &self.key_biases {
            for (row, token) in batch.rows.iter().enumerate() {
                let (place, mask) = (place(*token, table), attention.attention_mask);
                let (first, count) = if matches!(mask, AttentionMask::LongformerLocal(_)) {
                    (row - token.position, attention.seen(place).1 + 1)
                } else {
                    (0, mask.block(place).map_or(0, |_| place.encoded_length))
                };
                (words[start + 2 * row], words[start + 2 * row + 1]) = (first as u32, count as u32);
            }
        }
        if let Some(tiles) = self.global_tiles {
            for (index, row) in batch.global_rows.iter().enumerate() {
                (words[tiles.tiles + 2 * index], words[tiles.tiles + 2 * index + 1]) = (*row as u32, 1);
            }
            words[tiles.count] = batch.global_rows.len() as u32;
        }
    }

    fn fill_sequences(&self, batch: &Batch, table: &BlockTable, words: &mut [u32]) {
        if let Some(tables) = self.sequences {
            words[tables.count] = batch.sequences.len() as u32;
            let mut end = 0;
            for (index, sequence) in batch.sequences.iter().enumerate() {
                words[tables.starts + index] = end as u32;
                for row in (0..batch.rows.len()).filter(|row| batch.rows[*row].sequence == *sequence) {
                    words[tables.rows + end] = row as u32;
                    end += 1;
                }
            }
            words[tables.starts + batch.sequences.len()] = end as u32;
        }
        if let Some((group, start)) = self.states {
            for (sequence, words) in batch.sequences.iter().zip(words[start..].chunks_exact_mut(2)) {
                let Some(&[before, now]) = table.blocks(*sequence, group) else { continue };
                words[0] = if before == NO_BLOCK { u32::MAX } else { before };
                words[1] = now;
            }
        }
    }

    fn fill_lists(
        &self,
        batch: &Batch,
        table: &BlockTable,
        storage: &KvStorageLayout,
        words: &mut [u32],
    ) -> Result<usize> {
        let mut end = self.lists;
        for tables in &self.groups {
            debug_assert!(storage.block_words(tables.group) > 0, "a group without layers");
            let mut current: Option<(SequenceId, usize)> = None;
            for (row, token) in batch.rows.iter().enumerate() {
                let Some(blocks) = table.blocks(token.sequence, tables.group) else { continue };
                let start = match current {
                    Some((sequence, start)) if sequence == token.sequence => start,
                    _ => {
                        let room = words.get_mut(end..end + blocks.len()).ok_or_else(|| {
                            Error::argument(
                                "batch",
                                "its sequences have more blocks than the backend has room for",
                            )
                        })?;
                        room.iter_mut().zip(blocks).for_each(|(word, block)| *word = *block);
                        let start = end - self.lists;
                        end += blocks.len();
                        current = Some((token.sequence, start));
                        start
                    }
                };
                words[tables.starts + row] = start as u32;
                words[tables.stores + row] = blocks.get(token.position / BLOCK).map_or(0, |block| *block);
            }
        }
        Ok(end)
    }
}
