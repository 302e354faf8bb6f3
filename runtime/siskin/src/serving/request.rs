//! What a client asks for.

use std::time::Duration;

use super::{CacheSalt, ClientId, RequestClass, Speculation};
use crate::Result;
#[cfg(feature = "tools")]
use crate::chat::ChatPrompt;
use crate::constraint::StructuredOutput;
use crate::model::Model;
use crate::sample::SamplerOptions;
use crate::session::{SessionOptions, conversation_tokens};
use siskin_chat_template::{Message, RenderOptions};
use siskin_tokenizer::EncodeOptions;

/// The prompt of a request.
#[derive(Clone, Debug)]
pub enum PromptInput {
    /// Tokens, as they are.
    Tokens(Vec<u32>),
    /// A text to continue, without the chat template. Special tokens in it are treated as plain text.
    Text(String),
    /// The same, but special tokens in it are recognized: the text must be trusted.
    TextWithSpecialTokens(String),
    /// A conversation, rendered by the chat template with these variables.
    Messages(Vec<Message>, RenderOptions),
}

/// A request to generate text.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// The prompt.
    pub prompt: PromptInput,
    /// The maximum number of tokens to generate.
    pub max_tokens: usize,
    /// How tokens are sampled.
    pub sampler: SamplerOptions,
    /// DRY sequence breakers as text, added to the sampler's own.
    pub dry_breakers: Vec<String>,
    /// Stop strings that end the generation.
    pub stop: Vec<String>,
    /// The priority class.
    pub class: RequestClass,
    /// The client; clients get equal shares of the compute time.
    pub client: ClientId,
    /// Requests only share the cached prefixes of requests with the same salt.
    pub salt: CacheSalt,
    /// The name of the adapter, of those that the model was opened with to choose from.
    pub adapter: Option<String>,
    /// How long it may take; `None`: no limit.
    pub timeout: Option<Duration>,
    /// What the text must be; `None`: anything.
    pub structured_output: Option<StructuredOutput>,
    /// Special tokens whose text is part of the generated text, such as those around tool calls. Others are left out.
    pub visible_tokens: Vec<u32>,
    /// Scores the prompt: the first event has the log-probabilities of its tokens, which needs those of the sampler options
    /// and computes all of the prompt, cached or not. With a `max_tokens` of 0, nothing is generated.
    pub prompt_log_probabilities: bool,
    /// How draft tokens are proposed, to compute several in one pass; changes no token.
    pub speculation: Speculation,
}

impl GenerationRequest {
    /// Creates a request with default options.
    pub fn new(prompt: PromptInput) -> Self {
        let SessionOptions { sampler, dry_breakers, stop, .. } = SessionOptions::default();
        Self {
            prompt,
            max_tokens: usize::MAX,
            sampler,
            dry_breakers,
            stop,
            class: RequestClass::default(),
            client: ClientId::default(),
            salt: CacheSalt::default(),
            adapter: None,
            timeout: None,
            structured_output: None,
            visible_tokens: Vec::new(),
            prompt_log_probabilities: false,
            speculation: Speculation::default(),
        }
    }

    /// Sets the prompt of a chat, what its response must be, and the tokens that its parser
    /// ([`ChatPrompt::parser`]) needs.
    #[cfg(feature = "tools")]
    pub fn set_chat(&mut self, chat: &ChatPrompt) {
        self.prompt = PromptInput::Tokens(chat.tokens.clone());
        self.structured_output.clone_from(&chat.structured_output);
        self.visible_tokens.clone_from(&chat.visible_tokens);
    }

    /// Creates a request for the response to a user message.
    pub fn chat(message: &str) -> Self {
        Self::new(PromptInput::Messages(vec![Message::new("user", message)], RenderOptions::default()))
    }
}

impl PromptInput {
    /// Returns the tokens that `model` processes.
    pub fn tokens(&self, model: &Model) -> Result<Vec<u32>> {
        match self {
            Self::Tokens(tokens) => Ok(tokens.clone()),
            Self::Text(text) | Self::TextWithSpecialTokens(text) => {
                let parse_special = matches!(self, Self::TextWithSpecialTokens(_));
                model.tokenizer()?.encode(text, EncodeOptions { add_special: true, parse_special })
            }
            Self::Messages(messages, variables) => conversation_tokens(model, messages, variables),
        }
    }
}
