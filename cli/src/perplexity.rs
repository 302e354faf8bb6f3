//! `siskin perplexity`: the perplexity of a model on a text, by llama.cpp's method.

use crate::input_path;
use crate::options::{self, ModelArgs, OpenArgs};
use crate::output;
use serde_json::json;
use siskin::tokenizer::EncodeOptions;
use siskin::{CacheType, Error, ErrorKind, Model, Result, Session, SessionOptions};
use std::path::{Path, PathBuf};

/// Number of tokens scored at a time; bounds the memory for the other model's logits.
const PIECE: usize = 64;

/// Measure the perplexity of a model on a text
///
/// The text is split into chunks of --context tokens; the second half of each chunk is scored, with the first half as
/// context. --against reports the KL divergence from another model on the same tokens.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    /// The text file
    file: PathBuf,
    /// Chunk size in tokens
    #[arg(short, long, alias = "ctx", default_value_t = 512, value_name = "N")]
    context: usize,
    /// Maximum number of chunks; default: the whole text
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// A model with the same vocabulary, such as the unquantized one, to compare predictions with
    #[arg(long, value_name = "MODEL")]
    against: Option<PathBuf>,
    /// Data type of the other model's KV cache; default that of --kv
    #[arg(long, value_name = "TYPE", value_parser = options::cache_type, requires = "against")]
    against_kv: Option<CacheType>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Running sums of the negative log-likelihood.
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

    /// Returns the standard error of the perplexity.
    fn deviation(&self) -> f64 {
        let count = self.tokens as f64;
        let mean = self.nats / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt() * self.perplexity()
    }
}

/// Running sums of the agreement between two models.
#[derive(Default)]
struct Agreement {
    agreed: usize,
    nats: f64,
    tokens: usize,
}

impl Agreement {
    /// Adds one token: compares its logits with those of the other model.
    fn add(&mut self, logits: &[f32], other: &[f32]) {
        self.agreed += usize::from(likeliest(logits) == likeliest(other));
        self.nats += divergence(other, logits);
        self.tokens += 1;
    }

    /// Returns the fraction of tokens where both models have the same top token.
    fn agreement(&self) -> f64 {
        self.agreed as f64 / self.tokens as f64
    }

    /// Returns the mean KL divergence of the model from the other one, in nats.
    fn divergence(&self) -> f64 {
        self.nats / self.tokens as f64
    }
}

/// The sessions of both models, and the results so far.
struct Scores {
    session: Session,
    other: Option<Session>,
    sum: Sum,
    agreement: Agreement,
    /// Logits of the other model.
    kept: Vec<f32>,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    if args.context < 4 {
        return Err(Error::argument("context", format!("expected at least 4, got {}", args.context)));
    }
    if args.chunks == Some(0) {
        return Err(Error::argument("chunks", "expected at least 1, got 0"));
    }
    let location = args.file.display().to_string();
    let text = input_path::read(&args.file)?;
    let model = open.model(&args.model, &args.model_args)?;
    let tokenizer = model.tokenizer()?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode_bytes(&text, options).map_err(|error| error.within(&location))?;
    let chunks = (tokens.len() / args.context).min(args.chunks.unwrap_or(usize::MAX));
    if chunks == 0 {
        let message = format!(
            "{} tokens are too few for a chunk of {}; use a longer text or a smaller --context",
            tokens.len(),
            args.context
        );
        return Err(Error::new(ErrorKind::Argument, location, message));
    }
    let start = if tokenizer.add_bos() { tokenizer.bos() } else { None };
    let options = |cache| SessionOptions { context: args.context, cache, ..SessionOptions::default() };
    let (kv, other_kv) = (args.model_args.kv, args.against_kv.or(args.model_args.kv));
    let other = match &args.against {
        Some(path) => Some(same_tokens(open.model(path, &args.model_args.alone())?, &model, path)?),
        None => None,
    };
    let mut scores = Scores {
        session: model.session(options(kv))?,
        other: other.map(|other| other.session(options(other_kv))).transpose()?,
        sum: Sum::default(),
        agreement: Agreement::default(),
        kept: Vec::new(),
    };
    for (index, chunk) in tokens.chunks_exact(args.context).take(chunks).enumerate() {
        let mut chunk = chunk.to_vec();
        if let Some(start) = start {
            chunk[0] = start;
        }
        scores.add(&chunk)?;
        if !args.json {
            output::note(open.quiet, format!("[{}/{chunks}] {:.4}", index + 1, scores.sum.perplexity()));
        }
    }
    report(args, &scores, chunks)
}

/// Returns `other` if its vocabulary size is that of `model`.
fn same_tokens(other: Model, model: &Model, path: &Path) -> Result<Model> {
    let (found, expected) = (other.config().vocabulary, model.config().vocabulary);
    if found == expected {
        return Ok(other);
    }
    let message = format!(
        "the vocabulary of {} has {found} tokens, not {expected}; compare variants of the same model",
        path.display()
    );
    Err(Error::argument("--against", message))
}

