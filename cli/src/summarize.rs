//! `siskin summarize`: text summarization.

use crate::options::OpenArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Seq2SeqGenerateOptions};

/// Summarize each text
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    writing: WritingArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.writing.run(open, Seq2SeqGenerateOptions::summary)
}
