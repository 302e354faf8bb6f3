//! The backtracking matcher.

use super::super::{fallible_alloc, unicode};
use super::class::Class;
use super::parse::Anchor;
use super::program::{Pattern, RegexInstruction};
use siskin_format::{Error, Result};

/// The budget of steps per byte of the text, and a constant on top of that.
const STEPS_PER_BYTE: u64 = 256;
const FREE_STEPS: u64 = 1 << 16;

/// A backtracking point: `position` steps back to `floor`, one character at a time.
#[derive(Clone, Copy, Debug)]
struct Choice {
    instruction: u32,
    position: usize,
    floor: usize,
}

/// Reusable state of the matcher.
#[derive(Debug, Default)]
pub(in super::super) struct Matcher {
    choices: Vec<Choice>,
    steps: u64,
    max_choices: usize,
}

impl Matcher {
    /// Sets the budget of steps for a text of `length` bytes.
    pub(in super::super) fn allow(&mut self, length: usize) {
        self.steps = FREE_STEPS + STEPS_PER_BYTE * length as u64;
        self.max_choices = 4 * length + 4096;
    }

    /// Returns the first non-empty match that starts at or after `from`.
    pub(in super::super) fn find(
        &mut self,
        pattern: &Pattern,
        text: &str,
        from: usize,
    ) -> Result<Option<(usize, usize)>> {
        let mut position = from;
        while let Some(character) = next(text, position) {
            let point = character as u32;
            let mut mask = match pattern.low_starts.get(point as usize) {
                Some(&mask) => mask,
                None => {
                    pattern.high_starts.get(usize::from(unicode::category(character))).copied().unwrap_or(!0)
                }
            };
            let only = mask.is_power_of_two().then(|| mask.trailing_zeros() as usize);
            while mask != 0 {
                let option = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let start = pattern.starts.get(option).copied().unwrap_or(0);
                if let Some(end) = self.run(pattern, start, text, position)?
                    && end > position
                {
                    return Ok(Some((position, end)));
                }
            }
            position += character.len_utf8();
            // A pattern that begins with a run and failed here fails at every position inside that run.
            if let Some(class) = only.and_then(|option| *pattern.leading_runs.get(option)?) {
                let class = &pattern.classes[usize::from(class)];
                if class.has(character) {
                    position = run_end(class, text, position, u32::MAX).0;
                }
            }
        }
        Ok(None)
    }

    fn spend(&mut self, steps: u64) -> Result<()> {
        self.steps = self.steps.checked_sub(steps).ok_or_else(too_much)?;
        Ok(())
    }

    fn choose(&mut self, instruction: u32, position: usize, floor: usize) -> Result<()> {
        if self.choices.len() >= self.max_choices {
            return Err(too_much());
        }
        fallible_alloc::push(&mut self.choices, Choice { instruction, position, floor })
    }

    /// Returns the end of the match that starts at `position` with instruction `start`.
    fn run(&mut self, pattern: &Pattern, start: u32, text: &str, position: usize) -> Result<Option<usize>> {
        let base = self.choices.len();
        let (mut at, mut position) = (start, position);
        loop {
            let step = self.step(pattern, at, text, position)?;
            match step {
                Step::Go(instruction, reached) => (at, position) = (instruction, reached),
                Step::Done => {
                    self.choices.truncate(base);
                    return Ok(Some(position));
                }
                Step::Fail => {
                    self.spend(1)?;
                    if self.choices.len() == base {
                        return Ok(None);
                    }
                    let Some(choice) = self.choices.last_mut() else { return Ok(None) };
                    (at, position) = (choice.instruction, choice.position);
                    if choice.position > choice.floor {
                        choice.position = previous(text, choice.position);
                    } else {
                        self.choices.pop();
                    }
                }
            }
        }
    }

