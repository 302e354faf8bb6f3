//! `siskin perplexity`: the perplexity of a model on a text, by llama.cpp's method.

use crate::input_path;
use crate::options::{self, ModelArgs, OpenArgs};
use crate::output;
use crate::scores::Scores;
use serde_json::json;
use siskin::tokenizer::EncodeOptions;
use siskin::{CacheType, Error, ErrorKind, Model, Result, SessionOptions};
use std::path::{Path, PathBuf};

/// Measure the perplexity of a model on a text
///
/// The text is split into chunks of --context tokens; the second half of each chunk is scored, with the first half as
/// context. --against reports the KL divergence from another model on the same tokens.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
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
    let mut scores = Scores::new(
        model.session(options(kv))?,
        other.map(|other| other.session(options(other_kv))).transpose()?,
    );
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
