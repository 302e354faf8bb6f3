//! Decode speed of several sequences in one batch.

use super::{Args, FIRST_PROMPT, median};
use crate::output::{self, round};
use siskin::encoder::EncoderInput;
use siskin::{BatchEntry, Context, Model, OutputRows, Result, SequenceInput, SessionOptions};
use std::time::Instant;

/// Returns the median rate in tokens per second, of all sequences together, at which `--sequences` sequences generate
/// `--generate` tokens each. `ids` has the tokens of the cache and those generated, `source` what an encoder-decoder
/// model encodes first.
pub(super) fn decode(args: &Args, model: &Model, ids: &[u32], source: Option<&EncoderInput>) -> Result<f64> {
    let count = usize::from(args.sequences);
    let options = SessionOptions {
        context: args.depth + args.generate.max(FIRST_PROMPT),
        encoder_context: source.map_or(0, |source| source.ids.len()),
        cache: args.model_args.kv,
        ..SessionOptions::default()
    };
    let mut context = model.context(&options, count, count)?;
    let sequences: Vec<usize> = (0..count).map(|_| context.create()).collect();
    let batch = context.decoder_limits().0.max(1);
    for &sequence in &sequences {
        if let Some(source) = source {
            context.encode(&[SequenceInput {
                sequence,
                tokens: &source.ids,
                token_type_ids: &[],
                outputs: OutputRows::None,
                features: &source.features,
                global_positions: &[],
                padding_token: None,
            }])?;
        }
        for tokens in ids[..args.depth].chunks(batch) {
            context.forward(&[BatchEntry::new(sequence, tokens, OutputRows::None)])?;
        }
    }
    steps(&mut context, &sequences, &ids[..args.generate.min(FIRST_PROMPT)])?;
    let mut rates = Vec::new();
    for _ in 0..args.repeat {
        sequences.iter().try_for_each(|&sequence| context.truncate(sequence, args.depth))?;
        let start = Instant::now();
        steps(&mut context, &sequences, &ids[..args.generate])?;
        rates.push(output::rate(count * args.generate, start.elapsed().as_secs_f64()));
    }
    Ok(round(median(rates), 1))
}

/// Runs a forward pass for each of `ids`, with one token of every sequence. The sequences have different tokens, so that
/// the experts of an MoE are not the same for all.
fn steps(context: &mut Context, sequences: &[usize], ids: &[u32]) -> Result<()> {
    let mut entries = Vec::with_capacity(sequences.len());
    for step in 0..ids.len() {
        entries.clear();
        entries.extend(sequences.iter().enumerate().map(|(index, &sequence)| {
            let token = (step + 7 * index) % ids.len();
            BatchEntry::new(sequence, &ids[token..=token], OutputRows::Last)
        }));
        context.forward(&entries)?;
    }
    Ok(())
}
