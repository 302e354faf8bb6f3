//! Tool calls and reasoning as text: how a template shows tools, and how responses are split.
//!
//! - [`TemplateTraits`] says what a template supports, as [`ChatTemplate::traits`](crate::ChatTemplate::traits) finds out by
//!   rendering short conversations.
//! - [`ToolFormat`] is how a model writes tool calls.
//! - [`ResponseParser`] splits a response into [`ResponseEvent`](crate::ResponseEvent)s while it is generated.

mod call_parser;
mod harmony;
pub mod harmony_tokens;
mod reasoning;
mod response_parser;
mod template_traits;
#[cfg(test)]
mod tests;
mod tool;
mod tool_format;
mod tool_prompt;

pub use call_parser::{ParameterType, ParameterTypes, parameter_type, parameter_types};
pub use reasoning::ReasoningTags;
pub use response_parser::ResponseParser;
pub use template_traits::TemplateTraits;
pub use tool::{Tool, ToolChoice};
pub use tool_format::{CallKeys, CallSyntax, CallTags, DEFAULT_FORMAT, Delimiters, NamedCall, ToolFormat};
pub use tool_prompt::with_tools;
