//! Operators, with Python's semantics.

use std::cmp::Ordering;

use super::ast::{Comparison, Operator};
use super::budget::{Budget, Eval, RenderError, fail};
use super::text::{SpannedText, TextBuilder};
use super::value::{ELEMENT, ListKind, TemplateValue, equal};

/// Computes `left operator right`.
pub(super) fn arithmetic(
    left: &TemplateValue,
    operator: Operator,
    right: &TemplateValue,
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    match (left, operator, right) {
        (TemplateValue::Text(left), Operator::Add, TemplateValue::Text(right)) => {
            budget.allocate(left.size() + right.size())?;
            let mut output = TextBuilder::default();
            output.push_text(left);
            output.push_text(right);
            return Ok(TemplateValue::Text(output.finish()));
        }
        (TemplateValue::List(left), Operator::Add, TemplateValue::List(right)) if left.kind == right.kind => {
            budget.allocate((left.items.len() + right.items.len()) * ELEMENT)?;
            return TemplateValue::list([left.items.as_slice(), &right.items].concat(), left.kind);
        }
        (TemplateValue::Text(text), Operator::Multiply, count)
        | (count, Operator::Multiply, TemplateValue::Text(text)) => {
            if let Some(count) = count.as_int() {
                let count = usize::try_from(count).unwrap_or(0);
                budget.allocate(text.size().saturating_mul(count))?;
                let mut output = TextBuilder::default();
                output.push_repeated(text, count);
                return Ok(TemplateValue::Text(output.finish()));
            }
        }
        (TemplateValue::List(list), Operator::Multiply, count)
        | (count, Operator::Multiply, TemplateValue::List(list)) => {
            if let Some(count) = count.as_int() {
                let count = usize::try_from(count).unwrap_or(0);
                budget.allocate(list.items.len().saturating_mul(count).saturating_mul(ELEMENT))?;
                let length = list.items.len() * count;
                return TemplateValue::list(
                    list.items.iter().cycle().take(length).cloned().collect(),
                    list.kind,
                );
            }
        }
        (TemplateValue::Text(format), Operator::Remainder, arguments) => {
            return super::format::percent(format, arguments, budget);
        }
        _ => {}
    }
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return integers(left, operator, right);
    }
    match (left.as_float(), right.as_float()) {
        (Some(left), Some(right)) => floats(left, operator, right),
        _ => fail!("cannot {} {} and {}", verb(operator), left.describe(), right.describe()),
    }
}

fn verb(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "add",
        Operator::Subtract => "subtract",
        Operator::Multiply => "multiply",
        Operator::Divide | Operator::FloorDivide => "divide",
        Operator::Remainder => "take the remainder of",
        Operator::Power => "raise to a power",
    }
}

fn integers(left: i64, operator: Operator, right: i64) -> Eval<TemplateValue> {
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide | Operator::FloorDivide | Operator::Remainder if right == 0 => {
            fail!("divides by zero")
        }
        Operator::Divide => return Ok(TemplateValue::Float(left as f64 / right as f64)),
        Operator::FloorDivide => left.checked_div(right).map(|quotient| {
            let inexact = left % right != 0;
            quotient - i64::from(inexact && (left < 0) != (right < 0))
        }),
        Operator::Remainder => left.checked_rem(right).map(|remainder| {
            let other_side = remainder != 0 && (remainder < 0) != (right < 0);
            remainder + if other_side { right } else { 0 }
        }),
        Operator::Power if right < 0 => return floats(left as f64, operator, right as f64),
        Operator::Power => u32::try_from(right).ok().and_then(|power| left.checked_pow(power)),
    };
    result.map(TemplateValue::Int).ok_or_else(|| RenderError::new("computes a number that is too large"))
}

fn floats(left: f64, operator: Operator, right: f64) -> Eval<TemplateValue> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if divides && right == 0.0 {
        fail!("divides by zero");
    }
    Ok(TemplateValue::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::FloorDivide => libm::floor(left / right),
        Operator::Remainder => left - right * libm::floor(left / right),
        Operator::Power => libm::pow(left, right),
    }))
}

/// Returns the order of two values, if Python orders them.
pub(super) fn order(
    left: &TemplateValue,
    right: &TemplateValue,
    budget: &mut Budget,
) -> Eval<Option<Ordering>> {
    budget.spend(1)?;
    match (left, right) {
        (TemplateValue::Text(left), TemplateValue::Text(right)) => {
            budget.scan(left.len().min(right.len()))?;
            Ok(Some((**left).cmp(right)))
        }
        (TemplateValue::List(left), TemplateValue::List(right)) if left.kind == right.kind => {
            for (left, right) in left.items.iter().zip(&right.items) {
                if !equal(left, right, budget)? {
                    return order(left, right, budget);
                }
            }
            Ok(Some(left.items.len().cmp(&right.items.len())))
        }
        _ => match (left.as_int(), right.as_int(), left.as_float(), right.as_float()) {
            (Some(left), Some(right), ..) => Ok(Some(left.cmp(&right))),
            (_, _, Some(left), Some(right)) => Ok(left.partial_cmp(&right)),
            _ => fail!("cannot compare {} and {}", left.describe(), right.describe()),
        },
    }
}

