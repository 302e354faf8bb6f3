//! Chat templates: the model's own Jinja template turns messages into the prompt.
//!
//! Templates come with model files and are not trusted. They run in an interpreter without access to files, clocks or
//! the network, and with bounded work, memory, depth and output. Results equal those of Jinja 2 as configured by
//! Hugging Face's `apply_chat_template`: an immutable sandbox with `trim_blocks` and `lstrip_blocks`, loop controls,
//! `tojson` without HTML escapes, `raise_exception`, `strftime_now` and `generation` blocks.
//!
//! - [`ChatTemplate`] is a parsed template.
//! - [`Message`] is a turn of a conversation, and [`TemplateData`] any value that a template can see.
//! - [`tools`] has what templates and responses say about tool calls and reasoning.
//! - [`UntrustedSpan`]s say which parts of a rendered prompt came from messages, so that these parts cannot spell
//!   control tokens, however the template joins or changes them.
//!
//! ```
//! use siskin_chat_template::{ChatTemplate, Message, RenderOptions};
//!
//! let template = ChatTemplate::new("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")?;
//! let messages = [Message::new("user", "Hello!")];
//! assert_eq!(template.render(&(&messages).into(), &RenderOptions::default())?, "<user>Hello!");
//! # Ok::<(), siskin_format::Error>(())
//! ```
//!
//! Unsupported, with an error that says so: other templates (`include`, `import`, `extends`, `block`), recursive loops,
//! and argument unpacking with `*`.
//!
//! To add a filter, test, method or function, add a line to the list of its file: `filters.rs` and `sequences.rs`,
//! `checks.rs`, `methods.rs`, `functions.rs`.

mod arguments;
mod ast;
mod budget;
mod checks;
mod data;
mod date;
mod evaluate_expressions;
mod expressions;
mod filters;
mod format;
mod functions;
mod interpreter;
mod json;
mod lexer;
mod message;
mod methods;
mod operators;
mod parser;
mod python;
mod response_event;
mod sequences;
mod split;
mod style;
#[cfg(test)]
mod tests;
mod text;
#[cfg(feature = "tools")]
pub mod tools;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use budget::{Budget, RenderError};
pub use data::{MessageStyle, TemplateData};
pub use date::Date;
use interpreter::Interpreter;
pub use message::{ContentPart, Message, ToolCall};
use parser::Parsed;
pub use response_event::ResponseEvent;
use text::TextBuilder;
pub use text::UntrustedSpan;
#[cfg(feature = "tools")]
use tools::TemplateTraits;
use value::TemplateValue;

use siskin_format::{CargoFeature, Error, ErrorKind, Result};

/// The cargo feature of this crate, which `siskin` calls `templates`.
pub const FEATURE: CargoFeature = CargoFeature { name: "templates", is_there: cfg!(feature = "interpreter") };

/// The cargo feature of tool calls.
pub const TOOLS: CargoFeature = CargoFeature { name: "tools", is_there: cfg!(feature = "tools") };

/// The maximum size of a template's source, in bytes.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// The maximum work of a rendering, in steps of about one expression each.
const MAX_WORK: u64 = 20_000_000;
/// The maximum memory of a rendering, in bytes: a constant, plus a multiple of the input size.
const MAX_MEMORY: u64 = 3 << 20;
const MEMORY_PER_INPUT: u64 = 64;

/// A parsed chat template. Clones share it, also across threads.
///
/// ```
/// use siskin_chat_template::{ChatTemplate, Message, RenderOptions};
///
/// let template = ChatTemplate::new(
///     "{% for message in messages %}<|{{ message.role }}|>{{ message.content | trim }}\n{% endfor %}\
///      {% if add_generation_prompt %}<|assistant|>{% endif %}",
/// )?;
/// let messages = [Message::new("user", " Hello! ")];
/// let prompt = template.render(&(&messages).into(), &RenderOptions::default())?;
/// assert_eq!(prompt, "<|user|>Hello!\n<|assistant|>");
/// # Ok::<(), siskin_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    parsed: Arc<Parsed>,
    source: Arc<str>,
    #[cfg(feature = "tools")]
    traits: Arc<std::sync::OnceLock<TemplateTraits>>,
}

/// Variables of a template besides the messages.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderOptions {
    /// The text of the BOS token; undefined in the template if `None`.
    pub bos_token: Option<String>,
    /// The text of the EOS token; undefined in the template if `None`.
    pub eos_token: Option<String>,
    /// Whether the prompt ends with the beginning of an assistant message. On by default.
    pub add_generation_prompt: bool,
    /// The functions that the model may call (tools): a list of JSON schemas.
    pub tools: Option<TemplateData>,
    /// Documents for retrieval-augmented generation.
    pub documents: Option<TemplateData>,
    /// Further variables, such as `enable_thinking`; they take precedence over all others.
    pub extra: Vec<(String, TemplateData)>,
    /// The current date; if `None`, templates use a date of their own.
    pub now: Option<Date>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            bos_token: None,
            eos_token: None,
            add_generation_prompt: true,
            tools: None,
            documents: None,
            extra: Vec::new(),
            now: None,
        }
    }
}

