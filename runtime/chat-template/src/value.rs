//! Values of template variables. Values are immutable trees of bounded depth, as in Jinja's immutable sandbox; only
//! namespaces are mutable, and they are owned by the machine.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::MacroDefinition;
use super::budget::{Budget, Eval, fail};
use super::text::SpannedText;

/// The maximum nesting depth of lists and mappings.
pub(super) const MAX_DEPTH: u32 = 64;
/// The size that an element of a list is counted as, in bytes.
pub(super) const ELEMENT: usize = size_of::<TemplateValue>();

#[derive(Clone, Debug)]
pub(super) enum TemplateValue {
    /// An undefined value; the name is for messages.
    Undefined(Option<Arc<str>>),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(SpannedText),
    List(Arc<List>),
    Map(Arc<OrderedMap>),
    /// An index into the machine's list of namespaces.
    Namespace(usize),
    /// A macro, and the frame that encloses it.
    Macro(Arc<MacroDefinition>, usize),
    Function(Function),
    /// A bound method.
    Method(Arc<(TemplateValue, Arc<str>)>),
    Loop(Arc<Loop>),
}

/// The global functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Namespace,
    Dict,
    RaiseException,
    StrftimeNow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    List,
    Tuple,
    /// A lazy iterator of Python: always true, and without a length.
    Generator,
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Vec<TemplateValue>,
    pub(super) kind: ListKind,
    depth: u32,
}

/// A mapping that preserves insertion order.
#[derive(Debug)]
pub(super) struct OrderedMap {
    entries: Vec<(TemplateValue, TemplateValue)>,
    /// Indices of the entries with text keys, sorted by key.
    sorted: Vec<u32>,
    depth: u32,
}

/// The `loop` variable.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) items: Arc<List>,
    pub(super) index: usize,
    pub(super) depth: i64,
}

impl TemplateValue {
    /// Creates text that the template itself contains.
    pub(super) fn literal(text: impl Into<Arc<str>>) -> Self {
        TemplateValue::Text(SpannedText::trusted(text))
    }

    pub(super) fn undefined(name: &Arc<str>) -> Self {
        TemplateValue::Undefined(Some(name.clone()))
    }

    /// Creates a list whose elements were already counted in the budget.
    pub(super) fn list(items: Vec<TemplateValue>, kind: ListKind) -> Eval<Self> {
        let depth = deeper(items.iter())?;
        Ok(TemplateValue::List(Arc::new(List { items, kind, depth })))
    }

    /// Creates a mapping; of equal keys the last value is kept, at the position of the first.
    pub(super) fn map(entries: Vec<(TemplateValue, TemplateValue)>, budget: &mut Budget) -> Eval<Self> {
        let depth = deeper(entries.iter().flat_map(|(key, value)| [key, value]))?;
        budget.allocate(entries.len() * ELEMENT * 2)?;
        Ok(TemplateValue::Map(Arc::new(OrderedMap::new(entries, depth, budget)?)))
    }

    fn depth(&self) -> u32 {
        match self {
            TemplateValue::List(list) => list.depth,
            TemplateValue::Map(map) => map.depth,
            TemplateValue::Method(method) => method.0.depth() + 1,
            TemplateValue::Loop(state) => state.items.depth,
            _ => 0,
        }
    }

    pub(super) fn as_text(&self) -> Option<&SpannedText> {
        if let TemplateValue::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, TemplateValue::Undefined(_))
    }

    /// Returns the integer value; booleans are integers too.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            TemplateValue::Int(number) => Some(*number),
            TemplateValue::Bool(truth) => Some(i64::from(*truth)),
            _ => None,
        }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        if let TemplateValue::Float(number) = self {
            Some(*number)
        } else {
            self.as_int().map(|number| number as f64)
        }
    }

    /// Returns Python's truth value. Namespaces, functions and the like are true.
    pub(super) fn truth(&self) -> bool {
        match self {
            TemplateValue::Undefined(_) | TemplateValue::None => false,
            TemplateValue::Bool(truth) => *truth,
            TemplateValue::Int(number) => *number != 0,
            TemplateValue::Float(number) => *number != 0.0,
            TemplateValue::Text(text) => !text.is_empty(),
            TemplateValue::List(list) => list.kind == ListKind::Generator || !list.items.is_empty(),
            TemplateValue::Map(map) => !map.entries.is_empty(),
            _ => true,
        }
    }

    /// Returns the name of the type, for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            TemplateValue::Undefined(_) => "undefined",
            TemplateValue::None => "none",
            TemplateValue::Bool(_) => "bool",
            TemplateValue::Int(_) => "int",
            TemplateValue::Float(_) => "float",
            TemplateValue::Text(_) => "str",
            TemplateValue::List(list) if list.kind == ListKind::Tuple => "tuple",
            TemplateValue::List(_) => "list",
            TemplateValue::Map(_) => "dict",
            TemplateValue::Namespace(_) => "namespace",
            TemplateValue::Loop(_) => "loop",
            _ => "function",
        }
    }

    /// Describes a value for the error messages of templates.
    pub(super) fn describe(&self) -> String {
        match self {
            TemplateValue::Undefined(Some(name)) => format!("'{name}', which is not defined"),
            TemplateValue::Undefined(None) => "something that is not defined".to_owned(),
            other => format!("a value of type {}", other.type_name()),
        }
    }
}

