//! Python's methods of strings, mappings and lists, except mutating ones.

use std::sync::Arc;

use super::arguments::{PassedArguments, text_argument};
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::python::{capitalize, is_space, lower, title, write_str};
use super::text::{SPAN_BYTES, SpannedText, TextBuilder};
use super::value::{ELEMENT, ListKind, OrderedMap, TemplateValue, as_list, equal};

const TEXT: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const MAP: &[&str] = &["copy", "get", "items", "keys", "values"];
const LIST: &[&str] = &["copy", "count", "index"];

/// Returns whether a value has a method with that name.
pub(super) fn exists(value: &TemplateValue, name: &str) -> bool {
    match value {
        TemplateValue::Text(_) => TEXT.contains(&name),
        TemplateValue::Map(_) => MAP.contains(&name),
        TemplateValue::List(_) => LIST.contains(&name),
        _ => false,
    }
}

/// Calls `value.name(given)`.
pub(super) fn call(
    machine: &mut Interpreter<'_>,
    value: &TemplateValue,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    machine.budget.spend(1)?;
    match value {
        TemplateValue::Text(text) => of_text(machine, text, name, given),
        TemplateValue::Map(map) => of_map(machine, value, map, name, given),
        TemplateValue::List(list) if name == "copy" => {
            machine.budget.allocate(list.items.len() * ELEMENT)?;
            TemplateValue::list(list.items.clone(), ListKind::List)
        }
        TemplateValue::List(list) => {
            let Some(wanted) = given.positional.first() else { fail!("calls '{name}' without a value") };
            let mut count = 0;
            for (place, item) in list.items.iter().enumerate() {
                if equal(item, wanted, &mut machine.budget)? {
                    count += 1;
                    if name == "index" {
                        return Ok(TemplateValue::Int(place as i64));
                    }
                }
            }
            if name == "index" {
                fail!("looks for a value that is not in the list")
            } else {
                Ok(TemplateValue::Int(count))
            }
        }
        TemplateValue::Loop(state) => match given.positional.len() {
            0 => fail!("cycles through nothing"),
            count => Ok(given.positional[state.index % count].clone()),
        },
        other => fail!("calls '{name}' of {}", other.describe()),
    }
}

fn of_map(
    machine: &mut Interpreter<'_>,
    value: &TemplateValue,
    map: &Arc<OrderedMap>,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    machine.budget.allocate(map.len() * ELEMENT)?;
    let items = match name {
        "copy" => return Ok(value.clone()),
        "get" => {
            let Some(key) = given.get(0, "key") else { fail!("calls 'get' without a key") };
            let found = map.get(key, &mut machine.budget)?.cloned();
            return Ok(found.or_else(|| given.get(1, "default").cloned()).unwrap_or(TemplateValue::None));
        }
        "keys" => map.entries().iter().map(|(key, _)| key.clone()).collect(),
        "values" => map.entries().iter().map(|(_, value)| value.clone()).collect(),
        _ => {
            let mut items = Vec::new();
            for (key, value) in map.entries() {
                machine.budget.allocate(3 * ELEMENT)?;
                items.push(TemplateValue::list(vec![key.clone(), value.clone()], ListKind::Tuple)?);
            }
            items
        }
    };
    TemplateValue::list(items, ListKind::List)
}

/// Returns whether there are cased letters and all of them satisfy the predicate.
pub(super) fn is_cased(text: &str, wanted: fn(char) -> bool) -> bool {
    let mut cased =
        text.chars().filter(|character| character.is_lowercase() || character.is_uppercase()).peekable();
    cased.peek().is_some() && cased.all(wanted)
}

fn all(text: &str, wanted: fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(wanted)
}

fn of_text(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    machine.budget.scan(text.len())?;
    let truth = |truth| Ok(TemplateValue::Bool(truth));
    let result = match name {
        "isalnum" => return truth(all(text, char::is_alphanumeric)),
        "isalpha" => return truth(all(text, char::is_alphabetic)),
        "isdecimal" | "isdigit" | "isnumeric" => return truth(all(text, char::is_numeric)),
        "islower" => return truth(is_cased(text, char::is_lowercase)),
        "isspace" => return truth(all(text, is_space)),
        "isupper" => return truth(is_cased(text, char::is_uppercase)),
        "startswith" | "endswith" => return truth(affix(text, name, given)?),
        "strip" | "lstrip" | "rstrip" => return strip(machine, text, name, given),
        "split" | "rsplit" | "splitlines" => return super::split::split(machine, text, name, given),
        "partition" | "rpartition" => return partition(machine, text, name, given),
        "find" | "rfind" | "index" | "rindex" | "count" => return search(text, name, given),
        "replace" => return replace(machine, text, given),
        "join" => return join(machine, text, given),
        "format" => return super::format::braces(text, given, &mut machine.budget),
        "center" | "ljust" | "rjust" | "zfill" => return pad(machine, text, name, given),
        "removeprefix" => text.part(text.strip_prefix(&**text_argument(given, 0)?).unwrap_or(text)),
        "removesuffix" => text.part(text.strip_suffix(&**text_argument(given, 0)?).unwrap_or(text)),
        "upper" => text.map_characters(|character, out| out.extend(character.to_uppercase())),
        "lower" | "casefold" => lower(text),
        "title" => title(text),
        "capitalize" => capitalize(text),
        "swapcase" => swap_case(text),
        other => fail!("calls the unknown method '{other}' of text"),
    };
    machine.budget.allocate(result.size())?;
    Ok(TemplateValue::Text(result))
}