impl RenderOptions {
    /// Replaces the further variables by those of a JSON object; an empty text means none.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not a JSON object, or sets `messages`.
    pub fn set_variables(&mut self, json: &str) -> Result<()> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let invalid = |what: String| Error::argument("template_variables", what);
        let variables: BTreeMap<String, TemplateData> = match json {
            "" => BTreeMap::new(),
            json => serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?,
        };
        if variables.contains_key("messages") {
            return Err(invalid("`messages` cannot be set here".to_owned()));
        }
        self.extra = variables.into_iter().collect();
        Ok(())
    }
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] if the source is invalid, too long or nested too deeply; the place names the line.
    pub fn new(source: &str) -> Result<Self> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        if source.len() > MAX_SOURCE_BYTES {
            let message = format!("{} bytes long; at most {MAX_SOURCE_BYTES} are allowed", source.len());
            return Err(Error::new(ErrorKind::Template, "chat template", message));
        }
        let parsed = lexer::tokens(source).and_then(parser::parse);
        let parsed = parsed.map_err(|(failure, line)| error(&failure, line))?;
        Ok(Self {
            parsed: Arc::new(parsed),
            source: source.into(),
            #[cfg(feature = "tools")]
            traits: Arc::default(),
        })
    }

    /// Returns whether the name occurs in the template: a variable whose name does not occur has no effect.
    pub fn uses(&self, name: &str) -> bool {
        self.parsed.names.iter().any(|known| **known == *name)
    }

    /// Returns how the template expects messages.
    pub fn style(&self) -> MessageStyle {
        #[cfg(feature = "tools")]
        return self.traits().style.clone();
        #[cfg(not(feature = "tools"))]
        style::find(self)
    }

    /// Returns what the template supports, which is found out at the first call.
    #[cfg(feature = "tools")]
    pub fn traits(&self) -> &TemplateTraits {
        self.traits.get_or_init(|| TemplateTraits::of(self))
    }

    /// Returns the source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders the prompt for `messages`.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] if the template fails, rejects the messages, or exceeds a limit; the place names the
    /// line.
    pub fn render(&self, messages: &TemplateData, options: &RenderOptions) -> Result<String> {
        Ok(self.render_with_spans(messages, options)?.0)
    }

    /// Renders the prompt, and returns the byte ranges of it that came from outside the template (untrusted spans) for
    /// `siskin_tokenizer::Tokenizer::encode_guarded`, so that no message can spell a
    /// control token.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_guarded(
        &self,
        messages: &TemplateData,
        options: &RenderOptions,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let (prompt, spans) = self.render_with_spans(messages, options)?;
        Ok((prompt, spans.into_iter().map(|span| span.range).collect()))
    }

    /// Renders the prompt, and returns its untrusted spans.
    pub fn render_with_spans(
        &self,
        messages: &TemplateData,
        options: &RenderOptions,
    ) -> Result<(String, Vec<UntrustedSpan>)> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let variables = variables(messages, options);
        let input: usize = variables.iter().map(|(_, data)| data.bytes).fold(0, usize::saturating_add);
        let memory = MAX_MEMORY.saturating_add(MEMORY_PER_INPUT.saturating_mul(input as u64));
        let find = |name: &str| variables.iter().rev().find(|(known, _)| *known == name);
        let known = self.parsed.names.iter().enumerate().filter_map(|(symbol, name)| {
            let (_, data) = find(name)?;
            Some((symbol as u32, data.value.clone()))
        });
        let mut machine =
            Interpreter::new(&self.parsed.names, known.collect(), Budget::new(MAX_WORK, memory));
        machine.now = options.now;
        let mut output = TextBuilder::default();
        match machine.run(&self.parsed.body, &mut output) {
            Ok(_) => Ok(output.into_parts()),
            Err(failure) => Err(error(&failure, machine.line)),
        }
    }
}

/// Returns the template's variables; of equal names the last one counts.
fn variables<'o>(messages: &TemplateData, options: &'o RenderOptions) -> Vec<(&'o str, TemplateData)> {
    let none = || TemplateValue::None.into();
    let mut variables = vec![
        ("messages", messages.clone()),
        ("tools", options.tools.clone().unwrap_or_else(none)),
        ("documents", options.documents.clone().unwrap_or_else(none)),
        ("add_generation_prompt", options.add_generation_prompt.into()),
    ];
    for (name, token) in [("bos_token", &options.bos_token), ("eos_token", &options.eos_token)] {
        variables.extend(token.as_deref().map(|token| (name, TemplateData::trusted(token))));
    }
    variables.extend(options.extra.iter().map(|(name, data)| (name.as_str(), data.clone())));
    variables
}

fn error(failure: &RenderError, line: u32) -> Error {
    Error::new(ErrorKind::Template, format!("chat template, line {line}"), failure.0.to_string())
}
