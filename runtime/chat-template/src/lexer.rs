//! The lexer: template source to tokens, with Jinja's rules for whitespace (`trim_blocks` and `lstrip_blocks` on).

use super::budget::{Eval, RenderError, fail};
use super::python::is_space;

/// The maximum number of tokens of a template.
const MAX_TOKENS: usize = 1 << 17;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateToken {
    Data(Box<str>),
    EmitBegin,
    EmitEnd,
    BlockBegin,
    BlockEnd,
    Name(Box<str>),
    Text(Box<str>),
    Int(i64),
    Float(f64),
    Operator(&'static str),
    End,
}

/// Operators, longer ones before their prefixes.
const OPERATORS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

/// Returns the tokens with their lines, or a failure with its line.
pub(super) fn tokens(source: &str) -> std::result::Result<Vec<(TemplateToken, u32)>, (RenderError, u32)> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, position: 0, line: 1, line_starting: true, tokens: Vec::new() };
    match lexer.run() {
        Ok(()) => {
            lexer.tokens.push((TemplateToken::End, lexer.line));
            Ok(lexer.tokens)
        }
        Err(failure) => Err((failure, lexer.line)),
    }
}

struct Lexer<'s> {
    source: &'s str,
    position: usize,
    line: u32,
    /// Whether the preceding input ended with a line break.
    line_starting: bool,
    tokens: Vec<(TemplateToken, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Emit,
    Block,
    Comment,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.position..]
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.position..self.position + bytes];
        self.line += passed.bytes().filter(|byte| *byte == b'\n').count() as u32;
        self.position += bytes;
    }

    fn push(&mut self, token: TemplateToken) -> Eval<()> {
        if self.tokens.len() == MAX_TOKENS {
            fail!("more than {MAX_TOKENS} tokens");
        }
        self.tokens.push((token, self.line));
        Ok(())
    }

    fn run(&mut self) -> Eval<()> {
        while !self.rest().is_empty() {
            let Some((offset, tag)) = next_tag(self.rest()) else {
                let text = self.rest();
                self.data(text)?;
                return Ok(());
            };
            let text = &self.rest()[..offset];
            let sign = self.rest()[offset + 2..].bytes().next();
            let kept = self.before_tag(text, tag, sign);
            self.data(kept)?;
            self.advance(text.len() - kept.len());
            self.advance(2 + usize::from(matches!(sign, Some(b'-' | b'+'))));
            self.line_starting = false;
            match tag {
                Tag::Comment => self.comment()?,
                Tag::Block if self.raw_begin() => self.raw()?,
                Tag::Block => self.inside(TemplateToken::BlockBegin, TemplateToken::BlockEnd, "%}")?,
                Tag::Emit => self.inside(TemplateToken::EmitBegin, TemplateToken::EmitEnd, "}}")?,
            }
        }
        Ok(())
    }

    fn data(&mut self, text: &str) -> Eval<()> {
        if !text.is_empty() {
            self.push(TemplateToken::Data(text.into()))?;
        }
        self.advance(text.len());
        Ok(())
    }

    /// Returns the part of the text before a tag that is kept.
    fn before_tag<'t>(&self, text: &'t str, tag: Tag, sign: Option<u8>) -> &'t str {
        if sign == Some(b'-') {
            return text.trim_end_matches(is_space);
        }
        let start = text.rfind('\n').map_or(0, |place| place + 1);
        let blank = text[start..].chars().all(is_space);
        let strips = sign != Some(b'+') && tag != Tag::Emit && (start > 0 || self.line_starting);
        if strips && blank { &text[..start] } else { text }
    }

    /// Consumes the end of a tag, with the whitespace that it strips.
    fn end(&mut self, close: &str, trims: bool) -> bool {
        let rest = self.rest();
        let length = if let Some(after) = rest.strip_prefix('-').and_then(|rest| rest.strip_prefix(close)) {
            rest.len() - after.trim_start_matches(is_space).len()
        } else if trims && rest.strip_prefix('+').is_some_and(|rest| rest.starts_with(close)) {
            1 + close.len()
        } else if let Some(after) = rest.strip_prefix(close) {
            close.len() + usize::from(trims && after.starts_with('\n'))
        } else {
            return false;
        };
        self.line_starting = rest[..length].ends_with('\n');
        self.advance(length);
        true
    }

    fn comment(&mut self) -> Eval<()> {
        let Some(offset) = self.rest().find("#}") else { fail!("a comment that does not end") };
        let sign = self.rest()[..offset].bytes().last();
        self.advance(offset - usize::from(matches!(sign, Some(b'-' | b'+'))));
        self.end("#}", true);
        Ok(())
    }

    fn raw_begin(&mut self) -> bool {
        let rest = self.rest();
        let Some(after) = rest.trim_start_matches(is_space).strip_prefix("raw") else { return false };
        let after = after.trim_start_matches(is_space);
        let length = match after.strip_prefix("-%}") {
            Some(text) => rest.len() - text.trim_start_matches(is_space).len(),
            None if after.starts_with("%}") => rest.len() - after.len() + 2,
            None => return false,
        };
        self.line_starting = rest[..length].ends_with('\n');
        self.advance(length);
        true
    }

    fn raw(&mut self) -> Eval<()> {
        let mut from = 0;
        loop {
            let Some(found) = self.rest()[from..].find("{%") else { fail!("a raw block that does not end") };
            let offset = from + found;
            let tag = &self.rest()[offset + 2..];
            let sign = tag.bytes().next().filter(|sign| matches!(sign, b'-' | b'+'));
            let name = tag[usize::from(sign.is_some())..].trim_start_matches(is_space);
            let after = name.strip_prefix("endraw").map(|after| after.trim_start_matches(is_space));
            let closes = |after: &&str| after.trim_start_matches(['-', '+']).starts_with("%}");
            if let Some(after) = after.filter(closes) {
                let close = self.position + self.rest().len() - after.len();
                let text = &self.rest()[..offset];
                let kept = self.before_tag(text, Tag::Block, sign);
                self.data(kept)?;
                self.advance(close - self.position);
                if self.end("%}", true) {
                    return Ok(());
                }
                fail!("a raw block that does not end");
            }
            from = offset + 2;
        }
    }

    fn inside(&mut self, begin: TemplateToken, end: TemplateToken, close: &str) -> Eval<()> {
        self.push(begin)?;
        let mut open = Vec::new();
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches(is_space).len();
            self.advance(blank);
            if open.is_empty() && self.end(close, close == "%}") {
                return self.push(end);
            }
            let rest = self.rest();
            let Some(first) = rest.chars().next() else { fail!("a tag that does not end") };
            if first.is_ascii_digit() {
                self.number()?;
            } else if first.is_alphabetic() || first == '_' {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                self.push(TemplateToken::Name(rest[..end].into()))?;
                self.advance(end);
            } else if first == '"' || first == '\'' {
                self.string(first)?;
            } else {
                self.operator(first, &mut open)?;
            }
        }
    }

    fn operator(&mut self, first: char, open: &mut Vec<&'static str>) -> Eval<()> {
        let Some(operator) = OPERATORS.iter().find(|operator| self.rest().starts_with(**operator)) else {
            fail!("unexpected character {first:?} in a tag");
        };
        match *operator {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" if open.pop() != Some(operator) => fail!("unexpected {operator:?}"),
            _ => {}
        }
        self.push(TemplateToken::Operator(operator))?;
        self.advance(operator.len());
        Ok(())
    }

    fn number(&mut self) -> Eval<()> {
        let rest = self.rest();
        let radix = match rest.get(..2).unwrap_or_default() {
            "0x" | "0X" => 16,
            "0o" | "0O" => 8,
            "0b" | "0B" => 2,
            _ => 10,
        };
        if radix != 10 {
            let end =
                rest[2..].find(|c: char| !c.is_digit(radix) && c != '_').map_or(rest.len(), |end| end + 2);
            let digits = rest[2..end].replace('_', "");
            let Ok(number) = i64::from_str_radix(&digits, radix) else { fail!("a number that is too large") };
            self.push(TemplateToken::Int(number))?;
            self.advance(end);
            return Ok(());
        }
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let mut end = digits(rest);
        let mut whole = true;
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            end += 1 + digits(&rest[end + 1..]);
            whole = false;
        }
        if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            if exponent[sign..].starts_with(|c: char| c.is_ascii_digit()) {
                end += 1 + sign + digits(&exponent[sign..]);
                whole = false;
            }
        }
        let text = rest[..end].replace('_', "");
        let token = if whole {
            text.parse().map(TemplateToken::Int).ok()
        } else {
            text.parse().map(TemplateToken::Float).ok()
        };
        let Some(token) = token else { fail!("a number that is too large") };
        self.push(token)?;
        self.advance(end);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Eval<()> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        let end = body.char_indices().find(|(_, character)| {
            let closes = *character == quote && !escaped;
            escaped = *character == '\\' && !escaped;
            closes
        });
        let Some((end, _)) = end else { fail!("a string that does not end") };
        let text = unescape(&body[..end])?;
        self.push(TemplateToken::Text(text.into()))?;
        self.advance(end + 2);
        Ok(())
    }
}

