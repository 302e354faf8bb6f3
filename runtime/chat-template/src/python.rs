//! Python's conversion of values to text, and its string methods.

use std::fmt::Write as _;

use super::budget::{Budget, Eval};
use super::text::{SPAN_BYTES, SpannedText, TextBuilder};
use super::value::{ListKind, TemplateValue};

/// Python's `str.isspace`.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Python's `str`, as printed by `{{ value }}`.
pub(super) fn write_str(value: &TemplateValue, output: &mut TextBuilder, budget: &mut Budget) -> Eval<()> {
    match value {
        TemplateValue::Undefined(_) => budget.spend(1),
        TemplateValue::Text(text) => {
            budget.allocate(text.size())?;
            output.push_text(text);
            Ok(())
        }
        other => write_repr(other, output, budget),
    }
}

/// Python's `repr`, as used for values inside lists.
pub(super) fn write_repr(value: &TemplateValue, output: &mut TextBuilder, budget: &mut Budget) -> Eval<()> {
    budget.allocate(8 + SPAN_BYTES)?;
    match value {
        TemplateValue::Undefined(_) => output.push_str("Undefined"),
        TemplateValue::None => output.push_computed("None"),
        TemplateValue::Bool(truth) => output.push_computed(if *truth { "True" } else { "False" }),
        TemplateValue::Int(number) => write_number(output, budget, *number)?,
        TemplateValue::Float(number) => output.push_computed(&float(*number)),
        TemplateValue::Text(text) => quote(text, output, budget)?,
        TemplateValue::List(list) => {
            let (open, close) = if list.kind == ListKind::Tuple { ('(', ')') } else { ('[', ']') };
            output.push(open);
            for (index, item) in list.items.iter().enumerate() {
                output.push_str(if index > 0 { ", " } else { "" });
                write_repr(item, output, budget)?;
            }
            output.push_str(if list.kind == ListKind::Tuple && list.items.len() == 1 { "," } else { "" });
            output.push(close);
        }
        TemplateValue::Map(map) => {
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

fn write_number(output: &mut TextBuilder, budget: &mut Budget, number: i64) -> Eval<()> {
    budget.allocate(20)?;
    output.push_computed(&number.to_string());
    Ok(())
}

/// Python's `repr` of a float: the shortest digits that round-trip, with an exponent for very large or small values.
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

fn quote(text: &SpannedText, output: &mut TextBuilder, budget: &mut Budget) -> Eval<()> {
    budget.allocate(text.size().saturating_mul(4))?;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    output.push(quote);
    output.push_text(&text.map_characters(|character, out| match character {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ if character == quote => out.extend(['\\', quote]),
        ' '..='~' => out.push(character),
        '\0'..='\u{a0}' | '\u{ad}' => {
            let _ = write!(out, "\\x{:02x}", character as u32);
        }
        '\u{2000}'..='\u{200f}'
        | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}'
        | '\u{3000}'
        | '\u{feff}' => {
            let _ = write!(out, "\\u{:04x}", character as u32);
        }
        _ => out.push(character),
    }));
    output.push(quote);
    Ok(())
}

/// Python's `str.title`: letters after non-letters become upper case, all others lower case.
pub(super) fn title(text: &SpannedText) -> SpannedText {
    let mut inside = false;
    text.map_characters(|character, out| {
        let cased = character.is_lowercase() || character.is_uppercase();
        if cased && !inside {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
        inside = cased;
    })
}

/// Python's `str.lower`. The lower case of `Σ` depends on its position in a word, but its length does not.
pub(super) fn lower(text: &SpannedText) -> SpannedText {
    let lower = text.to_lowercase();
    let mut at = 0;
    text.map_characters(|character, out| {
        let end = at + character.to_lowercase().map(char::len_utf8).sum::<usize>();
        out.push_str(&lower[at..end]);
        at = end;
    })
}

/// Python's `str.capitalize`.
pub(super) fn capitalize(text: &SpannedText) -> SpannedText {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let mut result = TextBuilder::default();
    result.push_text(&text.slice(0..first).map_characters(|first, out| out.extend(first.to_uppercase())));
    result.push_text(&lower(&text.slice(first..text.len())));
    result.finish()
}
