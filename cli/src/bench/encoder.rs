//! Speed of encoders.

use super::{Args, finish, ids, measured, median, milliseconds};
use crate::output::{self, round};
use serde_json::Value;
use siskin::encoder::EncoderInput;
use siskin::{EncoderOptions, Error, Model, OutputRows, Result};
use std::time::Instant;

/// Encodes `--texts` texts of `--prompt` tokens, or of the lengths in `--lengths` in turn.
pub(super) fn report(args: &Args, model: &Model, open_ms: f64, start: Instant) -> Result<()> {
    if args.sequences > 1 {
        return Err(Error::argument("--sequences", "this model is encoder-only; use --texts"));
    }
    let max_length = model.config().encoder_context.max(1);
    let lengths: &[usize] = if args.lengths.is_empty() { &[args.prompt] } else { &args.lengths };
    let text = |index: usize| {
        let count = lengths[index % lengths.len()].clamp(1, max_length);
        Ok(EncoderInput::from(ids(index * 31 + count, model)?.split_off(index * 31)))
    };
    let texts: Vec<EncoderInput> = (0..args.texts.max(1)).map(text).collect::<Result<_>>()?;
    let mut encoder = model.encoder(EncoderOptions {
        cache: args.model_args.kv,
        head: false,
        ..EncoderOptions::default()
    })?;
    encoder.encode(&texts, OutputRows::All, &mut |_, _| Ok(()))?;
    let first_ms = milliseconds(start);
    let work = encoder.work();
    let mut read = || encoder.encode(&texts, OutputRows::All, &mut |_, _| Ok(()));
    // Short runs are repeated more often, for a stable median.
    let begun = Instant::now();
    read()?;
    let patience = 0.5;
    let repeats = (patience / begun.elapsed().as_secs_f64().max(1e-6)) as usize;
    let mut times = Vec::new();
    for _ in 0..repeats.clamp(usize::from(args.repeat), 1000) {
        let begun = Instant::now();
        read()?;
        times.push(milliseconds(begun));
    }
    let tokens: usize = texts.iter().map(|text| text.ids.len()).sum();
    let middle = median(times);
    let mut report = measured(args, model, open_ms);
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("first_read_ms", round(first_ms, 2).into());
    add("texts", texts.len().into());
    add("tokens", tokens.into());
    add("batches", work.batches.into());
    add("rows", work.rows.into());
    add("padding", round(1.0 - tokens as f64 / work.rows as f64, 4).into());
    add("read_ms", round(middle, 3).into());
    add("read_tok_s", round(output::rate(tokens, middle / 1e3), 1).into());
    finish(args, model, report)
}
