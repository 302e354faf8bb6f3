//! Chats with tools and reasoning: what a model's chat template supports, prompts with tools, constraints on tool calls,
//! and the parts of a response.
//!
//! - [`Model::chat`] prepares a [`ChatPrompt`]: its tokens, what the response must be, and the [`ResponseParser`] that
//!   splits the generated text into [`ResponseEvent`]s, of which a [`MessageReader`] makes a message.
//! - [`Tool`] is a function that the model may call, and [`ToolChoice`] whether it must.
//!
//! Models differ in how they write tool calls: the format is that of the model's template, which is rendered with an
//! example to find it. Models whose template has no tools get them in the system message.
//!
//! ```
//! use siskin::chat::{ChatOptions, Tool};
//!
//! let parameters = r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#;
//! let tool = Tool::new("get_weather", "Returns the weather of a city.", parameters)?;
//! let options = ChatOptions { tools: vec![tool], ..ChatOptions::default() };
//! # let _ = options;
//! # Ok::<(), siskin::Error>(())
//! ```

#[cfg(test)]
mod grammar_tests;
mod message_reader;
mod options_json;
mod session;
mod tool_grammar;

use crate::constraint::{DeferredOutput, GRAMMAR, StructuredOutput, bounded_schema};
use crate::model::Model;
use crate::session::{RenderedChat, no_template, render_chat};
use crate::{Error, Result};
pub use message_reader::MessageReader;
pub use siskin_chat_template::ResponseEvent;
use siskin_chat_template::tools::{
    DEFAULT_FORMAT, ParameterTypes, ReasoningTags, TemplateTraits, ToolFormat, parameter_types, with_tools,
};
pub use siskin_chat_template::tools::{ResponseParser, Tool, ToolChoice};
use siskin_chat_template::{Message, RenderOptions, TemplateData};
use siskin_tokenizer::{EncodeOptions, Tokenizer};
use tool_grammar::{GrammarStart, ToolGrammar, json_after_space};

/// Options of a response in a chat.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// The variables of the chat template. Tools that are set here are only shown to the model.
    pub template: RenderOptions,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// Whether a response may have more than one call.
    pub parallel_tool_calls: bool,
    /// What the content must be, after reasoning and if no tool is called; `None`: anything.
    pub structured_output: Option<StructuredOutput>,
    /// The maximum number of tokens of reasoning, after which its end is forced.
    pub reasoning_budget: Option<usize>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            template: RenderOptions::default(),
            tools: Vec::new(),
            tool_choice: ToolChoice::default(),
            parallel_tool_calls: true,
            structured_output: None,
            reasoning_budget: None,
        }
    }
}

/// A prompt, and how its response is generated and read.
pub struct ChatPrompt {
    /// The tokens of the prompt.
    pub tokens: Vec<u32>,
    /// What the response must be; `None`: any text.
    pub structured_output: Option<StructuredOutput>,
    /// The special tokens whose text the parser needs.
    pub visible_tokens: Vec<u32>,
    reader: ResponseReader,
}

/// What a [`ResponseParser`] is created from.
struct ResponseReader {
    format: Option<&'static ToolFormat>,
    types: ParameterTypes,
    reasoning: Option<ReasoningTags>,
    is_reasoning: bool,
}

impl ChatPrompt {
    /// Creates the parser for a response.
    pub fn parser(&self) -> ResponseParser {
        let ResponseReader { format, types, reasoning, is_reasoning } = &self.reader;
        ResponseParser::new(*format, types.clone(), *reasoning, *is_reasoning)
    }

    /// Returns the length that ids of tool calls must have in the model's template, if it requires one.
    pub fn call_id_length(&self) -> Option<usize> {
        self.reader.format.and_then(|format| format.id_length)
    }
}

impl Model {
    /// Prepares a response to a conversation.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the model has no chat template, or a schema that must
    /// be enforced cannot be; [`ErrorKind::Argument`](crate::ErrorKind::Argument) if an option is invalid; and those of
    /// the template.
    pub fn chat(&self, messages: &[Message], options: &ChatOptions) -> Result<ChatPrompt> {
        let template = self.template()?.ok_or_else(no_template)?;
        let traits = template.traits();
        let format = options.format(traits, messages)?;
        let rendered = options.render(self, messages, traits)?;
        let tokenizer = self.tokenizer()?;
        let reasoning = traits.reasoning;
        let is_reasoning = reasoning.is_some_and(|tags| tags.is_open(&rendered.prompt));
        let compiler = ConstraintSource { tokenizer, compile: &|output| self.constraint(output).map(drop) };
        let structured_output = options.output(&compiler, format, (reasoning, is_reasoning))?;
        let types = options.tools.iter().map(|tool| (tool.name(), tool.parameters()));
        let types = parameter_types(types);
        let mut visible_tokens = Vec::new();
        let tags = reasoning.iter().flat_map(|tags| [tags.begin, tags.end]);
        for text in format.iter().flat_map(|format| format.delimiters()).chain(tags) {
            visible_tokens.extend(special_tokens(tokenizer, text));
        }
        Ok(ChatPrompt {
            tokens: rendered.tokens,
            structured_output,
            visible_tokens,
            reader: ResponseReader { format, types, reasoning, is_reasoning },
        })
    }
}

