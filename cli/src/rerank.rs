//! `siskin rerank`: ranks texts by relevance to a query.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{TextSourceArgs, WholeOverflow};
use serde_json::{Value, json};
use siskin::encoder::OverflowMode;
use siskin::{Encoder, EncoderOptions, Result};
use std::path::PathBuf;

/// Rank texts by relevance to a query
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A cross-encoder: a .siskin file or a Hugging Face folder
    model: PathBuf,
    /// The query
    query: String,
    #[command(flatten)]
    texts: TextSourceArgs,
    /// What to do with a text that, together with the query, is too long for the model
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    overflow: WholeOverflow,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.overflow.mode();
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    let mut scored: Vec<(f32, usize, String)> = Vec::new();
    args.texts.gather(open, |first, texts| {
        let scores = encoder.rerank(&args.query, texts, long)?;
        scored.extend(
            scores
                .into_iter()
                .zip(texts)
                .enumerate()
                .map(|(i, (score, text))| (score, first + i, text.clone())),
        );
        Ok(())
    })?;
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (score, index, text) in scored {
        match args.json {
            true => output::json(&value(score, index))?,
            false => output::line(format_args!("{score:.4}\t{text}"))?,
        }
    }
    Ok(())
}

fn value(score: f32, index: usize) -> Value {
    json!({"index": index, "score": score})
}

/// The JSON output.
pub(crate) fn values(
    encoder: &mut Encoder,
    query: &str,
    texts: &[String],
    long: OverflowMode,
) -> Result<Vec<Value>> {
    let mut scored: Vec<(f32, usize)> = encoder.rerank(query, texts, long)?.into_iter().zip(0..).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(scored.into_iter().map(|(score, index)| value(score, index)).collect())
}
