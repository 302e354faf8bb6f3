//! Colors, and text that is safe to print on a terminal.

use crate::env;
use std::borrow::Cow;
use std::io::IsTerminal;

/// Select Graphic Rendition codes of ECMA-48.
pub(crate) const DIM: &str = "2";
pub(crate) const CYAN: &str = "36";
pub(crate) const RED: &str = "31";

/// Colors for one output: none if it is not a terminal, or if the environment asks for none.
#[derive(Clone, Copy)]
pub(crate) struct Palette {
    colors: bool,
}

impl Palette {
    pub(crate) fn of_stdout() -> Self {
        Self { colors: std::io::stdout().is_terminal() && !env::no_color() }
    }

    pub(crate) fn of_stderr() -> Self {
        Self { colors: std::io::stderr().is_terminal() && !env::no_color() }
    }

    pub(crate) fn has_colors(self) -> bool {
        self.colors
    }

    pub(crate) fn paint(self, code: &str, text: impl std::fmt::Display) -> String {
        match self.colors {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }
}

/// Returns the text without the control characters that a terminal would execute: a model must not be able to move the
/// cursor, rename the window or write to the clipboard.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let executes = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    match text.contains(executes) {
        false => Cow::Borrowed(text),
        true => {
            let shown = text.chars().filter(|c| *c != '\r');
            Cow::Owned(shown.map(|c| if executes(c) { char::REPLACEMENT_CHARACTER } else { c }).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_not_printed() {
        assert_eq!(printable("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(printable("a\x1b]52;c;x\x07\u{9b}2J\r\n"), "a\u{fffd}]52;c;x\u{fffd}\u{fffd}2J\n");
    }

    #[test]
    fn without_colors_text_is_as_it_is() {
        assert_eq!(Palette { colors: false }.paint(DIM, "a"), "a");
        assert_eq!(Palette { colors: true }.paint(DIM, "a"), "\x1b[2ma\x1b[0m");
    }
}
