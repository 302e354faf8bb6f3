//! The parts of a response.

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseEvent {
    /// What the model thinks before it responds.
    Reasoning(String),
    /// The response.
    Content(String),
    /// A tool call begins.
    ToolCall {
        /// Its number in the response, from 0.
        index: usize,
        /// The id that the model gave it, if it did.
        id: Option<String>,
        /// The name of the tool.
        name: String,
    },
    /// A part of the arguments of the tool call that began last: together they are JSON as the model wrote it.
    ToolArguments {
        /// The number of the call.
        index: usize,
        /// The part.
        text: String,
    },
}
