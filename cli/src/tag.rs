//! `siskin tag`: the parts of texts that have a label.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongArgs, OVERLAP, TextArgs};
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
    #[command(flatten)]
    long: LongArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each find
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.long.read(OVERLAP)?;
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, entities) in encoder.tag(texts, long)?.iter().enumerate() {
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
