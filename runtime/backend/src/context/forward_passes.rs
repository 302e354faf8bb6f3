//! The graphs that a context runs.

use std::sync::Arc;

use super::{ContextOptions, early_exit};
use crate::block_table::{BlockLayout, CacheOptions, KvBudget};
use crate::loaded_model::LoadedModel;
use crate::{ExecutionLimits, ForwardPass, MemoryUse, ModelPart};
use siskin_format::{Error, Result};

/// The passes of a context: its encoder and its decoder, and the encoder split at its exits if early exit is enabled.
pub struct ForwardPasses {
    list: Arc<[ForwardPass]>,
    encoder: Option<usize>,
    decoder: Option<usize>,
    /// The indices of the passes between exits.
    pub(super) segments: Vec<early_exit::ExitSegment>,
}

impl ForwardPasses {
    pub(super) fn new(model: &LoadedModel, options: &ContextOptions) -> Result<Self> {
        let ContextOptions { cache, window, max_output_rows, max_encoder_output_rows, with_head, early_exit } =
            *options;
        let mut list = Vec::new();
        let mut add = |pass: ForwardPass| {
            list.push(ForwardPass { max_output_rows: pass.max_output_rows.min(pass.max_rows), ..pass });
            list.len() - 1
        };
        let encoder = model.graphs.encoder.as_ref().map(|graph| {
            let graph = if with_head { graph.clone() } else { graph.without_head() };
            let graph = if cache.max_batch_tokens > 0 { graph } else { graph.without_cross_attention() };
            let (max_rows, positions) = (cache.encoder_context, cache.encoder_context);
            add(ForwardPass {
                graph,
                part: ModelPart::Encoder,
                max_rows,
                max_output_rows: max_encoder_output_rows,
                positions,
            })
        });
        // An encoder-only context does not need the decoder.
        let decoder = model.graphs.decoder.as_ref().filter(|_| cache.max_batch_tokens > 0).map(|graph| {
            let graph = window.map_or_else(|| graph.clone(), |window| graph.with_streaming_window(window));
            let (max_rows, positions) = (cache.max_batch_tokens, cache.context_length);
            add(ForwardPass { graph, part: ModelPart::Decoder, max_rows, max_output_rows, positions })
        });
        let segments = match &model.graphs.encoder {
            Some(graph) if early_exit => early_exit::ExitSegment::all(
                graph,
                model.config.layers,
                (cache.encoder_context, max_encoder_output_rows),
                &mut add,
            )?,
            _ => Vec::new(),
        };
        Ok(Self { list: list.into(), encoder, decoder, segments })
    }

    /// Returns the index of the pass of a whole part.
    pub(super) fn index(&self, part: ModelPart) -> Result<usize> {
        let (index, message) = match part {
            ModelPart::Encoder => (self.encoder, "the model is decoder-only and has no encoder"),
            ModelPart::Decoder => (self.decoder, "the model is encoder-only and cannot generate text"),
        };
        index.ok_or_else(|| Error::unsupported("model", message))
    }

    /// Returns the pass of a whole part.
    pub(super) fn whole_pass(&self, part: ModelPart) -> Result<&ForwardPass> {
        Ok(&self.list[self.index(part)?])
    }

    /// Returns the maximum numbers of rows, and of rows with outputs, in a batch of a part; zeros if there is none.
    pub fn max_rows(&self, part: ModelPart) -> (usize, usize) {
        self.whole_pass(part).map_or((0, 0), |pass| (pass.max_rows, pass.max_output_rows))
    }

    pub(super) fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    /// Returns whether a pass is that of the decoder.
    pub(super) fn is_decoder(&self, index: usize) -> bool {
        self.list[index].part == ModelPart::Decoder
    }

    /// Returns the passes of whole parts.
    pub(super) fn whole(&self) -> impl Iterator<Item = &ForwardPass> + Clone {
        [self.encoder, self.decoder].into_iter().flatten().map(|index| &self.list[index])
    }

    /// Returns what an executable must be able to run.
    pub(super) fn limits(&self, cache: &CacheOptions) -> ExecutionLimits {
        let attentions: Vec<_> = self.whole().flat_map(|pass| pass.graph.attentions()).collect();
        let has_states = self.whole().any(|pass| pass.graph.states().next().is_some());
        let block_layout = BlockLayout::new(&attentions, has_states, *cache);
        ExecutionLimits { passes: Arc::clone(&self.list), block_layout }
    }

    /// Returns an error unless the pass of a part allows this many rows and outputs.
    pub(super) fn check_batch(&self, part: ModelPart, rows: usize, output_rows: usize) -> Result<()> {
        let pass = self.whole_pass(part)?;
        if rows > pass.max_rows || output_rows > pass.max_output_rows {
            let message = format!(
                "{rows} rows with {output_rows} outputs; the context allows {} with {}",
                pass.max_rows, pass.max_output_rows
            );
            return Err(Error::argument("batch", message));
        }
        Ok(())
    }

    /// Returns the length from which on RoPE frequencies change with the length of the sequence.
    pub fn rope_scaling_length(&self) -> Option<usize> {
        self.whole_pass(ModelPart::Decoder).ok().and_then(|pass| pass.graph.rope_scaling_length())
    }

    /// Returns the length beyond which all positions of a sequence use different RoPE frequencies.
    pub fn longrope_length(&self) -> Option<usize> {
        self.whole_pass(ModelPart::Decoder).ok().and_then(|pass| pass.graph.longrope_length())
    }
}

impl LoadedModel {
    /// Returns the memory that a context with these options would use within a budget for its KV cache.
    pub fn context_memory(&self, options: &ContextOptions, kv_budget: Option<KvBudget>) -> Result<MemoryUse> {
        let passes = ForwardPasses::new(self, options)?;
        self.module.memory_requirements(&self.execution_limits(&passes, &options.cache, kv_budget)?)
    }

    /// Returns what an executable for these passes must be able to run.
    pub(super) fn execution_limits(
        &self,
        passes: &ForwardPasses,
        cache: &CacheOptions,
        kv_budget: Option<KvBudget>,
    ) -> Result<ExecutionLimits> {
        let mut limits = passes.limits(cache);
        if let Some(budget) = kv_budget {
            let block_bytes = self.module.block_bytes(&limits)?;
            limits.block_layout = limits.block_layout.within(budget, &block_bytes)?;
        }
        Ok(limits)
    }
}
