//! `siskin tag`: the parts of texts that have a label.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongText, TextArgs};
use serde_json::json;
use siskin::{EncoderOptions, Result};
use std::path::PathBuf;

/// Find what has a label in texts, such as names
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    /// What is done with texts that are too long for the model
    #[arg(long, value_enum, default_value_t)]
    long: LongText,
    /// Tokens that parts of a long text share
    #[arg(long, default_value_t = 32, value_name = "N")]
    overlap: usize,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each find
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, entities) in encoder.tag(texts, args.long.with(args.overlap))?.iter().enumerate() {
            for entity in entities {
                let found = texts[index].get(entity.start..entity.end).unwrap_or_default();
                if args.json {
                    output::json(
                        &json!({"index": first + index, "label": entity.label, "start": entity.start,
                        "end": entity.end, "text": found, "probability": entity.probability}),
                    )?;
                } else {
                    output::line(format_args!("{}\t{}\t{found}", first + index, entity.label))?;
                }
            }
        }
        Ok(())
    })
}
