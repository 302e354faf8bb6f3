//! The parser: pattern to syntax tree.

use super::super::unicode::{CATEGORIES, HAN, set};
use super::class::Class;
use siskin_format::{Error, Result};

const MAX_DEPTH: usize = 24;
const MAX_REPEATS: u32 = 1024;

/// A parsed pattern.
#[derive(Clone, Debug)]
pub(super) enum RegexNode {
    Class(Class),
    Sequence(Vec<RegexNode>),
    Either(Vec<RegexNode>),
    Repeat { node: Box<RegexNode>, min: u32, max: Option<u32>, greed: Greed },
    Look { node: Box<RegexNode>, negative: bool },
    Behind { class: Class, negative: bool },
    Atomic(Box<RegexNode>),
    Anchor(Anchor),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greed {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    WordBoundary,
    NoWordBoundary,
}

pub(super) fn parse(pattern: &str) -> Result<RegexNode> {
    let mut parser = Parser { pattern, rest: pattern, ignore_case: false, depth: 0 };
    let node = parser.alternation()?;
    match parser.rest.is_empty() {
        true => Ok(node),
        false => Err(parser.reject("an unmatched ')'")),
    }
}

struct Parser<'a> {
    pattern: &'a str,
    rest: &'a str,
    ignore_case: bool,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn reject(&self, what: &str) -> Error {
        let at = self.pattern.len() - self.rest.len();
        Error::unsupported(
            format!("pattern {:?}", self.pattern),
            format!("at byte {at}: {what} is not supported"),
        )
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn alternation(&mut self) -> Result<RegexNode> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.reject("such deep nesting"));
        }
        let ignore_case = self.ignore_case;
        let mut options = vec![self.sequence()?];
        while self.eat("|") {
            options.push(self.sequence()?);
        }
        self.ignore_case = ignore_case;
        self.depth -= 1;
        match options.len() {
            1 => Ok(options.swap_remove(0)),
            _ => Ok(RegexNode::Either(options)),
        }
    }

    fn sequence(&mut self) -> Result<RegexNode> {
        let mut nodes = Vec::new();
        while let Some(character) = self.peek() {
            if matches!(character, '|' | ')') {
                break;
            }
            if self.eat("(?i)") {
                self.ignore_case = true;
                continue;
            }
            let atom = self.atom()?;
            nodes.push(self.repeats(atom)?);
        }
        match nodes.len() {
            1 => Ok(nodes.swap_remove(0)),
            _ => Ok(RegexNode::Sequence(nodes)),
        }
    }

    fn repeats(&mut self, mut node: RegexNode) -> Result<RegexNode> {
        while let Some((min, max)) = self.quantifier()? {
            if matches!(node, RegexNode::Anchor(_) | RegexNode::Look { .. } | RegexNode::Behind { .. }) {
                return Err(self.reject("repeating something without length"));
            }
            let greed = match self.peek() {
                Some('?') => Greed::Lazy,
                Some('+') => Greed::Possessive,
                _ => Greed::Greedy,
            };
            if greed != Greed::Greedy {
                self.next();
            }
            node = RegexNode::Repeat { node: Box::new(node), min, max, greed };
        }
        Ok(node)
    }

    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        Ok(Some(match self.peek() {
            Some('*') => self.next().map(|_| (0, None)).unwrap_or_default(),
            Some('+') => self.next().map(|_| (1, None)).unwrap_or_default(),
            Some('?') => self.next().map(|_| (0, Some(1))).unwrap_or_default(),
            Some('{') => return self.counts(),
            _ => return Ok(None),
        }))
    }

    /// Parses `{n}`, `{n,}`, `{n,m}` or `{,m}`; any other brace is a literal.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        let Some((inner, after)) = self.rest[1..].split_once('}') else { return Ok(None) };
        let number = |text: &str| text.parse::<u32>().ok();
        let counts = match inner.split_once(',') {
            None => number(inner).map(|count| (count, Some(count))),
            Some(("", max)) => number(max).map(|max| (0, Some(max))),
            Some((min, "")) => number(min).map(|min| (min, None)),
            Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| (min, Some(max))),
        };
        let Some((min, max)) = counts else { return Ok(None) };
        if min.max(max.unwrap_or(0)) > MAX_REPEATS || max.is_some_and(|max| max < min) {
            return Err(self.reject("this repeat count"));
        }
        self.rest = after;
        Ok(Some((min, max)))
    }

    fn atom(&mut self) -> Result<RegexNode> {
        let character = self.next().ok_or_else(|| self.reject("a pattern that ends here"))?;
        Ok(match character {
            '(' => return self.group(),
            '[' => RegexNode::Class(self.set()?),
            '.' => RegexNode::Class(Class::ranges(&[(0, 9), (11, 0x10_FFFF)])),
            '^' => RegexNode::Anchor(Anchor::LineStart),
            '$' => RegexNode::Anchor(Anchor::LineEnd),
            '\\' => return self.escape(),
            '*' | '+' | '?' => return Err(self.reject("a repeat of nothing")),
            _ => RegexNode::Class(self.literal(character)),
        })
    }

    fn group(&mut self) -> Result<RegexNode> {
        if self.eat("?<=") || self.rest.starts_with("?<!") {
            let negative = self.eat("?<!");
            let inner = self.closed()?;
            return match inner {
                RegexNode::Class(class) => Ok(RegexNode::Behind { class, negative }),
                _ => Err(self.reject("a look-behind of more than one character")),
            };
        }
        if self.eat("?=") {
            return Ok(RegexNode::Look { node: Box::new(self.closed()?), negative: false });
        }
        if self.eat("?!") {
            return Ok(RegexNode::Look { node: Box::new(self.closed()?), negative: true });
        }
        if self.eat("?>") {
            return Ok(RegexNode::Atomic(Box::new(self.closed()?)));
        }
        if self.eat("?i:") {
            let before = std::mem::replace(&mut self.ignore_case, true);
            let inner = self.closed();
            self.ignore_case = before;
            return inner;
        }
        if self.eat("?:") || self.peek() != Some('?') {
            return self.closed();
        }
        Err(self.reject("this kind of group"))
    }

    fn closed(&mut self) -> Result<RegexNode> {
        let inner = self.alternation()?;
        match self.eat(")") {
            true => Ok(inner),
            false => Err(self.reject("a group without ')'")),
        }
    }

    fn escape(&mut self) -> Result<RegexNode> {
        match self.peek() {
            Some('b') => self.anchor(Anchor::WordBoundary),
            Some('B') => self.anchor(Anchor::NoWordBoundary),
            Some('A') => self.anchor(Anchor::TextStart),
            Some('z') => self.anchor(Anchor::TextEnd),
            _ => Ok(RegexNode::Class(self.class_escape()?)),
        }
    }

    fn anchor(&mut self, anchor: Anchor) -> Result<RegexNode> {
        self.next();
        Ok(RegexNode::Anchor(anchor))
    }

    /// Parses the rest of an escape sequence that denotes characters.
    fn class_escape(&mut self) -> Result<Class> {
        let character = self.next().ok_or_else(|| self.reject("a lone backslash"))?;
        let negate =
            |parser: &Self, class: Class| class.negated().ok_or_else(|| parser.reject("this negation"));
        match character {
            's' => Ok(Class::space()),
            'S' => negate(self, Class::space()),
            'd' => Ok(Class::categories(set::DECIMAL)),
            'D' => negate(self, Class::categories(set::DECIMAL)),
            'w' => Ok(Class::word()),
            'W' => negate(self, Class::word()),
            'p' => self.property(false),
            'P' => self.property(true),
            _ => self.char_escape(character).map(|character| self.literal(character)),
        }
    }

    fn char_escape(&mut self, character: char) -> Result<char> {
        Ok(match character {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'e' => '\u{1b}',
            'x' if self.rest.starts_with('{') => {
                let (digits, after) =
                    self.rest[1..].split_once('}').ok_or_else(|| self.reject("this escape"))?;
                self.rest = after;
                self.code_point(digits)?
            }
            'x' => self.fixed_code_point(2)?,
            'u' => self.fixed_code_point(4)?,
            other if other.is_ascii_alphanumeric() => {
                return Err(self.reject(&format!("the escape \\{other}")));
            }
            other => other,
        })
    }

    fn fixed_code_point(&mut self, digits: usize) -> Result<char> {
        let text = self.rest.get(..digits).ok_or_else(|| self.reject("this escape"))?;
        self.rest = &self.rest[digits..];
        self.code_point(text)
    }

    fn code_point(&self, digits: &str) -> Result<char> {
        let point = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
        point.ok_or_else(|| self.reject("this code point"))
    }

    fn property(&mut self, negated: bool) -> Result<Class> {
        let name = match self.eat("{") {
            true => self.rest.split_once('}').map(|(name, after)| {
                self.rest = after;
                name
            }),
            false => self.rest.get(..1).inspect(|name| self.rest = &self.rest[name.len()..]),
        }
        .ok_or_else(|| self.reject("this property"))?;
        let (name, inverted) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
        let class = property_class(name).ok_or_else(|| self.reject(&format!("the property {name}")))?;
        match negated != inverted {
            true => class.negated().ok_or_else(|| self.reject("this negation")),
            false => Ok(class),
        }
    }

    /// Parses the inside of `[…]`, after the opening bracket.
    fn set(&mut self) -> Result<Class> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.reject("such deep nesting"));
        }
        let negated = self.eat("^");
        let mut class = self.set_items()?;
        while self.eat("&&") {
            let other = if self.eat("[") { self.set()? } else { self.set_items()? };
            class = class.and(&other);
        }
        if !self.eat("]") {
            return Err(self.reject("a set without ']'"));
        }
        self.depth -= 1;
        match negated {
            true => class.negated().ok_or_else(|| self.reject("the negation of an intersection")),
            false => Ok(class),
        }
    }

    fn set_items(&mut self) -> Result<Class> {
        let mut class = Class::empty();
        let mut first = true;
        loop {
            match self.peek() {
                None => return Err(self.reject("a set without ']'")),
                Some(']') if !first => return Ok(class),
                _ if self.rest.starts_with("&&") => return Ok(class),
                _ => self.set_item(&mut class)?,
            }
            first = false;
        }
    }

    fn set_item(&mut self, class: &mut Class) -> Result<()> {
        let character = self.next().unwrap_or(']');
        let start = match character {
            '[' if self.rest.starts_with(':') => {
                let (name, after) = self.rest[1..].split_once(":]").ok_or_else(|| self.reject("this set"))?;
                let inner = posix_class(name).ok_or_else(|| self.reject(&format!("[:{name}:]")))?;
                self.rest = after;
                return self.include(class, &inner);
            }
            '[' => {
                let inner = self.set()?;
                return self.include(class, &inner);
            }
            '\\' if self.rest.starts_with(['s', 'S', 'd', 'D', 'w', 'W', 'p', 'P']) => {
                let inner = self.class_escape()?;
                return self.include(class, &inner);
            }
            '\\' => {
                let escaped = self.next().ok_or_else(|| self.reject("a lone backslash"))?;
                self.char_escape(escaped)?
            }
            _ => character,
        };
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
        if !is_range {
            let literal = self.literal(start);
            return self.include(class, &literal);
        }
        self.next();
        let end = match self.next() {
            Some('\\') => {
                let escaped = self.next().ok_or_else(|| self.reject("a lone backslash"))?;
                self.char_escape(escaped)?
            }
            Some(end) if end != '[' => end,
            _ => return Err(self.reject("this range")),
        };
        if end < start {
            return Err(self.reject("a range that ends before it starts"));
        }
        class.add_range(start as u32, end as u32);
        if self.ignore_case {
            (start..=end).filter(char::is_ascii_alphabetic).for_each(|letter| {
                let other = (letter as u8 ^ 0x20) as u32;
                class.add_range(other, other);
            });
        }
        Ok(())
    }

    fn include(&self, class: &mut Class, other: &Class) -> Result<()> {
        match class.add(other) {
            true => Ok(()),
            false => Err(self.reject("this union of sets")),
        }
    }

    fn literal(&self, character: char) -> Class {
        let mut class = Class::empty();
        class.add_range(character as u32, character as u32);
        if self.ignore_case {
            let mut add = |other: char| class.add_range(other as u32, other as u32);
            character.to_lowercase().for_each(&mut add);
            character.to_uppercase().for_each(&mut add);
            match character {
                's' | 'S' => add('ſ'),
                'k' | 'K' => add('\u{212a}'),
                _ => {}
            }
        }
        class
    }
}

