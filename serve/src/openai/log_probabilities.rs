//! Log-probabilities of completions.

use serde_json::{Map, Value, json};
use siskin::sample::SampledToken;
use siskin::serving::TokenScore;
use siskin::tokenizer::Tokenizer;

use crate::generation::{finite, token_text};

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
        // The sampled token is there, even if it is not among the most likely ones.
        let named = top.iter().chain([&token]);
        let named = named.map(|token| (token_text(tokenizer, token.id).1, finite(token.log_probability)));
        self.top.push(Value::Object(named.collect::<Map<_, _>>()));
    }

    /// Appends the tokens of a prompt, of which nothing precedes the first.
    pub(super) fn push_prompt(
        &mut self,
        tokenizer: Option<&Tokenizer>,
        first: Option<u32>,
        rest: &[TokenScore],
    ) {
        if let Some(first) = first {
            self.push_text(token_text(tokenizer, first).1);
            self.log_probabilities.push(Value::Null);
            self.top.push(Value::Null);
        }
        rest.iter().for_each(|TokenScore { token, top }| self.push(tokenizer, *token, top));
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