fn deeper<'v>(mut parts: impl Iterator<Item = &'v TemplateValue>) -> Eval<u32> {
    let depth = parts
        .try_fold(0, |depth: u32, part| Some(depth.max(part.depth())).filter(|depth| *depth < MAX_DEPTH));
    match depth {
        Some(depth) => Ok(depth + 1),
        None => fail!("nests lists or mappings more than {MAX_DEPTH} levels deep"),
    }
}

impl OrderedMap {
    fn new(entries: Vec<(TemplateValue, TemplateValue)>, depth: u32, budget: &mut Budget) -> Eval<Self> {
        let mut unique: Vec<(TemplateValue, TemplateValue)> = Vec::with_capacity(entries.len());
        let mut texts: HashMap<Arc<str>, usize> = HashMap::new();
        let mut others: Vec<usize> = Vec::new();
        for (key, value) in entries {
            let mut known = None;
            if let TemplateValue::Text(text) = &key {
                known = texts.get(text.as_arc()).copied();
                texts.entry(text.as_arc().clone()).or_insert(unique.len());
            } else {
                for place in &others {
                    if known.is_none() && equal(&unique[*place].0, &key, budget)? {
                        known = Some(*place);
                    }
                }
                if known.is_none() {
                    others.push(unique.len());
                }
            }
            match known {
                Some(place) => unique[place].1 = value,
                None => unique.push((key, value)),
            }
        }
        let mut sorted: Vec<_> = texts.into_iter().collect();
        sorted.sort_unstable();
        let sorted = sorted.into_iter().map(|(_, place)| place as u32).collect();
        Ok(Self { entries: unique, sorted, depth })
    }

    pub(super) fn entries(&self) -> &[(TemplateValue, TemplateValue)] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the value of a text key.
    pub(super) fn get_text(&self, key: &str) -> Option<&TemplateValue> {
        let entry = |place: u32| &self.entries[place as usize];
        let text = |place: u32| entry(place).0.as_text().map_or("", |key| key);
        let found = self.sorted.binary_search_by(|place| text(*place).cmp(key)).ok()?;
        Some(&entry(self.sorted[found]).1)
    }

    /// Returns the value of any key.
    pub(super) fn get(&self, key: &TemplateValue, budget: &mut Budget) -> Eval<Option<&TemplateValue>> {
        budget.spend(1)?;
        if let TemplateValue::Text(key) = key {
            return Ok(self.get_text(key));
        }
        for (known, value) in &self.entries {
            if equal(known, key, budget)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// Computes `left == right`.
pub(super) fn equal(left: &TemplateValue, right: &TemplateValue, budget: &mut Budget) -> Eval<bool> {
    budget.spend(1)?;
    Ok(match (left, right) {
        (TemplateValue::Undefined(_), TemplateValue::Undefined(_))
        | (TemplateValue::None, TemplateValue::None) => true,
        (TemplateValue::Text(left), TemplateValue::Text(right)) => {
            budget.scan(left.len().min(right.len()))?;
            left == right
        }
        (TemplateValue::List(left), TemplateValue::List(right)) => {
            if left.kind != right.kind || left.items.len() != right.items.len() {
                return Ok(false);
            }
            for (left, right) in left.items.iter().zip(&right.items) {
                if !equal(left, right, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (TemplateValue::Map(left), TemplateValue::Map(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (key, value) in left.entries() {
                match right.get(key, budget)? {
                    Some(other) if equal(value, other, budget)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (TemplateValue::Namespace(left), TemplateValue::Namespace(right)) => left == right,
        (TemplateValue::Function(left), TemplateValue::Function(right)) => left == right,
        _ => match (left.as_int(), right.as_int()) {
            (Some(left), Some(right)) => left == right,
            _ => matches!((left.as_float(), right.as_float()), (Some(left), Some(right)) if left == right),
        },
    })
}

/// Returns the list of a value that is already a list.
pub(super) fn as_list(value: &TemplateValue) -> Option<&Arc<List>> {
    if let TemplateValue::List(list) = value { Some(list) } else { None }
}
