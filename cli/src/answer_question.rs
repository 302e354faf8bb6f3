//! `siskin answer`: the place of a text that answers a question.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongText, TextArgs};
use serde_json::json;
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
    /// What is done with texts that are too long for the model together with the question
    #[arg(long, value_enum, default_value_t)]
    long: LongText,
    /// Tokens that parts of a long text share: as many as the longest answer, or more
    #[arg(long, default_value_t = 32, value_name = "N")]
    overlap: usize,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, text) in texts.iter().enumerate() {
            let answer = encoder.answer(&args.question, text, args.long.with(args.overlap))?;
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
