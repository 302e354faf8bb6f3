//! `siskin summarize`: text summarization.

use crate::options::OpenArgs;
use crate::text_generation::TextGenerationArgs;
use siskin::{Result, Seq2SeqGenerateOptions};

/// Summarize each text
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generation: TextGenerationArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.generation.run(open, Seq2SeqGenerateOptions::summary)
}
