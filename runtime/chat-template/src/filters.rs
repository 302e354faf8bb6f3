//! Filters of single values. Filters of sequences are in `sequences.rs`.

use super::arguments::{PassedArguments, int_argument};
use super::budget::{Eval, fail};
use super::interpreter::Interpreter;
use super::json::{self, JsonStyle};
use super::python::{is_space, write_str};
use super::text::{SPAN_BYTES, SpannedText, TextBuilder};
use super::value::{ELEMENT, ListKind, TemplateValue};
use super::{methods, operators, sequences};

/// A filter: the value before the bar, and the arguments.
pub(super) type Filter = fn(&mut Interpreter<'_>, TemplateValue, &PassedArguments) -> Eval<TemplateValue>;

const FILTERS: &[(&str, Filter)] = &[
    ("abs", absolute),
    ("attr", attribute),
    ("capitalize", |machine, value, _| method(machine, value, "capitalize")),
    ("center", center),
    ("d", default),
    ("default", default),
    ("e", escape),
    ("escape", escape),
    ("float", to_float),
    ("format", format),
    ("indent", indent),
    ("int", to_int),
    ("items", items),
    ("lower", |machine, value, _| method(machine, value, "lower")),
    ("replace", replace),
    ("round", round),
    ("safe", |machine, value, _| text(machine, &value)),
    ("string", |machine, value, _| text(machine, &value)),
    ("title", title),
    ("tojson", to_json),
    ("trim", trim),
    ("upper", |machine, value, _| method(machine, value, "upper")),
    ("wordcount", word_count),
];

fn find(name: &str) -> Option<Filter> {
    FILTERS.iter().chain(sequences::FILTERS).find(|(known, _)| *known == name).map(|(_, filter)| *filter)
}

/// Returns whether there is such a filter.
pub(super) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// Computes `value|name(given)`.
pub(super) fn apply(
    machine: &mut Interpreter<'_>,
    name: &str,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    match find(name) {
        Some(filter) => filter(machine, value, given),
        None => fail!("uses the unknown filter '{name}'"),
    }
}

/// Converts a value to text, as it would be printed.
pub(super) fn text(machine: &mut Interpreter<'_>, value: &TemplateValue) -> Eval<TemplateValue> {
    if let TemplateValue::Text(_) = value {
        return Ok(value.clone());
    }
    let mut output = TextBuilder::default();
    write_str(value, &mut output, &mut machine.budget)?;
    Ok(TemplateValue::Text(output.finish()))
}

/// Calls a method of the value, converted to text.
fn method(machine: &mut Interpreter<'_>, value: TemplateValue, name: &str) -> Eval<TemplateValue> {
    let value = text(machine, &value)?;
    methods::call(machine, &value, name, &PassedArguments::default())
}

fn absolute(_: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    match (value.as_int(), value.as_float()) {
        (Some(number), _) => Ok(TemplateValue::Int(number.saturating_abs())),
        (None, Some(number)) => Ok(TemplateValue::Float(number.abs())),
        _ => fail!("takes the size of {}", value.describe()),
    }
}

fn attribute(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    match given.get(0, "name") {
        Some(TemplateValue::Text(name)) => machine.get_attribute(&value, name.as_arc()),
        _ => fail!("uses the filter 'attr' without a name"),
    }
}

fn center(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let value = text(machine, &value)?;
    let width = TemplateValue::Int(int_argument(given, 0, "width", 80)?);
    let given = PassedArguments { positional: vec![width], keyword: Vec::new() };
    methods::call(machine, &value, "center", &given)
}

fn default(_: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let also_false = given.get(1, "boolean").is_some_and(TemplateValue::truth);
    if value.is_undefined() || (also_false && !value.truth()) {
        return Ok(given.get(0, "default_value").cloned().unwrap_or_else(|| TemplateValue::literal("")));
    }
    Ok(value)
}

fn escape(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    let TemplateValue::Text(text) = text(machine, &value)? else { return Ok(value) };
    machine.budget.allocate(text.size().saturating_mul(5))?;
    Ok(TemplateValue::Text(text.map_characters(|character, out| match character {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&#34;"),
        '\'' => out.push_str("&#39;"),
        other => out.push(other),
    })))
}

fn to_float(_: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let parsed = match &value {
        TemplateValue::Text(text) => text.trim_matches(is_space).parse().ok(),
        other => other.as_float(),
    };
    Ok(parsed.map_or_else(
        || given.get(0, "default").cloned().unwrap_or(TemplateValue::Float(0.0)),
        TemplateValue::Float,
    ))
}

fn to_int(_: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let whole = |number: f64| (number.is_finite() && number.abs() < 9e18).then_some(number as i64);
    let parsed = match &value {
        TemplateValue::Text(text) => {
            let text = text.trim_matches(is_space);
            text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
        }
        TemplateValue::Float(number) => whole(*number),
        other => other.as_int(),
    };
    Ok(parsed.map_or_else(
        || given.get(0, "default").cloned().unwrap_or(TemplateValue::Int(0)),
        TemplateValue::Int,
    ))
}

fn format(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let TemplateValue::Text(format) = text(machine, &value)? else { return Ok(value) };
    machine.budget.allocate(given.positional.len() * ELEMENT)?;
    let arguments = TemplateValue::list(given.positional.clone(), ListKind::Tuple)?;
    super::format::percent(&format, &arguments, &mut machine.budget)
}

fn indent(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let TemplateValue::Text(text) = text(machine, &value)? else { return Ok(value) };
    let indent = match given.get(0, "width") {
        Some(TemplateValue::Text(indent)) => indent.clone(),
        _ => {
            let width = usize::try_from(int_argument(given, 0, "width", 4)?).unwrap_or(0);
            machine.budget.allocate(width)?;
            SpannedText::trusted(" ".repeat(width))
        }
    };
    let first = given.get(1, "first").is_some_and(TemplateValue::truth);
    let blank = given.get(2, "blank").is_some_and(TemplateValue::truth);
    let lines = text.split('\n').count();
    machine.budget.allocate(text.size().saturating_add(lines.saturating_mul(indent.size() + SPAN_BYTES)))?;
    let mut output = TextBuilder::default();
    let mut at = 0;
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            output.push_slice(&text, at - 1..at);
        }
        let wanted = if index == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            output.push_text(&indent);
        }
        output.push_slice(&text, at..at + line.len());
        at += line.len() + 1;
    }
    Ok(TemplateValue::Text(output.finish()))
}

