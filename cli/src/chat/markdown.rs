//! Light Markdown for terminals, styled while the text streams in: headings, lists, quotes, code, bold and italic.
//!
//! Text is printed as soon as its style is known; only marks wait for the characters that decide what they mean. Styles
//! end with their line, so that a mark that is never closed cannot color the rest of the response.

use crate::terminal::{Palette, printable};
use std::io::IsTerminal;

/// Renders a response for standard output.
pub(super) struct MarkdownStream {
    mode: RenderMode,
    place: LinePlace,
    /// Characters at the beginning of a line that are not understood yet.
    pending: String,
    in_code_block: bool,
    styles: TextStyles,
    /// The length of the run of stars that waits for the next character.
    stars: usize,
    escaped: bool,
    /// The previous character of the line.
    last: char,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum RenderMode {
    /// The text byte for byte, for pipes and files.
    Raw,
    /// Without styles, for terminals.
    Plain,
    /// With styles.
    Styled,
}

#[derive(Clone, Copy, PartialEq)]
enum LinePlace {
    Start,
    Text,
    /// In the line that begins or ends a code block.
    Fence,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct TextStyles {
    heading: bool,
    bold: bool,
    italic: bool,
    code: bool,
    dim: bool,
}

/// What the beginning of a line means.
enum LineStart {
    Undecided,
    Text,
    Fence,
    Heading,
    Bullet,
    Quote,
}

impl MarkdownStream {
    /// Returns the renderer for standard output as it is.
    pub(super) fn for_stdout(palette: Palette) -> Self {
        Self::new(match (std::io::stdout().is_terminal(), palette.has_colors()) {
            (false, _) => RenderMode::Raw,
            (true, false) => RenderMode::Plain,
            (true, true) => RenderMode::Styled,
        })
    }

    pub(super) fn new(mode: RenderMode) -> Self {
        Self {
            mode,
            place: LinePlace::Start,
            pending: String::new(),
            in_code_block: false,
            styles: TextStyles::default(),
            stars: 0,
            escaped: false,
            last: '\n',
        }
    }

    /// Returns what to print for the next part of the text.
    pub(super) fn push(&mut self, text: &str) -> String {
        match self.mode {
            RenderMode::Raw => text.to_owned(),
            RenderMode::Plain => printable(text).into_owned(),
            RenderMode::Styled => {
                let mut out = String::with_capacity(text.len());
                printable(text).chars().for_each(|c| self.next(c, &mut out));
                out
            }
        }
    }

    /// Returns what to print at the end of the text.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.mode == RenderMode::Styled {
            self.end_line(&mut out);
        }
        out
    }

    fn next(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            self.end_line(out);
            out.push('\n');
            return;
        }
        match self.place {
            LinePlace::Text => self.inline(c, out),
            LinePlace::Fence => out.push(c),
            LinePlace::Start => {
                self.pending.push(c);
                self.begin_line(out);
            }
        }
    }

    fn begin_line(&mut self, out: &mut String) {
        let start = line_start(&self.pending, self.in_code_block);
        let pending = match start {
            LineStart::Undecided => return,
            _ => std::mem::take(&mut self.pending),
        };
        let indent = &pending[..pending.len() - pending.trim_start().len()];
        self.place = LinePlace::Text;
        match start {
            LineStart::Undecided => {}
            LineStart::Fence => {
                self.place = LinePlace::Fence;
                self.set(TextStyles { dim: true, ..TextStyles::default() }, out);
                out.push_str(&pending);
            }
            LineStart::Heading => self.set(TextStyles { heading: true, ..TextStyles::default() }, out),
            LineStart::Bullet => {
                out.push_str(indent);
                out.push_str("• ");
            }
            LineStart::Quote => {
                self.set(TextStyles { dim: true, ..TextStyles::default() }, out);
                out.push_str("│ ");
            }
            LineStart::Text => {
                if self.in_code_block {
                    self.set(TextStyles { code: true, ..TextStyles::default() }, out);
                }
                pending.chars().for_each(|c| self.inline(c, out));
            }
        }
    }

    fn end_line(&mut self, out: &mut String) {
        let pending = std::mem::take(&mut self.pending);
        pending.chars().for_each(|c| self.inline(c, out));
        self.resolve_stars(None, out);
        if std::mem::take(&mut self.escaped) {
            out.push('\\');
        }
        if self.place == LinePlace::Fence {
            self.in_code_block = !self.in_code_block;
        }
        self.set(TextStyles::default(), out);
        (self.place, self.last) = (LinePlace::Start, '\n');
    }

    /// Prints a character of a line whose kind is known.
    fn inline(&mut self, c: char, out: &mut String) {
        if self.in_code_block {
            out.push(c);
            return;
        }
        if std::mem::take(&mut self.escaped) {
            if !c.is_ascii_punctuation() {
                out.push('\\');
            }
            self.put(c, out);
            return;
        }
        match c {
            '`' => {
                self.resolve_stars(Some(c), out);
                self.set(TextStyles { code: !self.styles.code, ..self.styles }, out);
                self.last = c;
            }
            _ if self.styles.code => self.put(c, out),
            '*' => self.stars += 1,
            _ => {
                self.resolve_stars(Some(c), out);
                match c {
                    '\\' => self.escaped = true,
                    _ => self.put(c, out),
                }
            }
        }
    }

    fn put(&mut self, c: char, out: &mut String) {
        out.push(c);
        self.last = c;
    }

    /// Decides what the stars before `next` mean: they close a style after a character that is not a space, and open
    /// one before such a character.
    fn resolve_stars(&mut self, next: Option<char>, out: &mut String) {
        let count = std::mem::take(&mut self.stars);
        if count == 0 {
            return;
        }
        let (bold, italic) = (count == 2 || count == 3, count == 1 || count == 3);
        let is_on = (!bold || self.styles.bold) && (!italic || self.styles.italic);
        let is_off = (!bold || !self.styles.bold) && (!italic || !self.styles.italic);
        let closes = is_on && !self.last.is_whitespace();
        let opens = is_off && next.is_some_and(|next| !next.is_whitespace());
        if count <= 3 && (closes || opens) {
            let styles = TextStyles {
                bold: if bold { opens } else { self.styles.bold },
                italic: if italic { opens } else { self.styles.italic },
                ..self.styles
            };
            self.set(styles, out);
        } else {
            out.extend(std::iter::repeat_n('*', count));
            self.last = '*';
        }
    }

    fn set(&mut self, styles: TextStyles, out: &mut String) {
        if styles == self.styles {
            return;
        }
        self.styles = styles;
        out.push_str("\x1b[0");
        for (is_on, code) in [
            (styles.heading || styles.bold, ";1"),
            (styles.dim, ";2"),
            (styles.italic, ";3"),
            (styles.heading, ";4"),
            (styles.code, ";36"),
        ] {
            if is_on {
                out.push_str(code);
            }
        }
        out.push('m');
    }
}

