//! Python's string splitting.

use super::arguments::{PassedArguments, text_argument};
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::python::is_space;
use super::text::SpannedText;
use super::value::{ELEMENT, ListKind, TemplateValue};

/// Computes `text.split(…)`, `text.rsplit(…)` and `text.splitlines(…)`.
pub(super) fn split(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    if name == "splitlines" {
        return lines(machine, text, given.get(0, "keepends").is_some_and(TemplateValue::truth));
    }
    let limit = match given.get(1, "maxsplit").and_then(TemplateValue::as_int) {
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let from_end = name == "rsplit";
    let separator = match given.get(0, "sep") {
        None | Some(TemplateValue::None) => None,
        Some(TemplateValue::Text(separator)) => Some(&**separator),
        Some(_) => Some(&**text_argument(given, 0)?),
    };
    let mut parts = match separator {
        None => words(machine, text, limit, from_end)?,
        Some("") => fail!("splits text at nothing"),
        Some(separator) => {
            let mut parts = Vec::new();
            let max_parts = limit.saturating_add(1);
            if from_end {
                text.rsplitn(max_parts, separator)
                    .try_for_each(|piece| push(machine, &mut parts, text.part(piece)))?;
            } else {
                text.splitn(max_parts, separator)
                    .try_for_each(|piece| push(machine, &mut parts, text.part(piece)))?;
            }
            parts
        }
    };
    if from_end {
        parts.reverse();
    }
    TemplateValue::list(parts, ListKind::List)
}

fn push(machine: &mut Interpreter<'_>, parts: &mut Vec<TemplateValue>, piece: SpannedText) -> Eval<()> {
    machine.budget.allocate(piece.size() + 2 * ELEMENT)?;
    parts.push(TemplateValue::Text(piece));
    Ok(())
}

/// Splits at runs of whitespace; the rest after `limit` words stays unsplit.
fn words(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    limit: usize,
    from_end: bool,
) -> Eval<Vec<TemplateValue>> {
    let mut parts = Vec::new();
    let mut rest = if from_end { text.trim_end_matches(is_space) } else { text.trim_start_matches(is_space) };
    while !rest.is_empty() {
        let found = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(place) = found.filter(|_| parts.len() < limit) else {
            push(machine, &mut parts, text.part(rest))?;
            break;
        };
        let space = rest[place..].chars().next().map_or(1, char::len_utf8);
        let (piece, after) = if from_end {
            (&rest[place + space..], rest[..place].trim_end_matches(is_space))
        } else {
            (&rest[..place], rest[place + space..].trim_start_matches(is_space))
        };
        push(machine, &mut parts, text.part(piece))?;
        rest = after;
    }
    Ok(parts)
}

fn lines(machine: &mut Interpreter<'_>, text: &SpannedText, keep_ends: bool) -> Eval<TemplateValue> {
    let mut parts = Vec::new();
    let mut rest: &str = text;
    let breaks =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    while let Some(place) = rest.find(breaks) {
        let width = match rest[place..].strip_prefix("\r\n") {
            Some(_) => 2,
            None => rest[place..].chars().next().map_or(1, char::len_utf8),
        };
        push(machine, &mut parts, text.part(&rest[..place + if keep_ends { width } else { 0 }]))?;
        rest = &rest[place + width..];
    }
    if !rest.is_empty() {
        push(machine, &mut parts, text.part(rest))?;
    }
    TemplateValue::list(parts, ListKind::List)
}
