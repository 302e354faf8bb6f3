//! JSON output in the format of `json.dumps`, and JSON input.

use std::fmt::Write as _;

use super::budget::{Budget, Eval, fail};
use super::python::float;
use super::text::{SPAN_BYTES, SpannedText, TextBuilder};
use super::value::TemplateValue;

/// Options for the output.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    /// The indentation per level; `None` writes one line.
    pub(super) indent: Option<SpannedText>,
    pub(super) item_separator: SpannedText,
    pub(super) key_separator: SpannedText,
    pub(super) ascii: bool,
    pub(super) sort_keys: bool,
}

/// Appends `value`.
pub(super) fn write(
    value: &TemplateValue,
    layout: &JsonStyle,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    write_at(value, layout, 0, output, budget)
}

fn write_at(
    value: &TemplateValue,
    layout: &JsonStyle,
    level: usize,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    budget.allocate(24 + SPAN_BYTES)?;
    match value {
        TemplateValue::None => output.push_computed("null"),
        TemplateValue::Bool(truth) => output.push_computed(if *truth { "true" } else { "false" }),
        TemplateValue::Int(number) => output.push_computed(&number.to_string()),
        TemplateValue::Float(number) => output.push_computed(&number_text(*number)),
        TemplateValue::Text(text) => quote(text, layout.ascii, output, budget)?,
        TemplateValue::List(list) => {
            output.push('[');
            for (index, item) in list.items.iter().enumerate() {
                separate(index, layout, level + 1, output, budget)?;
                write_at(item, layout, level + 1, output, budget)?;
            }
            close(list.items.len(), ']', layout, level, output, budget)?;
        }
        TemplateValue::Map(map) => {
            output.push('{');
            let mut entries: Vec<_> = map.entries().iter().collect();
            if layout.sort_keys {
                entries.sort_unstable_by(|left, right| {
                    left.0.as_text().map(|key| &**key).cmp(&right.0.as_text().map(|key| &**key))
                });
            }
            for (index, (key, value)) in entries.into_iter().enumerate() {
                separate(index, layout, level + 1, output, budget)?;
                write_key(key, layout, output, budget)?;
                output.push_text(&layout.key_separator);
                write_at(value, layout, level + 1, output, budget)?;
            }
            close(map.len(), '}', layout, level, output, budget)?;
        }
        other => fail!("writes {} as JSON", other.describe()),
    }
    Ok(())
}

fn write_key(
    key: &TemplateValue,
    layout: &JsonStyle,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    match key {
        TemplateValue::Text(text) => quote(text, layout.ascii, output, budget),
        TemplateValue::None | TemplateValue::Bool(_) | TemplateValue::Int(_) | TemplateValue::Float(_) => {
            output.push('"');
            write_at(key, layout, 0, output, budget)?;
            output.push('"');
            Ok(())
        }
        other => fail!("writes {} as a key of JSON", other.describe()),
    }
}

fn separate(
    index: usize,
    layout: &JsonStyle,
    level: usize,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    if index > 0 {
        budget.allocate(layout.item_separator.size())?;
        output.push_text(&layout.item_separator);
    }
    line(layout, level, output, budget)
}

fn close(
    count: usize,
    bracket: char,
    layout: &JsonStyle,
    level: usize,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    if count > 0 {
        line(layout, level, output, budget)?;
    }
    output.push(bracket);
    Ok(())
}

fn line(layout: &JsonStyle, level: usize, output: &mut TextBuilder, budget: &mut Budget) -> Eval<()> {
    if let Some(indent) = &layout.indent {
        budget.allocate(1 + indent.size() * level)?;
        output.push('\n');
        (0..level).for_each(|_| output.push_text(indent));
    }
    Ok(())
}

fn number_text(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => float(number),
    }
}

fn quote(text: &SpannedText, ascii: bool, output: &mut TextBuilder, budget: &mut Budget) -> Eval<()> {
    let is_escaped = |character: char| character < ' ' || (ascii && character >= '\u{7f}');
    let escaped = text.chars().filter(|&character| is_escaped(character)).count();
    budget.allocate(text.size().saturating_mul(2).saturating_add(escaped.saturating_mul(12)))?;
    output.push('"');
    output.push_text(&text.map_characters(|character, out| match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        _ if is_escaped(character) => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
        _ => out.push(character),
    }));
    output.push('"');
    Ok(())
}
