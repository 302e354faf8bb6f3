//! `siskin answer`: the place of a text that answers a question.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::TextArgs;
use serde_json::json;
use siskin::encoder::Long;
use siskin::{EncoderOptions, Result};
use std::path::PathBuf;

/// Find the part of each text that answers a question
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    /// The question
    question: String,
    #[command(flatten)]
    texts: TextArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = open.model(&args.model, &args.model_args)?;
    let mut encoder =
        model.encoder(EncoderOptions { cache: args.model_args.kv, ..EncoderOptions::default() })?;
    args.texts.each(|first, texts| {
        for (index, text) in texts.iter().enumerate() {
            let answer = encoder.answer(&args.question, text, Long::Refuse)?;
            let found = text.get(answer.start..answer.end).unwrap_or_default();
            match args.json {
                true => {
                    output::json(&json!({"index": first + index, "start": answer.start, "end": answer.end,
                    "text": found, "probability": answer.probability}))?
                }
                false => output::line(format_args!("{:.4}\t{found}", answer.probability))?,
            }
        }
        Ok(())
    })
}
