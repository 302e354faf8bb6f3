//! Lowers attention, and what it stores in the KV cache.

use siskin_backend::kv_storage::LayerPlace;
use siskin_backend::plan::BufferView;
use siskin_cuda::int;
use siskin_device::KernelArgument;
use siskin_format::{Error, Result};
use siskin_graph::op::KeyBias;
use siskin_graph::{Attention, AttentionMask, LinformerProjection, RowKind};
use siskin_kernels::ops::attention::CacheType;

use super::Lowering;
use crate::launches::{AttentionStep, LoweredStep, ProjectedStore, QUERIES, cache_name};
use crate::row_ops::{DeviceRows, EncodedRowOp, RowOpCode};

impl Lowering<'_> {
    /// Returns where an attention layer's keys and values are, and the arguments of kernels that say so.
    pub(super) fn layer(&self, attention: &Attention) -> Result<(LayerPlace, [KernelArgument; 4])> {
        let place = self.context.storage.layer(attention.layer);
        let place = place
            .ok_or_else(|| Error::argument("graph", format!("layer {} has no KV cache", attention.layer)))?;
        let arguments = [
            KernelArgument::Ptr(self.context.pools[place.group]),
            KernelArgument::Long(self.context.storage.block_words(place.group) as i64),
            int(place.offset),
            int(place.head_words),
        ];
        Ok((place, arguments))
    }

    pub(super) fn store(
        &mut self,
        attention: &Attention,
        keys: BufferView,
        values: BufferView,
    ) -> Result<()> {
        let (place, layer) = self.layer(attention)?;
        if let Some(projection) = attention.projection {
            return self.store_projected(attention, projection, [keys, values], (place, layer));
        }
        let tables = self.tables.group(place.group);
        self.store_at(attention, [keys, values], (place, layer), [tables.stores, self.tables.positions]);
        if matches!(attention.attention_mask, AttentionMask::LongformerLocal(_)) {
            let second = self.tables.second_places(place.group);
            self.store_at(attention, [keys, values], (place, layer), second);
        }
        Ok(())
    }

    /// Stores keys and values in the blocks and at the positions that two tables have by row.
    pub(super) fn store_at(
        &mut self,
        attention: &Attention,
        [keys, values]: [BufferView; 2],
        (place, layer): (LayerPlace, [KernelArgument; 4]),
        [blocks, positions]: [usize; 2],
    ) {
        let cache = self.context.storage.cache_type(place.group);
        let columns = attention.kv_heads * attention.head_size;
        let (keys, values) = (self.rows(keys), self.rows(values));
        if !cache.is_integer() {
            let op =
                EncodedRowOp::new(RowOpCode::StoreKv, keys, DeviceRows::default(), columns).other(values);
            let op = op.parameters([
                self.context.pools[place.group],
                self.context.storage.block_words(place.group) as u64,
                (place.offset as u64) << 32 | place.head_words as u64,
                attention.head_size as u64,
                self.table(blocks),
                self.table(positions),
                u64::from(cache == CacheType::F16),
            ]);
            self.push(RowKind::Tokens, op);
            // The next step of the plan may reuse the memory of keys and values.
            return self.flush();
        }
        let rest = [blocks, positions, self.tables.count(RowKind::Tokens)];
        let rest = rest.map(|place| KernelArgument::Ptr(self.table(place)));
        let kernel = format!("kv_store_{}", cache_name(cache));
        let arguments = [&layer[..], &key_values([keys, values], attention), &rest].concat();
        self.launch(LoweredStep::Launch { kernel, heads: attention.kv_heads, threads: 128, arguments });
    }

    /// Stores keys and values projected over the positions of each sequence (Linformer).
    pub(super) fn store_projected(
        &mut self,
        attention: &Attention,
        projection: LinformerProjection,
        views: [BufferView; 2],
        (place, layer): (LayerPlace, [KernelArgument; 4]),
    ) -> Result<()> {
        let (tables, sequences) = (self.tables.group(place.group), self.tables.sequences());
        let weights = |id| KernelArgument::Ptr(self.context.weights.vector(Some(id)));
        let rest = [
            weights(projection.keys),
            weights(projection.values),
            int(projection.positions),
            KernelArgument::Ptr(self.table(sequences.starts)),
            KernelArgument::Ptr(self.table(sequences.rows)),
            KernelArgument::Ptr(self.table(sequences.count)),
            KernelArgument::Ptr(self.table(tables.starts)),
        ];
        let step = ProjectedStore {
            kernel: format!(
                "kv_store_projected_{}",
                cache_name(self.context.storage.cache_type(place.group))
            ),
            heads: attention.kv_heads,
            count: projection.count,
            arguments: [&layer[..], &key_values(views.map(|view| self.rows(view)), attention), &rest]
                .concat(),
        };
        self.launch(LoweredStep::StoreProjected(step));
        Ok(())
    }

    /// Returns the bias by key position, and which of it each row has; null without one.
    fn key_bias(&mut self, attention: &Attention) -> [KernelArgument; 2] {
        let bias = match attention.attention_mask.key_bias() {
            Some(KeyBias::GlobalTokens) => {
                let place = self.tables.global_bias();
                self.table(place)
            }
            Some(KeyBias::Blocks { size, random }) => (self.context.block_bias)((size, random)),
            None => return [KernelArgument::Ptr(0); 2],
        };
        let ranges = self.tables.key_bias_ranges(attention);
        [bias, self.table(ranges)].map(KernelArgument::Ptr)
    }

    pub(super) fn attention(
        &mut self,
        attention: &Attention,
        queries: BufferView,
        to: BufferView,
    ) -> Result<()> {
        let (place, layer) = self.layer(attention)?;
        let (queries, out) = (self.rows(queries), self.rows(to));
        let (bias, reach) = (self.context.bias)(attention);
        let sinks = self.context.weights.vector(attention.sinks);
        let [key_bias, key_bias_ranges] = self.key_bias(attention);
        let is_selective = attention.attention_mask == AttentionMask::LongformerGlobal;
        let rest = [
            KernelArgument::Ptr(queries.ptr),
            KernelArgument::Ptr(out.ptr),
            int(queries.stride),
            int(out.stride),
            int(attention.head_size),
            int(attention.heads),
            int(attention.kv_heads),
            KernelArgument::Float(attention.scale),
            KernelArgument::Float(attention.softcap.unwrap_or(0.0)),
            KernelArgument::Ptr((self.context.slopes)(attention)),
            KernelArgument::Ptr(sinks),
            KernelArgument::Ptr(bias),
            int(reach),
            key_bias,
            key_bias_ranges,
        ];
        let group = attention.heads / attention.kv_heads;
        let rows_together = QUERIES[2] / group.min(QUERIES[2]);
        let step = AttentionStep {
            attention: attention.clone(),
            cache: self.context.storage.cache_type(place.group),
            arguments: [&layer[..], &rest].concat(),
            out,
            ranges: self.tables.ranges(attention),
            starts: self.tables.group(place.group).starts,
            tiles: if is_selective { self.tables.global_tiles() } else { self.tables.tiles(rows_together) },
            is_selective,
            sinks,
            can_split: can_split(attention),
        };
        self.launch(LoweredStep::Attention(Box::new(step)));
        Ok(())
    }
}

/// Returns the arguments of kernels that store keys and values.
fn key_values([keys, values]: [DeviceRows; 2], attention: &Attention) -> [KernelArgument; 5] {
    let [at_keys, at_values] = [keys, values].map(|rows| KernelArgument::Ptr(rows.ptr));
    [at_keys, at_values, int(keys.stride), int(values.stride), int(attention.head_size)]
}

/// Returns whether the keys of a row are one range, so that they can be split among blocks.
fn can_split(attention: &Attention) -> bool {
    !matches!(
        attention.attention_mask,
        AttentionMask::LongformerLocal(_)
            | AttentionMask::LongformerGlobal
            | AttentionMask::StreamingLlm { .. }
            | AttentionMask::BigBird { .. }
    )
}
