//! `siskin run`: one prompt, one response.

use crate::answer::TimedAnswer;
use crate::options::{ModelArgs, OpenArgs, ResultCacheArgs, TextArgs};
use crate::structured_output::StructuredOutputArgs;
use crate::template_args::TemplateArgs;
use crate::terminal::printable;
use crate::{built_in_model, input_path, interrupt, output};
use serde_json::{Value, json};
use siskin::chat::{ChatOptions, MessageReader, ResponseEvent, ResponseParser, ToolChoice};
use siskin::constraint::StructuredOutput;
use siskin::encoder::EmbedOptions;
use siskin::logits_processors::LogitsProcessorOptions;
use siskin::result_cache::{CacheQuery, CachedAnswer, ResultCache};
use siskin::template::{Message, RenderOptions};
use siskin::{
    EncoderOptions, Error, ErrorKind, GenerateOptions, GeneratedToken, Generation, Model, Result, Session,
    SessionOptions,
};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Generate a response to a prompt
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a file, a folder, or `shakespeare`, a built-in model that writes in the style of
    /// Shakespeare's plays
    model: PathBuf,
    /// The prompt to respond to, or to continue with --raw; read from standard input if omitted or `-`
    #[arg(allow_negative_numbers = true)]
    prompt: Option<String>,
    /// The prompt, which may begin with a hyphen
    #[arg(
        short,
        long = "prompt",
        value_name = "PROMPT",
        conflicts_with = "prompt",
        allow_hyphen_values = true
    )]
    prompt_option: Option<String>,
    /// Read the prompt from this file
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_option"])]
    file: Option<PathBuf>,
    /// The system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Pass the prompt to the model verbatim, without the chat template
    #[arg(long)]
    raw: bool,
    /// With --raw, parse special tokens in the prompt
    #[arg(long, requires = "raw")]
    parse_special: bool,
    /// Print a JSON object at the end instead of streaming the text
    #[arg(long)]
    json: bool,
    /// With --json, add the log-probability of each token
    #[arg(long, requires = "json", conflicts_with = "result_cache")]
    logprobs: bool,
    /// With --json, add the N most likely tokens at each position, with their log-probabilities
    #[arg(long, value_name = "N", requires = "json", conflicts_with = "result_cache")]
    top_logprobs: Option<usize>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Whether the response must call a tool: auto, none, required, or the name of the tool
    #[arg(long, value_name = "CHOICE", requires = "tools", help_heading = "Chat template")]
    tool_choice: Option<String>,
    #[command(flatten)]
    model_args: ModelArgs,
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    structured_output: StructuredOutputArgs,
    #[command(flatten)]
    cache: ResultCacheArgs,
    /// Semantic cache: with this embedding model, return the earlier response to a prompt with nearly the same
    /// meaning
    #[arg(long, value_name = "MODEL", requires = "result_cache", help_heading = "Result cache")]
    semantic_cache_model: Option<PathBuf>,
    /// Semantic cache: minimum cosine similarity of two prompts
    #[arg(long, default_value_t = 0.95, value_name = "VALUE", requires = "semantic_cache_model", value_parser = similarity)]
    #[arg(help_heading = "Result cache")]
    semantic_cache_threshold: f32,
}

/// Parses a cosine similarity.
fn similarity(text: &str) -> std::result::Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1, such as 0.95".to_owned())
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut options = args.text.session(&args.model_args)?;
    let cache = args.cache.open()?;
    if cache.is_some() && !args.text.repeats() {
        let message = "requires reproducible output; add --greedy or --seed";
        return Err(Error::argument("--result-cache", message));
    }
    if args.raw && args.template.are_given() {
        let message = "cannot be combined with --raw, which does not apply the chat template";
        return Err(Error::argument("--template-var, --tools, --documents", message));
    }
    let output = args.structured_output.output()?;
    if cache.is_some() && (output.is_some() || args.template.has_tools()) {
        let message = "cannot be combined with --tools and the options of structured output";
        return Err(Error::argument("--result-cache", message));
    }
    let prompt = args.prompt()?;
    let model = open.model(&args.model, &args.model_args)?;
    if model.graphs().encoder.is_some() {
        options.sampler.logits_processors = LogitsProcessorOptions::of(&model)?;
    }
    options.template = args.template.options(&model)?;
    if args.system.is_some() && model.template()?.is_none() {
        return Err(Error::argument("--system", "the model has no chat template"));
    }
    options.sampler.log_probabilities = args.logprobs || args.top_logprobs.is_some();
    options.sampler.top_log_probabilities = args.top_logprobs.unwrap_or(0);
    interrupt::listen()?;
    let Some(cache) = cache else {
        return answer(args, open, &model, &prompt, options, output.as_ref()).map(drop);
    };
    let before: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    let mut question = CacheQuery::new(&model, &before, &prompt, &options, args.generate())?;
    match find(args, open, &cache, &mut question)? {
        Some((found, similarity)) => repeat(args, open, &found, similarity)?,
        None => {
            let TimedAnswer { text, tokens, finish_reason, .. } =
                answer(args, open, &model, &prompt, options, None)?;
            if let Some(finish_reason) = finish_reason {
                cache.insert_answer(&question, &CachedAnswer { text, tokens, finish_reason })?;
            }
        }
    }
    args.cache.save(&cache);
    Ok(())
}

