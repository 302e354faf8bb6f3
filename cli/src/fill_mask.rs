//! `siskin fill-mask`: predictions for mask tokens.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::TextSourceArgs;
use serde_json::{Value, json};
use siskin::encoder::MaskPrediction;
use siskin::{Encoder, EncoderOptions, Result};
use std::path::PathBuf;

/// Default number of predictions.
pub(crate) const TOP_K: usize = 5;

/// Predict the masked tokens of each text (such as [MASK])
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    /// Number of predictions for each mask
    #[arg(long, default_value_t = TOP_K, value_name = "N")]
    top_k: usize,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// The JSON output.
pub(crate) fn values(encoder: &mut Encoder, texts: &[String], top_k: usize) -> Result<Vec<Value>> {
    let each = |(index, text): (usize, &String)| Ok(value(index, &encoder.fill_mask(text, top_k)?));
    texts.iter().enumerate().map(each).collect()
}

fn value(index: usize, places: &[Vec<MaskPrediction>]) -> Value {
    let filling = |filling: &MaskPrediction| json!({"id": filling.id, "text": filling.text, "probability": filling.probability});
    let places: Vec<Vec<Value>> = places.iter().map(|place| place.iter().map(filling).collect()).collect();
    json!({"index": index, "places": places})
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut encoder = open.encoder(&args.model, &args.model_args, EncoderOptions::default())?;
    args.texts.each(open, |first, texts| {
        for (index, text) in texts.iter().enumerate() {
            let places = encoder.fill_mask(text, args.top_k)?;
            if args.json {
                output::json(&value(first + index, &places))?;
                continue;
            }
            for place in places {
                let told: Vec<String> = place
                    .iter()
                    .map(|filling| format!("{} {:.4}", filling.text, filling.probability))
                    .collect();
                output::line(told.join("\t"))?;
            }
        }
        Ok(())
    })
}