fn items(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    match value {
        TemplateValue::Undefined(_) => TemplateValue::list(Vec::new(), ListKind::Generator),
        TemplateValue::Map(_) => methods::call(machine, &value, "items", &PassedArguments::default()),
        other => fail!("takes the items of {}", other.describe()),
    }
}

fn replace(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let value = text(machine, &value)?;
    let part = |machine: &mut Interpreter<'_>, place, name| match given.get(place, name) {
        Some(part) => text(machine, part),
        None => fail!("uses the filter 'replace' without '{name}'"),
    };
    let mut positional = vec![part(machine, 0, "old")?, part(machine, 1, "new")?];
    positional.extend(given.get(2, "count").cloned().filter(|count| !matches!(count, TemplateValue::None)));
    methods::call(machine, &value, "replace", &PassedArguments { positional, keyword: Vec::new() })
}

fn round(_: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let digits = int_argument(given, 0, "precision", 0)?;
    let method = given.get(1, "method").and_then(TemplateValue::as_text).map_or("common", |method| &**method);
    let Some(number) = value.as_float() else { fail!("rounds {}", value.describe()) };
    let scale = libm::pow(10.0, digits.clamp(-300, 300) as f64);
    let scaled = number * scale;
    let rounded = match method {
        "common" => libm::rint(scaled),
        "ceil" => libm::ceil(scaled),
        "floor" => libm::floor(scaled),
        other => fail!("rounds by the unknown method '{other}'"),
    };
    Ok(TemplateValue::Float(rounded / scale))
}