/// Returns the first tag of any kind, and its position.
fn next_tag(text: &str) -> Option<(usize, Tag)> {
    let mut from = 0;
    loop {
        let offset = from + text[from..].find('{')?;
        match text.as_bytes().get(offset + 1) {
            Some(b'{') => return Some((offset, Tag::Emit)),
            Some(b'%') => return Some((offset, Tag::Block)),
            Some(b'#') => return Some((offset, Tag::Comment)),
            _ => from = offset + 1,
        }
    }
}

/// Replaces Python's escape sequences in a string.
fn unescape(body: &str) -> Eval<String> {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(place) = rest.find('\\') {
        text.push_str(&rest[..place]);
        let after = &rest[place + 1..];
        let Some(kind) = after.chars().next() else { break };
        rest = &after[kind.len_utf8()..];
        match kind {
            '\n' => {}
            '\\' | '\'' | '"' => text.push(kind),
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'v' => text.push('\u{b}'),
            'x' => rest = code_point(rest, 2, &mut text)?,
            'u' => rest = code_point(rest, 4, &mut text)?,
            'U' => rest = code_point(rest, 8, &mut text)?,
            '0'..='7' => {
                let digits = after.bytes().take(3).take_while(|byte| (b'0'..b'8').contains(byte)).count();
                let code = u32::from_str_radix(&after[..digits], 8).unwrap_or_default();
                text.extend(char::from_u32(code));
                rest = &after[digits..];
            }
            other => text.extend(['\\', other]),
        }
    }
    text.push_str(rest);
    Ok(text)
}

fn code_point<'r>(rest: &'r str, digits: usize, text: &mut String) -> Eval<&'r str> {
    let hex = rest.get(..digits).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let character = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
    let Some(character) = character else { fail!("invalid escape in a string") };
    text.push(character);
    Ok(&rest[digits..])
}
