//! The parser of expressions: one function per precedence level, lowest first, as in Jinja.

use std::sync::Arc;

use super::ast::{CallArguments, Comparison, Expression, Operator, Postfix};
use super::budget::{Eval, fail};
use super::lexer::TemplateToken;
use super::parser::Parser;
use super::value::TemplateValue;

impl Parser {
    /// Parses an expression, or a tuple of several separated by commas.
    pub(super) fn tuple(&mut self) -> Eval<Expression> {
        self.tuple_of(Self::expression)
    }

    /// Like [`Self::tuple`], without `a if b else c`, as `if` has another meaning after `for`.
    pub(super) fn or_tuple(&mut self) -> Eval<Expression> {
        self.tuple_of(|parser| parser.nested(Self::or))
    }

    fn tuple_of(&mut self, part: impl Fn(&mut Self) -> Eval<Expression>) -> Eval<Expression> {
        let first = part(self)?;
        if !self.at(",") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip(",") && !self.at_end() {
            parts.push(part(self)?);
        }
        Ok(Expression::Tuple(parts))
    }

    fn at_end(&self) -> bool {
        matches!(self.peek(), TemplateToken::EmitEnd | TemplateToken::BlockEnd | TemplateToken::End)
            || self.at(")")
    }

    pub(super) fn expression(&mut self) -> Eval<Expression> {
        self.nested(Self::conditional_expression)
    }

    fn conditional_expression(&mut self) -> Eval<Expression> {
        let mut value = self.or()?;
        for _ in 0..8 {
            if !self.skip_name("if") {
                break;
            }
            let test = self.or()?;
            let other = if self.skip_name("else") { Some(self.expression()?) } else { None };
            value = Expression::Conditional(Box::new((test, value, other)));
        }
        Ok(value)
    }

    pub(super) fn or(&mut self) -> Eval<Expression> {
        let parts = self.several(Self::and, |parser| parser.skip_name("or"))?;
        Ok(one_or(parts, Expression::Or))
    }

    fn and(&mut self) -> Eval<Expression> {
        let parts = self.several(Self::not, |parser| parser.skip_name("and"))?;
        Ok(one_or(parts, Expression::And))
    }

    fn several(
        &mut self,
        part: impl Fn(&mut Self) -> Eval<Expression>,
        between: impl Fn(&mut Self) -> bool,
    ) -> Eval<Vec<Expression>> {
        let mut parts = vec![part(self)?];
        while between(self) {
            parts.push(part(self)?);
        }
        Ok(parts)
    }

    fn not(&mut self) -> Eval<Expression> {
        if self.skip_name("not") {
            return Ok(Expression::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Eval<Expression> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                TemplateToken::Operator("==") => Comparison::Equal,
                TemplateToken::Operator("!=") => Comparison::NotEqual,
                TemplateToken::Operator("<") => Comparison::Less,
                TemplateToken::Operator("<=") => Comparison::LessOrEqual,
                TemplateToken::Operator(">") => Comparison::Greater,
                TemplateToken::Operator(">=") => Comparison::GreaterOrEqual,
                TemplateToken::Name(name) if &**name == "in" => Comparison::In,
                TemplateToken::Name(name) if &**name == "not" => {
                    self.next();
                    if !self.at_name("in") {
                        return self.unexpected("'in'");
                    }
                    Comparison::NotIn
                }
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Comparison(Box::new(first), rest) })
    }