/// Converts letters after whitespace, hyphens and opening brackets to upper case, all others to lower case.
fn title(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    let TemplateValue::Text(text) = text(machine, &value)? else { return Ok(value) };
    machine.budget.allocate(text.size().saturating_mul(3))?;
    let mut starts = true;
    Ok(TemplateValue::Text(text.map_characters(|character, out| {
        if starts {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
        starts = is_space(character) || "-({[<".contains(character);
    })))
}

fn to_json(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let flag = |place, name| given.get(place, name).is_some_and(TemplateValue::truth);
    let indent = match given.get(1, "indent") {
        None | Some(TemplateValue::None) => None,
        Some(TemplateValue::Text(indent)) => Some(indent.clone()),
        Some(_) => {
            let width = usize::try_from(int_argument(given, 1, "indent", 0)?).unwrap_or(0).min(64);
            Some(SpannedText::trusted(" ".repeat(width)))
        }
    };
    let mut layout = JsonStyle {
        item_separator: SpannedText::trusted(if indent.is_some() { "," } else { ", " }),
        key_separator: SpannedText::trusted(": "),
        indent,
        ascii: flag(0, "ensure_ascii"),
        sort_keys: flag(3, "sort_keys"),
    };
    if let Some(TemplateValue::List(separators)) = given.get(2, "separators") {
        let [TemplateValue::Text(item), TemplateValue::Text(key)] = &separators.items[..] else {
            fail!("writes JSON with separators that are not two strings");
        };
        (layout.item_separator, layout.key_separator) = (item.clone(), key.clone());
    }
    let mut output = TextBuilder::default();
    json::write(&value, &layout, &mut output, &mut machine.budget)?;
    Ok(TemplateValue::Text(output.finish()))
}

fn trim(machine: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let value = text(machine, &value)?;
    let positional = given.get(0, "chars").cloned().into_iter().collect();
    methods::call(machine, &value, "strip", &PassedArguments { positional, keyword: Vec::new() })
}

fn word_count(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    _: &PassedArguments,
) -> Eval<TemplateValue> {
    let TemplateValue::Text(text) = text(machine, &value)? else { return Ok(value) };
    machine.budget.scan(text.len())?;
    let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    Ok(TemplateValue::Int(words.filter(|word| !word.is_empty()).count() as i64))
}

/// Returns the length of a value.
pub(super) fn length(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    _: &PassedArguments,
) -> Eval<TemplateValue> {
    let length = match &value {
        TemplateValue::Undefined(_) => 0,
        TemplateValue::Text(text) => {
            machine.budget.scan(text.len())?;
            text.chars().count()
        }
        TemplateValue::List(list) if list.kind != ListKind::Generator => list.items.len(),
        TemplateValue::Map(map) => map.len(),
        other => fail!("takes the length of {}", other.describe()),
    };
    Ok(TemplateValue::Int(length as i64))
}

/// Follows a dotted path of attributes, as `map(attribute='a.b')` does; a missing one becomes `default`.
pub(super) fn path(
    machine: &mut Interpreter<'_>,
    value: &TemplateValue,
    path: &TemplateValue,
    default: Option<&TemplateValue>,
) -> Eval<TemplateValue> {
    let or_default =
        |found: TemplateValue| default.filter(|_| found.is_undefined()).cloned().unwrap_or(found);
    let TemplateValue::Text(path) = path else {
        return operators::index(value, path, &mut machine.budget).map(or_default);
    };
    let mut value = value.clone();
    for part in path.split('.') {
        machine.budget.spend(1)?;
        let key = part.parse().map_or_else(|_| TemplateValue::literal(part), TemplateValue::Int);
        value = or_default(machine.get_index(&value, &key)?);
    }
    Ok(value)
}
