//! Filters of sequences.

use std::cmp::Ordering;

use super::arguments::{PassedArguments, int_argument};
use super::budget::{Eval, fail};
use super::filters::{self, Filter, path};
use super::interpreter::Interpreter;
use super::operators::order;
use super::python::{lower, write_str};
use super::text::TextBuilder;
use super::value::{ELEMENT, List, ListKind, TemplateValue, equal};
use super::{ast::Operator, checks, operators};

pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("batch", batch),
    ("count", filters::length),
    ("dictsort", sorted_items),
    ("first", first),
    ("groupby", group),
    ("join", join),
    ("last", last),
    ("length", filters::length),
    ("list", list),
    ("map", map),
    ("max", |machine, value, given| extreme(machine, value, given, Ordering::Greater)),
    ("min", |machine, value, given| extreme(machine, value, given, Ordering::Less)),
    ("reject", |machine, value, given| select(machine, value, given, false, false)),
    ("rejectattr", |machine, value, given| select(machine, value, given, true, false)),
    ("reverse", reverse),
    ("select", |machine, value, given| select(machine, value, given, false, true)),
    ("selectattr", |machine, value, given| select(machine, value, given, true, true)),
    ("sort", sort),
    ("sum", sum),
    ("unique", unique),
];

fn collect(machine: &mut Interpreter<'_>, items: Vec<TemplateValue>, kind: ListKind) -> Eval<TemplateValue> {
    machine.budget.allocate(items.len() * ELEMENT)?;
    TemplateValue::list(items, kind)
}

fn batch(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let count = usize::try_from(int_argument(given, 0, "linecount", 1)?).unwrap_or(0).max(1);
    let mut batches = Vec::new();
    for chunk in items.items.chunks(count) {
        let mut chunk = chunk.to_vec();
        if let Some(fill) = given.get(1, "fill_with").filter(|fill| !matches!(fill, TemplateValue::None)) {
            machine.budget.allocate(count.saturating_mul(ELEMENT))?;
            chunk.resize(count, fill.clone());
        }
        batches.push(collect(machine, chunk, ListKind::List)?);
    }
    collect(machine, batches, ListKind::Generator)
}

fn first(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    if let TemplateValue::Text(text) = &value {
        let first =
            text.chars().next().map(|character| TemplateValue::Text(text.slice(0..character.len_utf8())));
        return Ok(first.unwrap_or(TemplateValue::Undefined(None)));
    }
    Ok(machine.iterate(&value)?.items.first().cloned().unwrap_or(TemplateValue::Undefined(None)))
}

fn last(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    if let TemplateValue::Text(text) = &value {
        let last =
            text.char_indices().next_back().map(|(at, _)| TemplateValue::Text(text.slice(at..text.len())));
        return Ok(last.unwrap_or(TemplateValue::Undefined(None)));
    }
    Ok(machine.iterate(&value)?.items.last().cloned().unwrap_or(TemplateValue::Undefined(None)))
}

fn join(machine: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let mut separator = TextBuilder::default();
    if let Some(value) = given.get(0, "d") {
        write_str(value, &mut separator, &mut machine.budget)?;
    }
    let separator = separator.finish();
    let mut output = TextBuilder::default();
    for (index, item) in items.items.iter().enumerate() {
        if index > 0 {
            machine.budget.allocate(separator.size())?;
            output.push_text(&separator);
        }
        match given.get(1, "attribute") {
            Some(attribute) => {
                let part = path(machine, item, attribute, None)?;
                write_str(&part, &mut output, &mut machine.budget)?;
            }
            None => write_str(item, &mut output, &mut machine.budget)?,
        }
    }
    Ok(TemplateValue::Text(output.finish()))
}

fn list(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    // Counted before it is copied.
    machine.budget.allocate(items.items.len() * ELEMENT)?;
    TemplateValue::list(items.items.clone(), ListKind::List)
}

