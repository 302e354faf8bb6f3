//! Python's string formatting: `%` and `str.format`.

use super::budget::{Budget, Eval, fail};
use super::python::{write_repr, write_str};
use super::text::{SPAN_BYTES, SpannedText, TextBuilder};
use super::value::{ListKind, TemplateValue};

const MAX_WIDTH: usize = 1000;

/// Computes `format % arguments`.
pub(super) fn percent(
    format: &SpannedText,
    arguments: &TemplateValue,
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    let values = match arguments {
        TemplateValue::List(list) if list.kind == ListKind::Tuple => list.items.as_slice(),
        other => std::slice::from_ref(other),
    };
    budget.allocate(format.size())?;
    let mut values = values.iter();
    let mut output = TextBuilder::default();
    let mut rest: &str = format;
    while let Some(place) = rest.find('%') {
        output.push_part(format, &rest[..place]);
        rest = &rest[place + 1..];
        let flags = rest.len() - rest.trim_start_matches(['-', '0', '+']).len();
        let (flag, after) = rest.split_at(flags);
        let (width, after) = number(after)?;
        let (precision, after) = match after.strip_prefix('.') {
            Some(after) => number(after)?,
            None => (None, after),
        };
        let Some(kind) = after.chars().next() else { fail!("incomplete '%' in a format") };
        let end = after.len() - kind.len_utf8();
        let directive = format.part(&rest[..rest.len() - end]);
        rest = &after[kind.len_utf8()..];
        if kind == '%' {
            output.push_part(format, &after[..1]);
            continue;
        }
        let Some(value) = values.next() else { fail!("a format with too few values") };
        let text = one(kind, precision, value, budget)?;
        let mut padded = TextBuilder::default();
        pad(&text, flag, width.unwrap_or(0), &mut padded, budget)?;
        // Width and padding come from the format.
        match directive.has_untrusted() {
            true => output.push_computed(&padded.finish()),
            false => output.push_text(&padded.finish()),
        }
    }
    output.push_part(format, rest);
    if values.next().is_some() && !matches!(arguments, TemplateValue::Map(_)) {
        fail!("a format with too many values");
    }
    Ok(TemplateValue::Text(output.finish()))
}

fn one(
    kind: char,
    precision: Option<usize>,
    value: &TemplateValue,
    budget: &mut Budget,
) -> Eval<SpannedText> {
    let mut text = TextBuilder::default();
    match kind {
        's' => write_str(value, &mut text, budget)?,
        'r' => write_repr(value, &mut text, budget)?,
        'd' | 'i' => match (value.as_int(), value.as_float()) {
            (Some(number), _) => text.push_computed(&number.to_string()),
            (None, Some(number)) => text.push_computed(&format!("{:.0}", libm::trunc(number))),
            _ => fail!("formats {} as a number", value.describe()),
        },
        'f' => match value.as_float() {
            Some(number) => text.push_computed(&format!("{number:.*}", precision.unwrap_or(6))),
            None => fail!("formats {} as a number", value.describe()),
        },
        'x' => match value.as_int() {
            Some(number) if number >= 0 => text.push_computed(&format!("{number:x}")),
            _ => fail!("formats {} as a hexadecimal number", value.describe()),
        },
        other => fail!("unknown format '%{other}'"),
    }
    let text = text.finish();
    match (precision, kind) {
        (Some(precision), 's' | 'r') => {
            let end = text.char_indices().nth(precision).map_or(text.len(), |(at, _)| at);
            Ok(text.slice(0..end))
        }
        _ => Ok(text),
    }
}

fn pad(
    text: &SpannedText,
    flags: &str,
    width: usize,
    output: &mut TextBuilder,
    budget: &mut Budget,
) -> Eval<()> {
    let plus = if flags.contains('+') && !text.starts_with('-') { "+" } else { "" };
    let missing = width.saturating_sub(text.chars().count() + plus.len());
    budget.allocate(text.size() + missing + SPAN_BYTES)?;
    if flags.contains('-') {
        output.push_str(plus);
        output.push_text(text);
        output.push_str(&" ".repeat(missing));
    } else if flags.contains('0') {
        let sign = usize::from(text.starts_with('-'));
        output.push_str(plus);
        output.push_slice(text, 0..sign);
        output.push_str(&"0".repeat(missing));
        output.push_slice(text, sign..text.len());
    } else {
        output.push_str(&" ".repeat(missing));
        output.push_str(plus);
        output.push_text(text);
    }
    Ok(())
}

fn number(text: &str) -> Eval<(Option<usize>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    match text[..end].parse() {
        Ok(number) if number <= MAX_WIDTH => Ok((Some(number), &text[end..])),
        _ => fail!("a format that is wider than {MAX_WIDTH}"),
    }
}

/// Computes `format.format(…)` with simple fields: `{}`, `{0}` and `{name}`.
pub(super) fn braces(
    format: &SpannedText,
    values: &super::arguments::PassedArguments,
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    let mut output = TextBuilder::default();
    let mut automatic = 0;
    let mut rest: &str = format;
    budget.allocate(format.size())?;
    while let Some(place) = rest.find(['{', '}']) {
        output.push_part(format, &rest[..place]);
        let (brace, after) = rest[place..].split_at(1);
        if after.starts_with(brace) {
            output.push_part(format, brace);
            rest = &after[1..];
            continue;
        }
        let Some((field, after)) = after.split_once('}').filter(|_| brace == "{") else {
            fail!("a single '{brace}' in a format");
        };
        rest = after;
        let value = if field.is_empty() {
            automatic += 1;
            values.positional.get(automatic - 1)
        } else if let Ok(place) = field.parse::<usize>() {
            values.positional.get(place)
        } else {
            values.keyword.iter().find(|(name, _)| **name == *field).map(|(_, value)| value)
        };
        match value {
            Some(value) => write_str(value, &mut output, budget)?,
            None => {
                fail!("no value for '{{{}}}' in a format", field.chars().take(40).collect::<String>())
            }
        }
    }
    output.push_part(format, rest);
    Ok(TemplateValue::Text(output.finish()))
}
