//! The global functions of templates.

use super::arguments::PassedArguments;
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::python::write_str;
use super::text::TextBuilder;
use super::value::{ELEMENT, Function, ListKind, TemplateValue};

/// The maximum length of a range, as in Jinja's sandbox.
const MAX_RANGE_LENGTH: i64 = 100_000;

const FUNCTIONS: &[(&str, Function)] = &[
    ("range", Function::Range),
    ("namespace", Function::Namespace),
    ("dict", Function::Dict),
    ("raise_exception", Function::RaiseException),
    ("strftime_now", Function::StrftimeNow),
];

/// Returns the function with the given name.
pub(super) fn named(name: &str) -> Option<Function> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

/// Calls a function.
pub(super) fn call(
    machine: &mut Interpreter<'_>,
    function: Function,
    given: PassedArguments,
) -> Eval<TemplateValue> {
    match function {
        Function::Range => range(machine, &given),
        Function::Namespace => {
            let mut attributes = Vec::new();
            for (key, value) in pairs(machine, given)? {
                if let TemplateValue::Text(name) = key {
                    attributes.push((name.as_arc().clone(), value));
                }
            }
            machine.namespace(attributes)
        }
        Function::Dict => {
            let pairs = pairs(machine, given)?;
            TemplateValue::map(pairs, &mut machine.budget)
        }
        Function::RaiseException => {
            let mut message = TextBuilder::default();
            if let Some(value) = given.get(0, "message") {
                write_str(value, &mut message, &mut machine.budget)?;
            }
            fail!("rejects the messages: {}", message.into_parts().0)
        }
        Function::StrftimeNow => match (machine.now, given.get(0, "format")) {
            (Some(now), Some(TemplateValue::Text(format))) => {
                machine.budget.allocate(format.len().saturating_mul(16))?;
                Ok(TemplateValue::Text(format.changed(now.format(format))))
            }
            (None, _) => fail!("uses the date, which was not passed"),
            _ => fail!("uses the date without a format"),
        },
    }
}

fn range(machine: &mut Interpreter<'_>, given: &PassedArguments) -> Eval<TemplateValue> {
    let mut numbers = Vec::new();
    for value in &given.positional {
        match value.as_int() {
            Some(number) => numbers.push(number),
            None => fail!("makes a range of {}", value.describe()),
        }
    }
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => fail!("makes a range of {} numbers", numbers.len()),
    };
    let distance = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let stride = step.saturating_abs();
    let count = distance.max(0) / stride + i64::from(distance.max(0) % stride != 0);
    if count > MAX_RANGE_LENGTH {
        fail!("makes a range of more than {MAX_RANGE_LENGTH} numbers");
    }
    machine.budget.allocate(count as usize * ELEMENT)?;
    let items =
        (0..count).map(|index| TemplateValue::Int(start.wrapping_add(index.wrapping_mul(step)))).collect();
    TemplateValue::list(items, ListKind::List)
}

/// Returns the entries of `dict(mapping, name=value)`.
fn pairs(machine: &mut Interpreter<'_>, given: PassedArguments) -> Eval<Vec<(TemplateValue, TemplateValue)>> {
    let mut pairs = Vec::new();
    match given.positional.first() {
        None => {}
        Some(TemplateValue::Map(map)) => {
            machine.budget.allocate(map.len() * ELEMENT * 2)?;
            pairs.extend_from_slice(map.entries());
        }
        Some(other) => {
            for pair in &machine.iterate(other)?.items {
                let pair = machine.iterate(pair)?;
                let [key, value] = &pair.items[..] else {
                    fail!("makes a mapping of values that are not pairs")
                };
                machine.budget.allocate(ELEMENT * 2)?;
                pairs.push((key.clone(), value.clone()));
            }
        }
    }
    pairs.extend(given.keyword.into_iter().map(|(name, value)| (TemplateValue::literal(name), value)));
    Ok(pairs)
}
