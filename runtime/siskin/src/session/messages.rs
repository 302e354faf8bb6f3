//! The messages of a session, and the options that may change during a conversation.

use super::Session;
use super::conversation::ConversationMessage;
use crate::Result;
use crate::sample::SamplerOptions;
use crate::text::TextStream;
use siskin_chat_template::{Message, RenderOptions};

impl Session {
    /// Returns the messages of the conversation, in order.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &Message> {
        self.turns.iter().map(|turn| &turn.message)
    }

    /// Adds a message before the next prompt, such as a system prompt.
    pub fn add_message(&mut self, role: &str, content: &str) {
        self.push_message(Message::new(role, content));
    }

    /// Adds a message before the next prompt, such as the result of a tool call.
    pub fn push_message(&mut self, message: Message) {
        self.turns.push(ConversationMessage::given(message));
    }

    /// Removes all but the first `count` messages. The KV cache keeps the tokens of the others until the next prompt,
    /// or until [`Session::truncate`] removes them.
    pub fn truncate_messages(&mut self, count: usize) {
        self.turns.truncate(count);
    }

    /// Replaces the options of the sampler, and the DRY sequence breakers that are given as text. The random number
    /// generator restarts from the new seed.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if an option is out of its range; the session is unchanged.
    pub fn set_sampler(&mut self, options: SamplerOptions, dry_breakers: Vec<String>) -> Result<()> {
        let mut sampler = self.model.sampler(&options, &dry_breakers)?;
        sampler.set_history(&self.tokens);
        self.sampler = sampler;
        (self.options.sampler, self.options.dry_breakers) = (options, dry_breakers);
        Ok(())
    }

    /// Replaces the stop strings of the following generations.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if one of them is empty; the session is unchanged.
    pub fn set_stop(&mut self, stop: Vec<String>) -> Result<()> {
        TextStream::new(&stop)?;
        self.options.stop = stop;
        Ok(())
    }

    /// Returns the variables of the chat template.
    pub fn template_options(&self) -> &RenderOptions {
        &self.options.template
    }

    /// Replaces the variables of the chat template. They apply to the whole conversation from the next prompt on.
    pub fn set_template_options(&mut self, options: RenderOptions) {
        self.options.template = options;
    }
}
