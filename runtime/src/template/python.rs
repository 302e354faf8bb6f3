//! How Python writes values and treats text.

use std::fmt::Write as _;

use super::budget::{Budget, Eval};
use super::value::{ListKind, Value};

/// Python's `str.isspace`.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Python's `str`: what `{{ value }}` writes.
pub(super) fn write_str(value: &Value, output: &mut String, budget: &mut Budget) -> Eval<()> {
    match value {
        Value::Undefined(_) => budget.spend(1),
        Value::Text(text) => {
            budget.allocate(text.len())?;
            output.push_str(text);
            Ok(())
        }
        other => write_repr(other, output, budget),
    }
}

/// Python's `repr`: how values are written inside of lists.
pub(super) fn write_repr(value: &Value, output: &mut String, budget: &mut Budget) -> Eval<()> {
    budget.allocate(8)?;
    match value {
        Value::Undefined(_) => output.push_str("Undefined"),
        Value::None => output.push_str("None"),
        Value::Bool(truth) => output.push_str(if *truth { "True" } else { "False" }),
        Value::Int(number) => write_number(output, budget, *number)?,
        Value::Float(number) => output.push_str(&float(*number)),
        Value::Text(text) => quote(text, output, budget)?,
        Value::List(list) => {
            let (open, close) = if list.kind == ListKind::Tuple { ('(', ')') } else { ('[', ']') };
            output.push(open);
            for (index, item) in list.items.iter().enumerate() {
                output.push_str(if index > 0 { ", " } else { "" });
                write_repr(item, output, budget)?;
            }
            output.push_str(if list.kind == ListKind::Tuple && list.items.len() == 1 { "," } else { "" });
            output.push(close);
        }
        Value::Map(map) => {
            output.push('{');
            for (index, (key, value)) in map.entries().iter().enumerate() {
                output.push_str(if index > 0 { ", " } else { "" });
                write_repr(key, output, budget)?;
                output.push_str(": ");
                write_repr(value, output, budget)?;
            }
            output.push('}');
        }
        other => {
            budget.allocate(32)?;
            output.push('<');
            output.push_str(other.type_name());
            output.push('>');
        }
    }
    Ok(())
}

fn write_number(output: &mut String, budget: &mut Budget, number: i64) -> Eval<()> {
    budget.allocate(20)?;
    let _ = write!(output, "{number}");
    Ok(())
}

/// Python's `repr` of a float: the shortest digits that read back, with an exponent where it is far from 0.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn quote(text: &str, output: &mut String, budget: &mut Budget) -> Eval<()> {
    budget.allocate(text.len().saturating_mul(4))?;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    output.push(quote);
    for character in text.chars() {
        match character {
            '\\' => output.push_str("\\\\"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            _ if character == quote => output.extend(['\\', quote]),
            ' '..='~' => output.push(character),
            '\0'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(output, "\\x{:02x}", character as u32);
            }
            '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{3000}'
            | '\u{feff}' => {
                let _ = write!(output, "\\u{:04x}", character as u32);
            }
            _ => output.push(character),
        }
    }
    output.push(quote);
    Ok(())
}

/// Python's `str.title`: letters after what is no letter are capitals, all others small.
pub(super) fn title(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        let cased = character.is_lowercase() || character.is_uppercase();
        if cased && !inside {
            result.extend(character.to_uppercase());
        } else {
            result.extend(character.to_lowercase());
        }
        inside = cased;
    }
    result
}

/// Python's `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let mut result = String::with_capacity(text.len());
    if let Some(first) = characters.next() {
        result.extend(first.to_uppercase());
    }
    result.push_str(&characters.as_str().to_lowercase());
    result
}
