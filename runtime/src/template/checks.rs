//! Tests: the names after `is`.

use super::ast::Comparison;
use super::budget::{Eval, fail};
use super::machine::{Given, Machine};
use super::operators::compare;
use super::value::Value;
use super::{filters, methods};

type Check = fn(&Value) -> bool;

/// Tests of the value alone.
const CHECKS: &[(&str, Check)] = &[
    ("defined", |value| !value.is_undefined()),
    ("undefined", Value::is_undefined),
    ("none", |value| matches!(value, Value::None)),
    ("true", |value| matches!(value, Value::Bool(true))),
    ("false", |value| matches!(value, Value::Bool(false))),
    ("boolean", |value| matches!(value, Value::Bool(_))),
    ("integer", |value| matches!(value, Value::Int(_))),
    ("float", |value| matches!(value, Value::Float(_))),
    ("number", |value| matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_))),
    ("string", |value| matches!(value, Value::Text(_))),
    ("mapping", |value| matches!(value, Value::Map(_))),
    ("sequence", |value| {
        matches!(value, Value::Text(_) | Value::List(_) | Value::Map(_) | Value::Undefined(_))
    }),
    ("iterable", |value| {
        matches!(
            value,
            Value::Text(_) | Value::List(_) | Value::Map(_) | Value::Undefined(_) | Value::Loop(_)
        )
    }),
    ("callable", |value| {
        matches!(value, Value::Function(_) | Value::Macro(..) | Value::Method(_) | Value::Undefined(_))
    }),
    ("lower", |value| value.as_text().is_some_and(|text| methods::is_cased(text, char::is_lowercase))),
    ("upper", |value| value.as_text().is_some_and(|text| methods::is_cased(text, char::is_uppercase))),
    ("escaped", |_| false),
];

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
pub(super) fn check(machine: &mut Machine<'_>, name: &str, value: &Value, given: &Given) -> Eval<bool> {
    if let Some((_, check)) = CHECKS.iter().find(|(known, _)| *known == name) {
        if let Value::Text(text) = value {
            machine.budget.scan(text.len())?;
        }
        return Ok(check(value));
    }
    let argument = given.positional.first();
    if let Some((_, comparison)) = COMPARISONS.iter().find(|(known, _)| *known == name) {
        let Some(argument) = argument else { fail!("has the test '{name}' without a value to compare with") };
        return compare(value, *comparison, argument, &mut machine.budget);
    }
    match (name, value.as_int()) {
        ("odd", Some(number)) => Ok(number % 2 != 0),
        ("even", Some(number)) => Ok(number % 2 == 0),
        ("divisibleby", Some(number)) => match argument.and_then(Value::as_int) {
            Some(divisor) if divisor != 0 => Ok(number.checked_rem(divisor).unwrap_or(0) == 0),
            _ => fail!("has the test 'divisibleby' without a number"),
        },
        ("odd" | "even" | "divisibleby", None) => fail!("has the test '{name}' of {}", value.describe()),
        ("sameas", _) => match argument {
            Some(Value::Bool(truth)) => Ok(matches!(value, Value::Bool(other) if other == truth)),
            Some(Value::None) => Ok(matches!(value, Value::None)),
            Some(other) => compare(value, Comparison::Equal, other, &mut machine.budget),
            None => fail!("has the test 'sameas' without a value"),
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
