//! `siskin drift-baseline`: what the prompts of a model usually look like, for `siskin serve --drift-baseline`.

use crate::input_path;
use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::scores::surprise;
use serde::Deserialize;
use siskin::encoder::{EmbedOptions, OverflowMode};
use siskin::file::AtomicFile;
use siskin::serving::PromptInput;
use siskin::template::{Message, RenderOptions};
use siskin::{EncoderOptions, Error, Model, Result, Session, SessionOptions};
use siskin_serve::{BaselinePrompt, DriftBaseline};
use std::path::{Path, PathBuf};

/// Describe the prompts that a model was tested with, so that `siskin serve` can tell when others differ
///
/// The file has histograms of lengths, token frequencies, characters and log-probabilities, and no texts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    /// Prompts, one JSON object per line: {"prompt": "…"}, or {"messages": [{"role": "user", "content": "…"}]}; at least 100,
    /// better thousands
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The file to write; created atomically
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Number of prompts whose log-probability is computed: 0, or at least 100
    #[arg(long, default_value_t = 1000, value_name = "N")]
    scored: usize,
    /// Maximum number of tokens of such a prompt; the rest does not count
    #[arg(short, long, default_value_t = 2048, value_name = "N")]
    context: usize,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// A prompt, as lines of a file have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, untagged, expecting = "expected {\"prompt\": …} or {\"messages\": …}")]
enum PromptLine {
    Prompt { prompt: TextOrTokens },
    Messages { messages: Vec<ChatLine> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrTokens {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatLine {
    role: String,
    content: String,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let location = args.data.display().to_string();
    let lines = read(&args.data)?;
    let model = open.model(&args.model, &args.model_args)?;
    if model.graphs().encoder.is_some() {
        return encoder_baseline(args, open, &model, lines);
    }
    let context = args.context.clamp(2, model.config().context.max(2));
    let options = SessionOptions { context, cache: args.model_args.kv, ..SessionOptions::default() };
    let mut session = match args.scored {
        0 => None,
        _ => Some(model.session(options)?),
    };
    let count = lines.len();
    let mut prompts = Vec::with_capacity(count);
    for (index, line) in lines.into_iter().enumerate() {
        let tokens = tokens(line, &model)
            .map_err(|error| error.within(&format!("{location}: prompt {}", index + 1)))?;
        // Evenly spaced: files are often sorted.
        let is_scored = (index + 1) * args.scored.min(count) / count > index * args.scored.min(count) / count;
        let log_probability = match &mut session {
            Some(session) if is_scored => log_probability(session, &tokens[..tokens.len().min(context)])?,
            _ => None,
        };
        prompts.push(BaselinePrompt { tokens, log_probability, embedding: None });
    }
    write(args, open, &model, &prompts)
}

fn write(args: &Args, open: &OpenArgs, model: &Model, prompts: &[BaselinePrompt]) -> Result<()> {
    let location = args.data.display().to_string();
    let baseline = DriftBaseline::of(model, prompts).map_err(|error| error.within(&location))?;
    let inputs = [args.data.clone(), args.model.clone()];
    AtomicFile::create_from(&args.output, &inputs)?.commit_bytes(baseline.to_json().as_bytes())?;
    output::note(open.quiet, format!("{} prompts: {}", prompts.len(), args.output.display()));
    Ok(())
}

/// Describes texts and their embeddings.
fn encoder_baseline(args: &Args, open: &OpenArgs, model: &Model, lines: Vec<PromptLine>) -> Result<()> {
    let location = args.data.display().to_string();
    let cache = args.model_args.kv;
    let mut encoder = model.encoder(EncoderOptions { cache, head: false, ..EncoderOptions::default() })?;
    let options = EmbedOptions { overflow: OverflowMode::Truncate, ..EmbedOptions::of(model)? };
    let mut prompts = Vec::with_capacity(lines.len());
    for (index, line) in lines.into_iter().enumerate() {
        let place = format!("{location}: prompt {}", index + 1);
        let PromptLine::Prompt { prompt: TextOrTokens::Text(text) } = line else {
            return Err(Error::argument(place, "expected {\"prompt\": \"…\"} for an encoder"));
        };
        let tokens = PromptInput::Text(text.clone()).tokens(model).map_err(|error| error.within(&place))?;
        let vectors = encoder.embed(&[text], &options).map_err(|error| error.within(&place))?;
        let embedding = vectors.into_iter().next();
        prompts.push(BaselinePrompt { tokens, log_probability: None, embedding });
    }
    write(args, open, model, &prompts)
}

fn read(path: &Path) -> Result<Vec<PromptLine>> {
    let location = path.display().to_string();
    let text = input_path::read_text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(index, line): (usize, &str)| {
        let failed = |error: serde_json::Error| {
            Error::argument(format!("{location}: line {}", index + 1), error.to_string())
        };
        serde_json::from_str(line).map_err(failed)
    };
    lines.map(parse).collect()
}

fn tokens(line: PromptLine, model: &Model) -> Result<Vec<u32>> {
    let prompt = match line {
        PromptLine::Prompt { prompt: TextOrTokens::Text(text) } => PromptInput::TextWithSpecialTokens(text),
        PromptLine::Prompt { prompt: TextOrTokens::Tokens(tokens) } => PromptInput::Tokens(tokens),
        PromptLine::Messages { messages } => {
            let message = |line: ChatLine| Message::new(&line.role, &line.content);
            PromptInput::Messages(messages.into_iter().map(message).collect(), RenderOptions::default())
        }
    };
    prompt.tokens(model)
}

/// Returns the mean log-probability of the tokens from the second on.
fn log_probability(session: &mut Session, tokens: &[u32]) -> Result<Option<f64>> {
    let Some((_, targets)) = tokens.split_first().filter(|(_, targets)| !targets.is_empty()) else {
        return Ok(None);
    };
    session.reset();
    let mut nats = 0.0;
    session.score(&tokens[..targets.len()], &mut |index, logits| {
        nats += targets.get(index).map_or(0.0, |target| surprise(logits, *target));
    })?;
    Ok(Some(-nats / targets.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prompts_or_conversations() {
        let parse = |line: &str| serde_json::from_str::<PromptLine>(line);
        assert!(matches!(
            parse("{\"prompt\": \"a\"}"),
            Ok(PromptLine::Prompt { prompt: TextOrTokens::Text(_) })
        ));
        assert!(matches!(
            parse("{\"prompt\": [1, 2]}"),
            Ok(PromptLine::Prompt { prompt: TextOrTokens::Tokens(_) })
        ));
        let chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
        assert!(matches!(parse(chat), Ok(PromptLine::Messages { messages }) if messages.len() == 1));
        assert!(parse("{\"text\": \"a\"}").is_err() && parse("\"a\"").is_err());
    }
}
