//! Evaluation of expressions.

use std::sync::Arc;

use super::arguments::PassedArguments;
use super::ast::{CallArguments, Comparison, Expression, Postfix};
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::python::write_str;
use super::text::TextBuilder;
use super::value::{ELEMENT, Function, ListKind, Loop, TemplateValue};
use super::{checks, filters, functions, methods, operators};

impl Interpreter<'_> {
    /// Evaluates an expression.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Eval<TemplateValue> {
        self.budget.spend(1)?;
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(symbol) => self.variable(*symbol),
            _ => self.nested(|machine| machine.compound(expression)),
        }
    }

    fn variable(&mut self, symbol: u32) -> Eval<TemplateValue> {
        let value = self.lookup(symbol);
        if !value.is_undefined() {
            return Ok(value);
        }
        let name = self.name(symbol);
        Ok(match functions::named(&name) {
            // Templates test whether this function is defined, and use a fixed date if it is not.
            Some(Function::StrftimeNow) if self.now.is_none() => value,
            Some(function) => TemplateValue::Function(function),
            None => value,
        })
    }

    fn compound(&mut self, expression: &Expression) -> Eval<TemplateValue> {
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(symbol) => self.variable(*symbol),
            Expression::List(items) => self.sequence(items, ListKind::List),
            Expression::Tuple(items) => self.sequence(items, ListKind::Tuple),
            Expression::Map(entries) => {
                let mut evaluated = Vec::new();
                for (key, value) in entries {
                    self.budget.allocate(2 * ELEMENT)?;
                    evaluated.push((self.evaluate(key)?, self.evaluate(value)?));
                }
                TemplateValue::map(evaluated, &mut self.budget)
            }
            Expression::Steps(base, steps) => {
                let base = self.evaluate(base)?;
                self.steps(base, steps)
            }
            Expression::Arithmetic(first, rest) => {
                let mut value = self.evaluate(first)?;
                for (operator, operand) in rest {
                    let operand = self.evaluate(operand)?;
                    value = operators::arithmetic(&value, *operator, &operand, &mut self.budget)?;
                }
                Ok(value)
            }
            Expression::Concatenation(parts) => self.concatenate(parts),
            Expression::Comparison(first, rest) => self.comparison(first, rest),
            Expression::And(parts) => self.first_where(parts, |truth| !truth),
            Expression::Or(parts) => self.first_where(parts, |truth| truth),
            Expression::Not(value) => Ok(TemplateValue::Bool(!self.evaluate(value)?.truth())),
            Expression::Negative(value) => self.signed(value, -1),
            Expression::Positive(value) => self.signed(value, 1),
            Expression::Conditional(parts) => {
                let (test, yes, no) = &**parts;
                match (self.evaluate(test)?.truth(), no) {
                    (true, _) => self.evaluate(yes),
                    (false, Some(no)) => self.evaluate(no),
                    (false, None) => Ok(TemplateValue::Undefined(None)),
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Expression], kind: ListKind) -> Eval<TemplateValue> {
        let mut evaluated = Vec::new();
        for item in items {
            self.budget.allocate(ELEMENT)?;
            evaluated.push(self.evaluate(item)?);
        }
        TemplateValue::list(evaluated, kind)
    }

    fn concatenate(&mut self, parts: &[Expression]) -> Eval<TemplateValue> {
        let mut text = TextBuilder::default();
        for part in parts {
            let value = self.evaluate(part)?;
            write_str(&value, &mut text, &mut self.budget)?;
        }
        let text = text.finish();
        self.budget.allocate(text.size())?;
        Ok(TemplateValue::Text(text))
    }

    fn comparison(&mut self, first: &Expression, rest: &[(Comparison, Expression)]) -> Eval<TemplateValue> {
        let mut left = self.evaluate(first)?;
        for (comparison, right) in rest {
            let right = self.evaluate(right)?;
            if !operators::compare(&left, *comparison, &right, &mut self.budget)? {
                return Ok(TemplateValue::Bool(false));
            }
            left = right;
        }
        Ok(TemplateValue::Bool(true))
    }

    /// Evaluates `and` and `or`: returns the first value that decides the result, or the last one.
    fn first_where(&mut self, parts: &[Expression], decides: impl Fn(bool) -> bool) -> Eval<TemplateValue> {
        let mut value = TemplateValue::None;
        for part in parts {
            value = self.evaluate(part)?;
            if decides(value.truth()) {
                break;
            }
        }
        Ok(value)
    }

    fn signed(&mut self, value: &Expression, sign: i64) -> Eval<TemplateValue> {
        let value = self.evaluate(value)?;
        match (value.as_int(), value.as_float()) {
            (Some(number), _) => match number.checked_mul(sign) {
                Some(number) => Ok(TemplateValue::Int(number)),
                None => fail!("computes a number that is too large"),
            },
            (None, Some(number)) => Ok(TemplateValue::Float(number * sign as f64)),
            _ => fail!("puts a sign before {}", value.describe()),
        }
    }

    /// Applies postfix operations to a value.
    pub(super) fn steps(&mut self, base: TemplateValue, steps: &[Postfix]) -> Eval<TemplateValue> {
        let mut value = base;
        for step in steps {
            self.budget.spend(1)?;
            value = match step {
                Postfix::Attribute(name) => self.get_attribute(&value, name)?,
                Postfix::Index(index) => {
                    let index = self.evaluate(index)?;
                    self.get_index(&value, &index)?
                }
                Postfix::Slice(bounds) => self.slice(&value, bounds)?,
                Postfix::Call(arguments) => {
                    let given = self.given(arguments)?;
                    self.call(&value, given)?
                }
                Postfix::Filter(name, arguments) => {
                    let given = self.given(arguments)?;
                    filters::apply(self, name, value, &given)?
                }
                Postfix::Test(name, negated, arguments) => {
                    let given = self.given(arguments)?;
                    TemplateValue::Bool(checks::check(self, name, &value, &given)? != *negated)
                }
            };
        }
        Ok(value)
    }

    /// Evaluates `value.name`: a method if the type has one, else the entry.
    pub(super) fn get_attribute(&mut self, value: &TemplateValue, name: &Arc<str>) -> Eval<TemplateValue> {
        match value {
            TemplateValue::Undefined(_) => fail!("takes '{name}' of {}", value.describe()),
            TemplateValue::Namespace(place) => {
                Ok(self.attribute(*place, name).cloned().unwrap_or_else(|| TemplateValue::undefined(name)))
            }
            TemplateValue::Loop(state) => Ok(loop_attribute(state, name)),
            _ if methods::exists(value, name) => {
                Ok(TemplateValue::Method(Arc::new((value.clone(), name.clone()))))
            }
            TemplateValue::Map(map) => {
                Ok(map.get_text(name).cloned().unwrap_or_else(|| TemplateValue::undefined(name)))
            }
            TemplateValue::Macro(definition, _) if &**name == "name" => {
                Ok(TemplateValue::literal(definition.name.clone()))
            }
            _ => Ok(TemplateValue::undefined(name)),
        }
    }

    /// Evaluates `value[index]`: the entry, else a method of that name.
    pub(super) fn get_index(&mut self, value: &TemplateValue, index: &TemplateValue) -> Eval<TemplateValue> {
        match (value, index) {
            (TemplateValue::Namespace(_) | TemplateValue::Loop(_), TemplateValue::Text(name)) => {
                self.get_attribute(value, name.as_arc())
            }
            _ => {
                let found = operators::index(value, index, &mut self.budget)?;
                match index {
                    TemplateValue::Text(name) if found.is_undefined() && methods::exists(value, name) => {
                        Ok(TemplateValue::Method(Arc::new((value.clone(), name.as_arc().clone()))))
                    }
                    _ => Ok(found),
                }
            }
        }
    }

    fn slice(&mut self, value: &TemplateValue, bounds: &[Option<Expression>; 3]) -> Eval<TemplateValue> {
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            let Some(bound) = bound else { continue };
            let bound = self.evaluate(bound)?;
            *number = match bound {
                TemplateValue::None => None,
                _ if bound.as_int().is_some() => bound.as_int(),
                _ => fail!("takes a slice up to {}", bound.describe()),
            };
        }
        operators::slice(value, numbers, &mut self.budget)
    }

    /// Evaluates the arguments of a call.
    pub(super) fn given(&mut self, arguments: &CallArguments) -> Eval<PassedArguments> {
        let mut given = PassedArguments::default();
        for argument in &arguments.positional {
            self.budget.allocate(ELEMENT)?;
            given.positional.push(self.evaluate(argument)?);
        }
        for (name, argument) in &arguments.keyword {
            self.budget.allocate(ELEMENT)?;
            given.keyword.push((name.clone(), self.evaluate(argument)?));
        }
        Ok(given)
    }

    /// Calls a callable value.
    pub(super) fn call(&mut self, function: &TemplateValue, given: PassedArguments) -> Eval<TemplateValue> {
        self.nested(|machine| match function {
            TemplateValue::Macro(definition, outer) => machine.call_macro(definition, *outer, given),
            TemplateValue::Function(function) => functions::call(machine, *function, given),
            TemplateValue::Method(method) => methods::call(machine, &method.0, &method.1, &given),
            other => fail!("calls {}", other.describe()),
        })
    }
}

fn loop_attribute(state: &Arc<Loop>, name: &Arc<str>) -> TemplateValue {
    let items = &state.items.items;
    let number = |number: usize| TemplateValue::Int(number as i64);
    let neighbor = |place: Option<usize>| place.and_then(|place| items.get(place)).cloned();
    match &**name {
        "index" => number(state.index + 1),
        "index0" => number(state.index),
        "revindex" => number(items.len() - state.index),
        "revindex0" => number(items.len() - state.index - 1),
        "first" => TemplateValue::Bool(state.index == 0),
        "last" => TemplateValue::Bool(state.index + 1 == items.len()),
        "length" => number(items.len()),
        "depth" => TemplateValue::Int(state.depth),
        "depth0" => TemplateValue::Int(state.depth - 1),
        "previtem" => neighbor(state.index.checked_sub(1)).unwrap_or_else(|| TemplateValue::undefined(name)),
        "nextitem" => neighbor(Some(state.index + 1)).unwrap_or_else(|| TemplateValue::undefined(name)),
        "cycle" => TemplateValue::Method(Arc::new((TemplateValue::Loop(state.clone()), name.clone()))),
        _ => TemplateValue::undefined(name),
    }
}