/// Decides what kind of line begins with `text`.
fn line_start(text: &str, in_code_block: bool) -> LineStart {
    let marks = text.trim_start_matches(' ');
    let is_marker = |marker: char, max_count: usize| {
        marks.len() <= max_count && !marks.is_empty() && marks.chars().all(|c| c == marker)
    };
    if marks == "```" {
        return LineStart::Fence;
    }
    if marks.is_empty() || is_marker('`', 2) {
        return LineStart::Undecided;
    }
    if in_code_block {
        return LineStart::Text;
    }
    if is_marker('#', 6) || is_marker('>', 1) || ["-", "*", "+"].contains(&marks) {
        return LineStart::Undecided;
    }
    match marks {
        "- " | "* " | "+ " => LineStart::Bullet,
        "> " => LineStart::Quote,
        _ if marks.ends_with(' ') && marks.trim_end_matches(' ').chars().all(|c| c == '#') => {
            LineStart::Heading
        }
        _ => LineStart::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders the text whole, and character by character, which must give the same.
    fn styled(text: &str) -> String {
        let render = |parts: &mut dyn Iterator<Item = String>| {
            let mut stream = MarkdownStream::new(RenderMode::Styled);
            let mut shown: String = parts.map(|part| stream.push(&part)).collect();
            shown.push_str(&stream.finish());
            shown
        };
        let whole = render(&mut std::iter::once(text.to_owned()));
        assert_eq!(render(&mut text.chars().map(String::from)), whole);
        whole.replace('\x1b', "^")
    }

    #[test]
    fn marks_become_styles() {
        for (text, shown) in [
            ("plain text", "plain text"),
            ("a **b** c", "a ^[0;1mb^[0m c"),
            ("a *b* c", "a ^[0;3mb^[0m c"),
            ("***b***", "^[0;1;3mb^[0m"),
            ("`a*b*`", "^[0;36ma*b*^[0m"),
            ("# Title\ntext", "^[0;1;4mTitle^[0m\ntext"),
            ("- a\n  * b", "• a\n  • b"),
            ("> a", "^[0;2m│ a^[0m"),
            ("```c\n*p = 1;\n```\n*x*", "^[0;2m```c^[0m\n^[0;36m*p = 1;^[0m\n^[0;2m```^[0m\n^[0;3mx^[0m"),
        ] {
            assert_eq!(styled(text), shown, "{text}");
        }
    }

    #[test]
    fn characters_that_are_not_marks_stay() {
        for text in
            ["2 * 3 * 4", "a #b", "#hashtag", "-5", "snake_case_name", "****", "a ** b", "C:\\dir", "*", ">"]
        {
            assert_eq!(styled(text), text);
        }
        assert_eq!(styled(r"\*a\*"), "*a*");
        assert_eq!(styled("**open\nnext"), "^[0;1mopen^[0m\nnext", "styles end with the line");
    }

    #[test]
    fn other_outputs_get_the_text() {
        let mut raw = MarkdownStream::new(RenderMode::Raw);
        assert_eq!(raw.push("**a**\x1b[1m") + &raw.finish(), "**a**\x1b[1m");
        let mut plain = MarkdownStream::new(RenderMode::Plain);
        assert_eq!(plain.push("**a**\x1b[1m") + &plain.finish(), "**a**\u{fffd}[1m");
    }
}
