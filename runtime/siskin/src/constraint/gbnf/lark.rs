//! Writes Lark.

use std::fmt::Write;

use super::{Expression, Grammar};

/// Writes a grammar.
pub(super) fn write(grammar: &Grammar) -> String {
    let is_recursive = recursive_rules(grammar);
    let mut writer = Writer { is_recursive, terminals: Vec::new(), rules: grammar.rules.len() };
    let mut lark = format!("start: {}\n", writer.name(0));
    for (index, rule) in grammar.rules.iter().enumerate() {
        let body = match writer.is_recursive[index] {
            true => writer.in_rule(rule, Place::Alternatives),
            false => terminal(rule, Place::Alternatives, &|rule| format!("T{rule}")),
        };
        let _ = writeln!(lark, "{}: {body}", writer.name(index));
    }
    for (index, body) in writer.terminals.iter().enumerate() {
        let _ = writeln!(lark, "T{}: {body}", writer.rules + index);
    }
    lark
}

/// Returns for each rule whether it can contain itself, or a rule that can.
fn recursive_rules(grammar: &Grammar) -> Vec<bool> {
    let rules = &grammar.rules;
    let uses: Vec<Vec<usize>> = rules.iter().map(used_rules).collect();
    // Rules that only use rules of this kind, found in rounds, are not recursive.
    let mut is_recursive = vec![true; rules.len()];
    let mut open: Vec<usize> = uses.iter().map(Vec::len).collect();
    let mut users = vec![Vec::new(); rules.len()];
    for (user, uses) in uses.iter().enumerate() {
        uses.iter().for_each(|&used| users[used].push(user));
    }
    let mut ready: Vec<usize> = (0..rules.len()).filter(|&rule| open[rule] == 0).collect();
    while let Some(rule) = ready.pop() {
        is_recursive[rule] = false;
        for &user in &users[rule] {
            open[user] -= 1;
            if open[user] == 0 {
                ready.push(user);
            }
        }
    }
    is_recursive
}

/// Returns the rules that an expression names, as often as it does.
fn used_rules(expression: &Expression) -> Vec<usize> {
    match expression {
        Expression::Literal(_) | Expression::Class { .. } => Vec::new(),
        Expression::Rule(rule) => vec![*rule],
        Expression::Sequence(items) | Expression::Choice(items) => {
            items.iter().flat_map(used_rules).collect()
        }
        Expression::Repeat { item, .. } => used_rules(item),
    }
}

/// Where an expression is written, which decides about its parentheses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between `|`.
    Alternatives,
    /// In a sequence.
    Sequence,
    /// Before `*`.
    Repeated,
}

struct Writer {
    is_recursive: Vec<bool>,
    /// Terminals besides those of rules.
    terminals: Vec<String>,
    /// The number of rules.
    rules: usize,
}

impl Writer {
    fn name(&self, rule: usize) -> String {
        format!("{}{rule}", if self.is_recursive[rule] { 'r' } else { 'T' })
    }

    fn is_regular(&self, expression: &Expression) -> bool {
        used_rules(expression).iter().all(|&rule| !self.is_recursive[rule])
    }

    /// Writes an expression of a recursive rule.
    fn in_rule(&mut self, expression: &Expression, place: Place) -> String {
        match expression {
            Expression::Repeat { .. } if self.is_regular(expression) => {
                self.terminals.push(terminal(expression, Place::Alternatives, &|rule| format!("T{rule}")));
                format!("T{}", self.rules + self.terminals.len() - 1)
            }
            Expression::Rule(rule) => self.name(*rule),
            _ => {
                let items = parts(expression).map(|part| self.in_rule(part.0, part.1)).collect();
                joined(expression, place, items)
            }
        }
    }
}

/// Writes an expression of a terminal, or one of a rule without other rules.
fn terminal(expression: &Expression, place: Place, name: &dyn Fn(usize) -> String) -> String {
    match expression {
        Expression::Rule(rule) => name(*rule),
        _ => {
            let items = parts(expression).map(|part| terminal(part.0, part.1, name)).collect();
            joined(expression, place, items)
        }
    }
}

/// Returns the parts of an expression, and where they are written.
fn parts(expression: &Expression) -> impl Iterator<Item = (&Expression, Place)> {
    let (items, place) = match expression {
        Expression::Literal(_) | Expression::Class { .. } | Expression::Rule(_) => (&[][..], Place::Sequence),
        Expression::Sequence(items) => (items.as_slice(), Place::Sequence),
        Expression::Choice(items) => (items.as_slice(), Place::Alternatives),
        Expression::Repeat { item, .. } => (std::slice::from_ref(&**item), Place::Repeated),
    };
    items.iter().map(move |item| (item, place))
}

/// Writes an expression from its written parts.
fn joined(expression: &Expression, place: Place, mut items: Vec<String>) -> String {
    match expression {
        Expression::Literal(text) if text.is_empty() => "\"\"".to_owned(),
        Expression::Literal(text) => format!("/{}/", text.chars().map(escaped).collect::<String>()),
        Expression::Class { is_negated, ranges } => class(*is_negated, ranges),
        Expression::Rule(_) => String::new(),
        Expression::Sequence(_) if place == Place::Repeated => format!("({})", items.join(" ")),
        Expression::Sequence(_) => items.join(" "),
        Expression::Choice(_) if place == Place::Alternatives => items.join(" | "),
        Expression::Choice(_) => format!("({})", items.join(" | ")),
        Expression::Repeat { least, most, .. } => {
            let item = items.pop().unwrap_or_default();
            let repeated = match (least, most) {
                (0, None) => format!("{item}*"),
                (1, None) => format!("{item}+"),
                (0, Some(1)) => format!("{item}?"),
                (least, None) => format!("{item}{{{least},}}"),
                (least, Some(most)) => format!("{item}{{{least},{most}}}"),
            };
            if place == Place::Repeated { format!("({repeated})") } else { repeated }
        }
    }
}

fn class(is_negated: bool, ranges: &[(char, char)]) -> String {
    if ranges.is_empty() {
        // None of no characters: any.
        return class(false, &[('\0', char::MAX)]);
    }
    let mut text = format!("/[{}", if is_negated { "^" } else { "" });
    for &(first, last) in ranges {
        text.push_str(&escaped(first));
        if last != first {
            text.push('-');
            text.push_str(&escaped(last));
        }
    }
    text + "]/"
}

/// Returns a character as a regular expression, inside and outside of sets.
fn escaped(character: char) -> String {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | ',' | '_' | ';' => character.to_string(),
        _ => format!("\\x{{{:x}}}", u32::from(character)),
    }
}