/// Computes `left comparison right`.
pub(super) fn compare(
    left: &TemplateValue,
    comparison: Comparison,
    right: &TemplateValue,
    budget: &mut Budget,
) -> Eval<bool> {
    Ok(match comparison {
        Comparison::Equal => equal(left, right, budget)?,
        Comparison::NotEqual => !equal(left, right, budget)?,
        Comparison::In => contains(right, left, budget)?,
        Comparison::NotIn => !contains(right, left, budget)?,
        Comparison::Less => order(left, right, budget)? == Some(Ordering::Less),
        Comparison::Greater => order(left, right, budget)? == Some(Ordering::Greater),
        Comparison::LessOrEqual => order(left, right, budget)?.is_some_and(Ordering::is_le),
        Comparison::GreaterOrEqual => order(left, right, budget)?.is_some_and(Ordering::is_ge),
    })
}

/// Computes `part in whole`.
pub(super) fn contains(whole: &TemplateValue, part: &TemplateValue, budget: &mut Budget) -> Eval<bool> {
    match (whole, part) {
        (TemplateValue::Text(whole), TemplateValue::Text(part)) => {
            budget.scan(whole.len())?;
            Ok(whole.contains(&**part))
        }
        (TemplateValue::List(list), _) => {
            for item in &list.items {
                if equal(item, part, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (TemplateValue::Map(map), _) => Ok(map.get(part, budget)?.is_some()),
        (TemplateValue::Undefined(_), _) => Ok(false),
        _ => fail!("cannot look for {} in {}", part.describe(), whole.describe()),
    }
}

/// Computes `value[index]`; undefined if the entry does not exist.
pub(super) fn index(
    value: &TemplateValue,
    index: &TemplateValue,
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    let found = match (value, index.as_int()) {
        (TemplateValue::List(list), Some(place)) if list.kind != ListKind::Generator => {
            from_end(place, list.items.len()).and_then(|place| list.items.get(place).cloned())
        }
        (TemplateValue::Text(text), Some(place)) => {
            budget.scan(text.len())?;
            let length = if place < 0 { text.chars().count() } else { usize::MAX };
            let character = from_end(place, length).and_then(|place| text.char_indices().nth(place));
            character.map(|(at, character)| TemplateValue::Text(text.slice(at..at + character.len_utf8())))
        }
        (TemplateValue::Map(map), _) => map.get(index, budget)?.cloned(),
        (TemplateValue::Undefined(_), _) => fail!("looks into {}", value.describe()),
        _ => None,
    };
    Ok(found.unwrap_or(match index {
        TemplateValue::Text(name) => TemplateValue::undefined(name.as_arc()),
        _ => TemplateValue::Undefined(None),
    }))
}

fn from_end(place: i64, length: usize) -> Option<usize> {
    if place >= 0 {
        usize::try_from(place).ok()
    } else {
        length.checked_sub(usize::try_from(place.unsigned_abs()).ok()?)
    }
}

/// Computes `value[start:stop:step]`.
pub(super) fn slice(
    value: &TemplateValue,
    bounds: [Option<i64>; 3],
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    match value {
        TemplateValue::List(list) => {
            let places = places(bounds, list.items.len())?;
            budget.allocate(places.len() * ELEMENT)?;
            TemplateValue::list(places.iter().map(|place| list.items[*place].clone()).collect(), list.kind)
        }
        TemplateValue::Text(text) => {
            if let [start, stop, None | Some(1)] = bounds {
                return text_slice(text, start, stop, budget);
            }
            budget.allocate(text.len().saturating_mul(size_of::<usize>()).saturating_add(text.size()))?;
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            Ok(TemplateValue::Text(picked(text, &starts, &places(bounds, starts.len())?)))
        }
        other => fail!("cannot take a slice of {}", other.describe()),
    }
}

/// Returns the characters with the indices `places`; `starts` are the byte offsets of all characters.
pub(super) fn picked(text: &SpannedText, starts: &[usize], places: &[usize]) -> SpannedText {
    let mut output = TextBuilder::default();
    for &place in places {
        let end = starts.get(place + 1).copied().unwrap_or(text.len());
        output.push_changed(&text[starts[place]..end], text, starts[place]..end);
    }
    output.finish()
}

fn text_slice(
    text: &SpannedText,
    start: Option<i64>,
    stop: Option<i64>,
    budget: &mut Budget,
) -> Eval<TemplateValue> {
    budget.allocate(text.size())?;
    let length = text.chars().count();
    let (start, stop) = (clamp(start.unwrap_or(0), length), stop.map_or(length, |stop| clamp(stop, length)));
    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let first = byte(start);
    Ok(TemplateValue::Text(text.slice(first..byte(stop).max(first))))
}

fn clamp(place: i64, length: usize) -> usize {
    from_end(place, length).unwrap_or(0).min(length)
}

fn places(bounds: [Option<i64>; 3], length: usize) -> Eval<Vec<usize>> {
    let [start, stop, step] = bounds;
    let step = step.unwrap_or(1);
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if step == 0 {
        fail!("takes a slice with a step of zero");
    }
    if step > 0 {
        let stop = stop.map_or(length, |stop| clamp(stop, length));
        return Ok((clamp(start.unwrap_or(0), length)..stop).step_by(stride).collect());
    }
    // Backwards: both bounds are one greater than the index that they denote.
    let bound = |place: i64| {
        if place >= 0 { place.saturating_add(1) } else { place.saturating_add(1 + length as i64) }
    };
    let clamped = |place: i64| usize::try_from(bound(place)).unwrap_or(0).min(length);
    let (first, last) = (start.map_or(length, clamped), stop.map_or(0, clamped));
    Ok((last..first).rev().step_by(stride).collect())
}
