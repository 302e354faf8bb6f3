//! Tests: the names after `is`.

use super::arguments::PassedArguments;
use super::ast::Comparison;
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::operators::compare;
use super::value::TemplateValue;
use super::{filters, methods};

type Check = fn(&TemplateValue) -> bool;

/// Tests of the value alone.
const CHECKS: &[(&str, Check)] = &[
    ("defined", |value| !value.is_undefined()),
    ("undefined", TemplateValue::is_undefined),
    ("none", |value| matches!(value, TemplateValue::None)),
    ("true", |value| matches!(value, TemplateValue::Bool(true))),
    ("false", |value| matches!(value, TemplateValue::Bool(false))),
    ("boolean", |value| matches!(value, TemplateValue::Bool(_))),
    ("integer", |value| matches!(value, TemplateValue::Int(_))),
    ("float", |value| matches!(value, TemplateValue::Float(_))),
    ("number", |value| {
        matches!(value, TemplateValue::Int(_) | TemplateValue::Float(_) | TemplateValue::Bool(_))
    }),
    ("string", |value| matches!(value, TemplateValue::Text(_))),
    ("mapping", |value| matches!(value, TemplateValue::Map(_))),
    ("sequence", is_sequence),
    ("iterable", |value| is_sequence(value) || matches!(value, TemplateValue::Loop(_))),
    ("callable", |value| {
        matches!(
            value,
            TemplateValue::Function(_)
                | TemplateValue::Macro(..)
                | TemplateValue::Method(_)
                | TemplateValue::Undefined(_)
        )
    }),
    ("lower", |value| value.as_text().is_some_and(|text| methods::is_cased(text, char::is_lowercase))),
    ("upper", |value| value.as_text().is_some_and(|text| methods::is_cased(text, char::is_uppercase))),
    ("escaped", |_| false),
];

fn is_sequence(value: &TemplateValue) -> bool {
    matches!(
        value,
        TemplateValue::Text(_) | TemplateValue::List(_) | TemplateValue::Map(_) | TemplateValue::Undefined(_)
    )
}

/// Tests that compare the value with the argument.
const COMPARISONS: &[(&str, Comparison)] = &[
    ("eq", Comparison::Equal),
    ("equalto", Comparison::Equal),
    ("==", Comparison::Equal),
    ("ne", Comparison::NotEqual),
    ("!=", Comparison::NotEqual),
    ("lt", Comparison::Less),
    ("lessthan", Comparison::Less),
    ("<", Comparison::Less),
    ("le", Comparison::LessOrEqual),
    ("<=", Comparison::LessOrEqual),
    ("gt", Comparison::Greater),
    ("greaterthan", Comparison::Greater),
    (">", Comparison::Greater),
    ("ge", Comparison::GreaterOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("in", Comparison::In),
];

/// Computes `value is name(given)`.
pub(super) fn check(
    machine: &mut Interpreter<'_>,
    name: &str,
    value: &TemplateValue,
    given: &PassedArguments,
) -> Eval<bool> {
    if let Some((_, check)) = CHECKS.iter().find(|(known, _)| *known == name) {
        if let TemplateValue::Text(text) = value {
            machine.budget.scan(text.len())?;
        }
        return Ok(check(value));
    }
    let argument = given.positional.first();
    if let Some((_, comparison)) = COMPARISONS.iter().find(|(known, _)| *known == name) {
        let Some(argument) = argument else { fail!("the test '{name}' needs a value to compare with") };
        return compare(value, *comparison, argument, &mut machine.budget);
    }
    match (name, value.as_int()) {
        ("odd", Some(number)) => Ok(number % 2 != 0),
        ("even", Some(number)) => Ok(number % 2 == 0),
        ("divisibleby", Some(number)) => match argument.and_then(TemplateValue::as_int) {
            Some(divisor) if divisor != 0 => Ok(number.checked_rem(divisor).unwrap_or(0) == 0),
            _ => fail!("the test 'divisibleby' needs a number other than zero"),
        },
        ("odd" | "even" | "divisibleby", None) => {
            fail!("cannot apply the test '{name}' to {}", value.describe())
        }
        ("sameas", _) => match argument {
            Some(TemplateValue::Bool(truth)) => {
                Ok(matches!(value, TemplateValue::Bool(other) if other == truth))
            }
            Some(TemplateValue::None) => Ok(matches!(value, TemplateValue::None)),
            Some(other) => compare(value, Comparison::Equal, other, &mut machine.budget),
            None => fail!("the test 'sameas' needs a value"),
        },
        ("filter", _) => Ok(value.as_text().is_some_and(|name| filters::exists(name))),
        ("test", _) => Ok(value.as_text().is_some_and(|name| exists(name))),
        _ => fail!("uses the unknown test '{name}'"),
    }
}

/// Returns whether there is such a test.
pub(super) fn exists(name: &str) -> bool {
    CHECKS.iter().any(|(known, _)| *known == name)
        || COMPARISONS.iter().any(|(known, _)| *known == name)
        || ["odd", "even", "divisibleby", "sameas", "filter", "test"].contains(&name)
}
