//! Lists the rows of a batch, and reserves the blocks that they need.

use super::forward_passes::ForwardPasses;
use super::input::{BatchEntry, InputRules, SequenceInput, check_tokens};
use crate::block_table::BlockTable;
use crate::{Batch, ModelPart, TokenRow};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::ModelConfig;

/// The parts of a context that make a batch.
pub(super) struct BatchBuilder<'a> {
    pub config: &'a ModelConfig,
    /// The number of adapters that a sequence can choose from.
    pub adapters: usize,
    pub passes: &'a ForwardPasses,
    pub table: &'a mut BlockTable,
    pub batch: &'a mut Batch,
}

impl BatchBuilder<'_> {
    /// Replaces the batch by the tokens of entries, and appends them to their sequences.
    pub(super) fn extend(&mut self, entries: &[BatchEntry<'_>]) -> Result<()> {
        self.batch.clear();
        let rows = entries.iter().map(|entry| entry.tokens.len()).sum();
        let output_rows = entries.iter().map(|entry| entry.outputs.count(entry.tokens.len())).sum();
        self.passes.check_batch(ModelPart::Decoder, rows, output_rows)?;
        for entry in entries {
            entry.check(self.adapters)?;
            check_tokens(entry.tokens, self.config.vocabulary)?;
            let start = self.table.length(entry.sequence)?;
            if self.passes.has_encoder() && self.table.encoded_length(entry.sequence)? == 0 {
                let message = "no encoded input; encode a text first";
                return Err(Error::new(ErrorKind::State, "sequence", message));
            }
            self.table.extend(entry.sequence, entry.tokens.len())?;
            self.batch.push_entry(entry, start, self.table.expected_length(entry.sequence));
        }
        Ok(())
    }

    /// Takes the rows of all sequences, or of those that `is_canceled`, back from their sequences.
    pub(super) fn roll_back(&mut self, is_canceled: impl Fn(usize) -> bool) {
        // The first row of a sequence takes back those after it.
        for &TokenRow { sequence, position, .. } in &self.batch.rows {
            if is_canceled(sequence) {
                self.table.roll_back(sequence, position);
            }
        }
    }

    /// Validates whole sequences, and replaces the batch by their rows; the inner result fails for lack of blocks.
    pub(super) fn list(&mut self, texts: &[SequenceInput<'_>]) -> Result<Result<()>> {
        let Self { config, passes, adapters, .. } = *self;
        let graph = &passes.whole_pass(ModelPart::Encoder)?.graph;
        let checked = InputRules { config, graph, adapters }.check(texts)?;
        texts.iter().try_for_each(|text| self.table.encoded_length(text.sequence).map(drop))?;
        let rows = checked.iter().map(|text| text.count + usize::from(text.padding_token.is_some())).sum();
        let output_rows =
            texts.iter().zip(&checked).map(|(text, checked)| text.outputs.count(checked.count)).sum();
        passes.check_batch(ModelPart::Encoder, rows, output_rows)?;
        self.batch.clear();
        Ok(texts.iter().zip(&checked).try_for_each(|(text, checked)| {
            let before = self.batch.global_rows.len();
            if graph.has_global_attention() {
                self.batch.mark_global(checked.global_positions, checked.count);
            }
            let global_tokens = self.batch.global_rows.len() - before;
            self.table.begin_encoding(
                text.sequence,
                checked.count,
                global_tokens,
                checked.padding_token.is_some(),
            )?;
            self.batch.push_text(text, checked, before, config.features);
            Ok(())
        }))
    }

    /// Drops what sequences encoded, and the batch.
    pub(super) fn forget(&mut self, texts: &[SequenceInput<'_>]) {
        for text in texts {
            // Never fails: a sequence of zero tokens needs no blocks.
            let _ = self.table.begin_encoding(text.sequence, 0, 0, false);
        }
        self.batch.clear();
    }
}