fn map(machine: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let attribute = given.keyword.iter().find(|(name, _)| &**name == "attribute").map(|(_, value)| value);
    let default = given.keyword.iter().find(|(name, _)| &**name == "default").map(|(_, value)| value);
    let (name, rest) = rest_of(machine, given)?;
    let mut mapped = Vec::new();
    for item in &items.items {
        machine.budget.spend(1)?;
        mapped.push(match (attribute, name) {
            (Some(attribute), _) => path(machine, item, attribute, default)?,
            (None, Some(TemplateValue::Text(name))) => {
                machine.nested(|machine| filters::apply(machine, name, item.clone(), &rest))?
            }
            _ => fail!("uses the filter 'map' without a filter or an attribute"),
        });
    }
    collect(machine, mapped, ListKind::Generator)
}

/// Returns the first argument, and the others as the arguments of the filter or test that it names.
fn rest_of<'g>(
    machine: &mut Interpreter<'_>,
    given: &'g PassedArguments,
) -> Eval<(Option<&'g TemplateValue>, PassedArguments)> {
    machine.budget.allocate((given.positional.len() + given.keyword.len()) * ELEMENT)?;
    let positional = given.positional.get(1..).unwrap_or_default().to_vec();
    Ok((given.positional.first(), PassedArguments { positional, keyword: given.keyword.clone() }))
}

fn select(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
    by_attribute: bool,
    wanted: bool,
) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let (attribute, after) = rest_of(machine, given)?;
    let (name, rest) = rest_of(machine, if by_attribute { &after } else { given })?;
    let mut kept = Vec::new();
    for item in &items.items {
        machine.budget.spend(1)?;
        let subject = match (by_attribute, attribute) {
            (true, Some(attribute)) => path(machine, item, attribute, None)?,
            (true, None) => fail!("selects by an attribute without its name"),
            (false, _) => item.clone(),
        };
        let holds = match name {
            Some(TemplateValue::Text(name)) => checks::check(machine, name, &subject, &rest)?,
            _ => subject.truth(),
        };
        if holds == wanted {
            kept.push(item.clone());
        }
    }
    collect(machine, kept, ListKind::Generator)
}

fn reverse(machine: &mut Interpreter<'_>, value: TemplateValue, _: &PassedArguments) -> Eval<TemplateValue> {
    if let TemplateValue::Text(_) = &value {
        return operators::slice(&value, [None, None, Some(-1)], &mut machine.budget);
    }
    let items = machine.iterate(&value)?;
    collect(machine, items.items.iter().rev().cloned().collect(), ListKind::Generator)
}

/// Returns the indices of `keys` in sorted order; the sort is stable. The sort is implemented here because the keys may
/// have no total order: a comparison may fail, and NaN is unordered.
fn sort_by_keys(machine: &mut Interpreter<'_>, keys: &[TemplateValue], reverse: bool) -> Eval<Vec<usize>> {
    machine.budget.allocate(keys.len() * ELEMENT)?;
    let wanted = if reverse { Ordering::Greater } else { Ordering::Less };
    let mut places: Vec<usize> = (0..keys.len()).collect();
    let mut width = 1;
    while width < places.len() {
        let mut merged = Vec::with_capacity(places.len());
        for run in places.chunks(2 * width) {
            let (mut left, mut right) = run.split_at(width.min(run.len()));
            while let (Some(first), Some(second)) = (left.first(), right.first()) {
                let from = match order(&keys[*second], &keys[*first], &mut machine.budget)? {
                    Some(found) if found == wanted => &mut right,
                    _ => &mut left,
                };
                merged.push(from[0]);
                *from = &from[1..];
            }
            merged.extend(left.iter().chain(right));
        }
        places = merged;
        width *= 2;
    }
    Ok(places)
}

/// Returns the sort key of an item: case-insensitive by default.
fn sort_key(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    case_sensitive: bool,
) -> Eval<TemplateValue> {
    match &value {
        TemplateValue::Text(text) if !case_sensitive => {
            machine.budget.allocate(text.size().saturating_mul(3))?;
            Ok(TemplateValue::Text(lower(text)))
        }
        _ => Ok(value),
    }
}

fn keys_of(
    machine: &mut Interpreter<'_>,
    items: &List,
    attribute: Option<&TemplateValue>,
    cased: bool,
) -> Eval<Vec<TemplateValue>> {
    machine.budget.allocate(items.items.len() * ELEMENT)?;
    let mut keys = Vec::new();
    for item in &items.items {
        let key = match attribute {
            Some(attribute) if !matches!(attribute, TemplateValue::None) => {
                path(machine, item, attribute, None)?
            }
            _ => item.clone(),
        };
        keys.push(sort_key(machine, key, cased)?);
    }
    Ok(keys)
}

