//! Limits the length and the nesting of functions.

use super::rust::word_positions;
use super::{RustFile, Tree};
use std::collections::BTreeMap;

/// Lines of code of a function, from its name to its closing brace. Comments and blank lines do not count.
const LINES: usize = 60;
/// Levels of control flow inside each other: `if`, `else`, `match`, `for`, `while` and `loop`.
const LEVELS: usize = 3;
/// Functions over the limits, as `path::function number`: matches and tables that are read as one.
const LONG: &str = "tests/arch_rules/long-functions.txt";
const NESTED: &str = "tests/arch_rules/nested-functions.txt";

/// A function with a body.
struct Function {
    name: String,
    line: usize,
    lines: usize,
    levels: usize,
}

/// Returns functions over the limit of lines, or over their length in the list, and stale entries of the list.
///
/// Tests do not count. A name in the list stands for the longest function of that name in its file.
pub fn functions_short(tree: &Tree) -> Vec<String> {
    over_limit(tree, LONG, LINES, "lines of code", |function| function.lines)
}

/// Returns functions over the limit of nested control flow, in the same way.
pub fn functions_flat(tree: &Tree) -> Vec<String> {
    over_limit(tree, NESTED, LEVELS, "levels of control flow", |function| function.levels)
}

fn over_limit(
    tree: &Tree,
    list: &str,
    limit: usize,
    unit: &str,
    measure: fn(&Function) -> usize,
) -> Vec<String> {
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    let mut breaches = Vec::new();
    for entry in tree.list(list) {
        match entry.split_once(' ').map(|(name, number)| (name, number.trim().parse())) {
            Some((name, Ok(number))) => drop(allowed.insert(name.to_owned(), number)),
            _ => breaches.push(format!("{list}:1: `{entry}` is not `path::function number`")),
        }
    }
    let mut over = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        for function in functions(&RustFile::new(file)) {
            let measured = measure(&function);
            if measured <= limit {
                continue;
            }
            let key = format!("{}::{}", file.path, function.name);
            let accepted = allowed.get(&key).copied().unwrap_or(limit);
            if measured > accepted {
                breaches.push(format!(
                    "{}:{}: `{}` has {measured} {unit} (limit {accepted}); split it, or list it in {list}",
                    file.path, function.line, function.name
                ));
            }
            over.push(key);
        }
    }
    let stale = allowed.keys().filter(|key| !over.contains(key));
    breaches
        .extend(stale.map(|key| format!("{list}:1: `{key}` is within the limit or gone; remove its line")));
    breaches
}

/// Returns the functions of a file that are not test code.
fn functions(file: &RustFile) -> Vec<Function> {
    let (code, numbers) = file.shipped_code();
    word_positions(&code, "fn").filter_map(|at| function(&code, &numbers, at)).collect()
}

/// Parses the function whose `fn` is at `at`; `None` if it is a type or has no body.
fn function(code: &str, numbers: &[usize], at: usize) -> Option<Function> {
    let header = code[at + 2..].trim_start();
    let name: String = header.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '$').collect();
    if name.is_empty() {
        return None;
    }
    let body = body_start(code, at)?;
    let (end, levels) = measure_body(code, body);
    let lines = code[at..end].lines().filter(|line| !line.trim().is_empty()).count();
    Some(Function { name, line: numbers[at], lines, levels })
}

/// Returns the position of the brace that opens the body.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at + offset),
            ';' | '}' if depth <= 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Returns the end of the body that opens at `start`, and its levels of control flow.
