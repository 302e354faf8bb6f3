//! The parser of statements. Expressions are in `expressions.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{
    Action, AssignTarget, Expression, ForLoop, MacroDefinition, Parameter, Postfix, Statement, Symbol,
};
use super::budget::{Eval, RenderError, fail};
use super::lexer::TemplateToken;

/// The maximum nesting depth of blocks and brackets.
const MAX_DEPTH: u32 = 64;

/// Symbols that the machine itself binds; every template has them.
pub(super) const LOOP: Symbol = 0;
pub(super) const CALLER: Symbol = 1;
pub(super) const VARARGS: Symbol = 2;
pub(super) const KWARGS: Symbol = 3;

/// A parsed template.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) body: Vec<Statement>,
    /// The name of each [`Symbol`].
    pub(super) names: Vec<Arc<str>>,
}

pub(super) struct Parser {
    tokens: Vec<(TemplateToken, u32)>,
    position: usize,
    depth: u32,
    loops: u32,
    names: Vec<Arc<str>>,
    symbols: HashMap<Arc<str>, Symbol>,
}

/// Parses all tokens; a failure comes with its line.
pub(super) fn parse(tokens: Vec<(TemplateToken, u32)>) -> std::result::Result<Parsed, (RenderError, u32)> {
    let mut parser =
        Parser { tokens, position: 0, depth: 0, loops: 0, names: Vec::new(), symbols: HashMap::new() };
    for name in ["loop", "caller", "varargs", "kwargs"] {
        parser.symbol(&name.into());
    }
    match parser.block(&[]) {
        Ok(body) => Ok(Parsed { body, names: parser.names }),
        Err(failure) => Err((failure, parser.line())),
    }
}

