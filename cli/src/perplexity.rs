//! `siskin perplexity`: how well a model foresees a text, by llama.cpp's method.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use serde_json::json;
use siskin::tokenizer::EncodeOptions;
use siskin::{Error, ErrorKind, Result, Session, SessionOptions};
use std::path::PathBuf;

/// Measure how well a model foresees a text
///
/// The text is cut into chunks of --ctx tokens; in each, the second half is foreseen from the first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file, or a Hugging Face folder
    model: PathBuf,
    /// The text
    file: PathBuf,
    /// Tokens of a chunk
    #[arg(long, default_value_t = 512, value_name = "N")]
    ctx: usize,
    /// The most chunks; without it, the whole text
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Surprise, summed.
#[derive(Default)]
struct Sum {
    nats: f64,
    squares: f64,
    tokens: usize,
}

impl Sum {
    fn add(&mut self, nats: f64) {
        self.nats += nats;
        self.squares += nats * nats;
        self.tokens += 1;
    }

    fn perplexity(&self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }

    /// The standard error of the perplexity.
    fn deviation(&self) -> f64 {
        let count = self.tokens as f64;
        let mean = self.nats / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt() * self.perplexity()
    }
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    if args.ctx < 4 {
        return Err(Error::argument("--ctx", "is too small; give at least 4"));
    }
    let place = args.file.display().to_string();
    let text = std::fs::read(&args.file).map_err(|error| Error::io(&place, &error))?;
    let model = open.model(&args.model, &args.model_args)?;
    let tokenizer = model.tokenizer()?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode_bytes(&text, options).map_err(|error| error.within(&place))?;
    let chunks = (tokens.len() / args.ctx).min(args.chunks.unwrap_or(usize::MAX));
    if chunks == 0 {
        let message = format!(
            "{} tokens and {} chunks of {} give nothing to score; give a longer text, a smaller --ctx or another --chunks",
            tokens.len(),
            chunks,
            args.ctx
        );
        return Err(Error::new(ErrorKind::Argument, place, message));
    }
    let start = if tokenizer.add_bos() { tokenizer.bos() } else { None };
    let mut session = model.session(SessionOptions {
        context: args.ctx,
        cache: args.model_args.kv,
        ..SessionOptions::default()
    })?;
    let mut sum = Sum::default();
    for (index, chunk) in tokens.chunks_exact(args.ctx).take(chunks).enumerate() {
        let mut chunk = chunk.to_vec();
        if let Some(start) = start {
            chunk[0] = start;
        }
        score(&mut session, &chunk, &mut sum)?;
        if !args.json {
            output::note(open, format!("[{}/{chunks}] {:.4}", index + 1, sum.perplexity()));
        }
    }
    let (perplexity, deviation) = (sum.perplexity(), sum.deviation());
    match args.json {
        true => output::json(&json!({
            "perplexity": perplexity,
            "standard_error": deviation,
            "tokens": sum.tokens,
            "chunks": chunks,
            "ctx": args.ctx,
        })),
        false => output::line(format!(
            "perplexity {perplexity:.4} ± {deviation:.4} ({} tokens in {chunks} chunks)",
            sum.tokens
        )),
    }
}

/// Adds the surprise at the second half of a chunk.
fn score(session: &mut Session, chunk: &[u32], sum: &mut Sum) -> Result<()> {
    let first = chunk.len() / 2;
    session.reset();
    // A session that scores its very first token makes room for many tokens' logits; later calls use it.
    session.score(&chunk[..1], &mut |_, _| {})?;
    session.prefill(&chunk[1..first])?;
    let targets = &chunk[first + 1..];
    session.score(&chunk[first..chunk.len() - 1], &mut |index, logits| {
        if let Some(&target) = targets.get(index) {
            sum.add(surprise(logits, target));
        }
    })
}

/// How unexpected `target` is, in nats.
fn surprise(logits: &[f32], target: u32) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    let logit = logits.get(target as usize).copied().unwrap_or(f32::NEG_INFINITY);
    total.ln() - f64::from(logit - highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_odds_are_the_logarithm_of_the_count() {
        assert!((surprise(&[3.0; 8], 5) - 8f64.ln()).abs() < 1e-12);
        // softmax([0, ln 3]) is [1/4, 3/4]
        assert!((surprise(&[0.0, 3f32.ln()], 0) - 4f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn perplexity_of_even_odds_is_the_count() {
        let mut sum = Sum::default();
        (0..10).for_each(|_| sum.add(8f64.ln()));
        assert!((sum.perplexity() - 8.0).abs() < 1e-12 && sum.deviation() < 1e-6);
    }
}