/// What constraints are made for.
struct ConstraintSource<'m> {
    tokenizer: &'m Tokenizer,
    /// Fails if a constraint cannot be enforced.
    compile: &'m dyn Fn(&StructuredOutput) -> Result<()>,
}

/// Returns the special tokens in a text.
fn special_tokens(tokenizer: &Tokenizer, text: &str) -> impl Iterator<Item = u32> {
    let options = EncodeOptions { add_special: false, parse_special: true };
    let tokens = tokenizer.encode(text, options).unwrap_or_default();
    tokens.into_iter().filter(|&id| tokenizer.is_special(id))
}

impl ChatOptions {
    /// Returns the tools that may be called.
    fn callable(&self) -> Result<Vec<&Tool>> {
        match &self.tool_choice {
            ToolChoice::None => Ok(Vec::new()),
            ToolChoice::Required if self.tools.is_empty() => {
                Err(Error::argument("tool_choice", "a call is required, but there are no tools"))
            }
            ToolChoice::Auto | ToolChoice::Required => Ok(self.tools.iter().collect()),
            ToolChoice::Named(name) => {
                let tool = self.tools.iter().find(|tool| tool.name() == name);
                let missing = || Error::argument("tool_choice", format!("there is no tool `{name}`"));
                Ok(vec![tool.ok_or_else(missing)?])
            }
        }
    }