impl Args {
    /// Returns the prompt, which is read from standard input if none is given.
    fn prompt(&self) -> Result<String> {
        let prompt = match (&self.file, self.prompt_option.as_ref().or(self.prompt.as_ref())) {
            (Some(path), _) => input_path::read_text(path)?,
            (None, Some(text)) if text != "-" => text.clone(),
            (None, None)
                if input_path::check_model(&self.model).is_err() || std::io::stdin().is_terminal() =>
            {
                return Err(self.without_prompt());
            }
            (None, _) => std::io::read_to_string(std::io::stdin().lock())
                .map_err(|error| Error::io("standard input", &error))?,
        };
        match prompt.is_empty() {
            true => Err(Error::argument("PROMPT", "must not be empty")),
            false => Ok(prompt),
        }
    }

    /// Returns the error for a single argument: a model without a prompt, or a prompt without a model.
    fn without_prompt(&self) -> Error {
        match input_path::check_model(&self.model) {
            Ok(()) => Error::argument("PROMPT", "missing; pass a prompt, or pipe one to standard input"),
            Err(error) if self.looks_like_prompt() => {
                let text = self.model.display().to_string();
                let message = format!(
                    "not a model; to continue this text with the built-in model, type: siskin run {} {text:?}",
                    built_in_model::NAME
                );
                Error::new(error.kind(), text, message)
            }
            Err(error) => error,
        }
    }

    fn looks_like_prompt(&self) -> bool {
        let text = self.model.to_string_lossy();
        text.contains(char::is_whitespace) || text.ends_with(['?', ':', '!'])
    }

    /// Returns the options of a chat with tools; `None` if there are none whose calls can be parsed.
    fn chat(
        &self,
        options: &SessionOptions,
        output: Option<&StructuredOutput>,
    ) -> Result<Option<ChatOptions>> {
        let Some(tools) = self.template.tools(self.tool_choice.is_some())? else { return Ok(None) };
        let tool_choice = match self.tool_choice.as_deref() {
            None | Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            Some(name) => ToolChoice::Named(name.to_owned()),
        };
        Ok(Some(ChatOptions {
            template: RenderOptions { tools: None, ..options.template.clone() },
            tools,
            tool_choice,
            structured_output: output.cloned(),
            ..ChatOptions::default()
        }))
    }

    fn generate(&self) -> GenerateOptions {
        let max_tokens = self.text.max_tokens.unwrap_or(usize::MAX);
        GenerateOptions { max_tokens, raw: self.raw, parse_special: self.parse_special }
    }
}

/// Appends what is printed of a response: all but tool calls.
fn append_printed(printed: &mut String, event: &ResponseEvent) {
    if let ResponseEvent::Content(text) | ResponseEvent::Reasoning(text) = event {
        printed.push_str(text);
    }
}

/// Looks up an earlier response to the same or a similar prompt, and the similarity of the prompts.
fn find(
    args: &Args,
    open: &OpenArgs,
    cache: &ResultCache,
    question: &mut CacheQuery,
) -> Result<Option<(CachedAnswer, f32)>> {
    if let Some(found) = cache.answer(question) {
        return Ok(Some((found, 1.0)));
    }
    let Some(path) = &args.semantic_cache_model else { return Ok(None) };
    let wanted = EncoderOptions { head: false, ..EncoderOptions::default() };
    let mut encoder = open.encoder(path, &args.model_args.alone(), wanted)?;
    let options = EmbedOptions::of(encoder.model())?;
    match question.embed(&mut encoder, &options) {
        // The embedding would only cover a truncated prompt: not comparable.
        Err(error) if error.kind() == ErrorKind::TooLong => Ok(None),
        outcome => outcome.map(|()| cache.similar_answer(question, args.semantic_cache_threshold)),
    }
}

/// Prints an earlier response.
fn repeat(args: &Args, open: &OpenArgs, found: &CachedAnswer, similarity: f32) -> Result<()> {
    if args.json {
        return output::json(&json!({"text": found.text, "tokens": found.tokens, "similarity": similarity}));
    }
    output::line(&found.text)?;
    output::note(
        open.quiet,
        format_args!("[{} tokens from the cache, similarity of the prompts {similarity:.3}]", found.tokens),
    );
    Ok(())
}

