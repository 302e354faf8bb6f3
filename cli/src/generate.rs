//! `siskin generate`: text continuation, or seq2seq generation.

use crate::options::OpenArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Seq2SeqGenerateOptions};

/// Continue each text or, for encoder-decoder models, generate output from it
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    writing: WritingArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.writing.run(open, Seq2SeqGenerateOptions::of)
}
