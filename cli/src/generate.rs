//! `siskin generate`: text continuation, or seq2seq generation.

use crate::options::OpenArgs;
use crate::text_generation::TextGenerationArgs;
use siskin::{Result, Seq2SeqGenerateOptions};

/// Continue each text or, for encoder-decoder models, generate output from it
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generation: TextGenerationArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.generation.run(open, Seq2SeqGenerateOptions::of)
}