/// Returns a token with its log-probability, in the form of llama.cpp's server.
fn logprob(session: &Session, token: GeneratedToken, with_top: bool) -> Result<Value> {
    let tokenizer = session.model().tokenizer()?;
    let one = |id: u32, log_probability: f32| -> Result<Value> {
        let bytes = tokenizer.piece(id, true)?;
        let text = String::from_utf8_lossy(&bytes);
        let logprob = output::round(f64::from(log_probability), 6);
        Ok(json!({"id": id, "token": text, "bytes": &*bytes, "logprob": logprob}))
    };
    let mut value = one(token.id, token.log_probability)?;
    if with_top {
        let top = session.top().iter().map(|token| one(token.id, token.log_probability));
        value["top_logprobs"] = top.collect::<Result<Vec<_>>>()?.into();
    }
    Ok(value)
}

/// Returns the JSON object of a response.
fn report(answer: &TimedAnswer, seed: u64, logprobs: Option<Vec<Value>>, message: Option<&Message>) -> Value {
    let mut value = json!({
        "text": answer.text,
        "seed": seed,
        "tokens": answer.tokens,
        "context_tokens": answer.position,
        "prompt_seconds": output::round(answer.prompt_seconds, 4),
        "seconds": output::round(answer.seconds, 4),
        "tokens_per_second": answer.rate(),
        "finish_reason": answer.finish_reason(),
    });
    if let Some(logprobs) = logprobs {
        value["logprobs"] = logprobs.into();
    }
    if let Some(message) = message {
        value["message"] = message.to_json();
    }
    value
}

/// Generates a response in a chat, and prints all of it but tool calls. Returns its message as well.
fn parsed_answer(
    session: &mut Session,
    begin: impl FnOnce(&mut Session) -> Result<(Generation, ResponseParser)>,
    print: &mut dyn FnMut(&str) -> Result<()>,
    on_token: &mut dyn FnMut(&Session, GeneratedToken) -> Result<()>,
) -> Result<(TimedAnswer, Option<Message>)> {
    let reader = RefCell::new(None);
    let begin = |session: &mut Session| {
        let (generation, parser) = begin(session)?;
        *reader.borrow_mut() = Some(MessageReader::new(parser));
        Ok(generation)
    };
    let mut print_parsed = |text: &str| {
        let mut printed = String::new();
        if let Some(reader) = reader.borrow_mut().as_mut() {
            reader.push(text, &mut |event| append_printed(&mut printed, event));
        }
        print(&printed)
    };
    let answer = TimedAnswer::run(session, begin, &mut print_parsed, on_token)?;
    let (mut reader, mut printed) = (reader.into_inner(), String::new());
    if let Some(reader) = &mut reader {
        reader.finish(&mut |event| append_printed(&mut printed, event));
    }
    print(&printed)?;
    Ok((answer, reader.map(|reader| reader.message().clone())))
}

/// Generates a response.
fn answer(
    args: &Args,
    open: &OpenArgs,
    model: &Model,
    prompt: &str,
    options: SessionOptions,
    output: Option<&StructuredOutput>,
) -> Result<TimedAnswer> {
    let seed = options.sampler.seed;
    let chat = args.chat(&options, output)?;
    let mut session = model.session(options)?;
    session.set_structured_output(output)?;
    let before: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    before.iter().for_each(|message| session.push_message(message.clone()));
    let is_terminal = std::io::stdout().is_terminal();
    let mut print = |text: &str| match (args.json, is_terminal) {
        (true, _) => Ok(()),
        (false, true) => output::write(&printable(text)),
        (false, false) => output::write(text),
    };
    let (mut logprobs, reported) = (Vec::new(), args.logprobs || args.top_logprobs.is_some());
    let mut on_token = |session: &Session, token: GeneratedToken| {
        if reported {
            logprobs.push(logprob(session, token, args.top_logprobs.is_some())?);
        }
        Ok(())
    };
    let (answer, message) = match chat {
        None => {
            let generate = args.generate();
            (TimedAnswer::generate(&mut session, prompt, generate, &mut print, &mut on_token)?, None)
        }
        Some(chat) => {
            let messages = [before, vec![Message::new("user", prompt)]].concat();
            let begin = |session: &mut Session| session.chat(&messages, &chat, args.generate());
            parsed_answer(&mut session, begin, &mut print, &mut on_token)?
        }
    };
    if args.json {
        let logprobs = reported.then_some(logprobs);
        output::json(&report(&answer, seed, logprobs, message.as_ref()))?;
    } else {
        output::line("")?;
        for call in message.iter().flat_map(|message| &message.tool_calls) {
            output::json(&call.to_json()["function"])?;
        }
        output::note(open.quiet, answer.summary());
    }
    match answer.stopped {
        true => Err(Error::new(ErrorKind::Canceled, "run", "stopped by Ctrl-C")),
        false => Ok(answer),
    }
}
