//! What may come next: rules over the scores of the next token, the same for greedy, sampled, searched and spoken text.
//!
//! A rule looks at what is written and changes scores; it has no state of its own, so that the many beginnings of a
//! search need no copies of it. The rules that a caller may ask for stand in `RULES`, in the order in which they are
//! applied; a new one is a file with a `build` function and a line in that list.

mod forced;
mod ngrams;
pub(crate) mod of;
mod repeated;
mod shortest;
mod suppressed;
mod words;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{Error, Result};

/// Which tokens are forced, forbidden or made less likely. Nothing is, unless it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The tokens that end a text. Rules about its length are about them.
    pub ends: Vec<u32>,
    /// What scores of tokens in the text, prompt included, are divided by, and multiplied by where they are negative;
    /// 1 is off.
    pub repetition_penalty: f32,
    /// No group of so many tokens comes twice in the text, prompt included; 0 is off.
    pub no_repeat: usize,
    /// No group of so many tokens of the source, which a model with an encoder reads, comes in the text; 0 is off.
    pub no_repeat_source: usize,
    /// Groups of tokens that never come.
    pub bad_words: Vec<Vec<u32>>,
    /// The text, prompt included, does not end before it has so many tokens.
    pub min_length: usize,
    /// The same, prompt left out.
    pub min_tokens: usize,
    /// The second token of a text whose prompt is one token.
    pub forced_first: Option<u32>,
    /// One of these is the last token where there is room for one more alone.
    pub forced_last: Vec<u32>,
    /// Tokens that never come.
    pub suppress: Vec<u32>,
    /// Tokens that do not come first after the prompt and what is forced behind it.
    pub suppress_first: Vec<u32>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ends: Vec::new(),
            repetition_penalty: 1.0,
            no_repeat: 0,
            no_repeat_source: 0,
            bad_words: Vec::new(),
            min_length: 0,
            min_tokens: 0,
            forced_first: None,
            forced_last: Vec::new(),
            suppress: Vec::new(),
            suppress_first: Vec::new(),
        }
    }
}

impl Rules {
    /// Whether every rule is in its range.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the rule's name.
    pub fn validate(&self) -> Result<()> {
        let penalty = self.repetition_penalty;
        if !(f32::MIN_POSITIVE..=f32::MAX).contains(&penalty) {
            let message = format!("is {penalty}; give a finite number above 0");
            return Err(Error::argument("repetition_penalty", message));
        }
        match self.bad_words.iter().position(Vec::is_empty) {
            Some(index) => Err(Error::argument(format!("bad_words[{index}]"), "is empty")),
            None => Ok(()),
        }
    }

    /// Whether every token that a rule names is one of `vocabulary` tokens: others never come, and forbidding or forcing
    /// them has no effect, or leaves nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the rule's name.
    pub(crate) fn validate_for(&self, vocabulary: usize) -> Result<()> {
        let first: Vec<u32> = self.forced_first.into_iter().collect();
        let words: Vec<u32> = self.bad_words.concat();
        let named = [
            ("suppress", &self.suppress),
            ("suppress_first", &self.suppress_first),
            ("forced_first", &first),
            ("forced_last", &self.forced_last),
            ("bad_words", &words),
        ];
        for (name, ids) in named {
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
                let message = format!("there is no token {id}; give ids below {vocabulary}");
                return Err(Error::argument(name, message));
            }
        }
        Ok(())
    }
}

/// Where the next token is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// What the model read before it writes; empty for those that write on.
    pub source: &'a [u32],
    /// Prompt and text.
    pub text: &'a [u32],
    /// How much of that is the prompt.
    pub prompt: usize,
    /// How many tokens may come, the next one included.
    pub left: usize,
}

/// Changes the scores of the next token: logits, or logarithms of probabilities. Minus infinity means forbidden.
pub(crate) trait Rule: Send + Sync {
    /// Changes `scores`, one for each token of the vocabulary.
    fn apply(&self, scores: &mut [f32], place: &Place<'_>);
}

type Build = fn(&Rules) -> Option<Arc<dyn Rule>>;

const RULES: &[Build] = &[
    repeated::build,
    ngrams::build,
    ngrams::build_source,
    words::build,
    shortest::build,
    forced::build,
    suppressed::build,
];

/// The rules that hold, in their order.
#[derive(Clone, Default)]
pub(crate) struct RuleList {
    list: Vec<Arc<dyn Rule>>,
}

impl RuleList {
    /// Those that are asked for.
    pub(crate) fn new(rules: &Rules) -> Result<Self> {
        rules.validate()?;
        Ok(Self { list: RULES.iter().filter_map(|build| build(rules)).collect() })
    }

    /// One more, after the others.
    pub(crate) fn push(&mut self, rule: Arc<dyn Rule>) {
        self.list.push(rule);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Applies all of them.
    pub(crate) fn apply(&self, scores: &mut [f32], place: &Place<'_>) {
        self.list.iter().for_each(|rule| rule.apply(scores, place));
    }
}

/// Forbids tokens; those that there are none of are left out.
fn forbid(scores: &mut [f32], ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
}
