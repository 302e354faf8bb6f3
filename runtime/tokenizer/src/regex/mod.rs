//! A small regular-expression engine for pre-tokenizer patterns.
//!
//! It supports what these patterns use: Unicode classes and their intersections, groups, alternation, greedy, lazy and
//! possessive quantifiers, lookahead, lookbehind of one character, anchors and `(?i:…)`. Everything else is rejected
//! when the pattern is compiled. Matching backtracks with a budget that is linear in the length of the text: a pattern
//! that exceeds it fails with an error.

mod class;
mod matcher;
mod parse;
mod program;

pub(super) use matcher::Matcher;
pub(super) use program::Pattern;
