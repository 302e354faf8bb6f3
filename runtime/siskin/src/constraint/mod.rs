//! Constrained decoding: which tokens may follow, so that a text is one of some choices, matches a regular expression
//! or a grammar, or is JSON of a schema (structured output).
//!
//! - [`StructuredOutput`] says what a text must be; [`Model::constraint`](crate::Model::constraint) compiles it for the
//!   model's tokenizer. Compiled grammars are cached.
//! - A [`TokenConstraint`] masks the tokens that cannot follow. It is the last step before the sampler's truncations,
//!   so that negative infinity wins over every bias and penalty.
//! - Tokens that a constraint leaves no choice about are forced: the sampler does not look at their logits, and an
//!   engine processes up to 63 of them in one pass (jump-forward decoding).
//!
//! Choices are always available; JSON Schema, regular expressions, Lark and GBNF need the feature `grammar`.

mod choice;
mod compiler;
mod deferred;
#[cfg(feature = "grammar")]
mod gbnf;
#[cfg(feature = "grammar")]
mod grammar;
mod state;
mod token_mask;
mod token_table;

pub(crate) use compiler::ConstraintCompiler;
#[cfg(feature = "tools")]
pub(crate) use compiler::GRAMMAR;
pub(crate) use state::ConstraintState;
pub use token_mask::TokenMask;

use crate::Result;

/// Decides which tokens may follow those that were accepted.
pub trait TokenConstraint: Send + Sync {
    /// Sets `mask`, which is empty, to the tokens that may come next: at least one, an end token if the text may end
    /// here.
    fn mask(&mut self, mask: &mut TokenMask) -> Result<()>;

    /// Returns whether `token` may come next. Cheaper than the whole mask.
    fn allows(&mut self, token: u32) -> Result<bool>;

    /// Appends a token to the text.
    ///
    /// # Errors
    /// If the token is not allowed.
    fn accept(&mut self, token: u32) -> Result<()>;

    /// Returns whether the text is complete, and nothing but its end may follow.
    fn is_complete(&mut self) -> Result<bool>;

    /// Appends the tokens that come next in any case; the caller accepts each of them. A constraint that knows none
    /// appends none.
    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<()> {
        let _ = tokens;
        Ok(())
    }

    /// Returns a copy in the same state.
    fn fork(&self) -> Box<dyn TokenConstraint>;
}

impl Clone for Box<dyn TokenConstraint> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

impl std::fmt::Debug for dyn TokenConstraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenConstraint")
    }
}

/// What a generated text must be.
///
/// ```
/// use siskin::constraint::StructuredOutput;
///
/// let sentiment = StructuredOutput::Choice(vec!["positive".to_owned(), "negative".to_owned()]);
/// # let _ = sentiment;
/// ```
#[derive(Clone, Debug)]
pub enum StructuredOutput {
    /// One of these texts.
    Choice(Vec<String>),
    /// A JSON object.
    JsonObject,
    /// JSON that is valid under this schema, which is JSON itself.
    JsonSchema(String),
    /// A match of this regular expression, in the syntax of the crate `regex`.
    Regex(String),
    /// A sentence of this grammar in llguidance's variant of Lark.
    Lark(String),
    /// A sentence of this grammar in GBNF, the format of llama.cpp.
    Gbnf(String),
    /// Any text up to a trigger, and something else after it.
    Deferred(Box<DeferredOutput>),
    /// What this constraint allows. It is forked for each generation.
    Custom(Box<dyn TokenConstraint>),
}

/// A text that is free up to a trigger.
///
/// Triggers are found in the text of tokens, that of special tokens included, wherever tokens begin and end.
#[derive(Clone, Debug)]
pub struct DeferredOutput {
    /// The beginning of the free text, such as `<think>`; a text that does not begin with it is [`then`](Self::then) from
    /// its start. `None`: the text begins inside the free text.
    pub begin: Option<String>,
    /// What ends the free text, such as `</think>`.
    pub trigger: String,
    /// What follows the trigger; `None`: any text.
    pub then: Option<StructuredOutput>,
    /// Whether the text may end without the trigger.
    pub may_end: bool,
    /// Whether free text follows again when [`then`](Self::then) is complete.
    pub repeats: bool,
    /// Whether the trigger only counts at the start of the text.
    pub only_at_start: bool,
    /// The maximum number of tokens of the free text; after them the trigger is forced.
    pub max_tokens: Option<usize>,
}

impl DeferredOutput {
    /// Creates a free text that ends with `trigger`, after which anything may follow.
    pub fn until(trigger: impl Into<String>) -> Self {
        Self {
            begin: None,
            trigger: trigger.into(),
            then: None,
            may_end: false,
            repeats: false,
            only_at_start: false,
            max_tokens: None,
        }
    }
}

/// Returns a JSON Schema as it is used inside a grammar, with bounded white space.
#[cfg(feature = "tools")]
pub(crate) fn bounded_schema(schema: &str) -> Result<String> {
    #[cfg(feature = "grammar")]
    return grammar::with_bounded_space(schema);
    #[cfg(not(feature = "grammar"))]
    Ok(schema.to_owned())
}
