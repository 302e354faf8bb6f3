//! `siskin classify`: texts to classes.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongText, TextArgs};
use serde_json::{Value, json};
use siskin::{EncoderOptions, Result};
use std::path::PathBuf;

/// Tell which class each text is of
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    /// What is done with texts that are too long for the model: refuse or cut
    #[arg(long, value_enum, default_value_t)]
    long: LongText,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text, with all classes
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = open.model(&args.model, &args.model_args)?;
    let mut encoder =
        model.encoder(EncoderOptions { cache: args.model_args.kv, ..EncoderOptions::default() })?;
    args.texts.each(|first, texts| {
        for (index, classes) in encoder.classify(texts, args.long.with(0))?.iter().enumerate() {
            if args.json {
                let class = |class: &siskin::encoder::Scored| {
                    json!({"label": class.label, "probability": class.probability})
                };
                let classes: Vec<Value> = classes.iter().map(class).collect();
                output::json(&json!({"index": first + index, "classes": classes}))?;
            } else if let Some(best) = classes.first() {
                output::line(format_args!("{}\t{:.4}", best.label, best.probability))?;
            }
        }
        Ok(())
    })
}