fn measure_body(code: &str, start: usize) -> (usize, usize) {
    // For each open bracket, whether it is a block of control flow.
    let mut open: Vec<bool> = Vec::new();
    // The numbers of open brackets at keywords whose block has not started.
    let mut pending: Vec<usize> = Vec::new();
    let (mut levels, mut deepest) = (0, 0);
    let mut word = String::new();
    let mut previous = String::new();
    for (offset, c) in code[start..].char_indices() {
        if c.is_alphanumeric() || c == '_' || c == '\'' {
            word.push(c);
            continue;
        }
        let is_chained = word == "if" && previous == "else";
        let is_bound = word == "for" && c == '<';
        if ["if", "else", "match", "for", "while", "loop"].contains(&word.as_str())
            && !is_chained
            && !is_bound
        {
            pending.push(open.len());
        }
        if !word.is_empty() {
            previous = std::mem::take(&mut word);
        }
        match c {
            '(' | '[' => open.push(false),
            '{' => {
                let is_control = pending.last() == Some(&open.len());
                if is_control {
                    pending.pop();
                    levels += 1;
                    deepest = deepest.max(levels);
                }
                open.push(is_control);
            }
            ')' | ']' | '}' => {
                levels -= usize::from(open.pop() == Some(true));
                pending.retain(|depth| *depth <= open.len());
                if open.is_empty() {
                    return (start + offset + 1, deepest);
                }
            }
            // A guard of a match arm, or the end of a statement.
            '>' if code[..start + offset].ends_with('=') => pending.retain(|depth| *depth < open.len()),
            ';' => pending.retain(|depth| *depth < open.len()),
            _ => {}
        }
        if !c.is_whitespace() {
            previous.clear();
        }
    }
    (code.len(), deepest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(code: &str, list: &str) -> Tree {
        Tree::from_files(&[("a/src/b.rs", code), (LONG, list), (NESTED, list)])
    }

    #[test]
    fn long_functions_are_found_and_their_entries_are_exact() {
        let long = format!(
            "fn short() {{}}\nimpl A {{\n  pub fn f(a: [u8; 2]) {{\n{}  }}\n}}\n",
            "g();\n".repeat(59)
        );
        assert_eq!(
            functions_short(&tree(&long, "")),
            [format!("a/src/b.rs:3: `f` has 61 lines of code (limit 60); split it, or list it in {LONG}")]
        );
        assert_eq!(functions_short(&tree(&long, "a/src/b.rs::f 60")).len(), 1);
        assert_eq!(functions_short(&tree(&long, "a/src/b.rs::f 61")), Vec::<String>::new());
        assert_eq!(functions_short(&tree(&long, "a/src/b.rs::f 61\na/src/b.rs::short 70\nodd")).len(), 2);
    }

    #[test]
    fn comments_tests_and_declarations_are_not_counted() {
        let comments = format!("fn f() {{\n{}}}\n", "// a line\n\n".repeat(60));
        let test = format!("#[cfg(test)]\nmod tests {{\nfn f() {{\n{}}}\n}}\n", "g();\n".repeat(70));
        let others = format!(
            "type F = fn(u8);\ntrait A {{ fn f(); }}\nconst X: u8 = {{\n{}3 }};\n",
            "g();\n".repeat(70)
        );
        for code in [comments, test, others] {
            assert_eq!(functions_short(&tree(&code, "")), Vec::<String>::new(), "{code}");
        }
    }

    #[test]
    fn levels_of_control_flow_are_counted() {
        let rows = [
            ("if a { } else if b { } else { }", 1),
            ("for a in b { while c { match d { e if f => { g() } _ => {} } } }", 3),
            ("let Some(a) = b else { return }; if a.iter().any(|b| { c }) { d }", 1),
            ("loop { let s = S { a: if b { 1 } else { 2 } }; unsafe { t() } }", 2),
            ("match a { B { c } => { if d { loop { e } } } }", 3),
            ("for a in b { for c in d { for e in f { if g { h } } } }", 4),
            ("let f: Box<dyn for<'a> Fn(&'a u8)> = { g };", 0),
        ];
        for (code, levels) in rows {
            let code = format!("fn f() {{ {code} }}\n");
            let (text, numbers) =
                RustFile::new(&super::super::SourceFile::new("a/src/b.rs", &code)).shipped_code();
            assert_eq!(function(&text, &numbers, 0).map(|function| function.levels), Some(levels), "{code}");
            assert_eq!(functions_flat(&tree(&code, "")).len(), usize::from(levels > LEVELS), "{code}");
        }
    }
}
