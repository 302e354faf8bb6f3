//! Speed of encoder-decoder models on text or audio.

use super::{Args, FIRST_PROMPT, finish_with_decode, ids, measured, median, milliseconds};
use crate::output::{self, round};
use serde_json::Value;
use siskin::encoder::EncoderInput;
use siskin::{Model, Result, SessionOptions};
use std::time::Instant;

/// Audio frames per encoder position.
const FRAMES: usize = 2;

/// Encodes a text of `--prompt` tokens, or a whole audio window, and generates `--generate` tokens.
pub(super) fn report(args: &Args, model: &Model, open_ms: f64, start: Instant) -> Result<()> {
    let model_config = model.config();
    let source = match model_config.features {
        0 => EncoderInput::from(ids(args.prompt.clamp(1, model_config.encoder_context.max(1)), model)?),
        columns => EncoderInput {
            features: vec![0.0; FRAMES * model_config.encoder_context * columns],
            ..EncoderInput::default()
        },
    };
    let mut session = model.session(SessionOptions {
        context: args.depth + args.generate.max(FIRST_PROMPT),
        encoder_context: source.ids.len(),
        cache: args.model_args.kv,
        ..SessionOptions::default()
    })?;
    let written = ids(args.depth + args.generate.max(1), model)?;
    session.encode(&source)?;
    session.prefill(&written[..1])?;
    let first_token_ms = milliseconds(start);
    let mut report = measured(args, model, open_ms);
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("first_token_ms", round(first_token_ms, 2).into());
    let mut times = Vec::new();
    for _ in 0..args.repeat {
        let begun = Instant::now();
        session.encode(&source)?;
        times.push(milliseconds(begun));
    }
    let read_ms = median(times);
    add("read_ms", round(read_ms, 3).into());
    if model_config.features == 0 {
        add("read_tok_s", round(output::rate(source.ids.len(), read_ms / 1e3), 1).into());
    }
    if args.generate > 0 && args.depth > 0 {
        add("depth", args.depth.into());
        session.prefill(&written[..args.depth])?;
    }
    finish_with_decode(args, model, session, &written, Some(&source), report)
}
