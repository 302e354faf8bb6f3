//! `siskin translate`: machine translation.

use crate::options::OpenArgs;
use crate::text_generation::TextGenerationArgs;
use siskin::{Result, Seq2SeqGenerateOptions};

/// Translate each text
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Source language, by the model's name for it or its code; not needed for models of one language pair
    #[arg(long, value_name = "CODE")]
    from: Option<String>,
    /// Target language
    #[arg(long, value_name = "CODE")]
    to: Option<String>,
    #[command(flatten)]
    generation: TextGenerationArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let (from, to) = (args.from.as_deref(), args.to.as_deref());
    args.generation.run(open, |model| Seq2SeqGenerateOptions::translation(model, from, to))
}
