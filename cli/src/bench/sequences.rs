//! Decode speed of several sequences in one batch.

use super::{Args, FIRST_PROMPT, median};
use crate::output::{self, round};
use siskin::encoder::EncoderInput;
use siskin::{AdapterSlot, BatchEntry, Context, Model, OutputRows, Result, SequenceInput, SessionOptions};
use std::time::Instant;

/// Sequences of the same depth.
struct Sequences<'a> {
    context: Context,
    sequences: Vec<usize>,
    /// The tokens in the KV cache before each measurement.
    cached: &'a [u32],
    /// What an encoder-decoder model encodes first.
    source: Option<&'a EncoderInput>,
}

/// Returns the median rate in tokens per second, of all sequences together, at which `--sequences` sequences generate
/// `--generate` tokens each; and the context, whose memory is a part of the report. `ids` has the tokens of the cache
/// and those generated, `source` what an encoder-decoder model encodes first.
pub(super) fn decode(
    args: &Args,
    model: &Model,
    ids: &[u32],
    source: Option<&EncoderInput>,
) -> Result<(f64, Context)> {
    let count = usize::from(args.sequences);
    let default = SessionOptions::default();
    let options = SessionOptions {
        // A batch has a token of each sequence, and is limited to the length of a sequence.
        context: (args.depth + args.generate.max(FIRST_PROMPT)).max(count),
        batch: model.batch_tokens().max(count),
        encoder_context: source.map_or(0, |source| source.ids.len()),
        cache: args.model_args.kv,
        ..default
    };
    let mut context = model.context(&options, count, count)?;
    let sequences = (0..count).map(|_| context.create()).collect();
    let mut all = Sequences { context, sequences, cached: &ids[..args.depth], source };
    (0..count).try_for_each(|index| all.fill(index))?;
    all.generate(&ids[..args.generate.min(FIRST_PROMPT)])?;
    let mut rates = Vec::new();
    for _ in 0..args.repeat {
        (0..count).try_for_each(|index| all.rewind(index))?;
        let start = Instant::now();
        all.generate(&ids[..args.generate])?;
        rates.push(output::rate(count * args.generate, start.elapsed().as_secs_f64()));
    }
    Ok((round(median(rates), 1), all.context))
}

impl Sequences<'_> {
    /// Encodes the source of an empty sequence, and fills its KV cache.
    fn fill(&mut self, index: usize) -> Result<()> {
        let sequence = self.sequences[index];
        if let Some(source) = self.source {
            self.context.encode(&[SequenceInput {
                sequence,
                tokens: &source.ids,
                token_type_ids: &[],
                outputs: OutputRows::None,
                features: &source.features,
                global_positions: &[],
                padding_token: None,
                adapter: AdapterSlot::MODEL,
            }])?;
        }
        let batch = self.context.decoder_limits().0.max(1);
        for tokens in self.cached.chunks(batch) {
            self.context.forward(&[BatchEntry::new(sequence, tokens, OutputRows::None)])?;
        }
        Ok(())
    }

    /// Drops the generated tokens. Recurrent states and sliding windows may have dropped the tokens before them: then
    /// the sequence is filled again.
    fn rewind(&mut self, index: usize) -> Result<()> {
        if self.context.truncate(self.sequences[index], self.cached.len()).is_ok() {
            return Ok(());
        }
        self.context.remove(self.sequences[index]);
        self.sequences[index] = self.context.create();
        self.fill(index)
    }

    /// Runs a forward pass for each of `ids`, with one token of every sequence. The sequences have different tokens, so
    /// that the experts of an MoE are not the same for all.
    fn generate(&mut self, ids: &[u32]) -> Result<()> {
        let mut entries = Vec::with_capacity(self.sequences.len());
        for step in 0..ids.len() {
            entries.clear();
            entries.extend(self.sequences.iter().enumerate().map(|(index, &sequence)| {
                let token = (step + 7 * index) % ids.len();
                BatchEntry::new(sequence, &ids[token..=token], OutputRows::Last)
            }));
            self.context.forward(&entries)?;
        }
        Ok(())
    }
}
