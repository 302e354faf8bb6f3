//! The interpreter of statements.

use std::sync::Arc;

use super::arguments::PassedArguments;
use super::ast::{Action, AssignTarget, Expression, ForLoop, MacroDefinition, Postfix, Statement, Symbol};
use super::budget::{Budget, Eval, fail};
use super::date::Date;
use super::parser::{CALLER, KWARGS, LOOP, VARARGS};
use super::python::write_str;
use super::text::{SPAN_BYTES, TextBuilder};
use super::value::{ELEMENT, List, ListKind, Loop, TemplateValue};

/// The maximum depth of nested statements and expressions.
const MAX_DEPTH: u32 = 200;
/// The maximum size of a template's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The state of a rendering.
pub(super) struct Interpreter<'t> {
    pub(super) budget: Budget,
    pub(super) now: Option<Date>,
    /// The current line.
    pub(super) line: u32,
    names: &'t [Arc<str>],
    frames: Vec<Frame>,
    namespaces: Vec<Vec<(Arc<str>, TemplateValue)>>,
    depth: u32,
    loops: i64,
}

/// Variables of one scope.
struct Frame {
    variables: Vec<(Symbol, TemplateValue)>,
    /// The enclosing frame; the outermost one is its own.
    outer: usize,
}

/// How the execution of a body ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Interpreter<'t> {
    /// Creates a machine with its global variables.
    pub(super) fn new(names: &'t [Arc<str>], globals: Vec<(Symbol, TemplateValue)>, budget: Budget) -> Self {
        let frames = vec![Frame { variables: globals, outer: 0 }];
        Self { budget, now: None, line: 1, names, frames, namespaces: Vec::new(), depth: 0, loops: 0 }
    }

    /// Runs a closure one level deeper.
    pub(super) fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        if self.depth == MAX_DEPTH {
            fail!("calls itself too deeply");
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    pub(super) fn name(&self, symbol: Symbol) -> Arc<str> {
        self.names.get(symbol as usize).cloned().unwrap_or_else(|| "".into())
    }

    /// Returns the value of a variable, undefined if there is none.
    pub(super) fn lookup(&self, symbol: Symbol) -> TemplateValue {
        let mut place = self.frames.len() - 1;
        while let Some(frame) = self.frames.get(place) {
            if let Some((_, value)) = frame.variables.iter().find(|(name, _)| *name == symbol) {
                return value.clone();
            }
            if place == 0 {
                break;
            }
            place = frame.outer.min(place - 1);
        }
        TemplateValue::Undefined(self.names.get(symbol as usize).cloned())
    }

    /// Binds a variable in the innermost frame.
    fn define(&mut self, symbol: Symbol, value: TemplateValue) -> Eval<()> {
        self.budget.allocate(ELEMENT)?;
        if let Some(frame) = self.frames.last_mut() {
            match frame.variables.iter_mut().find(|(name, _)| *name == symbol) {
                Some((_, known)) => *known = value,
                None => frame.variables.push((symbol, value)),
            }
        }
        Ok(())
    }

    /// Runs a closure in a new frame enclosed by `outer`.
    fn framed<T>(&mut self, outer: usize, run: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        self.frames.push(Frame { variables: Vec::new(), outer });
        let result = run(self);
        self.frames.pop();
        result
    }

    fn innermost(&self) -> usize {
        self.frames.len() - 1
    }

    /// Creates a namespace with these attributes.
    pub(super) fn namespace(&mut self, attributes: Vec<(Arc<str>, TemplateValue)>) -> Eval<TemplateValue> {
        self.budget.allocate(ELEMENT * (1 + attributes.len()))?;
        self.namespaces.push(Vec::new());
        let place = self.namespaces.len() - 1;
        for (name, value) in attributes {
            self.set_attribute(place, name, value)?;
        }
        Ok(TemplateValue::Namespace(place))
    }

    /// Returns an attribute of a namespace.
    pub(super) fn attribute(&self, place: usize, name: &str) -> Option<&TemplateValue> {
        self.namespaces.get(place)?.iter().find(|(key, _)| **key == *name).map(|(_, value)| value)
    }

    fn set_attribute(&mut self, place: usize, name: Arc<str>, value: TemplateValue) -> Eval<()> {
        self.budget.allocate(ELEMENT)?;
        let Some(attributes) = self.namespaces.get_mut(place) else { return Ok(()) };
        match attributes.iter_mut().find(|(key, _)| *key == name) {
            Some((_, known)) => *known = value,
            None => attributes.push((name, value)),
        }
        Ok(())
    }

    fn bind(&mut self, target: &AssignTarget, value: TemplateValue) -> Eval<()> {
        match target {
            AssignTarget::Name(symbol) => self.define(*symbol, value),
            AssignTarget::Attribute(symbol, name) => match self.lookup(*symbol) {
                TemplateValue::Namespace(place) => self.set_attribute(place, name.clone(), value),
                other => fail!("sets an attribute of {}; only namespaces have any", other.describe()),
            },
            AssignTarget::Names(targets) => {
                let parts = self.iterate(&value)?;
                if parts.items.len() != targets.len() {
                    fail!("unpacks {} values into {} names", parts.items.len(), targets.len());
                }
                for (target, part) in targets.iter().zip(&parts.items) {
                    self.bind(target, part.clone())?;
                }
                Ok(())
            }
        }
    }

    /// Returns the items that a loop over a value iterates over.
    pub(super) fn iterate(&mut self, value: &TemplateValue) -> Eval<Arc<List>> {
        let mut items = Vec::new();
        match value {
            TemplateValue::List(list) => return Ok(list.clone()),
            TemplateValue::Undefined(_) => {}
            TemplateValue::Map(map) => {
                self.budget.allocate(map.len() * ELEMENT)?;
                items.extend(map.entries().iter().map(|(key, _)| key.clone()));
            }
            TemplateValue::Text(text) => {
                for (at, character) in text.char_indices() {
                    self.budget.allocate(2 * ELEMENT + SPAN_BYTES)?;
                    items.push(TemplateValue::Text(text.slice(at..at + character.len_utf8())));
                }
            }
            other => fail!("loops over {}", other.describe()),
        }
        match TemplateValue::list(items, ListKind::List)? {
            TemplateValue::List(list) => Ok(list),
            _ => fail!("loops over nothing"),
        }
    }

    /// Writes a value.
    fn emit(&mut self, value: &TemplateValue, output: &mut TextBuilder) -> Eval<()> {
        write_str(value, output, &mut self.budget)?;
        check_length(output)
    }

    /// Runs statements until one leaves the body.
    pub(super) fn run(&mut self, statements: &[Statement], output: &mut TextBuilder) -> Eval<Flow> {
        self.nested(|machine| {
            for statement in statements {
                machine.budget.spend(1)?;
                machine.line = statement.line;
                let flow = machine.act(&statement.action, output)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
            }
            Ok(Flow::Next)
        })
    }

    fn act(&mut self, action: &Action, output: &mut TextBuilder) -> Eval<Flow> {
        match action {
            Action::Text(text) => {
                self.budget.allocate(text.len())?;
                output.push_str(text);
                check_length(output)?;
            }
            Action::Emit(expression) => {
                let value = self.evaluate(expression)?;
                self.emit(&value, output)?;
            }
            Action::Set(target, expression) => {
                let value = self.evaluate(expression)?;
                self.bind(target, value)?;
            }
            Action::SetBlock(target, filters, body) => {
                let value = self.captured(filters, body)?;
                self.bind(target, value)?;
            }
            Action::Filter(filters, body) => {
                let value = self.captured(filters, body)?;
                self.emit(&value, output)?;
            }
            Action::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.evaluate(test)?.truth() {
                        return self.run(body, output);
                    }
                }
                return self.run(otherwise, output);
            }
            Action::For(parts) => return self.repeat(parts, output),
            Action::Macro(symbol, definition) => {
                let outer = self.innermost();
                self.define(*symbol, TemplateValue::Macro(definition.clone(), outer))?;
            }
            Action::Call(call, caller) => self.call_with_body(call, caller, output)?,
            Action::With(values, body) => return self.with(values, body, output),
            Action::Break => return Ok(Flow::Break),
            Action::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn captured(&mut self, filters: &[Postfix], body: &[Statement]) -> Eval<TemplateValue> {
        let outer = self.innermost();
        let mut text = TextBuilder::default();
        self.framed(outer, |machine| machine.run(body, &mut text))?;
        let text = text.finish();
        self.budget.allocate(text.size())?;
        self.steps(TemplateValue::Text(text), filters)
    }

    fn with(
        &mut self,
        values: &[(AssignTarget, Expression)],
        body: &[Statement],
        output: &mut TextBuilder,
    ) -> Eval<Flow> {
        let mut evaluated = Vec::with_capacity(values.len());
        for (target, expression) in values {
            evaluated.push((target, self.evaluate(expression)?));
        }
        let outer = self.innermost();
        self.framed(outer, |machine| {
            for (target, value) in evaluated {
                machine.bind(target, value)?;
            }
            machine.run(body, output)
        })
    }

    fn repeat(&mut self, parts: &ForLoop, output: &mut TextBuilder) -> Eval<Flow> {
        let iterable = self.evaluate(&parts.iterable)?;
        let mut items = self.iterate(&iterable)?;
        let outer = self.innermost();
        if let Some(filter) = &parts.filter {
            items = self.framed(outer, |machine| machine.filtered(&items, &parts.target, filter))?;
        }
        if items.items.is_empty() {
            return self.framed(outer, |machine| machine.run(&parts.otherwise, output));
        }
        self.loops += 1;
        let result = self.framed(outer, |machine| machine.iterations(parts, &items, output));
        self.loops -= 1;
        result?;
        Ok(Flow::Next)
    }

    fn filtered(&mut self, items: &List, target: &AssignTarget, filter: &Expression) -> Eval<Arc<List>> {
        let mut kept = Vec::new();
        for item in &items.items {
            self.budget.allocate(ELEMENT)?;
            self.bind(target, item.clone())?;
            if self.evaluate(filter)?.truth() {
                kept.push(item.clone());
            }
        }
        let kept = TemplateValue::list(kept, ListKind::List)?;
        self.iterate(&kept)
    }

    fn iterations(&mut self, parts: &ForLoop, items: &Arc<List>, output: &mut TextBuilder) -> Eval<()> {
        for (index, item) in items.items.iter().enumerate() {
            self.budget.allocate(ELEMENT)?;
            if let Some(frame) = self.frames.last_mut() {
                frame.variables.clear();
            }
            let state = Loop { items: items.clone(), index, depth: self.loops };
            self.define(LOOP, TemplateValue::Loop(Arc::new(state)))?;
            self.bind(&parts.target, item.clone())?;
            if self.run(&parts.body, output)? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    fn call_with_body(
        &mut self,
        call: &Expression,
        caller: &Arc<MacroDefinition>,
        output: &mut TextBuilder,
    ) -> Eval<()> {
        let Expression::Steps(base, steps) = call else { fail!("a call block without a call") };
        let Some((Postfix::Call(arguments), before)) = steps.split_last() else {
            fail!("a call block without a call");
        };
        let base = self.evaluate(base)?;
        let function = self.steps(base, before)?;
        let mut given = self.given(arguments)?;
        given.keyword.push(("caller".into(), TemplateValue::Macro(caller.clone(), self.innermost())));
        let value = self.call(&function, given)?;
        self.emit(&value, output)
    }

    /// Calls a macro.
    pub(super) fn call_macro(
        &mut self,
        definition: &MacroDefinition,
        outer: usize,
        given: PassedArguments,
    ) -> Eval<TemplateValue> {
        let outer = outer.min(self.innermost());
        let mut text = TextBuilder::default();
        let loops = std::mem::take(&mut self.loops);
        let result = self.framed(outer, |machine| {
            machine.bind_parameters(definition, given)?;
            machine.run(&definition.body, &mut text)
        });
        self.loops = loops;
        result?;
        let text = text.finish();
        self.budget.allocate(text.size())?;
        Ok(TemplateValue::Text(text))
    }

    fn bind_parameters(&mut self, definition: &MacroDefinition, given: PassedArguments) -> Eval<()> {
        let mut positional = given.positional.into_iter();
        let mut keyword = given.keyword;
        for (symbol, name, default) in &definition.parameters {
            let named = keyword.iter().position(|(key, _)| key == name).map(|place| keyword.remove(place).1);
            let value = match (positional.next().or(named), default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.evaluate(default)?,
                (None, None) => TemplateValue::undefined(name),
            };
            self.define(*symbol, value)?;
        }
        if let Some(place) = keyword.iter().position(|(name, _)| &**name == "caller") {
            self.define(CALLER, keyword.remove(place).1)?;
        }
        self.budget.allocate((positional.len() + keyword.len()) * ELEMENT)?;
        self.define(VARARGS, TemplateValue::list(positional.collect(), ListKind::Tuple)?)?;
        let keyword =
            keyword.into_iter().map(|(name, value)| (TemplateValue::literal(name), value)).collect();
        let keyword = TemplateValue::map(keyword, &mut self.budget)?;
        self.define(KWARGS, keyword)
    }
}

fn check_length(output: &TextBuilder) -> Eval<()> {
    if output.len() > MAX_OUTPUT_BYTES {
        fail!("writes more than {} MiB", MAX_OUTPUT_BYTES >> 20);
    }
    Ok(())
}
