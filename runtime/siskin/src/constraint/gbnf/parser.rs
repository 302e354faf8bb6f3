//! Reads GBNF.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

use super::{Expression, Grammar};
use crate::{Error, Result};

/// The maximum depth of parentheses.
const MAX_DEPTH: usize = 30;
/// The maximum number of repetitions that follow each other, as in `a*?`.
const MAX_NESTED_REPEATS: usize = 4;
/// The maximum number of repetitions in braces.
const MAX_REPETITIONS: u32 = 2000;

/// Reads a grammar.
pub(super) fn parse(text: &str) -> Result<Grammar> {
    let mut parser = Parser {
        text: text.chars().peekable(),
        line: 1,
        depth: 0,
        names: HashMap::from([("root".to_owned(), 0)]),
        rules: vec![None],
        uses: vec![1],
    };
    parser.skip_space(true);
    while parser.text.peek().is_some() {
        parser.rule()?;
        parser.skip_space(true);
    }
    parser.finish()
}

struct Parser<'a> {
    text: Peekable<Chars<'a>>,
    line: usize,
    depth: usize,
    names: HashMap<String, usize>,
    rules: Vec<Option<Expression>>,
    /// The line that first names each rule.
    uses: Vec<usize>,
}

impl Parser<'_> {
    fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::argument(format!("line {}", self.line), message.to_string())
    }

    fn next(&mut self) -> Option<char> {
        let next = self.text.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn eat(&mut self, expected: char) -> bool {
        let is_next = self.text.peek() == Some(&expected);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Skips spaces and comments, and line breaks with `and_lines`.
    fn skip_space(&mut self, and_lines: bool) {
        while let Some(&next) = self.text.peek() {
            match next {
                ' ' | '\t' => _ = self.next(),
                '\r' | '\n' if and_lines => _ = self.next(),
                '#' => {
                    while self.text.peek().is_some_and(|next| !matches!(next, '\r' | '\n')) {
                        self.next();
                    }
                }
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String> {
        let mut name = String::new();
        while let Some(&next) = self.text.peek().filter(|next| is_name(**next)) {
            name.push(next);
            self.next();
        }
        if name.is_empty() {
            let found = self.text.peek().map_or("the end".to_owned(), |next| format!("{next:?}"));
            return Err(self.error(format!("expected the name of a rule, found {found}")));
        }
        Ok(name)
    }

    fn rule_index(&mut self, name: String) -> usize {
        let (rules, uses, line) = (&mut self.rules, &mut self.uses, self.line);
        *self.names.entry(name).or_insert_with(|| {
            rules.push(None);
            uses.push(line);
            rules.len() - 1
        })
    }

    fn rule(&mut self) -> Result<()> {
        let name = self.name()?;
        self.skip_space(false);
        if !(self.eat(':') && self.eat(':') && self.eat('=')) {
            return Err(self.error(format!("expected `::=` after `{name}`")));
        }
        self.skip_space(true);
        let index = self.rule_index(name.clone());
        if self.rules[index].is_some() {
            return Err(self.error(format!("`{name}` is defined twice")));
        }
        let expression = self.choice(false)?;
        self.rules[index] = Some(expression);
        match self.text.peek().copied() {
            None | Some('\r' | '\n') => Ok(()),
            Some(other) => Err(self.error(format!("unexpected {other:?}"))),
        }
    }

    /// Reads alternatives: those of a rule, or in parentheses, where lines do not end them.
    fn choice(&mut self, is_nested: bool) -> Result<Expression> {
        let mut alternatives = vec![self.sequence(is_nested)?];
        while self.eat('|') {
            self.skip_space(true);
            alternatives.push(self.sequence(is_nested)?);
        }
        Ok(match alternatives.len() {
            1 => alternatives.remove(0),
            _ => Expression::Choice(alternatives),
        })
    }

    fn sequence(&mut self, is_nested: bool) -> Result<Expression> {
        let mut items = Vec::new();
        while let Some(&next) = self.text.peek() {
            let item = match next {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.next();
                    Expression::Class { is_negated: false, ranges: vec![('\0', char::MAX)] }
                }
                '(' => self.group()?,
                '*' | '+' | '?' | '{' => return Err(self.error(format!("nothing before {next:?} to repeat"))),
                '<' | '!' => return Err(self.error("tokens in grammars are not supported; write their text")),
                _ if is_name(next) => {
                    let name = self.name()?;
                    Expression::Rule(self.rule_index(name))
                }
                _ => break,
            };
            let item = self.repeated(item, is_nested)?;
            items.push(item);
            self.skip_space(is_nested);
        }
        Ok(match items.len() {
            0 => Expression::Literal(String::new()),
            1 => items.remove(0),
            _ => Expression::Sequence(items),
        })
    }

    fn group(&mut self) -> Result<Expression> {
        self.next();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} parentheses")));
        }
        self.skip_space(true);
        let inner = self.choice(true)?;
        self.depth -= 1;
        if !self.eat(')') {
            return Err(self.error("expected `)`"));
        }
        Ok(inner)
    }

    /// Reads what follows an item: `*`, `+`, `?` or a number of repetitions.
    fn repeated(&mut self, mut item: Expression, is_nested: bool) -> Result<Expression> {
        for _ in 0..=MAX_NESTED_REPEATS {
            self.skip_space(is_nested);
            let (least, most) = match self.text.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.braces()?,
                _ => return Ok(item),
            };
            // `braces` leaves the last character.
            self.next();
            item = Expression::Repeat { item: Box::new(item), least, most };
        }
        Err(self.error(format!("more than {MAX_NESTED_REPEATS} repetitions of repetitions")))
    }

    fn braces(&mut self) -> Result<(u32, Option<u32>)> {
        self.next();
        let least = self.number()?;
        self.skip_space(false);
        let has_comma = self.eat(',');
        self.skip_space(false);
        let most = match self.text.peek() {
            Some('}') if has_comma => None,
            Some('}') => least,
            _ if has_comma => self.number()?,
            _ => None,
        };
        self.skip_space(false);
        let least = match least {
            Some(least) => least,
            None if most.is_some() => 0,
            None => return Err(self.error("expected a number of repetitions")),
        };
        if self.text.peek() != Some(&'}') {
            return Err(self.error("expected `}` after the number of repetitions"));
        }
        if most.is_some_and(|most| most < least) || most.unwrap_or(least) > MAX_REPETITIONS {
            let message =
                format!("expected at most {MAX_REPETITIONS} repetitions, and no fewer than the first number");
            return Err(self.error(message));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<u32>> {
        self.skip_space(false);
        let mut number = None;
        while let Some(digit) = self.text.peek().and_then(|next| next.to_digit(10)) {
            self.next();
            let grown = number.unwrap_or(0_u32).checked_mul(10).and_then(|tens| tens.checked_add(digit));
            number = Some(grown.ok_or_else(|| self.error("the number of repetitions is too large"))?);
        }
        Ok(number)
    }

    fn literal(&mut self) -> Result<Expression> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(self.error("a text without its closing `\"`")),
                Some('"') => return Ok(Expression::Literal(text)),
                Some('\\') => text.push(self.escape()?),
                Some(other) => text.push(other),
            }
        }
    }

    fn class(&mut self) -> Result<Expression> {
        self.next();
        let is_negated = self.eat('^');
        let mut ranges = Vec::new();
        while !self.eat(']') {
            let first = self.class_character()?;
            let mut last = first;
            // A hyphen before the end stands for itself.
            if self.text.peek() == Some(&'-') {
                self.next();
                if self.text.peek() == Some(&']') {
                    ranges.extend([(first, first), ('-', '-')]);
                    continue;
                }
                last = self.class_character()?;
            }
            if last < first {
                return Err(self.error(format!("the range {first:?} to {last:?} is empty")));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !is_negated {
            return Err(self.error("an empty set of characters"));
        }
        Ok(Expression::Class { is_negated, ranges })
    }

    fn class_character(&mut self) -> Result<char> {
        match self.next() {
            None => Err(self.error("a set of characters without its closing `]`")),
            Some('\\') => self.escape(),
            Some(other) => Ok(other),
        }
    }

    fn escape(&mut self) -> Result<char> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(same @ ('\\' | '"' | '[' | ']' | '-')) => return Ok(same),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            other => {
                let found = other.map_or(String::new(), String::from);
                return Err(self.error(format!("unknown escape `\\{found}`")));
            }
        };
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|next| next.to_digit(16));
            let digit = digit.ok_or_else(|| self.error(format!("expected {digits} hexadecimal digits")))?;
            code = code << 4 | digit;
        }
        char::from_u32(code).ok_or_else(|| self.error(format!("{code:X} is no character")))
    }

    fn finish(mut self) -> Result<Grammar> {
        let missing = self.rules.iter().position(Option::is_none);
        if let Some(missing) = missing {
            let name = self.names.iter().find(|(_, index)| **index == missing).map_or("", |(name, _)| name);
            self.line = self.uses[missing];
            return Err(self.error(format!("there is no rule `{name}`")));
        }
        Ok(Grammar { rules: self.rules.into_iter().flatten().collect() })
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}