fn property_class(name: &str) -> Option<Class> {
    if let "Han" | "Script=Han" | "IsHan" = name {
        return Some(Class::ranges(&HAN));
    }
    if let "White_Space" | "Space" | "space" = name {
        return Some(Class::space());
    }
    let short = match name {
        "Letter" => "L",
        "Mark" => "M",
        "Number" => "N",
        "Punctuation" | "Punct" => "P",
        "Symbol" => "S",
        "Separator" => "Z",
        "Other" => "C",
        "Lowercase_Letter" => "Ll",
        "Uppercase_Letter" => "Lu",
        other => other,
    };
    let members = CATEGORIES
        .iter()
        .enumerate()
        .filter(|(_, category)| !short.is_empty() && short.len() <= 2 && category.starts_with(short));
    let categories = members.fold(0, |set, (number, _)| set | 1 << number);
    (categories != 0).then(|| Class::categories(categories))
}

fn posix_class(name: &str) -> Option<Class> {
    Some(match name {
        "space" => Class::space(),
        "digit" => Class::categories(set::DECIMAL),
        "alpha" => Class::categories(set::LETTER | set::MARK),
        "punct" => {
            let mut class = Class::categories(set::PUNCTUATION);
            "$+<=>^`|~".chars().for_each(|symbol| class.add_range(symbol as u32, symbol as u32));
            class
        }
        _ => return None,
    })
}