    fn arithmetic(
        &mut self,
        part: impl Fn(&mut Self) -> Eval<Expression>,
        operators: &[(&str, Operator)],
    ) -> Eval<Expression> {
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(name, _)| self.skip(name)) {
            rest.push((*operator, part(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Arithmetic(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Eval<Expression> {
        self.arithmetic(Self::concatenation, &[("+", Operator::Add), ("-", Operator::Subtract)])
    }

    fn concatenation(&mut self) -> Eval<Expression> {
        let parts = self.several(Self::product, |parser| parser.skip("~"))?;
        Ok(one_or(parts, Expression::Concatenation))
    }

    fn product(&mut self) -> Eval<Expression> {
        let operators = [
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("//", Operator::FloorDivide),
            ("%", Operator::Remainder),
        ];
        self.arithmetic(Self::power, &operators)
    }

    fn power(&mut self) -> Eval<Expression> {
        self.arithmetic(|parser| parser.unary(true), &[("**", Operator::Power)])
    }

    fn unary(&mut self, filters: bool) -> Eval<Expression> {
        let base = if self.skip("-") {
            Expression::Negative(Box::new(self.nested(|parser| parser.unary(false))?))
        } else if self.skip("+") {
            Expression::Positive(Box::new(self.nested(|parser| parser.unary(false))?))
        } else {
            self.primary()?
        };
        let mut steps = Vec::new();
        while let Some(step) = self.postfix()? {
            steps.push(step);
        }
        if filters {
            while let Some(step) = self.filter_or_test()? {
                steps.push(step);
            }
        }
        Ok(if steps.is_empty() { base } else { Expression::Steps(Box::new(base), steps) })
    }

    fn primary(&mut self) -> Eval<Expression> {
        if !matches!(
            self.peek(),
            TemplateToken::Name(_) | TemplateToken::Text(_) | TemplateToken::Int(_) | TemplateToken::Float(_)
        ) && !["(", "[", "{"].iter().any(|bracket| self.at(bracket))
        {
            return self.unexpected("a value");
        }
        Ok(match self.next() {
            TemplateToken::Name(name) => match &*name {
                "true" | "True" => Expression::Constant(TemplateValue::Bool(true)),
                "false" | "False" => Expression::Constant(TemplateValue::Bool(false)),
                "none" | "None" => Expression::Constant(TemplateValue::None),
                _ => Expression::Name(self.symbol(&name.into())),
            },
            TemplateToken::Text(text) => {
                Expression::Constant(TemplateValue::literal(self.joined(text.into())))
            }
            TemplateToken::Int(number) => Expression::Constant(TemplateValue::Int(number)),
            TemplateToken::Float(number) => Expression::Constant(TemplateValue::Float(number)),
            TemplateToken::Operator("(") => self.bracket()?,
            TemplateToken::Operator("[") => Expression::List(self.items("]", |parser| parser.expression())?),
            _ => Expression::Map(self.items("}", |parser| {
                let key = parser.expression()?;
                parser.expect(":")?;
                Ok((key, parser.expression()?))
            })?),
        })
    }

    /// Concatenates adjacent string literals.
    fn joined(&mut self, first: String) -> Arc<str> {
        let mut text = first;
        while matches!(self.peek(), TemplateToken::Text(_)) {
            if let TemplateToken::Text(more) = self.next() {
                text.push_str(&more);
            }
        }
        text.into()
    }

    fn bracket(&mut self) -> Eval<Expression> {
        if self.skip(")") {
            return Ok(Expression::Tuple(Vec::new()));
        }
        let value = self.tuple()?;
        self.expect(")")?;
        Ok(value)
    }

    fn items<T>(&mut self, end: &str, item: impl Fn(&mut Self) -> Eval<T>) -> Eval<Vec<T>> {
        let mut items = Vec::new();
        while !self.skip(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn postfix(&mut self) -> Eval<Option<Postfix>> {
        if self.skip(".") {
            if let TemplateToken::Int(place) = self.peek() {
                let place = Expression::Constant(TemplateValue::Int(*place));
                self.next();
                return Ok(Some(Postfix::Index(place)));
            }
            return Ok(Some(Postfix::Attribute(self.name()?)));
        }
        if self.skip("[") {
            let step = self.subscript()?;
            self.expect("]")?;
            return Ok(Some(step));
        }
        if self.at("(") { Ok(Some(Postfix::Call(self.arguments()?))) } else { Ok(None) }
    }

    fn subscript(&mut self) -> Eval<Postfix> {
        let mut parts = [None, None, None];
        let mut place = 0;
        loop {
            if self.skip(":") {
                place += 1;
                if place == parts.len() {
                    fail!("a slice with too many parts");
                }
            } else if self.at("]") {
                break;
            } else if parts[place].is_some() {
                return self.unexpected("']'");
            } else {
                parts[place] = Some(self.expression()?);
            }
        }
        match parts {
            [Some(index), None, None] if place == 0 => Ok(Postfix::Index(index)),
            _ if place == 0 => self.unexpected("an index"),
            parts => Ok(Postfix::Slice(Box::new(parts))),
        }
    }

    fn filter_or_test(&mut self) -> Eval<Option<Postfix>> {
        if self.skip("|") {
            let name = self.dotted_name()?;
            let arguments = if self.at("(") { self.arguments()? } else { CallArguments::default() };
            return Ok(Some(Postfix::Filter(name, arguments)));
        }
        if self.skip_name("is") {
            return self.test().map(Some);
        }
        if self.at("(") { Ok(Some(Postfix::Call(self.arguments()?))) } else { Ok(None) }
    }

    fn test(&mut self) -> Eval<Postfix> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let operand = match self.peek() {
            TemplateToken::Name(word) => {
                !matches!(&**word, "else" | "or" | "and" | "is" | "if" | "not" | "in")
            }
            TemplateToken::Text(_) | TemplateToken::Int(_) | TemplateToken::Float(_) => true,
            _ => self.at("[") || self.at("{"),
        };
        let mut arguments = CallArguments::default();
        if self.at("(") {
            arguments = self.arguments()?;
        } else if operand {
            let value = self.nested(Self::primary)?;
            let mut steps = Vec::new();
            while let Some(step) = self.postfix()? {
                steps.push(step);
            }
            let steps_or_value =
                if steps.is_empty() { value } else { Expression::Steps(Box::new(value), steps) };
            arguments.positional.push(steps_or_value);
        }
        Ok(Postfix::Test(name, negated, arguments))
    }

    pub(super) fn dotted_name(&mut self) -> Eval<Arc<str>> {
        let first = self.name()?;
        if !self.at(".") {
            return Ok(first);
        }
        let mut name = first.to_string();
        while self.skip(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name.into())
    }

    pub(super) fn arguments(&mut self) -> Eval<CallArguments> {
        let mut arguments = CallArguments::default();
        self.expect("(")?;
        while !self.skip(")") {
            if !(arguments.positional.is_empty() && arguments.keyword.is_empty()) {
                self.expect(",")?;
                if self.skip(")") {
                    break;
                }
            }
            if self.at("*") || self.at("**") {
                fail!("unpacked arguments are not supported in calls; name them");
            }
            let value = self.expression()?;
            let Expression::Name(symbol) = value else {
                arguments.positional.push(value);
                continue;
            };
            if self.skip("=") {
                let name = self.symbol_name(symbol);
                arguments.keyword.push((name, self.expression()?));
            } else {
                arguments.positional.push(Expression::Name(symbol));
            }
        }
        Ok(arguments)
    }
}

fn one_or(mut parts: Vec<Expression>, many: impl FnOnce(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            many(parts)
        }
    }
}
