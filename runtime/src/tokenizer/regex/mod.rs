//! A small regular-expression matcher for splitting text before tokenizing.
//!
//! It knows what pre-tokenizer patterns use: Unicode classes and their intersections, groups,
//! alternation, greedy, lazy and possessive repeats, look-ahead, look-behind of one character,
//! anchors and `(?i:…)`. Everything else is refused when the pattern is compiled. Matching
//! backtracks, with a budget that is linear in the text: a pattern that would need more gives an
//! error instead of taking longer.

mod class;
mod matcher;
mod parse;
mod program;

pub(super) use matcher::Matcher;
pub(super) use program::Pattern;
