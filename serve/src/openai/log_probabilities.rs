//! Log-probabilities in responses.

use serde_json::{Map, Value, json};
use siskin::sample::SampledToken;
use siskin::serving::PromptToken;
use siskin::tokenizer::Tokenizer;

/// A token as bytes, and as text in which U+FFFD replaces invalid bytes.
pub(super) fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> (Vec<u8>, String) {
    let bytes = tokenizer.and_then(|tokenizer| tokenizer.piece(id, true).ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (bytes.into_owned(), text)
}

/// Returns an entry of `logprobs.content` of a chat completion.
pub(super) fn chat_entry(tokenizer: Option<&Tokenizer>, token: SampledToken, top: &[SampledToken]) -> Value {
    let entry = |token: &SampledToken| {
        let (bytes, text) = token_text(tokenizer, token.id);
        json!({"token": text, "logprob": finite(token.log_probability), "bytes": bytes})
    };
    let mut object = entry(&token);
    object["top_logprobs"] = top.iter().map(entry).collect();
    object
}

/// `logprobs` of a completion: parallel lists.
#[derive(Default)]
pub(super) struct CompletionLogProbabilities {
    tokens: Vec<Value>,
    log_probabilities: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<Value>,
    /// The number of characters so far.
    characters: usize,
}

impl CompletionLogProbabilities {
    pub(super) fn push(&mut self, tokenizer: Option<&Tokenizer>, token: SampledToken, top: &[SampledToken]) {
        self.push_text(token_text(tokenizer, token.id).1);
        self.log_probabilities.push(finite(token.log_probability));
        let named =
            top.iter().map(|token| (token_text(tokenizer, token.id).1, finite(token.log_probability)));
        self.top.push(Value::Object(named.collect::<Map<_, _>>()));
    }

    /// Appends the tokens of a prompt, of which nothing precedes the first.
    pub(super) fn push_prompt(
        &mut self,
        tokenizer: Option<&Tokenizer>,
        first: Option<u32>,
        rest: &[PromptToken],
    ) {
        if let Some(first) = first {
            self.push_text(token_text(tokenizer, first).1);
            self.log_probabilities.push(Value::Null);
            self.top.push(Value::Null);
        }
        rest.iter().for_each(|PromptToken { token, top }| self.push(tokenizer, *token, top));
    }

    fn push_text(&mut self, text: String) {
        self.offsets.push(self.characters.into());
        self.characters += text.chars().count();
        self.tokens.push(text.into());
    }

    /// Takes what was pushed since the last call.
    pub(super) fn take(&mut self) -> Value {
        let value = json!({
            "tokens": std::mem::take(&mut self.tokens),
            "token_logprobs": std::mem::take(&mut self.log_probabilities),
            "top_logprobs": std::mem::take(&mut self.top),
            "text_offset": std::mem::take(&mut self.offsets),
        });
        value
    }
}

/// JSON has no infinity: OpenAI reports -9999 for tokens that were impossible.
fn finite(log_probability: f32) -> Value {
    json!(log_probability.max(-9999.0))
}
