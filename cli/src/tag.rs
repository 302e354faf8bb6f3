//! `siskin tag`: token classification.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{OVERLAP, OverflowArgs, TextSourceArgs};
use serde_json::{Value, json};
use siskin::encoder::{Entity, OverflowMode};
use siskin::{Encoder, EncoderOptions, Result};
use std::path::PathBuf;

/// Find labeled spans in texts, such as names (token classification)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    #[command(flatten)]
    overflow: OverflowArgs,
    /// Print a JSON object for each span
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// The JSON output.
pub(crate) fn values(encoder: &mut Encoder, texts: &[String], long: OverflowMode) -> Result<Vec<Value>> {
    let all = encoder.tag(texts, long)?;
    let rows = all.iter().zip(texts).enumerate();
    Ok(rows
        .flat_map(|(index, (found, text))| found.iter().map(move |entity| value(index, entity, text)))
        .collect())
}

fn value(index: usize, entity: &Entity, text: &str) -> Value {
    json!({"index": index, "label": entity.label, "start": entity.start, "end": entity.end,
        "text": spanned(entity, text), "probability": entity.probability})
}

fn spanned<'a>(entity: &Entity, text: &'a str) -> &'a str {
    text.get(entity.start..entity.end).unwrap_or_default()
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.overflow.mode(OVERLAP)?;
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, entities) in encoder.tag(texts, long)?.iter().enumerate() {
            for entity in entities {
                let (number, text) = (first + index, &texts[index]);
                match args.json {
                    true => output::json(&value(number, entity, text))?,
                    false => {
                        output::line(format_args!("{number}\t{}\t{}", entity.label, spanned(entity, text)))?
                    }
                }
            }
        }
        Ok(())
    })
}
