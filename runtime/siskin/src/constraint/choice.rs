//! One of some texts.

use std::sync::Arc;

use super::token_table::{TokenTable, encode_inside};
use super::{TokenConstraint, TokenMask};
use crate::{Error, Result};

/// The maximum number of choices, and of their bytes.
const MAX_CHOICES: usize = 4096;
const MAX_BYTES: usize = 1 << 16;
/// The maximum number of bytes that are forced: they are tokenized between two passes.
const MAX_FORCED_BYTES: usize = 1 << 12;

/// Allows one of some texts.
#[derive(Clone)]
pub(super) struct Choice {
    shared: Arc<Shared>,
    /// The choices that begin with the text so far, by index.
    left: Vec<usize>,
    /// The number of bytes of the text so far.
    length: usize,
}

struct Shared {
    choices: Vec<String>,
    table: Arc<TokenTable>,
}

impl Choice {
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if there is no choice, or an empty one.
    pub(super) fn new(choices: &[String], table: Arc<TokenTable>) -> Result<Self> {
        if choices.is_empty() || choices.iter().any(String::is_empty) {
            return Err(Error::argument("choice", "expected at least one text, and none that is empty"));
        }
        let bytes: usize = choices.iter().map(String::len).sum();
        if choices.len() > MAX_CHOICES || bytes > MAX_BYTES {
            let message = format!("expected at most {MAX_CHOICES} texts of {MAX_BYTES} bytes together");
            return Err(Error::argument("choice", message));
        }
        let left = (0..choices.len()).collect();
        let shared = Arc::new(Shared { choices: choices.to_vec(), table });
        let mut choice = Self { shared, left, length: 0 };
        // Every choice must be reachable with the tokens that there are.
        for text in choices {
            if !choice.has_tokens(text) {
                let message = format!("the tokenizer of the model has no tokens for {text:?}");
                return Err(Error::argument("choice", message));
            }
        }
        // Twice the same is one choice.
        choice.left.retain(|&index| choices.iter().position(|text| *text == choices[index]) == Some(index));
        Ok(choice)
    }

    /// Returns whether `text` is a sequence of tokens.
    fn has_tokens(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let mut reachable = vec![false; text.len() + 1];
        reachable[0] = true;
        for at in 0..text.len() {
            if reachable[at] {
                let table = &self.shared.table;
                table.for_prefixes(&text[at..], |id| reachable[at + table.token(id).len()] = true);
            }
        }
        reachable[text.len()]
    }

    /// Returns what is left of the choices that begin with the text so far.
    fn rests(&self) -> impl Iterator<Item = &[u8]> {
        self.left.iter().map(|&index| &self.shared.choices[index].as_bytes()[self.length..])
    }

    fn may_end(&self) -> bool {
        self.rests().any(<[u8]>::is_empty)
    }
}

impl TokenConstraint for Choice {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<()> {
        for rest in self.rests() {
            self.shared.table.for_prefixes(rest, |id| mask.allow(id));
        }
        if self.may_end() {
            self.shared.table.tokenizer.end_ids().iter().for_each(|&id| mask.allow(id));
        }
        Ok(())
    }

    fn allows(&mut self, token: u32) -> Result<bool> {
        let bytes = self.shared.table.token(token);
        if bytes.is_empty() {
            return Ok(self.may_end() && self.shared.table.tokenizer.end_ids().contains(&token));
        }
        Ok(self.rests().any(|rest| rest.starts_with(&bytes)))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        if !self.allows(token)? {
            return Err(Error::argument(
                "token",
                format!("the constraint does not allow token {token} here"),
            ));
        }
        let bytes = self.shared.table.token(token);
        let (choices, length) = (&self.shared.choices, self.length);
        self.left.retain(|&index| choices[index].as_bytes()[length..].starts_with(&bytes));
        self.length += bytes.len();
        Ok(())
    }

    fn is_complete(&mut self) -> Result<bool> {
        Ok(self.rests().all(<[u8]>::is_empty))
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<()> {
        if let [only] = self.left[..]
            && let Some(rest) = self.shared.choices[only].get(self.length..)
            && rest.len() <= MAX_FORCED_BYTES
        {
            tokens.extend(encode_inside(&self.shared.table.tokenizer, rest).unwrap_or_default());
        }
        Ok(())
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(self.clone())
    }
}
