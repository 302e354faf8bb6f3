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

#[cfg(test)]
mod tests {
    use super::*;

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
