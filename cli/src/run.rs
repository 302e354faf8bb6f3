//! `siskin run`: one prompt, one answer.

use crate::answer::TimedAnswer;
use crate::options::{ModelArgs, OpenArgs, ResultCacheArgs, TextArgs};
use crate::{embedded, interrupt, output};
use serde_json::json;
use siskin::encoder::EmbedOptions;
use siskin::logits_processors::LogitsProcessorOptions;
use siskin::result_cache::{CacheQuery, CachedAnswer, ResultCache};
use siskin::{EncoderOptions, Error, ErrorKind, GenerateOptions, Model, Result, SessionOptions};
use std::path::{Path, PathBuf};

/// Answer a prompt
#[derive(clap::Args)]
#[command(override_usage = "siskin run [OPTIONS] [MODEL] <PROMPT>")]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder; default: a small embedded model that writes in the style of
    /// Shakespeare's plays
    #[arg(value_name = "MODEL", allow_hyphen_values = true)]
    first: String,
    /// The prompt to answer, or with --raw, to continue
    #[arg(value_name = "PROMPT", allow_hyphen_values = true)]
    second: Option<String>,
    /// Continue the prompt verbatim, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// With --raw, parse control tokens in the prompt
    #[arg(long, requires = "raw")]
    special: bool,
    #[command(flatten)]
    model_args: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    memo: ResultCacheArgs,
    /// Semantic cache: with this embedding model, return the earlier answer to a prompt with nearly the same meaning
    #[arg(long, value_name = "MODEL", requires = "memo", help_heading = "Memory of results")]
    memo_model: Option<PathBuf>,
    /// Semantic cache: minimum cosine similarity of two prompts
    #[arg(long, default_value_t = 0.95, value_name = "VALUE", requires = "memo_model", value_parser = likeness)]
    #[arg(help_heading = "Memory of results")]
    memo_likeness: f32,
    /// Print a JSON object at the end instead of streaming the text
    #[arg(long)]
    json: bool,
}

/// Default minimum cosine similarity of prompts with the same meaning.
fn likeness(text: &str) -> std::result::Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "give a number from 0 to 1, such as 0.95".to_owned())
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut options = args.text.session(&args.model_args)?;
    let memo = args.memo.open()?;
    if memo.is_some() && !args.text.repeats() {
        let message = "the answer would be another each time; give --greedy or a --seed";
        return Err(Error::argument("--memo", message));
    }
    let model = open.model(&args.model()?, &args.model_args)?;
    if model.graphs().encoder.is_some() {
        options.sampler.rules = LogitsProcessorOptions::of(&model)?;
    }
    interrupt::listen()?;
    let Some(memo) = memo else { return answer(args, open, &model, options).map(drop) };
    let mut question = CacheQuery::new(&model, &[], args.prompt(), &options, args.generate())?;
    match find(args, open, &memo, &mut question)? {
        Some((found, likeness)) => repeat(args, open, &found, likeness)?,
        None => {
            let TimedAnswer { text, tokens, ended, .. } = answer(args, open, &model, options)?;
            if let Some(ended) = ended {
                memo.keep(&question, &CachedAnswer { text, tokens, ended })?;
            }
        }
    }
    args.memo.save(&memo);
    Ok(())
}

impl Args {
    fn model(&self) -> Result<PathBuf> {
        if self.second.is_none() && Path::new(&self.first).exists() {
            return Err(Error::argument("PROMPT", "is missing: say what to answer"));
        }
        Ok(PathBuf::from(if self.second.is_some() { &self.first } else { embedded::NAME }))
    }

    fn prompt(&self) -> &str {
        self.second.as_ref().unwrap_or(&self.first)
    }

    fn generate(&self) -> GenerateOptions {
        let max_tokens = self.text.max_tokens.unwrap_or(usize::MAX);
        GenerateOptions { max_tokens, raw: self.raw, special: self.special }
    }
}

/// Looks up an earlier answer to the same or a similar prompt, and the similarity of the prompts.
fn find(
    args: &Args,
    open: &OpenArgs,
    memo: &ResultCache,
    question: &mut CacheQuery,
) -> Result<Option<(CachedAnswer, f32)>> {
    if let Some(found) = memo.recall(question) {
        return Ok(Some((found, 1.0)));
    }
    let Some(path) = &args.memo_model else { return Ok(None) };
    let wanted = EncoderOptions { head: false, ..EncoderOptions::default() };
    let mut encoder = open.encoder(path, &args.model_args.alone(), wanted)?;
    let options = EmbedOptions::of(encoder.model())?;
    match question.understand(&mut encoder, &options) {
        // The embedding would only cover a truncated prompt: not comparable.
        Err(error) if error.kind() == ErrorKind::TooLong => Ok(None),
        outcome => outcome.map(|()| memo.recall_near(question, args.memo_likeness)),
    }
}

/// Prints an earlier answer.
fn repeat(args: &Args, open: &OpenArgs, found: &CachedAnswer, likeness: f32) -> Result<()> {
    if args.json {
        return output::json(&json!({"text": found.text, "tokens": found.tokens, "likeness": likeness}));
    }
    output::line(&found.text)?;
    output::note(open, format_args!("[{} tokens remembered, prompts alike by {likeness:.3}]", found.tokens));
    Ok(())
}

/// Generates an answer.
fn answer(args: &Args, open: &OpenArgs, model: &Model, options: SessionOptions) -> Result<TimedAnswer> {
    let seed = options.sampler.seed;
    let mut session = model.session(options)?;
    let answer = TimedAnswer::generate(&mut session, args.prompt(), args.generate(), !args.json)?;
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
    match answer.stopped {
        true => Err(Error::new(ErrorKind::Cancelled, "run", "stopped by Ctrl-C")),
        false => Ok(answer),
    }
}
