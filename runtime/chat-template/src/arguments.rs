//! The arguments of a call.

use std::sync::Arc;

use super::budget::{Eval, fail};
use super::text::SpannedText;
use super::value::TemplateValue;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct PassedArguments {
    pub(super) positional: Vec<TemplateValue>,
    pub(super) keyword: Vec<(Arc<str>, TemplateValue)>,
}

impl PassedArguments {
    /// Returns an argument by its position or its name.
    pub(super) fn get(&self, place: usize, name: &str) -> Option<&TemplateValue> {
        let named = || self.keyword.iter().find(|(key, _)| **key == *name).map(|(_, value)| value);
        self.positional.get(place).or_else(named)
    }
}

/// Returns an argument that must be text.
pub(super) fn text_argument(given: &PassedArguments, place: usize) -> Eval<&SpannedText> {
    match given.positional.get(place) {
        Some(TemplateValue::Text(text)) => Ok(text),
        Some(other) => fail!("gives {} where text is expected", other.describe()),
        None => fail!("calls a method of text with too few arguments"),
    }
}

/// Returns an integer argument.
pub(super) fn int_argument(given: &PassedArguments, place: usize, name: &str, default: i64) -> Eval<i64> {
    match given.get(place, name) {
        None => Ok(default),
        Some(value) => match value.as_int() {
            Some(number) => Ok(number),
            None => fail!("expected a whole number for '{name}', got {}", value.describe()),
        },
    }
}
