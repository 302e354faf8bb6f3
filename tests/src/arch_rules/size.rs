//! Limits the length of files.

use super::{RustFile, Tree};

const BUDGET: usize = 600;
const LIST: &str = "tests/arch_rules/tables.txt";
const KINDS: [&str; 7] = ["rs", "c", "cu", "kt", "java", "swift", "py"];

/// Returns files over the limit that are not listed as tables, and stale entries of the list.
///
/// Tests do not count: neither whole files nor test modules.
pub fn files_short(tree: &Tree) -> Vec<String> {
    let listed = tree.list(LIST);
    let mut breaches = Vec::new();
    let mut long = Vec::new();
    for file in &tree.files {
        if file.is_test() || !KINDS.iter().any(|kind| file.path.ends_with(&format!(".{kind}"))) {
            continue;
        }
        let lines = if file.path.ends_with(".rs") {
            RustFile::new(file).shipped().count()
        } else {
            file.text.lines().count()
        };
        if lines > BUDGET {
            long.push(file.path.as_str());
            if !listed.contains(&file.path) {
                breaches.push(format!(
                    "{}:{lines}: {lines} lines without tests; split it (limit {BUDGET})",
                    file.path
                ));
            }
        }
    }
    let stale = listed.iter().filter(|path| !long.contains(&path.as_str()));
    breaches.extend(stale.map(|path| format!("{LIST}:1: `{path}` is within the limit")));
    breaches
}

/// Lines of the methods of [`Context`](siskin_backend::context::Context), which is a facade: what differs between
/// devices is in their backends.
const CONTEXT_BUDGET: usize = 250;

/// Returns a breach if the `impl` blocks of `Context` are longer than the limit, or if their file names the CPU backend.
pub fn context_small(tree: &Tree) -> Vec<String> {
    let mut lines = 0;
    let mut breaches = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with("runtime/backend/src/") && !file.is_test()) {
        let mut is_inside = false;
        let before = lines;
        for line in file.text.lines() {
            is_inside |= line.starts_with("impl Context {");
            lines += usize::from(is_inside);
            is_inside &= line != "}";
        }
        let names_cpu = file.text.lines().position(|line| line.contains("cpu::"));
        if let Some(index) = names_cpu.filter(|_| lines > before) {
            breaches.push(format!("{}:{}: `Context` names the CPU backend", file.path, index + 1));
        }
    }
    if !(1..=CONTEXT_BUDGET).contains(&lines) {
        breaches.push(format!(
            "runtime/backend/src/context.rs:1: {lines} lines of `impl Context` (limit {CONTEXT_BUDGET})"
        ));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_context_is_found() {
        let path = "runtime/backend/src/context.rs";
        let method = "    fn f() {}\n";
        let of = |count: usize| format!("impl Context {{\n{}}}\n{}", method.repeat(count), method.repeat(99));
        let breaches = |text: &str| context_small(&Tree::from_files(&[(path, text)])).len();
        assert_eq!([248, 249].map(|count| breaches(&of(count))), [0, 1]);
        assert_eq!(breaches(&format!("use crate::cpu::Module;\n{}", of(1))), 1);
        assert_eq!(breaches("impl Contexts {}"), 1, "`impl Context` is not found");
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let code = "fn f() {}\n".repeat(601);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(700));
        assert_eq!(files_short(&Tree::from_files(&[("a/src/b.rs", &code)])).len(), 1);
        assert_eq!(files_short(&Tree::from_files(&[("a/src/b.rs", &tested)])).len(), 0);
        assert_eq!(files_short(&Tree::from_files(&[("a/tests/b.rs", &code)])).len(), 0);
        assert_eq!(files_short(&Tree::from_files(&[("a/src/b.rs", &code), (LIST, "a/src/b.rs")])).len(), 0);
        assert_eq!(files_short(&Tree::from_files(&[(LIST, "a/src/b.rs")])).len(), 1);
    }
}
