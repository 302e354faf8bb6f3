//! The special tokens of OpenAI's Harmony format.

/// Begins a message; its header follows.
pub const START: &str = "<|start|>";
/// Before the channel in a header.
pub const CHANNEL: &str = "<|channel|>";
/// Ends a header; the text of the message follows.
pub const MESSAGE: &str = "<|message|>";
/// Before the type of the content in a header.
pub const CONSTRAIN: &str = "<|constrain|>";
/// Ends a message.
pub const END: &str = "<|end|>";
/// What ends a message. The last two also end the generation, so that they are not in its text.
pub(super) const ENDS: [&str; 4] = [END, START, "<|call|>", "<|return|>"];
/// All of them.
pub(super) const MARKERS: [&str; 8] =
    [START, CHANNEL, MESSAGE, CONSTRAIN, END, ENDS[2], ENDS[3], "<|endoftext|>"];
