//! `siskin run`: one prompt, one answer.

use crate::answer::Answer;
use crate::options::{ModelArgs, OpenArgs, TextArgs};
use crate::{interrupt, output};
use serde_json::json;
use siskin::rules::Rules;
use siskin::{Error, ErrorKind, GenerateOptions, Result};
use std::path::PathBuf;

/// Answer a prompt
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file, or a Hugging Face folder
    model: PathBuf,
    /// What to answer, or with --raw, to continue
    #[arg(allow_hyphen_values = true)]
    prompt: String,
    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// With --raw, read control tokens out of the prompt
    #[arg(long, requires = "raw")]
    special: bool,
    #[command(flatten)]
    model_args: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Print a JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut options = args.text.session(&args.model_args)?;
    let seed = options.sampler.seed;
    let model = open.model(&args.model, &args.model_args)?;
    if model.graphs().encoder.is_some() {
        options.sampler.rules = Rules::of(&model)?;
    }
    interrupt::listen()?;
    let mut session = model.session(options)?;
    let options = GenerateOptions {
        max_tokens: args.text.max_tokens.unwrap_or(usize::MAX),
        raw: args.raw,
        special: args.special,
    };
    let answer = Answer::generate(&mut session, &args.prompt, options, !args.json)?;
    if args.json {
        output::json(&json!({
            "text": answer.text,
            "seed": seed,
            "tokens": answer.tokens,
            "context_tokens": answer.position,
            "prompt_seconds": output::round(answer.prompt_seconds, 4),
            "seconds": output::round(answer.seconds, 4),
            "tokens_per_second": answer.rate(),
            "stopped": answer.stopped,
        }))?;
    } else {
        output::line("")?;
        output::note(open, answer.summary());
    }
    if answer.stopped { Err(Error::new(ErrorKind::Cancelled, "run", "stopped by Ctrl-C")) } else { Ok(()) }
}
