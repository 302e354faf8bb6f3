//! A lexer that splits Rust source into code and comments, line by line.

use super::SourceFile;

/// A line of a Rust file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, without the contents of string and character literals.
    pub code: String,
    /// The text of the comments.
    pub comment: String,
    /// Whether the line is inside an item marked `#[cfg(test)]`, or the whole file is test code.
    pub test: bool,
}

/// A Rust file, split into code, comments and tests.
#[derive(Clone, Debug)]
pub struct RustFile<'a> {
    /// The path, relative to the workspace root.
    pub path: &'a str,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment(usize),
    Text,
    RawText(usize),
}

impl<'a> RustFile<'a> {
    /// Splits `file`.
    pub fn new(file: &'a SourceFile) -> Self {
        let mut lines = split(&file.text);
        if file.is_test() {
            lines.iter_mut().for_each(|line| line.test = true);
        } else {
            mark_tests(&mut lines);
        }
        Self { path: &file.path, lines }
    }

    /// Iterates over the lines that are not test code, with line numbers from one.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.test).map(|(index, line)| (index + 1, line))
    }

    /// Returns the code that is not test code as one text, with the line number of every byte.
    pub fn shipped_code(&self) -> (String, Vec<usize>) {
        let (mut text, mut numbers) = (String::new(), Vec::new());
        for (number, line) in self.shipped() {
            text.push_str(&line.code);
            text.push('\n');
            numbers.resize(text.len(), number);
        }
        (text, numbers)
    }
}

/// Returns the positions of `word` in `code` as a whole word.
pub(super) fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !code[..at].chars().next_back().is_some_and(inside)
            && !code[at + word.len()..].chars().next().is_some_and(inside)
    })
}

fn split(text: &str) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let Some(line) = lines.last_mut() else { break };
        (state, at) = step(&chars, at, state, line);
    }
    lines
}

/// Consumes one token or character at `at`, which is not a line end, and returns the next state and position.
fn step(chars: &[char], at: usize, state: State, line: &mut Line) -> (State, usize) {
    let c = chars[at];
    let next = chars.get(at + 1).copied().unwrap_or('\n');
    match state {
        State::LineComment => line.comment.push(c),
        State::BlockComment(depth) => match (c, next) {
            ('*', '/') if depth == 1 => return (State::Code, at + 2),
            ('*', '/') => return (State::BlockComment(depth - 1), at + 2),
            ('/', '*') => return (State::BlockComment(depth + 1), at + 2),
            _ => line.comment.push(c),
        },
        // An escaped line end is left for the caller, which counts lines.
        State::Text if c == '\\' => return (state, if next == '\n' { at + 1 } else { at + 2 }),
        State::Text if c == '"' => {
            line.code.push('"');
            return (State::Code, at + 1);
        }
        State::RawText(hashes) if c == '"' && closes(chars, at, hashes) => {
            line.code.push('"');
            return (State::Code, at + 1 + hashes);
        }
        State::Text | State::RawText(_) => {}
        State::Code => return code_step(chars, at, line),
    }
    (state, at + 1)
}

fn code_step(chars: &[char], at: usize, line: &mut Line) -> (State, usize) {
    let c = chars[at];
    let next = chars.get(at + 1).copied().unwrap_or('\n');
    match (c, next) {
        ('/', '/') => return (State::LineComment, at + 2),
        ('/', '*') => return (State::BlockComment(1), at + 2),
        ('"', _) => {
            line.code.push('"');
            return (State::Text, at + 1);
        }
        ('\'', _) => {
            if let Some(end) = character_end(chars, at) {
                line.code.push_str("' '");
                return (State::Code, end);
            }
        }
        ('r', '"' | '#') if !line.code.ends_with(|c: char| c.is_alphanumeric() && c != 'b' && c != 'c') => {
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            if chars.get(at + 1 + hashes) == Some(&'"') {
                line.code.push('"');
                return (State::RawText(hashes), at + 2 + hashes);
            }
        }
        _ => {}
    }
    line.code.push(c);
    (State::Code, at + 1)
}

fn closes(chars: &[char], at: usize, hashes: usize) -> bool {
    chars.get(at + 1..at + 1 + hashes).is_some_and(|run| run.iter().all(|c| *c == '#'))
}

/// Returns the position after a character literal that starts at `at`, or `None` for a lifetime.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let rest = chars.get(at + 3..at + 16)?;
        return rest.iter().position(|c| *c == '\'').map(|offset| at + 4 + offset);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// Marks the items after `#[cfg(test)]`, from the attribute to the closing brace or semicolon.
fn mark_tests(lines: &mut [Line]) {
    let mut at = 0;
    while at < lines.len() {
        if !lines[at].code.replace(' ', "").contains("#[cfg(test)]") {
            at += 1;
            continue;
        }
        let (mut depth, mut entered) = (0_i32, false);
        while at < lines.len() {
            lines[at].test = true;
            let after = lines[at].code.rsplit("cfg(test)]").next().unwrap_or_default().to_owned();
            for c in after.chars() {
                match c {
                    '{' => (depth, entered) = (depth + 1, true),
                    '}' => depth -= 1,
                    ';' if !entered && depth == 0 => entered = true,
                    _ => {}
                }
            }
            at += 1;
            if entered && depth <= 0 {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        RustFile::new(&SourceFile::new("a/src/b.rs", text)).lines
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let found = lines(
            "let a = \"unsafe // no\"; // unsafe yes\nlet b = r#\"un\"safe\"#; /* x\ny */ let c = '\"';",
        );
        assert_eq!(found[0].code, "let a = \"\"; ");
        assert_eq!(found[0].comment, " unsafe yes");
        assert_eq!(found[1].code, "let b = \"\"; ");
        assert_eq!(found[1].comment, " x");
        assert_eq!(found[2].code, " let c = ' ';");
        assert_eq!(found[2].comment, "y ");
    }

    #[test]
    fn lifetimes_escapes_and_continued_strings_keep_line_numbers() {
        let found = lines(
            "fn f<'a>(x: &'a str) {}\nlet q = '\\''; let u = '\\u{1F600}'; g();\nlet s = \"a\\\n  b\";\nend();",
        );
        assert_eq!(found[0].code, "fn f<'a>(x: &'a str) {}");
        assert_eq!(found[1].code, "let q = ' '; let u = ' '; g();");
        assert_eq!(found[4].code, "end();");
    }

    #[test]
    fn test_modules_are_marked_to_their_end() {
        let found = lines(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { if x { } }\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}",
        );
        let marks: Vec<_> = found.iter().map(|line| line.test).collect();
        assert_eq!(marks, [false, true, true, true, true, false, true, true, false]);
    }

    #[test]
    fn words_are_whole() {
        let at = |code| word_positions(code, "unsafe").collect::<Vec<_>>();
        assert_eq!(at("x unsafe { unsafe"), [2, 11]);
        assert!(at("unsafe_code forbid_unsafe").is_empty());
    }
}