fn report(args: &Args, scores: &Scores, chunks: usize) -> Result<()> {
    let Scores { sum, agreement, .. } = scores;
    let (perplexity, deviation) = (sum.perplexity(), sum.deviation());
    if args.json {
        let mut values = json!({
            "perplexity": perplexity,
            "standard_error": deviation,
            "tokens": sum.tokens,
            "chunks": chunks,
            "ctx": args.context,
        });
        if args.against.is_some() {
            values["top1_agreement"] = json!(agreement.agreement());
            values["kl_divergence"] = json!(agreement.divergence());
        }
        return output::json(&values);
    }
    let tokens = sum.tokens;
    output::line(format!(
        "perplexity {perplexity:.4} ± {deviation:.4} ({tokens} tokens in {chunks} chunks)"
    ))?;
    if args.against.is_some() {
        let (agreement, divergence) = (100.0 * agreement.agreement(), agreement.divergence());
        output::line(format!("same likeliest token {agreement:.2}%, divergence {divergence:.6} nats"))?;
    }
    Ok(())
}

impl Scores {
    /// Scores the second half of a chunk.
    fn add(&mut self, chunk: &[u32]) -> Result<()> {
        let first = chunk.len() / 2;
        for session in std::iter::once(&mut self.session).chain(&mut self.other) {
            session.reset();
            // Scoring the very first token makes the session reserve logits for many tokens; later calls use that
            // space.
            session.score(&chunk[..1], &mut |_, _| {})?;
            session.prefill(&chunk[1..first])?;
        }
        let mut pairs = chunk[first..chunk.len() - 1].chunks(PIECE).zip(chunk[first + 1..].chunks(PIECE));
        pairs.try_for_each(|(tokens, targets)| self.score(tokens, targets))
    }

    /// Scores `targets` with the logits of both models at `tokens`.
    fn score(&mut self, tokens: &[u32], targets: &[u32]) -> Result<()> {
        let Self { session, other, sum, agreement, kept } = self;
        kept.clear();
        if let Some(other) = other {
            other.score(tokens, &mut |_, logits| kept.extend_from_slice(logits))?;
        }
        session.score(tokens, &mut |index, logits| {
            if let Some(&target) = targets.get(index) {
                sum.add(surprise(logits, target));
            }
            if let Some(other) = kept.chunks_exact(logits.len()).nth(index) {
                agreement.add(logits, other);
            }
        })
    }
}

/// Returns the negative log-likelihood of `target`, in nats.
fn surprise(logits: &[f32], target: u32) -> f64 {
    let logit = logits.get(target as usize).copied().unwrap_or(f32::NEG_INFINITY);
    total(logits) - f64::from(logit)
}

/// Returns log-sum-exp of the logits: a logit minus this is a log-probability.
fn total(logits: &[f32]) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    total.ln() + f64::from(highest)
}

/// Returns the KL divergence of `found` from `truth`, both given as logits, in nats.
fn divergence(truth: &[f32], found: &[f32]) -> f64 {
    let (of_truth, of_found) = (total(truth), total(found));
    let terms = truth.iter().zip(found).map(|(&truth, &found)| {
        let logarithm = f64::from(truth) - of_truth;
        let probability = logarithm.exp();
        // Tokens of probability 0 in `truth` contribute nothing.
        if probability > 0.0 { probability * (logarithm - (f64::from(found) - of_found)) } else { 0.0 }
    });
    // Rounding alone can make the sum negative.
    terms.sum::<f64>().max(0.0)
}

/// Returns the token with the highest logit, the first of ties.
fn likeliest(logits: &[f32]) -> usize {
    let best = |best: (usize, f32), (index, &logit): (usize, &f32)| {
        if logit > best.1 { (index, logit) } else { best }
    };
    logits.iter().enumerate().fold((0, f32::NEG_INFINITY), best).0
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
    fn forecasts_differ_by_the_divergence_of_their_odds() {
        // [1/4, 3/4] against [1/2, 1/2]: 1/4 ln 1/2 + 3/4 ln 3/2; the reverse: 1/2 ln 2 + 1/2 ln 2/3
        let (uneven, even) = ([5.0, 5.0 + 3f32.ln()], [7.0; 2]);
        let expected = 0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln();
        assert!((divergence(&uneven, &even) - expected).abs() < 1e-6);
        assert!((divergence(&even, &uneven) - 0.5 * (4.0 / 3.0f64).ln()).abs() < 1e-6);
        // Tokens of probability 0 contribute nothing.
        assert!(divergence(&[1.0, f32::NEG_INFINITY], &[1.0, f32::NEG_INFINITY]) == 0.0);
    }

    #[test]
    fn agreement_is_of_the_likeliest_tokens() {
        let mut agreement = Agreement::default();
        agreement.add(&[0.0, 1.0, 0.5], &[0.1, 3.0, 2.9]);
        agreement.add(&[0.0, 1.0, 0.5], &[0.1, 2.0, 2.9]);
        assert_eq!(agreement.agreement(), 0.5);
        let mut same = Agreement::default();
        same.add(&[0.0, 1.0, 0.5], &[0.0, 1.0, 0.5]);
        assert_eq!((same.agreement(), same.divergence()), (1.0, 0.0));
    }

    #[test]
    fn perplexity_of_even_odds_is_the_count() {
        let mut sum = Sum::default();
        (0..10).for_each(|_| sum.add(8f64.ln()));
        assert!((sum.perplexity() - 8.0).abs() < 1e-12 && sum.deviation() < 1e-6);
    }
}
