//! `siskin answer`: extractive question answering.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{OVERLAP, OverflowArgs, TextSourceArgs};
use serde_json::{Value, json};
use siskin::encoder::{AnswerSpan, OverflowMode};
use siskin::{Encoder, EncoderOptions, Result};
use std::path::PathBuf;

/// Find the span of each text that answers a question
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    /// The question
    question: String,
    #[command(flatten)]
    texts: TextSourceArgs,
    #[command(flatten)]
    overflow: OverflowArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// The JSON output.
pub(crate) fn values(
    encoder: &mut Encoder,
    question: &str,
    texts: &[String],
    long: OverflowMode,
) -> Result<Vec<Value>> {
    let each =
        |(index, text): (usize, &String)| Ok(value(index, &encoder.answer(question, text, long)?, text));
    texts.iter().enumerate().map(each).collect()
}

fn value(index: usize, answer: &AnswerSpan, text: &str) -> Value {
    json!({"index": index, "start": answer.start, "end": answer.end, "text": spanned(answer, text),
        "probability": answer.probability})
}

fn spanned<'a>(answer: &AnswerSpan, text: &'a str) -> &'a str {
    text.get(answer.start..answer.end).unwrap_or_default()
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.overflow.mode(OVERLAP)?;
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, text) in texts.iter().enumerate() {
            let answer = encoder.answer(&args.question, text, long)?;
            match args.json {
                true => output::json(&value(first + index, &answer, text))?,
                false => output::line(format_args!("{:.4}\t{}", answer.probability, spanned(&answer, text)))?,
            }
        }
        Ok(())
    })
}