fn swap_case(text: &SpannedText) -> SpannedText {
    text.map_characters(|character, out| match character.is_uppercase() {
        true => out.extend(character.to_lowercase()),
        false => out.extend(character.to_uppercase()),
    })
}

fn affix(text: &str, name: &str, given: &PassedArguments) -> Eval<bool> {
    let holds =
        |affix: &str| if name == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) };
    let Some(affixes) = given.positional.first().and_then(as_list) else {
        return Ok(holds(text_argument(given, 0)?));
    };
    Ok(affixes.items.iter().filter_map(TemplateValue::as_text).any(|affix| holds(affix)))
}

fn strip(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let given = match given.get(0, "chars") {
        None | Some(TemplateValue::None) => None,
        Some(_) => Some(text_argument(given, 0)?),
    };
    if let Some(set) = given {
        machine.budget.spend(text.len().saturating_mul(1 + set.len()) / 16)?;
    }
    let stripped = |character: char| given.map_or_else(|| is_space(character), |set| set.contains(character));
    let result = match name {
        "lstrip" => text.trim_start_matches(stripped),
        "rstrip" => text.trim_end_matches(stripped),
        _ => text.trim_matches(stripped),
    };
    if result.len() == text.len() {
        return Ok(TemplateValue::Text(text.clone()));
    }
    let result = text.part(result);
    machine.budget.allocate(result.size())?;
    Ok(TemplateValue::Text(result))
}

fn partition(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let separator = text_argument(given, 0)?;
    if separator.is_empty() {
        fail!("splits text at nothing");
    }
    machine.budget.allocate(text.size() + 3 * ELEMENT)?;
    let found = if name == "partition" { text.find(&**separator) } else { text.rfind(&**separator) };
    let nothing = || SpannedText::trusted("");
    let parts = match found {
        Some(start) => {
            let end = start + separator.len();
            [text.slice(0..start), text.slice(start..end), text.slice(end..text.len())]
        }
        None if name == "partition" => [text.clone(), nothing(), nothing()],
        None => [nothing(), nothing(), text.clone()],
    };
    TemplateValue::list(parts.into_iter().map(TemplateValue::Text).collect(), ListKind::Tuple)
}

fn search(text: &str, name: &str, given: &PassedArguments) -> Eval<TemplateValue> {
    let wanted = &**text_argument(given, 0)?;
    if given.positional.len() > 1 {
        fail!("searches a part of a text; take a slice first");
    }
    if name == "count" {
        return Ok(TemplateValue::Int(text.matches(wanted).count() as i64));
    }
    let found = if name.starts_with('r') { text.rfind(wanted) } else { text.find(wanted) };
    match found {
        Some(place) => Ok(TemplateValue::Int(text[..place].chars().count() as i64)),
        None if name.ends_with("find") => Ok(TemplateValue::Int(-1)),
        None => fail!("looks for text that is not there"),
    }
}

fn replace(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let (old, new) = (text_argument(given, 0)?, text_argument(given, 1)?);
    let limit = match given.get(2, "count").and_then(TemplateValue::as_int) {
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let count = text.matches(&**old).count().min(limit);
    if count == 0 {
        return Ok(TemplateValue::Text(text.clone()));
    }
    machine.budget.allocate(text.size().saturating_add(count.saturating_mul(new.size() + SPAN_BYTES)))?;
    let mut output = TextBuilder::default();
    let mut at = 0;
    for (start, matched) in text.match_indices(&**old).take(count) {
        output.push_slice(text, at..start);
        output.push_text(new);
        at = start + matched.len();
    }
    output.push_slice(text, at..text.len());
    Ok(TemplateValue::Text(output.finish()))
}

fn join(
    machine: &mut Interpreter<'_>,
    separator: &SpannedText,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let Some(parts) = given.positional.first() else { fail!("joins nothing") };
    let parts = machine.iterate(parts)?;
    let mut output = TextBuilder::default();
    for (index, part) in parts.items.iter().enumerate() {
        if part.as_text().is_none() {
            fail!("joins {} to text", part.describe());
        }
        if index > 0 {
            machine.budget.allocate(separator.size())?;
            output.push_text(separator);
        }
        write_str(part, &mut output, &mut machine.budget)?;
    }
    Ok(TemplateValue::Text(output.finish()))
}

fn pad(
    machine: &mut Interpreter<'_>,
    text: &SpannedText,
    name: &str,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let Some(width) = given.positional.first().and_then(TemplateValue::as_int) else {
        fail!("pads text without a width")
    };
    let fill = match given.positional.get(1) {
        Some(_) => text_argument(given, 1)?.clone(),
        None if name == "zfill" => SpannedText::trusted("0"),
        None => SpannedText::trusted(" "),
    };
    let length = text.chars().count();
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(length);
    machine.budget.allocate(text.size().saturating_add(missing.saturating_mul(fill.size())))?;
    let (before, after) = match name {
        "center" => {
            let before = missing / 2 + (missing & width & 1);
            (before, missing - before)
        }
        "ljust" => (0, missing),
        _ => (missing, 0),
    };
    let sign = usize::from(name == "zfill" && text.starts_with(['+', '-']));
    let mut output = TextBuilder::default();
    output.push_slice(text, 0..sign);
    output.push_repeated(&fill, before);
    output.push_slice(text, sign..text.len());
    output.push_repeated(&fill, after);
    Ok(TemplateValue::Text(output.finish()))
}
