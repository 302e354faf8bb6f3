//! Chats with tools in sessions.

use super::{ChatOptions, ResponseParser};
use crate::Result;
use crate::session::{GenerateOptions, Generation, Session};
use siskin_chat_template::Message;

impl Session {
    /// Starts a response to a whole conversation, which replaces the session's messages, as [`Session::converse`] does, and
    /// returns the parser for its text. What the response must be replaces that of
    /// [`Session::set_structured_output`].
    ///
    /// # Errors
    /// As [`Model::chat`](crate::Model::chat) and [`Session::converse`].
    pub fn chat(
        &mut self,
        messages: &[Message],
        chat: &ChatOptions,
        options: GenerateOptions,
    ) -> Result<(Generation, ResponseParser)> {
        let prompt = self.model().chat(messages, chat)?;
        self.set_structured_output(prompt.structured_output.as_ref())?;
        let parser = prompt.parser();
        let generation = self.begin_conversation(messages, &prompt.tokens, options)?;
        Ok((generation.with_visible_tokens(prompt.visible_tokens), parser))
    }
}