fn sort(machine: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let backwards = given.get(0, "reverse").is_some_and(TemplateValue::truth);
    let cased = given.get(1, "case_sensitive").is_some_and(TemplateValue::truth);
    let keys = keys_of(machine, &items, given.get(2, "attribute"), cased)?;
    let places = sort_by_keys(machine, &keys, backwards)?;
    collect(machine, places.into_iter().map(|place| items.items[place].clone()).collect(), ListKind::List)
}

fn sorted_items(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let TemplateValue::Map(map) = &value else { fail!("sorts the items of {}", value.describe()) };
    let cased = given.get(0, "case_sensitive").is_some_and(TemplateValue::truth);
    let by_value = given.get(1, "by").and_then(TemplateValue::as_text).is_some_and(|by| &**by == "value");
    let backwards = given.get(2, "reverse").is_some_and(TemplateValue::truth);
    let mut keys = Vec::new();
    for (key, value) in map.entries() {
        machine.budget.allocate(ELEMENT)?;
        keys.push(sort_key(machine, if by_value { value.clone() } else { key.clone() }, cased)?);
    }
    let mut items = Vec::new();
    for place in sort_by_keys(machine, &keys, backwards)? {
        let (key, value) = map.entries()[place].clone();
        items.push(collect(machine, vec![key, value], ListKind::Tuple)?);
    }
    collect(machine, items, ListKind::List)
}

fn extreme(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
    wanted: Ordering,
) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let cased = given.get(0, "case_sensitive").is_some_and(TemplateValue::truth);
    let keys = keys_of(machine, &items, given.get(1, "attribute"), cased)?;
    let mut best = 0;
    for place in 1..keys.len() {
        if order(&keys[place], &keys[best], &mut machine.budget)? == Some(wanted) {
            best = place;
        }
    }
    Ok(items.items.get(best).cloned().unwrap_or(TemplateValue::Undefined(None)))
}

fn sum(machine: &mut Interpreter<'_>, value: TemplateValue, given: &PassedArguments) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let mut total = given.get(1, "start").cloned().unwrap_or(TemplateValue::Int(0));
    for item in &items.items {
        let part = match given.get(0, "attribute") {
            Some(attribute) if !matches!(attribute, TemplateValue::None) => {
                path(machine, item, attribute, None)?
            }
            _ => item.clone(),
        };
        machine.budget.spend(1)?;
        total = operators::arithmetic(&total, Operator::Add, &part, &mut machine.budget)?;
    }
    Ok(total)
}

fn unique(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let cased = given.get(0, "case_sensitive").is_some_and(TemplateValue::truth);
    let keys = keys_of(machine, &items, given.get(1, "attribute"), cased)?;
    let mut kept: Vec<usize> = Vec::new();
    for place in 0..keys.len() {
        let mut known = false;
        for other in &kept {
            known = known || equal(&keys[*other], &keys[place], &mut machine.budget)?;
        }
        if !known {
            kept.push(place);
        }
    }
    collect(machine, kept.into_iter().map(|place| items.items[place].clone()).collect(), ListKind::Generator)
}

fn group(
    machine: &mut Interpreter<'_>,
    value: TemplateValue,
    given: &PassedArguments,
) -> Eval<TemplateValue> {
    let items = machine.iterate(&value)?;
    let Some(attribute) = given.get(0, "attribute") else { fail!("groups without an attribute") };
    let keys = keys_of(machine, &items, Some(attribute), true)?;
    let mut groups: Vec<(TemplateValue, Vec<TemplateValue>)> = Vec::new();
    for place in sort_by_keys(machine, &keys, false)? {
        let item = items.items[place].clone();
        match groups.last_mut() {
            Some((key, members)) if equal(key, &keys[place], &mut machine.budget)? => members.push(item),
            _ => groups.push((keys[place].clone(), vec![item])),
        }
    }
    let mut result = Vec::new();
    for (key, members) in groups {
        let members = collect(machine, members, ListKind::List)?;
        result.push(collect(machine, vec![key, members], ListKind::Tuple)?);
    }
    collect(machine, result, ListKind::List)
}