    /// Returns the format of the calls in the response; `None` if it is plain text.
    fn format(&self, traits: &TemplateTraits, messages: &[Message]) -> Result<Option<&'static ToolFormat>> {
        for (index, tool) in self.tools.iter().enumerate() {
            if self.tools[..index].iter().any(|other| other.name() == tool.name()) {
                let message = format!("two tools are named `{}`", tool.name());
                return Err(Error::argument("tools", message));
            }
        }
        let is_called = !self.callable()?.is_empty();
        let format = traits.format.unwrap_or(DEFAULT_FORMAT);
        let has_delimiters = !format.trigger().is_empty();
        let had_calls = has_delimiters && messages.iter().any(|message| !message.tool_calls.is_empty());
        let is_harmony = format.is_harmony();
        Ok((is_called || had_calls && self.tool_choice != ToolChoice::None || is_harmony).then_some(format))
    }

    fn render(&self, model: &Model, messages: &[Message], traits: &TemplateTraits) -> Result<RenderedChat> {
        let shown: &[Tool] = if self.tool_choice == ToolChoice::None { &[] } else { &self.tools };
        let mut options = self.template.clone();
        let mut style = traits.style.clone();
        let definitions: Vec<&str> = shown.iter().map(Tool::definition).collect();
        let list = format!("[{}]", definitions.join(", "));
        if traits.format.is_none() {
            let messages = with_tools(messages, shown, traits.has_system_role);
            return render_chat(model, &messages, &style, &options);
        }
        if shown.is_empty() {
            return render_chat(model, messages, &style, &options);
        }
        if !traits.has_system_tools {
            options.tools = Some(TemplateData::from_json(&list)?);
            return render_chat(model, messages, &style, &options);
        }
        style.system_tools = Some(list);
        let mut with_system = messages.to_vec();
        if messages.first().is_none_or(|first| first.role != "system") {
            with_system.insert(0, Message::new("system", ""));
        }
        render_chat(model, &with_system, &style, &options)
    }

    /// Returns what the response must be.
    fn output(
        &self,
        source: &ConstraintSource<'_>,
        format: Option<&'static ToolFormat>,
        (reasoning, is_reasoning): (Option<ReasoningTags>, bool),
    ) -> Result<Option<StructuredOutput>> {
        if self.reasoning_budget.is_some() && reasoning.is_none() {
            let message = "this model's format does not support a reasoning budget";
            return Err(Error::unsupported("reasoning_budget", message));
        }
        if let Some(StructuredOutput::JsonSchema(schema)) = &self.structured_output {
            bounded_schema(schema).map_err(|error| relocated(&error))?;
        }
        let tools = self.callable()?;
        let output = match format.filter(|_| !tools.is_empty()) {
            Some(format) => self.calls(source, format, &tools)?,
            None => self.content(source, format)?,
        };
        let Some(tags) = reasoning else { return Ok(output) };
        if output.is_none() && self.reasoning_budget.is_none() {
            return Ok(None);
        }
        let then = output.map(|output| match output {
            StructuredOutput::JsonSchema(schema) => StructuredOutput::Lark(json_after_space(&schema)),
            StructuredOutput::JsonObject => StructuredOutput::Lark(json_after_space(ANY_OBJECT)),
            output => output,
        });
        if let Some(then) = &then {
            (source.compile)(then).map_err(|error| relocated(&error))?;
        }
        let is_required =
            self.structured_output.is_some() || !tools.is_empty() && self.tool_choice != ToolChoice::Auto;
        Ok(Some(StructuredOutput::Deferred(Box::new(DeferredOutput {
            begin: (!is_reasoning).then(|| tags.begin.trim_end().to_owned()),
            may_end: !is_required,
            then,
            max_tokens: self.reasoning_budget,
            ..DeferredOutput::until(tags.end)
        }))))
    }

    /// Returns the constraint on a response without tools.
    fn content(
        &self,
        source: &ConstraintSource<'_>,
        format: Option<&'static ToolFormat>,
    ) -> Result<Option<StructuredOutput>> {
        let Some(format) = format.filter(|format| format.is_harmony()) else {
            return Ok(self.structured_output.clone());
        };
        let Some(output) = &self.structured_output else { return Ok(None) };
        if !GRAMMAR.is_there {
            return Err(GRAMMAR.missing());
        }
        let schema = schema_of(output, "with the format of the model")?;
        let grammar = ToolGrammar { format, tokenizer: source.tokenizer, tools: &[], is_parallel: false };
        Ok(Some(StructuredOutput::Lark(grammar.harmony_json(schema))))
    }

    /// Returns the constraint on calls of `tools`.
    fn calls(
        &self,
        source: &ConstraintSource<'_>,
        format: &'static ToolFormat,
        tools: &[&Tool],
    ) -> Result<Option<StructuredOutput>> {
        if !GRAMMAR.is_there {
            // Calls are parsed all the same.
            let is_enforced = self.tool_choice != ToolChoice::Auto
                || self.structured_output.is_some()
                || tools.iter().any(|tool| tool.is_strict());
            return if is_enforced { Err(GRAMMAR.missing()) } else { Ok(None) };
        }
        let is_parallel = self.parallel_tool_calls;
        let grammar = ToolGrammar { format, tokenizer: source.tokenizer, tools, is_parallel };
        if self.tool_choice != ToolChoice::Auto {
            self.check_tools(source, &grammar, |_| true)?;
            return Ok(Some(StructuredOutput::Lark(grammar.lark(GrammarStart::Response, None))));
        }
        if let Some(output) = &self.structured_output {
            let schema = schema_of(output, "with tools")?;
            self.check_tools(source, &grammar, |_| true)?;
            return Ok(Some(StructuredOutput::Lark(grammar.lark(GrammarStart::Response, Some(schema)))));
        }
        // A schema that cannot be enforced is only an error where it must be.
        if self.check_tools(source, &grammar, |_| true).is_err() {
            return self.check_tools(source, &grammar, Tool::is_strict).map(|()| None);
        }
        let is_whole = format.trigger().is_empty();
        let trigger = if is_whole { WHOLE_TRIGGER } else { format.constraint_trigger() };
        let repeats =
            is_parallel && format.is_parallel && format.section.begin.is_empty() && !format.is_list();
        let grammar = ToolGrammar { is_parallel: is_parallel && !repeats, ..grammar };
        let then = grammar.lark(GrammarStart::After(trigger), None);
        Ok(Some(StructuredOutput::Deferred(Box::new(DeferredOutput {
            then: Some(StructuredOutput::Lark(then)),
            may_end: true,
            repeats,
            only_at_start: is_whole,
            ..DeferredOutput::until(trigger)
        }))))
    }

    /// Fails if a grammar for one of some tools cannot be enforced; the location names the tool.
    fn check_tools(
        &self,
        source: &ConstraintSource<'_>,
        grammar: &ToolGrammar<'_>,
        is_checked: impl Fn(&Tool) -> bool,
    ) -> Result<()> {
        for tool in grammar.tools.iter().filter(|tool| is_checked(tool)) {
            let alone = ToolGrammar { tools: &[tool], ..*grammar };
            let compile =
                || (source.compile)(&StructuredOutput::Lark(alone.lark(GrammarStart::Response, None)));
            if let Err(error) = grammar.check(tool).and_then(|()| compile()) {
                let index = self.tools.iter().position(|known| known.name() == tool.name()).unwrap_or(0);
                let location = format!("tools[{index}].function.parameters");
                return Err(Error::new(error.kind(), location, error.message().to_owned()));
            }
        }
        Ok(())
    }
}

/// What begins a response that is a call as a whole.
const WHOLE_TRIGGER: &str = "{\"name\": \"";

/// Returns the JSON Schema of a structured output.
fn schema_of<'o>(output: &'o StructuredOutput, place: &str) -> Result<&'o str> {
    match output {
        StructuredOutput::JsonSchema(schema) => Ok(schema),
        StructuredOutput::JsonObject => Ok(ANY_OBJECT),
        other => {
            let message = format!("{place}, `{}` is not supported; expected a JSON Schema", other.name());
            Err(Error::unsupported("structured_output", message))
        }
    }
}

/// Returns the error of a grammar that contains the structured output.
fn relocated(error: &Error) -> Error {
    Error::new(error.kind(), "structured_output", error.message().to_owned())
}

/// The schema of any JSON object.
const ANY_OBJECT: &str = r#"{"type": "object"}"#;