impl Parser {
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.position).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    pub(super) fn peek(&self) -> &TemplateToken {
        self.tokens.get(self.position).map_or(&TemplateToken::End, |(token, _)| token)
    }

    /// Consumes the next token.
    pub(super) fn next(&mut self) -> TemplateToken {
        let token =
            self.tokens.get_mut(self.position).map(|(token, _)| std::mem::replace(token, TemplateToken::End));
        self.position += 1;
        token.unwrap_or(TemplateToken::End)
    }

    pub(super) fn at(&self, operator: &str) -> bool {
        matches!(self.peek(), TemplateToken::Operator(found) if *found == operator)
    }

    pub(super) fn at_name(&self, name: &str) -> bool {
        matches!(self.peek(), TemplateToken::Name(found) if **found == *name)
    }

    pub(super) fn skip(&mut self, operator: &str) -> bool {
        let found = self.at(operator);
        self.position += usize::from(found);
        found
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.at_name(name);
        self.position += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, operator: &str) -> Eval<()> {
        if self.skip(operator) { Ok(()) } else { self.unexpected(&format!("'{operator}'")) }
    }

    fn expect_name(&mut self, name: &str) -> Eval<()> {
        if self.skip_name(name) { Ok(()) } else { self.unexpected(&format!("'{name}'")) }
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Eval<T> {
        let found = match self.peek() {
            TemplateToken::Data(_) => "text".to_owned(),
            TemplateToken::EmitBegin => "'{{'".to_owned(),
            TemplateToken::EmitEnd => "'}}'".to_owned(),
            TemplateToken::BlockBegin => "'{%'".to_owned(),
            TemplateToken::BlockEnd => "'%}'".to_owned(),
            TemplateToken::Name(name) => format!("'{}'", name.chars().take(40).collect::<String>()),
            TemplateToken::Text(_) => "a string".to_owned(),
            TemplateToken::Int(_) | TemplateToken::Float(_) => "a number".to_owned(),
            TemplateToken::Operator(operator) => format!("'{operator}'"),
            TemplateToken::End => "the end".to_owned(),
        };
        fail!("expected {wanted}, got {found}")
    }

    /// Consumes a name.
    pub(super) fn name(&mut self) -> Eval<Arc<str>> {
        match self.peek() {
            TemplateToken::Name(_) => {}
            _ => return self.unexpected("a name"),
        }
        let TemplateToken::Name(name) = self.next() else { fail!("expected a name") };
        Ok(name.into())
    }

    pub(super) fn symbol(&mut self, name: &Arc<str>) -> Symbol {
        let next = self.names.len() as Symbol;
        let symbol = *self.symbols.entry(name.clone()).or_insert(next);
        if symbol == next {
            self.names.push(name.clone());
        }
        symbol
    }

    pub(super) fn symbol_name(&self, symbol: Symbol) -> Arc<str> {
        self.names[symbol as usize].clone()
    }

    /// Runs a closure one level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        if self.depth == MAX_DEPTH {
            fail!("nested more than {MAX_DEPTH} levels deep");
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Parses statements up to one of the `ends`, whose name is not consumed; an empty list means the end of the
    /// source.
    fn block(&mut self, ends: &[&str]) -> Eval<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            let line = self.line();
            let action = match self.next() {
                TemplateToken::Data(text) => Action::Text(text),
                TemplateToken::EmitBegin => {
                    let expression = self.tuple()?;
                    if *self.peek() != TemplateToken::EmitEnd {
                        return self.unexpected("'}}'");
                    }
                    self.position += 1;
                    Action::Emit(expression)
                }
                TemplateToken::BlockBegin => {
                    if ends.iter().any(|end| self.at_name(end)) {
                        return Ok(statements);
                    }
                    match self.nested(Self::statement)? {
                        Some(action) => action,
                        None => continue,
                    }
                }
                TemplateToken::End if ends.is_empty() => return Ok(statements),
                _ => {
                    self.position -= 1;
                    fail!("ends without {}", ends.join(" or "))
                }
            };
            statements.push(Statement { line, action });
        }
    }

    fn block_end(&mut self) -> Eval<()> {
        if *self.peek() != TemplateToken::BlockEnd {
            return self.unexpected("'%}'");
        }
        self.position += 1;
        Ok(())
    }

    /// Parses the rest of a block's opening tag, its body, and its closing tag.
    fn body(&mut self, end: &str) -> Eval<Vec<Statement>> {
        self.block_end()?;
        let body = self.block(&[end])?;
        self.expect_name(end)?;
        self.block_end()?;
        Ok(body)
    }

    fn statement(&mut self) -> Eval<Option<Action>> {
        let keyword = self.name()?;
        let action = match &*keyword {
            "if" => self.conditional()?,
            "for" => self.for_loop()?,
            "set" => self.set()?,
            "macro" => {
                let name = self.name()?;
                let symbol = self.symbol(&name);
                Action::Macro(symbol, self.macro_definition(name, "endmacro")?)
            }
            "call" => self.call()?,
            "filter" => {
                let steps = self.filters(true)?;
                Action::Filter(steps, self.body("endfilter")?)
            }
            "with" => self.with()?,
            // Marks generated text for training masks; the output is the same.
            "generation" => {
                Action::With(Vec::new(), self.outside_loops(|parser| parser.body("endgeneration"))?)
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    fail!("'{keyword}' outside of a loop");
                }
                self.block_end()?;
                if &*keyword == "break" { Action::Break } else { Action::Continue }
            }
            "elif" | "else" => fail!("'{keyword}' without an open block"),
            other if other.starts_with("end") => fail!("'{{% {other} %}}' without an open block"),
            other => {
                let other: String = other.chars().take(40).collect();
                fail!("uses '{{% {other} %}}', which is not supported")
            }
        };
        Ok(Some(action))
    }

    /// Parses a part in which `break` and `continue` are not allowed.
    fn outside_loops<T>(&mut self, parse: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        let loops = std::mem::take(&mut self.loops);
        let result = parse(self);
        self.loops = loops;
        result
    }

    fn conditional(&mut self) -> Eval<Action> {
        let mut branches = Vec::new();
        loop {
            let test = self.or()?;
            self.block_end()?;
            let body = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            if self.skip_name("elif") {
                continue;
            }
            let otherwise = if self.skip_name("else") {
                self.block_end()?;
                self.block(&["endif"])?
            } else {
                Vec::new()
            };
            self.expect_name("endif")?;
            self.block_end()?;
            return Ok(Action::If(branches, otherwise));
        }
    }

    fn for_loop(&mut self) -> Eval<Action> {
        let target = self.target(false)?;
        self.expect_name("in")?;
        let iterable = self.or_tuple()?;
        let filter = if self.skip_name("if") { Some(self.expression()?) } else { None };
        if self.at_name("recursive") {
            fail!("recursive loops are not supported; use a macro");
        }
        self.block_end()?;
        self.loops += 1;
        let body = self.block(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if self.skip_name("else") {
            self.block_end()?;
            self.block(&["endfor"])?
        } else {
            Vec::new()
        };
        self.expect_name("endfor")?;
        self.block_end()?;
        Ok(Action::For(Box::new(ForLoop { target, iterable, filter, body, otherwise })))
    }

    fn set(&mut self) -> Eval<Action> {
        let target = self.target(true)?;
        if self.skip("=") {
            let value = self.tuple()?;
            self.block_end()?;
            return Ok(Action::Set(target, value));
        }
        let filters = self.filters(false)?;
        Ok(Action::SetBlock(target, filters, self.body("endset")?))
    }

    fn with(&mut self) -> Eval<Action> {
        let mut values = Vec::new();
        while *self.peek() != TemplateToken::BlockEnd {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?;
            let target = AssignTarget::Name(self.symbol(&name));
            self.expect("=")?;
            values.push((target, self.expression()?));
        }
        Ok(Action::With(values, self.body("endwith")?))
    }

    fn call(&mut self) -> Eval<Action> {
        let caller: Arc<str> = "caller".into();
        let parameters = if self.at("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(&call, Expression::Steps(_, steps) if matches!(steps.last(), Some(Postfix::Call(_)))) {
            fail!("a call block without a call");
        }
        let body = self.outside_loops(|parser| parser.body("endcall"))?;
        Ok(Action::Call(call, Arc::new(MacroDefinition { name: caller, parameters, body })))
    }

    fn macro_definition(&mut self, name: Arc<str>, end: &str) -> Eval<Arc<MacroDefinition>> {
        let parameters = self.parameters()?;
        let body = self.outside_loops(|parser| parser.body(end))?;
        Ok(Arc::new(MacroDefinition { name, parameters, body }))
    }

    fn parameters(&mut self) -> Eval<Vec<Parameter>> {
        let mut parameters = Vec::new();
        self.expect("(")?;
        while !self.skip(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
                if self.skip(")") {
                    break;
                }
            }
            let name = self.name()?;
            let default = if self.skip("=") { Some(self.expression()?) } else { None };
            parameters.push((self.symbol(&name), name, default));
        }
        Ok(parameters)
    }

    /// Parses the target of a loop or `set`.
    fn target(&mut self, attributes: bool) -> Eval<AssignTarget> {
        let mut targets = Vec::new();
        let mut several = false;
        let bracket = self.skip("(");
        loop {
            let name = self.name()?;
            let symbol = self.symbol(&name);
            targets.push(if attributes && self.skip(".") {
                AssignTarget::Attribute(symbol, self.name()?)
            } else {
                AssignTarget::Name(symbol)
            });
            if !self.skip(",") {
                break;
            }
            several = true;
            if !matches!(self.peek(), TemplateToken::Name(_)) || self.at_name("in") {
                break;
            }
        }
        if bracket {
            self.expect(")")?;
        }
        Ok(match targets.pop() {
            Some(target) if !several => target,
            last => {
                targets.extend(last);
                AssignTarget::Names(targets)
            }
        })
    }

    /// Parses a chain of filters with their arguments; if `named`, the first one has no bar before it.
    fn filters(&mut self, named: bool) -> Eval<Vec<Postfix>> {
        let mut steps = Vec::new();
        while (named && steps.is_empty()) || self.skip("|") {
            let name = self.dotted_name()?;
            let arguments = if self.at("(") { self.arguments()? } else { Default::default() };
            steps.push(Postfix::Filter(name, arguments));
        }
        Ok(steps)
    }
}
