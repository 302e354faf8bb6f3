//! `siskin answer`: the place of a text that answers a question.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongArgs, OVERLAP, TextArgs};
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
    #[command(flatten)]
    long: LongArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.long.read(OVERLAP)?;
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, text) in texts.iter().enumerate() {
            let answer = encoder.answer(&args.question, text, long)?;
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