    fn step(&mut self, pattern: &Pattern, at: u32, text: &str, position: usize) -> Result<Step> {
        let class = |index: u16| &pattern.classes[usize::from(index)];
        let when = |holds: bool| if holds { Step::Go(at + 1, position) } else { Step::Fail };
        Ok(match pattern.instructions[at as usize] {
            RegexInstruction::One(index) => match next(text, position) {
                Some(character) if class(index).has(character) => {
                    Step::Go(at + 1, position + character.len_utf8())
                }
                _ => Step::Fail,
            },
            RegexInstruction::Run { class: index, min, max, possessive } => {
                let (end, floor) = self.consume(class(index), text, position, min, max)?;
                match floor {
                    None => Step::Fail,
                    Some(floor) => {
                        if !possessive && end > floor {
                            self.choose(at + 1, previous(text, end), floor)?;
                        }
                        Step::Go(at + 1, end)
                    }
                }
            }
            RegexInstruction::Split { first, second } => {
                self.spend(1)?;
                self.choose(second, position, position)?;
                Step::Go(first, position)
            }
            RegexInstruction::Jump(target) => Step::Go(target, position),
            RegexInstruction::LookClass { class: index, negative } => {
                when(next(text, position).is_some_and(|character| class(index).has(character)) != negative)
            }
            RegexInstruction::BehindClass { class: index, negative } => {
                let before = text.get(..position).and_then(|text| text.chars().next_back());
                when(before.is_some_and(|character| class(index).has(character)) != negative)
            }
            RegexInstruction::Look { negative, end } => {
                let found = self.run(pattern, at + 1, text, position)?.is_some();
                if found != negative { Step::Go(end, position) } else { Step::Fail }
            }
            RegexInstruction::Atomic { end } => match self.run(pattern, at + 1, text, position)? {
                Some(reached) => Step::Go(end, reached),
                None => Step::Fail,
            },
            RegexInstruction::Anchor(anchor) => when(holds(anchor, text, position)),
            RegexInstruction::Accept => Step::Done,
        })
    }

    /// Returns the end of a run, and the earliest position that it can backtrack to; `None` if it is too short.
    fn consume(
        &mut self,
        class: &Class,
        text: &str,
        position: usize,
        min: u32,
        max: u32,
    ) -> Result<(usize, Option<usize>)> {
        let (end, count) = run_end(class, text, position, max);
        self.spend(u64::from(count))?;
        let floor = match min {
            _ if count < min => None,
            0 => Some(position),
            1 => next(text, position).map(|character| position + character.len_utf8()),
            _ => {
                let skipped = text
                    .get(position..)
                    .map(|text| text.chars().take(min as usize).map(char::len_utf8).sum());
                skipped.map(|skipped: usize| position + skipped)
            }
        };
        Ok((end, floor))
    }
}

fn too_much() -> Error {
    let message =
        "the tokenizer's pattern needs too much backtracking on this text; tokenize it in smaller parts";
    Error::unsupported("pattern", message)
}

enum Step {
    Go(u32, usize),
    Done,
    Fail,
}

/// Returns the end of the run of at most `max` characters of `class` from `position` on, and its length.
#[inline]
fn run_end(class: &Class, text: &str, mut position: usize, max: u32) -> (usize, u32) {
    let bytes = text.as_bytes();
    let mut count = 0;
    while count < max {
        match bytes.get(position) {
            Some(&byte) if byte < 128 => {
                if !class.has_low(byte) {
                    break;
                }
                position += 1;
            }
            _ => match next(text, position) {
                Some(character) if class.has(character) => position += character.len_utf8(),
                _ => break,
            },
        }
        count += 1;
    }
    (position, count)
}

/// Returns the character at `position`, which must be a character boundary.
#[inline]
fn next(text: &str, position: usize) -> Option<char> {
    match *text.as_bytes().get(position)? {
        byte if byte < 128 => Some(char::from(byte)),
        _ => text.get(position..)?.chars().next(),
    }
}

/// Returns the start of the character before `position`.
#[inline]
fn previous(text: &str, position: usize) -> usize {
    text.floor_char_boundary(position.saturating_sub(1))
}

