//! Beam search: the likeliest texts among many that are begun at the same time.
//!
//! `beams.rs` holds what is begun and done of one text, and knows nothing of models; `run.rs` takes the last tokens of
//! all that is begun, of all texts, through the model in one batch. What is begun is a sequence of a [`Context`] of
//! its own, a fork of the one that it goes on from, so that all share the cache of what they have in common.
//!
//! Of equal scores, what goes on from an earlier beginning comes first, then the lower id. What is found depends on
//! neither the number of threads nor the other texts.
//!
//! [`Context`]: crate::Context

mod beams;
mod draws;
mod run;
mod scores;
#[cfg(test)]
mod tests;

pub(crate) use beams::{Beams, Settings};
pub(crate) use draws::{Drawing, Draws};
pub(crate) use run::{Hunt, feed};
pub(crate) use scores::normalise;

use crate::logits_processors::Rules;
use crate::{Error, Result};

/// When a search has found enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Early {
    /// Where there are as many texts as beams, and what goes on is not likelier by its length so far than they are.
    #[default]
    Unlikely,
    /// Where there are as many texts as beams.
    Full,
    /// Where there are as many texts as beams, and nothing that goes on can become likelier than they are.
    Never,
}

/// How texts are searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// How many texts are begun at the same time.
    pub beams: usize,
    /// Into how many groups the beams are divided, each of which looks for something else; 1: none. It divides `beams`.
    pub groups: usize,
    /// What is taken from a token's score for every beam of an earlier group that goes on with it in the same step; 0
    /// where there is one group.
    pub diversity: f32,
    /// The power of a text's length that its score is divided by: above 0 prefers long texts, below 0 short ones.
    pub length_penalty: f32,
    /// When it is enough.
    pub early: Early,
    /// How many texts are given, the best first; no more than `beams`.
    pub best: usize,
    /// The most tokens of a text, the one that ends it included.
    pub max_tokens: usize,
    /// What may come next. Rules change logarithms of probabilities here, and what they change is not made to sum up
    /// to one again.
    pub rules: Rules,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            beams: 4,
            groups: 1,
            diversity: 0.0,
            length_penalty: 1.0,
            early: Early::default(),
            best: 1,
            max_tokens: usize::MAX,
            rules: Rules::default(),
        }
    }
}

/// The most beams of a text.
pub(crate) const MOST_BEAMS: usize = 1024;

impl SearchOptions {
    /// Whether every option is in its range.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the option's name.
    pub fn validate(&self) -> Result<()> {
        let Self { beams, groups, best, .. } = *self;
        if !(1..=MOST_BEAMS).contains(&beams) {
            return Err(Error::argument("beams", format!("{beams}; give 1 to {MOST_BEAMS}")));
        }
        if groups == 0 || !beams.is_multiple_of(groups) {
            let message = format!("{groups} groups of {beams} beams are not of one size");
            return Err(Error::argument("groups", message));
        }
        if !(1..=beams).contains(&best) {
            return Err(Error::argument("best", format!("{best} of {beams} beams; give 1 to {beams}")));
        }
        for (name, value) in [("length_penalty", self.length_penalty), ("diversity", self.diversity)] {
            if !value.is_finite() {
                return Err(Error::argument(name, format!("is {value}; give a finite number")));
            }
        }
        if self.diversity < 0.0 {
            let message = format!("is {}; give a number from 0", self.diversity);
            return Err(Error::argument("diversity", message));
        }
        if self.diversity > 0.0 && groups == 1 {
            let message = "sets groups apart, and there is one; ask for several groups of beams";
            return Err(Error::argument("diversity", message));
        }
        let (least, most) = (self.rules.min_tokens, self.max_tokens);
        if most == 0 {
            return Err(Error::argument("max_tokens", "is 0; give at least 1"));
        }
        if least > most {
            let message =
                format!("{least} tokens of a text that has up to {most}; ask for fewer, or allow more");
            return Err(Error::argument("min_tokens", message));
        }
        self.rules.validate()
    }
}

/// A text that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its tokens, without the prompt; the one that ends it is the last where the text ended by itself.
    pub tokens: Vec<u32>,
    /// The sum of the logarithms of its tokens' probabilities, divided by a power of its length.
    pub score: f64,
}
