//! `siskin fill-mask`: what may stand at a masked place.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::TextArgs;
use serde_json::{Value, json};
use siskin::{EncoderOptions, Result};
use std::path::PathBuf;

/// Tell what may stand where a text has its mask token, such as [MASK]
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    /// How many tokens are told for each place
    #[arg(long, default_value_t = 5, value_name = "N")]
    top: usize,
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
            let places = encoder.fill_mask(text, args.top)?;
            if args.json {
                let filling = |filling: &siskin::encoder::Filling| {
                    json!({"id": filling.id, "text": filling.text, "probability": filling.probability})
                };
                let places: Vec<Vec<Value>> =
                    places.iter().map(|place| place.iter().map(filling).collect()).collect();
                output::json(&json!({"index": first + index, "places": places}))?;
                continue;
            }
            for place in places {
                let told: Vec<String> =
                    place.iter().map(|filling| format!("{} {:.4}", filling.text, filling.probability)).collect();
                output::line(told.join("\t"))?;
            }
        }
        Ok(())
    })
}