fn holds(anchor: Anchor, text: &str, position: usize) -> bool {
    let before = text.get(..position).and_then(|text| text.chars().next_back());
    let after = next(text, position);
    let is_word = |character: Option<char>| {
        use unicode::set;
        const WORD: u32 = set::LETTER | set::MARK | set::DECIMAL | set::LETTER_NUMBER | set::CONNECTOR;
        character.is_some_and(|character| unicode::is_in(character, WORD))
    };
    match anchor {
        Anchor::TextStart => before.is_none(),
        Anchor::TextEnd => after.is_none(),
        Anchor::LineStart => matches!(before, None | Some('\n')),
        Anchor::LineEnd => matches!(after, None | Some('\n')),
        Anchor::WordBoundary => is_word(before) != is_word(after),
        Anchor::NoWordBoundary => is_word(before) == is_word(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pattern: &str, text: &str) -> Vec<String> {
        let pattern = Pattern::new(pattern).unwrap();
        let mut matcher = Matcher::default();
        matcher.allow(text.len());
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some((start, end)) = matcher.find(&pattern, text, at).unwrap() {
            out.push(text[start..end].to_owned());
            at = end;
        }
        out
    }

    #[test]
    fn finds_what_perl_like_engines_find() {
        // Expected results are those of regex.findall(pattern, text) of Python's `regex` module.
        for (pattern, text, wanted) in [
            (
                r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
                "it's  12 Ä! \n",
                vec!["it", "'s", " ", " 12", " Ä", "!", " \n"],
            ),
            (r"\p{N}{1,3}", "1234567", vec!["123", "456", "7"]),
            (r"(?i:'s|'ll)", "'S 'Ll 'x", vec!["'S", "'Ll"]),
            (r"[^\r\n\p{L}\p{N}]?\p{L}+", "(ab\ncd", vec!["(ab", "cd"]),
            (r"\s+$", "  a  ", vec!["  "]),
            (r"[\p{L}&&[^\p{Han}]]+", "ab我c", vec!["ab", "c"]),
            (r"a++b|a+", "aab aa", vec!["aab", "aa"]),
            (r"(?:ab|a)c?d", "abd acd ad", vec!["abd", "acd", "ad"]),
            (r"<s:[0-9]+>", "<s:12><s:>", vec!["<s:12>"]),
            (r"(?<=b)a", "aba", vec!["a"]),
            (r"\bcat\b", "cat scat cat", vec!["cat", "cat"]),
            (r"x.*?y", "x1y2y", vec!["x1y"]),
            (r"[!\-/:-@\[-`{-~]", "a-[~z", vec!["-", "[", "~"]),
            (r"\d{1,3}(?=(?:\d{3})*\b)", "1234567", vec!["1", "234", "567"]),
            (r"(?>a+)ab|a", "aab", vec!["a", "a"]),
        ] {
            assert_eq!(pieces(pattern, text), wanted, "{pattern}");
        }
    }

    #[test]
    fn rejects_what_it_does_not_know() {
        for pattern in
            [r"(a)\1", "(?<=ab)c", r"\p{Klingon}", "(?P<x>a)", "a**", "(a|)*", "[z-a]", "(", "[a", r"\"]
        {
            let kind = Pattern::new(pattern).map(|_| ()).map_err(|error| error.kind());
            assert!(
                matches!(kind, Err(siskin_format::ErrorKind::Unsupported)) || pattern == "a**",
                "{pattern}: {kind:?}"
            );
        }
        assert!(Pattern::new(&"(".repeat(100_000)).is_err());
        assert!(Pattern::new("(((a{1000}){1000}){1000}){1000}").is_err());
    }

    #[test]
    fn bounds_the_work() {
        let pattern = Pattern::new("(?:a|aa)+b").unwrap();
        let mut matcher = Matcher::default();
        let text = "a".repeat(4000);
        matcher.allow(text.len());
        assert_eq!(
            matcher.find(&pattern, &text, 0).unwrap_err().kind(),
            siskin_format::ErrorKind::Unsupported
        );
    }
}
